"""Whether a schema is structural, and whether its defaults are values of it.

The schema is walked once. A node stands somewhere: at the root, as a member, as an item, or inside a boolean
combination, where nothing may be said but how to judge values.
Source: KEP 2332 and the validation of apiextensions.k8s.io/v1, as behaviour.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from haru.kube import names
from haru.kube.custom.shaping import unknown_members
from haru.kube.custom.structural import Structural, parse
from haru.kube.custom.value_validation import below, judge
from haru.kube.decoding import TypeMismatchError
from haru.kube.errors import FieldError, forbidden, invalid, required
from haru.kube.patterns import PatternError, compile_pattern

Raw = Mapping[str, Any]
Level = Literal["root", "member", "item"]

_COMBINATIONS = ("allOf", "anyOf", "oneOf")
_UNREADABLE = ("id", "$schema", "$ref", "patternProperties", "dependencies", "definitions")
_EMPTY_TYPE = {
    "root": "must not be empty at the root",
    "item": "must not be empty for specified array items",
    "member": "must not be empty for specified object fields",
}
_NOT_IN_COMBINATIONS = {
    "type": "must be empty to be structural",
    "default": "must be undefined to be structural",
    "title": "must be empty to be structural",
    "description": "must be empty to be structural",
    "nullable": "must be false to be structural",
    "x-kubernetes-preserve-unknown-fields": "must be false to be structural",
    "x-kubernetes-embedded-resource": "must be false to be structural",
    "x-kubernetes-int-or-string": "must be false to be structural",
    "x-kubernetes-list-map-keys": "must be empty to be structural",
    "x-kubernetes-validations": "must be empty to be structural",
}
_NOT_IN_COMBINATIONS_AT_ALL = {
    "x-kubernetes-list-type": "must be undefined to be structural",
    "x-kubernetes-map-type": "must be undefined to be structural",
}
_INT_OR_STRING = [{"type": "integer"}, {"type": "string"}]
# What metadata may say at the root; lists that are empty say nothing.
_OF_METADATA = frozenset(("type", "properties", "default"))
_LISTS = frozenset(("enum", *_COMBINATIONS))
UNKNOWN_FIELDS = "must not have unknown fields"
"""Of a default: its rules are asked all the same."""


def below_combinations(raw: Raw) -> Iterator[tuple[str, Raw]]:
    """The schemas inside the boolean combinations of a node, each with the path that leads to it."""
    if raw.get("not") is not None:
        yield "not", raw["not"]
    for keyword in _COMBINATIONS:
        for index, inner in enumerate(raw.get(keyword) or ()):
            yield f"{keyword}[{index}]", inner or {}


def why_not_structural(raw: Raw) -> str:
    """Why a schema cannot be read as a structural one at all; empty where it can."""
    for name in _UNREADABLE:
        if raw.get(name):
            return f"OpenAPIV3Schema '{name}' is not supported"
    if raw.get("additionalItems") is not None:
        return "OpenAPIV3Schema 'additionalItems' is not supported"
    if raw.get("x-kubernetes-preserve-unknown-fields") is False:
        return "internal error: 'x-kubernetes-preserve-unknown-fields' must be true or undefined"
    items, additional = raw.get("items"), raw.get("additionalProperties")
    if isinstance(items, list) and items:
        return "OpenAPIV3Schema 'items' must be a schema, but is an array"
    inner = [below for _, below in below_combinations(raw)]
    inner += [below or {} for below in (raw.get("properties") or {}).values()]
    inner += [below for below in (items, additional) if isinstance(below, dict)]
    return next(filter(None, map(why_not_structural, inner)), "")


def structural_errors(raw: Raw, path: str) -> list[FieldError]:
    """List what keeps a readable schema from being structural."""
    return [*_node(raw, path, "root"), *_completeness(raw, raw, path, path)]


def _node(raw: Raw, path: str, level: Level) -> Iterator[FieldError]:
    yield from _types(raw, path, level)
    yield from _metadata(raw, path, level)
    alternatives = _without_pattern(raw)
    yield from _combinations(alternatives, path)
    yield from _pattern(raw, path)
    for name, inner in (raw.get("properties") or {}).items():
        yield from _node(inner or {}, f"{path}.properties[{name}]", "member")
    if isinstance(raw.get("items"), dict):
        yield from _node(raw["items"], f"{path}.items", "item")
    if isinstance(raw.get("additionalProperties"), dict):
        yield from _node(raw["additionalProperties"], f"{path}.additionalProperties", "member")


def _types(raw: Raw, path: str, level: Level) -> Iterator[FieldError]:
    kind, embedded = raw.get("type") or "", raw.get("x-kubernetes-embedded-resource")
    anything, mixed = raw.get("x-kubernetes-preserve-unknown-fields"), raw.get("x-kubernetes-int-or-string")
    if embedded and kind != "object":
        why = "must be object if x-kubernetes-embedded-resource is true"
        yield invalid(f"{path}.type", kind, why) if kind else required(f"{path}.type", why)
    elif not kind and not anything and not mixed:
        yield required(f"{path}.type", _EMPTY_TYPE[level])
    if level == "root" and kind and kind != "object":
        yield invalid(f"{path}.type", kind, "must be object at the root")
    if kind == "array" and not isinstance(raw.get("items"), dict):
        yield required(f"{path}.items", "must be specified")
    for keyword in ("x-kubernetes-preserve-unknown-fields", "x-kubernetes-embedded-resource"):
        if mixed and raw.get(keyword):
            yield invalid(f"{path}.{keyword}", True, "must be false if x-kubernetes-int-or-string is true")
    if raw.get("additionalProperties") is not None and (embedded or level == "root"):
        where = "at the root" if level == "root" else "if x-kubernetes-embedded-resource is set"
        yield forbidden(f"{path}.additionalProperties", f"must not be used {where}")
    if embedded and not anything and not raw.get("properties"):
        why = "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields"
        yield required(f"{path}.properties", why)


def _metadata(raw: Raw, path: str, level: Level) -> Iterator[FieldError]:
    """What every object has is known; its name alone may be restricted, and at the root only."""
    properties = raw.get("properties") or {}
    if level != "root" and not raw.get("x-kubernetes-embedded-resource"):
        return
    for name, wanted in (("kind", "string"), ("apiVersion", "string"), ("metadata", "object")):
        if name in properties and (properties[name] or {}).get("type") != wanted:
            value = (properties[name] or {}).get("type") or ""
            yield invalid(f"{path}.properties[{name}].type", value, f"must be {wanted}")
    if level != "root" or "metadata" not in properties:
        return
    metadata = properties["metadata"] or {}
    said = [
        name
        for name, value in metadata.items()
        if name not in _OF_METADATA and value not in (None, "", False) and not (name in _LISTS and not value)
    ]
    if said or set(metadata.get("properties") or ()) - {"name", "generateName"}:
        why = "must not specify anything other than name and generateName, but metadata is implicitly specified"
        yield forbidden(f"{path}.properties[metadata]", why)


def _pattern(raw: Raw, path: str) -> Iterator[FieldError]:
    pattern = raw.get("pattern")
    if not pattern:
        return
    try:
        compile_pattern(pattern)
    except PatternError as error:
        yield invalid(f"{path}.pattern", pattern, f"must be a valid regular expression, but isn't: {error}")


# --- boolean combinations


def _without_pattern(raw: Raw) -> Raw:
    """A node without the alternatives that say "integer or text" once more, which may stand there."""
    if raw.get("anyOf") == _INT_OR_STRING:
        return {**raw, "anyOf": []}
    first = (raw.get("allOf") or [None])[0]
    if first and first.get("anyOf") == _INT_OR_STRING:
        return {**raw, "allOf": [{**first, "anyOf": []}, *raw["allOf"][1:]]}
    return raw


def _combinations(raw: Raw, path: str) -> Iterator[FieldError]:
    for where, inner in below_combinations(raw):
        yield from _combined(inner, f"{path}.{where}")


def _combined(raw: Raw, path: str) -> Iterator[FieldError]:
    for keyword, why in _NOT_IN_COMBINATIONS.items():
        if raw.get(keyword) or (keyword == "default" and raw.get(keyword) is not None):
            yield forbidden(f"{path}.{keyword}", why)
    for keyword, why in _NOT_IN_COMBINATIONS_AT_ALL.items():
        if raw.get(keyword) is not None:
            yield forbidden(f"{path}.{keyword}", why)
    if raw.get("additionalProperties") not in (None, False):
        yield forbidden(f"{path}.additionalProperties", "must be undefined to be structural")
    if "metadata" in (raw.get("properties") or {}):
        yield forbidden(f"{path}.properties[metadata]", "must not be specified in a nested context")
    yield from _pattern(raw, path)
    yield from _combinations(raw, path)
    for name, inner in (raw.get("properties") or {}).items():
        yield from _combined(inner or {}, f"{path}.properties[{name}]")
    if isinstance(raw.get("items"), dict):
        yield from _combined(raw["items"], f"{path}.items")


def _completeness(outer: Raw, structure: Raw, path: str, where: str) -> Iterator[FieldError]:
    """Whatever a combination at the root speaks of has to be specified outside of it, too."""
    for keyword, inner in below_combinations(outer):
        yield from _specified(inner, structure, path, f"{where}.{keyword}")


def _specified(inner: Raw, structure: Raw, path: str, where: str) -> Iterator[FieldError]:
    yield from _completeness(inner, structure, path, where)
    if isinstance(inner.get("items"), dict):
        if not isinstance(structure.get("items"), dict):
            yield required(f"{path}.items", f"because it is defined in {where}.items")
        else:
            yield from _specified(inner["items"], structure["items"], f"{path}.items", f"{where}.items")
    declared = structure.get("properties") or {}
    for name, within in (inner.get("properties") or {}).items():
        member = f"properties[{name}]"
        if name not in declared:
            yield required(f"{path}.{member}", f"because it is defined in {where}.{member}")
        else:
            yield from _specified(within or {}, declared[name] or {}, f"{path}.{member}", f"{where}.{member}")


# --- defaults


def has_default(raw: Raw) -> bool:
    """Whether a schema has a default somewhere."""
    inner = [*(raw.get("properties") or {}).values(), raw.get("items"), raw.get("additionalProperties")]
    return raw.get("default") is not None or any(has_default(one) for one in inner if isinstance(one, dict))


def default_errors(raw: Raw, path: str) -> list[FieldError]:
    """List the defaults of a structural schema that are no values of it; the root is an object as a whole."""
    return list(_defaults({**raw, "x-kubernetes-embedded-resource": True}, path))


def _defaults(raw: Raw, path: str) -> Iterator[FieldError]:
    if raw.get("default") is not None:
        yield from _default(raw, f"{path}.default")
    if isinstance(raw.get("items"), dict):
        yield from _defaults(raw["items"], f"{path}.items")
    for name, inner in (raw.get("properties") or {}).items():
        yield from _defaults(inner or {}, f"{path}.properties[{name}]")


def _default(raw: Raw, path: str) -> Iterator[FieldError]:
    value, schema = raw["default"], parse({**raw, "default": None})
    try:
        if unknown_members(value, schema):
            yield invalid(path, value, UNKNOWN_FIELDS)
    except TypeMismatchError as mismatch:
        yield invalid(path, value, str(mismatch))
        return
    yield from list(_resources(value, schema, path)) or [below(error, path) for error in judge(value, schema, "")]


def _resources(value: Any, schema: Structural, path: str) -> Iterator[FieldError]:
    """What is wrong about the type of objects within a value."""
    if isinstance(value, list) and schema.items is not None:
        for index, item in enumerate(value):
            yield from _resources(item, schema.items, f"{path}[{index}]")
    if not isinstance(value, dict):
        return
    if schema.embedded:
        yield from type_problems(value, path)
        if not isinstance(value.get("metadata") or {}, dict):
            yield invalid(f"{path}.metadata", value["metadata"], "must be an object")
    for name, inner in value.items():
        if name in schema.properties:
            yield from _resources(inner, schema.properties[name], f"{path}.{name}")
        elif schema.additional is not None:
            yield from _resources(inner, schema.additional, f"{path}[{name}]")


def type_problems(value: Raw, path: str) -> Iterator[FieldError]:
    """Find what is wrong with the apiVersion and the kind of an embedded object."""
    for name in ("apiVersion", "kind"):
        given = value.get(name)
        if name not in value:
            yield required(f"{path}.{name}")
        elif not isinstance(given, str):
            yield invalid(f"{path}.{name}", given, "must be a string")
        elif not given:
            yield invalid(f"{path}.{name}", given, "must not be empty")
        elif name == "apiVersion" and given.count("/") > 1:
            yield invalid(f"{path}.{name}", given, f"unexpected GroupVersion string: {given}")
        elif name == "kind" and (problems := names.is_dns1035_label(given.lower())):
            why = f"may have mixed case, but should otherwise match: {','.join(problems)}"
            yield invalid(f"{path}.{name}", given, why)
