"""Nodes that cannot win are left out of the search for victims: the choice is the same as with all of them."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from engine_objects import Obj, options, pod, pod_group
from engine_objects import node as a_node

from haru.engine.podgroup import decide
from haru.engine.preemption import pod_preemption
from haru.engine.preemption.feasibility_oracle import Preemptor
from haru.engine.preemption.node_candidates import NodeCandidates
from haru.engine.preemption.node_counter import NodeCounter
from haru.engine.preemption.podgroup_preemption import Victims
from haru.engine.state.cache import SchedulerCache, Snapshot
from haru.engine.state.decision import Decision

NODES = 230
"""More than the hundred candidates after which the search may end."""


def full_cluster(rng: random.Random) -> list[Obj]:
    """Nodes of 8 cpu, each full of pods of few priorities and few start times, some in groups that go as a whole."""
    priorities = (3, 4, 5)
    objects = [pod_group(f"g{n}", 1, priority=n % 3 + 3, disruptionMode="PodGroup") for n in range(3 * NODES)]
    for number in range(NODES):
        name, left = f"n{number:03}", 8
        objects.append(a_node(name))
        while left:
            cpu = rng.choice([size for size in (1, 2, 3) if size <= left])
            priority = rng.choice(priorities)
            group = f"g{rng.randrange(NODES) * 3 + priority - 3}" if rng.random() < 0.4 else ""
            one = pod(f"p{number}-{left}", cpu=str(cpu), node=name, group=group, priority=priority)
            one["status"]["startTime"] = f"2026-11-20T10:00:0{rng.randrange(3)}Z"
            objects.append(one)
            left -= cpu
    return objects


def preempt(cluster: SchedulerCache, cpu: int, priority: int, seed: int) -> Decision:
    cluster.apply(wanting := pod(f"new-{cpu}-{priority}", cpu=str(cpu), priority=priority))
    found = decide(cluster.snapshot(), [wanting], group=None, options=options(seed=seed, preempt_for_pods=True))
    cluster.remove(wanting)
    return found


def best_of_all(
    base: Snapshot,
    preemptor: Preemptor,
    candidates: NodeCandidates,
    refusals: pod_preemption.Refusals,
    texts: dict[str, Sequence[str]],
) -> Victims | None:
    """The first hundred candidates compared by their victims."""
    all_victims = list[Victims]()
    for name in pod_preemption._nodes_with_units(base, preemptor, candidates, refusals, texts):
        candidate = candidates.candidate(name)
        if candidate is None:
            texts[name] = [failure.reason.message for failure in refusals[name]]
        elif len(all_victims) < 100:
            all_victims.append(candidate.victims())
    cheapest = min((victims.cost for victims in all_victims), default=None)
    equal = [victims for victims in all_victims if victims.cost == cheapest]
    return max(equal, key=lambda victims: victims.started, default=None)


@pytest.mark.parametrize("seed", range(8))
def test_choice_with_bounds_equals_choice_among_the_victims_of_every_node(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(seed)
    objects = full_cluster(rng)
    asked = [(rng.choice((1, 2, 4, 5, 6, 8)), rng.choice((4, 5, 6, 6)), rng.randrange(99)) for _ in range(4)]
    bounded = SchedulerCache.of(objects)
    found = [preempt(bounded, *one) for one in asked]
    monkeypatch.setattr(NodeCounter, "steps_of_full", lambda *_: None)
    monkeypatch.setattr(pod_preemption, "_best", best_of_all)
    literal = SchedulerCache.of(objects)
    for one, decision in zip(asked, found, strict=True):
        assert preempt(literal, *one) == decision
    assert any(decision.evictions for decision in found)


@pytest.mark.parametrize("seed", range(4))
def test_group_of_one_pod_that_started_later_than_other_victims_is_evicted(seed: int) -> None:
    running = [
        ("early", "", "2", "n0", "10:00:00"),
        ("late", "whole", "6", "n0", "10:00:02"),
        ("middle", "", "8", "n1", "10:00:01"),
    ]
    objects = [a_node("n0"), a_node("n1"), pod_group("whole", 1, priority=3, disruptionMode="PodGroup")]
    for name, group, cpu, place, start in running:
        one = pod(name, cpu=cpu, group=group, node=place, priority=3)
        one["status"]["startTime"] = f"2026-11-20T{start}Z"
        objects.append(one)
    found = preempt(SchedulerCache.of(objects), 5, 4, seed)
    assert [eviction.pod.name for eviction in found.evictions] == ["late"]
