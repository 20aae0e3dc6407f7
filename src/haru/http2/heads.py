"""Heads of requests and answers.

What clients send is decompressed by `hpack` and held against the rules for requests. What is answered is written as
literals that no table keeps: each field costs a few dozen bytes more on the wire and a microsecond less than a
compressor in Python, and no state is shared between answers.
Source: RFC 9113, section 8; RFC 7541.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from urllib.parse import unquote

import hpack

from haru.http2.frames import Code, ConnectionFault

Fields = Sequence[tuple[bytes, bytes]]

_NAME = re.compile(rb"[!#$%&'*+\-.^_`|~0-9a-z]+").fullmatch
_BAD_VALUE = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]|\A[ \t]|[ \t]\Z").search
_METHOD = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+").fullmatch
_TARGET = re.compile(rb"/[!-~]*").fullmatch
_AUTHORITY = re.compile(rb"[!$%&'()*+,\-.0-9:;=A-Z\[\]_a-z~]*").fullmatch
"""A host and a port, without the user that a URL may have before them."""
_DIGITS = re.compile(rb"[0-9]{1,18}").fullmatch
_OF_CONNECTIONS = frozenset({b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"})
"""Fields that say something about one connection of HTTP/1.1: none may be sent in HTTP/2."""
_PSEUDO = frozenset({b":method", b":scheme", b":path", b":authority"})
_ENTRY_BYTES = 32
"""So much a field counts beside its name and value."""
_INDEXED_STATUS = {200: 8, 204: 9, 206: 10, 304: 11, 400: 12, 404: 13, 500: 14}
_INDEXED_NAMES = {
    b"cache-control": 24, b"content-encoding": 26, b"content-length": 28, b"content-type": 31, b"date": 33,
    b"etag": 34, b"last-modified": 44, b"location": 46, b"retry-after": 53, b"server": 54, b"vary": 59,
}  # fmt: skip
_TABLE_UPDATES = 2
"""More of them one after the other have no meaning."""
_ERRORS = (hpack.HPACKError, IndexError, TypeError, ValueError)


class HeadError(ValueError):
    """A request that is none; the message says why."""


class HeadTooLargeError(Exception):
    """A head beyond the limit: what comes after it can not be decompressed any more."""


class Decompressor:
    """Blocks of one connection to fields, of at most `limit` bytes a block."""

    def __init__(self, limit: int) -> None:
        self._decoder = hpack.Decoder(max_header_list_size=limit)

    def fields(self, block: bytes) -> Fields:
        """The fields of a block. Raises HeadTooLargeError, ConnectionFault."""
        if block and block[0] & 0xE0 == 0x20 and _updates(block) > _TABLE_UPDATES:
            raise ConnectionFault(Code.COMPRESSION_ERROR, "a block that changes the size of its table again and again")
        try:
            return list(self._decoder.decode(block, raw=True))
        except hpack.OversizedHeaderListError:
            raise HeadTooLargeError from None
        except _ERRORS as error:
            raise ConnectionFault(Code.COMPRESSION_ERROR, f"a block that can not be decompressed: {error}") from None


def _updates(block: bytes) -> int:
    """How many changes of the table's size a block begins with."""
    found = at = 0
    while at < len(block) and block[at] & 0xE0 == 0x20 and found <= _TABLE_UPDATES:
        found += 1
        is_long, at = block[at] & 0x1F == 0x1F, at + 1
        while is_long and at < len(block):
            is_long, at = bool(block[at] & 0x80), at + 1
    return found


@dataclass(frozen=True, slots=True)
class Head:
    """What a request begins with."""

    method: str
    target: bytes
    headers: list[tuple[bytes, bytes]]
    length: int | None
    """Of the body, if it is told."""

    def scope(self) -> dict[str, Any]:
        """As ASGI has it, as far as the head tells."""
        raw, _, query = self.target.partition(b"?")
        path = raw.decode("ascii")
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "2",
            "method": self.method,
            "path": unquote(path) if "%" in path else path,
            "raw_path": raw,
            "query_string": query,
            "root_path": "",
            "headers": self.headers,
        }


def read_head(fields: Fields) -> Head:
    """The head of a request. Raises HeadError for one that is malformed."""
    pseudo: dict[bytes, bytes] = {}
    headers: list[tuple[bytes, bytes]] = []
    length: int | None = None
    for name, value in fields:
        if _BAD_VALUE(value):
            raise HeadError("a value with characters that none may have")
        if name[:1] == b":":
            if headers or name in pseudo or name not in _PSEUDO:
                raise HeadError("fields of the request line that are unknown, repeated or too late")
            pseudo[name] = value
            continue
        if not _NAME(name) or name in _OF_CONNECTIONS or (name == b"te" and value != b"trailers"):
            raise HeadError("a field that HTTP/2 does not have")
        if name == b"content-length":
            length = _length(value, length)
        headers.append((name, value))
    method, target = pseudo.get(b":method", b""), pseudo.get(b":path", b"")
    if not _METHOD(method) or not _TARGET(target) or b"#" in target or not pseudo.get(b":scheme"):
        raise HeadError("no method, scheme or path")
    if method == b"CONNECT":
        raise HeadError("CONNECT has neither a scheme nor a path")
    _add_host(headers, pseudo.get(b":authority"))
    return Head(method.decode("ascii"), target, headers, length)


def _add_host(headers: list[tuple[bytes, bytes]], authority: bytes | None) -> None:
    """Put the host first if only the authority tells it. HeadError where two of them are told."""
    hosts = [value for name, value in headers if name == b"host"]
    if authority is not None and not hosts:
        headers.insert(0, (b"host", authority))
    elif len(hosts) > 1 or (authority is not None and hosts != [authority]):
        raise HeadError("two hosts")
    if not _AUTHORITY(authority or b"") or not all(map(_AUTHORITY, hosts)):
        raise HeadError("a host that is none")


def _length(value: bytes, before: int | None) -> int:
    if not _DIGITS(value) or before not in (None, int(value)):
        raise HeadError("a length that is none, or two of them")
    return int(value)


def answer_block(status: int, headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """The block of an answer's head. Raises ValueError for a header that is more than a line."""
    index = _INDEXED_STATUS.get(status)
    parts = [bytes((0x80 | index,)) if index is not None else b"\x08\x03%d" % status]
    for name, value in headers:
        written = _named(name)
        if not written:
            continue
        if _BAD_VALUE(value):
            value = value.strip(b" \t")
            if _BAD_VALUE(value):
                raise ValueError(f"a header of an answer is more than a line: {name!r}: {value!r}")
        size = len(value)
        parts.append(b"%b%c%b" % (written, size, value) if size < 0x7F else written + _number(size, 7) + value)
    return b"".join(parts)


@lru_cache(maxsize=512)
def _named(name: bytes) -> bytes:
    """The first part of a literal that is not kept: its name; nothing for fields of connections of HTTP/1.1."""
    name = name.lower()
    if name in _OF_CONNECTIONS:
        return b""
    if not _NAME(name):
        raise ValueError(f"the name of a header is none: {name!r}")
    index = _INDEXED_NAMES.get(name)
    return _number(index, 4) if index is not None else b"\x00" + _number(len(name), 7) + name


def _number(value: int, bits: int) -> bytes:
    """A number as HPACK writes it, in the low bits of the first byte and more bytes where it must."""
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
