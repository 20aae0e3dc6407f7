"""Whether two values of an API type mean the same, as Go's structs have it.

An empty list or map is none, and so is the zero of a plain field. An empty object is not: a member that is a pointer in
Go is there or it is not. Members that are objects in any case are written in the JSON form of an object, empty or not.
Source: apimachinery's semantic equality.
"""

from __future__ import annotations

from typing import Any

import orjson

from haru.kube.meta import Obj
from haru.kube.schema import SCALARS, Field, MessageType, message_type


def same_objects(new: Obj | None, old: Obj | None, type_name: str) -> bool:
    """Whether two objects of a type are the same; `type_name` as in `core.v1.PodSpec`."""
    return same_json(new, old) or _same_messages(new or {}, old or {}, message_type(f"io.k8s.api.{type_name}"))


def same_members(new: Obj, old: Obj, name: str, type_name: str) -> bool:
    """Whether a member of two objects of a type is the same; as a rule it is so to the letter, which costs little."""
    value, before = new.get(name), old.get(name)
    if same_json(value, before):
        return True
    return same_member(value, before, message_type(f"io.k8s.api.{type_name}").fields.get(name))


def same_json(new: Any, old: Any) -> bool:
    """Whether two values are the same as JSON, where 1 is not true."""
    if new is old:
        return True
    return bool(new == old and orjson.dumps(new, option=_SORTED) == orjson.dumps(old, option=_SORTED))


_SORTED = orjson.OPT_SORT_KEYS


def _same_messages(new: Obj, old: Obj, message: MessageType) -> bool:
    if new is old:
        return True
    fields = message.fields
    return all(same_member(new.get(name), old.get(name), fields.get(name)) for name in new.keys() | old.keys())


def same_member(new: Any, old: Any, field: Field | None) -> bool:
    """Whether a member is the same; one that is not declared is JSON."""
    if new is old:
        return True
    if field is None:
        return same_json(new, old)
    if field.container == "list":
        new, old = new or [], old or []
        return len(new) == len(old) and all(_same_value(*pair, field) for pair in zip(new, old, strict=True))
    if field.container == "map":
        new, old = new or {}, old or {}
        return new.keys() == old.keys() and all(_same_value(new[key], old[key], field) for key in new)
    if field.is_message and (field.pointer or not field.written):
        return new is not None and old is not None and _same_value(new, old, field)
    return _same_value(new, old, field)


def _same_value(new: Any, old: Any, field: Field) -> bool:
    if field.is_message:
        return _same_messages(new or {}, old or {}, message_type(field.type))
    is_pointer = field.pointer or (field.type == "quantity" and not field.written)  # a struct that may be left out
    if not is_pointer and field.type != "json":
        zero = SCALARS[field.type].zero
        new, old = zero if new is None else new, zero if old is None else old
    return same_json(new, old)
