"""The earliest start of pending work, the nodes reserved for it until then, and which work may start before."""

from __future__ import annotations

import random
from dataclasses import replace
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
from plain_preemption import Situation, member_objects
from preemption_situations import situation, wanted
from safety_books import Hardware, classes

from haru.engine import Options
from haru.engine.backfill.earliest_start import reserve_earliest_start
from haru.engine.backfill.reservation import BackfillReservation
from haru.engine.podgroup import decide
from haru.engine.state.cache import SchedulerCache
from haru.engine.state.deadlines import ANNOTATION, epoch, latest_end, parse_limit
from haru.engine.state.decision import Decision
from haru.engine.state.pending_reservations import nominations_of
from haru.engine.state.pod_info import PodInfo
from nights import tonight

START = "2026-01-01T00:00:00Z"
NOW = epoch(START) or 0.0


def at_now(**more: Any) -> Options:
    return options(now=NOW, **more)


def running(name: str, where: str, cpu: str = "4", ends: int | None = None, **spec: Any) -> Obj:
    """A pod that ends so many seconds from now, grace included; without it, nobody knows when."""
    limit = {} if ends is None else {"activeDeadlineSeconds": ends, "terminationGracePeriodSeconds": 0}
    made = pod(name, cpu=cpu, node=where, **limit, **{"restartPolicy": "Never", **spec})
    made["status"]["startTime"] = START
    return made


def service(obj: Obj) -> Obj:
    """The same, kept running by a controller."""
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u", "controller": True}
    metadata = {**obj["metadata"], "ownerReferences": [owner]}
    return {**obj, "metadata": metadata, "spec": {**obj["spec"], "restartPolicy": "Always"}}


def head(cluster: SchedulerCache, *names: str, group: str = "") -> BackfillReservation | None:
    """Keep places for these pods, which must have been refused."""
    snapshot = cluster.snapshot()
    pods = [snapshot.pods[f"default/{name}"].obj for name in names]
    named = snapshot.pod_groups[f"default/{group}"] if group else None
    assert decide(snapshot, pods, group=named, options=at_now()).status == "unschedulable"
    found = reserve_earliest_start(snapshot, pods, group=named, options=at_now())
    cluster.reserve(found)
    return found


def ask(cluster: SchedulerCache, *names: str, group: str = "", **more: Any) -> Decision:
    snapshot = cluster.snapshot()
    pods = [snapshot.pods[f"default/{name}"].obj for name in names]
    named = snapshot.pod_groups[f"default/{group}"] if group else None
    return decide(snapshot, pods, group=named, options=at_now(**more))


def waits_for(found: BackfillReservation | None) -> set[str]:
    return {key.name for key in found.waits_for} if found is not None else set()


# -- what is kept ----------------------------------------------------------------------------------------------------


def test_earliest_start_follows_run_time_limits() -> None:
    cluster = SchedulerCache.of(
        [
            *(node(name) for name in ("a", "b", "c")),
            running("soon", "a", "8", ends=60),
            running("later", "b", "8", ends=300),
            running("last", "c", "8", ends=900),
            pod_group("g", 2),
            pod("g0", cpu="6", group="g"),
            pod("g1", cpu="6", group="g"),
        ]
    )
    found = head(cluster, "g0", "g1", group="g")
    assert found is not None
    assert (waits_for(found), found.until) == ({"soon", "later"}, NOW + 300)
    assert sorted(place.node for place in found.places) == ["a", "b"]


def test_grace_period_is_added_to_earliest_start() -> None:
    work = running("soon", "a", "8", ends=60)
    del work["spec"]["terminationGracePeriodSeconds"]
    found = head(SchedulerCache.of([node("a"), work, pod("big", cpu="8")]), "big")
    assert found is not None
    assert found.until == NOW + 90


def test_oldest_work_without_limit_is_waited_for_last() -> None:
    old = running("old", "a", "8")
    old["status"]["startTime"] = "2025-01-01T00:00:00Z"
    objects = [node("a"), node("b"), old, running("new", "b", "8"), pod("big", cpu="8")]
    found = head(SchedulerCache.of(objects), "big")
    assert found is not None
    assert (waits_for(found), found.until) == ({"old"}, None)


