"""The transport over HTTP or HTTPS."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from haru.client.deadlines import Deadlines
from haru.client.exchange import Exchange
from haru.client.http_connections import HttpConnection, HttpConnections
from haru.client.transport import Request, Response, Stream
from haru.http2.alpn import offer_protocols
from haru.proxy_settings import Proxy
from haru.tls import client_context

if TYPE_CHECKING:
    from haru.client.multiplexed_writes import MultiplexedWrites


def tls_context(
    ca_pem: bytes | None = None,
    cert: tuple[bytes, bytes] | None = None,
    insecure: bool = False,
    *,
    http2: bool = False,
) -> ssl.SSLContext:
    """A client's TLS settings: own authorities instead of the system's, a client certificate and its key (both PEM).

    `http2`: for connections that take HTTP/2 where the server speaks it.
    """
    context = client_context(ca_pem.decode("utf-8", "replace") if ca_pem else "", cert, insecure)
    if http2:
        offer_protocols(context, http2=True)
    return context


class HttpTransport:
    """A `Transport` to `base_url`; connections are kept and shared."""

    def __init__(
        self,
        base_url: str,
        *,
        tls: ssl.SSLContext | None = None,
        server_hostname: str = "",
        proxy: Proxy | None = None,
        unix_socket: Path | None = None,
        multiplexing: ssl.SSLContext | None = None,
        compression: bool = True,
    ) -> None:
        """`multiplexing`: the TLS of one connection for all writes, where that speaks HTTP/2 (not by a socket file)."""
        self._connections = HttpConnections(base_url, tls, server_hostname, unix_socket, proxy, compression=compression)
        self._deadlines = Deadlines()
        self._writes: MultiplexedWrites | None = None
        if multiplexing is not None and unix_socket is None:
            from haru.client.multiplexed_writes import MultiplexedWrites

            self._writes = MultiplexedWrites(self._connections, multiplexing, self._deadlines)

    async def send(self, request: Request, timeout: float) -> Response:
        """Send and read the whole answer within `timeout` seconds."""
        if self._writes is not None and request.method != "GET":
            response = await self._writes.send(request, timeout)
            if response is not None:
                return response
        loop = asyncio.get_running_loop()
        exchange = Exchange(request, whole=True, loop=loop)
        connection = await self._begin(exchange, timeout, loop)
        try:
            body = await exchange.body()
        finally:
            self._end(exchange, connection, loop)
        return Response(exchange.status, exchange.headers, body)

    @asynccontextmanager
    async def stream(self, request: Request, timeout: float) -> AsyncIterator[Stream]:
        """Send and read the body as it comes; only its head has to come within `timeout` seconds."""
        loop = asyncio.get_running_loop()
        exchange = Exchange(request, whole=False, loop=loop)
        connection = await self._begin(exchange, timeout, loop)
        try:
            await exchange.head()
            self._deadlines.drop(exchange)
            yield Stream(exchange.status, exchange.headers, exchange.chunks())
        finally:
            self._end(exchange, connection, loop)

    async def _begin(self, exchange: Exchange, timeout: float, loop: asyncio.AbstractEventLoop) -> HttpConnection:
        """Send an exchange's request; it fails after `timeout` seconds, unless its deadline is dropped."""
        data = self._connections.encoded(exchange.request)
        now = loop.time()
        connection = self._connections.take_free(now) or await self._connections.take(timeout)
        self._deadlines.add(exchange, now + timeout)
        connection.start(data, exchange)
        return connection

    def _end(self, exchange: Exchange, connection: HttpConnection, loop: asyncio.AbstractEventLoop) -> None:
        self._deadlines.drop(exchange)
        if not exchange.done:
            # What was not read to its end cannot carry another request.
            connection.close()
        exchange.error = None  # raised by now, it knows the frames that know the exchange
        self._connections.give_back(connection, loop.time())

    async def use(self, tls: ssl.SSLContext, multiplexing: ssl.SSLContext | None) -> None:
        """Go on with other TLS settings, and end the connections that there are: streams at once."""
        self._connections.use(tls)
        if self._writes is not None and multiplexing is not None:
            self._writes.use(multiplexing)

    async def close(self) -> None:
        """Close all connections."""
        self._connections.close()
        if self._writes is not None:
            await self._writes.close()
