"""As much of protobuf's encoding as is needed: varints, and fields that carry their length.

Messages are built from their fields and read as lists of fields; what a reader does not know it leaves out. Source: the
encoding of protocol buffers, as published.
"""

from __future__ import annotations

from collections.abc import Iterator

_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_SIGN = 1 << 63


class WireError(ValueError):
    """Bytes that are no message."""


def varint(value: int) -> bytes:
    """An integer of 64 bits; negative ones as their two's complement."""
    value &= (1 << 64) - 1
    if value < 0x80:
        return bytes((value,))
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def integer(number: int, value: int, *, always: bool = False) -> bytes:
    """A field with an integer, a truth value or one of an enumeration; zero is left out unless `always`."""
    return varint(number << 3 | _VARINT) + varint(value) if value or always else b""


def chunk(number: int, value: bytes, *, always: bool = False) -> bytes:
    """A field with bytes, text or a message; nothing is left out unless `always`."""
    if not value and not always:
        return b""
    return b"%b%b%b" % (varint(number << 3 | _LENGTH), varint(len(value)), value)


def integers(data: bytes) -> dict[int, int]:
    """The last value of each integer field of a message."""
    return {number: value for number, value in fields(data) if isinstance(value, int)}


def fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Number and value of each field: integers are signed, 64 bits; what is of fixed length is bytes, as text is.

    Raises `WireError`.
    """
    position, end = 0, len(data)
    while position < end:
        tag, position = _read_varint(data, position)
        number, kind = tag >> 3, tag & 7
        if kind == _VARINT:
            value, position = _read_varint(data, position)
            yield number, value - (1 << 64) if value & _SIGN else value
            continue
        if kind == _LENGTH:
            length, position = _read_varint(data, position)
        elif kind in (_FIXED64, _FIXED32):
            length = 8 if kind == _FIXED64 else 4
        else:
            raise WireError(f"field {number} has the wire type {kind}, which is not in use")
        if position + length > end:
            raise WireError(f"field {number} ends beyond its message")
        yield number, data[position : position + length]
        position += length


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    try:
        while True:
            byte = data[position]
            position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value & (1 << 64) - 1, position
            shift += 7
            if shift > 63:
                raise WireError("an integer of more than 64 bits")
    except IndexError:
        raise WireError("the message ends within an integer") from None
