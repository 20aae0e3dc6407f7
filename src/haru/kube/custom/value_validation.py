"""Validate a value by its structural schema, in the words of 1.36.

Findings carry the path in Kubernetes' form (`spec.replicas[0]`); the sentences name it once more, as the validator of
OpenAPI schemas does. Texts are counted in characters, formats that are not known judge nothing.
Source: the validation of custom resources (go-openapi's schema validator under apiextensions), as behaviour.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from haru.kube.custom.formats import check_of
from haru.kube.custom.ratcheting import is_unchanged, item_key, items_by_key
from haru.kube.custom.structural import Structural
from haru.kube.errors import FieldError, duplicate, invalid, not_supported, required, too_long, too_many
from haru.kube.meta import Obj
from haru.kube.patterns import compile_pattern

_INT32, _INT64 = range(-(2**31), 2**31), range(-(2**63), 2**63)
_EXACT = 2**53 - 1
_FLOAT32 = float.fromhex("0x1.fffffep127")
_NOWHERE = "<nil>"
_ABSENT = object()
"""What a value was before, where there was none or nobody can tell which it was."""


def judge(value: Any, schema: Structural, path: str, old: Any = _ABSENT) -> list[FieldError]:
    """Everything that is wrong with a value of an object that has been pruned and defaulted.

    What is as it was in `old` is not judged again (KEP 4008).
    """
    return list(_judge(value, schema, path, old))


def below(error: FieldError, path: str) -> FieldError:
    """Return the finding about a part, judged without a path, of what lies at `path`: only its field says so."""
    detail = f" {error.detail}" if error.detail.startswith("in body") else error.detail
    inner = error.field.removeprefix(".")
    return replace(error, field=f"{path}.{inner}" if inner not in ("", "<nil>") else path, detail=detail)


def validate_object_values(obj: Obj, schema: Structural, old: Obj | None = None) -> list[FieldError]:
    """Validate a whole object; what its schema does not say of its type and metadata is validated elsewhere."""
    return list(_judge_changed(obj, schema, "", _ABSENT if old is None else old))


def _judge(value: Any, schema: Structural, path: str, old: Any) -> Iterator[FieldError]:
    if old is _ABSENT or not is_unchanged(value, old, schema):
        yield from _judge_changed(value, schema, path, old)


def _judge_changed(value: Any, schema: Structural, path: str, old: Any) -> Iterator[FieldError]:
    if value is None and (schema.nullable or _takes_anything(schema)):
        return
    wrong = _type_problem(value, schema, path)
    if wrong is not None:
        yield wrong
    if wrong is None and isinstance(value, list):
        yield from _items(value, schema, path, old)
    # Keywords are for values of one type each: those of a value of the wrong type are judged as well.
    yield from _keywords(value, schema.checks, path, schema.type)
    if wrong is None and isinstance(value, dict):
        before = old if isinstance(old, dict) else {}
        for name, inner in value.items():
            declared = schema.properties.get(name) or schema.additional
            if declared is not None:
                then = before.get(name, _ABSENT)
                place = name if not path and name in schema.properties else f"{path}.{name}"
                yield from _judge(inner, declared, place, then)


def _items(value: Sequence[Any], schema: Structural, path: str, old: Any) -> Iterator[FieldError]:
    if schema.items is None:
        return
    earlier = items_by_key(old, schema)
    for index, item in enumerate(value):
        then = earlier.get(item_key(item, schema), _ABSENT) if earlier else _ABSENT
        yield from _judge(item, schema.items, f"{path}[{index}]", then)


def _takes_anything(schema: Structural) -> bool:
    return not schema.type and not schema.int_or_string


# --- types


def json_type(value: Any) -> str:
    """Return OpenAPI's name of the type of a JSON value."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, str):
        return "string"
    if isinstance(value, int | float):
        return "number" if _is_float(value) else "integer"
    return "array" if isinstance(value, list) else "object"


def _is_float(value: Any) -> bool:
    """Whether Go has a number as a float64, as all that are written with a point or do not fit an int64."""
    return isinstance(value, float) or value not in _INT64


