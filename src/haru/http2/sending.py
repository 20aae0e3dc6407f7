"""What goes to the client of a connection of HTTP/2: windows, frames, and a little patience before they are sent."""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

from haru.http2 import frames
from haru.http2.frames import Code, ConnectionFault

UNREAD_BYTES = 1024 * 1024
"""So much may lie here unread before a client that asks for replies is cut off."""
UPDATE_BYTES = 1024
"""A client may open its windows again for as much at a time: Go's wait for four times as much."""
TABLE_OF_NOTHING = b"\x20"
"""In a head: nothing is kept in the table from here on."""
FLUSH_BYTES = 64 * 1024
"""Less is gathered until the loop comes round: one record of TLS for what many streams say at once."""


class SendingStream(Protocol):
    """A stream as far as its frames are concerned: its number, and its window, in bytes."""

    number: int
    window: int

    def wake_writer(self) -> None:
        """Go on with the answer: there may be room for it."""


class Sending:
    """The way to the client, for all streams."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._transport: Any = None
        self.paused = False
        """Whether the client has yet to read what the socket was given."""
        self.blocked: dict[SendingStream, None] = {}
        """Streams that wait for room."""
        self.window = frames.WINDOW
        """How much may be sent on all streams."""
        self.stream_window = frames.WINDOW
        """How much on a new one."""
        self.frame_bytes = frames.SMALLEST_LIMIT
        """How long a frame may be."""
        self.expected_updates = 0
        """So many WINDOW_UPDATEs may come for the data that was sent."""
        self._first = b""
        """What the next head begins with."""
        self._out: list[bytes | memoryview] = []
        self._out_bytes = 0
        self._is_scheduled = False

    def begin(self, transport: Any) -> None:
        """Where to."""
        self._transport = transport

    def keeps_no_table(self) -> None:
        """The client has a wish for the size of the table of fields; it waits to be told that it is kept to."""
        self._first = TABLE_OF_NOTHING

    def send_head(self, stream: SendingStream, block: bytes, *, ends: bool) -> None:
        """The head of an answer."""
        if self._first:
            block, self._first = self._first + block, b""
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

    def send_data(self, stream: SendingStream, data: bytes | memoryview, *, ends: bool) -> None:
        """A part of a body, for which there is room in both windows."""
        size, limit = len(data), self.frame_bytes
        self.expected_updates += 2 + size // UPDATE_BYTES
        self.window -= size
        stream.window -= size
        flags = frames.END_STREAM if ends else 0
        for begin in range(0, size, limit) if size > limit else (0,):
            end = min(begin + limit, size)
            self.write(frames.head(end - begin, frames.DATA, flags if end == size else 0, stream.number))
            if size:
                self.write(data[begin:end] if size > limit else data)

    def reply(self, data: bytes) -> None:
        """Send what a client gets for the asking. ConnectionFault where that heaps up unread."""
        if self.paused and self._out_bytes + self._transport.get_write_buffer_size() > UNREAD_BYTES:
            raise ConnectionFault(Code.ENHANCE_YOUR_CALM, "replies that are not read")
        self.write(data)

    def write(self, data: bytes | memoryview) -> None:
        """Send, soon."""
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
        """Send what was gathered."""
        out, self._out, self._out_bytes = self._out, [], 0
        if out and self._transport is not None and not self._transport.is_closing():
            self._transport.write(b"".join(out))

    def wake_all(self) -> None:
        """There may be room again, for whoever waits."""
        blocked, self.blocked = self.blocked, {}
        for stream in blocked:
            stream.wake_writer()
