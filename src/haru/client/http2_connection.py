"""One HTTP/2 connection for the writes of a component: many at once, those of one turn of the loop in one piece.

A burst of writes over HTTP/1.1 takes as many connections, each with its handshake, and system calls for each request
and each answer. Only what the server takes at once is sent here (`has_room`), and answers are read whole. The server is
told to keep no table for the headers of its answers, so each of their blocks can be read by itself, or left unread.
Source: RFC 9113.
"""

from __future__ import annotations

import asyncio
import select
from collections.abc import Callable, Mapping
from typing import Any, Final

from haru.client.exchange import Exchange, Headers
from haru.client.transport import HeaderValue, Request, RequestHead, header_lines
from haru.event_loop import abort
from haru.http2 import MAX_STREAMS, frames
from haru.http2.alpn import HTTP2
from haru.http2.frames import ErrorCode, FrameReader, Http2ConnectionError, Setting
from haru.http2.literals import INDEXED_STATUS, literal, name_of

_RECEIVE_BYTES: Final = 1 << 30
_UPDATE_BYTES: Final = 1 << 20
_LONGEST_FRAME: Final = 1 << 20
_LONGEST_BLOCK: Final = 1 << 20
_KEEPALIVE_SECONDS: Final = 30.0
_SURELY_SEEN_SECONDS: Final = 0.1
"""What happened on a connection so long ago, an event loop has told."""
_POST: Final = b"\x83"
_HTTPS: Final = b"\x87"
_AUTHORITY, _METHOD, _PATH = b"\x01", b"\x02", b"\x04"
_CONTENT_LENGTH: Final = name_of(b"content-length")
_TABLE_UPDATE: Final = 0x20
_LITERAL_STATUSES: Final = range(8, 15)
"""How a status begins that is a literal without indexing: by one of the static table's fields of that name."""
_STATUSES: Final = {bytes((0x80 | index,)): status for status, index in INDEXED_STATUS.items()}
_WHOLE: Final = frames.END_HEADERS | frames.END_STREAM
_OFFERED: Final = {
    Setting.HEADER_TABLE_SIZE: 0,
    Setting.ENABLE_PUSH: 0,
    Setting.INITIAL_WINDOW_SIZE: _RECEIVE_BYTES,
    Setting.MAX_FRAME_SIZE: _LONGEST_FRAME,
}


class NotTakenError(ConnectionError):
    """Raised for a request that the server says it has not looked at: to send it again is as good as the first time."""


class BlockHeaders(Headers):
    """The headers of an answer, as a block that is not decompressed before somebody asks."""

    __slots__ = ("_block",)

    def __init__(self, block: bytes) -> None:
        super().__init__()
        self._block = block

    def _decode(self) -> dict[str, str]:
        return {name: value for name, value in _fields(self._block) if name[:1] != ":"}


def _fields(block: bytes) -> list[tuple[str, str]]:
    """Decompress a block of a server that has no table. Raises ConnectionError."""
    import hpack

    decoder = hpack.Decoder(_LONGEST_BLOCK)
    decoder.header_table_size = decoder.max_allowed_table_size = 0
    try:
        fields = decoder.decode(block, raw=True)
        return [(field[0].decode("latin-1"), field[1].decode("latin-1")) for field in fields]
    except (hpack.HPACKError, IndexError, TypeError, ValueError) as error:
        raise ConnectionError(f"the headers of an answer cannot be read: {error}") from error


def status_of(block: bytes) -> int:
    """Return the status that a block of headers begins with. Raises ConnectionError."""
    if (common := _STATUSES.get(block[:1])) is not None:
        return common
    at, end = 0, len(block) - 1
    while at < end and block[at] == _TABLE_UPDATE:
        at += 1
    is_literal = at < end and block[at] in _LITERAL_STATUSES
    first = block[at : at + 2 + (block[at + 1] & 0x7F)] if is_literal else block[at : at + 1]
    status = _STATUSES.get(first)
    if status is None:
        name, value = next(iter(_fields(block)), ("", ""))
        if name != ":status" or len(value) != 3 or not value.isdigit():
            raise ConnectionError("an answer does not begin with its status")
        status = int(value)
        if is_literal and len(_STATUSES) < 1000:
            _STATUSES[first] = status
    return status