def test_known_end_is_preferred_to_unknown_end() -> None:
    objects = [node("a"), node("b"), running("open", "a", "8"), running("long", "b", "8", ends=9000)]
    found = head(SchedulerCache.of([*objects, pod("big", cpu="8")]), "big")
    assert found is not None
    assert (waits_for(found), found.until) == ({"long"}, NOW + 9000)


def test_pod_of_long_running_controller_is_not_waited_for() -> None:
    objects = [node("a"), service(running("web", "a", "8")), pod("big", cpu="8")]
    assert head(SchedulerCache.of(objects), "big") is None


def test_pod_with_deadline_is_waited_for_even_with_controller() -> None:
    objects = [node("a"), service(running("web", "a", "8", ends=60)), pod("big", cpu="8")]
    found = head(SchedulerCache.of(objects), "big")
    assert found is not None
    assert found.until == NOW + 60


def test_assumed_pod_gets_time_to_start() -> None:
    """It is on its way to its node: its time does not run yet."""
    cluster = SchedulerCache.of([node("a"), short("soon", "8", 20), pod("big", cpu="8")])
    cluster.assume_pod(cluster.snapshot().pods["default/soon"].key, "a")
    found = head(cluster, "big")
    assert found is not None
    assert (waits_for(found), found.until) == ({"soon"}, NOW + 25)


def test_claim_about_to_be_joined_is_not_free_when_other_users_end() -> None:
    """It is on its way and not in `reservedFor` yet; nobody knows when it ends."""
    first = running("first", "a", "1", ends=20, claims=["taken"])
    objects = [
        node("a"),
        device_class(),
        resource_slice("a", 1),
        first,
        allocated(claim("taken"), allocation("a", "gpu-0"), first),
        pod("late", cpu="1", claims=["taken"], priority=5),
        claim("wanted"),
        pod("big", cpu="1", claims=["wanted"]),
    ]
    cluster = SchedulerCache.of(objects)
    assert waits_for(head(cluster, "big")) == {"first"}
    joining = ask(cluster, "late").placed[0]
    cluster.assume_pod(joining.pod, "a", joining.claimed, joining.joined)
    found = head(cluster, "big")
    assert found is not None
    assert (waits_for(found), found.until) == ({"first", "late"}, None)
    cluster.forget_pod(joining.pod)
    found = head(cluster, "big")
    assert found is not None
    assert (waits_for(found), found.until) == ({"first"}, NOW + 20)


def test_pod_that_would_keep_reserved_claim_causes_no_eviction() -> None:
    """`joins` would hold the card beyond the end of `first`, when the head is to have it."""
    first = running("first", "a", "1", ends=20, claims=["taken"], priority=5)
    objects = [
        node("a", cpu="5"),
        device_class(),
        resource_slice("a", 1),
        first,
        allocated(claim("taken"), allocation("a", "gpu-0"), first),
        running("low", "a", "3", priority=-1),
        claim("wanted"),
        pod("big", cpu="1", claims=["wanted"], priority=10),
        pod("joins", cpu="3", claims=["taken"], priority=5),
    ]
    cluster = SchedulerCache.of(objects)
    assert waits_for(head(cluster, "big")) == {"first"}
    refused = ask(cluster, "joins", preempt_for_pods=True)
    assert (refused.status, refused.evictions) == ("unschedulable", ())
    cluster.reserve(None)
    assert ask(cluster, "joins", preempt_for_pods=True).status == "nominated"


def test_nominated_pod_waiting_for_victims_has_unknown_end() -> None:
    """`first` starts when `low` has gone, and runs for a minute from then on."""
    low = running("low", "a", "8", priority=-1)
    cluster = SchedulerCache.of([node("a"), service(low), short("first", "8", 60, priority=5), pod("big", cpu="8")])
    decision = ask(cluster, "first", preempt_for_pods=True)
    assert [eviction.pod.name for eviction in decision.evictions] == ["low"]
    cluster.nominate(nominations_of(decision, 5))
    found = head(cluster, "big")
    assert found is not None
    assert (waits_for(found), found.until) == ({"first"}, None)


