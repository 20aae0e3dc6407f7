"""Which devices of a problem are equal, so that one of them is tried in place of all.

Two positions are of one kind if the same asks want them and no constraint, counter or capacity tells them apart.
Devices that share counters form a group (a card with its partitions); groups are of one type if their devices are of
the same kinds in the same order and take from their counters alike. Two groups of one type in one state are equal as
wholes, whatever their counter sets and devices are called.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from haru.engine.dra.allocator.allocation_problem import AllocationProblem
from haru.engine.dra.pools.counter_groups import Drawn, counter_groups


@dataclass(frozen=True, slots=True)
class DeviceSymmetryClass:
    """Equal devices: their positions, ascending, and the numbers of the plans that want them."""

    positions: tuple[int, ...]
    plans: frozenset[int]
    newest: int


@dataclass(frozen=True, slots=True)
class CounterSymmetryClass:
    """Devices that draw on the same counters of a view. Equal `type` means equal in all but names."""

    type: int
    view: int
    counters: tuple[int, ...]
    positions: tuple[int, ...]
    plans: frozenset[int]
    newest: int


class ProblemSymmetry:
    """Kinds and groups of a problem's devices; those that no plan wants are in neither."""

    def __init__(self, problem: AllocationProblem) -> None:
        self.kind_of: list[int] = [-1] * len(problem.devices)
        self.group_of: list[int] = [-1] * len(problem.devices)
        self.place: list[int] = [0] * len(problem.devices)
        self.kinds: list[DeviceSymmetryClass] = []
        self.groups: list[CounterSymmetryClass] = []
        wanted = _wanted_by(problem)
        clusters = _clusters(problem, wanted)
        unlike = _unlike(problem)
        attributes = sorted({c.attribute for claim in problem.claims for c in claim.constraints})
        numbers: dict[Hashable, int] = {}
        members: list[list[int]] = []
        local = {counter: i for _, counters, _ in clusters for i, counter in enumerate(counters)}
        for position, plans in wanted.items():
            view = problem.view_of[position]
            key: Hashable = (
                tuple(plans),
                tuple(problem.constraint_values(position, a) for a in attributes),
                tuple((local[(view, counter)], amount) for counter, amount in problem.charge(position)),
                problem.devices[position].shape.capacity if problem.shareable(position) else None,
                position in problem.allocated,
                position if position in unlike else -1,
            )
            number = numbers.setdefault(key, len(numbers))
            if number == len(members):
                members.append([])
            members[number].append(position)
            self.kind_of[position] = number
        for positions in members:
            wanting = frozenset(abs(p) for p in wanted[positions[0]])
            self.kinds.append(DeviceSymmetryClass(tuple(positions), wanting, max(wanting)))
        types: dict[Hashable, int] = {}
        for view, counters, positions in clusters:
            kinds = tuple(self.kind_of[p] for p in positions)
            for place, position in enumerate(positions):
                self.group_of[position] = len(self.groups)
                self.place[position] = place
            wanting = frozenset(abs(n) for p in positions for n in wanted[p])
            numbers_only = tuple(counter for _, counter in counters)
            kind = types.setdefault((kinds, len(counters)), len(types))
            self.groups.append(CounterSymmetryClass(kind, view, numbers_only, tuple(positions), wanting, max(wanting)))


def _wanted_by(problem: AllocationProblem) -> dict[int, list[int]]:
    """The plans that want each position, by number, ascending positions; negative where reaching it is an error."""
    wanted: dict[int, list[int]] = {}
    for claim in problem.plans:
        for plans in claim:
            for plan in plans:
                for position in plan.candidates:
                    wanted.setdefault(position, []).append(-plan.number if position in plan.errors else plan.number)
    return dict(sorted(wanted.items()))


def _unlike(problem: AllocationProblem) -> set[int]:
    """Where all are needed, which of two equal devices is gone decides whether a constraint's error is come upon."""
    return {
        position
        for claim in problem.plans
        for plans in claim
        for plan in plans
        if plan.takes_all and plan.constraints
        for position in plan.candidates
    }


Cluster = tuple[int, tuple[Drawn, ...], list[int]]


def _clusters(problem: AllocationProblem, wanted: dict[int, list[int]]) -> list[Cluster]:
    """View, counters (each with its view) and wanted positions of each set of devices that counters tie together."""
    drawing = ((p, [(problem.view_of[p], counter) for counter, _ in problem.charge(p)]) for p in wanted)
    return [(counters[0][0], counters, positions) for counters, positions in counter_groups(drawing)]
