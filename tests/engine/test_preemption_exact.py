"""Victims are exactly those of the definition, found by trying everything; and what every decision must satisfy."""

from __future__ import annotations

import pytest
from engine_objects import Obj, options
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from plain_preemption import Budget, Group, Held, Machine, Running, Situation, Wanted

from haru.engine.cluster import Cluster
from haru.engine.decision import Decision
from haru.engine.groups import decide

APPS = ("", "x", "y")


@st.composite
def situations(draw: st.DrawFn) -> Situation:
    machines = tuple(
        Machine(
            f"n{i}",
            draw(st.integers(2, 5)),
            draw(st.sampled_from("rs")),
            tuple(draw(st.lists(st.sampled_from("aab"), max_size=3))),
        )
        for i in range(draw(st.integers(1, 3)))
    )
    groups = tuple(
        Group(f"old{i}", draw(st.sampled_from([1, 5, 9])), draw(st.booleans())) for i in range(draw(st.integers(0, 2)))
    )
    running = tuple(draw(_running(machines, groups)))
    members = tuple(
        Wanted(draw(st.integers(1, 3)), draw(st.sampled_from([0, 1, 1, 2])), draw(st.sampled_from(["any", "any", "a"])))
        for _ in range(draw(st.integers(1, 4)))
    )
    if draw(st.booleans()):
        members = tuple(members[0] for _ in members)
    return Situation(
        machines,
        running,
        groups,
        tuple(draw(_held(machines, running, groups))),
        tuple(Budget(app, draw(st.integers(0, 1))) for app in APPS[1:] if draw(st.integers(0, 2)) == 0),
        members,
        draw(st.integers(1, len(members))),
        priority=8,
        by_rack=draw(st.integers(0, 3)) == 0,
    )


@st.composite
def _running(draw: st.DrawFn, machines: tuple[Machine, ...], groups: tuple[Group, ...]) -> list[Running]:
    left = {machine.name: machine.cpu for machine in machines}
    found = []
    for i in range(draw(st.integers(1, 6))):
        name = draw(st.sampled_from(sorted(left)))
        cpu = draw(st.integers(1, 3))
        if cpu <= left[name]:
            left[name] -= cpu
            group = draw(st.sampled_from(["", *(g.name for g in groups)]))
            priority = draw(st.sampled_from([0, 1, 1, 5, 9]))
            deleting = draw(st.integers(0, 9)) == 0
            found.append(Running(f"p{i}", name, cpu, priority, i, group, draw(st.sampled_from(APPS)), deleting))
    return found


@st.composite
def _held(
    draw: st.DrawFn, machines: tuple[Machine, ...], running: tuple[Running, ...], groups: tuple[Group, ...]
) -> list[Held]:
    """Claims of running pods: of one pod, of several, or of all pods of a group on the machine."""
    found = []
    for machine in machines:
        here = [one for one in running if one.machine == machine.name]
        for device in range(len(machine.models)):
            if not here or draw(st.integers(0, 3)) == 0:
                continue
            users = tuple(
                one.name for one in draw(st.lists(st.sampled_from(here), min_size=1, max_size=2, unique=True))
            )
            group = next(one.group for one in here if one.name == users[0])
            if group and draw(st.booleans()):
                users = tuple(one.name for one in running if one.group == group)
                found.append(Held(machine.name, (device,), users, by_group=group))
            else:
                found.append(Held(machine.name, (device,), users))
    return found


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
    assert decision.status == ("nominated" if gone else "unschedulable")
    check_units(situation, evicted)
    check_places(situation, decision, evicted)


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


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(situations())
def test_victims_are_those_of_the_definition(situation: Situation) -> None:
    check(situation)


@pytest.mark.nightly
@settings(max_examples=10_000, deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.generate])
@given(situations())
def test_victims_are_those_of_the_definition_in_many_situations(situation: Situation) -> None:
    check(situation)