def test_nominated_pod_that_head_waits_for_keeps_its_nomination() -> None:
    """Neither may take the place of the other for ever: the head has itself foreseen that `first` starts before it."""
    low = running("low", "a", "8", priority=-1)
    others = [pod(name, cpu="8", priority=5) for name in ("first", "big", "late")]
    cluster = SchedulerCache.of([node("a"), low, *others])
    decision = ask(cluster, "first", preempt_for_pods=True)
    cluster.nominate(nominations_of(decision, 5))
    assert waits_for(head(cluster, "big")) >= {"first"}
    assert ask(cluster, "first", preempt_for_pods=True).status == "nominated"
    assert ask(cluster, "late", preempt_for_pods=True).status == "unschedulable"
    cluster.remove(low)
    assert ask(cluster, "first", preempt_for_pods=True).status == "scheduled"
    assert ask(cluster, "late", preempt_for_pods=True).status == "unschedulable"


def test_pod_that_never_fits_or_group_that_runs_gets_no_reservation() -> None:
    assert head(SchedulerCache.of([node("a"), running("x", "a", ends=5), pod("huge", cpu="9")]), "huge") is None
    members = [running("g0", "a", "6", ends=5), pod("g1", cpu="6", group="g")]
    members[0]["spec"]["schedulingGroup"] = {"podGroupName": "g"}
    assert head(SchedulerCache.of([node("a"), pod_group("g", 1), *members]), "g1", group="g") is None


def test_devices_are_reserved_for_head_of_queue() -> None:
    user = running("user", "a", "1", ends=60)
    objects = [
        device_class(),
        node("a"),
        resource_slice("a", 2),
        user,
        allocated(claim("held"), allocation("a", "gpu-0"), user),
        *member_with_claim("both", "", count=2),
        *member_with_claim("one", "", count=1),
    ]
    cluster = SchedulerCache.of(objects)
    found = head(cluster, "both")
    assert found is not None
    (given,) = found.places[0].allocations
    assert [result["device"] for result in given.allocation["devices"]["results"]] == ["gpu-0", "gpu-1"]
    assert ask(cluster, "one").status == "unschedulable"
    cluster.reserve(None)
    assert ask(cluster, "one").status == "scheduled"


def test_job_deadline_counts_from_job_start() -> None:
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "u", "controller": True}
    work = running("train-0", "a", "8", terminationGracePeriodSeconds=10)
    work["metadata"]["ownerReferences"] = [owner]
    meta = {"name": "train", "namespace": "default", "uid": "u"}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": {"activeDeadlineSeconds": 100}}
    started = {**job, "status": {"startTime": "2025-12-31T23:59:30Z"}}
    for made, until in ((job, NOW + 110), (started, NOW + 80)):
        found = head(SchedulerCache.of([node("a"), work, made, pod("big", cpu="8")]), "big")
        assert found is not None
        assert found.until == until


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("1h30m", 5400), ("0s", None), ("soon", None), ("-5m", None)]
)
def test_run_time_limit_annotation_is_a_duration(text: str, seconds: float | None) -> None:
    made = running("p", "a", terminationGracePeriodSeconds=0)
    made["metadata"]["annotations"] = {ANNOTATION: text}
    snapshot = SchedulerCache.of([made]).snapshot()
    end = latest_end(snapshot, snapshot.pods["default/p"], NOW)
    assert end == (None if seconds is None else NOW + seconds)
    if seconds is None:
        with pytest.raises(ValueError, match="write a duration such as 10m"):
            parse_limit(text)


def test_group_run_time_limit_applies_to_members_until_it_has_passed() -> None:
    group = pod_group("g", 1)
    group["metadata"]["annotations"] = {ANNOTATION: "1m"}
    made = running("p", "a", terminationGracePeriodSeconds=0)
    made["spec"]["schedulingGroup"] = {"podGroupName": "g"}
    snapshot = SchedulerCache.of([group, made]).snapshot()
    info = snapshot.pods["default/p"]
    assert latest_end(snapshot, info, NOW + 30) == NOW + 60
    assert latest_end(snapshot, info, NOW + 61) is None


