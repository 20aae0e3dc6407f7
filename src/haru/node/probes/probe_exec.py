"""Asking a container: by a command in it, over HTTP, TCP or gRPC. For probes and for lifecycle hooks.

Source: v1 ProbeHandler and LifecycleHandler as documented; a host that is not named is the pod's address. Redirects are
followed on the same host, as by the kubelet.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple
from urllib.parse import urljoin, urlsplit

from haru.event_loop import imported
from haru.kube.go_values import dial_problem, go_duration, rpc_error
from haru.node.cri.client import RuntimeClient
from haru.node.cri.errors import CriError
from haru.node.probes.metrics import ProbeCounts
from haru.node.probes.schedule import target_port
from haru.proto import MessageError, decode
from haru.proto import grpchealth_pb2 as health

if TYPE_CHECKING:
    import aiohttp
    import grpc.aio

MOST_OUTPUT = 10 * 1024
_HEALTH = "/grpc.health.v1.Health/Check"
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_MOST_REQUESTS: Final = 10


@dataclass(frozen=True, slots=True)
class Answer:
    """Whether a handler succeeded, and its output."""

    well: bool
    text: str = ""
    result: Literal["", "warning", "unknown"] = ""
    """`warning`: a success to look at. `unknown`: it could not be run, which says nothing of the container."""


class HandlerRunner:
    """Runs handlers of probes and lifecycle hooks in containers of one runtime."""

    def __init__(self, runtime: RuntimeClient) -> None:
        self._runtime = runtime
        self._session: aiohttp.ClientSession | None = None
        self.counts = ProbeCounts()
        """Of the probes that it has asked."""

    async def close(self) -> None:
        """Give connections back."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def run(
        self, handler: Mapping[str, Any], container: Mapping[str, Any], id_: str, address: str, seconds: float
    ) -> Answer:
        """Make one probe; a failure of the container is a result, not an exception."""
        return await self._run(handler, container, id_, address, seconds, _PROBE)

    async def run_hook(
        self, hook: Mapping[str, Any], container: Mapping[str, Any], id_: str, address: str, seconds: float
    ) -> Answer:
        """Run a lifecycle hook. Over HTTP any answer is a success, and there is none over TCP, as in the kubelet."""
        if "tcpSocket" in hook:
            return Answer(False, "invalid handler: a lifecycle hook has no tcpSocket")
        return await self._run(hook, container, id_, address, seconds, _HOOK)

    async def _run(
        self,
        handler: Mapping[str, Any],
        container: Mapping[str, Any],
        id_: str,
        address: str,
        seconds: float,
        use: _HttpUse,
    ) -> Answer:
        if found := handler.get("exec"):
            return await self._exec(id_, list(found.get("command") or ()), seconds)
        if "sleep" in handler:
            await asyncio.sleep(float((handler["sleep"] or {}).get("seconds") or 0))
            return Answer(True)
        kind = next((kind for kind in ("httpGet", "tcpSocket", "grpc") if kind in handler), "")
        where = handler.get(kind) or {}
        port = target_port(container, where.get("port", 0)) if kind else None
        if port is None:
            text = f"strconv.Atoi: parsing {json.dumps(str(where.get('port')))}: invalid syntax"
            return Answer(False, text, "unknown")
        host = where.get("host") or address
        if kind == "httpGet":
            return await self._http(where, host, port, seconds, use)
        return await (_grpc(where, host, port, seconds) if kind == "grpc" else _tcp(host, port, seconds))

    async def _exec(self, id_: str, command: list[str], seconds: float) -> Answer:
        try:
            answer = await self._runtime.exec_sync(id_, command, seconds)
        except CriError as error:
            if error.code == "DEADLINE_EXCEEDED":
                words, time = json.dumps(" ".join(command), ensure_ascii=False), _time(seconds)
                return Answer(False, f"command timed out: {words} timed out after {time}")
            return Answer(False, str(error), "unknown")
        text = (answer.stdout + answer.stderr)[:MOST_OUTPUT].decode(errors="replace")
        return Answer(answer.exit_code == 0, text)

    async def _http(self, where: Mapping[str, Any], host: str, port: int, seconds: float, use: _HttpUse) -> Answer:
        await imported("aiohttp")
        import aiohttp

        if self._session is None:
            self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0, force_close=True))
        scheme = (where.get("scheme") or "HTTP").lower()
        bracketed = f"[{host}]" if ":" in host else host
        path = where.get("path") or "/"
        url = f"{scheme}://{bracketed}:{port}{path if path.startswith('/') else '/' + path}"
        headers = {"User-Agent": use.agent, "Accept": "*/*"}
        headers |= {one["name"]: one.get("value", "") for one in where.get("httpHeaders") or ()}
        try:
            async with asyncio.timeout(seconds):
                status, body = await self._get(url, headers)
        except TimeoutError:
            why = "context deadline exceeded (Client.Timeout exceeded while awaiting headers)"
        except aiohttp.ClientConnectorDNSError as error:
            why = f"dial tcp: lookup {error.host}: no such host"
        except aiohttp.ClientConnectorSSLError as error:
            why = _tls_problem(error.os_error)
        except aiohttp.ClientConnectorError as error:
            why = dial_problem(host, port, error.os_error)
        except aiohttp.ServerDisconnectedError:
            why = "EOF"
        except aiohttp.ClientResponseError as error:
            why = f"net/http: HTTP/1.x transport connection broken: malformed HTTP response {_quoted_line(error)}"
        except (aiohttp.ClientError, OSError, ValueError) as error:
            why = str(error)
        else:
            return use.judge(status, body)
        return Answer(False, f'Get "{url}": {why}')

    async def _get(self, url: str, headers: Mapping[str, str]) -> tuple[int, str]:
        """Status and body of the last answer. Raises OSError for too many redirects."""
        assert self._session is not None
        asked = url
        for _ in range(_MOST_REQUESTS):
            # A probe asks whether somebody answers; who it is, is not checked.
            async with self._session.get(
                asked, headers=headers, ssl=False, allow_redirects=False, skip_auto_headers=("Accept-Encoding",)
            ) as answer:
                body = (await answer.content.read(MOST_OUTPUT)).decode(errors="replace")
            place = answer.headers.get("location", "") if answer.status in _REDIRECTS else ""
            following = urljoin(asked, place)
            if not place or urlsplit(following).hostname != urlsplit(url).hostname:
                return answer.status, body
            asked = following
        raise OSError(f"stopped after {_MOST_REQUESTS} redirects")


