"""Frames of HTTP/2 and the numbers in them. Source: RFC 9113, sections 4, 6 and 7."""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from struct import Struct

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM = ACK = 0x1
END_HEADERS = 0x4
PADDED = 0x8
WITH_PRIORITY = 0x20
FRAME_HEADER_BYTES = 9
SMALLEST_LIMIT = 1 << 14
LARGEST_LIMIT = (1 << 24) - 1
"""Bounds of MAX_FRAME_SIZE."""
WINDOW = (1 << 16) - 1
"""The initial flow-control window, of a connection and of each stream."""
LARGEST_WINDOW = (1 << 31) - 1
MOST_SETTINGS = 100
"""In one frame, as in Go's server; there are eight kinds."""
_HEAD = Struct(">HBBBI")
_SETTING = Struct(">HI")
_NUMBER = Struct(">I")

Frame = tuple[int, int, int, bytes]
"""Type, flags, stream and payload."""


class Setting(IntEnum):
    """Settings by their identifiers."""

    HEADER_TABLE_SIZE = 1
    ENABLE_PUSH = 2
    MAX_CONCURRENT_STREAMS = 3
    INITIAL_WINDOW_SIZE = 4
    MAX_FRAME_SIZE = 5
    MAX_HEADER_LIST_SIZE = 6


class ErrorCode(IntEnum):
    """Error codes of streams and connections."""

    NO_ERROR = 0
    PROTOCOL_ERROR = 1
    INTERNAL_ERROR = 2
    FLOW_CONTROL_ERROR = 3
    STREAM_CLOSED = 5
    FRAME_SIZE_ERROR = 6
    REFUSED_STREAM = 7
    CANCEL = 8
    COMPRESSION_ERROR = 9
    ENHANCE_YOUR_CALM = 11


class Http2ConnectionError(Exception):
    """A connection error: the client broke the protocol or costs too much; the connection ends with this code."""

    def __init__(self, code: ErrorCode, reason: str) -> None:
        super().__init__(reason)
        self.code = code


class Http2StreamError(Exception):
    """A stream error: the client broke the protocol in one stream, which ends with this code."""

    def __init__(self, code: ErrorCode, reason: str) -> None:
        super().__init__(reason)
        self.code = code


