"""The transport over a Unix socket, between processes of one machine: HTTP/1.1 on connections that are kept.

A request is one write, and its answer is parsed where it arrives: a third of what a general client of HTTP costs.
httptools is imported with the first connection.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from haru.client.transport import Request, Response, Stream

_IDLE_SECONDS = 30.0
"""A connection that was idle for longer is not used again: the server may be about to close it."""
_BUFFERED_BYTES = 1 << 20
_LONGEST_ADDRESS = 100


def socket_address(path: Path) -> str:
    """The address of a socket file, which the kernel wants short: a longer one is reached by its open directory."""
    if len(os.fsencode(path)) <= _LONGEST_ADDRESS:
        return str(path)
    # The descriptor stays open: the address is good as long as this process lives.
    return f"/proc/self/fd/{os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)}/{path.name}"


class UnixTransport:
    """A `Transport` to the server at a Unix socket."""

    def __init__(self, path: Path) -> None:
        self._path = socket_address(path)
        self._idle: list[_Connection] = []

    async def send(self, request: Request, timeout: float) -> Response:
        """Send and read the whole answer within `timeout` seconds."""
        async with asyncio.timeout(timeout):
            connection = await self._connected()
            try:
                connection.begin(request, in_one_piece=True)
                await connection.changed()
                return Response(connection.status, connection.headers, connection.taken())
            finally:
                self._give_back(connection)

    @asynccontextmanager
    async def stream(self, request: Request, timeout: float) -> AsyncIterator[Stream]:
        """Send and read the body as it comes."""
        async with asyncio.timeout(timeout):
            connection = await self._connected()
        try:
            async with asyncio.timeout(timeout):
                connection.begin(request, in_one_piece=False)
                await connection.changed()
            yield Stream(connection.status, connection.headers, connection.chunks())
        finally:
            self._give_back(connection)

    async def close(self) -> None:
        """Close the connections that are idle."""
        while self._idle:
            self._idle.pop().close()

    async def _connected(self) -> _Connection:
        """An idle connection, the one used last first, or a new one."""
        loop = asyncio.get_running_loop()
        while self._idle:
            connection = self._idle.pop()
            if connection.usable and loop.time() - connection.idle_since < _IDLE_SECONDS:
                return connection
            connection.close()
        _, connection = await loop.create_unix_connection(_Connection, self._path)
        return connection

    def _give_back(self, connection: _Connection) -> None:
        if connection.usable:
            connection.idle_since = asyncio.get_running_loop().time()
            self._idle.append(connection)
        else:
            connection.close()


class _Connection(asyncio.Protocol):
    """One connection, and the answer that comes on it; the parser calls the methods `on_…`."""

    def __init__(self) -> None:
        import httptools

        self._loop = asyncio.get_running_loop()
        self._parser: Any = httptools.HttpResponseParser(self)
        self._parser_error: type[Exception] = httptools.HttpParserError
        self._transport: Any = None
        self._waiter: asyncio.Future[None] | None = None
        self._error: Exception | None = None
        self._what = ""
        self._in_one_piece = self._has_head = self._head_was_read = self._is_paused = False
        self._is_complete, self._stays_open = True, True
        self._body: list[bytes] = []
        self._size = 0
        self.status = 0
        self.headers: dict[str, str] = {}
        self.idle_since = 0.0

    @property
    def usable(self) -> bool:
        """Whether it can carry another request: the last answer was read to its end, and both sides stay."""
        return self._is_complete and self._stays_open and self._error is None and not self._body

    def begin(self, request: Request, *, in_one_piece: bool) -> None:
        """Send a request, whose answer is waited for in one piece, or from its head on."""
        if self._error is not None:
            raise self._failure()
        self._in_one_piece = in_one_piece
        self._what = f"{request.method} {request.path}"
        self._is_complete = self._has_head = self._head_was_read = False
        self.status, self.headers = 0, {}
        self._transport.write(encoded(request))

    async def changed(self) -> None:
        """Wait for the head or, in one piece, the end of the answer; for a stream later: for more of its body."""
        if self._is_awaited():
            self._waiter = self._loop.create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        if not self._is_complete and self._error is not None:
            raise self._failure()

    def taken(self) -> bytes:
        """What has come of the body."""
        body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        self._body.clear()
        self._size = 0
        if self._is_paused:
            self._is_paused = False
            self._transport.resume_reading()
        return body

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body as it comes."""
        self._head_was_read = True
        while True:
            await self.changed()
            if self._body:
                yield self.taken()
            elif self._is_complete:
                return

    def close(self) -> None:
        """Cut the connection."""
        self._error = self._error or ConnectionResetError("closed")
        if self._transport is not None:
            self._transport.abort()

    def _is_awaited(self) -> bool:
        """Whether what is waited for has not come: the end, the head, or something of the body."""
        if self._is_complete or self._error is not None:
            return False
        return self._in_one_piece or not self._has_head or (self._head_was_read and not self._body)

    def _failure(self) -> ConnectionError:
        return ConnectionResetError(f"{self._what}: {self._error or 'the answer ended early'}")

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done() and not self._is_awaited():
            self._waiter.set_result(None)

    # -- the connection -----------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The server has accepted."""
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Feed the parser, then wake who waits for what has come."""
        try:
            self._parser.feed_data(data)
        except self._parser_error as error:
            self._error = error
            self._transport.abort()
        if self._size > _BUFFERED_BYTES and not self._in_one_piece and not self._is_paused:
            self._is_paused = True
            self._transport.pause_reading()
        self._wake()

    def connection_lost(self, error: Exception | None) -> None:
        """The server has gone."""
        self._error = self._error or error or ConnectionResetError("the server closed the connection")
        self._wake()

    # -- the parser ---------------------------------------------------------------------------------------------------

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header."""
        self.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        """The whole head."""
        self.status = self._parser.get_status_code()
        self._has_head = True

    def on_body(self, body: bytes) -> None:
        """A part of the body."""
        self._body.append(body)
        self._size += len(body)

    def on_message_complete(self) -> None:
        """The end of the answer."""
        self._is_complete = True
        self._stays_open = self._parser.should_keep_alive()


def encoded(request: Request) -> bytes:
    """The bytes of a request. ValueError for a line break in a header."""
    lines = [f"{request.method} {request.target()} HTTP/1.1", "host: haru.local"]
    lines += [f"{name}: {value}" for name, value in request.headers.items()]
    if request.body or request.method in ("POST", "PUT", "PATCH"):
        lines.append(f"content-length: {len(request.body)}")
    head = "\r\n".join(lines)
    if head.count("\n") != len(lines) - 1 or head.count("\r") != len(lines) - 1:
        raise ValueError(f"a header of {request.method} {request.path} is more than a line")
    return f"{head}\r\n\r\n".encode("latin-1") + request.body
