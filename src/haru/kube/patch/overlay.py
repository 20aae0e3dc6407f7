"""A partial object laid over a whole one without owners: how mutating admission policies apply configurations.

The merge is that of server-side apply. Nothing can be removed; what is replaced as a whole (atomic lists, maps and
objects) may not be named at all, since whoever names a part of it would lose the rest unawares.
Source: KEP 3962 and structured-merge-diff, as behaviour.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from haru.kube.errors import StatusError
from haru.kube.meta import Obj
from haru.kube.patch.fieldset import element_text
from haru.kube.patch.type_errors import go_type
from haru.kube.patch.typed import Shape, item_element, merge
from haru.kube.schema import Field

_TEXTS = frozenset(("string", "time", "microTime", "bytes"))
_NUMBERS = frozenset(("int32", "int64", "double"))
_CONTAINERS = (dict, list)


class OverlayError(ValueError):
    """The partial object can not be laid over."""


def lay_over(live: Obj, partial: Obj, shape: Shape) -> Obj:
    """The live object with the partial one, which is of the same type, laid over it. Raises OverlayError.

    The answer shares parts with both: whatever of the live object is not named is in it as it was.
    """
    check_overlay(partial, shape)
    merged: Obj = merge(live, partial, shape)
    return merged


def is_plain(partial: Any, shape: Shape) -> bool:
    """Whether a value that is well-formed for its type can surely be laid over: a quick look before `check_overlay`."""
    if isinstance(partial, dict):
        if shape.style not in ("object", "map", "any"):
            return False
        for name, item in partial.items():
            if type(item) in _CONTAINERS and not is_plain(item, shape.field(name)):
                return False
        return True
    if shape.style != "keyed" or shape.element is None:
        return False
    try:
        found = {item_element(shape, item) for item in partial}
    except StatusError:
        return False
    element = shape.element
    return len(found) == len(partial) and all(is_plain(item, element) for item in partial)


def check_overlay(partial: Obj, shape: Shape) -> None:
    """Whether a partial object can be laid over others of its type. Raises OverlayError."""
    faults = list(_faults(partial, shape, ""))
    if faults:
        listed = faults[0] if len(faults) == 1 else "".join(("errors:", *(f"\n  {fault}" for fault in faults)))
        raise OverlayError(f"failed to convert patch object to typed object: {listed}")
    atomics = list(_atomics(partial, shape, ""))
    if atomics:
        named = ", ".join(atomics)
        raise OverlayError(f"invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: {named}")


# --- what does not fit the type


def _faults(value: Any, shape: Shape, path: str) -> Iterator[str]:
    """What of a value its type does not have. Values of no declared type may be anything."""
    if value is None or shape.style == "any":
        return
    if shape.style in ("keyed", "set"):
        yield from _list_faults(value, shape, path)
    elif shape.style == "map" or (shape.style == "object" and not isinstance(value, dict)):
        if not isinstance(value, dict):
            yield f"{path}: expected map, got {_shown(value)}"
            return
        for key, item in value.items():
            yield from _faults(item, shape.element or shape, f"{path}.{key}")
    elif isinstance(value, dict):
        for key, item in value.items():
            where = f"{path}.{key}"
            if shape.style == "object" and not shape.allows(key):
                yield f"{where}: field not declared in schema"
            elif shape.message is None or key not in shape.message.fields:
                yield from _faults(item, shape.field(key), where) if shape.style == "object" else ()
            else:
                yield from _scalar_faults(shape.message.fields[key], item, where)
                yield from _faults(item, shape.field(key), where)


def _list_faults(value: Any, shape: Shape, path: str) -> Iterator[str]:
    if not isinstance(value, list):
        yield f"{path}: expected list, got {_shown(value)}"
        return
    seen: set[str] = set()
    for index, item in enumerate(value):
        try:
            element = item_element(shape, item)
        except StatusError:
            missing = next((key for key, _ in shape.keys), "")
            yield (
                f"{path}: element {index}: associative list with keys has an element that omits key field "
                f'"{missing}" (and doesn\'t have default value)'
            )
            continue
        if element in seen:
            yield f"{path}: duplicate entries for key {element_text(element)}"
        seen.add(element)
        if shape.element is not None:
            yield from _faults(item, shape.element, path + element_text(element))


def _scalar_faults(field: Field, value: Any, path: str) -> Iterator[str]:
    """What is wrong with a value, or with the values of a map, of a type that is no message."""
    if field.container == "map":
        if isinstance(value, dict):
            for key, item in value.items():
                yield from _scalar_fault(field.type, item, f"{path}.{key}")
        elif value is not None and field.map_type == "atomic":
            yield f"{path}: expected map, got {_shown(value)}"
    elif field.container == "list":
        if not isinstance(value, list | None) and field.list_type not in ("map", "set"):
            yield f"{path}: expected list, got {_shown(value)}"
    else:
        yield from _scalar_fault(field.type, value, path)


def _scalar_fault(type_name: str, value: Any, path: str) -> Iterator[str]:
    if value is None:
        return
    if type_name in _TEXTS and not isinstance(value, str):
        yield f"{path}: expected string, got {_shown(value)}"
    elif type_name == "bool" and not isinstance(value, bool):
        yield f"{path}: expected boolean, got {_shown(value)}"
    elif type_name in _NUMBERS and (isinstance(value, bool) or not isinstance(value, int | float)):
        yield f"{path}: expected numeric (int or float), got {go_type(value)}"


def _shown(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


# --- what is replaced as a whole


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