# -- who may go first ------------------------------------------------------------------------------------------------


def waiting(*objects: Obj) -> SchedulerCache:
    """Two nodes of 8 cpu, one of them in use for 100 s; the head wants 6 on both."""
    cluster = SchedulerCache.of(
        [
            node("a"),
            node("b"),
            running("now", "a", "8", ends=100),
            pod_group("g", 2),
            pod("g0", cpu="6", group="g"),
            pod("g1", cpu="6", group="g"),
            *objects,
        ]
    )
    assert head(cluster, "g0", "g1", group="g") is not None
    return cluster


def short(name: str, cpu: str, seconds: int, **spec: Any) -> Obj:
    return pod(name, cpu=cpu, activeDeadlineSeconds=seconds, terminationGracePeriodSeconds=0, **spec)


@pytest.mark.parametrize(
    ("pod_", "status"),
    [
        (pod("beside", cpu="2"), "scheduled"),
        (pod("endless", cpu="3"), "unschedulable"),
        (short("quick", "3", 95), "scheduled"),
        (short("slow", "3", 96), "unschedulable"),
        (pod("urgent", cpu="3", priority=1), "scheduled"),
        (short("lesser", "3", 96, priority=-1), "unschedulable"),
    ],
    ids=lambda value: value["metadata"]["name"] if isinstance(value, dict) else value,
)
def test_backfill_starts_only_pods_that_do_not_delay_head(pod_: Obj, status: str) -> None:
    """6 of 8 cpu are kept on the node that is free; the head starts in 100 s at the latest."""
    cluster = waiting(pod_)
    decision = ask(cluster, pod_["metadata"]["name"])
    assert decision.status == status
    if status == "scheduled":
        assert decision.members[0].node == "b"


def test_group_is_backfilled_only_if_all_members_end_in_time() -> None:
    group = pod_group("h", 2)
    cluster = waiting(group, short("h0", "4", 10, group="h"), short("h1", "4", 10, group="h"))
    assert ask(cluster, "h0", "h1", group="h").status == "scheduled"
    cluster = waiting(group, short("h0", "4", 10, group="h"), short("h1", "4", 200, group="h"))
    assert ask(cluster, "h0", "h1", group="h").status == "unschedulable"


@pytest.mark.parametrize(("shared", "status"), [(True, "unschedulable"), (False, "scheduled")])
def test_group_with_shared_claim_is_not_backfilled(shared: bool, status: str) -> None:
    """What is reserved for a PodGroup stays with it when its members have ended: until it goes (KEP-5729)."""
    user = running("user", "a", "1", ends=60)
    named = [{"name": "cards", "resourceClaimName": "cards"}]
    member = short("h0", "1", 5, claims=["cards"], group="h")
    member["spec"]["resourceClaims"] = named
    cluster = SchedulerCache.of(
        [
            device_class(),
            node("a"),
            resource_slice("a", 2),
            user,
            allocated(claim("held"), allocation("a", "gpu-0"), user),
            *member_with_claim("both", "", count=2),
            pod_group("h", 1, named if shared else []),
            claim("cards"),
            member,
        ]
    )
    assert head(cluster, "both") is not None
    assert ask(cluster, "h0", group="h").status == status


def test_no_backfill_into_reserved_nodes_while_start_is_unknown() -> None:
    cluster = SchedulerCache.of([node("a"), node("b"), running("open", "a", "8"), short("quick", "3", 1)])
    for obj in (pod_group("g", 2), pod("g0", cpu="6", group="g"), pod("g1", cpu="6", group="g")):
        cluster.apply(obj)
    assert head(cluster, "g0", "g1", group="g") is not None
    assert ask(cluster, "quick").status == "unschedulable"


