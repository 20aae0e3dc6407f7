"""Why devices are refused: plain data that the decisions and explanations of the rooms above wrap."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

RefusalType = Literal[
    "DevicesUnavailable",
    "NoDevices",
    "ClassMismatch",
    "SelectorMismatch",
    "DeviceTainted",
    "DevicesTaken",
    "CountersExhausted",
    "CapacityExceeded",
    "ConstraintUnsatisfied",
    "AlternativesExhausted",
    "PoolIncomplete",
    "PoolInvalid",
    "OutsidePartition",
    "BindingConditionsDisabled",
    "DeviceClassMissing",
    "SelectorError",
    "RequestInvalid",
    "TooManyDevices",
]

StageName = Literal[
    "devices", "offered", "class", "selector", "node", "capacity", "taints", "free", "counters", "constraints"
]
"""The stages of a funnel, in the order of the conditions (`allocator.conditions`):

devices      in the complete, sound pools that the node sees
offered      without binding conditions that a gate switches off, without counters that one does
class        one stage per selector of the device class
selector     one stage per selector of the request
node         usable on this node, where devices say so one by one
capacity     the requested capacity fits beside what shares consume
taints       no taint that repels the request
free         not held by a claim
counters     the counters that the device consumes suffice
constraints  the most devices that can be had together under the claim's constraints
"""

REFUSAL_TYPES: Mapping[str, RefusalType] = {
    "devices": "NoDevices",
    "offered": "BindingConditionsDisabled",
    "class": "ClassMismatch",
    "selector": "SelectorMismatch",
    "node": "NoDevices",
    "capacity": "CapacityExceeded",
    "taints": "DeviceTainted",
    "free": "DevicesTaken",
    "counters": "CountersExhausted",
    "constraints": "ConstraintUnsatisfied",
}
"""The refusal of a request for which too few devices are left after a stage."""


@dataclass(frozen=True, slots=True)
class DeviceRefusal:
    """One cause: a type of the engine's closed list, a sentence, and the numbers and names behind it."""

    type: RefusalType
    message: str
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Stage:
    """How many devices are left after a condition, and what is known of those that it kept back.

    `data` holds, by stage: `expression`, `failed`, `errors`, `sample`, `values` (class, selector); `taints`
    (taint -> devices); `holders` (claim -> devices; free, counters); `exhausted` (counter -> devices; counters).
    `dropped` are the positions that the condition kept back, in the order in which the node's devices are tried.
    """

    name: StageName
    left: int
    data: Mapping[str, Any] = field(default_factory=dict)
    dropped: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class RequestFunnel:
    """How one request, or one alternative of it, narrows the node's devices down; `refusal` is None if enough stay.

    `needed` is None where all devices are asked for: then those that are selected are needed, and all of them.
    `kept` are the positions that meet every condition that a device meets or breaks by itself; `together` is how many
    of them can be had at once, taken one after the other, as far as counters and constraints go.
    """

    claim: str
    request: str
    device_class: str
    needed: int | None
    stages: tuple[Stage, ...]
    refusal: DeviceRefusal | None
    kept: tuple[int, ...] = ()
    together: int = 0

    @property
    def left(self) -> int:
        """How many devices meet every condition."""
        return self.stages[-1].left if self.stages else 0


@dataclass(frozen=True, slots=True)
class NodeFunnel:
    """One node: its pools, the funnel of each request in order, and why the claims do not fit, most telling first.

    `refusals` is empty if every request could be served for itself; that they cannot all be is then for the allocator
    to say.
    """

    node: str
    devices: int
    incomplete_pools: tuple[str, ...]
    invalid_pools: Mapping[str, str]
    requests: tuple[RequestFunnel, ...]
    refusals: tuple[DeviceRefusal, ...]
