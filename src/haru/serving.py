"""What every HTTP server of Haru is made of: a listening socket, uvicorn's settings, and a connection.

The connection has bounds on the head of a request, and gives the application a way to cut the client off, two to write
to it past the messages of ASGI, and one to take the connection over.

uvicorn and httptools are imported when a server is made.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache, partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from haru.upgrade_proxy import HIJACK, take_over

if TYPE_CHECKING:
    import uvicorn

ABORT = "haru.abort"
"""The ASGI extension by which an application cuts a connection whose client does not read."""
WRITE = "haru.write"
"""The ASGI extension by which an application writes to the connection of an answer that it frames itself: a function of
bytes, to whether they were taken. They are not while the client has yet to read what was sent before; `send` waits."""
WRITE_BODY = "haru.write-body"
"""As `WRITE`, where the connection frames what it is given: a function of a part of the body. What it does not take
goes to `send`."""
ANSWER = "haru.answer"
"""The ASGI extension by which an application sends an answer whole: a function of status, headers and body, to whether
they were taken. They are not where the client has yet to read what was sent before, or is gone: `send` sees to that."""
HEAD_BYTES = 1024 * 1024
"""A request line with its headers may have as much, as in Go's server."""
TICK_SECONDS = 1.0
"""How often a server looks at the time, which its answers tell."""
HEAD_SECONDS = 32.0
"""So long a client may take for the head of a request, as for kube-apiserver."""
_TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


def listening_socket(host: str, port: int, flag: str) -> socket.socket:
    """A bound socket; the address may have been in use until a moment ago.

    Raises OSError, which tells to choose another `flag`.
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


def settings(app: Any, **more: Any) -> uvicorn.Config:
    """Of a server in a process that has its loop, its signals and its logging already."""
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
    """uvicorn's server of some sockets: it leaves signals to the process, and ends when `end` is called."""
    import uvicorn

    class Server(uvicorn.Server):
        def __init__(self, config: uvicorn.Config) -> None:
            super().__init__(config)
            self._ending = asyncio.Event()

        def end(self) -> None:
            """Finish what is in flight and close."""
            self.should_exit = True
            self._ending.set()

        @contextmanager
        def capture_signals(self) -> Iterator[None]:
            yield

        async def main_loop(self) -> None:
            # A tick of 0 keeps the date of the answers.
            while not await self.on_tick(0):
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._ending.wait(), TICK_SECONDS)

    return Server


def _answer(cycle: Any, status: int, headers: Sequence[tuple[bytes, bytes]], body: bytes) -> bool:
    """Head and body in one piece: one record of TLS, and none of the looks that uvicorn takes at each header.

    `headers` tell the length, and neither the connection nor the coding. ValueError for one that is more than a line.
    """
    if cycle.response_started or cycle.disconnected or cycle.flow.write_paused:
        return False
    lines = [b"%b: %b\r\n" % header for header in (*cycle.default_headers, *headers)]
    if not cycle.keep_alive:
        lines.append(b"connection: close\r\n")
    head = b"".join(lines)
    if head.count(b"\n") != len(lines) or head.count(b"\r") != len(lines):
        raise ValueError(f"a header of an answer is more than a line: {head!r}")
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


def _is_no_upgrade_warning(record: logging.LogRecord) -> bool:
    """Upgrades are for the application: uvicorn need not warn that it has no library for them."""
    return not str(record.msg).startswith(("Unsupported upgrade request", "No supported WebSocket library"))


@cache
def connection_class() -> Any:
    """uvicorn's class of one connection, with the bounds; `told` is there to be overridden."""
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

    logging.getLogger("uvicorn.error").addFilter(_is_no_upgrade_warning)

    class Connection(HttpToolsProtocol):
        _in_head = True
        _head_bytes = 0
        _patience: asyncio.TimerHandle | None = None

        def told(self) -> dict[str, Any]:
            """Further ASGI extensions of each request on this connection."""
            return {}

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._wait_for_head()

        def connection_lost(self, exc: Exception | None) -> None:
            self._head_is_there()
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            self._head_bytes += len(data)
            super().data_received(data)
            if not self._in_head:
                return
            if self._head_bytes > HEAD_BYTES:
                self.transport.write(_TOO_LARGE)
                self.transport.close()
            elif self._patience is None:
                self._wait_for_head()

        def on_message_begin(self) -> None:
            super().on_message_begin()
            self._in_head, self._head_bytes = True, 0
            if self.transport is None:
                return
            extensions: dict[str, Any] = {**(self.scope.get("extensions") or {}), ABORT: self.transport.abort}
            extensions[HIJACK] = lambda: take_over(self)
            extensions[WRITE] = self._write
            self.scope["extensions"] = {**extensions, **self.told()}

        def on_headers_complete(self) -> None:
            self._in_head = False
            self._head_is_there()
            super().on_headers_complete()
            if self.cycle is not None and self.cycle.scope is self.scope:
                extensions: Any = self.scope["extensions"]
                extensions[ANSWER] = partial(_answer, self.cycle)

        def _write(self, piece: bytes) -> bool:
            if self.transport.is_closing():
                return True  # there is nobody to wait for
            if self.flow.write_paused:
                return False
            self.transport.write(piece)
            return True

        def _wait_for_head(self) -> None:
            """A head that comes drop by drop, or not at all, does not hold the connection for ever."""
            self._patience = self.loop.call_later(HEAD_SECONDS, self.transport.abort)

        def _head_is_there(self) -> None:
            if self._patience is not None:
                self._patience.cancel()
                self._patience = None

    return Connection
