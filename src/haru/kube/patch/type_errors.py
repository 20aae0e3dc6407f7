"""What is wrong with an applied configuration before anybody merges it: undeclared fields, types, list keys.

Server-side apply reads the configuration through the schema first, and refuses all of this at once with 500. Values are
told as Go prints them, as clients of 1.36 see them. A null is no value and always right.
Source: sigs.k8s.io/structured-merge-diff `typed`, as behaviour.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from haru.kube import schema
from haru.kube.errors import StatusError
from haru.kube.patch.fieldset import element_text
from haru.kube.patch.typed import Shape, field_shape, item_element
from haru.kube.schema import Field, MessageType

_TEXTS: Final = frozenset({"string", "bytes"})
_NUMBERS: Final = frozenset({"int32", "int64", "double"})
_FREE: Final = frozenset({"json", "fieldsV1", "intOrString"})


def type_errors(value: Any, message: MessageType, path: str = "") -> Iterator[str]:
    """Each error with its path in front, such as `.spec.paused: expected boolean, got &{a}`."""
    if not isinstance(value, dict):
        yield f"{path}: expected map, got &{{{_go_value(value)}}}"
        return
    for name, item in value.items():
        field = message.fields.get(name)
        if field is not None and item is not None:
            yield from _field_errors(item, field, f"{path}.{name}")
    if undeclared := value.keys() - message.fields.keys():
        yield f"{path}.{min(undeclared)}: field not declared in schema"  # 1.36 tells of one, too, in each object


def _field_errors(value: Any, field: Field, path: str) -> Iterator[str]:
    if field.container == "one":
        yield from _value_errors(value, field, path)
    elif field.container == "map":
        if not isinstance(value, dict):
            yield f"{path}: expected map, got &{{{_go_value(value)}}}"
            return
        for key, item in value.items():
            yield from _value_errors(item, field, f"{path}.{key}")
    elif not isinstance(value, list):
        yield f"{path}: expected list, got &{{{_go_value(value)}}}"
    else:
        yield from _list_errors(value, field, path)


def _list_errors(value: list[Any], field: Field, path: str) -> Iterator[str]:
    shape, seen = field_shape(field), set[str]()
    for index, item in enumerate(value):
        try:
            element = _element(shape, index, item)
        except ValueError as error:
            yield f"{path}: element {index}: {error}"
            continue
        if element in seen:
            yield f"{path}: duplicate entries for key {element_text(element)}"
        seen.add(element)
        yield from _value_errors(item, field, path + element_text(element))


def _element(shape: Shape, index: int, item: Any) -> str:
    """The path element of an item. ValueError when it cannot have one."""
    if shape.style == "set":
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
        if item.keys() & set(names):
            return f"i:{index}"  # null, which is no omission
        listed = " ".join(json.dumps(name) for name in names)
        why = f"omits all key fields [{listed}] (and doesn't have default values for any key fields)"
        raise ValueError(f"associative list with keys has an element that {why}") from error


def _value_errors(value: Any, field: Field, path: str) -> Iterator[str]:
    if value is None or field.type in _FREE:
        return
    if field.is_message:
        yield from type_errors(value, schema.message_type(field.type), path)
    elif field.type == "stringList":
        yield from _text_list_errors(value, path)
    elif wrong := _scalar_error(value, field.type):
        yield f"{path}: expected {wrong}"


def _text_list_errors(value: Any, path: str) -> Iterator[str]:
    if not isinstance(value, list):
        yield f"{path}: expected list, got &{{{_go_value(value)}}}"
        return
    for index, item in enumerate(value):
        if item is not None and (wrong := _scalar_error(item, "string")):
            yield f"{path}[{index}]: expected {wrong}"


def _scalar_error(value: Any, type_: str) -> str:
    """`boolean, got &{a}`; nothing for a value of this scalar type."""
    if type_ in _TEXTS:
        return "" if isinstance(value, str) else f"string, got &value.valueUnstructured{{Value:{_go_syntax(value)}}}"
    if type_ in _NUMBERS:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return "" if is_number else f"numeric (int or float), got {go_type(value)}"
    if type_ == "bool":
        return "" if isinstance(value, bool) else f"boolean, got &{{{_go_value(value)}}}"
    return f"any scalar, got &{{{_go_value(value)}}}" if isinstance(value, dict | list) else ""


def go_type(value: Any) -> str:
    """What Go calls the type of a JSON value that is no number."""
    names = {str: "string", bool: "bool", list: "[]interface {}", dict: "map[string]interface {}"}
    return names[type(value)]


def _go_value(value: Any) -> str:
    """As Go's `%v`."""
    if isinstance(value, dict):
        return f"map[{' '.join(f'{key}:{_go_value(value[key])}' for key in sorted(value))}]"
    if isinstance(value, list):
        return f"[{' '.join(map(_go_value, value))}]"
    return "<nil>" if value is None else value if isinstance(value, str) else _go_scalar(value)


def _go_syntax(value: Any) -> str:
    """As Go's `%#v`."""
    if isinstance(value, dict):
        inside = ", ".join(f"{json.dumps(key)}:{_go_syntax(value[key])}" for key in sorted(value))
        return f"map[string]interface {{}}{{{inside}}}"
    if isinstance(value, list):
        return f"[]interface {{}}{{{', '.join(map(_go_syntax, value))}}}"
    if value is None:
        return "interface {}(nil)"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else _go_scalar(value)


def _go_scalar(value: float) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int) else f"{value:g}" if value != int(value) else str(int(value))
