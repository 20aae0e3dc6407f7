"""The `fieldPath` of a validation rule: which member a broken rule is about, by names and keys below the rule's place.

`.name`, `['name']` and, into a map, `.key` or `['key']`; lists cannot be entered.
Source: `x-kubernetes-validations[].fieldPath` of apiextensions.k8s.io/v1, as behaviour.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from haru.kube.custom.structural import Structural

Raw = Mapping[str, Any]

# A quoted text ends at the first quotation mark that no backslash precedes.
_TOKEN = re.compile(r"'(?:|.*?[^\\])'|'.*|[.\[\]]|[^.\[\]]+", re.DOTALL)
_ESCAPED = re.compile(r"\\(.)")
_ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "'": "'", "\\": "\\"}


def is_field_path(path: str, schema: Raw) -> bool:
    """Whether a path leads to a member that the schema of the rule's place declares."""
    try:
        for name in _names(path):
            schema = _below(schema, name)
    except ValueError:
        return False
    return True


def field_at(path: str, schema: Raw) -> tuple[list[str], Raw]:
    """The names on a path of dots alone, and the schema where it ends. Raises ValueError where there is none."""
    if "[" in path:
        raise ValueError("array notation is not allowed")
    names = list(_names(path))
    for name in names:
        schema = _below(schema, name)
    return names, schema


def shown_path(path: str, schema: Structural) -> str:
    """A path as errors show it: members behind dots, keys of maps in brackets; empty where it leads nowhere."""
    shown = ""
    try:
        for name in _names(path):
            shown += f".{name}" if schema.properties else f"[{name}]"
            inner = schema.properties.get(name) if schema.properties else schema.additional
            if inner is None:
                return ""
            schema = inner
    except ValueError:
        return ""
    return shown.removeprefix(".")


def _names(path: str) -> Iterator[str]:
    """The names and keys of a path. Raises ValueError."""
    tokens = iter(_TOKEN.findall(path))
    for token in tokens:
        if token == ".":
            yield _next(tokens)
        elif token == "[":
            quoted = _next(tokens)
            if len(quoted) < 2 or quoted[0] != "'" or quoted[-1] != "'":
                raise ValueError(f"expected single quoted string but got {quoted}")
            yield _ESCAPED.sub(_unescaped, quoted[1:-1])
            if (end := _next(tokens)) != "]":
                raise ValueError(f"expected ] but got {end}")
        else:
            raise ValueError(f"expected [ or . but got: {token}")


def _next(tokens: Iterator[str]) -> str:
    found = next(tokens, None)
    if found is None:
        raise ValueError("unexpected end of JSON path")
    return found


def _unescaped(match: re.Match[str]) -> str:
    if match[1] not in _ESCAPES:
        raise ValueError(f"invalid escape char {match[0]}")
    return _ESCAPES[match[1]]


def _below(schema: Raw, name: str) -> Raw:
    """The schema of a member. Raises ValueError where none is declared."""
    properties, additional = schema.get("properties"), schema.get("additionalProperties")
    found = properties.get(name) if properties else additional
    if not isinstance(found, dict):
        raise ValueError("does not refer to a valid field")
    return found
