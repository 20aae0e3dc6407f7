"""Answer load balancers that ask whether this node has endpoints of a Service (`healthCheckNodePort`).

Source: kube-proxy's health check server for Services with externalTrafficPolicy Local, as behaviour.
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from collections.abc import Callable, Mapping
from functools import partial

from haru.acceptor import Acceptor
from haru.service_proxy.services import HealthCheck

_log = logging.getLogger(__name__)
_SECONDS = 10.0
_LONGEST_HEAD = 16_384
_BACKLOG = 100


class HealthChecks:
    """One server for each Service that wants one, until they are closed."""

    def __init__(self, is_well: Callable[[], bool] = lambda: True) -> None:
        """`is_well`: whether the proxy keeps up; no node whose proxy does not gets traffic."""
        self._is_well = is_well
        self._wanted: dict[str, HealthCheck] = {}
        self._servers: dict[str, tuple[int, Acceptor]] = {}

    async def update(self, checks: Mapping[str, HealthCheck | None], *, whole: bool = False) -> None:
        """Services (NAMESPACE/NAME) want to be answered for like this, or no more; `whole`: and no others."""
        if whole:
            self._wanted = {}
        for service, check in checks.items():
            if check is not None:
                self._wanted[service] = check
            else:
                self._wanted.pop(service, None)
        for service, (port, server) in list(self._servers.items()):
            if service not in self._wanted or self._wanted[service].port != port:
                server.close()
                del self._servers[service]
        for service, check in self._wanted.items():
            if service not in self._servers:
                self._open(service, check.port)

    def _open(self, service: str, port: int) -> None:
        try:
            listener = _listening(port)
        except OSError as error:
            _log.warning("service %s: healthCheckNodePort %d: %s", service, port, error)
        else:
            self._servers[service] = port, Acceptor(listener, partial(self._connection, service), backlog=_BACKLOG)

    def _connection(self, service: str) -> asyncio.StreamReaderProtocol:
        reader = asyncio.StreamReader(limit=_LONGEST_HEAD)
        return asyncio.StreamReaderProtocol(reader, partial(self._answer, service))

    def close(self) -> None:
        """Answer no more."""
        for _, server in self._servers.values():
            server.close()
        self._servers.clear()

    async def _answer(self, service: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_SECONDS):
                await reader.readuntil(b"\r\n\r\n")
                if (check := self._wanted.get(service)) is not None:
                    writer.write(answer(service, check.endpoints, is_well=self._is_well()))
                await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        finally:
            writer.close()


def _listening(port: int) -> socket.socket:
    """Listen on all addresses of this machine. Raises OSError."""
    if socket.has_dualstack_ipv6():
        return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True)
    return socket.create_server(("", port))


def answer(service: str, endpoints: int, *, is_well: bool) -> bytes:
    """The answer for a Service with so many ready endpoints here: 200, or 503 for none, or if the proxy is not well."""
    namespace, _, name = service.partition("/")
    told = {
        "service": {"namespace": namespace, "name": name},
        "localEndpoints": endpoints,
        "serviceProxyHealthy": is_well,
    }
    body = json.dumps(told).encode()
    lines = [
        "HTTP/1.1 " + ("200 OK" if endpoints and is_well else "503 Service Unavailable"),
        "Content-Type: application/json",
        "X-Content-Type-Options: nosniff",
        f"X-Load-Balancing-Endpoint-Weight: {endpoints}",
        f"Content-Length: {len(body)}",
        "Connection: close",
    ]
    return "\r\n".join([*lines, "", ""]).encode() + body
