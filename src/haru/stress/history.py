"""Check what a scheduler promises on the events of a cluster, each as it comes. Pure: the caller brings the time.

Every state counts, not only the last one: a device that was held twice for one revision was held twice. What passes
legitimately, such as a gang of which a part is bound while the rest is being written, counts after a grace. Times of
grace start anew when the API was away (`resume`), for nothing could be written then.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Literal

from haru.kube.meta import (
    Obj,
    allocation_of,
    get_condition,
    is_being_deleted,
    key_of,
    labels_of,
    name_of,
    namespace_of,
    node_of,
    phase_of,
    uid_of,
)
from haru.kube.quantity import parse_quantity
from haru.kube.resources import pod_requests
from haru.stress.devices import DeviceBook
from haru.stress.manifests import RUN_LABEL, UNIT_LABEL

Promise = Literal["HalfGang", "DeviceHeldTwice", "NodeOvercommitted", "PodLost", "PodStuck", "Starvation"]
PROMISES: Final[tuple[Promise, ...]] = (
    "HalfGang",
    "DeviceHeldTwice",
    "NodeOvercommitted",
    "PodLost",
    "PodStuck",
    "Starvation",
)
_ENDED: Final = ("Succeeded", "Failed")
_SETTLE_SECONDS: Final = 2.0
"""A Node and a pod come by two watches: so long one may be ahead of the other."""


@dataclass(frozen=True, slots=True)
class Rules:
    """Seconds of grace."""

    gang: float = 15.0
    """A part of a gang is bound and the rest is not."""
    start: float = 60.0
    """A pod is bound to a Ready node and does not run."""
    fit: float = 30.0
    """The first of the queue is not scheduled although it fits."""
    starvation: float = 60.0
    """A work waits while younger ones go ahead that ask for no less."""


@dataclass(frozen=True, slots=True)
class Broken:
    """A promise that was broken."""

    promise: Promise
    at: float
    """Seconds after the start."""
    revision: str
    objects: tuple[str, ...]
    message: str

    def as_dict(self) -> Obj:
        """The finding as JSON."""
        return {**asdict(self), "at": round(self.at, 3), "objects": list(self.objects)}


@dataclass(slots=True)
class PodRecord:
    """When something was first seen of a pod of the run."""

    key: str
    unit: str
    created: float
    scheduled: float | None = None
    running: float | None = None


@dataclass(slots=True)
class _Gang:
    """A PodGroup with a minCount and what is known of its members."""

    key: str
    min_count: int = 1
    bound: set[str] = field(default_factory=set)
    done: set[str] = field(default_factory=set)
    hit: bool = False
    """A member or the group itself was deleted or failed: nobody can take that back."""
    half_since: float | None = None
    told: bool = False

    def is_half(self) -> bool:
        """Whether members hold nodes while the gang cannot run."""
        return bool(self.bound) and len(self.bound) + len(self.done) < self.min_count and not self.hit


class NodeBook:
    """What the pods of each node ask for, and what the node has."""

    def __init__(self) -> None:
        self.nodes: dict[str, Obj] = {}
        self.used: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
        self._pods: dict[str, tuple[str, dict[str, int]]] = {}

    def place(self, pod: Obj) -> None:
        """Count a pod on its node, or no longer where it has ended."""
        self.remove(uid_of(pod))
        node = node_of(pod)
        if node and phase_of(pod) not in _ENDED:
            asked = requests_of(pod)
            self._pods[uid_of(pod)] = (node, asked)
            for name, amount in asked.items():
                self.used[node][name] += amount

    def remove(self, uid: str) -> None:
        """The pod holds nothing any more."""
        node, asked = self._pods.pop(uid, ("", {}))
        for name, amount in asked.items():
            self.used[node][name] -= amount

    def free(self, node: str) -> dict[str, int]:
        """What is left of a node's allocatable, in thousandths."""
        used = self.used[node]
        return {name: amount - used.get(name, 0) for name, amount in allocatable_of(self.nodes.get(node) or {}).items()}

    def overdrawn(self, node: str) -> dict[str, tuple[int, int]]:
        """Resources of a node of which more is asked for than there is: (asked for, there)."""
        there = allocatable_of(self.nodes.get(node) or {})
        return {
            name: (used, there.get(name, 0))
            for name, used in self.used[node].items()
            if used > there.get(name, 0) and node in self.nodes
        }