class FrameReader:
    """Cuts what the other side sends into frames of at most `limit` bytes; a client sends its preface before them."""

    def __init__(self, limit: int, *, of_client: bool = True) -> None:
        self._limit = limit
        self._rest = bytearray()
        self._needed = len(PREFACE) if of_client else FRAME_HEADER_BYTES
        self._is_open = not of_client
        self.count = 0
        """Frames so far."""
        self.partial: int | None = None
        """The type of the incomplete frame, -1 while it is not known, None between frames."""

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Yield the complete frames; the rest is kept. Raises Http2ConnectionError."""
        rest = self._rest
        if rest or not self._is_open:
            rest += data
            if len(rest) < self._needed:
                if not self._is_open and not PREFACE.startswith(rest):
                    raise Http2ConnectionError(ErrorCode.PROTOCOL_ERROR, "the connection does not begin as HTTP/2")
                self.partial = -1 if self.partial is None else self.partial
                return
            data = bytes(rest)
            rest.clear()
        at = 0 if self._is_open else self._opened(data)
        end = len(data)
        while end - at >= FRAME_HEADER_BYTES:
            high, low, kind, flags, stream = _HEAD.unpack_from(data, at)
            length = high << 8 | low
            if length > self._limit:
                raise Http2ConnectionError(
                    ErrorCode.FRAME_SIZE_ERROR, f"a frame of {length} bytes; {self._limit} may be sent"
                )
            begin, at = at + FRAME_HEADER_BYTES, at + FRAME_HEADER_BYTES + length
            if at > end:
                at, self._needed, self.partial = begin - FRAME_HEADER_BYTES, FRAME_HEADER_BYTES + length, kind
                rest += data[at:]
                return
            self.count += 1
            self.partial = None
            yield kind, flags, stream & LARGEST_WINDOW, data[begin:at]
        self._needed, self.partial = FRAME_HEADER_BYTES, None if at == end else -1
        rest += data[at:]

    def _opened(self, data: bytes) -> int:
        if not data.startswith(PREFACE):
            raise Http2ConnectionError(ErrorCode.PROTOCOL_ERROR, "the connection does not begin as HTTP/2")
        self._is_open = True
        return len(PREFACE)


def without_padding(payload: bytes, flags: int, *, with_priority: bool = False) -> bytes:
    """Cut padding and priority from a payload. Raises Http2ConnectionError."""
    begin, end = 0, len(payload)
    if flags & PADDED:
        if not payload:
            raise Http2ConnectionError(ErrorCode.FRAME_SIZE_ERROR, "a padded frame without its length of padding")
        begin, end = 1, end - payload[0]
    if with_priority and flags & WITH_PRIORITY:
        begin += 5
    if begin > end:
        raise Http2ConnectionError(ErrorCode.PROTOCOL_ERROR, "a frame with more padding than it is long")
    return payload[begin:end]


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """Make a frame."""
    return frame_header(len(payload), kind, flags, stream) + payload


def frame_header(length: int, kind: int, flags: int, stream: int) -> bytes:
    """Make the header of a frame."""
    return _HEAD.pack(length >> 8, length & 0xFF, kind, flags, stream)


def settings(values: dict[Setting, int]) -> bytes:
    """Make a SETTINGS frame."""
    return frame(SETTINGS, 0, 0, b"".join(_SETTING.pack(*each) for each in values.items()))


def read_settings(payload: bytes) -> list[tuple[int, int]]:
    """Read a SETTINGS frame, in its order, with unknown settings. Http2ConnectionError for invalid values."""
    if len(payload) % _SETTING.size:
        raise Http2ConnectionError(ErrorCode.FRAME_SIZE_ERROR, "settings of six bytes each")
    if len(payload) > MOST_SETTINGS * _SETTING.size:
        raise Http2ConnectionError(ErrorCode.ENHANCE_YOUR_CALM, f"more than {MOST_SETTINGS} settings in a frame")
    found = list(_SETTING.iter_unpack(payload))
    for name, value in found:
        if name == Setting.ENABLE_PUSH and value > 1:
            raise Http2ConnectionError(ErrorCode.PROTOCOL_ERROR, f"ENABLE_PUSH is {value}")
        if name == Setting.INITIAL_WINDOW_SIZE and value > LARGEST_WINDOW:
            raise Http2ConnectionError(ErrorCode.FLOW_CONTROL_ERROR, f"INITIAL_WINDOW_SIZE is {value}")
        if name == Setting.MAX_FRAME_SIZE and not SMALLEST_LIMIT <= value <= LARGEST_LIMIT:
            raise Http2ConnectionError(ErrorCode.PROTOCOL_ERROR, f"MAX_FRAME_SIZE is {value}")
    return found


def read_number(payload: bytes) -> int:
    """Read a payload that is one number: a window increment with its reserved bit, or an error code."""
    if len(payload) != _NUMBER.size:
        raise Http2ConnectionError(ErrorCode.FRAME_SIZE_ERROR, "a payload of other than four bytes")
    return int(_NUMBER.unpack(payload)[0])


def number_frame(kind: int, stream: int, number: int) -> bytes:
    """Make a frame whose payload is one number: WINDOW_UPDATE or RST_STREAM."""
    return frame(kind, 0, stream, _NUMBER.pack(number))


def goaway(last: int, code: ErrorCode, reason: str) -> bytes:
    """Make a GOAWAY frame; `last` is the last stream that was or will be handled."""
    return frame(GOAWAY, 0, 0, _NUMBER.pack(last) + _NUMBER.pack(code) + reason.encode())
