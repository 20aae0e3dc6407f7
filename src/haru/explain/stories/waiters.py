"""The work that waits, the most urgent first, and what keeps it from one node, or from one device.

Work that asks for the same as other work of the queue is told by the most urgent of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from haru.engine import Options, Reason, Snapshot
from haru.engine.dra import (
    REFUSAL_TYPES,
    AllocationError,
    DeviceId,
    NodeFunnel,
    NodeView,
    RequestFunnel,
    explain_requests,
)
from haru.engine.podgroup import diagnose_pod
from haru.engine.state import GroupKey, PodInfo
from haru.explain.diagnosis.requests import MemberKind, asked, member_kinds
from haru.explain.diagnosis.schedulers import unknown_scheduler
from haru.explain.diagnosis.verdict import distinct, why
from haru.explain.diagnosis.workload_unit import WorkloadUnit
from haru.explain.pending_pods import waiting_pods
from haru.explain.render.wording import asked_text
from haru.explain.stories.inventory import views_of
from haru.explain.stories.values import Wanting
from haru.gangs import title_of

MOST_WAITING = 32
_WORDS = {
    "offered": "a feature that the device needs is off",
    "node": "the device cannot be used from its node",
    "capacity": "the device has not as much capacity left as is asked for",
    "taints": "a taint of the device is not tolerated",
    "free": "the device is taken",
    "counters": "parts of the same hardware are taken, and what is left of it is too little",
}
_NOT_ASKED = frozenset({"class", "selector"})


@dataclass(frozen=True, slots=True)
class Waiter:
    """Pods that are decided together."""

    work: WorkloadUnit
    pods: tuple[PodInfo, ...]

    def wanting(self, takes: bool, reasons: Sequence[Reason], requests: Sequence[str] = ()) -> Wanting:
        """What is told of it."""
        first, group = self.pods[0], self.work.group
        kind, name = ("Pod", first.key.name) if group is None else title_of(group.name)
        priority = max(pod.priority for pod in self.pods)
        return Wanting(
            kind, first.key.namespace, name, len(self.pods), priority, takes, distinct(reasons), tuple(requests)
        )


def waiters(snapshot: Snapshot) -> list[Waiter]:
    """What waits, by group or each pod by itself: by priority, then age, then name."""
    found: dict[GroupKey | str, list[PodInfo]] = {}
    for pod in sorted(waiting_pods(snapshot), key=_order):
        found.setdefault(pod.group or pod.key.path, []).append(pod)
    return [
        Waiter(
            WorkloadUnit(tuple(sorted(pod.key.path for pod in pods)), key if isinstance(key, GroupKey) else None),
            tuple(pods),
        )
        for key, pods in found.items()
    ]


def _order(pod: PodInfo) -> tuple[int, str, str]:
    return -pod.priority, str(pod.obj["metadata"].get("creationTimestamp") or ""), pod.key.path


def waiting_for_node(snapshot: Snapshot, name: str, options: Options) -> tuple[tuple[Wanting, ...], int]:
    """What a node says to the work that waits, and how many units are not told of."""
    waiting = waiters(snapshot)
    found = tuple(_on_node(snapshot, unit, name, options) for unit in waiting[:MOST_WAITING])
    return found, len(waiting) - len(found)


def _on_node(snapshot: Snapshot, unit: Waiter, name: str, options: Options) -> Wanting:
    hold = unit.work.hold(snapshot)
    if hold is not None:
        return unit.wanting(False, [hold])
    reasons: list[Reason] = []
    requests: list[str] = []
    takes = False
    for kind in member_kinds(snapshot, unit.work, options):
        said = _refusals(snapshot, unit, kind, name, options)
        takes |= not said
        reasons += said
        requests += _requests(kind)
    if takes or not reasons:
        reasons = list(_fate(snapshot, unit, name, options))
    return unit.wanting(takes, reasons, requests)


def _fate(snapshot: Snapshot, unit: Waiter, name: str, options: Options) -> Sequence[Reason]:
    """What becomes of work that a node would take."""
    unknown = unknown_scheduler(snapshot, unit.work)
    if unknown is not None:
        return [unknown]
    decision = unit.work.decide(snapshot, options)
    if decision.status != "scheduled":
        return why(decision)
    where = {member.node for member in decision.placed}
    other = next(iter(sorted(node for node in where if node)), "")
    text = "a place is free for it here" if name in where else f"a place is free for it elsewhere: {other}"
    return [Reason("Waiting", text, {"node": name if name in where else other})]


def _requests(kind: MemberKind) -> list[str]:
    every = [(claim, request, ask) for claim in kind.claims for request in claim.requests for ask in request.asks]
    return [asked_text(asked(kind, claim.name, request, ask)) for claim, request, ask in every]


def _refusals(snapshot: Snapshot, unit: Waiter, kind: MemberKind, name: str, options: Options) -> list[Reason]:
    """Why a node does not take one more such pod; nothing if it does. Devices are told request by request."""
    found = diagnose_pod(snapshot, kind.pod, unit.work.pod_group(snapshot), options, (name,))
    if found.rejection is not None:
        return [found.rejection]
    reasons = [failure.reason for failure in found.nodes.get(name, ())]
    if found.error and not reasons:
        return [Reason("SelectorError", found.error)]
    if reasons and reasons[0].type == "DevicesUnavailable":
        funnel = _funnel(snapshot, kind, name, options)
        told = [Reason(r.type, r.message, r.data) for r in funnel.refusals] if funnel is not None else []
        return told or reasons
    return reasons


def _funnel(snapshot: Snapshot, kind: MemberKind, name: str, options: Options) -> NodeFunnel | None:
    view = NodeView(name, snapshot.nodes[name].labels)
    try:
        return explain_requests(snapshot.devices, snapshot.allocated, view, kind.claims, options.features)
    except AllocationError:
        return None


def waiting_for_device(
    snapshot: Snapshot, node: str, device: DeviceId, options: Options
) -> tuple[tuple[Wanting, ...], int]:
    """What keeps a device from the work that asks for such, as one node sees it, and how much is not told of."""
    found: list[Wanting] = []
    left = 0
    for unit in waiters(snapshot):
        if len(found) >= MOST_WAITING:
            left += 1
        elif (told := _on_device(snapshot, unit, node, device, options)) is not None:
            found.append(told)
    return tuple(found), left


def _on_device(snapshot: Snapshot, unit: Waiter, node: str, device: DeviceId, options: Options) -> Wanting | None:
    """None for work that does not ask for such a device."""
    position = _position(snapshot, node, device, options)
    reasons: list[Reason] = []
    requests: list[str] = []
    is_asked = takes = False
    for kind in member_kinds(snapshot, unit.work, options) if position is not None else ():
        funnel = _funnel(snapshot, kind, node, options) if kind.claims else None
        for request, text in zip(funnel.requests if funnel is not None else (), _requests(kind), strict=False):
            stage = next((s for s in request.stages if position in s.dropped), None)
            if stage is not None and stage.name in _NOT_ASKED:
                continue
            is_asked = True
            requests.append(text)
            if stage is not None and stage.name != "constraints":
                reasons.append(
                    Reason(REFUSAL_TYPES[stage.name], _sentence(request, stage.name), {"request": request.request})
                )
                continue
            said = _refusals(snapshot, unit, kind, node, options)
            reasons += said
            takes |= not said
    if not is_asked:
        return None
    hold = unit.work.hold(snapshot)
    if hold is not None:
        return unit.wanting(False, [hold], requests)
    if takes:
        reasons = list(_fate(snapshot, unit, node, options))
    return unit.wanting(takes, reasons, requests)


def _position(snapshot: Snapshot, node: str, device: DeviceId, options: Options) -> int | None:
    """Where the device is among those that a node sees, in the order in which they are tried."""
    number = 0
    for view in views_of(snapshot, node, options):
        for known in view.devices if view.status == "ok" else ():
            if (view.key.driver, view.key.pool, known.name) == device:
                return number
            number += 1
    return None


def _sentence(request: RequestFunnel, stage: str) -> str:
    return f"request {request.request}: {_WORDS[stage]}"