class Http2Connection(asyncio.Protocol):
    """A connection to a server that has chosen HTTP/2, at this authority (host and port)."""

    def __init__(self, authority: str, loop: asyncio.AbstractEventLoop) -> None:
        self._fixed = _HTTPS + literal(_AUTHORITY, authority.encode("ascii"))
        self._loop = loop
        self._transport: Any = None
        self._reader = FrameReader(_LONGEST_FRAME, of_client=False)
        self._exchanges: dict[int, Exchange] = {}
        self._partial: tuple[int, int, bytearray] | None = None
        """A block of headers that is to be continued: flags, stream and what has come of it."""
        self._next = 1
        self._usable = self.is_chosen = False
        self._window = self._stream_window = frames.WINDOW
        self._most_streams = MAX_STREAMS
        self._frame_bytes = frames.SMALLEST_LIMIT
        self._read_bytes = 0
        self._heard = loop.time()
        self._out: list[bytes] = []

    # -- what its user calls ------------------------------------------------------------------------------------------

    def is_usable(self, now: float) -> bool:
        """Tell whether there may be requests; a connection that has been quiet for long, or has ended, is closed."""
        quiet = now - self._heard
        if not self._usable or self._exchanges or quiet <= _SURELY_SEEN_SECONDS:
            return self._usable
        # Unlike a read, a write that met the end of its connection cannot be sent again.
        if quiet > _KEEPALIVE_SECONDS or self._has_more():
            self.close()
        return self._usable

    def _has_more(self) -> bool:
        """Look whether the server has sent something, such as its end, that the loop has yet to tell."""
        poll = select.poll()
        poll.register(self._transport.get_extra_info("socket").fileno(), select.POLLIN)
        return bool(poll.poll(0))

    def has_room(self, size: int) -> bool:
        """Tell whether a request with so many bytes can be sent at once."""
        most = min(self._window, self._stream_window, self._frame_bytes)
        return size <= most and len(self._exchanges) < self._most_streams

    def start(self, exchange: Exchange, target: str) -> int:
        """Send a request for which there is room; return its number. ValueError for a header of several lines."""
        request, size = exchange.request, len(exchange.request.body)
        block = self._block(request, target, size)
        number, self._next = self._next, self._next + 2
        self._usable = self._next <= frames.LARGEST_WINDOW
        if size:
            head = frames.frame_header(len(block), frames.HEADERS, frames.END_HEADERS, number)
            body = frames.frame_header(size, frames.DATA, frames.END_STREAM, number)
            self._send(b"%b%b%b%b" % (head, block, body, request.body))
        else:
            self._send(frames.frame(frames.HEADERS, _WHOLE, number, block))
        self._window -= size
        self._exchanges[number] = exchange
        return number

    def _block(self, request: Request, target: str, size: int) -> bytes:
        head = request.headers
        if not isinstance(head, RequestHead):
            fields = _encoded(head)
        elif not (fields := head.fields):
            fields = head.fields = _encoded(head)
        method = _POST if request.method == "POST" else literal(_METHOD, request.method.encode("ascii"))
        length = literal(_CONTENT_LENGTH, b"%d" % size)
        return b"%b%b%b%b%b" % (method, self._fixed, literal(_PATH, target.encode("ascii")), fields, length)

    def give_up(self, number: int, *, late_since: float | None = None) -> None:
        """Take no answer to a request, which took too long if it began at `late_since`."""
        if self._exchanges.pop(number, None) is None:
            return
        if late_since is not None and self._heard <= late_since:
            self._usable = False  # nothing comes any more, it seems
        self._send(frames.number_frame(frames.RST_STREAM, number, ErrorCode.CANCEL))
        self._close_if_over()

    def close(self) -> None:
        """Close the connection, whatever is under way on it."""
        self._usable = False
        if self._transport is not None:
            abort(self._transport)

    def retire(self) -> None:
        """Take no further request; the connection ends with the answers to those that there are."""
        self._usable = False
        self._close_if_over()

    # -- asyncio.Protocol ---------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the settings, if the server has chosen HTTP/2."""
        self._transport = transport
        secured = transport.get_extra_info("ssl_object")
        self.is_chosen = self._usable = secured is not None and secured.selected_alpn_protocol() == HTTP2
        if not self.is_chosen:
            return
        more = frames.number_frame(frames.WINDOW_UPDATE, 0, _RECEIVE_BYTES - frames.WINDOW)
        self._transport.write(frames.PREFACE + frames.settings(_OFFERED) + more)

    def data_received(self, data: bytes) -> None:
        """Handle frames."""
        self._heard = self._loop.time()
        try:
            for kind, flags, number, payload in self._reader.feed(data):
                if self._partial is not None and (kind != frames.CONTINUATION or number != self._partial[1]):
                    raise Http2ConnectionError(ErrorCode.PROTOCOL_ERROR, "a header block is not continued")
                if (receive := _RECEIVERS.get(kind)) is not None:  # extensions are ignored
                    receive(self, flags, number, payload)
        except Http2ConnectionError as error:
            self._fail(f"the answer is not HTTP/2: {error}")
            self.close()
        else:
            self._close_if_over()

    def eof_received(self) -> None:
        """Let the transport close: what is written from now on would not be sent."""
        self._usable = False

    def connection_lost(self, error: Exception | None) -> None:
        """End the exchanges."""
        self._usable = False
        if isinstance(error, OSError):
            self._end_all(lambda exchange: error)
        else:
            self._fail("the server closed the connection")

    def _fail(self, text: str) -> None:
        self._end_all(lambda exchange: ConnectionError(_told(exchange, text)))

    def _end_all(self, error_of: Callable[[Exchange], Exception]) -> None:
        exchanges, self._exchanges = self._exchanges, {}
        for exchange in exchanges.values():
            exchange.finish(error_of(exchange))

    def _close_if_over(self) -> None:
        if not self._usable and not self._exchanges and self._transport is not None:
            self._flush()
            self._transport.close()

    # -- frames -------------------------------------------------------------------------------------------------------

    def _receive_data(self, flags: int, number: int, payload: bytes) -> None:
        self._read_bytes += len(payload)
        if self._read_bytes >= _UPDATE_BYTES:
            self._send(frames.number_frame(frames.WINDOW_UPDATE, 0, self._read_bytes))
            self._read_bytes = 0
        exchange = self._exchanges.get(number)
        if exchange is None:
            return  # given up
        exchange.add(frames.without_padding(payload, flags) if flags & frames.PADDED else payload)
        if flags & frames.END_STREAM:
            self._finish(number, exchange)

    def _receive_headers(self, flags: int, number: int, payload: bytes) -> None:
        is_plain = not flags & (frames.PADDED | frames.WITH_PRIORITY)
        block = payload if is_plain else frames.without_padding(payload, flags, with_priority=True)
        if flags & frames.END_HEADERS:
            self._begin(flags, number, block)
        else:
            self._partial = flags, number, bytearray(block)

    def _receive_continuation(self, flags: int, number: int, payload: bytes) -> None:
        if self._partial is None:
            raise Http2ConnectionError(ErrorCode.PROTOCOL_ERROR, "a continuation without a header block")
        first, _, block = self._partial
        block += payload
        if len(block) > _LONGEST_BLOCK:
            raise Http2ConnectionError(ErrorCode.ENHANCE_YOUR_CALM, f"headers of more than {_LONGEST_BLOCK} bytes")
        if flags & frames.END_HEADERS:
            self._partial = None
            self._begin(first, number, bytes(block))

    def _begin(self, flags: int, number: int, block: bytes) -> None:
        """Take the headers of an answer; those before the final ones only say that it will come, trailers nothing."""
        exchange = self._exchanges.get(number)
        if exchange is None:
            return
        if not exchange.status:
            try:
                status = status_of(block)
            except ConnectionError as error:
                self._drop(number, ConnectionError(_told(exchange, str(error))))
                return
            if status >= 200:
                exchange.begin(status, BlockHeaders(block))
        if flags & frames.END_STREAM:
            self._finish(number, exchange)

    def _finish(self, number: int, exchange: Exchange) -> None:
        del self._exchanges[number]
        exchange.finish(None if exchange.status else ConnectionError(_told(exchange, "an answer without a status")))

    def _drop(self, number: int, error: Exception) -> None:
        """End an exchange by an error."""
        self._exchanges.pop(number).finish(error)

    def _receive_reset(self, _: int, number: int, payload: bytes) -> None:
        code = frames.read_number(payload)
        exchange = self._exchanges.get(number)
        if exchange is not None:
            kind = NotTakenError if code == ErrorCode.REFUSED_STREAM else ConnectionError
            self._drop(number, kind(_told(exchange, f"the server gave the request up (code {code})")))

    def _receive_settings(self, flags: int, _: int, payload: bytes) -> None:
        if flags & frames.ACK:
            return
        for name, value in frames.read_settings(payload):
            if name == Setting.MAX_CONCURRENT_STREAMS:
                self._most_streams = value
            elif name == Setting.MAX_FRAME_SIZE:
                self._frame_bytes = value
            elif name == Setting.INITIAL_WINDOW_SIZE:
                self._stream_window = value
        self._send(frames.frame(frames.SETTINGS, frames.ACK, 0))

    def _receive_ping(self, flags: int, _: int, payload: bytes) -> None:
        if not flags & frames.ACK:
            self._send(frames.frame(frames.PING, frames.ACK, 0, payload))

    def _receive_window_update(self, _: int, number: int, payload: bytes) -> None:
        # A body is sent at once or not at all: the windows of streams do not matter.
        if not number:
            self._window += frames.read_number(payload) & frames.LARGEST_WINDOW

    def _receive_goaway(self, _: int, number: int, payload: bytes) -> None:
        self._usable = False
        last = frames.read_number(payload[:4]) & frames.LARGEST_WINDOW
        for younger in [known for known in self._exchanges if known > last]:
            self._drop(younger, NotTakenError(_told(self._exchanges[younger], "the server closes the connection")))

    def _receive_push(self, _: int, number: int, payload: bytes) -> None:
        raise Http2ConnectionError(ErrorCode.PROTOCOL_ERROR, "a push, which was ruled out")

    # -- writing ------------------------------------------------------------------------------------------------------

    def _send(self, data: bytes) -> None:
        """Write soon: in one piece with all else of this turn of the loop."""
        if not self._out:
            self._loop.call_soon(self._flush)
        self._out.append(data)

    def _flush(self) -> None:
        out, self._out = self._out, []
        if out and not self._transport.is_closing():
            self._transport.write(b"".join(out))


_RECEIVERS: Final[Mapping[int, Callable[[Http2Connection, int, int, bytes], None]]] = {
    frames.DATA: Http2Connection._receive_data,
    frames.HEADERS: Http2Connection._receive_headers,
    frames.CONTINUATION: Http2Connection._receive_continuation,
    frames.RST_STREAM: Http2Connection._receive_reset,
    frames.SETTINGS: Http2Connection._receive_settings,
    frames.PUSH_PROMISE: Http2Connection._receive_push,
    frames.PING: Http2Connection._receive_ping,
    frames.GOAWAY: Http2Connection._receive_goaway,
    frames.WINDOW_UPDATE: Http2Connection._receive_window_update,
}


def _encoded(headers: Mapping[str, HeaderValue]) -> bytes:
    """Headers as they are sent. Raises ValueError for a value of several lines."""
    fields = ((name_of(name.encode("ascii")), value.encode("latin-1")) for name, value in header_lines(headers))
    return b"".join([literal(beginning, value) for beginning, value in fields if beginning])


def _told(exchange: Exchange, text: str) -> str:
    return f"{exchange.request.method} {exchange.request.path}: {text}"
