"""Probes as the kubelet's: what cannot be asked says nothing, redirects are followed, a pod that ends is let be."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, cast

import grpc
import grpc.aio
import pytest
from aiohttp import web

from haru.node.cri.errors import CriError
from haru.node.podworker.observed import SeenContainer
from haru.node.probes.probe_exec import Answer, HandlerRunner
from haru.node.probes.prober import Prober
from haru.proto import cri_pb2 as cri
from haru.proto import grpchealth_pb2 as health
from haru_process import free_port
from waiting import until

HOST = "127.0.0.1"
UNAVAILABLE = CriError("exec_sync", "UNAVAILABLE", "the runtime is restarted")
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Runtime:
    """Answers commands by what stands in `answers`, the last one for ever."""

    def __init__(self, *answers: int | Exception) -> None:
        self.answers, self.asked = list(answers), 0

    async def exec_sync(self, id_: str, command: list[str], seconds: float) -> cri.ExecSyncResponse:
        self.asked += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return cri.ExecSyncResponse(exit_code=answer, stdout=b"said")


class Events:
    """Keeps events."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str, str]] = []

    def event(self, obj: Any, type_: str, reason: str, message: str) -> None:
        self.told.append((type_, reason, message))


def probed(runtime: Any, **probes: Any) -> tuple[Prober, Events]:
    """The probes of a container that has run for a second."""
    events: Any = Events()
    prober = Prober(HandlerRunner(runtime), events, lambda: None)
    pod = {"metadata": {"name": "p", "namespace": "default", "uid": "u"}}
    container = {"name": "main", **probes}
    prober.watch(pod, container, SeenContainer("c", "main", started_at=int((time.time() - 1) * 1e9)), HOST, None)
    return prober, events


def command(**more: Any) -> dict[str, Any]:
    return {"exec": {"command": ["check"]}, "periodSeconds": 0.01, "failureThreshold": 1, **more}


async def test_runtime_that_does_not_answer_restarts_no_container() -> None:
    runtime = Runtime(0, UNAVAILABLE)
    prober, events = probed(runtime, livenessProbe=command())
    await until(lambda: prober.results()["c"].liveness is True)
    await until(lambda: len(events.told) >= 3)
    assert prober.results()["c"].liveness is True
    assert runtime.asked >= 1 + 3 * 3, "each attempt is made three times"
    error = "rpc error: code = Unavailable desc = the runtime is restarted"
    why = f"Liveness probe errored and resulted in unknown state: {error}"
    assert set(events.told) == {("Warning", "Unhealthy", why)}
    assert 'result="failed"' not in prober._handler_runner.counts.text()
    prober.close()


async def test_attempt_that_could_not_be_made_is_made_again_at_once() -> None:
    runtime = Runtime(UNAVAILABLE, UNAVAILABLE, 0)
    prober, events = probed(runtime, readinessProbe=command(periodSeconds=100))
    await until(lambda: prober.results()["c"].readiness is True)
    assert (runtime.asked, events.told) == (3, [])
    prober.close()


@pytest.mark.parametrize("error", [ValueError("made by nobody"), RuntimeError("no more")], ids=["value", "runtime"])
async def test_probe_goes_on_after_an_error_that_nobody_foresaw(error: Exception) -> None:
    prober, events = probed(Runtime(error, error, error, 0), readinessProbe=command())
    await until(lambda: prober.results()["c"].readiness is True)
    assert [message for _, _, message in events.told] == [
        f"Readiness probe errored and resulted in unknown state: {error}"
    ]
    prober.close()


async def test_failed_and_late_commands_count_as_failures() -> None:
    for answer, text in ((1, "said"), (CriError("exec_sync", "DEADLINE_EXCEEDED", "late"), "timed out after 1s")):
        prober, events = probed(Runtime(answer), livenessProbe=command())
        await until(lambda probes=prober: probes.results()["c"].liveness is False)
        assert events.told[0][:2] == ("Warning", "Unhealthy") and text in events.told[0][2]
        prober.close()


