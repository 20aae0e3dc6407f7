"""Whether a published schema means something: the findings that refuse a CustomResourceDefinition.

Every node is judged, those inside boolean combinations too. Whether the schema is structural is looked at only where it
can be read as one; a schema that cannot, and of which nothing else is wrong, is refused as a whole.
Source: the validation of apiextensions.k8s.io/v1, as behaviour.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from haru.kube.custom.field_paths import is_field_path
from haru.kube.custom.structural_checks import (
    Raw,
    below_combinations,
    default_errors,
    structural_errors,
    why_not_structural,
)
from haru.kube.errors import FieldError, forbidden, invalid, not_supported, required

_TYPES = ("array", "boolean", "integer", "number", "object", "string")
_REASONS = ("FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired")
# Members by when they are there: with any value, or with one that says something.
_UNSUPPORTED = ("additionalItems", "dependencies", "$ref")
_UNSUPPORTED_IF_GIVEN = ("id", "patternProperties", "definitions")
# Beside a status subresource the root says no more than this.
_WITH_STATUS = frozenset(
    (
        *("description", "type", "format", "title", "maximum", "exclusiveMaximum", "minimum", "exclusiveMinimum"),
        *("maxLength", "minLength", "pattern", "maxItems", "minItems", "uniqueItems", "multipleOf", "required"),
        *("items", "properties", "externalDocs", "example", "x-kubernetes-preserve-unknown-fields"),
        "x-kubernetes-validations",
    )
)

_POINTERS = frozenset(
    ("maxProperties", "minProperties", "x-kubernetes-map-type", "x-kubernetes-list-type", "$ref", "not")
)
"""Members that are there with any value."""


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a node stands, and why it may have no default (empty: it may)."""

    path: str
    no_default: str = ""
    in_metadata: bool = False

    def below(self, word: str) -> _Place:
        return replace(self, path=f"{self.path}.{word}")


def check_schema(raw: Raw, path: str, *, has_status: bool = False) -> list[FieldError]:
    """List the errors in the schema of one version."""
    found = list(_root(raw, path)) if has_status else []
    if raw.get("nullable"):
        found.append(forbidden(f"{path}.nullable", "nullable cannot be true at the root"))
    unreadable = why_not_structural(raw)
    if not unreadable:
        found += structural_errors(raw, path) or default_errors(raw, path)
    found += _node(raw, _Place(path), is_root=True)
    return found if found or not unreadable else [invalid(path, "", unreadable)]


def _root(raw: Raw, path: str) -> Iterator[FieldError]:
    """The first thing that a root beside a status subresource may not say."""
    kind = raw.get("type")
    for name, value in raw.items():
        if name == "type" and kind and kind != "object":
            why = 'only "object" is allowed as the type at the root of the schema if the status subresource is enabled'
            yield invalid(f"{path}.type", kind, why)
            return
        if name not in _WITH_STATUS and (value not in (None, "", False) or (name in _POINTERS and value is not None)):
            why = f"only {sorted(_WITH_STATUS)} fields are allowed at the root if the status subresource is enabled"
            yield invalid(path, "", why)
            return


def _node(raw: Raw, place: _Place, *, is_root: bool = False) -> Iterator[FieldError]:
    yield from _standard(raw, place)
    yield from _lists(raw, place.path)
    yield from _rules(raw, place.path)
    yield from _children(raw, place, is_root=is_root)