def _judged(status: int, body: str) -> Answer:
    if not 200 <= status < 400:
        return Answer(False, f"HTTP probe failed with statuscode: {status}")
    if status >= 300:
        return Answer(True, f"Probe terminated redirects, Response body: {body}", "warning")
    return Answer(True, body)


class _HttpUse(NamedTuple):
    """Who asks over HTTP, and what is made of an answer."""

    agent: str
    judge: Callable[[int, str], Answer]


_PROBE: Final = _HttpUse("kube-probe/1.36", _judged)
_HOOK: Final = _HttpUse("kube-lifecycle/1.36", lambda status, body: Answer(True, body))


def _quoted_line(error: aiohttp.ClientResponseError) -> str:
    """The line that is no HTTP, which aiohttp shows as bytes of Python."""
    found = re.search(r"^\s*b(['\"])(.*)\1$", error.message, re.MULTILINE)
    return json.dumps(found[2] if found else error.message)


def _tls_problem(error: OSError) -> str:
    """Say why TLS does not come about, as Go does; mostly the server speaks plain HTTP."""
    reason = str(getattr(error, "reason", None) or error)
    if reason == "WRONG_VERSION_NUMBER":
        return "http: server gave HTTP response to HTTPS client"
    return f"tls: {reason.lower().replace('_', ' ')}"


def _time(seconds: float) -> str:
    return go_duration(round(seconds * 10**9))


async def _tcp(host: str, port: int, seconds: float) -> Answer:
    try:
        async with asyncio.timeout(seconds):
            _, writer = await asyncio.open_connection(host, port)
    except TimeoutError:
        return Answer(False, f"dial tcp {host}:{port}: i/o timeout")
    except OSError as error:
        return Answer(False, dial_problem(host, port, error))
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    return Answer(True)


async def _grpc(where: Mapping[str, Any], host: str, port: int, seconds: float) -> Answer:
    import grpc.aio

    options = (("grpc.enable_http_proxy", 0), ("grpc.use_local_subchannel_pool", 1))
    loop, place = asyncio.get_running_loop(), f"{host}:{port}"
    end = loop.time() + seconds
    async with grpc.aio.insecure_channel(place, options=options) as channel:
        try:
            # A server that listens within the time is not late: kubelets dial until then.
            async with asyncio.timeout(seconds):
                await channel.channel_ready()
            call: Any = channel.unary_unary(_HEALTH)
            request = health.HealthCheckRequest(service=where.get("service"))
            data = await call(request.SerializeToString(), timeout=max(end - loop.time(), 0.0))
            status = decode(health.HealthCheckResponse, data).status
        except TimeoutError:
            problem = f'timeout: failed to connect service "{place}" within {_time(seconds)}: context deadline exceeded'
            return Answer(False, problem)
        except grpc.aio.AioRpcError as error:
            return Answer(False, _grpc_problem(error, _time(seconds)))
        except MessageError as error:
            return Answer(False, str(error))
    if status == health.HealthCheckResponse.SERVING:
        return Answer(True)
    name = health.HealthCheckResponse.ServingStatus.Name(status)
    return Answer(False, f'service unhealthy (responded with "{name}")')


def _grpc_problem(error: grpc.aio.AioRpcError, time: str) -> str:
    code = error.code().name
    if code == "DEADLINE_EXCEEDED":
        return f"timeout: health rpc did not complete within {time}"
    if code == "UNIMPLEMENTED":
        protocol = "this server does not implement the grpc health protocol (grpc.health.v1.Health)"
        return f"error: {protocol}: {error.details()}"
    return f"error: health rpc probe failed: {rpc_error(code, error.details() or '')}"
