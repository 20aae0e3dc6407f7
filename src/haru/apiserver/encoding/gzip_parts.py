"""gzip of a text whose parts were compressed before, each by itself.

Deflated data that end on a whole byte may be joined; what is missing is the checksum of all, which follows from those
of the parts: appending n bytes multiplies a CRC by x^8n, modulo its polynomial.
Source: RFC 1951, RFC 1952; the sums as in zlib's crc32_combine.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

LEVEL = 1
_HEAD = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x04\xff"
_LAST_BLOCK = b"\x03\x00"
_POLYNOMIAL = 0xEDB88320
_ONE = 1 << 31
"""x^0: the highest bit is the lowest power."""


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a text: deflated, without the end of the stream; its CRC-32, its length, and x^8·length."""

    data: bytes
    crc: int
    length: int
    shift: int


def deflated(text: bytes) -> Part:
    """A part of a text, which refers to no other."""
    deflate = zlib.compressobj(LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS)
    data = deflate.compress(text) + deflate.flush(zlib.Z_FULL_FLUSH)
    return Part(data, zlib.crc32(text), len(text), _power(8 * len(text)))


def joined(parts: Sequence[Part]) -> list[bytes]:
    """The gzip stream of the parts one after the other, in pieces."""
    crc = length = 0
    for part in parts:
        crc = _product(part.shift, crc) ^ part.crc
        length += part.length
    end = _LAST_BLOCK + crc.to_bytes(4, "little") + (length & 0xFFFFFFFF).to_bytes(4, "little")
    return [_HEAD, *(part.data for part in parts), end]


def _product(one: int, other: int) -> int:
    """Of two polynomials over GF(2), modulo that of the CRC."""
    product = 0
    bit = _ONE
    while one:
        if one & bit:
            product ^= other
            one ^= bit
        bit >>= 1
        other = (other >> 1) ^ _POLYNOMIAL if other & 1 else other >> 1
    return product


def _power(exponent: int) -> int:
    """x to that power, modulo the polynomial of the CRC."""
    power, square = _ONE, _ONE >> 1
    while exponent:
        if exponent & 1:
            power = _product(power, square)
        square = _product(square, square)
        exponent >>= 1
    return power