def _standard(raw: Raw, place: _Place) -> Iterator[FieldError]:
    """What OpenAPI knows and definitions do not."""
    path, kind = place.path, raw.get("type") or ""
    if kind and kind not in _TYPES:
        yield not_supported(f"{path}.type", kind, _TYPES)
    if kind == "null":
        yield forbidden(f"{path}.type", "type cannot be set to null, use nullable as an alternative")
    if raw.get("default") is not None and place.no_default:
        yield forbidden(f"{path}.default", f"must not be set {place.no_default}")
    given = [name for name in _UNSUPPORTED if raw.get(name) is not None]
    for name in (*given, *(name for name in _UNSUPPORTED_IF_GIVEN if raw.get(name))):
        yield forbidden(f"{path}.{name}", f"{name} is not supported")
    if isinstance(raw.get("items"), list) and raw["items"]:
        yield forbidden(f"{path}.items", "items must be a schema object and not an array")
    if place.in_metadata and raw.get("x-kubernetes-embedded-resource"):
        yield forbidden(f"{path}.x-kubernetes-embedded-resource", "must not be used inside of resource meta")
    if raw.get("uniqueItems"):
        why = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
        yield forbidden(f"{path}.uniqueItems", why)
    additional = raw.get("additionalProperties")
    if additional not in (None, True) and raw.get("properties"):
        yield forbidden(f"{path}.additionalProperties", "additionalProperties and properties are mutual exclusive")
    if raw.get("x-kubernetes-preserve-unknown-fields") is False:
        yield invalid(f"{path}.x-kubernetes-preserve-unknown-fields", False, "must be true or undefined")


def _children(raw: Raw, place: _Place, *, is_root: bool) -> Iterator[FieldError]:
    for name, inner in (raw.get("properties") or {}).items():
        below = place.below(f"properties[{name}]")
        if name in ("apiVersion", "kind", "metadata") and (is_root or raw.get("x-kubernetes-embedded-resource")):
            below = replace(below, in_metadata=True)
            below = replace(below, no_default=f"in top-level {name}") if is_root else below
        yield from _node(inner or {}, below)
    items, additional = raw.get("items"), raw.get("additionalProperties")
    for index, inner in enumerate(items if isinstance(items, list) else ()):
        yield from _node(inner or {}, place.below(f"items[{index}]"))
    if isinstance(items, dict):
        yield from _node(items, place.below("items"))
    if isinstance(additional, dict):
        below = place.below("additionalProperties")
        if place.in_metadata:
            below = replace(below, no_default="inside additionalProperties applying to object metadata")
        yield from _node(additional, below)
    for where, inner in below_combinations(raw):
        yield from _node(inner, place.below(where))
    for word in ("definitions", "dependencies"):
        for name, inner in (raw.get(word) or {}).items():
            if isinstance(inner, dict):
                yield from _node(inner, place.below(f"{word}[{name}]"))


def _wanted(path: str, value: Any, why: str) -> FieldError:
    return invalid(path, value, why) if value else required(path, why)


def _lists(raw: Raw, path: str) -> Iterator[FieldError]:
    kind = raw.get("type") or ""
    map_type, list_type = raw.get("x-kubernetes-map-type"), raw.get("x-kubernetes-list-type")
    keys = raw.get("x-kubernetes-list-map-keys") or []
    if map_type is not None:
        if kind != "object":
            yield _wanted(f"{path}.type", kind, "must be object if x-kubernetes-map-type is specified")
        if map_type not in ("atomic", "granular"):
            yield not_supported(f"{path}.x-kubernetes-map-type", map_type, ("atomic", "granular"))
    if list_type is not None:
        if kind != "array":
            yield _wanted(f"{path}.type", kind, "must be array if x-kubernetes-list-type is specified")
        if list_type not in ("atomic", "set", "map"):
            yield not_supported(f"{path}.x-kubernetes-list-type", list_type, ("atomic", "set", "map"))
    if keys and list_type != "map":
        why = "must be map if x-kubernetes-list-map-keys is non-empty"
        yield _wanted(f"{path}.x-kubernetes-list-type", list_type, why)
    items = raw.get("items")
    if list_type in ("set", "map") and isinstance(items, dict) and items.get("nullable"):
        yield forbidden(f"{path}.items.nullable", f"cannot be nullable when x-kubernetes-list-type is {list_type}")
    if list_type == "set" and kind == "array" and isinstance(items, dict):
        yield from _set_items(items, path)
    if list_type == "map":
        yield from _keyed_items(items, keys, path)


