"""HTTP/1.1 connections to one server: each carries one exchange at a time and is kept for the next.

A component sends four requests for each pod that it handles, so what a request costs counts: a request is one write of
head and body. An answer that comes in one piece and says its length is taken as it is; httptools parses all others.
Source: RFC 9112.
"""

from __future__ import annotations

import asyncio
import os
import re
import select
import ssl
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar
from urllib.parse import urlsplit

from haru.client.exchange import Exchange, Headers
from haru.client.transport import HeaderValue, Request, RequestHead, header_lines
from haru.client.tunnel import connect_through
from haru.event_loop import abort
from haru.proxy_settings import Proxy
from haru.tls import ResumingContext, client_context

if TYPE_CHECKING:
    import httptools

P = TypeVar("P", bound=asyncio.Protocol)
CONNECT_SECONDS: Final = 10.0
_KEEPALIVE_SECONDS: Final = 30.0
_SURELY_SEEN_SECONDS: Final = 0.1
"""What happened on a connection so long ago, an event loop has told."""
_DELIMITING: Final = frozenset({b"content-length", b"transfer-encoding"})
_OTHERS: Final = rb"(?>(?:(?!transfer-encoding|connection|content-length)[\w-]++:.*+(?<=\r)\n)*)"
"""Headers that do not matter here, line by line: a class of characters takes longer to match than any character.

A possessive repeat of the group says the same, but matches too much before Python 3.11.5 (python/cpython#100061)."""
_WHOLE: Final = re.compile(
    rb"HTTP/1\.1 ([2-5]\d\d).*+(?<=\r)\n" + _OTHERS + rb"content-length: (\d+)\r\n" + _OTHERS + rb"\r\n", re.IGNORECASE
).match
"""The head of an answer that says its length and nothing that only a parser understands."""
_LONGEST_ADDRESS: Final = 100


def socket_address(path: Path) -> str:
    """The address of a socket file, which the kernel wants short: a longer one is reached by its open directory."""
    if len(os.fsencode(path)) <= _LONGEST_ADDRESS:
        return str(path)
    # The descriptor stays open: the address is good as long as this process lives.
    return f"/proc/self/fd/{os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)}/{path.name}"


