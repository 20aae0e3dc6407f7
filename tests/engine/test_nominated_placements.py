"""Nominated placements: other pods must fit now and after the pending evictions, on devices too."""

from __future__ import annotations

from typing import Any

import pytest
from engine_objects import (
    Obj,
    allocated,
    allocation,
    claim,
    device_class,
    member_with_claim,
    node,
    options,
    pod,
    pod_group,
    resource_slice,
)

from haru.engine.podgroup import decide
from haru.engine.preemption.nominated_placements import displaced, terminating_pods
from haru.engine.state.cache import SchedulerCache
from haru.engine.state.decision import ClaimAllocation, Decision, PodKey
from haru.engine.state.pending_reservations import FROM_EVERYBODY, Nomination, nominations_of

PREEMPTED = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}


def key(name: str) -> PodKey:
    return PodKey("default", name, f"uid-{name}")


def ask(cluster: SchedulerCache, *names: str, group: str = "", **more: Any) -> Decision:
    snapshot = cluster.snapshot()
    pods = [snapshot.pods[f"default/{name}"].obj for name in names]
    both = {"preempt_for_pods": True, "preempt_for_groups": True}
    named = snapshot.pod_groups[f"default/{group}"] if group else None
    return decide(snapshot, pods, group=named, options=options(**{**both, **more}))


def cluster_of(*objects: Obj) -> SchedulerCache:
    return SchedulerCache.of(objects)


def promised(*objects: Obj, priority: int = 5) -> SchedulerCache:
    """Node `a` (8 cpu) where `low` (4 cpu) makes room for `first` (6 cpu, priority 5), and what else is given."""
    cluster = cluster_of(
        node("a"), pod("low", cpu="4", node="a"), pod("first", cpu="6", priority=5), pod("late", cpu="2"), *objects
    )
    decision = ask(cluster, "first")
    assert [e.pod.name for e in decision.evictions] == ["low"]
    cluster.nominate(nominations_of(decision, priority))
    return cluster


def test_other_pod_must_fit_now_and_after_pending_evictions() -> None:
    """4 + 2 fits now, 6 + 2 fits later; 3 would fit now, but not later; 4 + 6 + 2 never have to fit at once."""
    cluster = promised(pod("too-much", cpu="3"))
    assert ask(cluster, "late").status == "scheduled"
    decision = ask(cluster, "too-much")
    assert (decision.status, decision.evictions) == ("unschedulable", ())
    assert decision.message.startswith("0/1 nodes are available: 1 Insufficient cpu.")


def test_resources_of_pending_victims_are_not_free_yet() -> None:
    """Once `low` is gone there are 2 cpu more than `first` needs, but now there are none: `late` waits.

    It has no place kept for it either: it is not more important than `low`.
    """
    cluster = cluster_of(
        node("a"), pod("low", cpu="8", node="a"), pod("first", cpu="6", priority=5), pod("late", cpu="2")
    )
    cluster.nominate(nominations_of(ask(cluster, "first"), 5))
    decision = ask(cluster, "late")
    assert (decision.status, decision.evictions) == ("unschedulable", ())


@pytest.mark.parametrize(("priority", "status"), [(5, "unschedulable"), (4, "unschedulable"), (6, "scheduled")])
def test_nominated_placement_blocks_pods_of_equal_or_lower_priority(priority: int, status: str) -> None:
    cluster = promised(pod("other", cpu="3", priority=priority))
    assert ask(cluster, "other").status == status


def test_nominated_placement_can_block_every_priority() -> None:
    cluster = promised(pod("other", cpu="3", priority=1000), priority=FROM_EVERYBODY)
    assert ask(cluster, "other").status == "unschedulable"


