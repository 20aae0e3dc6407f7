"""Gangs of unequal members preempt as if every node were asked each time."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

import pytest
from engine_objects import Obj, claim, pod, pod_group
from test_preemption_cache import PREEMPT, World, told

from haru.engine.equivalence.decision_cache import DecisionCache
from haru.engine.podgroup import decide
from haru.engine.podgroup.member_capacity import MemberCapacity


def unequal_gang(world: World, name: str) -> tuple[Obj, list[Obj], list[Obj]]:
    """A gang of two to four members with up to 4 cards each, of which at least two differ, sometimes in one rack."""
    size, priority = world.rng.randint(2, 4), world.rng.randint(2, 6)
    cards = [1, *(world.rng.randint(2, 4) for _ in range(size - 1))]
    topology: Obj = {"schedulingConstraints": {"topology": [{"key": "rack"}]}} if world.rng.random() < 0.4 else {}
    group = pod_group(name, world.rng.randint(1, size), priority=priority, **topology)
    pods, objects = list[Obj](), [group]
    for index, count in enumerate(cards):
        own = f"{name}-{index}"
        claims = [("cards", "tmpl", f"{own}-cards")] if count else None
        pods.append(pod(own, group=name, claims=claims, priority=priority, cpu=str(world.rng.choice((1, 2)))))
        objects += [pods[-1], claim(f"{own}-cards", count, owner=pods[-1])] if count else [pods[-1]]
    return group, pods, objects


def full_world(seed: int) -> World:
    """A world in which hardly a card is free."""
    world = World(seed)
    for _ in range(25):
        world.start()
    return world


def every_node(capacity: MemberCapacity, nodes: Sequence[str], enough: int, tentative: Collection[str]) -> int:
    return sum(capacity.best(enough, nodes).vector)


@pytest.mark.parametrize("block", range(2))
def test_nodes_that_take_no_member_are_passed_over_without_another_result(
    block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: set[str] = set()
    passed_over = 0
    for seed in range(8 * block, 8 * block + 8):
        world = full_world(seed)
        for number in range(3):
            world.change()
            group, pods, objects = unequal_gang(world, f"m{number}")
            world.put(*objects)
            snapshot = world.cluster.snapshot()
            kept = decide(snapshot, pods, group=group, options=PREEMPT)
            with monkeypatch.context() as patched:
                patched.setattr(MemberCapacity, "_best_sum", every_node)
                anew = replace(snapshot, decision_cache=DecisionCache())
                literal = decide(anew, pods, group=group, options=PREEMPT)
            assert told(kept) == told(literal), (seed, number)
            found.add(kept.status)
            passed_over += len(kept.evictions) > 1
            for obj in reversed(objects):
                world.cluster.remove(obj)
    assert "nominated" in found and passed_over
