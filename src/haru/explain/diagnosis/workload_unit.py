"""The unit that a question is about: a pod, or the pods of a group; and the question itself, put to the scheduler.

Answers of the scheduler are kept per snapshot object, because verdict and remedies ask about the same ones.
Where the one who asks may not read all that decisions depend on, no more is said than is known (`blind_text`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, TypeVar

from haru.engine import Decision, Options, Reason, Snapshot, decide, pre_enqueue
from haru.engine.framework import SchedulerGates
from haru.engine.plugins import resolve_claims
from haru.engine.podgroup import GANGS_OFF, gang_gate_reason, members_needed
from haru.engine.state import GroupKey, PodInfo
from haru.kube.gates import FeatureGates
from haru.kube.meta import Obj, get_condition

T = TypeVar("T")


def hypothetical_options(options: Options | None = None) -> Options:
    """Options for questions whose answers are never carried out: identifiers of shares are placeholders.

    Devices count against their nodes wherever they are published so, which a server without that gate does not let in.
    """
    return options or Options(new_share_id=lambda: "hypothetical", gates=SchedulerGates(node_allocatable=True))


@cache
def default_gates() -> Mapping[str, bool]:
    """The feature gates of `haru up`."""
    return FeatureGates.accelerator_defaults().all()


@dataclass(frozen=True, slots=True)
class Inquiry:
    """How to explain: with which options to ask the scheduler, and whether to look for what would help.

    `unread` are the kinds of objects that the one who asks may not read; by `gates` controllers make pods.
    """

    options: Options
    remedies: bool = True
    unread: Sequence[str] = ()
    gates: Mapping[str, bool] = field(default_factory=default_gates)
    found: dict[str, Any] | None = None
    """What is found of the one workload that waits, for another explanation of the same; None: there is none."""

    def once(self, what: str, find: Callable[[], T]) -> T:
        """Return what an explanation of the same has found before, or else find it."""
        if self.found is None:
            return find()
        if what not in self.found:
            self.found[what] = find()
        known: T = self.found[what]
        return known


@dataclass(slots=True)
class Questions:
    """How many more times the scheduler may be asked: remedies that are not found within it are not offered."""

    left: int


@dataclass(frozen=True, slots=True)
class WorkloadUnit:
    """Pods to decide together, by path; `group` is their PodGroup's key, if they have one."""

    paths: tuple[str, ...]
    group: GroupKey | None = None
    questions: Questions | None = None

    def pods(self, snapshot: Snapshot) -> list[PodInfo]:
        """The pods as they are in a snapshot."""
        return [snapshot.pods[path] for path in self.paths if path in snapshot.pods]

    def pending(self, snapshot: Snapshot) -> list[PodInfo]:
        """The pods that wait for a place."""
        return [p for p in self.pods(snapshot) if not (p.node or p.terminal or p.deleting)]

    def pod_group(self, snapshot: Snapshot) -> Obj | None:
        """The PodGroup object."""
        return snapshot.pod_group(self.group) if self.group else None

    def hold(self, snapshot: Snapshot) -> Reason | None:
        """What keeps the work from being tried: what holds every pending pod, or as many that a gang falls short."""
        first: Reason | None = None
        ready = 0
        needed = members_needed(snapshot, self.group, self.pod_group(snapshot))
        for _, reason in self.holds(snapshot):
            first = first or reason
            ready += reason is None
            if ready >= needed:
                return None
        return first

    def holds(self, snapshot: Snapshot) -> Iterator[tuple[PodInfo, Reason | None]]:
        """What holds each pending pod; what their group is held by is the same for all."""
        pending = self.pending(snapshot)
        held = self.group is not None and gang_gate_reason(snapshot, self.group) is not None
        group = self.pod_group(snapshot)
        for pod in pending:
            if held or pod.gated or pod.group != self.group:
                yield pod, pre_enqueue(snapshot, pod.obj) or gangs_off(pod)
            else:
                claims = resolve_claims(snapshot, pod, group, workload_claims=True)
                yield pod, claims if isinstance(claims, Reason) else gangs_off(pod)

    def decide(self, snapshot: Snapshot, options: Options) -> Decision:
        """What the scheduler would answer."""
        ready = [pod.obj for pod, reason in self.holds(snapshot) if reason is None]
        return decide(snapshot, ready, group=self.pod_group(snapshot), options=options)

    def fits(self, snapshot: Snapshot, options: Options) -> bool:
        """Whether the work would be placed: all of a single pod, or a group's quorum. No if nothing may be asked."""
        decision = self.decision(snapshot, options)
        return decision is not None and decision.status == "scheduled"

    def decision(self, snapshot: Snapshot, options: Options) -> Decision | None:
        """What the scheduler would answer; None if the work is held, or if nothing may be asked any more."""
        if self.questions is not None:
            if self.questions.left <= 0:
                return None
            self.questions.left -= 1
        return self.decide(snapshot, options) if self.hold(snapshot) is None else None


def gangs_off(pod: PodInfo) -> Reason | None:
    """That its scheduler holds a member of a group because it does no gangs: the pod's condition alone tells."""
    told = get_condition(pod.obj, "PodScheduled") or {}
    message = str(told.get("message") or "")
    if pod.group is None or told.get("status") != "False" or not message.startswith(GANGS_OFF):
        return None
    return Reason("GangSchedulingOff", message, {"podGroup": pod.group.path})


_NEEDED = frozenset(
    {"Node", "ResourceSlice", "ResourceClaim", "ResourceClaimTemplate", "DeviceClass", "PodGroup", "Pod"}
)


def not_readable(unread: Sequence[str]) -> tuple[Reason, ...]:
    """That something is left out; nothing if all could be read."""
    if not unread:
        return ()
    kinds = list(unread)
    return (Reason("NotReadable", f"not allowed to read {', '.join(kinds)}", {"kinds": kinds}),)


def is_blind(unread: Sequence[str]) -> bool:
    """Whether so much is left out that whether work fits cannot be told."""
    return not _NEEDED.isdisjoint(unread)


def blind_text(snapshot: Snapshot, work: WorkloadUnit, unread: Sequence[str]) -> str:
    """What can be said all the same: what the scheduler has written into the work's own status."""
    text = f"whether it fits cannot be told without reading {', '.join(unread)}"
    for obj in (work.pod_group(snapshot), *(pod.obj for pod in work.pending(snapshot))):
        for name in ("PodScheduled", "PodGroupScheduled") if obj is not None else ():
            found = get_condition(obj, name)
            if found is not None and found.get("status") == "False" and found.get("message"):
                return f"{text}; the scheduler says: {found['message']}"
    return text
