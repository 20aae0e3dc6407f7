"""What a unit asks for: its members by kind, the claims that are yet to be allocated, and the total of each request.

Members of one kind ask for the same, so one stands for all. A claim that several members share is asked for once.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice

from haru.engine import Options, Overlay, Reason, Snapshot
from haru.engine.dra import ALL, Claim, Request, SubRequest
from haru.engine.plugins import DeviceDemand, device_demand_of
from haru.engine.podgroup import decoded_claims, members_needed
from haru.engine.state import NodeInfo, PodInfo
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
