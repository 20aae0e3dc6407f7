"""Whether a published schema is structural and means something: the findings that refuse a CustomResourceDefinition.

The schema is walked once. A node stands somewhere (`Place`): at the root, as a member, as an item, or inside a boolean
combination, where nothing may be said but how to judge values.
Source: KEP 2332 and the validation of apiextensions.k8s.io/v1, as behaviour.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from haru.kube.custom.field_paths import is_field_path
from haru.kube.custom.shaping import defaulted, pruned
from haru.kube.custom.structural import parse
from haru.kube.custom.value_validation import judge
from haru.kube.errors import FieldError, forbidden, invalid, not_supported, required
from haru.kube.patterns import PatternError, compile_pattern

Raw = Mapping[str, Any]
Level = Literal["root", "member", "item"]

_TYPES = ("array", "boolean", "integer", "number", "object", "string")
_REASONS = ("FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired")
_UNSUPPORTED = {
    "$ref": "$ref is not supported",
    "additionalItems": "additionalItems is not supported",
    "definitions": "definitions is not supported",
    "dependencies": "dependencies is not supported",
    "id": "id is not supported",
    "patternProperties": "patternProperties is not supported",
}
_EMPTY_TYPE = {
    "root": "must not be empty at the root",
    "item": "must not be empty for specified array items",
    "member": "must not be empty for specified object fields",
}
_NOT_IN_COMBINATIONS = {
    "type": "must be empty to be structural",
    "additionalProperties": "must be undefined to be structural",
    "default": "must be undefined to be structural",
    "title": "must be empty to be structural",
    "description": "must be empty to be structural",
    "nullable": "must be false to be structural",
    "externalDocs": "must be undefined to be structural",
    "x-kubernetes-preserve-unknown-fields": "must be false to be structural",
    "x-kubernetes-embedded-resource": "must be false to be structural",
    "x-kubernetes-int-or-string": "must be false to be structural",
    "x-kubernetes-list-map-keys": "must be empty to be structural",
    "x-kubernetes-list-type": "must be undefined to be structural",
    "x-kubernetes-map-type": "must be undefined to be structural",
    "x-kubernetes-validations": "must be empty to be structural",
}
_INT_OR_STRING = [{"type": "integer"}, {"type": "string"}]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a node of the schema stands. `no_default` says why there may be no default."""

    path: str
    level: Level = "root"
    combined: bool = False
    no_default: str = ""

    def member(self, name: str) -> Place:
        """The place of a declared member."""
        return replace(self, path=f"{self.path}.properties[{name}]", level="member")

    def below(self, word: str, level: Level = "member") -> Place:
        """The place under a keyword."""
        return replace(self, path=f"{self.path}.{word}", level=level)


def check_schema(raw: Raw, path: str) -> list[FieldError]:
    """List the errors in the schema of one version, in the order of the schema."""
    found = list(_node(raw, Place(path)))
    if raw.get("nullable"):
        found.append(forbidden(f"{path}.nullable", "nullable cannot be true at the root"))
    return found + ([] if found else list(_completeness(raw, raw, path, path)))


def _node(raw: Raw, place: Place) -> Iterator[FieldError]:
    yield from _unsupported(raw, place)
    if place.combined:
        yield from _combined(raw, place)
    else:
        yield from _types(raw, place)
        yield from _lists(raw, place)
        yield from _metadata(raw, place)
        yield from _default(raw, place)
        yield from _rules(raw, place)
    yield from _pattern(raw, place)
    yield from _children(raw, place)


def _unsupported(raw: Raw, place: Place) -> Iterator[FieldError]:
    for keyword, why in _UNSUPPORTED.items():
        if raw.get(keyword) not in (None, "", {}, []):
            yield forbidden(f"{place.path}.{keyword}", why)
    if raw.get("uniqueItems"):
        why = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
        yield forbidden(f"{place.path}.uniqueItems", why)
    additional = raw.get("additionalProperties")
    if additional is False or (additional is not None and additional is not True and raw.get("properties")):
        why = "additionalProperties and properties are mutual exclusive"
        if additional is False and not raw.get("properties"):
            why = "additionalProperties cannot be set to false"
        yield forbidden(f"{place.path}.additionalProperties", why)
    if isinstance(raw.get("items"), list):
        yield forbidden(f"{place.path}.items", "items must be a schema object and not an array")


def _combined(raw: Raw, place: Place) -> Iterator[FieldError]:
    for keyword, why in _NOT_IN_COMBINATIONS.items():
        if raw.get(keyword) not in (None, "", False, [], {}):
            yield forbidden(f"{place.path}.{keyword}", why)
    if "metadata" in (raw.get("properties") or {}):
        yield forbidden(f"{place.path}.properties[metadata]", "must not be specified in a nested context")