async def test_only_readiness_is_probed_of_a_pod_that_is_being_deleted() -> None:
    runtime = Runtime(0)
    prober, events = probed(runtime, livenessProbe=command(), readinessProbe=command())
    await until(lambda: prober.results()["c"].liveness is True and prober.results()["c"].readiness is True)
    prober.end_restarts()
    await asyncio.sleep(0.05)
    runtime.answers = [1]
    await until(lambda: prober.results()["c"].readiness is False)
    await asyncio.sleep(0.05)
    assert prober.results()["c"].liveness is True
    assert {message.partition(" ")[0] for _, _, message in events.told} == {"Readiness"}
    prober.close()


# -- HTTP -------------------------------------------------------------------------------------------------------------


@pytest.fixture
async def site() -> AsyncIterator[tuple[int, list[web.Request]]]:
    """A port, and the requests that came: `/to?STATUS=URL` redirects, `/loop` to itself, `/STATUS` answers with it."""
    seen: list[web.Request] = []

    async def answer(request: web.Request) -> web.Response:
        seen.append(request)
        if request.path == "/loop":
            return web.Response(status=307, headers={"location": "/loop"})
        if request.path == "/to":
            [(status, where)] = request.query.items()
            return web.Response(status=int(status), headers={"location": where} if where else {}, text="elsewhere")
        return web.Response(status=int(request.path[1:]), text="here")

    app = web.Application()
    app.router.add_get("/{tail:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    listening = web.TCPSite(runner, HOST, 0)
    await listening.start()
    yield runner.addresses[0][1], seen
    await runner.cleanup()


async def get(port: int, path: str, **more: Any) -> Answer:
    runtime: Any = Runtime(0)
    runner = HandlerRunner(runtime)
    try:
        return await runner.run({"httpGet": {"path": path, "port": port, **more}}, {}, "c", HOST, 10.0)
    finally:
        await runner.close()


@pytest.mark.parametrize(
    ("path", "well", "warning", "text"),
    [
        ("/200", True, False, "here"),
        ("/404", False, False, "HTTP probe failed with statuscode: 404"),
        ("/to?302=/200", True, False, "here"),
        ("/to?308=/500", False, False, "HTTP probe failed with statuscode: 500"),
        ("/to?301=//localhost/200", True, True, "Probe terminated redirects, Response body: elsewhere"),
        ("/to?302=", True, True, "Probe terminated redirects, Response body: elsewhere"),
        ("/304", True, True, "Probe terminated redirects, Response body: "),
    ],
)
async def test_redirects_are_followed_on_the_same_host(
    site: tuple[int, list[web.Request]], path: str, well: bool, warning: bool, text: str
) -> None:
    answer = await get(site[0], path)
    assert (answer.well, answer.result == "warning", answer.text) == (well, warning, text)


async def test_redirects_end_after_ten_requests(site: tuple[int, list[web.Request]]) -> None:
    port, seen = site
    answer = await get(port, "/loop")
    assert not answer.well and answer.text == f'Get "http://{HOST}:{port}/loop": stopped after 10 redirects'
    assert len(seen) == 10


async def test_request_says_who_asks_and_takes_nothing_compressed(site: tuple[int, list[web.Request]]) -> None:
    port, seen = site
    await get(port, "/200", httpHeaders=[{"name": "X-Probe", "value": "1"}, {"name": "Host", "value": "web"}])
    headers = seen[0].headers
    assert headers["User-Agent"] == "kube-probe/1.36" and headers["X-Probe"] == "1" and headers["Host"] == "web"
    assert "Accept-Encoding" not in headers


async def test_hook_over_http_takes_any_answer_but_none_at_all(site: tuple[int, list[web.Request]]) -> None:
    port, seen = site
    runtime: Any = Runtime(0)
    runner = HandlerRunner(runtime)
    try:
        for path in ("/200", "/500", "/to?302=/404"):
            hook = {"httpGet": {"path": path, "port": port}}
            assert (await runner.run_hook(hook, {}, "c", HOST, 10.0)).well, path
        assert {request.headers["User-Agent"] for request in seen} == {"kube-lifecycle/1.36"}
        nobody = {"httpGet": {"port": free_port()}}
        assert not (await runner.run_hook(nobody, {}, "c", HOST, 10.0)).well
        assert not (await runner.run_hook({"tcpSocket": {"port": port}}, {}, "c", HOST, 10.0)).well, (
            "the kubelet has none"
        )
        runtime.answers = [1]
        assert not (await runner.run_hook({"exec": {"command": ["end"]}}, {}, "c", HOST, 10.0)).well
    finally:
        await runner.close()


async def test_port_that_a_container_does_not_name_is_no_failure() -> None:
    runtime: Any = Runtime(0)
    answer = await HandlerRunner(runtime).run({"tcpSocket": {"port": "web"}}, {}, "c", HOST, 1.0)
    assert answer == Answer(False, 'strconv.Atoi: parsing "web": invalid syntax', "unknown")


async def test_what_nobody_answers_is_told_in_the_words_of_kubelets() -> None:
    runtime: Any = Runtime(CriError("exec_sync", "DEADLINE_EXCEEDED", "late"))
    runner, port = HandlerRunner(runtime), free_port()
    refused = f"dial tcp {HOST}:{port}: connect: connection refused"
    service = f'timeout: failed to connect service "{HOST}:{port}" within 1s: context deadline exceeded'
    said = {
        "httpGet": ({"path": "/x", "port": port}, f'Get "http://{HOST}:{port}/x": {refused}'),
        "tcpSocket": ({"port": port}, refused),
        "grpc": ({"port": port}, service),
        "exec": ({"command": ["sleep", "5"]}, 'command timed out: "sleep 5" timed out after 1s'),
    }
    try:
        for kind, (handler, text) in said.items():
            assert await runner.run({kind: handler}, {}, "c", HOST, 1.0) == Answer(False, text), kind
    finally:
        await runner.close()


async def test_health_service_that_listens_within_the_time_is_reached() -> None:
    runner, port = HandlerRunner(cast("Any", Runtime(0))), free_port()
    server = grpc.aio.server()
    serving = health.HealthCheckResponse(status=health.HealthCheckResponse.SERVING).SerializeToString()

    async def check(_: bytes, context: Any) -> bytes:
        return serving

    method = grpc.unary_unary_rpc_method_handler(check)
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("grpc.health.v1.Health", {"Check": method})])
    probing = asyncio.create_task(runner.run({"grpc": {"port": port}}, {}, "c", HOST, 30.0))
    try:
        await asyncio.wait({probing}, timeout=0.1)
        server.add_insecure_port(f"{HOST}:{port}")
        await server.start()
        assert await probing == Answer(True)
    finally:
        await server.stop(None)
        await runner.close()


