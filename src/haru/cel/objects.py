"""Kubernetes objects in CEL: the types that a structural schema declares, and values in them.

An object becomes a message with a type of its own, a map stays one; times, durations and bytes have CEL's types. What
a schema knows nothing of, expressions do not see. Names that are no identifiers are spelled differently in
expressions: `a-b` is `a__dash__b`. Source: KEP 2876, as behaviour.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from haru.cel.errors import EvaluationError
from haru.cel.libraries.timestamps import parse_duration, parse_timestamp
from haru.cel.schema_values import MapList, OpenObject, SetList
from haru.cel.types import BOOL, BYTES, DOUBLE, DURATION, DYN, INT, STRING, TIMESTAMP, Type, list_of, map_of, struct
from haru.cel.values import Value
from haru.kube.custom.structural import Structural

Structs = dict[str, dict[str, Type]]

_RESERVED = frozenset(
    (
        *("true", "false", "null", "in", "as", "break", "const", "continue", "else", "for", "function", "if"),
        *("import", "let", "loop", "package", "namespace", "return", "var", "void", "while"),
    )
)
_ESCAPES = (("__", "__underscores__"), (".", "__dot__"), ("-", "__dash__"), ("/", "__slash__"))
_SPELLED = re.compile(r"[a-zA-Z_.\-/][a-zA-Z0-9_.\-/]*")
_SCALARS = {"boolean": BOOL, "integer": INT, "number": DOUBLE, "string": STRING}
_TEXTS = {
    "byte": BYTES,
    "date": TIMESTAMP,
    "date-time": TIMESTAMP,
    "duration": DURATION,
}
_NAMED = Structural(
    type="object", properties={"name": Structural(type="string"), "generateName": Structural(type="string")}
)
_EVERY = {"apiVersion": Structural(type="string"), "kind": Structural(type="string"), "metadata": _NAMED}


def escaped(name: str) -> str | None:
    """How expressions spell the name of a member; None for one that they cannot."""
    if name in _RESERVED:
        return f"__{name}__"
    if not _SPELLED.fullmatch(name):
        return None
    for plain, spelled in _ESCAPES:
        name = name.replace(plain, spelled)
    return name


def members(schema: Structural, *, root: bool = False) -> Mapping[str, Structural]:
    """The declared members of an object, with those that every resource has."""
    declared = schema.properties
    if not (root or schema.embedded) or _declares_every(declared):
        return declared
    return {**declared, **_EVERY}


def _declares_every(declared: Mapping[str, Structural]) -> bool:
    """Whether a schema itself says what every resource has; said in part, it does not count."""
    metadata = declared.get("metadata")
    if metadata is None or metadata.type != "object":
        return False
    texts = (
        *(declared.get(name) for name in ("apiVersion", "kind")),
        *map(metadata.properties.get, ("name", "generateName")),
    )
    return all(inner is not None and inner.type == "string" for inner in texts)


def declare(schema: Structural, name: str, structs: Structs, *, root: bool = False) -> Type | None:
    """The type of a schema's values; the messages in it are added to `structs`, named by where they stand.

    None for what expressions cannot see: where a schema allows anything, 1.36 declares nothing.
    """
    if schema.int_or_string:
        return DYN
    if schema.type == "array":
        item = None if schema.items is None else declare(schema.items, f"{name}.@idx", structs)
        return None if item is None else list_of(item)
    if schema.type == "object":
        if schema.additional is not None:
            value = declare(schema.additional, f"{name}.@elem", structs)
            return None if value is None else map_of(STRING, value)
        return _declare_object(schema, name, structs, root=root)
    if schema.type == "string":
        return _TEXTS.get(str(schema.checks.get("format")), STRING)
    return _SCALARS.get(schema.type)


def _declare_object(schema: Structural, name: str, structs: Structs, *, root: bool) -> Type:
    fields: dict[str, Type] = {}
    structs[name] = fields
    for member, inner in members(schema, root=root).items():
        spelled = escaped(member)
        found = None if spelled is None else declare(inner, f"{name}.{spelled}", structs)
        if spelled is not None and found is not None:
            fields[spelled] = found
    return struct(name)


def to_value(value: Any, schema: Structural, *, root: bool = False) -> Value:
    """A JSON value as CEL sees it. Raises EvaluationError for a text that is no time, duration or bytes."""
    if value is None or schema.int_or_string:
        return value
    if isinstance(value, list):
        return value if schema.items is None else _list(value, schema, schema.items)
    if isinstance(value, dict):
        return _object(value, schema, root=root)
    if isinstance(value, str) and schema.type == "string":
        read = _READERS.get(str(schema.checks.get("format")))
        return read(value) if read is not None else value
    if schema.type == "number" and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    return value


def _list(value: list[Any], schema: Structural, items: Structural) -> Value:
    made = [to_value(item, items) for item in value]
    if schema.list_type == "set":
        return SetList(made)
    if schema.list_type == "map":
        return MapList(made, tuple(map(_spelled, schema.list_map_keys)))
    return made


def _spelled(name: str) -> str:
    """The member of a value; one that expressions cannot name has a name that they cannot spell."""
    return escaped(name) or f"?{name}"


def _object(value: dict[str, Any], schema: Structural, *, root: bool) -> Value:
    if schema.additional is not None:
        return {name: to_value(inner, schema.additional) for name, inner in value.items()}
    declared = members(schema, root=root)
    found: dict[str, Value] = {}
    unknown: dict[str, Value] = {}
    for name, inner in value.items():
        known = declared.get(name)
        if known is None:
            unknown[name] = inner
        elif inner is not None:  # null is no value of a member, as if it were absent
            found[_spelled(name)] = to_value(inner, known)
    return OpenObject(found, unknown) if unknown else found


def _bytes(text: str) -> Value:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise EvaluationError(f"{text!r} is not base64") from None


_READERS: Mapping[str, Callable[[str], Value]] = {
    "byte": _bytes,
    "date": lambda text: parse_timestamp(f"{text}T00:00:00Z"),
    "date-time": parse_timestamp,
    "duration": parse_duration,
}


def with_rules(schema: Structural) -> Iterator[Structural]:
    """The nodes of a schema that have rules."""
    pending = [schema]
    while pending:
        node = pending.pop()
        if node.rules:
            yield node
        pending += node.properties.values()
        pending += [inner for inner in (node.items, node.additional) if inner is not None]
