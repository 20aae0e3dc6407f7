"""What the allocator knows of slices and devices: typed, frozen, decoded once per version of a slice.

A `Slice` holds `Device`s; what many devices have in common (attributes, capacity, consumption, taints, placement) is
interned by value, so that equal devices share one `Shape` and a cluster of 200,000 devices stays small. Interned
objects compare by identity.
Source: resource.k8s.io/v1 ResourceSlice (KEP-4381, 4815, 5007, 5055, 5075, 5517).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

from haru.cel.libraries import Semver, parse_semver
from haru.kube.meta import Obj
from haru.kube.quantity import Quantity

PLAIN_KINDS = frozenset(("int", "bool", "string"))
SCALAR_KINDS = ("int", "bool", "string", "version")
LIST_KINDS = {"ints": "int", "bools": "bool", "strings": "string", "versions": "version"}
VERSION, UNSUPPORTED = "version", "?"
new_tuple = tuple.__new__
"""Makes named tuples past their constructors, which take twice as long."""


class DeviceId(NamedTuple):
    """A device's identity, independent of the slice that publishes it."""

    driver: str
    pool: str
    device: str

    def __str__(self) -> str:
        return f"{self.driver}/{self.pool}/{self.device}"


class PoolKey(NamedTuple):
    """A pool's identity: pool names are unique per driver only."""

    driver: str
    pool: str

    def __str__(self) -> str:
        return f"{self.driver}/{self.pool}"


class NodeView(NamedTuple):
    """What the allocator needs to know of a node."""

    name: str
    labels: Mapping[str, str]


class Attribute(NamedTuple):
    """One attribute value. `kind` is the JSON member; lists are tuples; what no version knows is kept as JSON text."""

    kind: str
    value: str | int | bool | tuple[str | int | bool, ...]

    @property
    def may_fail(self) -> bool:
        """Whether it may fail any expression: versions that are none, lists, and what no version of the API knows."""
        return self.kind not in PLAIN_KINDS and (self.kind != VERSION or version_of(self.value) is None)

    @property
    def raw(self) -> Obj:
        """The value as the API carries it."""
        if self.kind == UNSUPPORTED:
            loaded: Obj = json.loads(str(self.value))
            return loaded
        return {self.kind: list(self.value) if isinstance(self.value, tuple) else self.value}


@lru_cache(maxsize=4096)
def version_of(text: Any) -> Semver | None:
    """What an attribute of kind `version` is to an expression; None if it is no semantic version."""
    try:
        return parse_semver(text)
    except ValueError:
        return None


class Range(NamedTuple):
    """The amounts that a share may take: from `minimum` in steps, up to `maximum`."""

    minimum: int
    maximum: int | None
    step: int | None


class Capacity(NamedTuple):
    """One capacity and how shares may take from it, in billionths; `text` is the value as published."""

    value: int
    text: str
    default: int | None = None
    default_text: str = ""
    valid_range: Range | None = None
    valid_values: tuple[tuple[int, str], ...] = ()
    policy: str = ""


_NO_SHARES: dict[Any, Any] = {}


class Shape:
    """What selectors and constraints see of a device. Interned: equal devices have the same one. Never changed.

    `by_name` has the attributes as published, `amounts` the capacities; `policies` says whether some capacity has a
    policy for how much of it is given out. `faulty` are the attributes that may fail any expression.
    """

    __slots__ = ("amounts", "attributes", "by_name", "capacity", "driver", "faulty", "policies", "shareable", "shares")

    def __init__(
        self,
        driver: str,
        attributes: tuple[tuple[str, Attribute], ...],
        capacity: tuple[tuple[str, Capacity], ...],
        shareable: bool,
        plain: bool = False,
        like: Shape | None = None,
    ) -> None:
        """`plain` says that no attribute is faulty, where that is known already; `like` has the same capacity."""
        self.driver = driver
        self.attributes = attributes
        self.capacity = capacity
        self.shareable = shareable
        self.shares = _NO_SHARES
        """What shares take of the capacities, by request, as far as it was computed (`consumable_capacity.share`)."""
        self.by_name = dict(attributes)
        if like is None:
            self.amounts = dict(capacity)
            self.policies = any(amount.policy for _, amount in capacity)
        else:
            self.amounts, self.policies = like.amounts, like.policies
        self.faulty = () if plain else tuple([pair for pair in attributes if pair[1].may_fail])

    def attribute(self, name: str) -> Attribute | None:
        """An attribute by its fully qualified name; one published without domain belongs to the driver's."""
        found = self.by_name.get(name)
        if found is None:
            domain, _, short = name.rpartition("/")
            if domain == self.driver:
                found = self.by_name.get(short)
        return found