class History:
    """The events of a cluster since the start of a run; `broken` grows as promises are found broken."""

    def __init__(self, run: str, rules: Rules | None = None) -> None:
        self.run = run
        self.rules = rules or Rules()
        self.broken: list[Broken] = []
        self.pods: dict[str, PodRecord] = {}
        self.gangs_scheduled: dict[str, float] = {}
        self.revisions = 0
        self.devices = DeviceBook()
        self.nodes = NodeBook()
        self.pending: dict[str, set[str]] = defaultdict(set)
        """Pods of a work that are not bound, by the work's name."""
        self.bound: dict[str, set[str]] = defaultdict(set)
        self.running: dict[str, set[str]] = defaultdict(set)
        self.scheduled: dict[str, set[str]] = defaultdict(set)
        """Pods of a work that were ever bound."""
        self.preempted: set[str] = set()
        """Works that lost a pod to another one."""
        self._deleting: set[str] = set()
        self._created: dict[str, float] = {}
        self._gangs: dict[str, _Gang] = {}
        self._waiting_to_start: dict[str, tuple[float, Obj]] = {}
        self._suspected: list[tuple[float, str, str, str]] = []
        self._told: set[tuple[str, ...]] = set()

    # -- what the caller does -----------------------------------------------------------------------------------------

    def creating(self, unit: str, pods: Iterable[str], now: float) -> None:
        """The work is about to be created, with pods of these keys."""
        for key in pods:
            self._created.setdefault(key, now)
            self.pods.setdefault(key, PodRecord(key, unit, self._created[key]))

    def deleting(self, *names: str) -> None:
        """These works, or pods by their keys, are about to be deleted."""
        self._deleting.update(names)

    def resume(self, now: float) -> None:
        """The API was away until now: times of grace start anew."""
        for gang in self._gangs.values():
            if gang.half_since is not None:
                gang.half_since = now
        for uid, (_, pod) in list(self._waiting_to_start.items()):
            self._waiting_to_start[uid] = (now, pod)

    def half_bound(self) -> bool:
        """Whether a gang is bound in part just now."""
        return any(gang.half_since is not None for gang in self._gangs.values())

    # -- events -------------------------------------------------------------------------------------------------------

    def node_changed(self, old: Obj | None, new: Obj | None, now: float) -> None:
        """A Node was added, changed or deleted."""
        self.revisions += 1
        if new is not None:
            self.nodes.nodes[name_of(new)] = new
        elif old is not None:
            self.nodes.nodes.pop(name_of(old), None)

    def slice_changed(self, old: Obj | None, new: Obj | None, now: float) -> None:
        """A ResourceSlice was added, changed or deleted."""
        self.revisions += 1
        self.devices.slice_changed(name_of(new or old or {}), new)

    def claim_changed(self, old: Obj | None, new: Obj | None, now: float) -> None:
        """A ResourceClaim was added, changed or deleted."""
        self.revisions += 1
        claim = new or old or {}
        before = (old or {}).get("status", {}).get("allocation")
        if old is not None and new is not None and before == allocation_of(new):
            return
        for problem in self.devices.claim_changed(key_of(claim), new):
            self._tell("DeviceHeldTwice", now, claim, problem)

    def group_changed(self, old: Obj | None, new: Obj | None, now: float) -> None:
        """A PodGroup was added, changed or deleted."""
        self.revisions += 1
        group = new or old or {}
        gang = self._gang(key_of(group))
        policy = (group.get("spec") or {}).get("schedulingPolicy") or {}
        gang.min_count = int((policy.get("gang") or {}).get("minCount") or 1)
        if new is None or is_being_deleted(new):
            gang.hit = True
        self._look_at(gang, now)

    def pod_changed(self, old: Obj | None, new: Obj | None, now: float) -> None:
        """A pod was added, changed or deleted; another UID is another pod."""
        self.revisions += 1
        if old is not None and new is not None and uid_of(old) != uid_of(new):
            self.pod_changed(old, None, now)
            old = None
        pod = new or old or {}
        if new is None:
            self.nodes.remove(uid_of(pod))
        elif old is None or _place(old) != _place(new):
            self.nodes.place(new)
            if node_of(new) and not node_of(old or {}):
                self._bound_to(new, now)
        self._follow_gang(pod, new, now)
        if labels_of(pod).get(RUN_LABEL) == self.run:
            self._follow_own(old, new, now)

    def _bound_to(self, pod: Obj, now: float) -> None:
        node = node_of(pod)
        for name in self.nodes.overdrawn(node):
            self._suspected.append((now, node, name, str(pod["metadata"].get("resourceVersion", ""))))

    def _follow_gang(self, pod: Obj, new: Obj | None, now: float) -> None:
        name = ((pod.get("spec") or {}).get("schedulingGroup") or {}).get("podGroupName")
        if not name:
            return
        gang, uid = self._gang(f"{namespace_of(pod)}/{name}"), uid_of(pod)
        if new is None or is_being_deleted(new) or phase_of(new) == "Failed":
            gang.hit |= uid in gang.bound or new is not None
            gang.bound.discard(uid)
            gang.done.discard(uid)
        elif phase_of(new) == "Succeeded":
            gang.bound.discard(uid)
            gang.done.add(uid)
        elif node_of(new):
            gang.bound.add(uid)
        self._look_at(gang, now)

    def _look_at(self, gang: _Gang, now: float) -> None:
        if not gang.bound:
            gang.told = gang.hit = False
        if not gang.is_half():
            gang.half_since = None
            if gang.min_count > 1 and gang.bound and not gang.hit:
                self.gangs_scheduled.setdefault(gang.key, now)
        elif gang.half_since is None:
            gang.half_since = now

    def _follow_own(self, old: Obj | None, new: Obj | None, now: float) -> None:
        pod = new or old or {}
        unit, key, uid = labels_of(pod).get(UNIT_LABEL, ""), key_of(pod), uid_of(pod)
        record = self.pods.setdefault(key, PodRecord(key, unit, self._created.get(key, now)))
        leaving = new is None or is_being_deleted(new)
        for kept, belongs in (
            (self.pending, not leaving and not node_of(pod)),
            (self.bound, not leaving and bool(node_of(pod))),
            (self.running, not leaving and phase_of(pod) == "Running"),
        ):
            (kept[unit].add if belongs else kept[unit].discard)(key)
        if leaving or phase_of(pod) in ("Running", *_ENDED):
            self._waiting_to_start.pop(uid, None)
        elif node_of(pod):
            self._waiting_to_start.setdefault(uid, (now, pod))
        if new is None:
            self._gone(unit, pod, now)
            return
        if node_of(new) and record.scheduled is None:
            record.scheduled = now
            self.scheduled[unit].add(key)
        if phase_of(new) == "Running" and record.running is None:
            record.running = now
        if leaving and self._deleting.isdisjoint((unit, key)) and _evicted(new):
            self.preempted.add(unit)
        if phase_of(new) == "Failed" and phase_of(old or {}) != "Failed" and not (leaving or _evicted(new)):
            status = new.get("status") or {}
            text = f"pod {key} failed on {node_of(new)}: {status.get('reason', '')}: {status.get('message', '')}"
            self._tell("PodLost", now, new, text)

    def _gone(self, unit: str, pod: Obj, now: float) -> None:
        if not self._deleting.isdisjoint((unit, key_of(pod))):
            return
        if _evicted(pod):
            self.preempted.add(unit)
        else:
            self._tell("PodLost", now, pod, f"pod {key_of(pod)} was deleted, not by this run and not by an eviction")

    # -- what only time shows -----------------------------------------------------------------------------------------

    def tick(self, now: float) -> None:
        """Look at what has lasted longer than its grace."""
        for gang in self._gangs.values():
            since = gang.half_since
            if since is not None and not gang.told and now - since > self.rules.gang:
                gang.told = True
                seconds, bound = now - since, len(gang.bound)
                text = (
                    f"gang {gang.key}: {bound} members are bound for {seconds:.0f} s, its minCount is {gang.min_count}"
                )
                self._add("HalfGang", now, "", (gang.key,), text)
        for uid, (since, pod) in list(self._waiting_to_start.items()):
            if now - since > self.rules.start and self._is_ready(node_of(pod)):
                del self._waiting_to_start[uid]
                text = f"pod {key_of(pod)} is bound to {node_of(pod)} for {now - since:.0f} s and does not run"
                self._tell("PodStuck", now, pod, text)
        self._confirm(now)

    def _confirm(self, now: float) -> None:
        due = [one for one in self._suspected if now - one[0] > _SETTLE_SECONDS]
        self._suspected = [one for one in self._suspected if now - one[0] <= _SETTLE_SECONDS]
        for _, node, name, revision in due:
            over = self.nodes.overdrawn(node).get(name)
            if over is not None and ("node", node, name) not in self._told:
                self._told.add(("node", node, name))
                text = f"node {node}: pods ask for {_amount(name, over[0])} {name}, it has {_amount(name, over[1])}"
                self._add("NodeOvercommitted", now, revision, (node,), text)

    def _is_ready(self, node: str) -> bool:
        return (get_condition(self.nodes.nodes.get(node) or {}, "Ready") or {}).get("status") == "True"

    # -- findings -----------------------------------------------------------------------------------------------------

    def report(self, promise: Promise, now: float, subject: str, message: str) -> None:
        """Add a finding of the caller's, once for each subject."""
        if (promise, subject) not in self._told:
            self._told.add((promise, subject))
            self._add(promise, now, "", (subject,), message)

    def _tell(self, promise: Promise, now: float, obj: Obj, message: str) -> None:
        if (promise, message) not in self._told:
            self._told.add((promise, message))
            revision = str((obj.get("metadata") or {}).get("resourceVersion", ""))
            self._add(promise, now, revision, (key_of(obj),), message)

    def _add(self, promise: Promise, now: float, revision: str, objects: tuple[str, ...], message: str) -> None:
        self.broken.append(Broken(promise, now, revision, objects, message))

    def _gang(self, key: str) -> _Gang:
        return self._gangs.setdefault(key, _Gang(key))


def _place(pod: Obj) -> tuple[str, bool, Any]:
    """What decides how much a pod holds of which node."""
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    return node_of(pod), phase_of(pod) in _ENDED, [status.get("allocatedResources") for status in statuses]


def _evicted(pod: Obj) -> bool:
    return (get_condition(pod, "DisruptionTarget") or {}).get("status") == "True"


def requests_of(pod: Obj) -> dict[str, int]:
    """What a pod asks of its node, in thousandths; devices that a claim gives it in place of a resource left out."""
    record = (pod.get("status") or {}).get("extendedResourceClaimStatus") or {}
    by_claim = {mapping["resourceName"] for mapping in record.get("requestMappings") or ()}
    asked = {name: amount.milli() for name, amount in pod_requests(pod).items() if name not in by_claim}
    return {**asked, "pods": 1000}


def allocatable_of(node: Obj) -> dict[str, int]:
    """What a node has for pods, in thousandths."""
    found = (node.get("status") or {}).get("allocatable") or {}
    return {name: parse_quantity(value).milli() for name, value in found.items()}


def _amount(name: str, milli: int) -> str:
    return f"{milli}m" if name == "cpu" else str(milli // 1000)
