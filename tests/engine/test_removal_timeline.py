"""The first removals after which a set of nodes takes enough members, against removing one unit after the other."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, cast

from haru.engine.preemption.disruption_units import DisruptionUnit, Rank
from haru.engine.preemption.initial_counts import InitialCounts
from haru.engine.preemption.removal_steps import RemovalSteps, Step
from haru.engine.preemption.removal_timeline import RemovalTimeline

MOST = 2
Found = tuple[int, int, dict[int, list[int]]]
"""The number of the last removed unit, how many members fit, and the counts in each set that takes as many."""


class Unit(NamedTuple):
    """A unit without pods: the timeline asks for no more."""

    rank: Rank
    nodes: tuple[str, ...]


def unit(rank: int, *nodes: str) -> Unit:
    return Unit((rank, True, 0, "", ""), nodes)


class World:
    """Nodes that take more members as their units are removed; `met` are those that were looked at."""

    def __init__(self, sets: Sequence[Sequence[str]]) -> None:
        self.initial = InitialCounts(tuple(map(tuple, sets)))
        self.timeline = RemovalTimeline(self.initial, MOST)
        self.units: list[Unit] = []
        self.steps: dict[str, list[tuple[Unit, int]]] = {}
        self.met: list[str] = []

    def take(self, node: str, *steps: tuple[Unit, int]) -> None:
        """Let a node take so many members once units are removed, the least important first."""
        self.steps[node] = list(steps)

    def least_rank_on(self, node: str) -> Rank | None:
        return max((unit.rank for unit in self.units if node in unit.nodes), default=None)

    def removal_steps(self, node: str, count: int) -> RemovalSteps:
        self.met.append(node)
        return cast("RemovalSteps", self.steps.get(node, []))

    def step(self, steps: RemovalSteps, index: int) -> Step | None:
        found = cast("Any", steps)
        return Step(found[index][0], found[index][1]) if index < len(found) else None

    def below(self, rank: int) -> list[DisruptionUnit]:
        return cast("list[DisruptionUnit]", [unit for unit in self.units if unit.rank[0] >= rank])

    def found(self, rank: int, enough: int, changed: Iterable[str] = ()) -> Found:
        """Read off the timeline what fits once units from a rank on may be removed."""
        self.timeline.catch_up(set(changed), self)
        removal = self.timeline.removal(self.below(rank), enough, self)
        assert removal is not None
        counts: dict[int, list[int]] = {}
        for number, nodes in enumerate(self.initial.sets):
            if removal.totals[number] >= removal.fit:
                counts[number] = [removal.counts.get(node, 0) for node in nodes]
        return removal.begin, removal.fit, counts

    def expected(self, rank: int, enough: int) -> Found:
        """Remove unit by unit until as many fit as can."""
        units = self.below(rank)
        fit = min(enough, max(map(sum, self._counts(units))))
        begin = len(units)
        while max(map(sum, self._counts(units[begin:]))) < fit:
            begin -= 1
        counts = enumerate(self._counts(units[begin:]))
        return begin, fit, {number: found for number, found in counts if sum(found) >= fit}

    def _counts(self, removed: Sequence[DisruptionUnit]) -> list[list[int]]:
        return [[self._count(node, removed) for node in nodes] for nodes in self.initial.sets]

    def _count(self, node: str, removed: Sequence[DisruptionUnit]) -> int:
        gone = {unit.rank for unit in removed}
        return max((members for unit, members in self.steps.get(node, ()) if unit.rank in gone), default=0)


def changed_world(world: World, rng: random.Random, nodes: Sequence[str]) -> None:
    """Give some nodes other units and steps: a unit on several nodes changes all of them."""
    kept = [one for one in world.units if set(one.nodes).isdisjoint(nodes)]
    ranks = rng.sample([rank for rank in range(200) if rank not in {one.rank[0] for one in kept}], 2 * len(nodes))
    made = [unit(rank, *rng.sample(nodes, rng.choice((1, 1, 2)))) for rank in ranks]
    world.units = sorted([*kept, *made])
    for node in nodes:
        own = [one for one in reversed(world.units) if node in one.nodes]
        chosen = sorted(rng.sample(own, min(len(own), rng.randrange(MOST + 1))), reverse=True)
        world.take(node, *[(one, members) for members, one in enumerate(chosen, 1)])


def test_first_removal_with_enough_members_equals_that_of_removing_one_after_the_other() -> None:
    compared = 0
    for seed in range(60):
        rng = random.Random(seed)
        sets = [[f"n{number}-{index}" for index in range(rng.randrange(2, 6))] for number in range(rng.randrange(1, 5))]
        world, names = World(sets), [node for nodes in sets for node in nodes]
        changed: Sequence[str] = names
        for _ in range(12):
            changed_world(world, rng, changed)
            # Units that went with others leave nodes that are told as changed, too.
            touched = {node for node in names if node in changed or node not in world.steps}
            for _ in range(3):
                rank, enough = rng.randrange(150), rng.randrange(1, 7)
                if world.below(rank):
                    assert world.found(rank, enough, touched) == world.expected(rank, enough), (seed, rank, enough)
                    compared += 1
                    touched = set()
            if touched:
                world.timeline.catch_up(touched, world)
            lone = [node for node in names if all(unit.nodes == (node,) for unit in world.units if node in unit.nodes)]
            changed = rng.sample(lone, min(len(lone), rng.randrange(2, 5))) if len(lone) > 1 else names
    assert compared > 1000


def test_nodes_of_a_set_that_could_not_take_enough_members_are_not_looked_at() -> None:
    world = World((("a1", "a2", "a3"), ("b1",)))
    world.units = [unit(rank, node) for rank, node in enumerate(("a3", "a2", "b1", "a1"))]
    for one in world.units:
        world.take(one.nodes[0], (one, MOST))
    assert world.found(0, 2 * MOST) == (1, 2 * MOST, {0: [MOST, MOST, 0]})
    assert sorted(world.met) == ["a1", "a2"]
    # Fewer members may fit there first.
    assert world.found(0, 1) == (3, 1, {0: [MOST, 0, 0]})
    assert world.found(2, 2 * MOST) == world.expected(2, 2 * MOST) == (1, MOST, {0: [MOST, 0, 0]})


def test_changed_node_is_looked_at_once_its_set_may_take_enough_members() -> None:
    world = World((("a1", "a2"), ("b1", "b2")))
    world.units = [unit(rank, node) for rank, node in enumerate(("b2", "b1", "a2", "a1"))]
    for one in world.units:
        world.take(one.nodes[0], (one, MOST))
    assert world.found(0, 2 * MOST) == (2, 2 * MOST, {0: [MOST, MOST]})
    world.met.clear()
    world.take("a1")
    assert world.found(0, 2 * MOST, ["a1"]) == (0, 2 * MOST, {1: [MOST, MOST]})
    world.take("a1", (world.units[3], MOST))
    assert world.found(0, 2 * MOST, ["a1"]) == (2, 2 * MOST, {0: [MOST, MOST]})
    world.met.clear()
    assert world.found(0, 2 * MOST, ["b1"]) == (2, 2 * MOST, {0: [MOST, MOST]})
    assert not world.met
