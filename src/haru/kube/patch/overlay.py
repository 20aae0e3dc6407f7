"""A partial object laid over a whole one without owners: how mutating admission policies apply configurations.

The merge is that of server-side apply. Nothing can be removed; what is replaced as a whole (atomic lists, maps and
objects) may not be named at all, since whoever names a part of it would lose the rest unawares.
Source: KEP 3962 and structured-merge-diff, as behaviour.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from haru.kube.errors import StatusError
from haru.kube.go_values import NULL_VALUE, GoText
from haru.kube.meta import Obj
from haru.kube.patch.declared import Declared
from haru.kube.patch.shapes import Shape, item_element
from haru.kube.patch.type_errors import joined, type_errors

_LOOKED_INTO = (dict, list, GoText)


class OverlayError(ValueError):
    """The partial object can not be laid over."""


def is_plain(partial: Any, shape: Shape) -> bool:
    """Whether a value that is well-formed for its type can surely be laid over: a quick look before `check_overlay`."""
    if isinstance(partial, dict):
        if shape.style not in ("object", "map", "any"):
            return False
        for name, item in partial.items():
            if type(item) in _LOOKED_INTO and not is_plain(item, shape.field(name)):
                return False
        return True
    if not isinstance(partial, list) or shape.style != "keyed" or shape.element is None:
        return False
    try:
        found = {item_element(shape, item) for item in partial}
    except StatusError:
        return False
    element = shape.element
    return len(found) == len(partial) and all(is_plain(item, element) for item in partial)


def check_overlay(partial: Obj, shape: Shape, declared: Declared) -> None:
    """Whether a partial object can be laid over others of its type. Raises OverlayError."""
    if errors := sorted(type_errors(_with_nulls(partial), declared)):
        raise OverlayError(f"failed to convert patch object to typed object: {joined(errors)}")
    atomics = list(_atomics(partial, shape, ""))
    if atomics:
        named = ", ".join(atomics)
        raise OverlayError(f"invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: {named}")


def _with_nulls(value: Any) -> Any:
    """A value with its nulls as expressions have them: numbers with a name, which are right nowhere."""
    if isinstance(value, dict):
        return {name: _with_nulls(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_with_nulls(item) for item in value]
    return NULL_VALUE if value is None else value


def _atomics(value: Any, shape: Shape, path: str) -> Iterator[str]:
    """The paths of the atomic lists, maps and objects in a value."""
    if isinstance(value, list):
        if shape.style not in ("keyed", "set"):
            yield path
            return
        for index, item in enumerate(value):
            yield from _atomics(item, shape.element or shape, f"{path}[{index}]")
    elif isinstance(value, dict) and shape.style not in ("map", "any"):
        if shape.style == "leaf":
            yield path
        if shape.style == "object" or shape.message is not None:
            for key, item in value.items():
                yield from _atomics(item, shape.field(key), f"{path}.{key}")
