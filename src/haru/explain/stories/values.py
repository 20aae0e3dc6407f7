"""What is told of nodes and devices, as values: their state, what is held, what is free, and who waits for it.

Open       it takes pods
Full       it takes pods, but all of its devices are held, or no room is left
Stranded   devices are free, and what waits for them is kept away by something else that the node lacks
Closed     it takes no new pods: cordoned or tainted
Absent     pods are bound to it, or devices are published for it, and it does not exist
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from haru.engine import Reason
from haru.explain.card_counts import CardCounts
from haru.explain.explanation import Holder

NodeState = Literal["Open", "Full", "Stranded", "Closed", "Absent"]
DeviceStatus = Literal["Free", "Held", "Shared", "Blocked", "Tainted", "Unusable"]


@dataclass(frozen=True, slots=True)
class Amount:
    """One resource of a node (cpu in thousandths)."""

    resource: str
    allocatable: int
    used: int

    @property
    def free(self) -> int:
        """What is left."""
        return max(0, self.allocatable - self.used)


@dataclass(frozen=True, slots=True)
class Draw:
    """What a device takes of one counter of its pool when it is given out, and what there is of it (billionths)."""

    counter: str
    needs: int
    left: int
    total: int


@dataclass(frozen=True, slots=True)
class DeviceState:
    """One device now: who holds it (or parts of it), or whose parts of the same hardware block it, by which counters.

    Held      a claim holds it as a whole
    Shared    claims hold shares of it, and there may be room for more
    Blocked   what it would take of its pool's counters is taken by others
    Tainted   free, with a taint that repels what does not tolerate it
    Unusable  free, but its pool cannot be used: slices are missing, or contradict each other
    """

    driver: str
    pool: str
    device: str
    product: str
    status: DeviceStatus
    holders: tuple[Holder, ...] = ()
    taints: tuple[str, ...] = ()
    draws: tuple[Draw, ...] = ()

    @property
    def path(self) -> str:
        """Its identity."""
        return f"{self.driver}/{self.pool}/{self.device}"


@dataclass(frozen=True, slots=True)
class Wanting:
    """Work that waits, and what keeps it from a node or a device: nothing, if `takes`.

    `pods` of it wait; `room` is how many of them the node could take.
    """

    kind: str
    namespace: str
    name: str
    pods: int
    priority: int
    takes: bool
    reasons: tuple[Reason, ...]
    requests: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """How a person calls it."""
        where = "" if self.namespace == "default" else f"{self.namespace}/"
        return f"{where}{self.kind.lower()}/{self.name}"


@dataclass(frozen=True, slots=True)
class NodeStoryData:
    """A node: what it has, who uses it, and why what waits does not. `more_waiting` units are not told of.

    `cards` are those that its slices publish; None if there are none.
    """

    name: str
    state: NodeState
    summary: str
    reasons: tuple[Reason, ...]
    resources: tuple[Amount, ...] = ()
    devices: tuple[DeviceState, ...] = ()
    workloads: tuple[Holder, ...] = ()
    waiting: tuple[Wanting, ...] = ()
    more_waiting: int = 0
    cards: CardCounts | None = None


@dataclass(frozen=True, slots=True)
class DeviceStoryData:
    """A device: who holds it, what blocks it, what it blocks, and why what waits for such devices does not get it.

    `nodes` can use it, as far as they are told; `beside` are parts of the same hardware: devices that draw on the same
    counters. `rules` are the DeviceTaintRules behind taints.
    """

    state: DeviceState
    summary: str
    reasons: tuple[Reason, ...]
    nodes: tuple[str, ...] = ()
    attributes: Mapping[str, object] = field(default_factory=dict)
    capacity: Mapping[str, str] = field(default_factory=dict)
    rules: Mapping[str, str] = field(default_factory=dict)
    beside: tuple[DeviceState, ...] = ()
    waiting: tuple[Wanting, ...] = ()
    more_waiting: int = 0