def _is_integer(value: Any) -> bool:
    """Whether a number stands for an integer: a float does as far as each one has a float of its own."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return not _is_float(value) or (float(value).is_integer() and abs(value) <= _EXACT)


def _type_problem(value: Any, schema: Structural, path: str) -> FieldError | None:
    found = json_type(value)
    if schema.int_or_string:
        return None if found == "string" or _is_integer(value) else _not_of_type("integer,string", found, path)
    wanted, form = schema.type, _format_of(schema.type, schema.checks)
    if found == wanted or not (wanted or form):
        return None
    if _is_integer(value) and wanted in ("number", "integer"):
        return None
    if form and value is not None and not isinstance(value, str | list):
        return _not_of_type(form, {"integer": "int64", "number": "float64"}.get(found, ""), path)
    if not wanted or (form and wanted == "string" and isinstance(value, list)):
        return None  # 1.36 looks at texts and lists alike, and a format says nothing of a list
    return _not_of_type(wanted, found, path)


def _format_of(kind: str, checks: Mapping[str, Any]) -> str:
    """The format that counts for a type; one that 1.36 does not know is none. Those of texts need no type."""
    form = checks.get("format") or ""
    if kind in ("", "string"):
        return form if check_of(form) is not None else ""
    known = {"integer": ("int32", "int64"), "number": ("float", "double")}.get(kind, ())
    return form if form in known else ""


def _not_of_type(wanted: str, found: str, path: str) -> FieldError:
    detail = f'{path} in body must be of type {wanted}: "{found}"'
    return FieldError("FieldValueTypeInvalid", path or "<nil>", found, detail.strip())


# --- keywords


def _keywords(value: Any, checks: Mapping[str, Any], path: str, kind: str) -> Iterator[FieldError]:
    """Validate a value by its keywords; those for values of another type do not apply."""
    if not checks and kind != "integer":
        return
    yield from _combinations(value, checks, path)
    if isinstance(value, str):
        yield from _text(value, checks, path, kind)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield from _number(value, checks, path, kind)
    elif isinstance(value, list):
        yield from _list(value, checks, path)
    if "enum" in checks and value not in checks["enum"]:
        yield not_supported(path, value, [_plain(choice) for choice in checks["enum"]])
    if isinstance(value, dict):
        yield from _object(value, checks, path)


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


_BOUNDS = {"multipleOf": "MultipleOf", "minimum": "Minimum boundary", "maximum": "Maximum boundary"}


def _number(value: int | float, checks: Mapping[str, Any], path: str, kind: str) -> Iterator[FieldError]:
    yield from _in_range(value, "Checked", checks, path, kind)
    for name, words in _BOUNDS.items():
        if (bound := checks.get(name)) is None:
            continue
        # A bound is told as a number of 64 bits, and must be of the type that it bounds.
        yield from _in_range(float(bound), words, checks, path, kind)
        if wanted := _missed(name, value, bound, checks):
            yield invalid(path, value, f"{path} in body should be {wanted} {_amount(bound)}")


def _in_range(number: float, words: str, checks: Mapping[str, Any], path: str, kind: str) -> Iterator[FieldError]:
    """Whether a number is one of its type and format."""
    form = _format_of(kind, checks)
    if kind == "integer":
        fits = float(number).is_integer() and int(number) in (_INT32 if form == "int32" else _INT64)
    else:
        fits = form != "float" or abs(number) <= _FLOAT32
    if not fits:
        of = f"with format {form}" if form else "(default format)"
        yield invalid(_NOWHERE, "", f"{words} value must be of type {kind} {of} in {path}")


def _missed(name: str, value: float, bound: Any, checks: Mapping[str, Any]) -> str:
    """What a value should be of a bound that it does not keep."""
    if name == "multipleOf":
        return "" if not bound or _is_multiple(value, bound) else "a multiple of"
    beyond, word = (value < bound, "greater") if name == "minimum" else (value > bound, "less")
    if checks.get(f"exclusive{name.capitalize()}"):
        return f"{word} than" if beyond or value == bound else ""
    return f"{word} than or equal to" if beyond else ""


def _amount(number: float) -> str:
    return str(int(number)) if float(number).is_integer() else repr(number)


def _is_multiple(value: float, step: float) -> bool:
    if isinstance(value, int) and float(step).is_integer():
        return value % int(step) == 0
    ratio = value / step
    return math.isfinite(ratio) and ratio == int(ratio)


def _text(value: str, checks: Mapping[str, Any], path: str, kind: str) -> Iterator[FieldError]:
    most, least, pattern = checks.get("maxLength"), checks.get("minLength"), checks.get("pattern")
    if most is not None and len(value) > most:
        yield too_long(path, most)
    elif least is not None and len(value) < least:
        yield invalid(path, value, f"{path} in body should be at least {least} chars long")
    elif pattern and compile_pattern(pattern).search(value) is None:
        yield invalid(path, value, f"{path} in body should match '{pattern}'")
    check = check_of(form := _format_of(kind, checks))
    if check is not None and not check(value):
        detail = f"{path} in body must be of type {form}: {json.dumps(value, ensure_ascii=False)}"
        yield FieldError("FieldValueTypeInvalid", path or "<nil>", value, detail)


def _list(value: Sequence[Any], checks: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    most, least = checks.get("maxItems"), checks.get("minItems")
    if most is not None and len(value) > most:
        yield too_many(path, len(value), most)
    if least is not None and len(value) < least:
        yield invalid(path, len(value), f"{path} in body should have at least {least} items")


def _object(value: Obj, checks: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    most, least = checks.get("maxProperties"), checks.get("minProperties")
    if most is not None and len(value) > most:
        yield too_many(path, len(value), most)
    if least is not None and len(value) < least:
        yield invalid(path, len(value), f"{path} in body should have at least {least} properties")
    for name in checks.get("required") or ():
        if name not in value:
            yield required(f"{path}.{name}" if path else name)


# --- combinations


def _combinations(value: Any, checks: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    # What no keyword alone is to blame for has no place; its text names one.
    place = _NOWHERE
    found = [judge(value, alternative, path) for alternative in checks.get("allOf") or ()]
    if any(found):
        yield from (error for each in found for error in each)
        more = ". None validated" if all(found) else ""
        yield invalid(place, "", f'"{path}" must validate all the schemas (allOf){more}')
    if checks.get("anyOf"):
        tried = [judge(value, alternative, path) for alternative in checks["anyOf"]]
        if all(tried):
            yield invalid(place, "", f'"{path}" must validate at least one schema (anyOf)')
            yield from _closest(value, checks["anyOf"], tried)
    if checks.get("oneOf"):
        tried = [judge(value, alternative, path) for alternative in checks["oneOf"]]
        fitting = sum(not found for found in tried)
        if fitting != 1:
            words = "Found none valid" if not fitting else f"Found {fitting} valid alternatives"
            yield invalid(place, "", f'"{path}" must validate one and only one schema (oneOf). {words}')
            if not fitting:
                yield from _closest(value, checks["oneOf"], tried)
    if checks.get("not") is not None and not judge(value, checks["not"], path):
        yield invalid(place, "", f'"{path}" must not validate the schema (not)')


def _closest(value: Any, schemas: Sequence[Structural], tried: Sequence[list[FieldError]]) -> list[FieldError]:
    """The findings of the alternative that says most of a value; of the first one where several say as much."""
    said = [_said_of(value, schema) for schema in schemas]
    return tried[said.index(max(said))]


def _said_of(value: Any, schema: Structural) -> int:
    count = int(_type_problem(value, schema, "") is None)
    if isinstance(value, dict):
        declared = [(one, schema.properties.get(name) or schema.additional) for name, one in value.items()]
        count += sum(1 + _said_of(one, inner) for one, inner in declared if inner is not None)
    elif isinstance(value, list) and schema.items is not None:
        count += sum(1 + _said_of(one, schema.items) for one in value)
    return count


# --- lists


def repetitions(value: Any, schema: Structural, path: str) -> Iterator[FieldError]:
    """Items that occur twice in the sets of a value, or keys in its lists with keys."""
    if isinstance(value, dict):
        for name, inner in value.items():
            declared = schema.properties.get(name) or schema.additional
            if declared is not None:
                below = f"{path}.{name}" if name in schema.properties else f"{path}[{name}]"
                yield from repetitions(inner, declared, below.removeprefix("."))
    elif isinstance(value, list):
        if schema.list_type in ("set", "map"):
            yield from _repeated_items(value, schema, path)
        if schema.items is not None:
            for index, item in enumerate(value):
                yield from repetitions(item, schema.items, f"{path}[{index}]")


def _repeated_items(value: Sequence[Any], schema: Structural, path: str) -> Iterator[FieldError]:
    counts: Counter[str] = Counter()
    for index, item in enumerate(value):
        key = item if schema.list_type == "set" else _keys(item, schema)
        text = json.dumps(key, sort_keys=True)
        counts[text] += 1
        if counts[text] == 2:  # more of them are not told
            yield duplicate(f"{path}[{index}]", key)


def _keys(item: Any, schema: Structural) -> Any:
    return {key: item[key] for key in sorted(schema.list_map_keys) if isinstance(item, dict) and key in item}
