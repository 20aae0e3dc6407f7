"""Caches of preemption: after any history, it decides as without a cache."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest
from engine_objects import (
    Obj,
    allocated,
    allocation,
    claim,
    device_class,
    node,
    options,
    pod,
    pod_group,
    resource_slice,
)

from haru.engine.equivalence.decision_cache import DecisionCache, NoCache
from haru.engine.podgroup import decide
from haru.engine.state.cache import SchedulerCache
from haru.engine.state.decision import Decision
from nights import tonight

NODES, CARDS = 6, 4
PREEMPT = options(preempt_for_pods=True, preempt_for_groups=True)


def on_rack(number: int, rack: str) -> Obj:
    return node(f"n{number}", labels={"rack": rack})


def running(name: str, group: str, place: int, cards: list[int], priority: int) -> list[Obj]:
    """A pod on a node with a claim that holds cards there; no claim for no cards."""
    claims = [("cards", "tmpl", f"{name}-cards")] if cards else None
    made = pod(name, group=group, node=f"n{place}", claims=claims, priority=priority)
    if not cards:
        return [made]
    held = allocation(f"n{place}", *(f"gpu-{card}" for card in cards))
    return [made, allocated(claim(f"{name}-cards", len(cards), owner=made), held, made)]


class World:
    """A small cluster that changes at random, and the objects that are in it."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.cluster = SchedulerCache.of([device_class()])
        self.free = {place: list(range(CARDS)) for place in range(NODES)}
        self.work: dict[str, tuple[int, list[int], list[Obj]]] = {}
        self.count = 0
        for place in range(NODES):
            self.put(on_rack(place, f"r{place % 2}"), resource_slice(f"n{place}", CARDS))
        for number in range(4):
            self.put(self.group(number))
        for _ in range(14):
            self.start()

    def put(self, *objects: Obj) -> None:
        for obj in objects:
            self.cluster.apply(obj)

    def group(self, number: int) -> Obj:
        mode = self.rng.choice(["Pod", "PodGroup"])
        return pod_group(f"g{number}", self.rng.randrange(1, 5), priority=self.rng.randrange(5), disruptionMode=mode)

    def start(self) -> None:
        place = self.rng.randrange(NODES)
        wanted = min(len(self.free[place]), self.rng.randrange(4))
        cards, self.free[place] = self.free[place][:wanted], self.free[place][wanted:]
        name, self.count = f"w{self.count}", self.count + 1
        group = self.rng.choice(["", "g0", "g1", "g2", "g3"])
        objects = running(name, group, place, cards, self.rng.randrange(5))
        self.work[name] = place, cards, objects
        self.put(*objects)

    def stop(self) -> None:
        name = self.rng.choice(sorted(self.work))
        place, cards, objects = self.work.pop(name)
        self.free[place] += cards
        for obj in reversed(objects):
            self.cluster.remove(obj)

    def change(self) -> None:
        """Something that may matter: work, groups, nominations, labels, cordons, devices, a claim with another user."""
        what = self.rng.randrange(9)
        place = self.rng.randrange(NODES)
        if what < 3:
            self.start()
        elif what == 3 and self.work:
            self.stop()
        elif what == 4:
            self.put(self.group(self.rng.randrange(4)))
        elif what == 5:
            self.put({**on_rack(place, self.rng.choice("rs")), "spec": {"unschedulable": self.rng.random() < 0.3}})
        elif what == 6:
            self.put(resource_slice(f"n{place}", self.rng.choice([CARDS, CARDS + 1])))
        elif what == 7:
            self.promise()
        else:
            self.share()

    def promise(self) -> None:
        """Nominate a member that a group may lack."""
        place = self.rng.randrange(NODES)
        name, self.count = f"w{self.count}", self.count + 1
        made = pod(name, cpu="3", group=f"g{self.rng.randrange(4)}", priority=self.rng.randrange(5))
        made["status"]["nominatedNodeName"] = f"n{place}"
        self.work[name] = place, [], [made]
        self.put(made)

    def share(self) -> None:
        """Let another running pod use a claim, too."""
        with_cards = [objects for _, cards, objects in self.work.values() if cards]
        if with_cards:
            held, other = self.rng.choice(with_cards)[1], self.rng.choice(sorted(self.work))
            entry = {"resource": "pods", "name": other, "uid": self.work[other][2][0]["metadata"]["uid"]}
            reserved = [*held["status"]["reservedFor"], entry]
            self.put({**held, "status": {**held["status"], "reservedFor": reserved}})

    def newcomer(self, number: int) -> tuple[Obj | None, list[Obj], list[Obj]]:
        """A pod or a gang that may preempt: its group, its pods, all of its objects."""
        size, cards = self.rng.choice([1, 2, 3]), self.rng.randrange(4)
        name, priority = f"m{number}", self.rng.randrange(1, 7)
        alone = size == 1 and self.rng.random() < 0.5
        topology: Obj = {"schedulingConstraints": {"topology": [{"key": "rack"}]}} if self.rng.random() < 0.4 else {}
        group = None if alone else pod_group(name, size, priority=priority, **topology)
        pods, objects = [], [] if group is None else [group]
        for index in range(size):
            own = f"{name}-{index}"
            claims = [("cards", "tmpl", f"{own}-cards")] if cards else None
            made = pod(own, group="" if alone else name, claims=claims, priority=priority)
            pods.append(made)
            objects += [made, claim(f"{own}-cards", cards, owner=made)] if cards else [made]
        return group, pods, objects


def told(decision: Decision) -> object:
    members = [(m.pod, m.status, m.node, m.allocations, m.message, m.reasons) for m in decision.members]
    return decision.status, decision.message, members, decision.evictions


def statuses(seed: int) -> Iterator[str]:
    """Decide through one history, with what is kept and without."""
    world = World(seed)
    for number in range(12):
        for _ in range(world.rng.randrange(4)):
            world.change()
        group, pods, objects = world.newcomer(number)
        world.put(*objects)
        snapshot = world.cluster.snapshot()
        kept = decide(snapshot, pods, group=group, options=PREEMPT)
        anew = decide(replace(snapshot, decision_cache=DecisionCache()), pods, group=group, options=PREEMPT)
        assert told(kept) == told(anew), seed
        yield kept.status
        for obj in reversed(objects):
            world.cluster.remove(obj)


def test_preemption_with_cache_equals_preemption_without() -> None:
    found = {status for seed in range(8) for status in statuses(seed)}
    assert found >= {"scheduled", "nominated", "unschedulable"}


def test_equal_gangs_in_turn_are_placed_as_without_cache() -> None:
    found = set()
    for seed in range(20):
        world = World(seed)
        for _ in range(12):
            for _ in range(world.rng.randrange(3)):
                world.change()
            group = pod_group("m", 3)
            pods = [pod(f"m-{index}", group="m", claims=[("cards", "tmpl", f"m-{index}-cards")]) for index in range(3)]
            world.put(group, *pods, *[claim(f"m-{index}-cards", 1, owner=pods[index]) for index in range(3)])
            snapshot = world.cluster.snapshot()
            kept = decide(snapshot, pods, group=group, options=options())
            anew = decide(replace(snapshot, decision_cache=NoCache()), pods, group=group, options=options())
            assert told(kept) == told(anew), seed
            found.add(kept.status)
    assert found == {"scheduled", "unschedulable"}


@pytest.mark.nightly
@pytest.mark.parametrize("block", range(10))
def test_preemption_with_cache_equals_preemption_without_in_long_runs(block: int) -> None:
    found = {status for seed in tonight(range(100 * block, 100 * block + 100)) for status in statuses(seed)}
    assert "nominated" in found
