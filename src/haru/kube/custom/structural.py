"""Structural schemas: what a CustomResourceDefinition says of its objects, in a form that can be walked.

A structural schema gives every part of an object a type apart from the boolean combinations (`allOf`, `not`, …), which
only judge values. That is what makes pruning, defaults and merging possible without trying alternatives.
Source: KEP 2332; apiextensions.k8s.io/v1 JSONSchemaProps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from haru.kube.meta import Obj

_NOTHING: Mapping[str, Any] = MappingProxyType({})

VALUE_CHECKS = (
    "enum",
    "exclusiveMaximum",
    "exclusiveMinimum",
    "format",
    "maxItems",
    "maxLength",
    "maxProperties",
    "maximum",
    "minItems",
    "minLength",
    "minProperties",
    "minimum",
    "multipleOf",
    "pattern",
    "required",
    "uniqueItems",
)
"""The keywords that judge one value by itself."""
COMBINATIONS = ("allOf", "anyOf", "oneOf")


@dataclass(frozen=True, slots=True, eq=False)
class Structural:
    """One node of a structural schema.

    `type` is empty where anything goes (`x-kubernetes-preserve-unknown-fields`) or for integers that may be texts.
    `additional` is the schema of a map's values; `open` allows any further member, of any form.
    """

    type: str = ""
    properties: Mapping[str, Structural] = field(default_factory=lambda: _NOTHING)
    additional: Structural | None = None
    open: bool = False
    items: Structural | None = None
    nullable: bool = False
    default: Any = None
    preserves_unknown: bool = False
    embedded: bool = False
    int_or_string: bool = False
    list_type: str = ""
    list_map_keys: tuple[str, ...] = ()
    map_type: str = ""
    checks: Mapping[str, Any] = field(default_factory=lambda: _NOTHING)
    """Keywords that judge values, as published; the schemas of combinations are parsed: they may name types."""
    rules: tuple[Obj, ...] = ()
    """`x-kubernetes-validations`."""
    has_keyed_lists: bool = field(init=False, default=False)
    """Whether a value may be, or hold, a list whose items have keys."""
    has_undeclared: bool = field(init=False, default=False)
    """Whether a value may have, or hold, members that the schema does not declare."""

    def __post_init__(self) -> None:
        below = [*self.properties.values(), *(one for one in (self.additional, self.items) if one is not None)]
        keyed = self.list_type == "map" or any(one.has_keyed_lists for one in below)
        undeclared = self.preserves_unknown or self.open or self.embedded
        object.__setattr__(self, "has_keyed_lists", keyed)
        object.__setattr__(self, "has_undeclared", undeclared or any(one.has_undeclared for one in below))

    @property
    def has_default(self) -> bool:
        """Whether there is a default; null is none."""
        return self.default is not None

    @property
    def is_map(self) -> bool:
        """Whether the members are data, not declared by name."""
        return self.additional is not None or self.open


ANYTHING: Final = Structural(preserves_unknown=True, nullable=True)
"""The schema of an object of which nothing is said."""


def parse(raw: Mapping[str, Any]) -> Structural:
    """A schema as published; one that is not structural is read as far as it makes sense (it is refused elsewhere)."""
    additional = raw.get("additionalProperties")
    items = raw.get("items")
    checks = {name: raw[name] for name in VALUE_CHECKS if raw.get(name) is not None}
    checks |= {name: tuple(parse(inner or {}) for inner in raw[name]) for name in COMBINATIONS if raw.get(name)}
    if raw.get("not") is not None:
        checks["not"] = parse(raw["not"])
    return Structural(
        type=str(raw.get("type") or ""),
        properties={str(name): parse(inner or {}) for name, inner in (raw.get("properties") or {}).items()},
        additional=parse(additional) if isinstance(additional, dict) else None,
        open=additional is True,
        items=parse(items) if isinstance(items, dict) else None,
        nullable=bool(raw.get("nullable")),
        default=raw.get("default"),
        preserves_unknown=bool(raw.get("x-kubernetes-preserve-unknown-fields")),
        embedded=bool(raw.get("x-kubernetes-embedded-resource")),
        int_or_string=bool(raw.get("x-kubernetes-int-or-string")),
        list_type=str(raw.get("x-kubernetes-list-type") or ""),
        list_map_keys=tuple(raw.get("x-kubernetes-list-map-keys") or ()),
        map_type=str(raw.get("x-kubernetes-map-type") or ""),
        checks=checks,
        rules=tuple(raw.get("x-kubernetes-validations") or ()),
    )
