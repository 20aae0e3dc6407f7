"""What is wrong with a configuration before anybody merges it: undeclared fields, types, list keys.

Server-side apply and mutating policies read configurations through the schema first, and refuse all of this at once.
Values are told as Go prints them, as clients of 1.36 see them. A null is no value and always right.
Source: sigs.k8s.io/structured-merge-diff `typed`, as behaviour.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from haru.kube.errors import StatusError
from haru.kube.go_values import GoText, NullValue, go_syntax, go_type, go_value
from haru.kube.patch.declared import Declared
from haru.kube.patch.fieldset import element_text
from haru.kube.patch.shapes import Shape, item_element


def type_errors(value: Any, declared: Declared, path: str = "") -> Iterator[str]:
    """Each error with its path in front, such as `.spec.paused: expected boolean, got &{a}`."""
    if value is None:
        return
    if declared.type == "any":
        yield from _odd_values(value, path)
    elif declared.type in ("object", "map"):
        if not isinstance(value, dict):
            yield f"{path}: expected map, got &{{{go_value(value)}}}"
        else:
            yield from _object_errors(value, declared, path)
    elif declared.type == "list":
        if not isinstance(value, list):
            yield f"{path}: expected list, got &{{{go_value(value)}}}"
        else:
            yield from _list_errors(value, declared, path)
    elif wrong := _scalar_error(value, declared.type):
        yield f"{path}: expected {wrong}"


def _odd_values(value: Any, path: str) -> Iterator[str]:
    """Values that are no JSON to Go have no place even where everything is allowed."""
    if isinstance(value, GoText):
        yield f"{path}: expected map, got &{{{go_value(value)}}}"
    elif isinstance(value, dict):
        for name, item in value.items():
            yield from _odd_values(item, f"{path}.{name}")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _odd_values(item, f"{path}[{index}]")


def joined(errors: list[str]) -> str:
    """One error, or all of them below a heading, as 1.36 tells them."""
    return errors[0] if len(errors) == 1 else "".join(("errors:", *(f"\n  {error}" for error in errors)))


def _object_errors(value: dict[str, Any], declared: Declared, path: str) -> Iterator[str]:
    undeclared = []
    for name, item in value.items():
        found = declared.element if declared.type == "map" else declared.member(name)
        if found is not None:
            yield from type_errors(item, found, f"{path}.{name}")
        elif declared.type == "object":
            undeclared.append(name)
    if undeclared and not declared.keeps_unknown:
        yield f"{path}.{min(undeclared)}: field not declared in schema"  # 1.36 tells of one, too, in each object


def _list_errors(value: list[Any], declared: Declared, path: str) -> Iterator[str]:
    seen = set[str]()
    for index, item in enumerate(value):
        try:
            element = _element(declared.shape, index, item)
        except ValueError as error:
            yield f"{path}: element {index}: {error}"
            continue
        if element in seen:
            yield f"{path}: duplicate entries for key {element_text(element)}"
        seen.add(element)
        if declared.element is not None:
            yield from type_errors(item, declared.element, path + element_text(element))


def _element(shape: Shape, index: int, item: Any) -> str:
    """The path element of an item. ValueError when it cannot have one."""
    if shape.style == "set":
        if isinstance(item, list):
            raise ValueError("not supported: associative list with lists as elements")
        if item is None or isinstance(item, dict):
            what = "an explicit null" if item is None else "a map type"
            raise ValueError(f"associative list without keys has an element that's {what}")
        return item_element(shape, item)
    if shape.style != "keyed":
        return f"i:{index}"
    if item is None:
        raise ValueError("associative list with keys may not have a null element")
    if not isinstance(item, dict):
        raise ValueError("associative list with keys may not have non-map elements")
    try:
        return item_element(shape, item)
    except StatusError as error:
        names = [key for key, _ in shape.keys]
        listed = " ".join(json.dumps(name) for name in names)
        why = f"omits all key fields [{listed}] (and doesn't have default values for any key fields)"
        raise ValueError(f"associative list with keys has an element that {why}") from error


def _scalar_error(value: Any, type_: str) -> str:
    """`boolean, got &{a}`; nothing for a value of this scalar type."""
    if type_ == "string":
        is_text = isinstance(value, str) and not isinstance(value, GoText)
        return "" if is_text else f"string, got &value.valueUnstructured{{Value:{go_syntax(value)}}}"
    if type_ == "numeric":
        is_number = isinstance(value, int | float) and not isinstance(value, bool | NullValue)
        return "" if is_number else f"numeric (int or float), got {go_type(value)}"
    if type_ == "boolean":
        return "" if isinstance(value, bool) else f"boolean, got &{{{go_value(value)}}}"
    return f"any scalar, got &{{{go_value(value)}}}" if isinstance(value, dict | list | NullValue | GoText) else ""
