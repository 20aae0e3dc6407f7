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
HEAD_BYTES = 9
"""Of every frame."""
SMALLEST_LIMIT = 1 << 14
LARGEST_LIMIT = (1 << 24) - 1
"""Between these a receiver chooses how long a frame may be."""
WINDOW = (1 << 16) - 1
"""How much may be sent before the other side has said anything."""
LARGEST_WINDOW = (1 << 31) - 1
MOST_SETTINGS = 100
"""In one frame, as in Go's server; there are eight kinds."""
_HEAD = Struct(">HBBBI")
_SETTING = Struct(">HI")
_NUMBER = Struct(">I")

Frame = tuple[int, int, int, bytes]
"""Type, flags, stream and payload."""


class Setting(IntEnum):
    """What either side may tell about itself."""

    HEADER_TABLE_SIZE = 1
    ENABLE_PUSH = 2
    MAX_CONCURRENT_STREAMS = 3
    INITIAL_WINDOW_SIZE = 4
    MAX_FRAME_SIZE = 5
    MAX_HEADER_LIST_SIZE = 6


class Code(IntEnum):
    """Why a stream or a connection ends."""

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


class ConnectionFault(Exception):
    """The client broke the protocol, or asks too much: the connection ends with this code."""

    def __init__(self, code: Code, why: str) -> None:
        super().__init__(why)
        self.code = code


class StreamFault(Exception):
    """The client broke the protocol in one stream, which ends with this code."""

    def __init__(self, code: Code, why: str) -> None:
        super().__init__(why)
        self.code = code


class Frames:
    """What a client sends, cut into frames of at most `limit` bytes, from the preface on."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._rest = bytearray()
        self._needed = len(PREFACE)
        self._is_open = False
        self.count = 0
        """Frames so far."""
        self.unfinished: int | None = None
        """The type of a frame that has begun, -1 while that is not known yet, None between frames."""

    def feed(self, data: bytes) -> Iterator[Frame]:
        """The frames that are whole now; the rest is kept. Raises ConnectionFault."""
        rest = self._rest
        if rest or not self._is_open:
            rest += data
            if len(rest) < self._needed:
                if not self._is_open and not PREFACE.startswith(rest):
                    raise ConnectionFault(Code.PROTOCOL_ERROR, "the connection does not begin as HTTP/2")
                self.unfinished = -1 if self.unfinished is None else self.unfinished
                return
            data = bytes(rest)
            rest.clear()
        at = 0 if self._is_open else self._opened(data)
        end = len(data)
        while end - at >= HEAD_BYTES:
            high, low, kind, flags, stream = _HEAD.unpack_from(data, at)
            length = high << 8 | low
            if length > self._limit:
                raise ConnectionFault(Code.FRAME_SIZE_ERROR, f"a frame of {length} bytes; {self._limit} may be sent")
            begin, at = at + HEAD_BYTES, at + HEAD_BYTES + length
            if at > end:
                at, self._needed, self.unfinished = begin - HEAD_BYTES, HEAD_BYTES + length, kind
                rest += data[at:]
                return
            self.count += 1
            self.unfinished = None
            yield kind, flags, stream & LARGEST_WINDOW, data[begin:at]
        self._needed, self.unfinished = HEAD_BYTES, None if at == end else -1
        rest += data[at:]

    def _opened(self, data: bytes) -> int:
        if not data.startswith(PREFACE):
            raise ConnectionFault(Code.PROTOCOL_ERROR, "the connection does not begin as HTTP/2")
        self._is_open = True
        return len(PREFACE)


def unpadded(payload: bytes, flags: int, *, with_priority: bool = False) -> bytes:
    """What is left of a payload without its padding and its priority. Raises ConnectionFault."""
    begin, end = 0, len(payload)
    if flags & PADDED:
        if not payload:
            raise ConnectionFault(Code.FRAME_SIZE_ERROR, "a padded frame that does not say by how much")
        begin, end = 1, end - payload[0]
    if with_priority and flags & WITH_PRIORITY:
        begin += 5
    if begin > end:
        raise ConnectionFault(Code.PROTOCOL_ERROR, "a frame with more padding than it is long")
    return payload[begin:end]


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """One frame."""
    return head(len(payload), kind, flags, stream) + payload


def head(length: int, kind: int, flags: int, stream: int) -> bytes:
    """The first nine bytes of a frame."""
    return _HEAD.pack(length >> 8, length & 0xFF, kind, flags, stream)


def settings(told: dict[Setting, int]) -> bytes:
    """A frame that tells settings."""
    return frame(SETTINGS, 0, 0, b"".join(_SETTING.pack(*each) for each in told.items()))


def read_settings(payload: bytes) -> list[tuple[int, int]]:
    """Settings in their order, unknown ones as well. Raises ConnectionFault for values that none may have."""
    if len(payload) % _SETTING.size:
        raise ConnectionFault(Code.FRAME_SIZE_ERROR, "settings of six bytes each")
    if len(payload) > MOST_SETTINGS * _SETTING.size:
        raise ConnectionFault(Code.ENHANCE_YOUR_CALM, f"more than {MOST_SETTINGS} settings in a frame")
    found = list(_SETTING.iter_unpack(payload))
    for name, value in found:
        if name == Setting.ENABLE_PUSH and value > 1:
            raise ConnectionFault(Code.PROTOCOL_ERROR, f"ENABLE_PUSH is {value}")
        if name == Setting.INITIAL_WINDOW_SIZE and value > LARGEST_WINDOW:
            raise ConnectionFault(Code.FLOW_CONTROL_ERROR, f"INITIAL_WINDOW_SIZE is {value}")
        if name == Setting.MAX_FRAME_SIZE and not SMALLEST_LIMIT <= value <= LARGEST_LIMIT:
            raise ConnectionFault(Code.PROTOCOL_ERROR, f"MAX_FRAME_SIZE is {value}")
    return found


def number_in(payload: bytes) -> int:
    """The number that a whole payload is: a window's increment without the reserved bit, or a code."""
    if len(payload) != _NUMBER.size:
        raise ConnectionFault(Code.FRAME_SIZE_ERROR, "a payload of other than four bytes")
    return int(_NUMBER.unpack(payload)[0])


def numbered(kind: int, stream: int, number: int) -> bytes:
    """A frame whose payload is one number: WINDOW_UPDATE or RST_STREAM."""
    return frame(kind, 0, stream, _NUMBER.pack(number))


def goaway(last: int, code: Code, why: str) -> bytes:
    """The farewell: the last stream that was or will be worked on."""
    return frame(GOAWAY, 0, 0, _NUMBER.pack(last) + _NUMBER.pack(code) + why.encode())