class HttpConnection(asyncio.Protocol):
    """One connection; methods with `on_` are called by the parser."""

    def __init__(self) -> None:
        self.reusable = True
        """Whether another request may be sent once the exchange is done."""
        self.free_since = 0.0
        self.is_known = False
        """Whether it has carried an exchange."""
        self._exchange: Exchange | None = None
        self._parser: httptools.HttpResponseParser | None = None
        self._headers: list[tuple[bytes, bytes]] = []
        self._delimited = False
        self._transport: asyncio.Transport | None = None

    # -- what its user calls ------------------------------------------------------------------------------------------

    def start(self, data: bytes, exchange: Exchange) -> None:
        """Send a request; the answer goes to `exchange`."""
        assert self._transport is not None
        self._exchange, self._parser = exchange, None
        self._transport.write(data)

    def is_quiet(self) -> bool:
        """Look whether the server has sent nothing, not even its end, that the loop has yet to tell."""
        assert self._transport is not None
        poll = select.poll()
        poll.register(self._transport.get_extra_info("socket").fileno(), select.POLLIN)
        return not poll.poll(0)

    @property
    def secured(self) -> ssl.SSLObject | None:
        """The TLS of the connection, if it has any."""
        return self._transport.get_extra_info("ssl_object") if self._transport is not None else None

    def close(self) -> None:
        """Close the connection, whatever is under way on it."""
        self.reusable = False
        if self._transport is not None:
            abort(self._transport)

    def retire(self) -> None:
        """Take no further request: a stream ends at once, a short answer may come."""
        self.reusable = False
        if self._exchange is None or not self._exchange.whole:
            self.close()

    # -- asyncio.Protocol ---------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        """Take an answer, or parse a part of one."""
        exchange = self._exchange
        if exchange is None:
            self.close()  # nobody asked
            return
        if self._parser is None and exchange.whole and self._take_whole(exchange, data):
            return
        import httptools

        if self._parser is None:
            self._parser = httptools.HttpResponseParser(self)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(f"the answer is not HTTP: {error}")
            self.close()

    def _take_whole(self, exchange: Exchange, data: bytes) -> bool:
        """Take an answer that has come whole; return whether it is one that takes no parser."""
        head = _WHOLE(data)
        if head is None or head[1] in (b"204", b"304") or len(data) - head.end() != int(head[2]):
            return False
        self._exchange, self._delimited = None, True
        exchange.complete(int(head[1]), Headers(data[: head.end() - 4]), data[head.end() :])
        return True

    def eof_received(self) -> None:
        """Let the transport close: what is written from now on would not be sent."""
        self.reusable = False

    def connection_lost(self, error: Exception | None) -> None:
        """End the exchange: as it should where the end of the connection is that of the body."""
        self.reusable = False
        exchange = self._exchange
        if exchange is not None and exchange.status and not self._delimited and error is None:
            exchange.finish()
        elif exchange is not None and isinstance(error, OSError):
            exchange.finish(error)
        else:
            self._fail("the server closed the connection")
        # They know the connection: a garbage collection would have to find them.
        self._exchange = self._parser = self._transport = None

    def _fail(self, text: str) -> None:
        if self._exchange is not None:
            request = self._exchange.request
            self._exchange.finish(ConnectionError(f"{request.method} {request.path}: {text}"))

    # -- httptools ----------------------------------------------------------------------------------------------------

    def on_header(self, name: bytes, value: bytes) -> None:
        """Collect a header."""
        self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        """Hand over the head of the final answer; those before it only say that one will come."""
        assert self._parser is not None and self._exchange is not None
        headers, self._headers = self._headers, []
        status = self._parser.get_status_code()
        if status < 200:
            return
        self._delimited = status in (204, 304) or any(name.lower() in _DELIMITING for name, _ in headers)
        self._exchange.begin(status, Headers(headers))

    def on_body(self, data: bytes) -> None:
        """Hand over a part of the body; read no more while much is unread."""
        exchange, transport = self._exchange, self._transport
        assert exchange is not None and transport is not None
        if exchange.add(data) and exchange.paused is None:
            transport.pause_reading()
            exchange.paused = self._read_on

    def _read_on(self) -> None:
        if self._exchange is not None and self._transport is not None:
            self._exchange.paused = None
            self._transport.resume_reading()

    def on_message_complete(self) -> None:
        """End the exchange."""
        assert self._parser is not None and self._exchange is not None
        if not self._exchange.status:
            return
        exchange, self._exchange = self._exchange, None
        self.reusable = self.reusable and self._delimited and self._parser.should_keep_alive()
        self._parser = None
        exchange.finish()


def _encoded(headers: Mapping[str, HeaderValue]) -> str:
    """Headers as they are sent. Raises ValueError for a value of several lines."""
    return "".join([f"{name}: {value}\r\n" for name, value in header_lines(headers)])


