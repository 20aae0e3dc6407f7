"""A connection of HTTP/2: many requests at once, each a stream, and what a client may cost.

Nothing that a client sends is handled without bound: streams and handlers are counted, header blocks and frames have a
length and a time, and useless frames (resets, pings, settings, refused streams, empty frames) are counted by the
second. A client beyond the bounds gets ENHANCE_YOUR_CALM, and the connection ends. What it does not read is not
buffered: streams wait for its windows, and all of them for the socket. docs/security.md lists the attacks.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from enum import Enum
from typing import Any, NoReturn

from haru import serving
from haru.event_loop import abort
from haru.http2 import MAX_STREAMS, frames
from haru.http2.frame_writer import FrameWriter, ReceiveWindow
from haru.http2.frames import ErrorCode, FrameReader, Http2ConnectionError, Http2StreamError, Setting
from haru.http2.headers import (
    Fields,
    HeaderBlocks,
    HeaderListTooLargeError,
    MalformedRequestError,
    parse_request,
    response_block,
)
from haru.http2.limits import HandlerPool, HeaderDeadline, IdleDeadline, UselessFrameLimit
from haru.http2.stream import RECEIVE_BYTES, Stream

_LOG = logging.getLogger("haru.http2")


class Phase(Enum):
    """The life of a connection."""

    OPEN = "open"
    DRAINING = "draining"
    """No new requests: GOAWAY was sent."""
    CLOSED = "closed"


class Connection(asyncio.Protocol):
    """One connection, made by uvicorn; subclasses override `extensions`."""

    max_streams = MAX_STREAMS

    def __init__(self, config: Any, server_state: Any, app_state: Any, _loop: Any = None) -> None:
        loop: asyncio.AbstractEventLoop = _loop or asyncio.get_running_loop()
        self.transport: Any = None
        self.writer = FrameWriter(loop)
        self._receive_bytes = min(RECEIVE_BYTES * self.max_streams, frames.LARGEST_WINDOW)
        worth_a_frame = min(self._receive_bytes // 2, RECEIVE_BYTES)
        self.receive_window = ReceiveWindow(self.writer, 0, self._receive_bytes, worth_a_frame)
        self.streams: dict[int, Stream] = {}
        self.handlers = HandlerPool(loop, config.loaded_app, server_state.tasks, self.max_streams)
        self._state = server_state
        self._reader = FrameReader(RECEIVE_BYTES)
        self._blocks = HeaderBlocks(serving.HEAD_BYTES)
        self._last = 0
        """The youngest stream."""
        self._last_handled: int | None = None
        """As the first GOAWAY has said: what is younger, the client may have sent again elsewhere."""
        self._phase = Phase.OPEN
        self._useless = UselessFrameLimit(loop)
        self._header_deadline = HeaderDeadline(loop, self.abort)
        self._idle_deadline = IdleDeadline(loop, self.shutdown, config.timeout_keep_alive, self._is_busy)
        self._scope: dict[str, Any] = {}
        """What the scopes of all requests share."""

    def extensions(self) -> dict[str, Any]:
        """ASGI extensions of the requests on this connection."""
        return {}

    @property
    def default_headers(self) -> list[tuple[bytes, bytes]]:
        """Headers of every response."""
        found: list[tuple[bytes, bytes]] = self._state.default_headers
        return found

    @property
    def _is_closed(self) -> bool:
        return self._phase is Phase.CLOSED

    # --- asyncio's side

    def connection_made(self, transport: Any) -> None:
        """Send the settings, and wait for the client's."""
        from uvicorn.protocols.utils import get_local_addr, get_remote_addr, is_ssl

        self.transport = transport
        self.writer.connect(transport)
        self._state.connections.add(self)
        self._scope = {
            "server": get_local_addr(transport),
            "client": get_remote_addr(transport),
            "scheme": "https" if is_ssl(transport) else "http",
            "extensions": self.extensions(),
        }
        self._idle_deadline.start()
        self._await_rest()
        offered = {
            Setting.MAX_CONCURRENT_STREAMS: self.max_streams,
            Setting.INITIAL_WINDOW_SIZE: RECEIVE_BYTES,
            Setting.MAX_FRAME_SIZE: RECEIVE_BYTES,
            Setting.MAX_HEADER_LIST_SIZE: serving.HEAD_BYTES,
        }
        self.writer.write(frames.settings(offered))
        if self._receive_bytes > frames.WINDOW:
            self.writer.write(frames.number_frame(frames.WINDOW_UPDATE, 0, self._receive_bytes - frames.WINDOW))

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the handlers."""
        self._phase = Phase.CLOSED
        self._state.connections.discard(self)
        self._close_streams()
        self._header_deadline.stop()
        self._idle_deadline.stop()

    def data_received(self, data: bytes) -> None:
        """Handle frames."""
        if self._is_closed:
            return  # it was on its way when the connection ended
        try:
            for kind, flags, number, payload in self._reader.feed(data):
                if self._is_closed:
                    return
                self._receive(kind, flags, number, payload)
        except Http2ConnectionError as error:
            self._fail(error)
        else:
            self._await_rest()

    def eof_received(self) -> None:
        """Close: nobody is there to answer."""

    def pause_writing(self) -> None:
        """Note that the socket's buffer is full."""
        self.writer.paused = True

    def resume_writing(self) -> None:
        """Let the responses go on."""
        self.writer.paused = False
        self.writer.wake_all()

    def shutdown(self) -> None:
        """Take no new requests, finish those that are there, close."""
        if self._phase is Phase.OPEN:
            self._phase = Phase.DRAINING
            self._send_goaway(ErrorCode.NO_ERROR, "")
            self._close_if_drained()

    def abort(self) -> None:
        """Cut the connection."""
        self._phase = Phase.CLOSED
        abort(self.transport)

    # --- frames

    def _receive(self, kind: int, flags: int, number: int, payload: bytes) -> None:
        if self._blocks.stream is not None and (kind != frames.CONTINUATION or number != self._blocks.stream):
            raise Http2ConnectionError(ErrorCode.PROTOCOL_ERROR, "a header block is not continued")
        if self._reader.count == 1 and (kind != frames.SETTINGS or flags & frames.ACK):
            raise Http2ConnectionError(ErrorCode.PROTOCOL_ERROR, "settings come first")
        receive = _RECEIVERS.get(kind)
        if receive is None:  # extensions are ignored
            self._useless.count()
        else:
            receive(self, flags, number, payload)

    def _receive_data(self, flags: int, number: int, payload: bytes) -> None:
        size = len(payload)
        if not self.receive_window.take(size):
            raise Http2ConnectionError(ErrorCode.FLOW_CONTROL_ERROR, "more than the window")
        data = frames.without_padding(payload, flags) if flags & frames.PADDED else payload
        ends = bool(flags & frames.END_STREAM)
        if not data and not ends:
            self._useless.count()
        stream = self._known(number)
        if stream is None:
            self._useless.count()
            self.receive_window.release(size)
            return
        try:
            stream.body.add(data, size, ends=ends)
        except Http2StreamError as error:
            self.receive_window.release(size)
            self._refuse(number, error.code)

    def _receive_headers(self, flags: int, number: int, payload: bytes) -> None:
        if not number & 1:
            raise Http2ConnectionError(ErrorCode.PROTOCOL_ERROR, "a stream that no client may open")
        block = frames.without_padding(payload, flags, with_priority=True)
        self._take_block(number, lambda: self._blocks.begin(flags, number, block))

    def _receive_continuation(self, flags: int, number: int, payload: bytes) -> None:
        if self._blocks.stream is None:
            raise Http2ConnectionError(ErrorCode.PROTOCOL_ERROR, "a continuation without a header block")
        self._useless.count()
        self._take_block(number, lambda: self._blocks.go_on(flags, payload))

    def _take_block(self, number: int, read: Callable[[], tuple[int, Fields] | None]) -> None:
        try:
            block = read()
        except HeaderListTooLargeError:
            self._refuse_block(number)
        if block is None:
            return
        flags, fields = block
        ends = bool(flags & frames.END_STREAM)
        stream = self.streams.get(number)
        try:
            if stream is not None:
                self._take_trailers(stream, ends)
            elif number > self._last:
                self._last = number
                self._open(number, fields, ends)
            else:
                self._useless.count()  # trailers of a request whose response was complete before
        except Http2StreamError as error:
            self._refuse(number, error.code)

    def _take_trailers(self, stream: Stream, ends: bool) -> None:
        """End a request; nobody uses the fields of trailers."""
        if stream.body.ended or not ends:
            code = ErrorCode.STREAM_CLOSED if stream.body.ended else ErrorCode.PROTOCOL_ERROR
            raise Http2StreamError(code, "a second header block")
        stream.body.end()

    def _open(self, number: int, fields: Fields, ends: bool) -> None:
        if self._phase is Phase.DRAINING:
            self._useless.count()  # GOAWAY has said that it will not be handled
            return
        if len(self.streams) >= self.max_streams:
            raise Http2StreamError(ErrorCode.REFUSED_STREAM, "too many streams")
        try:
            head = parse_request(fields)
        except MalformedRequestError as error:
            raise Http2StreamError(ErrorCode.PROTOCOL_ERROR, str(error)) from None
        stream = Stream(self, number, head, ended=ends)
        extensions = {**stream.shortcuts(), **self._scope["extensions"]}
        stream.scope.update(self._scope, state={}, extensions=extensions)
        self.streams[number] = stream
        self.handlers.start(stream)

    def _receive_reset(self, _: int, number: int, payload: bytes) -> None:
        frames.read_number(payload)
        self._useless.count()
        stream = self._known(number)
        if stream is not None:
            del self.streams[number]
            stream.close()

    def _receive_settings(self, flags: int, number: int, payload: bytes) -> None:
        if number:
            raise Http2ConnectionError(ErrorCode.PROTOCOL_ERROR, "settings of a stream")
        if flags & frames.ACK:
            if payload:
                raise Http2ConnectionError(ErrorCode.FRAME_SIZE_ERROR, "an acknowledgement with settings")
            return
        self._useless.count()
        for name, value in frames.read_settings(payload):
            if name == Setting.HEADER_TABLE_SIZE:
                self.writer.acknowledge_table_size()
            elif name == Setting.MAX_FRAME_SIZE:
                self.writer.frame_bytes = value
            elif name == Setting.INITIAL_WINDOW_SIZE:
                self._change_windows(value)
        self.writer.reply(frames.frame(frames.SETTINGS, frames.ACK, 0))
        self.writer.wake_all()

    def _change_windows(self, initial: int) -> None:
        """Change the send windows of all streams by what their initial size has changed."""
        more, self.writer.stream_window = initial - self.writer.stream_window, initial
        for stream in self.streams.values():
            stream.window += more
            if stream.window > frames.LARGEST_WINDOW:
                raise Http2ConnectionError(ErrorCode.FLOW_CONTROL_ERROR, "a window beyond its bound")

    def _receive_ping(self, flags: int, number: int, payload: bytes) -> None:
        if number or len(payload) != 8:
            code = ErrorCode.PROTOCOL_ERROR if number else ErrorCode.FRAME_SIZE_ERROR
            raise Http2ConnectionError(code, "a ping is eight bytes for the connection")
        self._useless.count()
        if not flags & frames.ACK:
            self.writer.reply(frames.frame(frames.PING, frames.ACK, 0, payload))

    def _receive_window_update(self, _: int, number: int, payload: bytes) -> None:
        more = frames.read_number(payload) & frames.LARGEST_WINDOW
        writer = self.writer
        if writer.expected_updates:
            writer.expected_updates -= 1
        else:
            self._useless.count()
        if not number:
            writer.window += more
            if not more or writer.window > frames.LARGEST_WINDOW:
                raise Http2ConnectionError(_code_of_increment(more), f"a window that grows by {more}")
            writer.wake_all()
            return
        stream = self._known(number)
        if stream is None:
            return
        stream.window += more
        if not more or stream.window > frames.LARGEST_WINDOW:
            self._refuse(number, _code_of_increment(more))
            return
        stream.wake_writer()

    def _receive_priority(self, _: int, number: int, payload: bytes) -> None:
        if not number:
            raise Http2ConnectionError(ErrorCode.PROTOCOL_ERROR, "a priority of no stream")
        self._useless.count()
        if len(payload) != 5:
            # The stream may not be open yet, and then it must not be reset.
            if not number & 1 or number > self._last:
                raise Http2ConnectionError(ErrorCode.FRAME_SIZE_ERROR, "a priority of a wrong size")
            self._refuse(number, ErrorCode.FRAME_SIZE_ERROR)

    def _receive_goaway(self, _: int, number: int, payload: bytes) -> None:
        if number or len(payload) < 8:
            raise Http2ConnectionError(ErrorCode.PROTOCOL_ERROR, "a GOAWAY of a wrong size, or of a stream")
        self._useless.count()
        self.shutdown()

    def _receive_push(self, _: int, number: int, payload: bytes) -> None:
        raise Http2ConnectionError(ErrorCode.PROTOCOL_ERROR, "clients do not push")

    def _known(self, number: int) -> Stream | None:
        """Find an open stream; None for one that was. Http2ConnectionError for one that never was."""
        stream = self.streams.get(number)
        if stream is None and (not number & 1 or number > self._last):
            raise Http2ConnectionError(ErrorCode.PROTOCOL_ERROR, "a stream that was not opened")
        return stream

    # --- bounds

    def _refuse_block(self, number: int) -> NoReturn:
        """Answer 431 and end the connection: what follows can not be decompressed."""
        if number > self._last and self._phase is Phase.OPEN:
            self._last = number
            block = response_block(431, [*self.default_headers, (b"content-length", b"0")])
            self.writer.write(frames.frame(frames.HEADERS, frames.END_HEADERS | frames.END_STREAM, number, block))
        text = f"a header block of more than {serving.HEAD_BYTES} bytes"
        raise Http2ConnectionError(ErrorCode.ENHANCE_YOUR_CALM, text)

    def _await_rest(self) -> None:
        """Bound the time for the rest of a header block, or of a frame other than DATA."""
        if self._blocks.stream is not None:
            self._header_deadline.await_rest_of((True, self._blocks.stream))
        elif not self._reader.count:
            self._header_deadline.await_rest_of((False, -1))
        elif self._reader.partial not in (None, frames.DATA):
            self._header_deadline.await_rest_of((False, self._reader.count))
        else:
            self._header_deadline.await_rest_of(None)

    def _is_busy(self) -> bool:
        return bool(self.streams or self.handlers.running)

    # --- the end of streams and of the connection

    def _refuse(self, number: int, code: ErrorCode) -> None:
        """Reset a stream because of what the client did."""
        self._useless.count()
        self.writer.reply(frames.number_frame(frames.RST_STREAM, number, code))
        stream = self.streams.pop(number, None)
        if stream is not None:
            stream.close()

    def reset(self, stream: Stream, code: ErrorCode) -> None:
        """Reset a stream because of what happened here."""
        if self.streams.pop(stream.number, None) is not None:
            self.writer.write(frames.number_frame(frames.RST_STREAM, stream.number, code))
        stream.close()

    def responded(self, stream: Stream) -> None:
        """Forget a stream whose response was sent; its client need not send the rest of the request."""
        if self.streams.pop(stream.number, None) is not None and not stream.body.ended:
            self.writer.write(frames.number_frame(frames.RST_STREAM, stream.number, ErrorCode.NO_ERROR))

    def finished(self) -> None:
        """Note that a handler has ended."""
        self._state.total_requests += 1
        self._idle_deadline.restart()
        self.handlers.finished()
        self._close_if_drained()

    def _close_if_drained(self) -> None:
        if self._phase is Phase.DRAINING and not self._is_busy():
            self.writer.flush()
            self._phase = Phase.CLOSED
            self.transport.close()

    def _fail(self, error: Http2ConnectionError) -> None:
        _LOG.info("a connection of HTTP/2 from %s ends: %s", self._scope["client"], error)
        self._send_goaway(error.code, str(error))
        self.writer.flush()
        self._phase = Phase.CLOSED
        self._close_streams()
        if self.writer.paused:
            abort(self.transport)  # a client that does not read would not see GOAWAY
        else:
            self.transport.close()

    def _send_goaway(self, code: ErrorCode, reason: str) -> None:
        if self._last_handled is None:
            self._last_handled = self._last
        self.writer.write(frames.goaway(self._last_handled, code, reason))

    def _close_streams(self) -> None:
        streams, self.streams = self.streams, {}
        for stream in streams.values():
            stream.close()
        self.handlers.close()


def _code_of_increment(more: int) -> ErrorCode:
    return ErrorCode.FLOW_CONTROL_ERROR if more else ErrorCode.PROTOCOL_ERROR


_RECEIVERS: dict[int, Callable[[Connection, int, int, bytes], None]] = {
    frames.DATA: Connection._receive_data,
    frames.HEADERS: Connection._receive_headers,
    frames.PRIORITY: Connection._receive_priority,
    frames.RST_STREAM: Connection._receive_reset,
    frames.SETTINGS: Connection._receive_settings,
    frames.PUSH_PROMISE: Connection._receive_push,
    frames.PING: Connection._receive_ping,
    frames.GOAWAY: Connection._receive_goaway,
    frames.WINDOW_UPDATE: Connection._receive_window_update,
    frames.CONTINUATION: Connection._receive_continuation,
}
