"""Headers of requests and responses.

`hpack` decompresses what clients send; `parse_request` checks it against the rules for requests. Responses are written
as literals without indexing (`literals`): they share no state.
Source: RFC 9113, section 8; RFC 7541.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import hpack

from haru.http2.frames import END_HEADERS, ErrorCode, Http2ConnectionError
from haru.http2.literals import CONNECTION_FIELDS, INDEXED_STATUS, NAME, literal, name_of

Fields = Sequence[tuple[bytes, bytes]]

_BAD_VALUE = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]|\A[ \t]|[ \t]\Z").search
_METHOD = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+").fullmatch
_TARGET = re.compile(rb"/[!-~]*").fullmatch
_AUTHORITY = re.compile(rb"[!$%&'()*+,\-.0-9:;=A-Z\[\]_a-z~]*").fullmatch
"""A host and a port, without the user that a URL may have before them."""
_DIGITS = re.compile(rb"[0-9]{1,18}").fullmatch
_PSEUDO = frozenset({b":method", b":scheme", b":path", b":authority"})
_TABLE_UPDATES = 2
"""At the begin of a block: the smallest size in between, and the last (RFC 7541, 4.2)."""
_ERRORS = (hpack.HPACKError, IndexError, TypeError, ValueError)


class MalformedRequestError(ValueError):
    """A malformed request (RFC 9113, 8.1.1); the message says why."""


class HeaderListTooLargeError(Exception):
    """A header block beyond the limit: later blocks can not be decompressed any more."""


class HeaderBlocks:
    """Decompresses the header blocks of a connection, each of at most `limit` bytes."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._decoder = hpack.Decoder(max_header_list_size=limit)
        self._flags = 0
        self._partial = bytearray()
        self.stream: int | None = None
        """The stream whose block is to be continued."""

    def begin(self, flags: int, stream: int, block: bytes) -> tuple[int, Fields] | None:
        """Take a HEADERS frame; its flags and the fields, if it is complete. Raises as `decode`."""
        if flags & END_HEADERS:
            return flags, self.decode(block)
        self.stream, self._flags, self._partial = stream, flags, bytearray(block)
        return None

    def go_on(self, flags: int, block: bytes) -> tuple[int, Fields] | None:
        """Take a CONTINUATION frame; the flags of HEADERS and the fields, if it is the last. Raises as `decode`."""
        self._partial += block
        if len(self._partial) > self._limit:
            raise HeaderListTooLargeError
        if not flags & END_HEADERS:
            return None
        self.stream = None
        return self._flags, self.decode(bytes(self._partial))

    def decode(self, block: bytes) -> Fields:
        """Decompress a block. Raises HeaderListTooLargeError, Http2ConnectionError."""
        if block and block[0] & 0xE0 == 0x20 and _updates(block) > _TABLE_UPDATES:
            raise Http2ConnectionError(ErrorCode.COMPRESSION_ERROR, "a block with too many changes of its table's size")
        try:
            return list(self._decoder.decode(block, raw=True))
        except hpack.OversizedHeaderListError:
            raise HeaderListTooLargeError from None
        except _ERRORS as error:
            raise Http2ConnectionError(ErrorCode.COMPRESSION_ERROR, f"a block that is no HPACK: {error}") from None


def _updates(block: bytes) -> int:
    """Count the changes of the table's size at the begin of a block."""
    found = at = 0
    while at < len(block) and block[at] & 0xE0 == 0x20 and found <= _TABLE_UPDATES:
        found += 1
        is_long, at = block[at] & 0x1F == 0x1F, at + 1
        while is_long and at < len(block):
            is_long, at = bool(block[at] & 0x80), at + 1
    return found


@dataclass(frozen=True, slots=True)
class RequestHead:
    """The header of a request."""

    method: str
    target: bytes
    headers: list[tuple[bytes, bytes]]
    length: int | None
    """Content-Length, if there is one."""

    def scope(self) -> dict[str, Any]:
        """Make ASGI's scope, without what the connection knows."""
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


def parse_request(fields: Fields) -> RequestHead:
    """Check and split the fields of a request. Raises MalformedRequestError."""
    pseudo: dict[bytes, bytes] = {}
    headers: list[tuple[bytes, bytes]] = []
    length: int | None = None
    for name, value in fields:
        if _BAD_VALUE(value):
            raise MalformedRequestError("invalid characters in a value")
        if name[:1] == b":":
            if headers or name in pseudo or name not in _PSEUDO:
                raise MalformedRequestError("a pseudo-header field that is unknown, repeated or too late")
            pseudo[name] = value
            continue
        if not NAME(name) or name in CONNECTION_FIELDS or (name == b"te" and value != b"trailers"):
            raise MalformedRequestError("a field that HTTP/2 forbids")
        if name == b"content-length":
            length = _length(value, length)
        headers.append((name, value))
    method, target = pseudo.get(b":method", b""), pseudo.get(b":path", b"")
    if not _METHOD(method) or not _TARGET(target) or b"#" in target or not pseudo.get(b":scheme"):
        raise MalformedRequestError("no method, scheme or path")
    if method == b"CONNECT":
        raise MalformedRequestError("CONNECT has neither a scheme nor a path")
    _add_host(headers, pseudo.get(b":authority"))
    return RequestHead(method.decode("ascii"), target, headers, length)


def _add_host(headers: list[tuple[bytes, bytes]], authority: bytes | None) -> None:
    """Add Host from :authority. MalformedRequestError for two hosts, or one that is none."""
    hosts = [value for name, value in headers if name == b"host"]
    if authority is not None and not hosts:
        headers.insert(0, (b"host", authority))
    elif len(hosts) > 1 or (authority is not None and hosts != [authority]):
        raise MalformedRequestError("two hosts")
    if not _AUTHORITY(authority or b"") or not all(map(_AUTHORITY, hosts)):
        raise MalformedRequestError("a host that is none")


def _length(value: bytes, before: int | None) -> int:
    if not _DIGITS(value) or before not in (None, int(value)):
        raise MalformedRequestError("an invalid Content-Length, or two of them")
    return int(value)


def response_block(status: int, headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Make the header block of a response. Raises ValueError for a header that is more than a line."""
    index = INDEXED_STATUS.get(status)
    parts = [bytes((0x80 | index,)) if index is not None else b"\x08\x03%d" % status]
    for name, value in headers:
        beginning = name_of(name)
        if not beginning:
            continue
        if _BAD_VALUE(value):
            value = value.strip(b" \t")
            if _BAD_VALUE(value):
                raise ValueError(f"a header of a response is more than a line: {name!r}: {value!r}")
        parts.append(literal(beginning, value))
    return b"".join(parts)
