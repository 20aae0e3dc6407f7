"""Which waiting work could use a free device, and why it does not: from the funnels of `haru explain`.

Workloads come in the order of the queue; those with equal requests are evaluated once. A device is compatible with a
workload if it passes the classes and selectors of one of its requests. The most urgent workload that a card is
compatible with says why the card is not used:

Starting      nothing: it will be scheduled in a moment
GangWaiting   the gang lacks members, or devices for others of them, or it is not its turn
Gated         the work has scheduling gates, as queueing systems set them
Quota         a ResourceQuota refuses the work's pods or claims
Fragmented    not all that the work requests is free together
NodeUnusable  the node of the device refuses the pod
Tainted       the device has a taint that the work does not tolerate
Stranded      the card's counters or capacity have too little left
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from haru.engine import Options, Snapshot
from haru.engine.dra import Device, RequestFunnel
from haru.engine.podgroup import has_quorum, min_count
from haru.engine.state import GroupKey, PodInfo, workload_of
from haru.explain import hypothesis
from haru.explain.diagnosis import (
    DeviceClassSurvey,
    MemberKind,
    WorkloadUnit,
    all_unmade,
    answers,
    member_kinds,
    refusal,
    unusable,
    with_generated_claims,
)
from haru.explain.pending_pods import waiting_pods
from haru.kube.meta import get_condition

WaitState = Literal["Starting", "GangWaiting", "Gated", "Quota", "Fragmented", "NodeUnusable", "Tainted", "Stranded"]

MOST_QUOTA_CHECKS = 64
"""Workloads, and pods without claims, that are checked against quotas."""
MOST_QUERIES = 8
"""Different requests that are evaluated, the most urgent first: more cost more than they are worth."""

_RANK: Mapping[str, int] = {
    name: number
    for number, name in enumerate(
        ("Starting", "GangWaiting", "Gated", "Quota", "Fragmented", "NodeUnusable", "Tainted", "Stranded")
    )
}


@dataclass(frozen=True, slots=True)
class WaitingWorkload:
    """Waiting work, and why it does not use each compatible device, by pool and device."""

    namespace: str
    owner: str
    states: Mapping[tuple[str, str], WaitState]


@dataclass(frozen=True, slots=True)
class MissedUse:
    """Why a free part of a card is not used, and the owner that could use it."""

    state: WaitState
    namespace: str
    owner: str


class WaitingWorkloads:
    """The work that waits for devices, the most urgent first; evaluated only as far as it is read."""

    def __init__(self, snapshot: Snapshot, options: Options) -> None:
        self._known: list[WaitingWorkload] = []
        self._more = _waiting_workloads(snapshot, options)

    def __iter__(self) -> Iterator[WaitingWorkload]:
        yield from self._known
        for unit in self._more:
            self._known.append(unit)
            yield unit


def missed_use(units: Iterable[WaitingWorkload], pool: str, devices: Sequence[Device]) -> MissedUse | None:
    """Find the most urgent work for any device of a card; None if no work waits for one."""
    for unit in units:
        found = [unit.states[pool, device.name] for device in devices if (pool, device.name) in unit.states]
        if found:
            return MissedUse(min(found, key=_RANK.__getitem__), unit.namespace, unit.owner)
    return None


def _waiting_workloads(snapshot: Snapshot, options: Options) -> Iterator[WaitingWorkload]:
    seen: set[object] = set()
    snapshot, refused = _without_quotas(snapshot, waiting_pods(snapshot))
    for members in _pods_by_workload(waiting_pods(snapshot)):
        ungated = _without_gates(snapshot, members)
        work = WorkloadUnit(tuple(pod.key.path for pod in members), members[0].group)
        states: dict[tuple[str, str], WaitState] = {}
        for kind in member_kinds(ungated, work, options):
            state = _state_if_free(snapshot, work, members, kind)
            if not refused.isdisjoint(work.paths):
                state = "Quota"
            query = (kind.asked, kind.pod.shape, state)
            if not kind.claims or query in seen:
                continue
            seen.add(query)
            for device, found_state in _device_states(ungated, work, kind, options, state):
                if device not in states or _RANK[found_state] < _RANK[states[device]]:
                    states[device] = found_state
        if states:
            yield WaitingWorkload(members[0].key.namespace, workload_of(members[0]), states)
        if len(seen) >= MOST_QUERIES:
            return


def _without_quotas(snapshot: Snapshot, pending: Sequence[PodInfo]) -> tuple[Snapshot, frozenset[str]]:
    """Return the cluster as if no quota refused anything, and the paths of the pods that quotas refuse.

    One pod stands for all that a workload lacks; a pod whose claims are refused has them.
    """
    if not snapshot.objects("ResourceQuota"):
        return snapshot, frozenset()
    lacking = [found.pod for found in all_unmade(snapshot)][:MOST_QUOTA_CHECKS]
    larger = hypothesis.with_pods(snapshot, lacking)
    refused = {pod.key.path for pod in lacking}
    waiting = [pod for pod in pending if pod.claims]
    for pod in [*lacking, *waiting[:MOST_QUOTA_CHECKS]]:
        generated = with_generated_claims(larger, [pod])
        if generated is None or not generated[1]:
            continue
        if pod.key.path in refused or any(refusal(snapshot, claim) for claim in generated[1].values()):
            larger = generated[0]
            refused.add(pod.key.path)
    return larger, frozenset(refused)


def _pods_by_workload(pending: Iterable[PodInfo]) -> list[list[PodInfo]]:
    """Group the waiting pods by PodGroup or alone, in the order of the queue: priority, age, name."""
    units: dict[GroupKey | str, list[PodInfo]] = {}
    for pod in sorted(pending, key=_order):
        units.setdefault(pod.group or pod.key.path, []).append(pod)
    return list(units.values())


def _order(pod: PodInfo) -> tuple[int, str, str]:
    return -pod.priority, str(pod.obj["metadata"].get("creationTimestamp") or ""), pod.key.path


def _without_gates(snapshot: Snapshot, members: Sequence[PodInfo]) -> Snapshot:
    """Return the cluster without the scheduling gates of some pods: their requests are known then."""
    gated = [pod for pod in members if pod.gated]
    if not gated:
        return snapshot
    free = [PodInfo.of({**pod.obj, "spec": {**pod.obj["spec"], "schedulingGates": []}}) for pod in gated]
    return hypothesis.with_pods(snapshot, free)


def _state_if_free(snapshot: Snapshot, work: WorkloadUnit, members: Sequence[PodInfo], kind: MemberKind) -> WaitState:
    """Say why the work does not use a device that is available to it."""
    if snapshot.pods[kind.pod.key.path].gated:
        return "Gated"
    group = work.pod_group(snapshot)
    minimum = min_count(group)
    if work.group is not None and minimum is not None:
        if not has_quorum(snapshot, work.group, group) and (minimum > 1 or len(members) > 1):
            return "GangWaiting"
    elif work.group is not None and group is None:
        return "GangWaiting"
    if any(pod.status.get("nominatedNodeName") for pod in members):
        return "Starting"
    refused = any((get_condition(pod.obj, "PodScheduled") or {}).get("reason") == "Unschedulable" for pod in members)
    return "Fragmented" if refused else "Starting"


def _device_states(
    snapshot: Snapshot, work: WorkloadUnit, kind: MemberKind, options: Options, free: WaitState
) -> Iterator[tuple[tuple[str, str], WaitState]]:
    """Say why each compatible device is not used, on every node that sees it."""
    survey = DeviceClassSurvey.of(snapshot, kind.claims, options, kind.asked)
    refused = unusable(answers(snapshot, kind, work.pod_group(snapshot), options))
    for node_kind in survey.kinds:
        told: dict[int, WaitState] = {}
        for request in node_kind.funnel.requests:
            for position, found_state in _positions(request, free).items():
                if position not in told or _RANK[found_state] < _RANK[told[position]]:
                    told[position] = found_state
        for name in node_kind.names if told else ():
            unusable_node = name in refused
            for position, (view, _, device) in enumerate(node_kind.devices(name)):
                found = told.get(position)
                if found is None or (found == "Stranded" and _is_whole(snapshot, view.key, device)):
                    continue
                if unusable_node and _RANK[found] < _RANK["NodeUnusable"]:
                    found = "NodeUnusable"
                yield (str(view.key), device.name), found


def _is_whole(snapshot: Snapshot, pool: object, device: Device) -> bool:
    """Tell whether a device itself is too small: nothing of it is allocated, and it consumes no counters."""
    use = snapshot.allocated.use(pool)  # type: ignore[arg-type]
    return not device.consumes and device.name not in use.shares


def _positions(request: RequestFunnel, free: WaitState) -> dict[int, WaitState]:
    """Say why a request does not use each compatible device of a node that is not held."""
    found: dict[int, WaitState] = {}
    for stage in request.stages:
        if stage.name == "taints":
            found |= dict.fromkeys(stage.dropped, "Tainted")
        elif stage.name in ("counters", "capacity"):
            found |= dict.fromkeys(stage.dropped, "Stranded")
    enough = request.needed is None or request.together >= request.needed
    return found | dict.fromkeys(request.kept, free if enough else "Fragmented")
