"""Protobuf request bodies: what typed Go clients send, decoded to the JSON object that it stands for.

The body is `k8s\\0` followed by a `runtime.Unknown`: apiVersion, kind, and the object in its own message. The decoder
is generic over the numbers in the type tables. Messages of Go's standard types have JSON forms of their own (times,
quantities, int-or-string, raw JSON), and a Go struct embedded in another has a number on the wire but no name in JSON.

Zero values. The encoder writes every field that is not a pointer, zero or not, and a pointer only when it is set. So:

* a zero string, number or bool is kept if the field is a pointer in Go (`replicas: 0`, `controller: false`) or required
  (JSON has it without omitempty), and dropped otherwise: there it means that nothing was set;
* a message that is present is kept, even if empty: `emptyDir: {}` says something, `status: {}` does no harm;
* the zero time is absence.

Which scalars are pointers is a fact of the Go types; the tables carry it (`Field.pointer`).
Source: apimachinery's protobuf serializer and the generated encoders, as behaviour.
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from haru.kube.errors import bad_request_error, unsupported_media_type_error
from haru.kube.kinds import by_kind
from haru.kube.meta import Obj
from haru.kube.quantity import parse_quantity
from haru.kube.schema import Field, MessageType, message_type

Wire = tuple[int, int | bytes]  # wire type, value
_Decode = Callable[[Wire], Any]

MAGIC = b"k8s\0"
CONTENT_TYPE = "application/vnd.kubernetes.protobuf"

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ABSENT = object()


class _MalformedError(Exception):
    """The bytes are not the message that they should be."""


def decode_protobuf(data: bytes) -> Obj:
    """The JSON object in a body of content type `application/vnd.kubernetes.protobuf`; StatusError 400 otherwise."""
    if not data.startswith(MAGIC):
        expected = "[" + " ".join(str(byte) for byte in MAGIC) + "]"
        raise bad_request_error(f"provided data does not appear to be a protobuf message, expected prefix {expected}")
    try:
        api_version, kind, raw, content_type = _envelope(data[len(MAGIC) :])
    except _MalformedError as error:
        raise bad_request_error(f"unable to decode the protobuf envelope: {error}") from None
    target = _target(api_version, kind)
    obj: Obj = {"kind": kind, "apiVersion": api_version}
    try:
        if content_type == "application/json":
            given = _raw_json(raw)
            if not isinstance(given, dict):
                raise _MalformedError("the JSON in the envelope is not an object")
            obj = {**given, **obj}
        else:
            _message(raw, target, obj)
    except (_MalformedError, RecursionError) as error:
        version = api_version.rpartition("/")[2]
        why = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise bad_request_error(f'{kind} in version "{version}" cannot be handled as a {kind}: {why}') from None
    return obj


def _envelope(data: bytes) -> tuple[str, str, bytes, str]:
    api_version = kind = content_type = ""
    raw = b""
    for number, wire in _fields(data):
        if number == 1:
            for inner, value in _fields(_bytes(wire)):
                if inner == 1:
                    api_version = _string(value)
                elif inner == 2:
                    kind = _string(value)
        elif number == 2:
            raw = _bytes(wire)
        elif number == 3 and _string(wire):
            raise _MalformedError(f'content encoding "{_string(wire)}" is not supported: send the object unencoded')
        elif number == 4:
            content_type = _string(wire)
    return api_version, kind, raw, content_type


def _target(api_version: str, kind: str) -> MessageType:
    if not api_version or not kind:
        missing = "kind" if api_version else "apiVersion"
        raise bad_request_error(f"Object '{missing}' is missing in the protobuf envelope")
    known = by_kind(api_version, kind)
    if known is None:
        raise bad_request_error(f'no kind "{kind}" is registered for version "{api_version}" in the served API')
    message = message_type(known.type_name)
    if not message.by_number:
        raise unsupported_media_type_error(f"{kind} has no form in protobuf here: send it as application/json")
    return message


# --- the wire format -------------------------------------------------------------------------------------------------


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if position >= len(data):
            raise _MalformedError("unexpected EOF")
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, position
        shift += 7
        if shift > 63:
            raise _MalformedError("proto: integer overflow")


def _fields(data: bytes) -> Iterator[tuple[int, Wire]]:
    """Each (field number, wire value) of one message, in order."""
    position, end = 0, len(data)
    while position < end:
        tag, position = _varint(data, position)
        number, wire_type = tag >> 3, tag & 7
        if number == 0:
            raise _MalformedError(f"proto: illegal tag {number} (wire type {wire_type})")
        if wire_type == _VARINT:
            value, position = _varint(data, position)
            yield number, (_VARINT, value)
            continue
        if wire_type == _BYTES:
            length, position = _varint(data, position)
        elif wire_type in (_FIXED64, _FIXED32):
            length = 8 if wire_type == _FIXED64 else 4
        else:
            raise _MalformedError(f"proto: illegal wireType {wire_type}")
        if position + length > end:
            raise _MalformedError("unexpected EOF")
        yield number, (wire_type, data[position : position + length])
        position += length


def _bytes(wire: Wire) -> bytes:
    wire_type, value = wire
    if wire_type != _BYTES or not isinstance(value, bytes):
        raise _MalformedError(f"proto: wrong wireType = {wire_type} for a length-delimited field")
    return value


def _integer(wire: Wire) -> int:
    wire_type, value = wire
    if wire_type != _VARINT or not isinstance(value, int):
        raise _MalformedError(f"proto: wrong wireType = {wire_type} for a number")
    return value


def _string(wire: Wire) -> str:
    return _bytes(wire).decode("utf-8", errors="replace")


def _int64(wire: Wire) -> int:
    value = _integer(wire)
    return value - (1 << 64) if value >> 63 else value


def _int32(wire: Wire) -> int:
    value = _integer(wire) & 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


def _bool(wire: Wire) -> bool:
    return _integer(wire) != 0


def _double(wire: Wire) -> float | int:
    wire_type, value = wire
    if wire_type != _FIXED64 or not isinstance(value, bytes):
        raise _MalformedError(f"proto: wrong wireType = {wire_type} for a double")
    number: float = struct.unpack("<d", value)[0]
    return int(number) if number.is_integer() else number  # as Go writes it


# --- Go's own messages with a JSON form of their own -----------------------------------------------------------------


def _base64(wire: Wire) -> str:
    return base64.b64encode(_bytes(wire)).decode("ascii")


def _quantity(wire: Wire) -> str:
    text = ""
    for number, value in _fields(_bytes(wire)):
        if number == 1:
            text = _string(value)
            try:
                parse_quantity(text)
            except ValueError as error:
                raise _MalformedError(str(error)) from None
    return text or "0"


def _int_or_string(wire: Wire) -> int | str:
    kind, integer, text = 0, 0, ""
    for number, value in _fields(_bytes(wire)):
        if number == 1:
            kind = _integer(value)
        elif number == 2:
            integer = _int32(value)
        elif number == 3:
            text = _string(value)
    return text if kind == 1 else integer


def _instant(wire: Wire) -> datetime | None:
    seconds = nanos = 0
    for number, value in _fields(_bytes(wire)):
        if number == 1:
            seconds = _int64(value)
        elif number == 2:
            nanos = _int32(value)
    if seconds == 0 and nanos == 0:
        return None
    try:
        return _EPOCH + timedelta(seconds=seconds, microseconds=nanos // 1000)
    except OverflowError:
        raise _MalformedError(f"a time {seconds} seconds from the epoch is outside the years 1 to 9999") from None


def _rfc3339(instant: datetime, precision: str) -> str:
    return instant.isoformat(timespec=precision).replace("+00:00", "Z")


def _time(wire: Wire) -> Any:
    instant = _instant(wire)
    return _ABSENT if instant is None else _rfc3339(instant, "seconds")


def _micro_time(wire: Wire) -> Any:
    instant = _instant(wire)
    return _ABSENT if instant is None else _rfc3339(instant, "microseconds")


def _raw_json(data: bytes) -> Any:
    try:
        return json.loads(data)
    except ValueError as error:
        raise _MalformedError(f"raw JSON inside the object: {error}") from None


def _raw(wire: Wire) -> Any:
    """`RawExtension`, `JSON` and `FieldsV1`: one field with JSON text."""
    raw = b""
    for number, value in _fields(_bytes(wire)):
        if number == 1:
            raw = _bytes(value)
    return _raw_json(raw) if raw and raw != b"null" else _ABSENT


def _string_list(wire: Wire) -> list[str]:
    return [_string(value) for number, value in _fields(_bytes(wire)) if number == 1]


_SCALARS: dict[str, _Decode] = {
    "string": _string,
    "bool": _bool,
    "int32": _int32,
    "int64": _int64,
    "double": _double,
    "bytes": _base64,
    "quantity": _quantity,
    "intOrString": _int_or_string,
    "time": _time,
    "microTime": _micro_time,
    "json": _raw,
    "fieldsV1": _raw,
    "stringList": _string_list,
}
_PACKABLE = frozenset({"bool", "int32", "int64", "double"})
# Scalars whose zero a Go struct cannot tell from absence, unless the field is a pointer.
_ZEROES = frozenset({"string", "bool", "int32", "int64", "double", "bytes", "intOrString"})


# --- messages --------------------------------------------------------------------------------------------------------


def _message(data: bytes, target: MessageType, into: Obj) -> None:
    """Decode one message into a JSON object that may already hold parts of it."""
    is_schema = target.name == SCHEMA
    for number, wire in _fields(data):
        field = target.by_number.get(number)
        if field is not None and is_schema and field.name in EITHER:
            _store_either(field, _bytes(wire), into)
        elif field is not None:
            _store(field, wire, into)
        elif number in target.embedded:
            _message(_bytes(wire), message_type(target.embedded[number]), into)


SCHEMA = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps"
EITHER = frozenset({"items", "additionalItems", "additionalProperties", "dependencies"})
"""Members of a schema that hold a schema or something else: the message of each has one field for either."""


def _store_either(field: Field, data: bytes, into: Obj) -> None:
    if field.name == "dependencies":
        key, inner = "", b""
        for number, wire in _fields(data):
            if number == 1:
                key = _string(wire)
            else:
                inner = _bytes(wire)
        into.setdefault(field.name, {})[key] = _schema_or_names(inner)
    elif field.name == "items":
        into[field.name] = _schema_or_many(data)
    else:
        into[field.name] = _schema_or_bool(data)


def _schema(wire: Wire) -> Obj:
    found: Obj = {}
    _message(_bytes(wire), message_type(SCHEMA), found)
    return found


def _schema_or_many(data: bytes) -> Any:
    many: list[Obj] = []
    for number, wire in _fields(data):
        if number == 1:
            return _schema(wire)
        many.append(_schema(wire))
    return many


def _schema_or_bool(data: bytes) -> Any:
    allows = False
    for number, wire in _fields(data):
        if number == 2:
            return _schema(wire)
        allows = _bool(wire)
    return allows


def _schema_or_names(data: bytes) -> Any:
    names: list[str] = []
    for number, wire in _fields(data):
        if number == 1:
            return _schema(wire)
        names.append(_string(wire))
    return names


def _store(field: Field, wire: Wire, into: Obj) -> None:
    name = field.name
    if field.container == "list":
        into.setdefault(name, []).extend(_items(field, wire))
    elif field.container == "map":
        key, value = _entry(field, _bytes(wire))
        into.setdefault(name, {})[key] = value
    elif field.is_message:
        _message(_bytes(wire), message_type(field.type), into.setdefault(name, {}))
    else:
        value = _SCALARS[field.type](wire)
        if value is _ABSENT or (not value and field.type in _ZEROES and not field.pointer and not field.required):
            into.pop(name, None)
        else:
            into[name] = value


def _one(field: Field, wire: Wire) -> Any:
    if field.is_message:
        obj: Obj = {}
        _message(_bytes(wire), message_type(field.type), obj)
        return obj
    value = _SCALARS[field.type](wire)
    return None if value is _ABSENT else value


def _items(field: Field, wire: Wire) -> Iterator[Any]:
    """The elements in one occurrence of a repeated field: one, or many when numbers are packed."""
    if wire[0] != _BYTES or field.type not in _PACKABLE:
        yield _one(field, wire)
        return
    data = _bytes(wire)
    if field.type == "double":
        if len(data) % 8:
            raise _MalformedError("unexpected EOF")
        yield from (value for (value,) in struct.iter_unpack("<d", data))
        return
    position = 0
    while position < len(data):
        value, position = _varint(data, position)
        yield _SCALARS[field.type]((_VARINT, value))


def _entry(field: Field, data: bytes) -> tuple[str, Any]:
    key = ""
    value: Wire | None = None
    for number, wire in _fields(data):
        if number == 1:
            key = _string(wire)
        elif number == 2:
            value = wire
    if value is None:
        value = (_BYTES, b"") if field.is_message or field.type not in _PACKABLE else (_VARINT, 0)
    return key, _one(field, value)
