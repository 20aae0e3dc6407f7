"""What a unit asks for: its members by kind, the claims that are yet to be allocated, and the total of each request.

Members of one kind ask for the same, so one stands for all. A claim that several members share is asked for once.
How many of the pods nodes could take at most is known by division (`Capacity`), which makes asking the scheduler
needless. These bounds leave out whatever else may speak against a node, so they are never too small.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from haru.engine import Options, Overlay, Reason, Snapshot
from haru.engine.dra import ALL, Claim, Request, RequestFunnel, SubRequest
from haru.engine.plugins import DeviceDemand, device_demand_of
from haru.engine.podgroup import decoded_claims, members_needed
from haru.engine.state import NodeInfo, PodInfo
from haru.explain.diagnosis.device_classes import DeviceClassSurvey, NodeKind
from haru.explain.diagnosis.workload_unit import WorkloadUnit
from haru.explain.explanation import Asked, PodsAsked

MOST_KINDS = 8


@dataclass(frozen=True, slots=True)
class MemberKind:
    """Pods that ask for the same, by the first of them. `claims` are its claims to allocate, decoded."""

    pod: PodInfo
    pods: int
    demand: DeviceDemand
    claims: tuple[Claim, ...]
    paths: frozenset[str]
    asked: tuple[str, ...] = ()
    """What the claims ask for, as text: equal for claims that differ in names only."""


def member_kinds(snapshot: Snapshot, work: WorkloadUnit, options: Options) -> list[MemberKind]:
    """The unit's waiting pods by kind, as many as have to be placed; pods whose claims are in trouble are left out."""
    group, overlay = work.pod_group(snapshot), Overlay(snapshot)
    found: dict[object, MemberKind] = {}
    pods: Counter[object] = Counter()
    paths: dict[object, set[str]] = {}
    for pod in work.pending(snapshot):
        if pod.gated:
            continue
        demand = device_demand_of(overlay, pod, group, options)
        if isinstance(demand, Reason):
            continue
        uses = demand.pending_anywhere()
        key = (pod.shape, demand.shape)
        if key not in found:
            specs = tuple(json.dumps(use.claim.get("spec"), sort_keys=True) for use in uses)
            found[key] = MemberKind(pod, 1, demand, decoded_claims(overlay, options, uses), frozenset(), specs)
            paths[key] = set()
        pods[key] += 1
        paths[key].update([use.path for use in uses])
    counted = (replace(kind, pods=pods[key], paths=frozenset(paths[key])) for key, kind in found.items())
    kinds = list(islice(counted, MOST_KINDS))
    if len(kinds) != 1:
        return kinds
    needed = members_needed(snapshot, work.group, group)
    return [_as_needed(kinds[0], min(kinds[0].pods, needed))]


def _as_needed(kind: MemberKind, needed: int) -> MemberKind:
    """Only so many of them; claims that all of them share are one claim still."""
    own = len(kind.paths) > len(kind.claims)
    paths = frozenset(sorted(kind.paths)[: needed * len(kind.claims)]) if own else kind.paths
    return replace(kind, pods=needed, paths=paths)


def without(kind: MemberKind, pods: int) -> MemberKind:
    """The kind without so many pods that need no devices, because nodes serve their extended resources themselves."""
    special = kind.demand.extended.widest() if kind.demand.extended is not None else None
    if special is None or [claim.name for claim in kind.claims] != [special.path]:
        return kind  # other claims of theirs need devices all the same
    return replace(kind, paths=frozenset(sorted(kind.paths)[: max(1, len(kind.paths) - pods)]))


