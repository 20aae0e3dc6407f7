"""Protobuf messages as dataclasses: one line a field, read and written by what the lines say.

    @dataclass(slots=True)
    class Mount(Message):
        container_path: str = text(1)
        readonly: bool = flag(3)
        options: list[str] = texts(9)
        owner: Owner | None = one(10, lambda: Owner)

As in proto3 a field that has its zero value is not written, and what a reader does not know it leaves out. Fields that
are wrapped in a message or `optional` there are None here when they are absent. Source: the encoding of protocol
buffers, as published.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from dataclasses import field as dataclass_field
from functools import cache
from typing import Any, NamedTuple, Self

from haru.protobuf import WireError, chunk, integer, varint
from haru.protobuf import fields as wire_fields

Kind = Callable[[], "type[Message]"]


class _Rule(NamedTuple):
    """How one field is written and read. `kind` is the message within, if there is one."""

    number: int
    write: Callable[[int, Any], bytes]
    read: Callable[[Any, Any], Any]
    """From what the field had and what was found to what it has."""
    default: Callable[[], Any]
    is_explicit: bool = False
    """Written whenever it is there, whatever it says."""


@dataclass(slots=True)
class Message:
    """What all messages can do."""

    def encode(self) -> bytes:
        """The bytes of the message."""
        kind: Any = type(self)
        written: list[bytes] = []
        for name, rule in _rules(kind):
            value = getattr(self, name)
            if value if not rule.is_explicit else value is not None:
                written.append(rule.write(rule.number, value))
        return b"".join(written)

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """The message that bytes are. Raises `WireError`."""
        kind: Any = cls
        made = cls()
        known = _rules_by_number(kind)
        for number, found in wire_fields(data):
            entry = known.get(number)
            if entry is not None:
                name, rule = entry
                setattr(made, name, rule.read(getattr(made, name), found))
        return made


@cache
def _rules(kind: Any) -> Sequence[tuple[str, _Rule]]:
    found = [(one.name, one.metadata["protobuf"]) for one in fields(kind)]
    return sorted(found, key=lambda entry: entry[1].number)


@cache
def _rules_by_number(kind: Any) -> dict[int, tuple[str, _Rule]]:
    return {rule.number: (name, rule) for name, rule in _rules(kind)}


def _field(rule: _Rule) -> Any:
    return dataclass_field(default_factory=rule.default, metadata={"protobuf": rule})


# -- kinds of fields -------------------------------------------------------------------------------------------------


def text(number: int) -> Any:
    """`string`."""
    return _field(_Rule(number, _write_text, _read_text, str))


def raw(number: int) -> Any:
    """`bytes`."""
    return _field(_Rule(number, chunk, lambda _, found: _bytes(found), bytes))


def whole(number: int) -> Any:
    """`int32`, `int64`, `uint32`, `uint64` or an enumeration."""
    return _field(_Rule(number, integer, lambda _, found: _integer(found), int))


def flag(number: int) -> Any:
    """`bool`."""
    return _field(_Rule(number, integer, lambda _, found: bool(_integer(found)), bool))


def real(number: int) -> Any:
    """`double`."""
    return _field(_Rule(number, _write_double, lambda _, found: _double(found), float))


def wrapped(number: int) -> Any:
    """A wrapper message with an integer in field 1 (`Int64Value`, `UInt64Value`): that integer, or None."""

    def write(at: int, value: int) -> bytes:
        return chunk(at, integer(1, value), always=True)

    def read(_: Any, found: Any) -> int:
        return next((_integer(value) for number, value in wire_fields(_bytes(found)) if number == 1), 0)

    return _field(_Rule(number, write, read, lambda: None, is_explicit=True))


def one(number: int, kind: Kind) -> Any:
    """A message, or None."""

    def write(at: int, value: Message) -> bytes:
        return chunk(at, value.encode(), always=True)

    return _field(_Rule(number, write, lambda _, found: kind().decode(_bytes(found)), lambda: None, is_explicit=True))


def many(number: int, kind: Kind) -> Any:
    """`repeated` messages."""

    def write(at: int, values: Sequence[Message]) -> bytes:
        return b"".join(chunk(at, value.encode(), always=True) for value in values)

    def read(had: list[Message], found: Any) -> list[Message]:
        had.append(kind().decode(_bytes(found)))
        return had

    return _field(_Rule(number, write, read, list))


def texts(number: int) -> Any:
    """`repeated string`."""

    def write(at: int, values: Sequence[str]) -> bytes:
        return b"".join(chunk(at, value.encode(), always=True) for value in values)

    def read(had: list[str], found: Any) -> list[str]:
        had.append(_read_text(None, found))
        return had

    return _field(_Rule(number, write, read, list))


def wholes(number: int) -> Any:
    """`repeated` integers, packed."""

    def write(at: int, values: Sequence[int]) -> bytes:
        return chunk(at, b"".join(varint(value) for value in values))

    def read(had: list[int], found: Any) -> list[int]:
        had += [found] if isinstance(found, int) else _unpacked(_bytes(found))
        return had

    return _field(_Rule(number, write, read, list))


def table(number: int) -> Any:
    """`map<string, string>`."""

    def write(at: int, values: dict[str, str]) -> bytes:
        return b"".join(chunk(at, chunk(1, k.encode()) + chunk(2, v.encode()), always=True) for k, v in values.items())

    def read(had: dict[str, str], found: Any) -> dict[str, str]:
        entry = dict(wire_fields(_bytes(found)))
        had[_read_text(None, entry.get(1, b""))] = _read_text(None, entry.get(2, b""))
        return had

    return _field(_Rule(number, write, read, dict))


def named(number: int, kind: Kind) -> Any:
    """`map<string, Message>`."""

    def write(at: int, values: dict[str, Message]) -> bytes:
        entries = (chunk(1, key.encode()) + chunk(2, value.encode(), always=True) for key, value in values.items())
        return b"".join(chunk(at, entry, always=True) for entry in entries)

    def read(had: dict[str, Message], found: Any) -> dict[str, Message]:
        entry = dict(wire_fields(_bytes(found)))
        had[_read_text(None, entry.get(1, b""))] = kind().decode(_bytes(entry.get(2, b"")))
        return had

    return _field(_Rule(number, write, read, dict))


# -- values ----------------------------------------------------------------------------------------------------------


def _write_text(number: int, value: str) -> bytes:
    return chunk(number, value.encode())


def _read_text(_: Any, found: Any) -> str:
    try:
        return _bytes(found).decode()
    except UnicodeDecodeError as error:
        raise WireError(f"a text that is not UTF-8: {error}") from None


def _write_double(number: int, value: float) -> bytes:
    return varint(number << 3 | 1) + struct.pack("<d", value)


def _double(found: Any) -> float:
    data = _bytes(found)
    if len(data) != 8:
        raise WireError("a number that is not of 8 bytes")
    return float(struct.unpack("<d", data)[0])


def _bytes(found: Any) -> bytes:
    if not isinstance(found, bytes):
        raise WireError("an integer where bytes are due")
    return found


def _integer(found: Any) -> int:
    if not isinstance(found, int):
        raise WireError("bytes where an integer is due")
    return found


def _unpacked(data: bytes) -> list[int]:
    """The integers of a packed field: each as if it came alone."""
    found: list[int] = []
    start = 0
    for position, byte in enumerate(data):
        if byte < 0x80:
            found += (value for _, value in wire_fields(b"\x08" + data[start : position + 1]) if isinstance(value, int))
            start = position + 1
    if start != len(data):
        raise WireError("the message ends within an integer")
    return found