@pytest.mark.parametrize(("cpu", "status"), [("1", "scheduled"), ("2", "unschedulable")])
def test_nominated_resources_count_before_waited_pods_end(cpu: str, status: str) -> None:
    """`low` goes for `urgent`; when it is gone, 1 cpu is left until `open` ends, for which the head waits."""
    cluster = SchedulerCache.of(
        [
            node("a", cpu="8"),
            running("open", "a", "3"),
            running("low", "a", "3", priority=-5),
            pod("urgent", cpu="4", priority=5),
            pod("big", cpu="2"),
            pod("other", cpu=cpu),
        ]
    )
    urgent = ask(cluster, "urgent", preempt_for_pods=True)
    assert [eviction.pod.name for eviction in urgent.evictions] == ["low"]
    cluster.nominate(nominations_of(urgent, 5))
    assert waits_for(head(cluster, "big")) == {"open"}
    assert ask(cluster, "other").status == status


def test_preemptor_does_not_rely_on_pods_that_have_yet_to_end() -> None:
    """`other` could have node `a` after `now`, were it not the head's; on `c` it evicts who is less important."""
    more = [node("c", cpu="4"), running("low", "c", "4", priority=-5), pod("other", cpu="4")]
    decision = ask(waiting(*more), "other", preempt_for_pods=True)
    assert decision.status == "nominated"
    assert [(e.pod.name, m.node) for e, m in zip(decision.evictions, decision.members, strict=True)] == [("low", "c")]
    decision = ask(waiting(pod("other", cpu="4")), "other", preempt_for_pods=True)
    assert (decision.status, decision.evictions) == ("unschedulable", ())


def test_share_of_card_reserved_for_head_is_not_allocated() -> None:
    """The card is in use as a part until `now` ends: no other share of it fits beside that, whatever the head is given.

    The head waits for the part and has the whole share; `other` would need a share of it and the room of `low`.
    """
    user = running("now", "a", "1", ends=100)
    asks = [{"name": "gpu", "exactly": {"deviceClassName": "any", "capacity": {"requests": {"memory": "1"}}}}]
    work = []
    for name, cpu, priority in (("big", "1", 0), ("other", "5", 0)):
        work += [claim(name, requests=asks), pod(name, cpu=cpu, claims=[name], priority=priority)]
    cluster = SchedulerCache.of(
        [
            *classes(),
            *Hardware("a", 8, "r0", "mixed").objects(),
            user,
            allocated(claim("part", requests=asks), allocation("a", "part-0"), user),
            running("low", "a", "6", priority=-5),
            *work,
        ]
    )
    assert waits_for(head(cluster, "big")) == {"now"}
    decision = ask(cluster, "other", preempt_for_pods=True)
    assert (decision.status, decision.evictions) == ("unschedulable", ())


def test_share_that_would_delay_head_is_not_allocated() -> None:
    """`now` has a share of the card until the head is to have a part of it: who joins in would keep that part away."""
    user = running("now", "a", "1", ends=100)
    share = [{"name": "gpu", "exactly": {"deviceClassName": "any", "capacity": {"requests": {"memory": "1"}}}}]
    part = [{"name": "gpu", "exactly": {"deviceClassName": "big"}}]
    taken = allocation("a", "share")
    taken["devices"]["results"][0].update({"shareID": "s", "consumedCapacity": {"memory": "1"}})
    cluster = SchedulerCache.of(
        [
            *classes(),
            *Hardware("a", 8, "r0", "mixed").objects(),
            user,
            allocated(claim("shared", requests=share), taken, user),
            running("low", "a", "5", priority=-5),
            *(claim("part", requests=part), pod("big", cpu="1", claims=["part"])),
            *(claim("other", requests=share), pod("other", cpu="5", claims=["other"])),
        ]
    )
    assert waits_for(head(cluster, "big")) == {"now"}
    decision = ask(cluster, "other", preempt_for_pods=True)
    assert (decision.status, decision.evictions) == ("unschedulable", ())
    cluster.reserve(None)
    assert ask(cluster, "other", preempt_for_pods=True).status == "nominated"


