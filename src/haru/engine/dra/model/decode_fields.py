"""What the parts of a published device mean: attributes, capacities, counters, taints, as JSON carries them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from haru.engine.dra.model.model import (
    LIST_KINDS,
    PLAIN_KINDS,
    SCALAR_KINDS,
    UNSUPPORTED,
    Attribute,
    Capacity,
    NodeMapping,
    Range,
    Taint,
)
from haru.engine.dra.model.quantities import amount
from haru.kube.quantity import parse_quantity


def attribute(raw: Mapping[str, Any]) -> Attribute:
    """A DeviceAttribute; what no version of the API knows is kept as text."""
    if len(raw) == 1:
        ((kind, value),) = raw.items()
        if kind in PLAIN_KINDS and value is not None:
            return Attribute(kind, value)
    given = [(kind, value) for kind, value in raw.items() if value is not None]
    if len(given) == 1:
        kind, value = given[0]
        if kind in SCALAR_KINDS:
            return Attribute(kind, value)
        if kind in LIST_KINDS:
            return Attribute(kind, tuple(value))
    return Attribute(UNSUPPORTED, json.dumps(raw, sort_keys=True))


def capacity(raw: Mapping[str, Any]) -> Capacity:
    """A DeviceCapacity with its request policy."""
    value, policy = raw.get("value", "0"), raw.get("requestPolicy")
    if not policy:
        return Capacity(amount(value), str(value), policy="" if policy is None else "{}")
    default, limits = policy.get("default"), policy.get("validRange")
    return Capacity(
        value=amount(value),
        text=str(value),
        default=None if default is None else amount(default),
        default_text="" if default is None else str(default),
        valid_range=_range(limits) if limits else None,
        valid_values=tuple((amount(v), str(v)) for v in policy.get("validValues") or ()),
        policy=json.dumps(policy, sort_keys=True),
    )


def _range(raw: Mapping[str, Any]) -> Range:
    def optional(name: str) -> int | None:
        return None if raw.get(name) is None else amount(raw[name])

    return Range(optional("min") or 0, optional("max"), optional("step"))


def counters(raw: Mapping[str, Any]) -> tuple[tuple[str, int], ...]:
    """Counters or what is taken of them, by name."""
    return tuple([(name, amount(raw[name].get("value", "0"))) for name in sorted(raw)])


def taint(raw: Mapping[str, Any]) -> Taint:
    """A DeviceTaint; when it was added plays no part in allocation."""
    return Taint(raw.get("key") or "", raw.get("value") or "", raw.get("effect") or "")


def node_mappings(devices: Sequence[Mapping[str, Any]]) -> dict[str, tuple[NodeMapping, ...]]:
    """How devices count against resources of their node; those that do not are left out."""
    return {
        entry.get("name") or "": tuple(_node_mapping(name, given[name] or {}) for name in sorted(given))
        for entry in devices
        if (given := entry.get("nodeAllocatableResourceMappings"))
    }


def _node_mapping(resource: str, raw: Mapping[str, Any]) -> NodeMapping:
    multiplier = raw.get("allocationMultiplier")
    each = parse_quantity("1" if multiplier is None else multiplier)
    return NodeMapping(resource, raw.get("capacityKey") or "", each)
