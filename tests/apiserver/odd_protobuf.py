"""Protobuf bodies: valid encodings taken apart and bent field by field, and messages made from the tables of types."""

from __future__ import annotations

import random
import struct

from haru.kube.kinds import Kind
from haru.kube.schema import Field, MessageType, message_type, type_of

_MAGIC = b"k8s\0"
Part = tuple[int, int, "int | bytes | list[Part]"]
"""Field number, wire type, value; a message inside is a list of parts."""
TEXTS = [
    b"",
    b"a",
    b"web",
    b"\xff\xfe",
    b"\x00",
    b"x" * 300,
    b"1Gi",
    b"-1",
    b"\xed\xa0\x80",
    b"default",
    b"[]",
    b"{}",
    b'{"a":1}',
    b"null",
]
INTEGERS = [0, 1, 2, 80, 1 << 31, (1 << 31) - 1, 1 << 32, 1 << 63, (1 << 64) - 1, (1 << 64) - (1 << 31), 253402300800]


def varint(value: int) -> bytes:
    """A number in groups of seven bits."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _number(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while shift < 64:
        value |= (data[at] & 0x7F) << shift
        at += 1
        if data[at - 1] < 0x80:
            return value, at
        shift += 7
    raise ValueError("no number")


def parse(data: bytes, depth: int = 0) -> list[Part]:
    """The parts of a message; what reads as a message inside is taken for one. ValueError, IndexError for none."""
    parts: list[Part] = []
    at = 0
    while at < len(data):
        tag, at = _number(data, at)
        number, wire = tag >> 3, tag & 7
        if not 0 < number < 100 or wire not in (0, 2):
            raise ValueError("no message")
        value, at = _number(data, at)
        if wire == 0:
            parts.append((number, 0, value))
            continue
        inner, at = data[at : at + value], at + value
        if at > len(data):
            raise ValueError("no message")
        try:
            parts.append((number, 2, parse(inner, depth + 1) if inner and depth < 12 else inner))
        except (ValueError, IndexError):
            parts.append((number, 2, inner))
    return parts


def write(parts: list[Part]) -> bytes:
    """The bytes of the parts."""
    out = bytearray()
    for number, wire, value in parts:
        out += varint(number << 3 | wire)
        if isinstance(value, int):
            out += varint(value) if wire == 0 else value.to_bytes(8 if wire == 1 else 4, "little", signed=False)
        else:
            data = write(value) if isinstance(value, list) else value
            out += varint(len(data)) + data if wire == 2 else data
    return bytes(out)


class OddProtobuf:
    """Makes bodies from one source of randomness."""

    def __init__(self, source: random.Random, captured: list[bytes]) -> None:
        self.random = source
        self.captured = captured

    def bent(self) -> bytes:
        """A captured body with some of its fields dropped, repeated, renumbered, of another type or nested."""
        r = self.random
        parts = parse(r.choice(self.captured)[len(_MAGIC) :])
        raw = [index for index, part in enumerate(parts) if part[0] == 2]
        for _ in range(r.choice([1, 1, 2, 5])):
            node = parts
            if raw and r.random() < 0.95 and isinstance(inner := parts[raw[0]][2], list):
                node = inner
            while node and r.random() < 0.75:
                deeper = [part[2] for part in node if isinstance(part[2], list)]
                if not deeper:
                    break
                node = r.choice(deeper)
            self._bend(node)
        return _MAGIC + write(parts)

    def _bend(self, node: list[Part]) -> None:
        r = self.random
        at = r.randrange(len(node) + 1)
        what = r.random()
        if at == len(node) or what < 0.2:
            node.insert(at, (r.randrange(1, 30), *self._wire()))
        elif what < 0.35:
            del node[at]
        elif what < 0.5:
            node.insert(at, node[at])
        elif what < 0.65:
            node[at] = (r.randrange(1, 30), node[at][1], node[at][2])
        elif what < 0.7:
            inner: list[Part] = [node[at]]
            for _ in range(r.choice([1, 50, 300, 3000])):
                inner = [(node[at][0], 2, write(inner))]
            node[at] = inner[0]
        else:
            node[at] = (node[at][0], *self._wire())

    def _wire(self) -> tuple[int, int | bytes]:
        r = self.random
        what = r.random()
        if what < 0.5:
            return 2, r.choice(TEXTS)
        if what < 0.85:
            return 0, r.choice(INTEGERS)
        if what < 0.95:
            return r.choice([(1, (1 << 63) - 1), (5, (1 << 32) - 1)])
        return r.choice([3, 4, 6, 7]), b""

    def made(self, kind: Kind, name: str) -> bytes:
        """An object of that kind with random fields, named so."""
        message = type_of(kind)
        raw = self._message(message, 0) if message.by_number else b""
        raw = write([(1, 2, [(1, 2, name.encode("utf-8", "surrogatepass"))])]) + raw
        meta: list[Part] = [(1, 2, kind.api_version.encode()), (2, 2, kind.kind.encode())]
        return _MAGIC + write([(1, 2, meta), (2, 2, raw)])

    def _message(self, message: MessageType, depth: int) -> bytes:
        r = self.random
        numbers = sorted(message.by_number)
        out = b""
        for number in r.sample(numbers, min(len(numbers), r.choice([1, 2, 3]) if depth else r.choice([1, 2, 8]))):
            field = message.by_number[number]
            for _ in range(r.choice([1, 1, 2]) if field.container == "list" else 1):
                out += self._field(field, number, depth)
        return out

    def _field(self, field: Field, number: int, depth: int) -> bytes:
        wire, value = self._value(field, depth)
        if field.container == "map":
            return write([(number, 2, [(1, 2, self.random.choice(TEXTS)), (2, wire, value)])])
        return write([(number, wire, value)])

    def _value(self, field: Field, depth: int) -> tuple[int, int | bytes]:
        r = self.random
        if r.random() < 0.02:
            return self._wire()
        if field.is_message:
            return 2, b"" if depth > 8 else self._message(message_type(field.type), depth + 1)
        if field.type in ("bool", "int32", "int64"):
            return 0, r.choice(INTEGERS)
        if field.type == "double":
            return 1, int.from_bytes(
                struct.pack("<d", r.choice([0.0, 1.5, float("nan"), float("inf"), -0.0])), "little"
            )
        if field.type in ("time", "microTime"):
            return 2, write([(1, 0, r.choice(INTEGERS)), (2, 0, r.choice(INTEGERS))])
        if field.type == "intOrString":
            return 2, write([(1, 0, r.choice([0, 1, 2])), (2, 0, r.choice(INTEGERS)), (3, 2, r.choice(TEXTS))])
        if field.type in ("quantity", "json", "fieldsV1", "stringList"):
            return 2, write([(1, 2, r.choice(TEXTS))])
        return 2, r.choice([field.enum[0].encode()] if field.enum and r.random() < 0.6 else TEXTS)
