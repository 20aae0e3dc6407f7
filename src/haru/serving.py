"""Parts of every HTTP server of Haru: a listening socket, uvicorn's settings, and a connection of HTTP/1.1.

The connection bounds the header of a request. ASGI extensions let the application cut the client off, write past the
messages of ASGI, and take the connection over. uvicorn and httptools are imported when a server is made.
"""

from __future__ import annotations

import asyncio
import logging
import re
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache, partial
from http import HTTPMethod, HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import ref

from haru.acceptor import Acceptor
from haru.event_loop import abort
from haru.upgrade_proxy import HIJACK, take_over

if TYPE_CHECKING:
    import uvicorn

ABORT = "haru.abort"
"""ASGI extension: a function that cuts the connection of a client that does not read."""
WRITE = "haru.write"
"""ASGI extension: a function that writes bytes of a response that the application frames itself, and tells whether they
were taken. They are not while the client has to read first: `send` waits for that."""
WRITE_BODY = "haru.write-body"
"""ASGI extension: as `WRITE`, for a part of a body that the connection frames."""
ANSWER = "haru.answer"
"""ASGI extension: a function of status, headers and body that sends a whole response, and tells whether it was taken.
It is not while the client has to read first, or when it is gone: `send` handles both."""
EVENTS = "haru.events"
"""ASGI extension of a client in the same process: a coroutine function that takes the events of a watch, pairs of a
type and an object. Objects are shared: nobody changes them."""
OBJECT = "haru.object"
"""ASGI extension of a client in the same process: a function that takes a whole response whose body is an object as its
status, its own headers and the object. Objects are shared: nobody changes them."""
ENCODED_HERE = "haru.encoded-here"
"""ASGI extension of a client in the same process: the body was encoded from an object, so that no name occurs twice."""
HEAD_BYTES = 1024 * 1024
"""Bound of a request line with its headers, as in Go's server."""
TICK_SECONDS = 1.0
"""How often a server renews the date of its responses."""
HEAD_SECONDS = 32.0
"""The time that a client has for the header of a request, as for kube-apiserver."""
_TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


def listening_socket(host: str, port: int, flag: str) -> socket.socket:
    """Bind a socket, also to an address that was in use a moment ago.

    Raises OSError, which names the `flag` that chooses another address.
    """
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise OSError(
            error.errno, f"{host}:{port} can not be served: {error.strerror}; choose another {flag}"
        ) from None
    listener.setblocking(False)
    return listener


def local_socket(path: str) -> socket.socket:
    """Bind a Unix socket that only this user may connect to."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(path)
        Path(path).chmod(0o600)
    except OSError:
        listener.close()
        raise
    listener.setblocking(False)
    return listener


def settings(app: Any, **more: Any) -> uvicorn.Config:
    """Configure uvicorn for a process that has its own event loop, signals and logging."""
    import uvicorn

    return uvicorn.Config(
        app,
        loop="none",
        ws="none",
        lifespan="off",
        interface="asgi3",
        access_log=False,
        proxy_headers=False,
        log_config=None,
        log_level=logging.WARNING,
        server_header=False,
        **more,
    )


@cache
def server_class() -> Any:
    """Make uvicorn's server class for given sockets: it leaves signals alone, and ends at `end`."""
    import uvicorn

    class Server(uvicorn.Server):
        def __init__(self, config: uvicorn.Config) -> None:
            super().__init__(config)
            self._ending = asyncio.Event()

        def end(self) -> None:
            """Finish the requests in flight and close."""
            self.should_exit = True
            self._ending.set()

        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            config, state = self.config, self.server_state
            kind: Any = config.http_protocol_class
            connection = partial(kind, config=config, server_state=state, app_state={})
            made = [Acceptor(listener, connection, config.ssl, backlog=config.backlog) for listener in sockets or ()]
            self.servers: Any = made
            self.started = True

        @contextmanager
        def capture_signals(self) -> Iterator[None]:
            yield

        async def main_loop(self) -> None:
            # A tick of 0 renews the date of the responses.
            while not await self.on_tick(0):
                with suppress(TimeoutError):
                    async with asyncio.timeout(TICK_SECONDS):
                        await self._ending.wait()

    return Server


def abort_connections(server: Any) -> None:
    """Cut all connections of a server."""
    for connection in list(server.server_state.connections):
        if connection.transport is not None:
            abort(connection.transport)


