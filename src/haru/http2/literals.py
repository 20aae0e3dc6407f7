"""Fields of header blocks as literals without indexing: they depend on no other block. Source: RFC 7541, section 6.2.2.

Each field costs a few dozen bytes more on the wire and a microsecond less than a compressor in Python.
"""

from __future__ import annotations

import re
from functools import lru_cache

NAME = re.compile(rb"[!#$%&'*+\-.^_`|~0-9a-z]+").fullmatch
CONNECTION_FIELDS = frozenset({b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"})
"""Fields of HTTP/1.1 connections: HTTP/2 forbids them."""
INDEXED_STATUS = {200: 8, 204: 9, 206: 10, 304: 11, 400: 12, 404: 13, 500: 14}
_INDEXED_NAMES = {
    b"accept": 19, b"authorization": 23, b"cache-control": 24, b"content-encoding": 26, b"content-length": 28,
    b"content-type": 31, b"date": 33, b"etag": 34, b"last-modified": 44, b"location": 46, b"retry-after": 53,
    b"server": 54, b"user-agent": 58, b"vary": 59,
}  # fmt: skip


def literal(beginning: bytes, value: bytes) -> bytes:
    """Make a field from its beginning (`name_of`) and its value."""
    size = len(value)
    return b"%b%c%b" % (beginning, size, value) if size < 0x7F else beginning + number(size, 7) + value


@lru_cache(maxsize=512)
def name_of(name: bytes) -> bytes:
    """Make the beginning of a field, its name; empty for fields of HTTP/1.1 connections. Raises ValueError."""
    name = name.lower()
    if name in CONNECTION_FIELDS:
        return b""
    if not NAME(name):
        raise ValueError(f"the name of a header is none: {name!r}")
    index = _INDEXED_NAMES.get(name)
    return number(index, 4) if index is not None else b"\x00" + number(len(name), 7) + name


def number(value: int, bits: int) -> bytes:
    """Encode an integer with a prefix of `bits` (RFC 7541, 5.1)."""
    most = (1 << bits) - 1
    if value < most:
        return bytes((value,))
    written = bytearray((most,))
    value -= most
    while value >= 0x80:
        written.append(value & 0x7F | 0x80)
        value >>= 7
    written.append(value)
    return bytes(written)
