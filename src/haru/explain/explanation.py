"""The answer as a value; texts and JSON are made from it at the very end.

Runs        it has its place and runs, or has run to its end
Starting    it has its place, or one is free for it, and only time is missing
FitsLater   it waits for something that comes by itself: work that ends, a claim that a controller makes
FitsIf      it waits for somebody to change something
NeverFits   what exists cannot serve it, even if nothing else ran and nothing were tainted or cordoned
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from haru.engine import Reason
from haru.kube.meta import Obj

Verdict = Literal["Runs", "Starting", "FitsLater", "FitsIf", "NeverFits"]


@dataclass(frozen=True, slots=True)
class PodsAsked:
    """So many pods ask for so much of each resource (cpu in thousandths)."""

    pods: int
    resources: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Asked:
    """One request, or one alternative of it, in total for the unit: `claims` claims want `count` devices each.

    `count` is None where all devices are asked for. `alternative` is true if another one would do as well. `resource`
    is the extended resource that the request stands for, if it is one of those (KEP-5004).
    """

    request: str
    claims: int
    count: int | None
    device_class: str
    selectors: tuple[str, ...] = ()
    capacity: Mapping[str, str] = field(default_factory=dict)
    admin: bool = False
    alternative: bool = False
    resource: str = ""

    @property
    def title(self) -> str:
        """The request's name, with the extended resource that its author wrote instead."""
        return f"{self.request} ({self.resource})" if self.resource else self.request

    @property
    def devices(self) -> int | None:
        """How many devices that makes."""
        return None if self.count is None else self.claims * self.count


@dataclass(frozen=True, slots=True)
class Holder:
    """Work that holds devices: the workload that its pods belong to, or the claim if nobody uses that.

    `idle` is how many devices of its claims are known to idle; None where nobody says how busy they are.
    """

    name: str
    namespace: str
    devices: int
    pods: tuple[str, ...]
    claims: tuple[str, ...]
    priority: int | None
    since: str
    idle: int | None = None


@dataclass(frozen=True, slots=True)
class FunnelStage:
    """One condition, counted over the whole cluster: `dropped` devices break it, `left` are still in the race.

    `expression`, `values` (what the expression read: how many devices), `errors` and `error` belong to selectors;
    `taints` (taint: devices) and `where` (device on node) to taints; `holders` to devices that are taken, whole or in
    part, the first hundred of them, and `unnamed` how many workloads with how many devices that leaves out; `counters`
    (counter: devices) to those that are taken in part; `nodes` (why: devices) to devices on nodes that the pod cannot
    use.
    """

    stage: str
    left: int
    dropped: int
    expression: str = ""
    values: tuple[tuple[Mapping[str, object], int], ...] = ()
    errors: int = 0
    error: str = ""
    taints: Mapping[str, int] = field(default_factory=dict)
    where: tuple[str, ...] = ()
    holders: tuple[Holder, ...] = ()
    unnamed: tuple[int, int] = (0, 0)
    counters: Mapping[str, int] = field(default_factory=dict)
    nodes: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Funnel:
    """How the cluster's devices narrow down for one request, without the unit's own tentative placements.

    `needed` is for the whole unit; `free` are left after all conditions. `short` is how many are missing, or None
    where devices do not count one by one: all are asked for, or several claims may share one. `error` is what is wrong
    with the request itself.
    """

    asked: Asked
    needed: int | None
    devices: int
    stages: tuple[FunnelStage, ...]
    free: int
    short: int | None
    error: str = ""
    claim: str = ""
    most_on_node: int | None = None
    """How many devices that match one node has at most, whoever holds them; None if there are no nodes with devices."""


