"""Write frames to a client of HTTP/2: flow-control windows, and small frames gathered into one write."""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

from haru.http2 import frames
from haru.http2.frames import ErrorCode, Http2ConnectionError

UNREAD_BYTES = 1024 * 1024
"""Replies to PING and SETTINGS that a client may leave unread."""
UPDATE_BYTES = 1024
"""A client may open its windows again by so little at a time; Go's clients wait for four times as much."""
EMPTY_TABLE = b"\x20"
"""In a header block: the size of the dynamic table is 0."""
FLUSH_BYTES = 64 * 1024
"""Less is gathered until the next turn of the loop: one TLS record for the frames of many streams."""


class WindowedStream(Protocol):
    """A stream for the writer: its number, and its send window in bytes."""

    number: int
    window: int

    def wake_writer(self) -> None:
        """Go on with the response: the window may have opened."""


class ReceiveWindow:
    """The flow-control window for what a client sends, on a stream or, with number 0, on all.

    It opens again by what was released, once that is worth a frame (`update_bytes`).
    """

    __slots__ = ("_number", "_released", "_room", "_update_bytes", "_writer")

    def __init__(self, writer: FrameWriter, number: int, room: int, update_bytes: int) -> None:
        self._writer, self._number, self._room, self._update_bytes = writer, number, room, update_bytes
        self._released = 0

    def take(self, size: int) -> bool:
        """Count bytes that have come; False if they are more than the window."""
        self._room -= size
        return self._room >= 0

    def release(self, size: int) -> None:
        """Count bytes that are not kept any more."""
        self._released += size
        if self._released >= self._update_bytes:
            self._writer.write(frames.number_frame(frames.WINDOW_UPDATE, self._number, self._released))
            self._room += self._released
            self._released = 0


class FrameWriter:
    """Writes the frames of all streams of a connection."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._transport: Any = None
        self.paused = False
        """Whether the socket's buffer is full."""
        self.blocked: dict[WindowedStream, None] = {}
        """Streams that wait for a window or the socket, in the order of their turns."""
        self.window = frames.WINDOW
        """The send window of the connection."""
        self.stream_window = frames.WINDOW
        """The initial send window of a stream."""
        self.frame_bytes = frames.SMALLEST_LIMIT
        """The longest frame that the client takes."""
        self.expected_updates = 0
        """How many WINDOW_UPDATEs the data that was sent is worth."""
        self._block_prefix = b""
        """What the next header block begins with."""
        self._out: list[bytes | memoryview] = []
        self._out_bytes = 0
        self._is_scheduled = False

    def connect(self, transport: Any) -> None:
        """Write to a transport from now on."""
        self._transport = transport

    def acknowledge_table_size(self) -> None:
        """Tell the client, which has set HEADER_TABLE_SIZE, that no table is used."""
        self._block_prefix = EMPTY_TABLE

    def send_headers(self, stream: WindowedStream, block: bytes, *, ends: bool) -> None:
        """Write the header block of a response, in as many frames as it needs."""
        if self._block_prefix:
            block, self._block_prefix = self._block_prefix + block, b""
        flags = frames.END_STREAM if ends else 0
        limit = self.frame_bytes
        if len(block) <= limit:
            self.write(frames.frame(frames.HEADERS, flags | frames.END_HEADERS, stream.number, block))
            return
        parts = [block[begin : begin + limit] for begin in range(0, len(block), limit)]
        self.write(frames.frame(frames.HEADERS, flags, stream.number, parts[0]))
        for part in parts[1:]:
            is_last = frames.END_HEADERS if part is parts[-1] else 0
            self.write(frames.frame(frames.CONTINUATION, is_last, stream.number, part))

    def send_data(self, stream: WindowedStream, data: bytes | memoryview, *, ends: bool) -> None:
        """Write a part of a body that fits in both windows."""
        size, limit = len(data), self.frame_bytes
        self.expected_updates += 2 + size // UPDATE_BYTES
        self.window -= size
        stream.window -= size
        flags = frames.END_STREAM if ends else 0
        for begin in range(0, size, limit) if size > limit else (0,):
            end = min(begin + limit, size)
            self.write(frames.frame_header(end - begin, frames.DATA, flags if end == size else 0, stream.number))
            if size:
                self.write(data[begin:end] if size > limit else data)

    def reply(self, data: bytes) -> None:
        """Write what a client causes at will. Http2ConnectionError if too much of it is unread."""
        if self.paused and self._out_bytes + self._transport.get_write_buffer_size() > UNREAD_BYTES:
            raise Http2ConnectionError(ErrorCode.ENHANCE_YOUR_CALM, "unread replies")
        self.write(data)

    def write(self, data: bytes | memoryview) -> None:
        """Write soon."""
        self._out.append(data)
        self._out_bytes += len(data)
        if self._out_bytes > FLUSH_BYTES:
            self.flush()
        elif not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._flush_soon)

    def _flush_soon(self) -> None:
        self._is_scheduled = False
        self.flush()

    def flush(self) -> None:
        """Write what was gathered."""
        out, self._out, self._out_bytes = self._out, [], 0
        if out and self._transport is not None and not self._transport.is_closing():
            self._transport.write(b"".join(out))

    def wake_all(self) -> None:
        """Wake the streams that wait; those that find room leave `blocked`."""
        for stream in list(self.blocked):
            stream.wake_writer()
