"""Answer load balancers that ask whether this node has endpoints of a Service (`healthCheckNodePort`).

Source: kube-proxy's health check server for Services with externalTrafficPolicy Local, as behaviour.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping
from functools import partial

from haru.service_proxy.services import HealthCheck

_log = logging.getLogger(__name__)
_SECONDS = 10.0
_LONGEST_HEAD = 16_384


class HealthChecks:
    """One server for each Service that wants one, until they are closed."""

    def __init__(self) -> None:
        self._servers: dict[str, tuple[int, asyncio.Server]] = {}
        self._endpoints: dict[str, int] = {}

    async def update(self, checks: Mapping[str, HealthCheck | None]) -> None:
        """Services (NAMESPACE/NAME) want to be answered for like this, or no more."""
        for service, check in checks.items():
            port, server = self._servers.get(service, (0, None))
            if server is not None and (check is None or check.port != port):
                server.close()
                del self._servers[service]
            if check is not None:
                self._endpoints[service] = check.endpoints
        for service, check in checks.items():
            if check is not None and service not in self._servers:
                try:
                    server = await asyncio.start_server(
                        partial(self._answer, service), port=check.port, limit=_LONGEST_HEAD
                    )
                except OSError as error:
                    _log.warning("service %s: healthCheckNodePort %d: %s", service, check.port, error)
                    continue
                self._servers[service] = check.port, server

    def close(self) -> None:
        """Answer no more."""
        for _, server in self._servers.values():
            server.close()
        self._servers.clear()

    async def _answer(self, service: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_SECONDS):
                await reader.readuntil(b"\r\n\r\n")
                writer.write(answer(service, self._endpoints[service]))
                await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        finally:
            writer.close()


def answer(service: str, endpoints: int) -> bytes:
    """The answer for a Service with so many ready endpoints here: 200, or 503 for none."""
    namespace, _, name = service.partition("/")
    told = {
        "service": {"namespace": namespace, "name": name},
        "localEndpoints": endpoints,
        "serviceProxyHealthy": True,
    }
    body = json.dumps(told).encode()
    lines = [
        "HTTP/1.1 " + ("200 OK" if endpoints else "503 Service Unavailable"),
        "Content-Type: application/json",
        "X-Content-Type-Options: nosniff",
        f"X-Load-Balancing-Endpoint-Weight: {endpoints}",
        f"Content-Length: {len(body)}",
        "Connection: close",
    ]
    return "\r\n".join([*lines, "", ""]).encode() + body