@pytest.mark.parametrize("cpu", ["1", "7"])
def test_claim_about_to_be_released_for_head_is_not_joined(cpu: str) -> None:
    """Its only user has ended: nobody has to end any more for the head to start."""
    first = running("first", "a", "1", claims=["taken"])
    first["status"]["phase"] = "Succeeded"
    cluster = SchedulerCache.of(
        [
            node("a", cpu="8"),
            device_class(),
            resource_slice("a", 1),
            first,
            allocated(claim("taken"), allocation("a", "gpu-0"), first),
            running("low", "a", "3", priority=-5),
            *(claim("wanted"), pod("big", cpu="1", claims=["wanted"])),
            pod("joins", cpu=cpu, claims=["taken"]),
        ]
    )
    found = head(cluster, "big")
    assert found is not None
    assert (waits_for(found), found.until) == (set(), NOW)
    refused = ask(cluster, "joins", preempt_for_pods=True)
    assert (refused.status, refused.evictions) == ("unschedulable", ())
    cluster.reserve(None)
    assert ask(cluster, "joins", preempt_for_pods=True).status in ("scheduled", "nominated")


def test_backfilled_pod_does_not_evict_in_reserved_places() -> None:
    """`quick` could end before the head starts, but not if `low` takes its time to go: then it would not start."""
    more = [running("low", "b", "2", priority=-5), short("quick", "8", 60)]
    decision = ask(waiting(*more), "quick", preempt_for_pods=True)
    assert (decision.status, decision.evictions) == ("unschedulable", ())


def test_head_takes_its_places_once_they_are_free() -> None:
    cluster = waiting()
    cluster.remove(running("now", "a", "8", ends=100))
    assert ask(cluster, "g0", "g1", group="g").status == "scheduled"


# -- the definition, and what it is for --------------------------------------------------------------------------------


def timed(one: Situation, seed: int) -> tuple[list[Obj], dict[str, float | None]]:
    """The situation with an end for some pods, None for those nobody knows of; the rest is kept running for ever."""
    draw = random.Random(seed)
    ends: dict[str, float | None] = {}
    objects = []
    for obj in one.objects():
        name = obj["metadata"]["name"]
        if obj["kind"] == "Pod" and obj["spec"].get("nodeName"):
            obj["status"]["startTime"] = START
            fate = draw.choice(["known", "known", "known", "unknown", "never"])
            if fate == "known":
                seconds = draw.choice([10, 20, 20, 30, 40])
                obj["spec"] |= {"activeDeadlineSeconds": seconds, "terminationGracePeriodSeconds": 0}
                ends[name] = NOW + seconds
            elif fate == "unknown":
                ends[name] = None
            obj = service(obj) if fate == "never" else obj
        objects.append(obj)
    return objects, ends


def earliest(one: Situation, ends: dict[str, float | None]) -> tuple[bool, float | None]:
    """Whether the group starts some day, and when, by looking at every moment at which something ends."""
    if one.most(one.going) >= one.minimum:
        return True, NOW
    known = sorted({end for end in ends.values() if end is not None})
    for moment in known:
        gone = frozenset(name for name, end in ends.items() if end is not None and end <= moment)
        if one.most(gone | one.going) >= one.minimum:
            return True, moment
    return one.most(frozenset(ends) | one.going) >= one.minimum, None


def check(one: Situation, seed: int) -> bool:
    objects, ends = timed(one, seed)
    cluster = SchedulerCache.of(objects)
    snapshot = cluster.snapshot()
    members = [o for o in objects if o["kind"] == "Pod" and o["metadata"]["name"].startswith("m")]
    group = snapshot.pod_groups["default/g"]
    if decide(snapshot, members, group=group, options=at_now()).status == "scheduled":
        return False
    found = reserve_earliest_start(snapshot, members, group=group, options=at_now())
    starts, moment = earliest(one, ends)
    assert (found is not None) == starts
    if found is None:
        return False
    assert found.until == moment
    awaited = waits_for(found)
    assert all(ends[name] is None or moment is None or (ends[name] or 0) <= moment for name in awaited)
    assert one.most(frozenset(awaited) | one.going) >= one.minimum == len(found.places)
    if moment is not None:
        check_that_nothing_delays_it(cluster, found, members, group, seed)
    return True