def test_nominated_node_from_status_counts_beside_running_pods() -> None:
    """The API knows the node, not what is waited for: the promised pod counts besides all that is there."""
    first = pod("first", cpu="3", priority=5)
    first["status"]["nominatedNodeName"] = "a"
    cluster = cluster_of(node("a"), pod("low", cpu="4", node="a"), first, pod("late", cpu="2"))
    assert ask(cluster, "late").status == "unschedulable"
    going = pod("low", cpu="4", node="a")
    going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    going["status"]["conditions"] = [PREEMPTED]
    cluster.apply(going)
    assert [p.key.name for p in terminating_pods(cluster.snapshot())] == ["low"]
    assert ask(cluster, "late").status == "scheduled"


@pytest.mark.parametrize(("group", "status"), [("g", "unschedulable"), ("", "scheduled")])
@pytest.mark.parametrize("claim_first", [True, False])
def test_claim_reserved_for_gang_member_keeps_room_on_its_only_node(group: str, status: str, claim_first: bool) -> None:
    """Its claims are written before a gang is bound: they say where the member goes as a nomination does."""
    member = pod("first", cpu="6", group=group, claims=["c"], priority=5)
    given = allocated(claim("c"), allocation("a", "gpu-0"), member)
    objects = [given, member] if claim_first else [member, given]
    cluster = cluster_of(node("a"), pod_group("g", 2), *objects, pod("late", cpu="3"))
    assert ask(cluster, "late").status == status
    cluster.apply(claim("c"))
    assert ask(cluster, "late").status == "scheduled"
    cluster.apply(given)
    cluster.remove(member)
    assert ask(cluster, "late").status == "scheduled"


def test_claim_reserved_for_other_pod_of_that_name_keeps_nothing() -> None:
    member = pod("first", cpu="6", group="g", claims=["c"])
    given = allocated(claim("c"), allocation("a", "gpu-0"), {**member, "metadata": {"name": "first", "uid": "old"}})
    cluster = cluster_of(node("a"), pod_group("g", 2), given, member, pod("late", cpu="3"))
    assert ask(cluster, "late").status == "scheduled"


def test_anti_affinity_of_nominated_pod_refuses_only_members_that_it_selects() -> None:
    """Node `b` takes one of both, and the member that `first` keeps off `a` comes first."""
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "p0"}}}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    first = pod("first", priority=5, affinity={"podAntiAffinity": required})
    first["status"]["nominatedNodeName"] = "a"
    members = [pod(name, group="g", cpu="2") for name in ("p0", "p1")]
    cluster = cluster_of(node("a"), node("b", cpu="2"), first, pod_group("g", 2), *members)
    decision = ask(cluster, "p0", "p1", group="g")
    assert [(member.status, member.node) for member in decision.members] == [("scheduled", "b"), ("scheduled", "a")]


def test_nominated_placement_on_deleted_node_blocks_nothing() -> None:
    cluster = promised()
    cluster.apply(node("b"))
    cluster.remove(node("a"))
    assert ask(cluster, "late").members[0].node == "b"


