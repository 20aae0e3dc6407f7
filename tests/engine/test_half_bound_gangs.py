"""Gangs of which some members run: the others are placed, or make room, exactly if enough of them fit beside those."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, fields

import pytest
from engine_objects import Obj, pod
from plain_preemption import Machine, Running, Situation, most_with
from preemption_situations import situation
from test_preemption_exact import check, decided

from nights import tonight


@dataclass(frozen=True)
class HalfBound(Situation):
    """`minimum` is what the gang still needs beside those that run; they fix its rack."""

    bound: tuple[Running, ...] = ()

    def free_on(self, machine: Machine, gone: frozenset[str]) -> tuple[int, frozenset[int]]:
        cpu, devices = super().free_on(machine, gone)
        return cpu - sum(one.cpu for one in self.bound if one.machine == machine.name), devices

    def most(self, gone: frozenset[str]) -> int:
        racks = {machine.rack for machine in self.machines for one in self.bound if one.machine == machine.name}
        free = [
            self.free_on(machine, gone) if machine.rack in racks or not self.by_rack else (0, frozenset[int]())
            for machine in self.machines
        ]
        return most_with(self.machines, free, self.members, by_rack=self.by_rack)

    def objects(self) -> Iterator[Obj]:
        for obj in super().objects():
            if obj["kind"] == "PodGroup" and obj["metadata"]["name"] == "g":
                obj["spec"]["schedulingPolicy"]["gang"]["minCount"] += len(self.bound)
            yield obj
        for one in self.bound:
            yield pod(one.name, cpu=str(one.cpu), group="g", node=one.machine, priority=self.priority)


def half_bound(seed: int) -> HalfBound | None:
    """A situation in which one or two members run already, in one rack if that matters; None if there is no room."""
    one, draw = situation(seed), random.Random(seed)
    left = {machine: one.free_on(machine, frozenset())[0] for machine in one.machines}
    bound: list[Running] = []
    for number in range(draw.randint(1, 2)):
        racks = {machine.rack for machine in left for other in bound if other.machine == machine.name}
        able = [m for m, cpu in left.items() if cpu and (not (one.by_rack and racks) or m.rack in racks)]
        if able:
            machine = draw.choice(able)
            left[machine] -= 1
            bound.append(Running(f"b{number}", machine.name, 1, one.priority, 0, "g"))
    known = {field.name: getattr(one, field.name) for field in fields(one)}
    return HalfBound(**known, bound=tuple(bound)) if bound else None


@pytest.mark.parametrize("block", range(3))
def test_rest_of_gang_finds_places_or_victims_by_definition(block: int) -> None:
    situations = [one for one in map(half_bound, range(100 * block, 100 * block + 100)) if one is not None]
    for one in situations:
        check(one)
    assert {decided(one)[0].status for one in situations} == {"scheduled", "nominated", "unschedulable"}


@pytest.mark.nightly
def test_rest_of_gang_finds_places_or_victims_by_definition_in_5000_situations() -> None:
    for one in map(half_bound, tonight(range(1000, 6000))):
        if one is not None:
            check(one)
