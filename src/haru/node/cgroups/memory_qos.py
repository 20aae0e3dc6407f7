"""Memory QoS: which memory of pods is protected, and where reclaim starts.

Source: KEP-2570 as of 1.36 (gate MemoryQoS, off by default), formulas and keys as published. Sizes are bytes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from haru.kube.quantity import parse_quantity
from haru.kube.resources import pod_requests
from haru.kube.strategy import qos_class

Obj = Mapping[str, Any]
POLICIES = ("None", "TieredReservation")
DEFAULT_FACTOR = 0.9


@dataclass(frozen=True, slots=True)
class MemoryQos:
    """The effective memory QoS: whether values are written, and whether they protect.

    `as_in_1_36_0` leaves containers without request and limit unthrottled, as that release does; the KEP says
    otherwise, and later releases do.
    """

    enforces: bool
    protects: bool
    factor: float = DEFAULT_FACTOR
    page: int = 4096
    as_in_1_36_0: bool = False


def configured(*, gate: bool, unified: bool, factor: float | None, policy: str, page: int) -> MemoryQos:
    """From the fields of KubeletConfiguration. Raises ValueError with the field, the value and the remedy."""
    if policy not in ("", *POLICIES):
        raise ValueError(f'memoryReservationPolicy: Invalid value: "{policy}": must be one of: {", ".join(POLICIES)}')
    if policy == "TieredReservation" and not gate:
        raise ValueError(
            'memoryReservationPolicy: Invalid value: "TieredReservation": the feature gate MemoryQoS is off: turn it on'
        )
    if gate and factor is None:
        raise ValueError("memoryThrottlingFactor: Required value: the feature gate MemoryQoS is on")
    if factor is not None and not 0 < factor <= 1:
        raise ValueError(f"memoryThrottlingFactor: Invalid value: {factor}: must be more than 0 and at most 1.0")
    enforces = gate and unified
    protects = enforces and policy == "TieredReservation"
    return MemoryQos(enforces, protects, DEFAULT_FACTOR if factor is None else factor, page)


def high_mark(rule: MemoryQos, requested: int, limit: int, allocatable: int) -> int | None:
    """From where on a container's memory is reclaimed (`memory.high`); None for no such mark.

    `limit` is 0 without one; then what the node can give stands for it.
    """
    if requested == limit and (requested > 0 or rule.as_in_1_36_0):
        return None
    most = limit or allocatable
    high = math.floor((requested + rule.factor * (most - requested)) / rule.page) * rule.page
    return high if high > requested else None


def container_values(rule: MemoryQos, pod: Obj, container: Obj, allocatable: int) -> dict[str, str]:
    """Keys of the unified hierarchy for a container; nothing while nothing is enforced."""
    if not rule.enforces:
        return {}
    resources = container.get("resources") or {}
    limit = _memory(resources.get("limits"))
    # Without a request the limit is one; a request of zero is another thing.
    requested = _memory(resources["requests"]) if "memory" in (resources.get("requests") or {}) else limit
    qos = qos_class(dict(pod["spec"]))
    found = {
        "memory.min": str(requested if rule.protects and qos == "Guaranteed" else 0),
        "memory.low": str(requested if rule.protects and qos == "Burstable" else 0),
    }
    high = None if qos == "Guaranteed" else high_mark(rule, requested, limit, allocatable)
    return found if high is None else {**found, "memory.high": str(high)}


def pod_values(rule: MemoryQos, pod: Obj) -> dict[str, str]:
    """Keys for the group of a pod: zeros are written, so that nothing old stays."""
    key = {"Guaranteed": "memory.min", "Burstable": "memory.low"}.get(qos_class(dict(pod["spec"])))
    if not rule.enforces or key is None:
        return {}
    return {key: str(requested_memory(pod) if rule.protects else 0)}


@dataclass(frozen=True, slots=True)
class NodeValues:
    """Keys for the groups above pods; `guaranteed` and `burstable` are what the two gauges tell."""

    root: Mapping[str, str]
    of_burstable: Mapping[str, str]
    guaranteed: int
    burstable: int


def node_values(rule: MemoryQos, pods: Iterable[Obj]) -> NodeValues:
    """What the groups above must protect, so that what is protected below them is: a parent bounds its children."""
    sums = {"Guaranteed": 0, "Burstable": 0, "BestEffort": 0}
    for pod in pods if rule.protects else ():
        sums[qos_class(dict(pod["spec"]))] += requested_memory(pod)
    guaranteed, burstable = sums["Guaranteed"], sums["Burstable"]
    if not rule.enforces:
        return NodeValues({}, {}, 0, 0)
    root = {"memory.min": str(guaranteed + burstable)}
    return NodeValues(root, {"memory.low": str(burstable)}, guaranteed, burstable)


def requested_memory(pod: Obj) -> int:
    """What a pod requests as a whole, overhead included."""
    found = pod_requests(pod).get("memory")
    return found.value() if found is not None else 0


def _memory(listed: Mapping[str, Any] | None) -> int:
    amount = (listed or {}).get("memory")
    return parse_quantity(amount).value() if amount is not None else 0