def _types(raw: Raw, place: Place) -> Iterator[FieldError]:
    path, kind = place.path, raw.get("type") or ""
    anything, mixed = raw.get("x-kubernetes-preserve-unknown-fields"), raw.get("x-kubernetes-int-or-string")
    embedded = raw.get("x-kubernetes-embedded-resource")
    if kind and kind not in _TYPES:
        yield not_supported(f"{path}.type", kind, _TYPES)
    if embedded and kind != "object":
        yield _wanted(f"{path}.type", kind, "must be object if x-kubernetes-embedded-resource is true")
    elif not kind and not anything and not mixed:
        yield required(f"{path}.type", _EMPTY_TYPE[place.level])
    if place.level == "root" and kind and kind != "object":
        yield invalid(f"{path}.type", kind, "must be object at the root")
    if kind == "array" and raw.get("items") is None:
        yield required(f"{path}.items", "must be specified")
    if anything is False:
        yield invalid(f"{path}.x-kubernetes-preserve-unknown-fields", False, "must be true or undefined")
    for keyword in ("x-kubernetes-preserve-unknown-fields", "x-kubernetes-embedded-resource"):
        if mixed and raw.get(keyword):
            yield invalid(f"{path}.{keyword}", True, "must be false if x-kubernetes-int-or-string is true")
    if raw.get("additionalProperties") is not None and (embedded or place.level == "root"):
        where = "at the root" if place.level == "root" else "if x-kubernetes-embedded-resource is set"
        yield forbidden(f"{path}.additionalProperties", f"must not be used {where}")
    if embedded and not anything and not raw.get("properties"):
        why = "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields"
        yield required(f"{path}.properties", why)


def _wanted(path: str, value: Any, why: str) -> FieldError:
    return invalid(path, value, why) if value else required(path, why)


def _lists(raw: Raw, place: Place) -> Iterator[FieldError]:
    path, kind = place.path, raw.get("type") or ""
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
    if list_type == "set" and isinstance(items, dict):
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
        yield required(f"{path}.items", "must have a schema if x-kubernetes-list-type is map")
        return
    kind = items.get("type") or ""
    if kind != "object":
        why = "must be object if parent array's x-kubernetes-list-type is map"
        yield invalid(f"{path}.items.type", kind, why)
        return
    properties = items.get("properties") or {}
    if len(set(keys)) < len(keys):
        yield invalid(f"{path}.x-kubernetes-list-map-keys", list(keys), "must not contain duplicate entries")
    for key in dict.fromkeys(keys):
        if key not in properties:
            why = "entries must all be names of item properties"
            yield invalid(f"{path}.x-kubernetes-list-map-keys", list(keys), why)
            continue
        if (properties[key] or {}).get("type") in ("array", "object"):
            why = "must be a scalar type if parent array's x-kubernetes-list-type is map"
            yield invalid(f"{path}.items.properties[{key}].type", properties[key]["type"], why)
        if "default" not in (properties[key] or {}) and key not in (items.get("required") or ()):
            why = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property"
            yield required(f"{path}.items.properties[{key}].default", why)
        if (properties[key] or {}).get("nullable"):
            why = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable"
            yield forbidden(f"{path}.items.properties[{key}].nullable", why)


def _metadata(raw: Raw, place: Place) -> Iterator[FieldError]:
    """What every object has is known; its name alone may be restricted, and at the root only."""
    properties = raw.get("properties") or {}
    if place.level != "root" and not raw.get("x-kubernetes-embedded-resource"):
        return
    for name in ("kind", "apiVersion"):
        if name in properties and (properties[name] or {}).get("type") != "string":
            value = (properties[name] or {}).get("type") or ""
            yield invalid(f"{place.path}.properties[{name}].type", value, "must be string")
    if "metadata" not in properties:
        return
    metadata, path = properties["metadata"] or {}, f"{place.path}.properties[metadata]"
    if metadata.get("type") != "object":
        yield invalid(f"{path}.type", metadata.get("type") or "", "must be object")
    specified = {name for name, value in metadata.items() if value not in (None, "", [], {}, False)}
    specified -= {"type", "properties", "description", "title"}
    if place.level == "root" and (specified or set(metadata.get("properties") or ()) - {"name", "generateName"}):
        why = "must not specify anything other than name and generateName, but metadata is implicitly specified"
        yield forbidden(path, why)


