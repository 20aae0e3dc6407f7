"""Kinds without rules of their own: required texts and closed sets, read off the schema.

The schema calls a field required when Go writes it even if empty; the API refuses only an empty text there, so numbers
and lists are left alone. Status is written by controllers and not judged.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from haru.kube.data import rows
from haru.kube.errors import FieldError, not_supported, required
from haru.kube.kinds import Kind
from haru.kube.meta import Obj
from haru.kube.schema import Field, MessageType, message_type, type_of

_CLOSED_SETS = {(message, field): tuple(values) for message, field, *values in rows("closed_sets")}
"""Values that the API checks, by message and field."""


def validate_by_schema(obj: Obj, kind: Kind) -> list[FieldError]:
    """Required texts and closed sets of an object, its metadata and status left out."""
    return [
        error
        for field in _plan(type_of(kind).name)
        if field.name not in ("apiVersion", "kind", "metadata", "status")
        for error in _field("", field, obj.get(field.name), type_of(kind).short_name)
    ]


@lru_cache(maxsize=1024)
def _plan(type_name: str) -> tuple[Field, ...]:
    """The fields of a message that can be wrong, directly or deeper down."""
    message = message_type(type_name)
    return tuple(field for field in message.fields.values() if _matters(message, field, frozenset({type_name})))


def _matters(message: MessageType, field: Field, above: frozenset[str]) -> bool:
    if (message.short_name, field.name) in _CLOSED_SETS or field.enum or (field.required and field.type == "string"):
        return True
    if not field.is_message or field.type in above:
        return False
    inner = message_type(field.type)
    return any(_matters(inner, deeper, above | {field.type}) for deeper in inner.fields.values())


def _field(prefix: str, field: Field, value: Any, holder: str) -> Iterator[FieldError]:
    path = f"{prefix}.{field.name}" if prefix else field.name
    if field.container == "list":
        for index, item in enumerate(value or ()):
            yield from _value(f"{path}[{index}]", field, item, holder)
    elif field.container == "map":
        for key, item in (value or {}).items():
            yield from _value(f"{path}[{key}]", field, item, holder)
    elif value is not None or field.required:
        yield from _value(path, field, value, holder)


def _value(path: str, field: Field, value: Any, holder: str) -> Iterator[FieldError]:
    if field.is_message:
        name = message_type(field.type).short_name
        for inner in _plan(field.type):
            yield from _field(path, inner, (value or {}).get(inner.name), name)
        return
    if field.type != "string" or field.container == "map":
        return
    allowed = _CLOSED_SETS.get((holder, field.name)) or field.enum
    if value in (None, ""):
        if field.required:
            yield required(path)
    elif allowed and value not in allowed:
        yield not_supported(path, value, sorted(allowed))