def claims_of(kind: MemberKind) -> int:
    """How many claims stand behind each of the kind's claims: one per pod, or one for all."""
    return max(1, len(kind.paths) // max(1, len(kind.claims)))


def asked_on(kind: MemberKind, node: NodeInfo) -> frozenset[tuple[str, str]] | None:
    """Which requests are asked of a node, by claim and name, where that differs between nodes; None: all of them.

    A node that serves an extended resource itself is asked for no devices for it.
    """
    if kind.demand.extended is None:
        return None
    found = set()
    for use in kind.demand.pending_on(node):
        requests = ((use.claim.get("spec") or {}).get("devices") or {}).get("requests") or ()
        found |= {(use.path, request["name"]) for request in requests}
    return frozenset(found)


def asked(kind: MemberKind, claim: str, request: Request, ask: SubRequest) -> Asked:
    """One request of a kind, in total."""
    return Asked(
        request=ask.result_name,
        claims=claims_of(kind),
        count=None if ask.mode == ALL else ask.count,
        device_class=ask.class_name,
        selectors=tuple(expression or "" for expression in ask.selection.request_expressions),
        capacity={name: text for name, _, text in ask.wanted},
        admin=ask.admin,
        alternative=len(request.asks) > 1,
        resource=_resource(kind, claim, request.name),
    )


def _resource(kind: MemberKind, claim: str, request: str) -> str:
    """The extended resource that a request of the special claim stands for."""
    extended = kind.demand.extended
    special = extended.widest() if extended is not None else None
    if extended is None or special is None or special.path != claim:
        return ""
    return next((asked.resource for asked in extended.requests if asked.name == request), "")


def pods_asked(kinds: Sequence[MemberKind]) -> tuple[PodsAsked, ...]:
    """What the pods themselves ask of their nodes."""
    return tuple(PodsAsked(kind.pods, {k: v for k, v in sorted(kind.pod.requests.items()) if v}) for kind in kinds)


_Wants = tuple[tuple[int, int], ...]
"""Per alternative of a request: devices that could serve it, and how many of them one pod needs."""


@dataclass(frozen=True, slots=True)
class _Place:
    """One node for one kind of pods: how many it has room for, and its devices, by request."""

    room: int
    requests: tuple[_Wants, ...]

    def pods(self, most: int | None = None) -> int:
        """How many pods it takes if each request asks for `most` devices at most."""
        found = self.room
        for ways in self.requests:
            found = min(found, sum(kept // (count if most is None else min(count, most)) for kept, count in ways))
        return found


class Capacity:
    """The nodes of a snapshot, for the members of a unit. `tainted`: devices count that only taints keep back."""

    def __init__(
        self,
        snapshot: Snapshot,
        members: Iterable[tuple[MemberKind, DeviceClassSurvey | None]],
        *,
        tainted: bool = False,
    ) -> None:
        self._snapshot = snapshot
        self._members = list(members)
        self._tainted = tainted
        self._devices: dict[tuple[int, NodeKind], tuple[_Wants, ...]] = {}
        self._places: dict[tuple[int, str], _Place] = {}

    @property
    def needed(self) -> int:
        """How many pods have to be placed."""
        return sum(kind.pods for kind, _ in self._members)

    def of(self, name: str, most: int | None = None) -> int:
        """How many pods a node takes at most, if each request asks for `most` devices at most."""
        return sum(self._place(number, name).pods(most) for number in range(len(self._members)))

    def _place(self, number: int, name: str) -> _Place:
        found = self._places.get((number, name))
        if found is None:
            kind, survey = self._members[number]
            node = survey.kind_of.get(name) if survey is not None and _is_countable(kind) else None
            devices: tuple[_Wants, ...] = ()
            if node is not None and survey is not None:
                known = self._devices.get((number, node))
                if known is None:
                    known = self._devices[number, node] = tuple(_wants(survey, node, self._tainted))
                devices = known
            found = self._places[number, name] = _Place(_room(self._snapshot.nodes[name], kind), devices)
        return found


def _room(node: NodeInfo, kind: MemberKind) -> int:
    limits = [kind.pods]
    for resource, amount in kind.pod.requests.items():
        if resource not in kind.demand.backed and amount > 0:
            limits.append((node.allocatable.get(resource, 0) - node.requested.get(resource, 0)) // amount)
    if "pods" in node.allocatable:
        limits.append(node.allocatable["pods"] - len(node.pods))
    return max(0, min(limits))


def _is_countable(kind: MemberKind) -> bool:
    """Whether every pod has claims of its own, for devices that have nothing to do with the node's resources."""
    return len(kind.paths) >= kind.pods and kind.demand.extended is None and not kind.demand.counts_devices


def _wants(survey: DeviceClassSurvey, node: NodeKind, tainted: bool) -> Iterator[_Wants]:
    funnels = list(node.funnel.requests)
    shared = any(device.shape.shareable for _, _, device in node.devices(next(iter(node.nodes))))
    for claim in survey.claims:
        for request in claim.requests:
            own, funnels = funnels[: len(request.asks)], funnels[len(request.asks) :]
            one_by_one = not shared and not any(ask.mode == ALL or ask.admin for ask in request.asks)
            if own and one_by_one:
                yield tuple((_kept(f, tainted), max(1, ask.count)) for ask, f in zip(request.asks, own, strict=True))


def _kept(funnel: RequestFunnel, tainted: bool) -> int:
    more = sum(len(stage.dropped) for stage in funnel.stages if stage.name == "taints") if tainted else 0
    return len(funnel.kept) + more
