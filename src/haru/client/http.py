"""The transport over HTTP or HTTPS."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from haru.client.deadlines import Deadlines
from haru.client.exchange import Exchange
from haru.client.http_connections import HttpConnection, HttpConnections
from haru.client.transport import Request, Response, Stream
from haru.event_loop import imported
from haru.http2.alpn import offer_protocols
from haru.tls import client_context

if TYPE_CHECKING:
    import aiohttp

    from haru.client.multiplexed_writes import MultiplexedWrites

_CONNECTIONS = 100
_KEEPALIVE_SECONDS = 30.0
_MAX_LINE = 1 << 16


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
    context = client_context(ca_pem.decode("ascii") if ca_pem else "", cert, insecure)
    if http2:
        offer_protocols(context, http2=True)
    return context


class HttpTransport:
    """A `Transport` to `base_url`; connections are kept and shared. aiohttp carries what goes through a proxy."""

    def __init__(
        self,
        base_url: str,
        *,
        tls: ssl.SSLContext | None = None,
        server_hostname: str = "",
        proxy: str = "",
        unix_socket: Path | None = None,
        multiplexing: ssl.SSLContext | None = None,
    ) -> None:
        """`multiplexing`: the TLS of one connection for all writes, where that speaks HTTP/2 (not by proxy or file)."""
        self._through_proxy = ProxiedTransport(base_url, proxy, tls, server_hostname) if proxy else None
        self._connections = HttpConnections(base_url, tls, server_hostname, unix_socket)
        self._deadlines = Deadlines()
        self._writes: MultiplexedWrites | None = None
        if multiplexing is not None and not proxy and unix_socket is None:
            from haru.client.multiplexed_writes import MultiplexedWrites

            self._writes = MultiplexedWrites(self._connections, multiplexing, self._deadlines)

    async def send(self, request: Request, timeout: float) -> Response:
        """Send and read the whole answer within `timeout` seconds."""
        if self._through_proxy is not None:
            return await self._through_proxy.send(request, timeout)
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
        if self._through_proxy is not None:
            async with self._through_proxy.stream(request, timeout) as stream:
                yield stream
            return
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
        if self._through_proxy is not None:
            await self._through_proxy.use(tls)

    async def close(self) -> None:
        """Close all connections."""
        self._connections.close()
        if self._writes is not None:
            await self._writes.close()
        if self._through_proxy is not None:
            await self._through_proxy.close()


class ProxiedTransport:
    """A `Transport` to `base_url` through a proxy, on aiohttp (imported when first used)."""

    def __init__(self, base_url: str, proxy: str, tls: ssl.SSLContext | None, server_hostname: str) -> None:
        self._base_url = base_url.rstrip("/")
        self._tls = tls
        self._server_hostname = server_hostname or None
        self._proxy = proxy
        self._session: aiohttp.ClientSession | None = None

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            import aiohttp

            connector = aiohttp.TCPConnector(
                limit=0, limit_per_host=0, keepalive_timeout=_KEEPALIVE_SECONDS, ssl=self._tls or True
            )
            self._session = aiohttp.ClientSession(
                connector=connector,
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=10),
                auto_decompress=True,
                max_line_size=_MAX_LINE,
                max_field_size=_MAX_LINE,
            )
        return self._session

    def _open(self, request: Request) -> Any:
        from yarl import URL

        url = URL(self._base_url + request.target(), encoded=True)
        extra: dict[str, Any] = {"server_hostname": self._server_hostname} if self._server_hostname else {}
        return self._opened().request(
            request.method,
            url,
            headers=dict(request.headers),
            data=request.body or None,
            allow_redirects=False,
            proxy=self._proxy,
            **extra,
        )

    async def send(self, request: Request, timeout: float) -> Response:
        """Send and read the whole answer within `timeout` seconds."""
        async with asyncio.timeout(timeout), self.stream(request, timeout) as stream:
            return Response(stream.status, stream.headers, await stream.read())

    @asynccontextmanager
    async def stream(self, request: Request, timeout: float) -> AsyncIterator[Stream]:
        """Send and read the body as it comes."""
        await imported("aiohttp")
        import aiohttp

        opening = self._open(request)
        try:
            async with asyncio.timeout(timeout):
                response: aiohttp.ClientResponse = await opening
        except aiohttp.ClientError as error:
            raise _as_os_error(request, error) from error
        try:
            headers = {name.lower(): value for name, value in response.headers.items()}
            yield Stream(response.status, headers, _chunks(request, response))
        finally:
            # A stream that was not read to its end cannot carry another request.
            if response.content.at_eof():
                response.release()
            else:
                response.close()

    async def use(self, tls: ssl.SSLContext) -> None:
        """Go on with other TLS settings, and close the connections that there are."""
        self._tls = tls
        await self.close()

    async def close(self) -> None:
        """Close all connections."""
        if self._session is not None:
            session, self._session = self._session, None
            await session.close()


async def _chunks(request: Request, response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    await imported("aiohttp")
    import aiohttp

    try:
        async for chunk in response.content.iter_any():
            yield chunk
    except aiohttp.ClientError as error:
        raise _as_os_error(request, error) from error


def _as_os_error(request: Request, error: Exception) -> OSError:
    if isinstance(error, OSError):
        return error
    return ConnectionError(f"{request.method} {request.path}: {error}")
