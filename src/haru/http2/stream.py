"""One request on a connection of HTTP/2: the channels of ASGI, and the ways past them that `haru.serving` names."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

from haru.http2.frames import Code, StreamFault
from haru.http2.heads import Head, answer_block
from haru.http2.sending import Sending
from haru.serving import ABORT, ANSWER, WRITE_BODY

_LOG = logging.getLogger("haru.http2")

STALL_SECONDS = 60.0
"""So long a client may take for the next part of an answer."""
PROGRESS_BYTES = 4096
"""How long that part is: a window that is opened byte by byte does not keep an answer, and its request, for ever."""
BATCH_BYTES = 256 * 1024
"""Written at once, before others get their turn."""

Application = Callable[[Any, Any, Any], Awaitable[None]]
Message = dict[str, Any]


class StreamConnection(Protocol):
    """The connection of a stream, as far as the stream needs it."""

    out: Sending
    stream_room: int
    """How many bytes a stream may send before they are read."""

    @property
    def default_headers(self) -> list[tuple[bytes, bytes]]:
        """Of every answer."""

    def consumed(self, size: int) -> None:
        """Count bytes that are not kept any more."""

    def open_window(self, number: int, size: int) -> None:
        """Let the client send as many more bytes on a stream."""

    def reset(self, stream: Stream, code: Code) -> None:
        """End a stream because of what happened here."""

    def answered(self, stream: Stream) -> None:
        """Note that all of an answer was sent."""

    def finished(self, stream: Stream) -> None:
        """Note that the application has ended with a stream."""

    def abort(self) -> None:
        """Cut the connection."""


class Stream:
    """A request and its answer. What the client still sends after the answer is thrown away by the connection."""

    __slots__ = (
        "_body",
        "_connection",
        "_expected",
        "_handed_over",
        "_left",
        "_out",
        "_owed",
        "_readable",
        "_room",
        "_writable",
        "closed",
        "complete",
        "ended",
        "number",
        "scope",
        "started",
        "window",
    )

    def __init__(self, connection: StreamConnection, number: int, head: Head, window: int, *, ended: bool) -> None:
        self.number = number
        self.scope = head.scope()
        self.window = window
        """How much may be sent to the client."""
        self.ended = ended
        """Whether the client has sent everything."""
        self.started = False
        self.complete = False
        """Whether everything was answered."""
        self.closed = False
        """Whether nobody listens any more: the stream was reset, or the connection is gone."""
        self._connection = connection
        self._out = connection.out
        self._body = bytearray()
        self._expected = head.length
        """How much of the body is still to come, if that was told."""
        self._left: int | None = None
        """How much of the answer is still to come, if that was told."""
        self._room = connection.stream_room
        """How much the client may still send."""
        self._owed = 0
        """How much more it may once it is told."""
        self._handed_over = False
        """Whether the application has the whole body."""
        self._readable: asyncio.Event | None = None
        self._writable: asyncio.Event | None = None
        if ended and head.length:
            raise StreamFault(Code.PROTOCOL_ERROR, "a body shorter than its length")

    # --- from the client

    def take(self, data: bytes, size: int, *, ends: bool) -> None:
        """Take in what came: `data`, which with its padding were `size` bytes. Raises StreamFault."""
        if self.ended:
            raise StreamFault(Code.STREAM_CLOSED, "data after the end")
        self._room -= size
        if self._room < 0:
            raise StreamFault(Code.FLOW_CONTROL_ERROR, "more than the window")
        if self._expected is not None:
            self._expected -= len(data)
            if self._expected < 0 or (ends and self._expected):
                raise StreamFault(Code.PROTOCOL_ERROR, "a body of another length than was told")
        if size > len(data):
            self._consumed(size - len(data))
        self._body += data
        self.end() if ends else self._wake_reader()

    def end(self) -> None:
        """The client has sent everything. Raises StreamFault."""
        if self._expected:
            raise StreamFault(Code.PROTOCOL_ERROR, "a body shorter than its length")
        self.ended = True
        self._wake_reader()

    def close(self) -> None:
        """Nobody listens any more."""
        if not self.closed:
            self.closed = True
            self._out.blocked.pop(self, None)
            self._connection.consumed(len(self._body))
            self._body.clear()
            self._wake_reader()
            self.wake_writer()

    def wake_writer(self) -> None:
        """There may be room again."""
        if self._writable is not None:
            self._writable.set()

    def _wake_reader(self) -> None:
        if self._readable is not None:
            self._readable.set()

    def _consumed(self, size: int) -> None:
        """Let the client send as much again, once it is worth a frame."""
        self._connection.consumed(size)
        self._owed += size
        if not self.ended and self._owed >= self._connection.stream_room // 2:
            self._connection.open_window(self.number, self._owed)
            self._room += self._owed
            self._owed = 0

    # --- to the application

    async def run(self, application: Application) -> None:
        """Have the request answered."""
        try:
            await application(self.scope, self.receive, self.send)
        except Exception:
            _LOG.exception("%s %s failed", self.scope["method"], self.scope["path"])
        finally:
            if not self.complete and not self.closed:
                self._give_up()
            self._connection.finished(self)

    def _give_up(self) -> None:
        """The application has ended before its answer did."""
        if self.started:
            self._connection.reset(self, Code.INTERNAL_ERROR)
        else:
            text = b"Internal Server Error"
            headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", b"%d" % len(text))]
            if not self.answer(500, headers, text):
                self._connection.reset(self, Code.INTERNAL_ERROR)

    async def receive(self) -> Message:
        """ASGI: what the client has sent since, or that it is gone."""
        while not (self.closed or self.complete):
            if self._body or (self.ended and not self._handed_over):
                body = bytes(self._body)
                self._body.clear()
                self._handed_over = self.ended
                self._consumed(len(body))
                return {"type": "http.request", "body": body, "more_body": not self.ended}
            await self._wait_to_read()
        return {"type": "http.disconnect"}

    async def _wait_to_read(self) -> None:
        if self._readable is None:
            self._readable = asyncio.Event()
        self._readable.clear()
        await self._readable.wait()

    async def send(self, message: Message) -> None:
        """ASGI: a part of the answer. Waits while the client does not read; RuntimeError for what is out of turn."""
        if self.closed:
            return
        kind = message["type"]
        if not self.started:
            if kind != "http.response.start":
                raise RuntimeError(f"an answer begins with http.response.start, not with {kind}")
            if await self._has_room(0, self._stall_time()):
                self._start(message["status"], message.get("headers") or ())
            return
        if kind != "http.response.body" or self.complete:
            raise RuntimeError(f"{kind} after the answer" if self.complete else f"{kind} in an answer")
        body, ends = message.get("body") or b"", not message.get("more_body", False)
        if self.scope["method"] == "HEAD":
            body = b""
        elif self._left is not None:
            self._left -= len(body)
            if self._left < 0 or (ends and self._left):
                raise RuntimeError("an answer of another length than its Content-Length")
        await self._send_body(body, ends)

    def _start(self, status: int, headers: Sequence[tuple[bytes, bytes]]) -> None:
        block = answer_block(status, (*self._connection.default_headers, *headers))
        self.started = True
        if status not in (204, 304):
            told = [value for name, value in headers if name.lower() == b"content-length"]
            self._left = int(told[-1]) if told else None
        self._out.send_head(self, block, ends=False)

    async def _send_body(self, body: bytes, ends: bool) -> None:
        at, size, out = 0, len(body), self._out
        view, stall_at, renewed_at = memoryview(body), self._stall_time(), 0
        while at < size:
            if at - renewed_at >= PROGRESS_BYTES:
                stall_at, renewed_at = self._stall_time(), at
            if not await self._has_room(1, stall_at):
                return
            taken = min(size - at, self.window, out.window, BATCH_BYTES)
            is_last = at + taken == size
            out.send_data(self, view[at : at + taken], ends=ends and is_last)
            at += taken
        if not size and await self._has_room(0, stall_at) and ends:
            out.send_data(self, b"", ends=True)
        if ends:
            self._completed()

    @staticmethod
    def _stall_time() -> float:
        return asyncio.get_running_loop().time() + STALL_SECONDS

    async def _has_room(self, size: int, stall_at: float) -> bool:
        """Wait until as much may be sent; False when nobody listens any more, or the client has not read by then."""
        out = self._out
        while not self.closed:
            if not out.paused and self.window >= size and out.window >= size:
                return True
            if self._writable is None:
                self._writable = asyncio.Event()
            self._writable.clear()
            out.blocked[self] = None
            try:
                async with asyncio.timeout_at(stall_at):
                    await self._writable.wait()
            except TimeoutError:
                self.abort()
        return False

    def _completed(self) -> None:
        if self.closed or self.complete:
            return
        self.complete = True
        self._connection.consumed(len(self._body))
        self._body.clear()
        self._connection.answered(self)
        self._wake_reader()

    # --- past the messages of ASGI

    def extensions(self, told: Message) -> Message:
        """What ASGI's scope offers: `told`, and the short ways."""
        return {ABORT: self.abort, ANSWER: self.answer, WRITE_BODY: self.write_body, **told}

    def answer(self, status: int, headers: Sequence[tuple[bytes, bytes]], body: bytes) -> bool:
        """Head and body at once; False where the client has to read first, or is gone."""
        out = self._out
        if self.started or self.closed or out.paused or len(body) > min(self.window, out.window):
            return False
        block = answer_block(status, (*self._connection.default_headers, *headers))
        self.started = True
        out.send_head(self, block, ends=not body)
        if body:
            out.send_data(self, body, ends=True)
        self._completed()
        return True

    def write_body(self, data: bytes) -> bool:
        """A part of an answer that has begun; False where the client has to read first."""
        if self.closed:
            return True  # there is nobody to wait for
        out = self._out
        if out.paused or len(data) > min(self.window, out.window):
            return False
        out.send_data(self, data, ends=False)
        return True

    def abort(self) -> None:
        """Cut off a client that does not read: this stream; or all, where nothing is taken from the connection."""
        if self._out.paused:
            self._connection.abort()
        elif not self.closed:
            self._connection.reset(self, Code.INTERNAL_ERROR)