@dataclass(frozen=True, slots=True)
class DeviceCounts:
    """Devices of a group of nodes that the request selects, and what keeps them back."""

    selected: int
    tainted: int
    taken: int
    partly_taken: int
    free: int

    @property
    def other(self) -> int:
        """How many something else keeps back."""
        return self.selected - self.tainted - self.taken - self.partly_taken - self.free


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """Nodes that answer alike: `reasons` are those of the nodes that refuse one more pod, if any of them does.

    `room` is how many of the unit's pods the others could take together, None if all refuse. `left` is the most that
    one of them has left of each resource that is too little.
    """

    count: int
    examples: tuple[str, ...]
    text: str
    reasons: tuple[Reason, ...]
    devices: DeviceCounts | None = None
    room: int | None = None
    left: Mapping[str, int] = field(default_factory=dict)


MAX_SCORE = 100
"""The most that a plugin gives a node, before its weight."""


@dataclass(frozen=True, slots=True)
class ScorePart:
    """What one score plugin gives a node: 0 to 100, `weight` times; `reason` is what it gives more for."""

    plugin: str
    score: int
    weight: int
    reason: str

    @property
    def points(self) -> int:
        """What counts of it."""
        return self.score * self.weight

    @property
    def most(self) -> int:
        """The most that could."""
        return MAX_SCORE * self.weight


@dataclass(frozen=True, slots=True)
class NodeScore:
    """How well a node suits a pod that has its place: the sum of its parts; `here` is its own."""

    node: str
    score: int
    here: bool
    parts: tuple[ScorePart, ...] = ()


@dataclass(frozen=True, slots=True)
class Remedy:
    """A change that would help. `cost` orders remedies; `costs` says in words what it takes from whom.

    `changes` are objects to create or delete and patches to apply: `{"action": …, "object": …}` or, for patches,
    `{"action": "patch", "target": …, "patch": …}`. `confirmed` says that with them the answer is yes.
    """

    kind: str
    summary: str
    changes: tuple[Obj, ...]
    cost: int
    confirmed: bool
    costs: str = ""
    command: str = ""

    def not_enough(self, yet: str) -> Remedy:
        """The same where it helps only once something else is so."""
        return replace(self, confirmed=False, costs=f"{self.costs}; and only once {yet}".removeprefix("; "))


@dataclass(frozen=True, slots=True)
class HeldDevice:
    """A device that a claim has."""

    request: str
    driver: str
    pool: str
    device: str
    product: str
    admin: bool = False


@dataclass(frozen=True, slots=True)
class HeldClaim:
    """An allocated claim: its devices, where they can be used, and who uses them."""

    claim: str
    node: str
    devices: tuple[HeldDevice, ...]
    users: tuple[str, ...]
    since: str = ""


@dataclass(frozen=True, slots=True)
class Later:
    """The running pods that have to end first, by path, so that the work starts earliest, and by when they have.

    `until` (RFC 3339) is empty where some of them have no run-time limit.
    """

    pods: tuple[str, ...]
    until: str = ""


@dataclass(frozen=True, slots=True)
class ExplanationSummary:
    """An object's verdict and the reasons for it. `age_seconds` is how long it has waited, if that was asked.

    `unread` are the kinds that may not be read: the answer is without them.
    """

    kind: str
    namespace: str
    name: str
    verdict: Verdict
    summary: str
    reasons: tuple[Reason, ...] = ()
    age_seconds: int | None = None
    unread: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ExplanationData(ExplanationSummary):
    """Why an object is as it is, and what would help.

    `pods`, `nodes`, `requests`, `remedies` and `later` are of work that waits; `node`, `since` and `holds` of an object
    that has its place. `scores` are the best of the `scored` nodes that would take such a pod, and its own.
    """

    pods: tuple[PodsAsked, ...] = ()
    nodes: tuple[NodeGroup, ...] = ()
    requests: tuple[Funnel, ...] = ()
    remedies: tuple[Remedy, ...] = ()
    node: str = ""
    since: str = ""
    holds: tuple[HeldClaim, ...] = ()
    later: Later | None = None
    scores: tuple[NodeScore, ...] = ()
    scored: int = 0