def _default(raw: Raw, place: Place) -> Iterator[FieldError]:
    value = raw.get("default")
    if value is None:
        return
    path = f"{place.path}.default"
    if place.level == "root":
        yield forbidden(path, "must not be set at the root")
        return
    if place.no_default:
        yield forbidden(path, f"must not be set {place.no_default}")
        return
    schema = parse({**raw, "default": None})
    if isinstance(value, dict):
        kept, unknown = pruned(value, schema)
        if unknown and not schema.embedded:
            yield invalid(path, value, "must not have unknown fields")
            return
        value = defaulted(kept, schema)
    yield from judge(value, schema, path)


def _rules(raw: Raw, place: Place) -> Iterator[FieldError]:
    for index, rule in enumerate(raw.get("x-kubernetes-validations") or ()):
        yield from _rule(rule, f"{place.path}.x-kubernetes-validations[{index}]", raw)


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
    elif _breaks(where):
        yield invalid(f"{path}.fieldPath", where, "must not contain line breaks")
    if where and not is_field_path(where, schema):
        yield invalid(f"{path}.fieldPath", where, "must be a valid path")


def _breaks(text: str) -> bool:
    return "\n" in text or "\r" in text


def _pattern(raw: Raw, place: Place) -> Iterator[FieldError]:
    pattern = raw.get("pattern")
    if not pattern:
        return
    try:
        compile_pattern(pattern)
    except PatternError as error:
        why = f"must be a valid regular expression, but isn't: {error}"
        yield invalid(f"{place.path}.pattern", pattern, why)


def _children(raw: Raw, place: Place) -> Iterator[FieldError]:
    for name, inner in (raw.get("properties") or {}).items():
        below = place.member(name)
        if place.level == "root" and not place.combined and name in ("apiVersion", "kind", "metadata"):
            below = replace(below, no_default=f"in top-level {name}")
        yield from _node(inner or {}, below)
    if isinstance(raw.get("items"), dict):
        yield from _node(raw["items"], place.below("items", "item"))
    if isinstance(raw.get("additionalProperties"), dict):
        yield from _node(raw["additionalProperties"], place.below("additionalProperties"))
    for keyword, index, inner in _alternatives(raw):
        where = keyword if index is None else f"{keyword}[{index}]"
        yield from _node(inner, replace(place.below(where, place.level), combined=True))


def _alternatives(raw: Raw) -> Iterator[tuple[str, int | None, Raw]]:
    """The schemas inside combinations; the one pattern that says "integer or text" once more is left out."""
    mixed = raw.get("x-kubernetes-int-or-string")
    for keyword in ("allOf", "anyOf", "oneOf"):
        alternatives = raw.get(keyword) or ()
        if mixed and keyword == "anyOf" and list(alternatives) == _INT_OR_STRING:
            continue
        for index, inner in enumerate(alternatives):
            if mixed and keyword == "allOf" and not index and inner == {"anyOf": _INT_OR_STRING}:
                continue
            yield keyword, index, inner or {}
    if raw.get("not") is not None:
        yield "not", None, raw["not"]


def _completeness(outer: Raw, structure: Raw, path: str, where: str) -> Iterator[FieldError]:
    """Whatever a combination speaks of has to be specified outside of it, too."""
    for keyword, index, inner in _alternatives(outer):
        place = f"{where}.{keyword}" if index is None else f"{where}.{keyword}[{index}]"
        yield from _specified(inner, structure, path, place)
    if outer is structure:
        for name, below in (outer.get("properties") or {}).items():
            yield from _completeness(
                below or {}, below or {}, f"{path}.properties[{name}]", f"{where}.properties[{name}]"
            )
        for keyword in ("items", "additionalProperties"):
            if isinstance(outer.get(keyword), dict):
                below = outer[keyword]
                yield from _completeness(below, below, f"{path}.{keyword}", f"{where}.{keyword}")


def _specified(inner: Raw, structure: Raw, path: str, where: str) -> Iterator[FieldError]:
    if isinstance(inner.get("items"), dict):
        if not isinstance(structure.get("items"), dict):
            yield required(f"{path}.items", f"because it is defined in {where}.items")
        else:
            yield from _specified(inner["items"], structure["items"], f"{path}.items", f"{where}.items")
    declared = structure.get("properties") or {}
    for name, below in (inner.get("properties") or {}).items():
        if name not in declared:
            why = f"because it is defined in {where}.properties[{name}]"
            yield required(f"{path}.properties[{name}]", why)
        else:
            yield from _specified(
                below or {}, declared[name] or {}, f"{path}.properties[{name}]", f"{where}.properties[{name}]"
            )
    yield from _completeness(inner, structure, path, where)
