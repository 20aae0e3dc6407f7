"""Victims are exactly those of the definition, found by trying everything; and what every decision must satisfy."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest
from engine_objects import Obj, options
from plain_preemption import Budget, Group, Held, Machine, Running, Situation, Wanted

from haru.engine.cluster import Cluster
from haru.engine.decision import Decision
from haru.engine.groups import decide, preemption

APPS = ("", "x", "y")


def situation(seed: int) -> Situation:
    """A cluster that is nearly full of less important work, and a group that wants some of it."""
    draw = random.Random(seed)
    machines = tuple(
        Machine(f"n{i}", draw.randint(2, 6), draw.choice("rs"), tuple(draw.choices("aab", k=draw.randint(0, 3))))
        for i in range(draw.choice([1, 2, 2, 3, 3]))
    )
    groups = tuple(Group(f"old{i}", draw.choice([1, 5, 9]), draw.random() < 0.6) for i in range(draw.randint(0, 2)))
    running = tuple(_running(draw, machines, groups))
    members = [_member(draw) for _ in range(draw.randint(1, 4))]
    if draw.random() < 0.6:
        members = [members[0] for _ in members]
    return Situation(
        machines,
        running,
        groups,
        tuple(_held(draw, machines, running)),
        tuple(Budget(app, draw.randint(0, 1)) for app in APPS[1:] if draw.random() < 0.3),
        tuple(members),
        draw.randint(1, len(members)),
        priority=8,
        by_rack=draw.random() < 0.25,
    )


def _member(draw: random.Random) -> Wanted:
    return Wanted(draw.randint(1, 3), draw.choice([0, 1, 1, 2]), draw.choice(["any", "any", "a"]))


def _running(draw: random.Random, machines: Sequence[Machine], groups: Sequence[Group]) -> Iterator[Running]:
    left = {machine.name: machine.cpu for machine in machines}
    for i in range(draw.randint(2, 7)):
        name, cpu = draw.choice(sorted(left)), draw.randint(1, 3)
        if cpu <= left[name]:
            left[name] -= cpu
            group = draw.choice(["", *(g.name for g in groups)])
            priority = draw.choice([0, 1, 1, 3, 5, 9])
            yield Running(f"p{i}", name, cpu, priority, i, group, draw.choice(APPS), draw.random() < 0.05)


def _held(draw: random.Random, machines: Sequence[Machine], running: Sequence[Running]) -> Iterator[Held]:
    """Claims of running pods: of one pod, of several, or of all pods of a group. Devices are used on their machine."""
    for machine in machines:
        here = [one for one in running if one.machine == machine.name]
        for device in range(len(machine.models)):
            if not here or draw.random() < 0.15:
                continue
            users = draw.sample(here, draw.choice([1, 1, 2]) if len(here) > 1 else 1)
            members = [one for one in running if one.group and one.group == users[0].group]
            if members and all(one in here for one in members) and draw.random() < 0.4:
                names = tuple(one.name for one in members)
                yield Held(machine.name, (device,), names, by_group=users[0].group)
            else:
                yield Held(machine.name, (device,), tuple(one.name for one in users))


def decided(situation: Situation) -> tuple[Decision, list[Obj]]:
    objects = list(situation.objects())
    snapshot = Cluster.of(objects).snapshot()
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
    snapshot = Cluster.of(objects).snapshot()
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
        given_ = [
            int(result["device"][1:])
            for member in here
            for allocation in member.allocations
            for result in allocation.allocation["devices"]["results"]
        ]
        assert len(given_) == len(set(given_))
        assert set(given_) <= devices
    racks = {m.rack for m in situation.machines if m.name in {member.node for member in decision.nominated}}
    assert not situation.by_rack or len(racks) <= 1


@pytest.mark.parametrize("block", range(4))
def test_victims_are_those_of_the_definition(block: int) -> None:
    for seed in range(100 * block, 100 * block + 100):
        check(situation(seed))


@pytest.mark.nightly
@pytest.mark.parametrize("block", range(20))
def test_victims_are_those_of_the_definition_in_many_situations(block: int) -> None:
    for seed in range(1000 * (block + 1), 1000 * (block + 2)):
        check(situation(seed))
        check_single(situation(seed))


@pytest.mark.parametrize("block", range(4))
def test_victims_of_single_pods_are_those_of_the_definition(block: int) -> None:
    for seed in range(100 * block, 100 * block + 100):
        check_single(situation(seed))


def test_counting_and_searching_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    """The general search answers what counting node by node answers."""
    monkeypatch.setattr(preemption, "shelf_for", lambda *arguments: None)
    for seed in range(60):
        check(situation(seed))
        check_single(situation(seed))


def test_situations_are_of_all_kinds() -> None:
    """The generator makes what the tests are about: evictions of some, of several, and refusals."""
    outcomes = [(one, *one.outcome()) for one in map(situation, range(150)) if one.most(frozenset()) < one.minimum]
    assert sum(bool(gone) for _, _, gone in outcomes) > 40
    assert sum(not gone for _, _, gone in outcomes) > 20
    assert sum(1 < len(gone) < sum(len(pods) for pods, _, _ in one.units) for one, _, gone in outcomes) > 10
