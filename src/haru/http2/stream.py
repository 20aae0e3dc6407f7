"""One request of a connection of HTTP/2: the channels of ASGI, and the shortcuts past them of `haru.serving`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

from haru.http2.frame_writer import FrameWriter, ReceiveWindow
from haru.http2.frames import ErrorCode, Http2StreamError
from haru.http2.headers import RequestHead, response_block
from haru.serving import ABORT, ANSWER, WRITE_BODY

_LOG = logging.getLogger("haru.http2")

RECEIVE_BYTES = 256 * 1024
"""The receive window of a stream, as in kube-apiserver."""
STALL_SECONDS = 60.0
"""The time that a client has for the next part of a response."""
PROGRESS_BYTES = 4096
"""The length of that part: a window that is opened byte by byte does not hold a response, and its request, for ever."""
BATCH_BYTES = 256 * 1024
"""Written at once, before other streams get their turn."""

Application = Callable[[Any, Any, Any], Awaitable[None]]
Message = dict[str, Any]


class StreamOwner(Protocol):
    """The connection of a stream."""

    writer: FrameWriter
    receive_window: ReceiveWindow

    @property
    def default_headers(self) -> list[tuple[bytes, bytes]]:
        """Headers of every response."""

    def reset(self, stream: Stream, code: ErrorCode) -> None:
        """Reset a stream because of what happened here."""

    def responded(self, stream: Stream) -> None:
        """Note that the response was sent."""

    def finished(self) -> None:
        """Note that a handler has ended."""

    def abort(self) -> None:
        """Cut the connection."""


class RequestBody:
    """The body of a request: what has come of it and the handler has not taken."""

    __slots__ = ("_connection_window", "_data", "_delivered", "_expected", "_readable", "_window", "ended")

    def __init__(self, connection_window: ReceiveWindow, window: ReceiveWindow | None, expected: int | None) -> None:
        self._connection_window = connection_window
        self._window = window
        """Of the stream; None if the body has ended with the headers."""
        self._expected = expected
        """How much is still to come, if there is a Content-Length."""
        self.ended = window is None
        self._delivered = False
        """Whether the handler has the end."""
        self._data = bytearray()
        self._readable: asyncio.Event | None = None
        if self.ended:
            self._check_length()

    def __len__(self) -> int:
        return len(self._data)

    def add(self, data: bytes, size: int, *, ends: bool) -> None:
        """Take the data of a frame, which counts as `size` bytes with its padding. Raises Http2StreamError."""
        if self.ended or self._window is None:
            raise Http2StreamError(ErrorCode.STREAM_CLOSED, "data after the end")
        if not self._window.take(size):
            raise Http2StreamError(ErrorCode.FLOW_CONTROL_ERROR, "more than the window")
        if self._expected is not None:
            self._expected -= len(data)
            if self._expected < 0:
                raise Http2StreamError(ErrorCode.PROTOCOL_ERROR, "a body longer than its Content-Length")
        if ends:
            self._check_length()
        if size > len(data):
            self._release(size - len(data))
        self._data += data
        self.ended = ends
        self.wake()

    def end(self) -> None:
        """Take the end, which came without data. Raises Http2StreamError."""
        self._check_length()
        self.ended = True
        self.wake()

    def _check_length(self) -> None:
        if self._expected:
            raise Http2StreamError(ErrorCode.PROTOCOL_ERROR, "a body shorter than its Content-Length")

    def message(self) -> Message | None:
        """Take what has come, as ASGI's message; None if nothing has."""
        if not self._data and (self._delivered or not self.ended):
            return None
        body = bytes(self._data)
        self._data.clear()
        self._delivered = self.ended
        self._release(len(body))
        return {"type": "http.request", "body": body, "more_body": not self.ended}

    def drop(self) -> None:
        """Forget what the handler has not taken."""
        self._connection_window.release(len(self._data))
        self._data.clear()
        self.wake()

    def _release(self, size: int) -> None:
        self._connection_window.release(size)
        if not self.ended and self._window is not None:
            self._window.release(size)

    def wake(self) -> None:
        """Let the handler look again."""
        if self._readable is not None:
            self._readable.set()

    async def wait(self) -> None:
        """Wait until `wake`."""
        if self._readable is None:
            self._readable = asyncio.Event()
        self._readable.clear()
        await self._readable.wait()


