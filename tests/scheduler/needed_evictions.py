"""Victims of a decision: less important, enough, and each of them needed, by deciding again on what is left.

Source: KEP-5710 (whole groups go together); kube-scheduler's reprieve, which keeps whoever need not go.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from haru.engine import Decision, Options, SchedulerCache, decide

Obj = dict[str, Any]
_EVICTED = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}


def vain_evictions(
    objects: Mapping[Any, Obj], decision: Decision, pods: list[Obj], group: Obj | None, priority: int
) -> Iterator[str]:
    """What is wrong with the evictions of a decision: who goes, that it is not enough, or that some are in vain."""
    everything = list(objects.values())
    of_pods = {one["metadata"]["name"]: one for one in everything if one["kind"] == "Pod"}
    going = {name for name, pod in of_pods.items() if pod["metadata"].get("deletionTimestamp")}
    together: dict[Any, set[str]] = defaultdict(set)
    for eviction in decision.evictions:
        together[eviction.unit or eviction.pod].add(eviction.pod.name)
    victims = set().union(*together.values())
    for name in sorted(victims):
        if of_pods[name]["spec"].get("priority", 0) >= priority:
            yield f"{name} is no less important"
    # For a single pod one node is freed, for a group any of them, and for rules between pods what is on other nodes.
    node: str | None = decision.nominated[0].node
    if group is not None or any(eviction.node != node for eviction in decision.evictions):
        node = None
    placed = len(_decided(everything, victims, going, pods, group, node).placed)
    if placed < len(decision.nominated):
        yield f"{sorted(victims)} are not enough, with {sorted(going)} that go anyway: {placed} have a place"
    for stay in together.values():
        left = _decided(everything, victims - stay, going - stay, pods, group, node)
        if len(left.placed) >= len(decision.nominated):
            yield f"{sorted(stay)} of {sorted(victims)} need not go"


def _decided(
    objects: list[Obj],
    evicted: Collection[str],
    going: Collection[str],
    pods: list[Obj],
    group: Obj | None,
    node: str | None,
) -> Decision:
    """Decide once these pods are gone, on one node if it is given."""
    cluster = SchedulerCache.of(_left(objects, evicted, going))
    for one in objects:
        if one["kind"] == "Node" and node not in (None, one["metadata"]["name"]):
            # The other nodes still count where pods are spread.
            cluster.apply({**one, "spec": {**one["spec"], "unschedulable": True}})
    for one in objects:
        if one["kind"] == "Pod" and one["metadata"]["name"] in evicted:
            # That they were evicted is seen: their gangs are halved.
            metadata = {**one["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}
            gone = {**one, "metadata": metadata, "status": {**one["status"], "conditions": [_EVICTED]}}
            cluster.apply(gone)
            cluster.remove(gone)
    numbers = itertools.count()
    options = Options(new_share_id=lambda: f"later-{next(numbers)}")
    return decide(cluster.snapshot(), pods, group=group, options=options)


def _left(objects: list[Obj], evicted: Collection[str], going: Collection[str]) -> Iterator[Obj]:
    """The cluster without some pods; claims that nobody has by then are free, also of groups emptied by evictions."""
    gone = {*evicted, *going}
    there = [one for one in objects if one["kind"] != "Pod" or one["metadata"]["name"] not in gone]
    placed = [one for one in there if one["kind"] == "Pod" and one["spec"].get("nodeName") and not _ended(one)]
    emptied = {_group(one) for one in objects if one["kind"] == "Pod" and one["metadata"]["name"] in evicted}
    emptied -= {_group(one) for one in placed}
    users = {
        one["metadata"].get("uid")
        for one in there
        if (one["kind"] == "Pod" and not _ended(one))
        or (one["kind"] == "PodGroup" and one["metadata"]["name"] not in emptied)
    }
    for one in there:
        status = one.get("status") or {}
        if one["kind"] == "ResourceClaim" and status.get("reservedFor"):
            kept = [entry for entry in status["reservedFor"] if entry["uid"] in users]
            yield {**one, "status": {**status, "reservedFor": kept} if kept else {}}
        else:
            yield one


def _ended(pod: Obj) -> bool:
    return bool(pod["status"].get("phase") == "Succeeded")


def _group(pod: Obj) -> str:
    return str((pod["spec"].get("schedulingGroup") or {}).get("podGroupName") or "")
