"""A connection of HTTP/2: many requests at once, each a stream, and what a client may cost.

Nothing that a client sends is worked on without bound: streams and running requests are counted, heads and frames have
a length and a time, and what costs without leading anywhere (resets, pings, settings, refused streams, empty frames) is
counted by the second. A client that goes beyond is told to calm down, and the connection ends. What it does not read is
not gathered: streams wait for its windows, all of them for the socket.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Any

from haru import serving
from haru.http2 import MAX_STREAMS, frames
from haru.http2.bounds import Calm, Clock, HeadClock
from haru.http2.frames import Code, ConnectionFault, Frames, Setting, StreamFault
from haru.http2.heads import Decompressor, Fields, HeadError, HeadTooLargeError, answer_block, read_head
from haru.http2.sending import Sending
from haru.http2.stream import Stream

_LOG = logging.getLogger("haru.http2")

RECEIVE_BYTES = 256 * 1024
"""The longest frame, and what a stream may send before it is read: as in kube-apiserver."""
QUEUES = 4
"""So many times the streams may wait for requests to end that their clients have given up, as in Go's server."""


class Connection(asyncio.Protocol):
    """One connection, as uvicorn makes them; `told` is there to be overridden."""

    max_streams = MAX_STREAMS

    def __init__(self, config: Any, server_state: Any, app_state: Any, _loop: Any = None) -> None:
        self._application = config.loaded_app
        self._keep_alive: float = config.timeout_keep_alive
        self._state = server_state
        self.transport: Any = None
        self.loop: asyncio.AbstractEventLoop = _loop or asyncio.get_running_loop()
        self._frames = Frames(RECEIVE_BYTES)
        self._decompressor = Decompressor(serving.HEAD_BYTES)
        self._streams: dict[int, Stream] = {}
        self._waiting: deque[Stream] = deque()
        """Streams that begin when others have ended."""
        self._running = 0
        self._last = 0
        """The youngest stream."""
        self._is_greeted = False
        self._is_leaving = False
        self._is_over = False
        self._block: tuple[int, int, bytearray] | None = None
        """A head of which more is to come: stream, flags, what there is."""
        self._calm = Calm(self.loop)
        self._head_clock = HeadClock(self.loop, self.abort)
        self._idle_clock = Clock(self.loop, self._idle_left, self.shutdown)
        self._idle_at = 0.0
        self.out = Sending(self.loop)
        self.stream_room = RECEIVE_BYTES
        self._most_room = self._room = min(RECEIVE_BYTES * self.max_streams, frames.LARGEST_WINDOW)
        self._owed = 0
        self._scope: dict[str, Any] = {}
        self._told: dict[str, Any] = {}

    def told(self) -> dict[str, Any]:
        """Further ASGI extensions of the requests on this connection."""
        return {}

    @property
    def default_headers(self) -> list[tuple[bytes, bytes]]:
        """Of every answer."""
        found: list[tuple[bytes, bytes]] = self._state.default_headers
        return found

    # --- as asyncio calls it

    def connection_made(self, transport: Any) -> None:
        """Say what is offered, and wait for the client to begin."""
        from uvicorn.protocols.utils import get_local_addr, get_remote_addr, is_ssl

        self.transport = transport
        self.out.begin(transport)
        self._state.connections.add(self)
        scheme = "https" if is_ssl(transport) else "http"
        self._scope = {"server": get_local_addr(transport), "client": get_remote_addr(transport), "scheme": scheme}
        self._told = self.told()
        self._idle_at = self.loop.time()
        self._idle_clock.start()
        self._note_begun()
        offered = {
            Setting.MAX_CONCURRENT_STREAMS: self.max_streams,
            Setting.INITIAL_WINDOW_SIZE: RECEIVE_BYTES,
            Setting.MAX_FRAME_SIZE: RECEIVE_BYTES,
            Setting.MAX_HEADER_LIST_SIZE: serving.HEAD_BYTES,
        }
        self.out.write(frames.settings(offered))
        if self._most_room > frames.WINDOW:
            self.out.write(frames.numbered(frames.WINDOW_UPDATE, 0, self._most_room - frames.WINDOW))

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the requests."""
        self._is_over = True
        self._state.connections.discard(self)
        self._close_streams()
        self._head_clock.stop()
        self._idle_clock.stop()

    def data_received(self, data: bytes) -> None:
        """Take frames in."""
        if self._is_over:
            return  # what was under way while it ended
        try:
            for kind, flags, number, payload in self._frames.feed(data):
                if self._is_over:
                    return
                self._take(kind, flags, number, payload)
        except ConnectionFault as fault:
            self._fail(fault)
        else:
            self._note_begun()

    def eof_received(self) -> None:
        """Nothing more comes: there is nobody to answer."""

    def pause_writing(self) -> None:
        """The socket has enough."""
        self.out.paused = True

    def resume_writing(self) -> None:
        """It takes more."""
        self.out.paused = False
        self.out.wake_all()

    def shutdown(self) -> None:
        """Take no new requests, finish those that are there, close."""
        if self._is_leaving or self._is_over:
            return
        self._is_leaving = True
        self.out.write(frames.goaway(self._last, Code.NO_ERROR, ""))
        self._close_if_done()

    def abort(self) -> None:
        """Cut the connection."""
        self._is_over = True
        self.transport.abort()

    def consumed(self, size: int) -> None:
        """What the client has sent is not kept any more: it may send as much again, once that is worth a frame."""
        self._owed += size
        if self._owed >= min(self._most_room // 2, RECEIVE_BYTES):
            self.open_window(0, self._owed)
            self._room += self._owed
            self._owed = 0

    def open_window(self, number: int, size: int) -> None:
        """Let the client send as much more on a stream, or on all."""
        self.out.write(frames.numbered(frames.WINDOW_UPDATE, number, size))

    # --- frames

    def _take(self, kind: int, flags: int, number: int, payload: bytes) -> None:
        if self._block is not None and (kind != frames.CONTINUATION or number != self._block[0]):
            raise ConnectionFault(Code.PROTOCOL_ERROR, "a head that is not gone on with")
        if not self._is_greeted:
            if kind != frames.SETTINGS or flags & frames.ACK:
                raise ConnectionFault(Code.PROTOCOL_ERROR, "settings come first")
            self._is_greeted = True
        take = _TAKE.get(kind)
        if take is None:  # what is not known is passed over
            self._calm.count()
        else:
            take(self, flags, number, payload)

    def _take_data(self, flags: int, number: int, payload: bytes) -> None:
        size = len(payload)
        self._room -= size
        if self._room < 0:
            raise ConnectionFault(Code.FLOW_CONTROL_ERROR, "more than the window")
        data = frames.unpadded(payload, flags) if flags & frames.PADDED else payload
        ends = bool(flags & frames.END_STREAM)
        if not data and not ends:
            self._calm.count()
        stream = self._known(number)
        if stream is None:
            self._calm.count()
            self.consumed(size)
            return
        try:
            stream.take(data, size, ends=ends)
        except StreamFault as fault:
            self.consumed(size)
            self._refuse(number, fault.code)

    def _take_headers(self, flags: int, number: int, payload: bytes) -> None:
        if not number & 1:
            raise ConnectionFault(Code.PROTOCOL_ERROR, "a stream that no client may open")
        block = frames.unpadded(payload, flags, with_priority=True)
        if flags & frames.END_HEADERS:
            self._take_head(flags, number, block)
        else:
            self._block = number, flags, bytearray(block)

    def _take_continuation(self, flags: int, number: int, payload: bytes) -> None:
        if self._block is None:
            raise ConnectionFault(Code.PROTOCOL_ERROR, "a head is gone on with that has not begun")
        self._calm.count()
        _, begun, block = self._block
        block += payload
        if len(block) > serving.HEAD_BYTES:
            self._refuse_head(number)
        if flags & frames.END_HEADERS:
            self._block = None
            self._take_head(begun, number, bytes(block))

    def _take_head(self, flags: int, number: int, block: bytes) -> None:
        try:
            fields = self._decompressor.fields(block)
        except HeadTooLargeError:
            self._refuse_head(number)
            return
        ends = bool(flags & frames.END_STREAM)
        stream = self._streams.get(number)
        try:
            if stream is not None:
                # Trailers: nobody here has a use for what they say.
                if stream.ended or not ends:
                    raise StreamFault(Code.STREAM_CLOSED if stream.ended else Code.PROTOCOL_ERROR, "a second head")
                stream.end()
            elif number > self._last:
                self._last = number
                self._open(number, fields, ends)
            else:
                self._calm.count()  # trailers of what was answered before they came
        except StreamFault as fault:
            self._refuse(number, fault.code)

    def _open(self, number: int, fields: Fields, ends: bool) -> None:
        if self._is_leaving:
            self._calm.count()  # the client was told that it will not be worked on
            return
        if len(self._streams) >= self.max_streams:
            raise StreamFault(Code.REFUSED_STREAM, "too many streams")
        try:
            head = read_head(fields)
        except HeadError as error:
            raise StreamFault(Code.PROTOCOL_ERROR, str(error)) from None
        stream = Stream(self, number, head, self.out.stream_window, ended=ends)
        stream.scope.update(self._scope, state={}, extensions=stream.extensions(self._told))
        self._streams[number] = stream
        if self._running < self.max_streams:
            self._start(stream)
            return
        self._waiting.append(stream)
        if len(self._waiting) > QUEUES * self.max_streams:
            raise ConnectionFault(Code.ENHANCE_YOUR_CALM, "too many requests that were given up at once")

    def _start(self, stream: Stream) -> None:
        self._running += 1
        task = self.loop.create_task(stream.run(self._application))
        task.add_done_callback(self._state.tasks.discard)
        self._state.tasks.add(task)

    def _take_reset(self, _: int, number: int, payload: bytes) -> None:
        frames.number_in(payload)
        self._calm.count()
        stream = self._known(number)
        if stream is not None:
            del self._streams[number]
            stream.close()

    def _take_settings(self, flags: int, number: int, payload: bytes) -> None:
        if number:
            raise ConnectionFault(Code.PROTOCOL_ERROR, "settings of a stream")
        if flags & frames.ACK:
            if payload:
                raise ConnectionFault(Code.FRAME_SIZE_ERROR, "an acknowledgement that says more")
            return
        self._calm.count()
        for name, value in frames.read_settings(payload):
            if name == Setting.HEADER_TABLE_SIZE:
                self.out.keeps_no_table()
            elif name == Setting.MAX_FRAME_SIZE:
                self.out.frame_bytes = value
            elif name == Setting.INITIAL_WINDOW_SIZE:
                more, self.out.stream_window = value - self.out.stream_window, value
                for stream in self._streams.values():
                    stream.window += more
                    if stream.window > frames.LARGEST_WINDOW:
                        raise ConnectionFault(Code.FLOW_CONTROL_ERROR, "a window beyond all bounds")
        self.out.reply(frames.frame(frames.SETTINGS, frames.ACK, 0))
        self.out.wake_all()

    def _take_ping(self, flags: int, number: int, payload: bytes) -> None:
        if number or len(payload) != 8:
            code = Code.PROTOCOL_ERROR if number else Code.FRAME_SIZE_ERROR
            raise ConnectionFault(code, "a ping is eight bytes for the connection")
        self._calm.count()
        if not flags & frames.ACK:
            self.out.reply(frames.frame(frames.PING, frames.ACK, 0, payload))

    def _take_window_update(self, _: int, number: int, payload: bytes) -> None:
        more = frames.number_in(payload) & frames.LARGEST_WINDOW
        if self.out.expected_updates:
            self.out.expected_updates -= 1
        else:
            self._calm.count()
        if not number:
            self.out.window += more
            if not more or self.out.window > frames.LARGEST_WINDOW:
                code = Code.FLOW_CONTROL_ERROR if more else Code.PROTOCOL_ERROR
                raise ConnectionFault(code, f"a window that grows by {more}")
            self.out.wake_all()
            return
        stream = self._known(number)
        if stream is None:
            return
        stream.window += more
        if not more or stream.window > frames.LARGEST_WINDOW:
            self._refuse(number, Code.FLOW_CONTROL_ERROR if more else Code.PROTOCOL_ERROR)
            return
        self.out.blocked.pop(stream, None)
        stream.wake_writer()

    def _take_priority(self, _: int, number: int, payload: bytes) -> None:
        if not number:
            raise ConnectionFault(Code.PROTOCOL_ERROR, "a priority of no stream")
        self._calm.count()
        if len(payload) != 5:
            # Of a stream that is not open yet, too; but one must not be reset before it is.
            if not number & 1 or number > self._last:
                raise ConnectionFault(Code.FRAME_SIZE_ERROR, "a priority of a wrong size")
            self._refuse(number, Code.FRAME_SIZE_ERROR)

    def _take_goaway(self, _: int, number: int, payload: bytes) -> None:
        if number or len(payload) < 8:
            raise ConnectionFault(Code.PROTOCOL_ERROR, "a farewell that says nothing")
        self._calm.count()
        self.shutdown()

    def _take_push(self, _: int, number: int, payload: bytes) -> None:
        raise ConnectionFault(Code.PROTOCOL_ERROR, "clients push nothing")

    def _known(self, number: int) -> Stream | None:
        """A stream that is open, None for one that was. ConnectionFault for one that never was."""
        stream = self._streams.get(number)
        if stream is None and (not number & 1 or number > self._last):
            raise ConnectionFault(Code.PROTOCOL_ERROR, "a stream that was not opened")
        return stream

    # --- bounds

    def _refuse_head(self, number: int) -> None:
        """431, and the end: what follows can not be decompressed."""
        if number > self._last:
            self._last = number
            block = answer_block(431, [*self.default_headers, (b"content-length", b"0")])
            self.out.write(frames.frame(frames.HEADERS, frames.END_HEADERS | frames.END_STREAM, number, block))
        raise ConnectionFault(Code.ENHANCE_YOUR_CALM, f"a head of more than {serving.HEAD_BYTES} bytes")

    def _note_begun(self) -> None:
        """Remember since when the client owes the rest of a head, or of a frame that is no data."""
        if self._block is not None:
            self._head_clock.owes((True, self._block[0]))
        elif not self._is_greeted:
            self._head_clock.owes((False, -1))
        elif self._frames.unfinished not in (None, frames.DATA):
            self._head_clock.owes((False, self._frames.count))
        else:
            self._head_clock.owes(None)

    def _idle_left(self) -> float:
        """For how many seconds a connection without requests is still kept."""
        busy = self._streams or self._running
        return self._keep_alive if busy else self._idle_at + self._keep_alive - self.loop.time()

    # --- the end of streams, and of all

    def _refuse(self, number: int, code: Code) -> None:
        """End a stream because of what the client did."""
        self._calm.count()
        self.out.reply(frames.numbered(frames.RST_STREAM, number, code))
        stream = self._streams.pop(number, None)
        if stream is not None:
            stream.close()

    def reset(self, stream: Stream, code: Code) -> None:
        """End a stream because of what happened here."""
        if self._streams.pop(stream.number, None) is not None:
            self.out.write(frames.numbered(frames.RST_STREAM, stream.number, code))
        stream.close()

    def answered(self, stream: Stream) -> None:
        """All of an answer was sent; the client need not send the rest of its request."""
        if self._streams.pop(stream.number, None) is not None and not stream.ended:
            self.out.write(frames.numbered(frames.RST_STREAM, stream.number, Code.NO_ERROR))

    def finished(self, stream: Stream) -> None:
        """The application has ended with a stream: another one that waits may begin."""
        self._state.total_requests += 1
        self._running -= 1
        self._idle_at = self.loop.time()
        while self._waiting and self._running < self.max_streams:
            following = self._waiting.popleft()
            if not following.closed:
                self._start(following)
        self._close_if_done()

    def _close_if_done(self) -> None:
        if self._is_leaving and not self._streams and not self._running and not self._is_over:
            self.out.flush()
            self._is_over = True
            self.transport.close()

    def _fail(self, fault: ConnectionFault) -> None:
        if self._is_over:
            return
        _LOG.info("a connection of HTTP/2 from %s ends: %s", self._scope["client"], fault)
        self.out.write(frames.goaway(self._last, fault.code, str(fault)))
        self.out.flush()
        self._is_over = True
        self._close_streams()
        if self.out.paused:
            self.transport.abort()  # who does not read would not see the farewell, either
        else:
            self.transport.close()

    def _close_streams(self) -> None:
        streams, self._streams = self._streams, {}
        for stream in (*streams.values(), *self._waiting):
            stream.close()
        self._waiting.clear()


_TAKE: dict[int, Callable[[Connection, int, int, bytes], None]] = {
    frames.DATA: Connection._take_data,
    frames.HEADERS: Connection._take_headers,
    frames.PRIORITY: Connection._take_priority,
    frames.RST_STREAM: Connection._take_reset,
    frames.SETTINGS: Connection._take_settings,
    frames.PUSH_PROMISE: Connection._take_push,
    frames.PING: Connection._take_ping,
    frames.GOAWAY: Connection._take_goaway,
    frames.WINDOW_UPDATE: Connection._take_window_update,
    frames.CONTINUATION: Connection._take_continuation,
}
