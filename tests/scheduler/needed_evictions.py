"""Victims of a decision: less important, enough, and each of them needed, by deciding again on what is left.

Source: KEP-5710 (whole groups go together); kube-scheduler's reprieve, which keeps whoever need not go.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from haru.engine import Decision, Options, SchedulerCache, decide

Obj = dict[str, Any]


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
    placed = len(_decided(_left(everything, victims | going), pods, group, node).placed)
    if placed < len(decision.nominated):
        yield f"{sorted(victims)} are not enough, with {sorted(going)} that go anyway: {placed} have a place"
    for stay in together.values():
        left = _decided(_left(everything, (victims | going) - stay), pods, group, node)
        if len(left.placed) >= len(decision.nominated):
            yield f"{sorted(stay)} of {sorted(victims)} need not go"


def _decided(objects: Iterable[Obj], pods: list[Obj], group: Obj | None, node: str | None) -> Decision:
    others = [one for one in objects if one["kind"] != "Node" or node in (None, one["metadata"]["name"])]
    numbers = itertools.count()
    options = Options(new_share_id=lambda: f"later-{next(numbers)}")
    return decide(SchedulerCache.of(others).snapshot(), pods, group=group, options=options)


def _left(objects: list[Obj], gone: Collection[str]) -> Iterator[Obj]:
    """The cluster without some pods; claims that nobody has by then are free, those of emptied groups, too."""
    there = [one for one in objects if one["kind"] != "Pod" or one["metadata"]["name"] not in gone]
    placed = [one for one in there if one["kind"] == "Pod" and one["spec"].get("nodeName")]
    emptied = {_group(one) for one in objects if one["kind"] == "Pod" and one["metadata"]["name"] in gone}
    emptied -= {_group(one) for one in placed}
    users = {
        one["metadata"].get("uid")
        for one in there
        if (one["kind"] == "Pod" and one["status"].get("phase") != "Succeeded")
        or (one["kind"] == "PodGroup" and one["metadata"]["name"] not in emptied)
    }
    for one in there:
        status = one.get("status") or {}
        if one["kind"] == "ResourceClaim" and status.get("reservedFor"):
            kept = [entry for entry in status["reservedFor"] if entry["uid"] in users]
            yield {**one, "status": {**status, "reservedFor": kept} if kept else {}}
        else:
            yield one


def _group(pod: Obj) -> str:
    return str((pod["spec"].get("schedulingGroup") or {}).get("podGroupName") or "")
