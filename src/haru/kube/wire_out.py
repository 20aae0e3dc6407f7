"""Objects in protobuf, for clients that take nothing else: the counterpart of `haru.kube.wire`, over the same tables.

What an object has is written and nothing more: Go's encoder writes the zeroes of what is no pointer as well, and its
decoder takes both alike. Lists are `metadata` and `items` in every group; metadata alone has the two messages of
`meta.k8s.io/v1`; a Status is a message like the others.
Source: apimachinery's protobuf serializers: objects in a `runtime.Unknown`, events of a watch in a frame of their own.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import cache
from typing import Any

import orjson

from haru.kube.kinds import Kind, by_kind
from haru.kube.meta import Obj
from haru.kube.schema import Field, message_type
from haru.kube.wire import CONTENT_TYPE, EITHER, MAGIC, SCHEMA
from haru.kube.wire_fields import chunk, integer, varint

_Encode = Callable[[int, Any], bytes]

WATCH_CONTENT_TYPE = f"{CONTENT_TYPE};stream=watch"
_META = "io.k8s.apimachinery.pkg.apis.meta.v1."
_PARTIAL = {(f"meta.k8s.io/{version}", "PartialObjectMetadata") for version in ("v1", "v1beta1")}
_DISCOVERY = frozenset({"APIGroup", "APIGroupList", "APIResourceList", "APIVersions"})
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def has_protobuf(kind: Kind) -> bool:
    """Whether objects of a kind have a form in protobuf: custom resources have none."""
    if kind.custom is not None:
        return False
    return bool(message_type(kind.type_name).by_number)


def encode_protobuf(obj: Obj) -> bytes | None:
    """An object, a list or a Status in its envelope; None for a kind that has no form in protobuf."""
    kind = obj.get("kind", "")
    api_version = obj.get("apiVersion", "v1" if kind in _DISCOVERY else "")
    raw = _object(api_version, kind, obj)
    return None if raw is None else _in_envelope(api_version, kind, raw)


def encode_list(api_version: str, kind: str, metadata: Obj, items: Sequence[bytes]) -> bytes:
    """A list of what `encode_partial_item` has made, in its envelope."""
    return _in_envelope(api_version, kind, _metadata_of("ListMeta", {"metadata": metadata}) + b"".join(items))


def encode_partial_item(obj: Obj) -> bytes:
    """The metadata of an object as an item of a list of such."""
    return chunk(2, _metadata_of("ObjectMeta", obj), always=True)


def _in_envelope(api_version: str, kind: str, raw: bytes) -> bytes:
    named = chunk(1, api_version.encode(), always=True) + chunk(2, kind.encode(), always=True)
    # Encoding and type of what is inside: empty for protobuf that is not compressed.
    encoding, inside = chunk(3, b"", always=True), chunk(4, b"", always=True)
    return MAGIC + chunk(1, named) + chunk(2, raw, always=True) + encoding + inside


def encode_event(type_: str, obj: Obj) -> bytes:
    """An event of a watch: four bytes that tell its length, and a WatchEvent with the object in its envelope."""
    event = chunk(1, type_.encode()) + chunk(2, chunk(1, encode_protobuf(obj) or b"", always=True), always=True)
    return len(event).to_bytes(4, "big") + event


def _object(api_version: str, kind: str, obj: Obj) -> bytes | None:
    if kind in _DISCOVERY or (api_version, kind) == ("v1", "Status"):
        return _message(_META + kind, obj)
    if (api_version, kind) in _PARTIAL:
        return _metadata_of("ObjectMeta", obj)
    known = by_kind(api_version, kind)
    if known is not None:
        return _message(known.type_name, obj) if has_protobuf(known) else None
    items = obj.get("items")
    if not kind.endswith("List") or not isinstance(items, list):
        return None
    written = [_object(api_version, kind.removesuffix("List"), item) for item in items]
    if None in written or (not written and _object(api_version, kind.removesuffix("List"), {}) is None):
        return None
    return _metadata_of("ListMeta", obj) + b"".join(chunk(2, item or b"", always=True) for item in written)


def _metadata_of(name: str, obj: Obj) -> bytes:
    return chunk(1, _message(_META + name, obj.get("metadata") or {}), always=True)


@cache
def _plan(name: str) -> tuple[tuple[int, Field | str], ...]:
    """What a message is written from, in the order of its numbers: fields, and names of embedded messages."""
    message = message_type(name)
    return tuple(sorted([*message.by_number.items(), *message.embedded.items()], key=lambda each: each[0]))


def _message(name: str, obj: Obj) -> bytes:
    """The message of that full name."""
    parts = []
    is_schema = name == SCHEMA
    for number, field in _plan(name):
        if isinstance(field, str):
            # Its fields stand beside the others in JSON.
            parts.append(chunk(number, _message(field, obj)))
        elif (value := obj.get(field.name)) is not None:
            written = _either(number, field.name, value) if is_schema and field.name in EITHER else None
            parts.append(_field(number, field, value) if written is None else written)
    return b"".join(parts)


def _either(number: int, name: str, value: Any) -> bytes:
    """A member of a schema that holds a schema or something else."""
    if name == "dependencies":
        entries = (
            chunk(1, key.encode(), always=True) + chunk(2, _two(value[key]), always=True) for key in sorted(value)
        )
        return b"".join(chunk(number, entry, always=True) for entry in entries)
    if name == "items":
        return chunk(number, _two(value), always=True)
    inner = integer(1, int(value is not False), always=True)
    if isinstance(value, dict):
        inner += chunk(2, _message(SCHEMA, value), always=True)
    return chunk(number, inner, always=True)


def _two(value: Any) -> bytes:
    """A schema, or several, or names."""
    if isinstance(value, dict):
        return chunk(1, _message(SCHEMA, value), always=True)
    return b"".join(
        chunk(2, _message(SCHEMA, each) if isinstance(each, dict) else str(each).encode(), always=True)
        for each in value
    )


def _field(number: int, field: Field, value: Any) -> bytes:
    if field.container == "list":
        return b"".join(_one(number, field, each) for each in value)
    if field.container == "map":
        entries = (chunk(1, key.encode(), always=True) + _one(2, field, value[key]) for key in sorted(value))
        return b"".join(chunk(number, entry, always=True) for entry in entries)
    return _one(number, field, value)


def _one(number: int, field: Field, value: Any) -> bytes:
    if field.is_message:
        return chunk(number, _message(field.type, value or {}), always=True)
    return _SCALARS[field.type](number, value)


# --- scalars, and Go's own messages with a JSON form of their own -----------------------------------------------------


def _string(number: int, value: Any) -> bytes:
    # A text that came as JSON may hold half of a pair of surrogates, which UTF-8 has not.
    return chunk(number, str(value).encode("utf-8", "replace"), always=True)


def _number(number: int, value: Any) -> bytes:
    return integer(number, int(value), always=True)


def _double(number: int, value: Any) -> bytes:
    return varint(number << 3 | 1) + struct.pack("<d", value)


def _base64(number: int, value: Any) -> bytes:
    return chunk(number, base64.b64decode(value), always=True)


def _quantity(number: int, value: Any) -> bytes:
    return chunk(number, _string(1, value), always=True)


def _int_or_string(number: int, value: Any) -> bytes:
    inner = integer(1, 1) + _string(3, value) if isinstance(value, str) else integer(2, int(value), always=True)
    return chunk(number, inner, always=True)


def _time(number: int, value: Any) -> bytes:
    return chunk(number, integer(1, _since_epoch(value)[0], always=True), always=True)


def _micro_time(number: int, value: Any) -> bytes:
    seconds, microseconds = _since_epoch(value)
    return chunk(number, integer(1, seconds, always=True) + integer(2, microseconds * 1000), always=True)


def _since_epoch(text: str) -> tuple[int, int]:
    """Whole seconds and microseconds."""
    passed = datetime.fromisoformat(text) - _EPOCH
    return passed.days * 86_400 + passed.seconds, passed.microseconds


def _raw(number: int, value: Any) -> bytes:
    return chunk(number, chunk(1, orjson.dumps(value)), always=True)


def _string_list(number: int, value: Any) -> bytes:
    return chunk(number, b"".join(_string(1, each) for each in value), always=True)


_SCALARS: dict[str, _Encode] = {
    "string": _string,
    "bool": _number,
    "int32": _number,
    "int64": _number,
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