class HttpConnections:
    """The connections to one server that are kept open; as many more as there are requests at once."""

    def __init__(
        self,
        base_url: str,
        tls: ssl.SSLContext | None = None,
        server_hostname: str = "",
        unix_socket: Path | None = None,
        proxy: Proxy | None = None,
        *,
        compression: bool = True,
    ) -> None:
        """`unix_socket`: the server listens there, and not at the host of the URL."""
        self._address = socket_address(unix_socket) if unix_socket is not None else ""
        parts = urlsplit(base_url)
        secure = parts.scheme == "https"
        self._host, self._port = parts.hostname or "", parts.port or (443 if secure else 80)
        self._tls: ssl.SSLContext | bool | None = (tls or True) if secure else None
        self._server_hostname = (server_hostname or self._host) if secure else None
        self.prefix = parts.path.rstrip("/")
        """What the path of each request begins with."""
        self.authority = parts.netloc.rpartition("@")[2]
        """Host and port as the URL has them."""
        self._proxy = proxy
        self._is_forwarded = proxy is not None and not secure and not proxy.is_socks
        """Whether the proxy is sent the requests themselves, and passes them on."""
        self._target_prefix = f"http://{self.authority}{self.prefix}" if self._is_forwarded else self.prefix
        authorization = proxy.authorization() if proxy is not None and self._is_forwarded else ""
        self._head = f" HTTP/1.1\r\nhost: {self.authority}\r\n{authorization}"
        self._compression = compression and unix_socket is None  # to compress costs more than to copy
        self._free: list[HttpConnection] = []
        self._used: set[HttpConnection] = set()

    def encoded(self, request: Request) -> bytes:
        """Return the bytes of a request. Raises ValueError for a header of several lines."""
        body, method, head = request.body, request.method, request.headers
        if not isinstance(head, RequestHead):
            headers = _encoded(head)
        elif not (headers := head.text):
            headers = head.text = _encoded(head)
        if method == "GET" and self._compression:
            headers += "accept-encoding: gzip\r\n"
        if body or method not in ("GET", "DELETE"):
            headers += f"content-length: {len(body)}\r\n"
        return f"{method} {self._target_prefix}{request.target()}{self._head}{headers}\r\n".encode("latin-1") + body

    def take_free(self, now: float) -> HttpConnection | None:
        """Return a connection without an exchange, the one last given back; None if there is none.

        Unlike a read, a write that met the end of its connection cannot be sent again: it may have been carried out.
        """
        oldest, seen = now - _KEEPALIVE_SECONDS, now - _SURELY_SEEN_SECONDS
        while self._free:
            connection = self._free.pop()
            since = connection.free_since
            if connection.reusable and since >= oldest and (since > seen or connection.is_quiet()):
                self._used.add(connection)
                return connection
            connection.close()
        return None

    async def take(self, timeout: float) -> HttpConnection:
        """Return a connection without an exchange: the one last given back, or a new one. Raises OSError."""
        connection = self.take_free(asyncio.get_running_loop().time())
        if connection is None:
            connection = await self._connect(min(timeout, CONNECT_SECONDS))
            self._used.add(connection)
        return connection

    def give_back(self, connection: HttpConnection, now: float) -> None:
        """Keep a connection for the next request if its exchange is done; close it if not."""
        self._used.discard(connection)
        if not connection.reusable:
            connection.close()
            return
        if not connection.is_known:
            connection.is_known = True
            if isinstance(self._tls, ResumingContext) and (secured := connection.secured) is not None:
                self._tls.remember(secured)
        connection.free_since = now
        # The one that is free for the longest is the first.
        while self._free and self._free[0].free_since < now - _KEEPALIVE_SECONDS:
            self._free.pop(0).close()
        self._free.append(connection)

    def use(self, tls: ssl.SSLContext) -> None:
        """Open connections with other TLS settings from now on, and end those that there are."""
        self._tls = tls if self._tls is not None else None
        for connection in (*self._free, *self._used):
            connection.retire()
        self._free.clear()

    def close(self) -> None:
        """Close all connections."""
        for connection in (*self._free, *self._used):
            connection.close()
        self._free.clear()
        self._used.clear()

    async def _connect(self, seconds: float) -> HttpConnection:
        return await self.connect(HttpConnection, self._tls, seconds)

    async def connect(self, make: Callable[[], P], tls: ssl.SSLContext | bool | None, seconds: float) -> P:
        """Open a connection to the server for a protocol. Raises OSError."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(seconds):
                if self._address:
                    return (await loop.create_unix_connection(make, self._address))[1]
                name = self._server_hostname
                if self._proxy is not None:
                    server = None if self._is_forwarded else (self._host, self._port)
                    secured = client_context() if tls is True else tls or None
                    return await connect_through(self._proxy, make, server, secured, name)
                return (await loop.create_connection(make, self._host, self._port, ssl=tls, server_hostname=name))[1]
        except TimeoutError:
            raise ConnectionError(f"{self._host}:{self._port}: no connection in {seconds:g} s") from None
