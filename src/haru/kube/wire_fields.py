"""Fields of a protobuf message, as bytes.

Source: the encoding of protocol buffers, as published.
"""

from __future__ import annotations

_VARINT, _LENGTH = 0, 2


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
