"""Protobuf by hand: what tests write and read without the definitions that Haru uses."""

from __future__ import annotations

from collections.abc import Iterator

from haru.kube.wire_fields import chunk, integer

__all__ = ["chunk", "fields", "integer"]
_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_SIGN = 1 << 63


def fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Number and value of each field: integers are signed, 64 bits; what is of fixed length is bytes, as text is."""
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
            raise ValueError(f"field {number} has the wire type {kind}, which is not in use")
        if position + length > end:
            raise ValueError(f"field {number} ends beyond its message")
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
                raise ValueError("an integer of more than 64 bits")
    except IndexError:
        raise ValueError("the message ends within an integer") from None
