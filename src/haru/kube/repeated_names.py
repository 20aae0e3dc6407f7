"""Names that occur twice in one object of a JSON text, which a reader that keeps the last of them never sees.

Source: sigs.k8s.io/json, as behaviour.
"""

from __future__ import annotations

import json
from typing import Any


def duplicate_fields(text: str | bytes) -> list[str]:
    """`duplicate field "spec.foo"` for every name that occurs twice in one object of a JSON text."""
    try:
        _ONCE.decode(text if isinstance(text, str) else text.decode(json.detect_encoding(text), "surrogatepass"))
    except _RepeatedError:
        return _duplicates(text)
    return []


def _duplicates(text: str | bytes) -> list[str]:
    found: list[str] = []

    def collect(value: Any, path: str) -> None:
        if isinstance(value, _Pairs):
            seen: set[str] = set()
            for name, inner in value.items:
                inner_path = f"{path}.{name}" if path else name
                if name in seen:
                    found.append(f'duplicate field "{inner_path}"')
                seen.add(name)
                collect(inner, inner_path)
        elif isinstance(value, list):
            for index, inner in enumerate(value):
                collect(inner, f"{path}[{index}]")

    collect(json.loads(text, object_pairs_hook=_Pairs), "")
    return list(dict.fromkeys(found))


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