@dataclass(frozen=True, slots=True)
class Taint:
    """A device taint; `None` and unknown effects prevent nothing."""

    key: str
    value: str
    effect: str

    @property
    def repels(self) -> bool:
        """Whether the taint keeps requests away that do not tolerate it."""
        return self.effect in ("NoSchedule", "NoExecute")

    def __str__(self) -> str:
        return f"{self.key}={self.value}:{self.effect}" if self.value else f"{self.key}:{self.effect}"


@dataclass(frozen=True, slots=True)
class Binding:
    """What has to come true before a pod is bound to a device (KEP-5007)."""

    conditions: tuple[str, ...]
    failure_conditions: tuple[str, ...]
    binds_to_node: bool


@dataclass(slots=True, eq=False)
class Placement:
    """Where a slice or device can be used: one node, all nodes, those that a selector matches, or unknown.

    Never changed (a frozen class takes long to make).
    """

    node_name: str = ""
    all_nodes: bool = False
    selector: Obj | None = None


class Consumption(NamedTuple):
    """What a device takes from one counter set; `amounts` is interned apart from the set's name."""

    counter_set: str
    amounts: tuple[tuple[str, int], ...]


@dataclass(slots=True, eq=False)
class Device:
    """One device of a slice. `shape` is shared by equal devices. Never changed (a frozen class takes long to make)."""

    name: str
    shape: Shape
    consumes: tuple[Consumption, ...]
    taints: tuple[Taint, ...]
    binding: Binding | None
    placement: Placement | None


class PlainDevices(tuple[Device, ...]):
    """Devices of a slice of which only plain attributes and capacities that are taken whole tell anything.

    They are of one driver, consume no counters, and have neither taints nor conditions nor places of their own.
    """

    __slots__ = ()


class CounterSet(NamedTuple):
    """Counters that devices of the pool share."""

    name: str
    counters: tuple[tuple[str, int], ...]


class NodeMapping(NamedTuple):
    """How a device counts against a resource of its node: per device, or per unit of a capacity (KEP-5517)."""

    resource: str
    capacity: str
    multiplier: Quantity


Mappings = Mapping[str, tuple[NodeMapping, ...]]
NO_MAPPINGS: Mappings = {}


@dataclass(slots=True, eq=False, weakref_slot=True)
class Slice:
    """One ResourceSlice. `per_device` means that each device has a placement of its own. Never changed.

    `mappings` has the devices that count against resources of their node, by name.
    """

    name: str
    pool: PoolKey
    generation: int
    slice_count: int
    placement: Placement
    per_device: bool
    devices: tuple[Device, ...]
    counter_sets: tuple[CounterSet, ...]
    mappings: Mappings = field(default_factory=lambda: NO_MAPPINGS)


@dataclass(frozen=True, slots=True)
class DeviceClass:
    """A DeviceClass: its selectors (None is one of a kind not known here) and the configuration it adds."""

    name: str
    selectors: tuple[str | None, ...]
    config: tuple[Obj, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Features:
    """The optional behaviours of the allocator; each stands for one gate of Kubernetes 1.36, with its default."""

    AdminAccess: bool = True
    ConsumableCapacity: bool = True
    DeviceBindingAndStatus: bool = True
    DeviceTaints: bool = True
    ListTypeAttributes: bool = False
    PartitionableDevices: bool = True
    PrioritizedList: bool = True

    def __hash__(self) -> int:
        # It is part of many keys, and hardly any process knows two of them.
        return self.ListTypeAttributes + 2 * self.ConsumableCapacity

    @classmethod
    def from_gates(cls, enabled: Mapping[str, bool]) -> Features:
        """The features that a map of gate names switches; a gate that is not named keeps its default."""

        def on(gate: str, default: bool) -> bool:
            return enabled.get(gate, default)

        return cls(
            AdminAccess=on("DRAAdminAccess", True),
            ConsumableCapacity=on("DRAConsumableCapacity", True),
            DeviceBindingAndStatus=on("DRADeviceBindingConditions", True) and on("DRAResourceClaimDeviceStatus", True),
            DeviceTaints=on("DRADeviceTaints", True),
            ListTypeAttributes=on("DRAListTypeAttributes", False),
            PartitionableDevices=on("DRAPartitionableDevices", True),
            PrioritizedList=on("DRAPrioritizedList", True),
        )