def test_nominated_placement_ends_with_pod_binding_or_request() -> None:
    for end in ("removed", "bound", "deleted", "replaced", "forgotten", "succeeded"):
        cluster = promised()
        assert set(cluster.snapshot().pod_index.nominations) == {"default/first"}
        first = pod("first", cpu="6", priority=5)
        if end == "removed":
            cluster.remove(first)
        elif end == "bound":
            cluster.assume_pod(key("first"), "a")
        elif end == "deleted":
            first["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
            cluster.apply(first)
        elif end == "replaced":
            first["metadata"]["uid"] = "another"
            cluster.apply(first)
        elif end == "succeeded":
            first["status"]["phase"] = "Succeeded"
            cluster.apply(first)
        else:
            cluster.forget_nomination(PodKey("default", "first", "another"))
            assert set(cluster.snapshot().pod_index.nominations) == {"default/first"}
            cluster.forget_nomination(key("first"))
        assert not cluster.snapshot().pod_index.nominations, end


def test_pod_update_keeps_nominated_placement() -> None:
    cluster = promised()
    cluster.apply({**pod("first", cpu="6", priority=5), "status": {"phase": "Pending", "nominatedNodeName": "a"}})
    assert set(cluster.snapshot().pod_index.nominations) == {"default/first"}
    assert ask(cluster, "late").status == "scheduled"


def test_nominating_missing_pod_raises_key_error() -> None:
    with pytest.raises(KeyError, match="pod default/nobody"):
        cluster_of(node("a")).nominate([Nomination(key("nobody"), "a", 0)])


def test_victims_of_lower_priority_nomination_are_evicted_first() -> None:
    """`low` is on its way out, for `first`; a gang that is more important than `first` takes that place.

    `less` would be evicted before `low` by its priority, and is left alone: nobody goes where waiting will do.
    """
    gang = [pod_group("g", 2, priority=10), *(pod(f"g-{n}", cpu="3", group="g", priority=10) for n in range(2))]
    cluster = promised(*gang)
    cluster.apply(node("b"))
    cluster.apply(pod("less", cpu="8", node="b", priority=-1))
    decision = ask(cluster, "g-0", "g-1", group="g")
    assert decision.status == "nominated"
    assert [e.pod.name for e in decision.evictions] == ["low"]
    assert [p.name for p in displaced(cluster.snapshot(), decision, 10)] == ["first"]


def test_victims_of_lower_priority_nomination_are_preferred_on_node() -> None:
    cluster = promised(pod("less", cpu="2", node="a", priority=-1), pod("urgent", cpu="4", priority=10))
    assert [e.pod.name for e in ask(cluster, "urgent").evictions] == ["low"]


def test_later_preemptor_does_not_rely_on_earlier_victims() -> None:
    cluster = promised(pod("cheap", cpu="2", node="a", priority=-1), pod("second", cpu="4", priority=3))
    decision = ask(cluster, "second")
    assert (decision.status, decision.evictions) == ("unschedulable", ())
    cluster.apply(node("b", cpu="4"))
    cluster.apply(pod("other", cpu="4", node="b", priority=1))
    assert [e.pod.name for e in ask(cluster, "second").evictions] == ["other"]


def test_nominated_pod_waits_and_evicts_no_more() -> None:
    """The retry while the victims drain: nominated again, to the same place, with no new evictions."""
    cluster = promised()
    cluster.apply(node("b", cpu="6"))
    cluster.apply(pod("cheaper", cpu="6", node="b", priority=-5))
    decision = ask(cluster, "first")
    assert (decision.status, decision.members[0].node, decision.evictions) == ("nominated", "a", ())
    assert decision.message == (
        "0/2 nodes are available: 2 Insufficient cpu. no new claims to deallocate, "
        "preemption: not eligible due to a terminating pod on the nominated node."
    )
    cluster.remove(pod("low", cpu="4", node="a"))
    assert ask(cluster, "first").placed[0].node == "a"


def test_nomination_stays_while_any_pod_terminates() -> None:
    """Half of the room is that of an equal, who is deleted anyway; it goes last."""
    low, equal = pod("low", cpu="4", node="a"), pod("equal", cpu="4", node="a", priority=5)
    equal["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    cluster = cluster_of(node("a"), low, equal, pod("first", cpu="8", priority=5))
    decision = ask(cluster, "first")
    assert (decision.status, [e.pod.name for e in decision.evictions]) == ("nominated", ["low"])
    cluster.nominate(nominations_of(decision, 5))
    cluster.remove(low)
    again = ask(cluster, "first")
    assert (again.status, again.evictions) == ("nominated", ())


def test_remaining_resources_of_eviction_are_kept_for_higher_priority() -> None:
    cluster = cluster_of(node("a"), pod("low", cpu="8", node="a"), pod("first", cpu="6", priority=5))
    cluster.apply(pod("next", cpu="2", priority=3))
    cluster.nominate(nominations_of(ask(cluster, "first"), 5))
    decision = ask(cluster, "next")
    assert (decision.status, decision.members[0].node, decision.evictions) == ("nominated", "a", ())
    cluster.nominate(nominations_of(decision, 3))
    cluster.remove(pod("low"))
    assert ask(cluster, "first").status == ask(cluster, "next").status == "scheduled"


def test_failed_nomination_is_replaced() -> None:
    cluster = promised()
    cluster.apply(node("b", cpu="6"))
    cluster.apply(pod("cheaper", cpu="6", node="b", priority=-5))
    cluster.apply(node("a", unschedulable=True))
    decision = ask(cluster, "first")
    assert (decision.members[0].node, [e.pod.name for e in decision.evictions]) == ("b", ["cheaper"])


def test_higher_priority_pod_takes_nominated_place() -> None:
    cluster = promised(pod("urgent", cpu="8", priority=50))
    decision = ask(cluster, "urgent")
    assert (decision.status, [e.pod.name for e in decision.evictions]) == ("nominated", ["low"])
    assert displaced(cluster.snapshot(), decision, 50) == [key("first")]
    cluster.apply(pod("more", cpu="4", node="a", priority=7))
    decision = ask(cluster, "urgent")
    assert (decision.status, [e.pod.name for e in decision.evictions]) == ("nominated", ["more", "low"])
    assert displaced(cluster.snapshot(), decision, 50) == [key("first")]
    assert displaced(cluster.snapshot(), decision, 5) == []


# -- devices and groups -----------------------------------------------------------------------------------------------


def devices() -> SchedulerCache:
    """Node `a` with two devices, one held by `low`; the gang of two wants both; `late` wants one."""
    low = pod("low", node="a", claims=["held"])
    work = [pod_group("g", 2, priority=9)]
    for i in range(2):
        work += member_with_claim(f"g-{i}", "g", priority=9)
    return cluster_of(
        device_class(),
        node("a"),
        resource_slice("a", 2),
        low,
        allocated(claim("held"), allocation("a", "gpu-0"), low),
        *work,
        *member_with_claim("late", ""),
    )


def nominated(cluster: SchedulerCache, priority: int = 9) -> Decision:
    decision = ask(cluster, "g-0", "g-1", group="g")
    assert [e.pod.name for e in decision.evictions] == ["low"]
    cluster.nominate(nominations_of(decision, priority))
    return decision


def test_nominated_devices_are_not_allocated_to_others() -> None:
    """One device is free now, but promised; without the promise it would be taken."""
    cluster = devices()
    assert ask(cluster, "late").status == "scheduled"
    decision = nominated(cluster)
    given = sorted(
        result["device"]
        for member in decision.nominated
        for made in member.allocations
        for result in made.allocation["devices"]["results"]
    )
    assert given == ["gpu-0", "gpu-1"]
    refused = ask(cluster, "late")
    assert (refused.status, refused.evictions) == ("unschedulable", ())
    assert refused.message.startswith("0/1 nodes are available: 1 cannot allocate all claims.")


def test_nominated_members_keep_places_and_group_waits() -> None:
    cluster = devices()
    nominated(cluster)
    again = ask(cluster, "g-0", "g-1", group="g")
    assert (again.status, len(again.nominated), again.evictions) == ("nominated", 2, ())
    assert again.message == "pod group is waiting for preemption to complete"


def test_gang_is_placed_after_victims_have_ended() -> None:
    cluster = devices()
    nominated(cluster)
    cluster.remove(pod("low"))
    cluster.apply(claim("held"))
    decision = ask(cluster, "g-0", "g-1", group="g")
    assert (decision.status, len(decision.placed)) == ("scheduled", 2)


def test_claim_nominated_for_others_is_waited_for() -> None:
    """A pod that shares a claim with a nominated pod must not have it allocated elsewhere meanwhile."""
    low = pod("low", node="a", claims=["held"])
    cluster = cluster_of(
        device_class(),
        node("a"),
        node("b"),
        resource_slice("a", 1),
        low,
        allocated(claim("held"), allocation("a", "gpu-0"), low),
        pod("first", claims=["shared"], priority=5),
        claim("shared"),
        pod("sharer", claims=["shared"]),
        pod("joiner", claims=["held"]),
    )
    assert ask(cluster, "joiner").status == "scheduled"
    cluster.nominate(nominations_of(ask(cluster, "first"), 5))
    cluster.apply(resource_slice("b", 1))
    for name, path in (("sharer", "default/shared"), ("joiner", "default/held")):
        decision = ask(cluster, name)
        assert decision.status == "unschedulable"
        assert decision.members[0].reasons[0].message == f"resource claim {path} is in the process of being allocated"


def test_pod_relying_on_claim_nominated_for_others_evicts_nobody() -> None:
    """It may come to nothing; once the claim is allocated there is time enough."""
    cluster = cluster_of(
        device_class(),
        node("a", cpu="2"),
        resource_slice("a", 1),
        claim("shared"),
        *(pod(name, node="a") for name in ("old-0", "old-1")),
        pod("first", claims=["shared"], priority=5),
        pod("second", claims=["shared"], priority=5),
    )
    decision = ask(cluster, "first")
    assert len(decision.evictions) == 1
    cluster.nominate(nominations_of(decision, 5))
    second = ask(cluster, "second")
    assert (second.status, second.evictions) == ("unschedulable", ())
    going = cluster.snapshot().pods[decision.evictions[0].pod.path].obj
    cluster.remove(going)
    first = ask(cluster, "first")
    assert first.status == "scheduled"
    given = first.placed[0].allocations[0]
    status = {"allocation": given.allocation, "reservedFor": [given.reserve_for]}
    cluster.assume_pod(first.placed[0].pod, "a")
    cluster.assume_claim({**cluster.snapshot().claims["default/shared"], "status": status}, written=True)
    second = ask(cluster, "second")
    assert (second.status, len(second.evictions)) == ("nominated", 1)


def test_partition_must_fit_now_and_after_pending_evictions() -> None:
    """Four quarters of a card: `low` holds one, the promise takes two others' room; one quarter is free both times."""
    counters = [{"name": "card", "counters": {"memory": {"value": "4"}}}]
    sizes = {"quarter-0": 1, "quarter-1": 1, "quarter-2": 1, "quarter-3": 1, "big": 3}
    parts = [
        {
            "name": name,
            "attributes": {"size": {"int": size}},
            "consumesCounters": [{"counterSet": "card", "counters": {"memory": {"value": str(size)}}}],
        }
        for name, size in sizes.items()
    ]
    slices = [resource_slice("a", parts), {**resource_slice("a", []), "metadata": {"name": "counters"}}]
    slices[1]["spec"]["sharedCounters"] = counters
    for item in slices:
        item["spec"]["pool"]["resourceSliceCount"] = 2
    low, dear = pod("low", node="a", claims=["held"]), pod("dear", node="a", claims=["kept"], priority=9)
    quarter = device_class("quarter", ['device.attributes["gpu.example.com"].size == 1'])
    big = device_class("big", ['device.attributes["gpu.example.com"].size == 3'])

    def wants(name: str, class_name: str) -> Obj:
        return claim(name, requests=[{"name": "gpu", "exactly": {"deviceClassName": class_name, "count": 1}}])

    cluster = cluster_of(
        quarter,
        big,
        node("a"),
        *slices,
        low,
        dear,
        allocated(wants("held", "quarter"), allocation("a", "quarter-0"), low),
        pod("first", claims=["mine"], priority=5),
        wants("mine", "big"),
        pod("late", claims=["small"]),
        wants("small", "quarter"),
        pod("later", claims=["another"]),
        wants("another", "quarter"),
    )
    assert ask(cluster, "first").status == "scheduled"
    extra = allocated(wants("kept", "quarter"), allocation("a", "quarter-3"), dear)
    cluster.apply(extra)
    decision = ask(cluster, "first")
    assert [e.pod.name for e in decision.evictions] == ["low"]
    cluster.nominate(nominations_of(decision, 5))
    # Now two quarters are free, later none is: 3 + 1 of 4.
    assert ask(cluster, "late").status == "unschedulable"
    cluster.remove(extra)
    assert ask(cluster, "late").placed[0].node == "a"


def test_share_must_fit_beside_nominated_partition() -> None:
    """A card of 4: `low` has a share of what takes 3 of it. When `low` is gone, a part that takes 2 was promised."""
    parts: list[Obj] = [
        {
            "name": name,
            "attributes": {"size": {"int": size}},
            "consumesCounters": [{"counterSet": "card", "counters": {"memory": {"value": str(size)}}}],
        }
        for name, size in {"shared": 3, "part": 2}.items()
    ]
    parts[0] |= {"allowMultipleAllocations": True, "capacity": {"memory": {"value": "4"}}}
    slices = [resource_slice("a", parts), {**resource_slice("a", []), "metadata": {"name": "counters"}}]
    slices[1]["spec"]["sharedCounters"] = [{"name": "card", "counters": {"memory": {"value": "4"}}}]
    for item in slices:
        item["spec"]["pool"]["resourceSliceCount"] = 2
    low = pod("low", node="a", claims=["held"])
    held = allocated(claim("held"), allocation("a", "shared"), low)
    held["status"]["allocation"]["devices"]["results"][0] |= {"shareID": "s", "consumedCapacity": {"memory": "1"}}
    wanted = {"deviceClassName": "part", "count": 1}
    share = {"deviceClassName": "gpu", "count": 1, "capacity": {"requests": {"memory": "1"}}}
    cluster = cluster_of(
        device_class(),
        device_class("part", ['device.attributes["gpu.example.com"].size == 2']),
        node("a"),
        *slices,
        low,
        held,
        pod("first", claims=["mine"], priority=5),
        claim("mine", requests=[{"name": "gpu", "exactly": wanted}]),
        pod("late", claims=["another"]),
        claim("another", requests=[{"name": "gpu", "exactly": share}]),
    )
    assert ask(cluster, "late").status == "scheduled"
    decision = ask(cluster, "first")
    assert [e.pod.name for e in decision.evictions] == ["low"]
    cluster.nominate(nominations_of(decision, 5))
    assert ask(cluster, "late").status == "unschedulable"


def test_preemptor_taking_nominated_place_evicts_its_victims_itself() -> None:
    """Nobody would see to it that `low` goes once the place of `first` is taken: it has not been seen to go yet."""
    cluster = promised(pod("urgent", cpu="6", priority=9))
    decision = ask(cluster, "urgent")
    assert [e.pod.name for e in decision.evictions] == ["low"]
    going = pod("low", cpu="4", node="a")
    going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    cluster.apply(going)
    assert ask(cluster, "urgent").status == "nominated"
    assert ask(cluster, "urgent").evictions == ()


def test_devices_are_nominated_for_claim_released_by_terminating_pod() -> None:
    """`going` is deleted by somebody, and frees the claim that `first` shares with it and takes to another node."""
    going = pod("going", node="b", claims=["shared"])
    going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    first, late = pod("first", priority=5, claims=["shared"]), pod("late", claims=["own"])
    shared = allocated(claim("shared"), allocation("b", "gpu-0"), going)
    cluster = cluster_of(
        *(node(name) for name in "ab"),
        *(resource_slice(name, 1) for name in "ab"),
        *(device_class(), going, first, late, shared, claim("own")),
    )
    assert ask(cluster, "late").placed[0].node == "a"
    consumer = {"resource": "pods", "name": "first", "uid": "uid-first"}
    given = ClaimAllocation("default", "shared", "uid-claim-shared", allocation("a", "gpu-0"), consumer)
    cluster.nominate([Nomination(key("first"), "a", 5, (given,))])
    assert ask(cluster, "late").status == "unschedulable"