def _answer(cycle_of: Callable[[], Any], status: int, headers: Sequence[tuple[bytes, bytes]], body: bytes) -> bool:
    """Send a response in one write: one TLS record, and none of uvicorn's checks of each header.

    `headers` have Content-Length, but neither Connection nor Transfer-Encoding. ValueError for a line break in one.
    """
    cycle = cycle_of()
    if cycle is None or cycle.response_started or cycle.disconnected or cycle.flow.write_paused:
        return False
    lines = [b"%b: %b\r\n" % header for header in (*cycle.default_headers, *headers)]
    if not cycle.keep_alive:
        lines.append(b"connection: close\r\n")
    head = b"".join(lines)
    if head.count(b"\n") != len(lines) or head.count(b"\r") != len(lines):
        raise ValueError(f"a header of a response is more than a line: {head!r}")
    cycle.response_started = cycle.response_complete = True
    cycle.waiting_for_100_continue = False
    cycle.transport.write(b"%b%b\r\n%b" % (_status_line(status), head, body))
    cycle.message_event.set()
    if not cycle.keep_alive:
        cycle.transport.close()
    cycle.on_response()
    return True


@cache
def _status_line(status: int) -> bytes:
    phrase = HTTPStatus(status).phrase if status in HTTPStatus.__members__.values() else ""
    return f"HTTP/1.1 {status} {phrase}\r\n".encode()


_METHOD = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}) /").match
_KNOWN_METHODS = frozenset(method.value.encode() for method in HTTPMethod)


def _unknown_method(data: bytes) -> bytes:
    """The method of a request that begins with these bytes, if the parser does not know it: the server says 405."""
    found = _METHOD(data)
    return b"" if found is None or found[1] in _KNOWN_METHODS else found[1]


def _is_no_upgrade_warning(record: logging.LogRecord) -> bool:
    """Drop uvicorn's warning that it has no library for upgrades: the application handles them."""
    return not str(record.msg).startswith(("Unsupported upgrade request", "No supported WebSocket library"))


@cache
def connection_class() -> Any:
    """Make uvicorn's connection class with bounds and extensions; subclasses override `extensions`."""
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

    logging.getLogger("uvicorn.error").addFilter(_is_no_upgrade_warning)

    class Connection(HttpToolsProtocol):
        _between_requests = True
        _method = ""
        """One that the parser does not know, in whose place it read another."""
        _in_head = True
        _head_bytes = 0
        _head_timer: asyncio.TimerHandle | None = None

        def extensions(self) -> dict[str, Any]:
            """ASGI extensions of the requests on this connection."""
            return {}

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._start_head_timer()

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop_head_timer()
            super().connection_lost(exc)
            # Their extensions know the connection, which is to be freed, with its TLS, once nobody else has it.
            self.scope = self.cycle = None  # type: ignore[assignment]
            self.pipeline.clear()

        def data_received(self, data: bytes) -> None:
            self._head_bytes += len(data)
            if self._between_requests and (unknown := _unknown_method(data)):
                self._method = unknown.decode()
                data = b"TRACE" + data[len(unknown) :]
            super().data_received(data)
            if not self._in_head:
                return
            if self._head_bytes > HEAD_BYTES:
                self.transport.write(_TOO_LARGE)
                self.transport.close()
            elif self._head_timer is None:
                self._start_head_timer()

        def on_message_begin(self) -> None:
            super().on_message_begin()
            self._in_head, self._head_bytes, self._between_requests = True, 0, False
            if self.transport is None:
                return
            extensions: dict[str, Any] = {**(self.scope.get("extensions") or {}), ABORT: self.transport.abort}
            extensions[HIJACK] = lambda: take_over(self)
            extensions[WRITE] = self._write
            self.scope["extensions"] = {**extensions, **self.extensions()}

        def on_headers_complete(self) -> None:
            self._in_head = False
            self._stop_head_timer()
            super().on_headers_complete()
            if self._method:
                self.scope["method"], self._method = self._method, ""
            if self.cycle is not None and self.cycle.scope is self.scope:
                extensions: Any = self.scope["extensions"]
                # The request's own extensions must not keep it: all of it would wait for a garbage collection.
                extensions[ANSWER] = partial(_answer, ref(self.cycle))

        def on_message_complete(self) -> None:
            self._between_requests = True
            super().on_message_complete()

        def _write(self, piece: bytes) -> bool:
            if self.transport.is_closing():
                return True  # nobody is there to wait for
            if self.flow.write_paused:
                return False
            self.transport.write(piece)
            return True

        def _start_head_timer(self) -> None:
            """Cut the connection of a client that sends the header slowly, or not at all."""
            self._head_timer = self.loop.call_later(HEAD_SECONDS, self.transport.abort)

        def _stop_head_timer(self) -> None:
            if self._head_timer is not None:
                self._head_timer.cancel()
                self._head_timer = None

    return Connection
