"""A claim that is reserved for a PodGroup stays with the group when its members end; evicted ones leave it to others.

Source: KEP-5729 (the reservation ends with the PodGroup, not with its last pod); giving back what an evicted group had
is our own.
"""

from __future__ import annotations

from engine_objects import (
    Obj,
    allocated,
    allocation,
    claim,
    device_class,
    node,
    options,
    pod,
    pod_group,
    resource_slice,
)

from haru.engine.backfill.earliest_start import reserve_earliest_start
from haru.engine.backfill.reservation import BackfillReservation
from haru.engine.podgroup import decide
from haru.engine.state.cache import SchedulerCache
from haru.engine.state.deadlines import epoch
from haru.engine.state.decision import Decision, GroupKey
from haru.scheduler.binding import abandoned_claims

START = "2026-01-01T00:00:00Z"
NOW = epoch(START) or 0.0
OLD = GroupKey("default", "old")


def running(name: str, where: str, claim_name: str, ends: int, group: str = "", priority: int = 0) -> Obj:
    limit: Obj = {"activeDeadlineSeconds": ends, "terminationGracePeriodSeconds": 0}
    made = pod(name, group=group, node=where, claims=[claim_name], priority=priority, restartPolicy="Never", **limit)
    made["status"]["startTime"] = START
    return made


def of_group(obj: Obj, where: str) -> Obj:
    """The claim, allocated and reserved for the group `old`."""
    entry = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "old", "uid": "uid-group-old"}
    return {**obj, "status": {"allocation": allocation(where, "gpu-0"), "reservedFor": [entry]}}


def leaving(obj: Obj, *, evicted: bool) -> Obj:
    """The pod as somebody deletes it, or as it is evicted."""
    why = [{"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}] if evicted else []
    metadata = {**obj["metadata"], "deletionTimestamp": START}
    return {**obj, "metadata": metadata, "status": {**obj["status"], "conditions": why}}


class Scene:
    """Two nodes with a card each: one held by the gang `old` of two as a group, one by the pod `other`."""

    def __init__(self) -> None:
        self.members = [running(f"old-{number}", "n1", "shared", 10, "old") for number in range(2)]
        self.other = running("other", "n2", "own", 60)
        self.urgent = pod("urgent", claims=["urgent"], priority=100)
        named = [{"name": "shared", "resourceClaimName": "shared"}]
        self.cluster = SchedulerCache.of(
            [
                device_class(),
                *(node(name) for name in ("n1", "n2")),
                *(resource_slice(name, 1) for name in ("n1", "n2")),
                pod_group("old", 1, named, priority=0),
                *self.members,
                self.other,
                of_group(claim("shared"), "n1"),
                allocated(claim("own"), allocation("n2", "gpu-0"), self.other),
                claim("urgent"),
                self.urgent,
            ]
        )

    def ask(self) -> Decision:
        how = options(now=NOW, preempt_for_pods=True)
        return decide(self.cluster.snapshot(), [self.urgent], group=None, options=how)

    def reserve(self) -> BackfillReservation | None:
        return reserve_earliest_start(self.cluster.snapshot(), [self.urgent], group=None, options=options(now=NOW))

    def go(self, obj: Obj, *, evicted: bool) -> None:
        """A pod is deleted and then gone."""
        self.cluster.apply(leaving(obj, evicted=evicted))
        self.cluster.remove(obj)

    def abandoned(self) -> list[str]:
        return [obj["metadata"]["name"] for obj in abandoned_claims(self.cluster.snapshot(), OLD)]


def evicted(decision: Decision) -> set[str]:
    return {eviction.pod.name for eviction in decision.evictions}


def test_group_claim_stays_reserved_when_members_end() -> None:
    found = Scene().reserve()
    assert found is not None
    assert ({key.name for key in found.waits_for}, found.until) == ({"other"}, NOW + 60)


def test_deleted_members_keep_claim_reserved_for_group() -> None:
    scene = Scene()
    for member in scene.members:
        scene.cluster.apply(leaving(member, evicted=False))
    assert evicted(scene.ask()) == {"other"}
    for member in scene.members:
        scene.go(member, evicted=False)
    assert evicted(scene.ask()) == {"other"}
    assert scene.abandoned() == []


def test_evicted_members_release_group_claim() -> None:
    scene = Scene()
    for member in scene.members:
        scene.cluster.apply(leaving(member, evicted=True))
    assert (scene.ask().status, evicted(scene.ask())) == ("nominated", set())


def test_one_evicted_member_is_enough_to_release_group_claim() -> None:
    for first in (0, 1):
        scene = Scene()
        evictions = dict(zip((0, 1), (True, False), strict=True))
        for number, is_evicted in evictions.items():
            scene.cluster.apply(leaving(scene.members[number], evicted=is_evicted))
        for number in (first, 1 - first):
            assert (scene.ask().status, evicted(scene.ask())) == ("nominated", set())
            assert scene.abandoned() == []
            scene.cluster.remove(scene.members[number])
        assert not evicted(scene.ask())
        assert scene.abandoned() == ["shared"]


def test_remaining_members_of_evicted_group_release_claim_when_they_end() -> None:
    scene = Scene()
    scene.go(scene.members[0], evicted=True)
    found = scene.reserve()
    assert found is not None
    assert {key.name for key in found.waits_for} == {"old-1"}


def test_group_with_restarted_member_keeps_its_claim() -> None:
    scene = Scene()
    scene.go(scene.members[0], evicted=True)
    scene.cluster.apply(running("old-2", "n1", "shared", 10, "old"))
    assert {key.name for key in (scene.reserve() or BackfillReservation(None, 0, (), frozenset())).waits_for} == {
        "other"
    }
    for member in (scene.members[1], running("old-2", "n1", "shared", 10, "old")):
        scene.go(member, evicted=False)
    assert scene.abandoned() == []


def test_members_without_the_claim_do_not_keep_it_reserved() -> None:
    scene = Scene()
    scene.cluster.apply(pod("old-2", group="old", node="n1"))
    for member in scene.members:
        scene.go(member, evicted=True)
    assert scene.abandoned() == ["shared"]
    assert not evicted(scene.ask())
