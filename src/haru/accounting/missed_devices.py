"""Which waiting work could use a device that is free, and why it does not: read off the funnels of `haru explain`.

Units of work are looked at in the order of the queue; units that ask for the same are looked at once. A device is
compatible with a unit if it passes the classes and selectors of one of its requests; the most urgent unit that a card
is compatible with says why the card is not used:

Starting      nothing is in the way: it will be placed in a moment
GangWaiting   it is free, but the gang lacks members, or places for others of them, or its turn has yet to come
Gated         it is free, but the work is held by scheduling gates, as queueing systems hold it
Quota         it is free, but a ResourceQuota refuses the work's pods or claims
Fragmented    it is free, but not all that the work asks for is free together in one place
NodeUnusable  it is free, but its node does not take the pod
Tainted       it has a taint that the work does not tolerate
Stranded      what is left of the card's counters or capacity is too little
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
from haru.kube.meta import get_condition

WaitState = Literal["Starting", "GangWaiting", "Gated", "Quota", "Fragmented", "NodeUnusable", "Tainted", "Stranded"]

MOST_REFUSED = 64
"""Workloads, and pods without claims, that are put to quotas."""
MOST_ASKED = 8
"""Different wishes that are looked at, the most urgent first: more would cost more than what they tell is worth."""

_RANK: Mapping[str, int] = {
    name: number
    for number, name in enumerate(
        ("Starting", "GangWaiting", "Gated", "Quota", "Fragmented", "NodeUnusable", "Tainted", "Stranded")
    )
}


@dataclass(frozen=True, slots=True)
class Unit:
    """Waiting work, and what keeps it from each device that it is compatible with: by pool and device."""

    namespace: str
    owner: str
    fates: Mapping[tuple[str, str], WaitState]


@dataclass(frozen=True, slots=True)
class Wish:
    """Why a free part of a card is not used, and by whom it could be."""

    state: WaitState
    namespace: str
    owner: str


class Units:
    """The work that waits for devices, the most urgent first; looked at only as far as somebody asks."""

    def __init__(self, snapshot: Snapshot, options: Options) -> None:
        self._known: list[Unit] = []
        self._more = _waiting_units(snapshot, options)

    def __iter__(self) -> Iterator[Unit]:
        yield from self._known
        for unit in self._more:
            self._known.append(unit)
            yield unit


def wanted_by(units: Iterable[Unit], pool: str, devices: Sequence[Device]) -> Wish | None:
    """The most urgent wish for any device of a card; None if nobody waits for one."""
    for unit in units:
        found = [unit.fates[pool, device.name] for device in devices if (pool, device.name) in unit.fates]
        if found:
            return Wish(min(found, key=_RANK.__getitem__), unit.namespace, unit.owner)
    return None


def _waiting_units(snapshot: Snapshot, options: Options) -> Iterator[Unit]:
    seen: set[object] = set()
    snapshot, refused = _as_if_allowed(snapshot)
    for members in _by_unit(snapshot):
        seen_here = _open(snapshot, members)
        work = WorkloadUnit(tuple(pod.key.path for pod in members), members[0].group)
        fates: dict[tuple[str, str], WaitState] = {}
        for kind in member_kinds(seen_here, work, options):
            state = _when_free(snapshot, work, members, kind)
            if not refused.isdisjoint(work.paths):
                state = "Quota"
            wish = (kind.asked, kind.pod.shape, state)
            if not kind.claims or wish in seen:
                continue
            seen.add(wish)
            for device, fate in _fates(seen_here, work, kind, options, state):
                if device not in fates or _RANK[fate] < _RANK[fates[device]]:
                    fates[device] = fate
        if fates:
            yield Unit(members[0].key.namespace, workload_of(members[0]), fates)
        if len(seen) >= MOST_ASKED:
            return


def _as_if_allowed(snapshot: Snapshot) -> tuple[Snapshot, frozenset[str]]:
    """The cluster as if no quota had refused anything, and the paths of the pods that one keeps back.

    A pod stands for all that a workload lacks; one that waits for claims that are refused has them.
    """
    if not snapshot.objects("ResourceQuota"):
        return snapshot, frozenset()
    lacking = [found.pod for found in all_unmade(snapshot)][:MOST_REFUSED]
    larger = hypothesis.with_pods(snapshot, lacking)
    refused = {pod.key.path for pod in lacking}
    waiting = [pod for pod in snapshot.pods.values() if pod.claims and not (pod.node or pod.terminal or pod.deleting)]
    for pod in [*lacking, *waiting[:MOST_REFUSED]]:
        generated = with_generated_claims(larger, [pod])
        if generated is None or not generated[1]:
            continue
        if pod.key.path in refused or any(refusal(snapshot, claim) for claim in generated[1].values()):
            larger = generated[0]
            refused.add(pod.key.path)
    return larger, frozenset(refused)


def _by_unit(snapshot: Snapshot) -> list[list[PodInfo]]:
    """The pods that wait, by group or each by itself, in the order of the queue: by priority, then age, then name."""
    waiting = [pod for pod in snapshot.pods.values() if not (pod.node or pod.terminal or pod.deleting)]
    units: dict[GroupKey | str, list[PodInfo]] = {}
    for pod in sorted(waiting, key=_order):
        units.setdefault(pod.group or pod.key.path, []).append(pod)
    return list(units.values())


def _order(pod: PodInfo) -> tuple[int, str, str]:
    return -pod.priority, str(pod.obj["metadata"].get("creationTimestamp") or ""), pod.key.path


def _open(snapshot: Snapshot, members: Sequence[PodInfo]) -> Snapshot:
    """The cluster as if nobody were held by scheduling gates: what they would ask for is then known."""
    gated = [pod for pod in members if pod.gated]
    if not gated:
        return snapshot
    free = [PodInfo.of({**pod.obj, "spec": {**pod.obj["spec"], "schedulingGates": []}}) for pod in gated]
    return hypothesis.with_pods(snapshot, free)


def _when_free(snapshot: Snapshot, work: WorkloadUnit, members: Sequence[PodInfo], kind: MemberKind) -> WaitState:
    """Why the work does not take a device that nothing keeps from it."""
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


def _fates(
    snapshot: Snapshot, work: WorkloadUnit, kind: MemberKind, options: Options, free: WaitState
) -> Iterator[tuple[tuple[str, str], WaitState]]:
    """What becomes of every device that passes the classes and selectors of a request, on every node that sees it."""
    survey = DeviceClassSurvey.of(snapshot, kind.claims, options, kind.asked)
    refused = unusable(answers(snapshot, kind, work.pod_group(snapshot), options))
    for node_kind in survey.kinds:
        told: dict[int, WaitState] = {}
        for request in node_kind.funnel.requests:
            for position, fate in _positions(request, free).items():
                if position not in told or _RANK[fate] < _RANK[told[position]]:
                    told[position] = fate
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
    """Whether a device lacks what was asked for by itself: nothing of it is taken, and it draws on no counters."""
    use = snapshot.allocated.use(pool)  # type: ignore[arg-type]
    return not device.consumes and device.name not in use.shares


def _positions(request: RequestFunnel, free: WaitState) -> dict[int, WaitState]:
    """What keeps a request from each of a node's devices that it is compatible with, and that are not held."""
    found: dict[int, WaitState] = {}
    for stage in request.stages:
        if stage.name == "taints":
            found |= dict.fromkeys(stage.dropped, "Tainted")
        elif stage.name in ("counters", "capacity"):
            found |= dict.fromkeys(stage.dropped, "Stranded")
    enough = request.needed is None or request.together >= request.needed
    return found | dict.fromkeys(request.kept, free if enough else "Fragmented")
