"""SPDY/3.1 frames, as far as remote commands use them: streams, data, pings. Pure.

There is no flow control: neither client-go nor kubelets have any. Source: the SPDY/3.1 draft, and its dictionary.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

_WORDS: Final = (
    "options head post put delete trace accept accept-charset accept-encoding accept-language accept-ranges age allow "
    "authorization cache-control connection content-base content-encoding content-language content-length "
    "content-location content-md5 content-range content-type date etag expect expires from host if-match "
    "if-modified-since if-none-match if-range if-unmodified-since last-modified location max-forwards pragma "
    "proxy-authenticate proxy-authorization range referer retry-after server te trailer transfer-encoding upgrade "
    "user-agent vary via warning www-authenticate method get status"
)
_TAIL: Final = (
    "100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505203 Non-Authoritative "
    "Information204 No Content301 Moved Permanently400 Bad Request401 Unauthorized403 Forbidden404 Not Found500 "
    "Internal Server Error501 Not Implemented503 Service UnavailableJan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec "
    "00:00:00 Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMTchunked,text/html,image/png,image/jpg,image/gif,application/xml,"
    "application/xhtml+xml,text/plain,text/javascript,publicprivatemax-age=gzip,deflate,sdchcharset=utf-8charset="
    "iso-8859-1,utf-,*,enq=0."
)
_LAST_WORDS: Final = ("200 OK", "version", "HTTP/1.1", "url", "public", "set-cookie", "keep-alive", "origin")
DICTIONARY: Final = (
    b"".join(struct.pack(">I", len(word)) + word.encode() for word in (*_WORDS.split(), *_LAST_WORDS)) + _TAIL.encode()
)
_VERSION: Final = 3
_CONTROL: Final = 0x80000000
SYN_STREAM, SYN_REPLY, RST_STREAM, SETTINGS, PING, GOAWAY, HEADERS = 1, 2, 3, 4, 6, 7, 8
FIN: Final = 1
_MOST_HEADER_BYTES: Final = 64 * 1024
MOST_FRAME_BYTES: Final = 4 * 1024 * 1024
DATA: Final = 0


class SpdyError(ValueError):
    """What the client sends is not SPDY."""


@dataclass(frozen=True, slots=True)
class Frame:
    """A frame of the client; `type` is 0 for data."""

    type: int
    stream: int
    fin: bool = False
    data: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


class SpdyConnection:
    """One side of a connection: bytes to frames, and answers to bytes."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._inflate = zlib.decompressobj(zdict=DICTIONARY)
        self._deflate = zlib.compressobj(zdict=DICTIONARY)

    def receive(self, data: bytes) -> Iterator[Frame]:
        """The frames that are complete now. Raises SpdyError."""
        self._buffer += data
        while len(self._buffer) >= 8:
            first, second = struct.unpack_from(">II", self._buffer)
            length, flags = second & 0xFFFFFF, second >> 24
            if length > MOST_FRAME_BYTES:
                raise SpdyError(f"a frame of {length} bytes")
            if len(self._buffer) < 8 + length:
                return
            payload = bytes(self._buffer[8 : 8 + length])
            del self._buffer[: 8 + length]
            if not first & _CONTROL:
                yield Frame(DATA, first, bool(flags & FIN), payload)
            elif first >> 16 & 0x7FFF != _VERSION:
                raise SpdyError(f"version {first >> 16 & 0x7FFF}")
            else:
                yield self._control(first & 0xFFFF, bool(flags & FIN), payload)

    def _control(self, type_: int, fin: bool, payload: bytes) -> Frame:
        stream = struct.unpack_from(">I", payload)[0] & 0x7FFFFFFF if len(payload) >= 4 else 0
        if type_ == SYN_STREAM:
            return Frame(type_, stream, fin, headers=self._headers(payload[10:]))
        if type_ in (SYN_REPLY, HEADERS):
            return Frame(type_, stream, fin, headers=self._headers(payload[4:]))
        return Frame(type_, stream, fin, payload)

    def _headers(self, block: bytes) -> dict[str, str]:
        try:
            text = self._inflate.decompress(block, _MOST_HEADER_BYTES)
            count, position = struct.unpack_from(">I", text)[0], 4
            found: list[str] = []
            for _ in range(2 * count):
                length = struct.unpack_from(">I", text, position)[0]
                found.append(text[position + 4 : position + 4 + length].decode("latin-1"))
                position += 4 + length
        except (zlib.error, struct.error) as error:
            raise SpdyError(f"headers cannot be read: {error}") from error
        return {name.lower(): value for name, value in zip(found[::2], found[1::2], strict=True)}

    def reply(self, stream: int) -> bytes:
        """Accept a stream."""
        return self._framed(SYN_REPLY, 0, struct.pack(">I", stream) + self._block({}))

    def open(self, stream: int, headers: Mapping[str, str]) -> bytes:
        """Open a stream, as clients do."""
        return self._framed(SYN_STREAM, 0, struct.pack(">IIH", stream, 0, 0) + self._block(headers))

    def data(self, stream: int, data: bytes, *, fin: bool = False) -> bytes:
        """Data of a stream, or its end."""
        return struct.pack(">II", stream, (FIN if fin else 0) << 24 | len(data)) + data

    def ping(self, payload: bytes) -> bytes:
        """Answer a ping."""
        return self._framed(PING, 0, payload)

    def goaway(self) -> bytes:
        """Say that the connection ends."""
        return self._framed(GOAWAY, 0, struct.pack(">II", 0, 0))

    def _block(self, headers: Mapping[str, str]) -> bytes:
        text = struct.pack(">I", len(headers))
        for name, value in headers.items():
            for part in (name.encode("latin-1"), value.encode("latin-1")):
                text += struct.pack(">I", len(part)) + part
        return self._deflate.compress(text) + self._deflate.flush(zlib.Z_SYNC_FLUSH)

    def _framed(self, type_: int, flags: int, payload: bytes) -> bytes:
        return struct.pack(">II", _CONTROL | _VERSION << 16 | type_, flags << 24 | len(payload)) + payload