async def test_server_that_speaks_no_tls_is_told_in_the_words_of_kubelets(
    site: tuple[int, list[web.Request]],
) -> None:
    answer = await get(site[0], "/200", scheme="HTTPS")
    text = f'Get "https://{HOST}:{site[0]}/200": http: server gave HTTP response to HTTPS client'
    assert answer == Answer(False, text)


async def test_server_that_speaks_no_http_is_told_in_the_words_of_kubelets() -> None:
    async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"hello\r\n")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(greet, HOST, 0) as server:
        port = server.sockets[0].getsockname()[1]
        broken = 'net/http: HTTP/1.x transport connection broken: malformed HTTP response "hello"'
        assert (await get(port, "/")).text == f'Get "http://{HOST}:{port}/": {broken}'


async def test_late_answers_are_told_in_the_words_of_kubelets() -> None:
    runtime: Any = Runtime(0)
    runner, silent = HandlerRunner(runtime), socket.create_server((HOST, 0))
    port = silent.getsockname()[1]
    try:
        late = await runner.run({"httpGet": {"port": port}}, {}, "c", HOST, 0.05)
        assert late.text.endswith(": context deadline exceeded (Client.Timeout exceeded while awaiting headers)")
        late = await runner.run({"grpc": {"port": port}}, {}, "c", HOST, 0.5)
        assert late.text.startswith("timeout: ")
    finally:
        await runner.close()
        silent.close()