def check_that_nothing_delays_it(
    cluster: SchedulerCache, found: BackfillReservation, members: list[Obj], group: Obj, seed: int
) -> None:
    """Whoever goes first, at the moment that was foreseen the head starts."""
    draw = random.Random(seed)
    cluster.reserve(found)
    for number in range(4):
        seconds = draw.choice([None, 4, 14, 24, 34])
        limit = {} if seconds is None else {"activeDeadlineSeconds": seconds, "terminationGracePeriodSeconds": 0}
        made = [pod_group(f"h{number}", 1), *member_objects(f"h{number}", f"h{number}-", [wanted(draw)], 0)]
        for obj in made:
            if obj["kind"] == "Pod":
                obj["spec"] |= limit
            cluster.apply(obj)
        pods = [o for o in made if o["kind"] == "Pod"]
        decision = decide(cluster.snapshot(), pods, group=made[0], options=at_now(seed=draw.randint(0, 99)))
        for member in decision.placed:
            cluster.assume_pod(member.pod, member.node or "")
            for given in member.allocations:
                held = cluster.snapshot().claims[given.path]
                status = {"allocation": given.allocation, "reservedFor": [given.reserve_for]}
                cluster.apply({**held, "status": status})
    snapshot = cluster.snapshot()
    for info in list(snapshot.pods.values()):
        end = latest_end(snapshot, info, NOW)
        if info.node and (info.deleting or (end is not None and end <= (found.until or 0))):
            remove(cluster, info)
    cluster.reserve(None)
    then = options(now=found.until)
    assert decide(cluster.snapshot(), members, group=group, options=then).status == "scheduled"


def remove(cluster: SchedulerCache, info: PodInfo) -> None:
    """A pod has ended: what was reserved for it is free, what was reserved for its group is not."""
    cluster.remove(info.obj)
    for held in list(cluster.snapshot().claims.values()):
        entries = (held.get("status") or {}).get("reservedFor") or ()
        rest = [entry for entry in entries if entry["name"] != info.key.name]
        if len(rest) != len(entries):
            status = {**held["status"], "reservedFor": rest} if rest else {}
            cluster.apply({**held, "status": status})


@pytest.mark.parametrize("block", range(4))
def test_reservation_is_earliest_and_backfill_does_not_delay_it(block: int) -> None:
    kept = sum(
        check(replace(situation(seed), priority=8, ending=True), seed) for seed in range(100 * block, 100 * block + 100)
    )
    assert kept > 20


@pytest.mark.nightly
@pytest.mark.parametrize("block", range(20))
def test_reservation_is_earliest_in_20000_situations(block: int) -> None:
    for seed in tonight(range(1000 * (block + 1), 1000 * (block + 2))):
        check(replace(situation(seed), ending=True), seed)


def test_member_that_a_running_gang_lacks_may_take_a_reserved_place() -> None:
    """`a` (8 cpu) is kept for `big`; of the gang of two one runs, and half a gang is worse than a longer wait."""
    cluster = SchedulerCache.of(
        [node("a"), running("old", "a", cpu="4", ends=100), pod("big", cpu="8"), pod_group("g", 2)]
    )
    head(cluster, "big")
    cluster.apply(node("b"))
    for name, place in (("one", "b"), ("two", "")):
        cluster.apply(pod(name, cpu="4", group="g", node=place, **({} if place else {"nodeSelector": {"at": "a"}})))
    labelled = node("a")
    labelled["metadata"]["labels"] = {**labelled["metadata"].get("labels", {}), "at": "a"}
    cluster.apply(labelled)
    assert ask(cluster, "two", group="g").status == "scheduled"
    cluster.remove(pod("one", cpu="4", group="g", node="b"))
    cluster.apply(pod_group("g", 1))
    assert ask(cluster, "two", group="g").status == "unschedulable"