def _set_items(items: Raw, path: str) -> Iterator[FieldError]:
    why = "must be atomic as item of a list with x-kubernetes-list-type=set"
    inner = items.get("x-kubernetes-list-type")
    if items.get("type") == "array" and inner not in (None, "atomic"):
        yield invalid(f"{path}.items.x-kubernetes-list-type", inner, why)
    if items.get("type") == "object" and items.get("x-kubernetes-map-type") != "atomic":
        yield invalid(f"{path}.items.x-kubernetes-map-type", items.get("x-kubernetes-map-type"), why)


def _keyed_items(items: Any, keys: Sequence[str], path: str) -> Iterator[FieldError]:
    if not keys:
        why = "must not be empty if x-kubernetes-list-type is map"
        yield required(f"{path}.x-kubernetes-list-map-keys", why)
    if not isinstance(items, dict):
        if items is None:
            yield required(f"{path}.items", "must have a schema if x-kubernetes-list-type is map")
        else:
            yield invalid(f"{path}.items", items, "must only have a single schema if x-kubernetes-list-type is map")
        return
    kind, properties = items.get("type") or "", items.get("properties") or {}
    if kind != "object":
        why = "must be object if parent array's x-kubernetes-list-type is map"
        yield invalid(f"{path}.items.type", kind, why)
    else:
        yield from _key_types(properties, keys, path)
    for key in keys:
        if key not in properties:
            continue
        here, member = f"{path}.items.properties[{key}]", properties[key] or {}
        if member.get("default") is None and key not in (items.get("required") or ()):
            why = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property"
            yield required(f"{here}.default", why)
        if member.get("nullable"):
            why = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable"
            yield forbidden(f"{here}.nullable", why)


def _key_types(properties: Raw, keys: Sequence[str], path: str) -> Iterator[FieldError]:
    place = f"{path}.x-kubernetes-list-map-keys"
    if len(set(keys)) < len(keys):
        yield invalid(place, list(keys), "must not contain duplicate entries")
    for key in keys:
        if key not in properties:
            yield invalid(place, list(keys), "entries must all be names of item properties")
        elif (properties[key] or {}).get("type") in ("array", "object"):
            why = "must be a scalar type if parent array's x-kubernetes-list-type is map"
            yield invalid(f"{path}.items.properties[{key}].type", properties[key]["type"], why)


def _rules(raw: Raw, path: str) -> Iterator[FieldError]:
    for index, rule in enumerate(raw.get("x-kubernetes-validations") or ()):
        yield from _rule(rule, f"{path}.x-kubernetes-validations[{index}]", raw)


def _rule(rule: Raw, path: str, schema: Raw) -> Iterator[FieldError]:
    text, message = str(rule.get("rule") or ""), str(rule.get("message") or "")
    if not text.strip():
        yield required(f"{path}.rule", "rule is not specified")
    elif message and not message.strip():
        yield invalid(f"{path}.message", message, "must be non-empty if specified")
    elif _breaks(message.strip()):
        yield invalid(f"{path}.message", message, "must not contain line breaks")
    elif _breaks(text.strip()) and not message.strip():
        yield required(f"{path}.message", "message must be specified if rule contains line breaks")
    computed, where = rule.get("messageExpression") or "", str(rule.get("fieldPath") or "")
    if computed and not computed.strip():
        yield required(f"{path}.messageExpression", "messageExpression must be non-empty if specified")
    reason = rule.get("reason")
    if reason is not None and reason not in _REASONS:
        yield not_supported(f"{path}.reason", reason, _REASONS)
    if where and not where.strip():
        yield invalid(f"{path}.fieldPath", where, "must be non-empty if specified")
    if _breaks(where):
        yield invalid(f"{path}.fieldPath", where, "must not contain line breaks")
    if where and not why_not_structural(schema) and not is_field_path(where, schema):
        yield invalid(f"{path}.fieldPath", where, "must be a valid path")


def _breaks(text: str) -> bool:
    return "\n" in text or "\r" in text
