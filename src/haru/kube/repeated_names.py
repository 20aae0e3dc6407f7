"""Names that occur twice in one object of a JSON text, which a reader that keeps the last of them never sees.

Source: sigs.k8s.io/json, as behaviour.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from typing import Any

from haru.kube.schema import Field, MessageType, message_type

_RAW = ("json", "fieldsV1")
_HALF_CHARACTER = re.compile("[\ud800-\udfff]")
"""What Go takes for a character that cannot be shown."""


def unknown_field(path: str) -> str:
    """`unknown field "spec.foo"`, with what no line can show escaped."""
    return f"unknown field {json.dumps(path, ensure_ascii=False)}"


def duplicate_fields(text: str | bytes) -> list[str]:
    """`duplicate field "spec.foo"` for every name that occurs twice in one object of a JSON text."""
    try:
        _ONCE.decode(text if isinstance(text, str) else text.decode(json.detect_encoding(text), "surrogatepass"))
    except _RepeatedError:
        return list(dict.fromkeys(_duplicates(text)))
    return []


def _duplicates(text: str | bytes) -> list[str]:
    return [f'duplicate field "{path}"' for path, again in _members(text) if again]


def in_order(text: str | bytes, unknown: Collection[str], message: MessageType | None = None) -> list[str]:
    """`unknown field "…"` and `duplicate field "…"` as a reader meets them, who skips what he does not know.

    He takes a field of the `message` that holds any JSON as it is, and does not look for repeated names in it.
    """
    wanted, found = frozenset(unknown), list[str]()
    skipped: str | None = None  # the last unknown member: what stands in it comes right after it
    for path, again in _members(text, message):
        problem = unknown_field(path)
        if problem in wanted:
            skipped = path
            found.append(problem)
        elif again and (skipped is None or not path.startswith((f"{skipped}.", f"{skipped}["))):
            found.append(f'duplicate field "{path}"')
    return list(dict.fromkeys(found))


def _members(text: str | bytes, of: MessageType | None = None) -> list[tuple[str, bool]]:
    """The path of every member in the order of the text, and whether its object had one of that name before."""
    found: list[tuple[str, bool]] = []

    def collect(value: Any, path: str, message: MessageType | None, values: Field | None) -> None:
        if isinstance(value, _Pairs):
            seen: set[str] = set()
            for given, inner in value.items:
                name = _HALF_CHARACTER.sub("\ufffd", given)
                inner_path = f"{path}.{name}" if path else name
                found.append((inner_path, name in seen))
                seen.add(name)
                field = values or (message.fields.get(name) if message is not None else None)
                if field is None or field.type not in _RAW:
                    inside = message_type(field.type) if field is not None and field.is_message else None
                    is_map = field is not None and field.container == "map" and values is None
                    collect(inner, inner_path, None if is_map else inside, field if is_map else None)
        elif isinstance(value, list):
            for index, inner in enumerate(value):
                collect(inner, f"{path}[{index}]", message, values)

    collect(json.loads(text, object_pairs_hook=_Pairs), "", of, None)
    return found


class _RepeatedError(Exception):
    """Some name occurs twice in an object."""


def _once(items: list[tuple[str, Any]]) -> None:
    """Raises _RepeatedError; what the objects hold is of no interest."""
    if len(dict(items)) < len(items):
        raise _RepeatedError


_ONCE = json.JSONDecoder(object_pairs_hook=_once)


class _Pairs:
    """A JSON object that still knows its repeated names."""

    __slots__ = ("items",)

    def __init__(self, items: list[tuple[str, Any]]) -> None:
        self.items = items