class Stream:
    """A request and its response. The connection drops what the client sends after the response."""

    __slots__ = (
        "_connection",
        "_left",
        "_writable",
        "body",
        "closed",
        "complete",
        "number",
        "scope",
        "started",
        "window",
    )

    def __init__(self, connection: StreamOwner, number: int, head: RequestHead, *, ended: bool) -> None:
        self.number = number
        self.scope = head.scope()
        self._connection = connection
        window = None if ended else ReceiveWindow(connection.writer, number, RECEIVE_BYTES, RECEIVE_BYTES // 2)
        self.body = RequestBody(connection.receive_window, window, head.length)
        self.window = connection.writer.stream_window
        """The send window."""
        self.started = False
        """Whether the headers of the response were sent."""
        self.complete = False
        """Whether all of it was sent."""
        self.closed = False
        """Whether the stream was reset, or the connection is gone."""
        self._left: int | None = None
        """How much of the response is still to come, if it has a Content-Length."""
        self._writable: asyncio.Event | None = None

    def close(self) -> None:
        """Tell the handler that the client is gone."""
        if not self.closed:
            self.closed = True
            self._connection.writer.blocked.pop(self, None)
            self.body.drop()
            self.wake_writer()

    def wake_writer(self) -> None:
        """Let the response go on: the window may have opened."""
        if self._writable is not None:
            self._writable.set()

    async def run(self, application: Application) -> None:
        """Have the request handled."""
        try:
            await application(self.scope, self.receive, self.send)
        except Exception:
            _LOG.exception("%s %s failed", self.scope["method"], self.scope["path"])
        finally:
            if not self.complete and not self.closed:
                self._fail()
            self._connection.finished()
            self.scope = {}  # its extensions know this stream

    def _fail(self) -> None:
        """Answer 500, or reset the stream if the response has begun."""
        text = b"Internal Server Error"
        headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", b"%d" % len(text))]
        if self.started or not self.answer(500, headers, text):
            self._connection.reset(self, ErrorCode.INTERNAL_ERROR)

    # --- ASGI

    async def receive(self) -> Message:
        """Return what the client has sent since, or that it is gone."""
        while not (self.closed or self.complete):
            if (message := self.body.message()) is not None:
                return message
            await self.body.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        """Send a part of the response; waits while the client does not read. RuntimeError for a wrong message."""
        if self.closed:
            return
        kind = message["type"]
        if not self.started:
            if kind != "http.response.start":
                raise RuntimeError(f"a response begins with http.response.start, not with {kind}")
            if await self._has_room(0, _stall_time()):
                headers = message.get("headers") or ()
                self._send_headers(message["status"], headers, ends=False)
                self._expect_length(message["status"], headers)
            return
        if kind != "http.response.body" or self.complete:
            raise RuntimeError(f"{kind} after the response" if self.complete else f"{kind} in a response")
        body, ends = message.get("body") or b"", not message.get("more_body", False)
        if self.scope["method"] == "HEAD":
            body = b""
        elif self._left is not None:
            self._left -= len(body)
            if self._left < 0 or (ends and self._left):
                raise RuntimeError("a response of another length than its Content-Length")
        await self._send_body(body, ends)

    def _send_headers(self, status: int, headers: Sequence[tuple[bytes, bytes]], *, ends: bool) -> None:
        block = response_block(status, (*self._connection.default_headers, *headers))
        self.started = True
        self._connection.writer.send_headers(self, block, ends=ends)

    def _expect_length(self, status: int, headers: Sequence[tuple[bytes, bytes]]) -> None:
        if status not in (204, 304):
            lengths = [value for name, value in headers if name.lower() == b"content-length"]
            self._left = int(lengths[-1]) if lengths else None

    async def _send_body(self, body: bytes, ends: bool) -> None:
        at, size, writer = 0, len(body), self._connection.writer
        view, stall_at, renewed_at = memoryview(body), _stall_time(), 0
        while at < size:
            if at - renewed_at >= PROGRESS_BYTES:
                stall_at, renewed_at = _stall_time(), at
            if not await self._has_room(1, stall_at):
                return
            taken = min(size - at, self.window, writer.window, BATCH_BYTES)
            writer.send_data(self, view[at : at + taken], ends=ends and at + taken == size)
            at += taken
        if not size and await self._has_room(0, stall_at) and ends:
            writer.send_data(self, b"", ends=True)
        if ends:
            self._complete()

    async def _has_room(self, size: int, stall_at: float) -> bool:
        """Wait until as much may be sent; False if the stream is closed, or the client has not read by then."""
        writer = self._connection.writer
        while not self.closed:
            if not writer.paused and self.window >= size and writer.window >= size:
                # What it writes puts it behind those that still wait: they keep their places.
                writer.blocked.pop(self, None)
                return True
            if self._writable is None:
                self._writable = asyncio.Event()
            self._writable.clear()
            writer.blocked[self] = None
            try:
                async with asyncio.timeout_at(stall_at):
                    await self._writable.wait()
            except TimeoutError:
                self.abort()
        return False

    def _complete(self) -> None:
        if not (self.closed or self.complete):
            self.complete = True
            self.body.drop()
            self._connection.responded(self)

    # --- shortcuts past ASGI's messages

    def shortcuts(self) -> Message:
        """ASGI extensions of the scope."""
        return {ABORT: self.abort, ANSWER: self.answer, WRITE_BODY: self.write_body}

    def answer(self, status: int, headers: Sequence[tuple[bytes, bytes]], body: bytes) -> bool:
        """Send a whole response; False if the client has to read first, or is gone."""
        if self.started or self.closed or not self._fits(body):
            return False
        self._send_headers(status, headers, ends=not body)
        if body:
            self._connection.writer.send_data(self, body, ends=True)
        self._complete()
        return True

    def write_body(self, data: bytes) -> bool:
        """Send a part of a response that has begun; False if the client has to read first."""
        if self.closed:
            return True  # nobody is there to wait for
        if not self._fits(data):
            return False
        self._connection.writer.send_data(self, data, ends=False)
        return True

    def _fits(self, data: bytes) -> bool:
        writer = self._connection.writer
        return not writer.paused and len(data) <= min(self.window, writer.window)

    def abort(self) -> None:
        """Cut off a client that does not read: this stream, or the connection if its socket is full."""
        if self._connection.writer.paused:
            self._connection.abort()
        elif not self.closed:
            self._connection.reset(self, ErrorCode.INTERNAL_ERROR)


def _stall_time() -> float:
    return asyncio.get_running_loop().time() + STALL_SECONDS
