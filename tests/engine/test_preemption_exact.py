"""Victims are exactly those of the definition, found by trying everything; and what every decision must satisfy."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest
from engine_objects import Obj, options, pod_group
from plain_preemption import Situation, member_objects, most_with
from preemption_situations import situation, wanted

from haru.engine.podgroup import decide
from haru.engine.preemption import podgroup_preemption
from haru.engine.state.cache import SchedulerCache
from haru.engine.state.decision import Decision, MemberDecision
from haru.engine.state.pending_reservations import nominations_of
from nights import tonight


def decided(situation: Situation) -> tuple[Decision, list[Obj]]:
    objects = list(situation.objects())
    snapshot = SchedulerCache.of(objects).snapshot()
    members = [o for o in objects if o["kind"] == "Pod" and o["metadata"]["name"].startswith("m")]
    group = snapshot.pod_groups["default/g"]
    return decide(snapshot, members, group=group, options=options(preempt_for_groups=True)), objects


def check(situation: Situation) -> None:
    decision, _ = decided(situation)
    evicted = frozenset(eviction.pod.name for eviction in decision.evictions)
    if situation.most(frozenset()) >= situation.minimum:
        assert decision.status == "scheduled"
        assert not evicted
        return
    count, gone = situation.outcome()
    assert (len(decision.nominated), evicted) == (count, gone)
    assert decision.status == ("nominated" if count else "unschedulable")
    check_units(situation, evicted)
    check_places(situation, decision, evicted)


def check_single(one: Situation) -> None:
    """The first member as a pod of its own."""
    objects = list(one.objects())
    [member] = [o for o in objects if o["kind"] == "Pod" and o["metadata"]["name"] == "m0"]
    del member["spec"]["schedulingGroup"]
    snapshot = SchedulerCache.of(objects).snapshot()
    decision = decide(snapshot, [member], group=None, options=options(preempt_for_pods=True))
    evicted = frozenset(eviction.pod.name for eviction in decision.evictions)
    if any(one.takes(i, one.members[0], frozenset()) for i in range(len(one.machines))):
        assert (decision.status, evicted) == ("scheduled", frozenset())
        return
    allowed = one.single_outcomes()
    assert (decision.status == "nominated") == bool(allowed)
    if allowed:
        assert (decision.members[0].node, evicted) in allowed
        check_places(replace(one, by_rack=False), decision, evicted)


def check_later_work(one: Situation, seed: int) -> bool:
    """Once places are promised, a later group is bound if and only if enough members fit both now and then."""
    objects = list(one.objects())
    cluster = SchedulerCache.of(objects)
    members = [o for o in objects if o["kind"] == "Pod" and o["metadata"]["name"].startswith("m")]
    group = cluster.snapshot().pod_groups["default/g"]
    first = decide(cluster.snapshot(), members, group=group, options=options(preempt_for_groups=True))
    if not first.evictions:
        return False
    cluster.nominate(nominations_of(first, 8))
    draw = random.Random(seed)
    later = [wanted(draw) for _ in range(draw.randint(1, 3))]
    minimum = draw.randint(1, len(later))
    made = [pod_group("h", minimum), *member_objects("h", "h", later, 0)]
    for obj in made:
        cluster.apply(obj)
    pods = [o for o in made if o["kind"] == "Pod"]
    decision = decide(cluster.snapshot(), pods, group=made[0], options=options(preempt_for_groups=True))
    most = most_with(one.machines, list(_free_now_and_then(one, first)), later)
    assert decision.status == ("scheduled" if most >= minimum else "unschedulable")
    assert len(decision.placed) == (most if most >= minimum else 0)
    for number, machine in enumerate(one.machines):
        cpu, devices = list(_free_now_and_then(one, first))[number]
        here = [member for member in decision.placed if member.node == machine.name]
        assert not here or sum(later[int(member.pod.name[1:])].cpu for member in here) <= cpu
        assert {device for member in here for device in given(member)} <= devices
    return True


def _free_now_and_then(one: Situation, first: Decision) -> Iterator[tuple[int, frozenset[int]]]:
    """What of every machine is free now, and will be free beside those that were promised a place."""
    evicted = frozenset(eviction.pod.name for eviction in first.evictions)
    for machine in one.machines:
        cpu, devices = one.free_on(machine, frozenset())
        then_cpu, then_devices = one.free_on(machine, evicted)
        promised = [member for member in first.nominated if member.node == machine.name]
        then_cpu -= sum(one.members[int(member.pod.name[1:])].cpu for member in promised)
        taken = {device for member in promised for device in given(member)}
        yield min(cpu, then_cpu), devices & (then_devices - taken)


def given(member: MemberDecision) -> list[int]:
    """The devices of a member, by number."""
    results = (r for made in member.allocations for r in made.allocation["devices"]["results"])
    return [int(result["device"][1:]) for result in results]


def check_units(situation: Situation, evicted: frozenset[str]) -> None:
    """Victims are less important, whole groups go whole, and every unit is needed."""
    for pods, priority, _ in situation.units:
        names = {one.name for one in pods}
        assert priority < situation.priority
        assert names <= evicted or names.isdisjoint(evicted)
    assert evicted <= {one.name for pods, _, _ in situation.units for one in pods}
    count = situation.most(evicted | situation.going)
    for pods, _, _ in situation.units:
        names = frozenset(one.name for one in pods)
        if names <= evicted:
            assert situation.most((evicted | situation.going) - names) < count


def check_places(situation: Situation, decision: Decision, evicted: frozenset[str]) -> None:
    """What is promised is there once the victims are gone, and nothing is promised twice."""
    for machine in situation.machines:
        cpu, devices = situation.free_on(machine, evicted | situation.going)
        here = [member for member in decision.nominated if member.node == machine.name]
        assert sum(situation.members[int(member.pod.name[1:])].cpu for member in here) <= cpu
        taken = [device for member in here for device in given(member)]
        assert len(taken) == len(set(taken))
        assert set(taken) <= devices
    racks = {m.rack for m in situation.machines if m.name in {member.node for member in decision.nominated}}
    assert not situation.by_rack or len(racks) <= 1


@pytest.mark.parametrize("block", range(4))
def test_victims_equal_definition(block: int) -> None:
    for seed in range(100 * block, 100 * block + 100):
        check(situation(seed))


@pytest.mark.nightly
@pytest.mark.parametrize("block", range(20))
def test_victims_equal_definition_in_20000_situations(block: int) -> None:
    for seed in tonight(range(1000 * (block + 1), 1000 * (block + 2))):
        check(situation(seed))
        check_single(situation(seed))
        check_later_work(situation(seed), seed)


@pytest.mark.parametrize("block", range(4))
def test_victims_of_single_pods_equal_definition(block: int) -> None:
    for seed in range(100 * block, 100 * block + 100):
        check_single(situation(seed))


@pytest.mark.parametrize("block", range(4))
def test_later_work_fits_now_and_after_evictions(block: int) -> None:
    assert sum(check_later_work(situation(seed), seed) for seed in range(100 * block, 100 * block + 100)) > 15


def test_search_agrees_with_counting(monkeypatch: pytest.MonkeyPatch) -> None:
    """The general search answers what counting node by node answers."""
    monkeypatch.setattr(podgroup_preemption, "member_capacity_for", lambda *arguments: None)
    for seed in range(60):
        check(situation(seed))
        check_single(situation(seed))


def test_generated_situations_cover_all_outcomes() -> None:
    """The generator makes what the tests are about: evictions of some, of several, and refusals."""
    outcomes = [(one, *one.outcome()) for one in map(situation, range(150)) if one.most(frozenset()) < one.minimum]
    assert sum(bool(gone) for _, _, gone in outcomes) > 40
    assert sum(not gone for _, _, gone in outcomes) > 20
    assert sum(1 < len(gone) < sum(len(pods) for pods, _, _ in one.units) for one, _, gone in outcomes) > 10
