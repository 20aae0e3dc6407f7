"""What Haru's engine decides about a unit, for `decisions_compared`: an outcome for each tie and order of members."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType, SimpleNamespace
from unittest.mock import patch

from decision_verdicts import Outcome, Placement, devices_of, made_for, of_containers, of_node
from manifests import Obj
from random_profiles import DEFAULT, profiles

from haru.engine import Decision, Features, Options, SchedulerCache, decide
from haru.engine.framework import PreemptionOptions, SchedulerGates
from haru.engine.preemption import keeps_nomination
from haru.engine.state import PodInfo
from haru.kube.gates import FeatureGates
from haru.scheduler.queue import queueing_hints

GANG_GATES = (
    *("GenericWorkload", "GangScheduling", "WorkloadAwarePreemption", "TopologyAwareWorkloadScheduling"),
    "DRAWorkloadResourceClaims",
)
ALPHA_GATES = (*GANG_GATES, "DRANodeAllocatableResources", "DRAListTypeAttributes")
TIES = 40
"""Decisions with other seeds: enough that each of some equal nodes is chosen once."""


def decisions(
    objects: Sequence[Obj],
    pods: Sequence[Obj],
    group: Obj | None,
    gates: Sequence[str] = GANG_GATES,
    ties: int = TIES,
) -> list[Decision]:
    """A decision for each of some seeds, with the members of a gang in each order in which they may come."""
    orders = list(itertools.permutations(pods)) if group else [tuple(pods)]
    found = []
    for seed in range(max(ties, len(orders))):
        order, seen = list(orders[seed % len(orders)]), objects
        if group:
            # Members are decided oldest first: kube-scheduler's order depends on when it was told of them.
            order = [_created(pod, number) for number, pod in enumerate(order)]
            aged = {pod["metadata"]["uid"]: pod for pod in order}
            seen = [aged.get(one["metadata"].get("uid", ""), one) for one in objects]
        found.append(_decided(seen, order, group, gates, seed))
    return found


@contextlib.contextmanager
def without_search() -> Iterator[None]:
    """Have members of a gang take the places that they find first, until the block is left."""
    nothing = SimpleNamespace(placed=(), complete=True, problem="", ceiling=None)
    with patch("haru.engine.podgroup.placement_attempt.search_placements", lambda *_: nothing):
        yield


def _created(pod: Obj, number: int) -> Obj:
    return {**pod, "metadata": {**pod["metadata"], "creationTimestamp": f"2026-01-01T00:00:{number:02d}Z"}}


def _decided(objects: Sequence[Obj], pods: Sequence[Obj], group: Obj | None, on: Sequence[str], seed: int) -> Decision:
    shares, gates = itertools.count(), FeatureGates(dict.fromkeys(on, True)).all()
    profile = profiles()[pods[0]["spec"].get("schedulerName", DEFAULT)]
    options = Options(
        seed=seed,
        features=Features.from_gates(gates),
        gates=SchedulerGates.from_gates(gates),
        new_share_id=lambda: f"share-{next(shares)}",
        preemption=PreemptionOptions(preempt_for_pods=profile.preemption, preempt_for_groups=profile.preemption),
        profile=profile,
        now=time.time(),
    )
    return decide(SchedulerCache.of(objects).snapshot(), pods, group=group, options=options)


def kept_nominations(objects: Sequence[Obj], pods: Sequence[Obj]) -> dict[str, str]:
    """The nodes for which somebody has nominated these pods, where that stays though they are refused."""
    infos = [PodInfo.of(pod) for pod in pods if pod["status"].get("nominatedNodeName")]
    snapshot = SchedulerCache.of(objects).snapshot() if infos else None
    preempts = profiles()[pods[0]["spec"].get("schedulerName", DEFAULT)].preemption
    kept = (one for one in infos if snapshot and keeps_nomination(snapshot, one, preempts=preempts))
    return {one.key.name: one.nominated_node for one in kept}


def outcome_of(decision: Decision, kept: Mapping[str, str] = MappingProxyType({})) -> Outcome:
    """The outcome of a decision. `kept`: nominations by others that stay where it refuses."""
    pods, devices, volumes = dict[str, Placement](), dict[str, list[tuple[object, ...]]](), dict[str, str]()
    for member in decision.members:
        name = member.pod.name
        if decision.status == "scheduled" and member in decision.placed:
            pods[name] = Placement(member.node or "")
            for one in member.allocations:
                found = one.claim_name if one.new_claim is None else f"extended {name}"
                devices[found] = devices_of(one.allocation)
            devices |= of_node(name, member.claimed)
            if member.extended:
                devices |= of_containers(name, member.extended.mappings)
            volumes |= {one.claim_name: one.volume or made_for(member.node or "") for one in member.volumes}
        else:
            failed = "error" in (member.status, decision.status)
            nominated = member.node or "" if member.status == "nominated" else "" if failed else kept.get(name, "")
            pods[name] = Placement("", member.message or decision.message, nominated)
    victims = sorted(one.pod.name for one in decision.evictions)
    return Outcome(pods, victims, devices, decision.status == "nominated", volumes)


def helps(decision: Decision, pods: Sequence[Obj], objects: Sequence[Obj], old: Obj | None, new: Obj | None) -> bool:
    """Whether a change wakes pods that this decision refused, in Haru's scheduling queue."""
    plugins = {plugin for member in decision.members for plugin in member.plugins}
    if decision.group is not None:
        plugins |= queueing_hints.wanted_by(pods, [member.plugins for member in decision.members], spread=False)
    rejected = queueing_hints.rejecting(plugins, pods)
    kind = (new or old or {})["kind"]
    if kind == "Pod":
        helped = queueing_hints.pod_change(old, new, SchedulerCache.of(objects).now)
    elif kind == "ResourceClaim":
        helped = queueing_hints.claim_change(old, new)
    else:
        helped = queueing_hints.other_change(kind, old, new)
    return not rejected or bool(rejected & helped)
