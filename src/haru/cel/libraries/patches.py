"""What mutating admission policies build: `Object{…}`, `JSONPatch{…}`, and `jsonpatch.escapeKey`.

An `Object` is a part of an object; the type of what stands at a path in it is named by the path
(`Object.spec.containers`, for the items of a list too). Fields may have any name and value; whether the types stand
where they say is seen when the value is used.
Source: KEP 3962, as behaviour.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Iterator, Mapping
from typing import Any

from haru.cel.environment import Library
from haru.cel.libraries.timestamps import civil, format_duration, format_timestamp
from haru.cel.overloads import function
from haru.cel.types import DYN, STRING, Type, struct
from haru.cel.values import Duration, Struct, Timestamp, Uint, Value, from_key, show, type_name
from haru.kube.go_values import GoText, go_duration

OBJECT = struct("Object")
JSON_PATCH = struct("JSONPatch")
PATCH_STRUCTS: Mapping[str, Mapping[str, Type]] = {
    JSON_PATCH.name: {"op": STRING, "path": STRING, "from": STRING, "value": DYN}
}
SAFE_INTEGER = (1 << 53) - 1
"""Integers beyond this are no JSON numbers for everybody, and become texts."""


_MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)


def _escape_key(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")


PATCHES = Library(
    "k8s.mutation",
    {"jsonpatch.escapeKey": (function("jsonpatch_escapeKey_string", (STRING,), STRING, _escape_key),)},
    types=(OBJECT, JSON_PATCH),
)


class PatchValueError(ValueError):
    """The value of an expression is no patch."""


class MisplacedError(PatchValueError):
    """An `Object…{}` stands where its type does not belong."""


def _misplaced(value: Value, path: str) -> Iterator[str]:
    if isinstance(value, Struct):
        name = value.cel_type.name
        if name != path:
            yield (
                f'unexpected type name "{name}", expected "{path}", which matches field name path from root Object type'
            )
        for key, inner in value.items():
            yield from _misplaced(inner, f"{path}.{key}")
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _misplaced(inner, path)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _misplaced(inner, path)


def to_json(value: Value, *, as_go: bool = False) -> Any:
    """A value as JSON. Raises PatchValueError for what JSON can not say, MisplacedError with all that is misplaced.

    `as_go`: times, durations and bytes are texts that know what Go has in their place.
    """
    root = value.cel_type.name if isinstance(value, Struct) else ""
    try:
        return _to_json(value, root, as_go)
    except MisplacedError:
        raise MisplacedError("\n".join(_misplaced(value, root))) from None


def _to_json(value: Value, path: str, as_go: bool) -> Any:
    """A value as JSON; what stands below an `Object…{}` is named by its path."""
    kind = value.__class__
    if kind is str or kind is bool or value is None:
        return value
    if kind is Struct:
        if value.cel_type.name != path:
            raise MisplacedError
        return {
            key: inner if inner.__class__ is str else _to_json(inner, f"{path}.{key}", as_go)
            for key, inner in value.items()
        }
    if isinstance(value, int):
        return _number(value)
    if isinstance(value, float):
        return _decimal(value)
    if isinstance(value, dict):
        return {_key(key): _to_json(inner, path, as_go) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_to_json(inner, path, as_go) for inner in value]
    if isinstance(value, bytes | Timestamp | Duration):
        found = _go_text(value)
        return found if as_go else str(found)
    raise PatchValueError(f"a value of type {type_name(value)} is not JSON: {show(value)}")


def _go_text(value: bytes | Timestamp | Duration) -> GoText:
    if isinstance(value, bytes):
        text = base64.b64encode(value).decode()
        hexed = ", ".join(f"{each:#x}" for each in value)
        return GoText(text, "[]uint8", f"[{' '.join(map(str, value))}]", f"[]uint8{{{hexed}}}")
    if isinstance(value, Duration):
        return GoText(format_duration(value), "time.Duration", go_duration(value.ns), str(value.ns))
    text = format_timestamp(value)
    day, _, hour = text.removesuffix("Z").partition("T")
    seconds, ns = divmod(value.ns, 10**9)
    hours, minutes = divmod(seconds // 60 % 1440, 60)
    year, month, date = civil(seconds // 86_400)
    when = f"{year}, time.{_MONTHS[month - 1]}, {date}, {hours}, {minutes}, {seconds % 60}, {ns}"
    return GoText(text, "time.Time", f"{day} {hour} +0000 UTC", f"time.Date({when}, time.UTC)")


def _number(value: int) -> int | str:
    if isinstance(value, Uint):
        value = int(value)
    return value if -SAFE_INTEGER <= value <= SAFE_INTEGER else str(value)


def _decimal(value: float) -> int | float:
    if not math.isfinite(value):
        raise PatchValueError(f"a double that is {show(value)} is not JSON")
    return int(value) if value.is_integer() and abs(value) <= SAFE_INTEGER else value


def _key(key: Any) -> str:
    found = from_key(key)
    if not isinstance(found, str):
        raise PatchValueError(f"map key {show(found)} is of type {type_name(found)}, not string")
    return found
