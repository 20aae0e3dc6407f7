"""Decide all pending pods of a cluster once, in queue order; each decision sees the ones before.

Pods are ordered by priority, then age, then name; a group is at the place of its first pod. Bound pods count at once;
nominated pods keep their places while their victims still exist. Units that do not fit are retried as long as another
unit was placed. It is the live scheduler without a clock: the same `decide`, no backoff.
Source: KEP-4671 (queueing of groups), KEP-5710 (nominations); the answer is what `haru schedule` prints.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from haru.engine.framework.options import Options
from haru.engine.plugins.volumebinding.late_binding import assumed_objects
from haru.engine.podgroup.gang_pre_enqueue import GATED, gang_gate_reason, podgroup_missing
from haru.engine.podgroup.podgroup_cycle import decide
from haru.engine.podgroup.podgroup_info import has_quorum
from haru.engine.state.cache import SchedulerCache
from haru.engine.state.decision import ClaimAllocation, Decision, Eviction, GroupKey, MemberDecision, Reason
from haru.engine.state.pending_reservations import FROM_EVERYBODY, nominations_of
from haru.engine.state.pod_info import PodInfo
from haru.kube.meta import Obj

DEFAULT_SCHEDULER = "default-scheduler"


@dataclass(frozen=True, slots=True)
class Waiting:
    """Why a pod stays pending: the first reason decides."""

    message: str
    reasons: tuple[Reason, ...]


@dataclass(slots=True)
class RoundResult:
    """Hold the result of a round by path of pod, claim and group; `groups` has their states at the end."""

    bindings: dict[str, str] = field(default_factory=dict)
    nominations: dict[str, str] = field(default_factory=dict)
    allocations: dict[str, ClaimAllocation] = field(default_factory=dict)
    evictions: list[Eviction] = field(default_factory=list)
    pending: dict[str, Waiting] = field(default_factory=dict)
    groups: dict[str, str] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)


def run_round(cluster: SchedulerCache, options: Options, scheduler_name: str = DEFAULT_SCHEDULER) -> RoundResult:
    """Decide all pending pods of one scheduler, and assume the decisions in the cluster."""
    return _Round(cluster, options, scheduler_name).run()


class _Round:
    def __init__(self, cluster: SchedulerCache, options: Options, scheduler_name: str) -> None:
        self._cluster = cluster
        self._options = options
        pods = cluster.snapshot().pods.values()
        self._units: dict[GroupKey | str, list[PodInfo]] = {}
        for pod in sorted((pod for pod in pods if _to_decide(pod, scheduler_name)), key=_order):
            self._units.setdefault((pod.group if options.gates.groups else None) or pod.key.path, []).append(pod)
        self._result = RoundResult()

    def run(self) -> RoundResult:
        while self._pass():
            pass
        for unit in self._units:
            if isinstance(unit, GroupKey):
                self._result.groups[unit.path] = self._state(unit)
        return self._result

    def _pass(self) -> bool:
        """Try every undecided unit once; return whether any was decided."""
        decided = False
        for unit in self._units:
            if not self._is_decided(unit):
                decided |= self._decide(unit)
        return decided

    def _members(self, unit: GroupKey | str) -> list[PodInfo]:
        return [pod for pod in self._units[unit] if pod.key.path not in self._result.bindings]

    def _is_decided(self, unit: GroupKey | str) -> bool:
        members = self._members(unit)
        return not members or any(pod.key.path in self._result.nominations for pod in members)

    def _decide(self, unit: GroupKey | str) -> bool:
        snapshot = self._cluster.snapshot()
        key = unit if isinstance(unit, GroupKey) else None
        group = snapshot.pod_group(key) if key is not None else None
        members = self._members(unit)
        for pod in members:
            gates = [gate.get("name", "") for gate in pod.spec.get("schedulingGates") or ()]
            self._wait(pod.key.path, GATED, (Reason("Gated", GATED, {"gates": gates}),))
        if key is not None and group is None:
            missing = Reason("PodGroupMissing", podgroup_missing(key), {"podGroup": key.path})
            for pod in members:
                self._wait(pod.key.path, missing.message, (missing,))
            return False
        free = [pod.obj for pod in members if not pod.gated]
        return bool(free) and self._enact(decide(snapshot, free, group=group, options=self._options))

    def _wait(self, path: str, message: str, reasons: Sequence[Reason]) -> None:
        self._result.pending[path] = Waiting(message, tuple(reasons))

    # Enacting

    def _enact(self, decision: Decision) -> bool:
        if decision.status == "error":
            self._result.errors.append(decision.message)
        for member in decision.members:
            self._wait(member.pod.path, member.message or decision.message, member.reasons or decision.reasons)
        if decision.status == "scheduled":
            for obj in assumed_objects(self._cluster.snapshot(), decision.placed):
                self._cluster.apply(obj)
            for member in decision.placed:
                self._bind(member)
            return bool(decision.placed)
        if decision.status == "nominated":
            self._cluster.nominate(nominations_of(decision, FROM_EVERYBODY))
            self._result.evictions += decision.evictions
            for member in decision.nominated:
                self._place(member, self._result.nominations)
            return True
        return False

    def _bind(self, member: MemberDecision) -> None:
        self._place(member, self._result.bindings)
        self._cluster.assume_pod(member.pod, member.node or "", member.claimed)
        for given in member.allocations:
            self._reserve(given.path, given.reserve_for, given)
        for joined in member.reservations:
            self._reserve(joined.path, joined.reserve_for)

    def _place(self, member: MemberDecision, places: dict[str, str]) -> None:
        del self._result.pending[member.pod.path]
        places[member.pod.path] = member.node or ""
        self._result.allocations.update((given.path, given) for given in member.allocations)

    def _reserve(self, path: str, consumer: Obj, given: ClaimAllocation | None = None) -> None:
        claim = self._cluster.snapshot().claims.get(path) or (given.new_claim if given is not None else None)
        if claim is None:
            return
        status = dict(claim.get("status") or {})
        if given is not None:
            status["allocation"] = given.allocation
        others = [entry for entry in status.get("reservedFor") or () if entry != consumer]
        status["reservedFor"] = [*others, consumer]
        # This cluster has no other writer, so the version of the claim does not matter.
        self._cluster.apply({"kind": "ResourceClaim", **claim, "status": status})

    # States of groups

    def _state(self, key: GroupKey) -> str:
        snapshot = self._cluster.snapshot()
        group, state = snapshot.pod_group(key), snapshot.group_state(key)
        if any(path in self._result.nominations for path in state.all):
            return "WaitingOnPreemption"
        gangs = self._options.gates.gang_scheduling
        if group is not None and has_quorum(snapshot, key, group, gang_scheduling=gangs):
            return "Scheduled"
        gated = all(pod.gated for pod in self._members(key))
        too_few = gangs and gang_gate_reason(snapshot, key) is not None
        return "Held" if group is None or gated or too_few else "Unschedulable"


def _to_decide(pod: PodInfo, scheduler_name: str) -> bool:
    return pod.scheduler_name == scheduler_name and not (pod.node or pod.terminal or pod.deleting)


def _order(pod: PodInfo) -> tuple[int, str, str]:
    return -pod.priority, pod.obj["metadata"].get("creationTimestamp") or "", pod.key.path
