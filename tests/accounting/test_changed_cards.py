"""What is kept of cards from one snapshot to the next is what a first look at the later one finds."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from counted_calls import SIZES, Steps, assert_all_flat
from engine_objects import (
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

from haru.accounting.changed_cards import ChangedCards
from haru.accounting.collector import UsageCollector
from haru.accounting.device_states import CardState, amounts, card_states, counts_of
from haru.client.api import ApiClient
from haru.cluster_view import ClusterView
from haru.drivers.simulated.objects import PROFILE_LABEL
from haru.engine import SchedulerCache
from haru.explain.cards import Layouts
from haru.explain.utilization import UTILIZATION_ANNOTATION

Obj = dict[str, Any]
NAMES = ("a", "b", "c")
TAINT = {"key": "broken", "effect": "NoSchedule"}


class World:
    """A cluster in which something happens, at random."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.cache = SchedulerCache()
        self.holders: dict[str, tuple[Obj, Obj]] = {}
        self.waiting: dict[str, list[Obj]] = {}
        self.number = 0
        self.cache.apply(device_class())
        for name in NAMES:
            self.put_node(name)
            self.cache.apply(resource_slice(name, 3))

    def put_node(self, name: str, **spec: Any) -> None:
        made = node(name)
        made["metadata"].setdefault("labels", {})[PROFILE_LABEL] = "x"
        made["spec"] = {**made.get("spec", {}), **spec}
        status = self.rng.choice(["True", "True", "False"])
        made["status"] = {**made.get("status", {}), "conditions": [{"type": "Ready", "status": status}]}
        self.cache.apply(made)

    def step(self) -> None:
        happenings: list[Callable[[], None]] = [
            self.hold, self.hold, self.release, self.measure, self.change_node, self.publish, self.wait, self.leave,
            self.gang, self.delete_pod,
        ]  # fmt: skip
        self.rng.choice(happenings)()

    def hold(self) -> None:
        self.number += 1
        name, where = f"held-{self.number}", self.rng.choice(NAMES)
        holder = pod(name, node=where, claims=[name])
        given = allocated(claim(name), allocation(where, f"gpu-{self.rng.randrange(3)}"), holder)
        self.holders[name] = holder, given
        for obj in self.rng.sample([holder, given], 2):
            self.cache.apply(obj)

    def _holder(self) -> str | None:
        return self.rng.choice(sorted(self.holders)) if self.holders else None

    def release(self) -> None:
        if name := self._holder():
            for obj in self.holders.pop(name):
                self.cache.remove(obj)

    def delete_pod(self) -> None:
        """The claim stays behind, unused."""
        if name := self._holder():
            self.cache.remove(self.holders[name][0])

    def measure(self) -> None:
        if name := self._holder():
            holder, given = self.holders[name]
            said = {UTILIZATION_ANNOTATION: str(self.rng.choice([1, 50]))}
            holder = {**holder, "metadata": {**holder["metadata"], "annotations": said}}
            self.holders[name] = holder, given
            self.cache.apply(holder)

    def change_node(self) -> None:
        name = self.rng.choice(NAMES)
        if self.rng.random() < 0.2:
            self.cache.remove(node(name))
        else:
            self.put_node(name, unschedulable=self.rng.random() < 0.3)

    def publish(self) -> None:
        taints = {"taints": [TAINT]} if self.rng.random() < 0.5 else {}
        devices = [{"name": f"gpu-{n}", **taints} for n in range(self.rng.randrange(1, 4))]
        self.cache.apply(resource_slice(self.rng.choice(NAMES), devices))

    def wait(self) -> None:
        self.number += 1
        name = f"waits-{self.number}"
        self.waiting[name] = [pod(name, claims=[name]), claim(name, self.rng.randrange(1, 4))]
        for obj in self.waiting[name]:
            self.cache.apply(obj)

    def gang(self) -> None:
        self.number += 1
        name = f"gang-{self.number}"
        self.waiting[name] = [pod_group(name, 2), *member_with_claim(f"{name}-0", name)]
        for obj in self.waiting[name]:
            self.cache.apply(obj)

    def leave(self) -> None:
        if self.waiting:
            for obj in self.waiting.pop(self.rng.choice(sorted(self.waiting))):
                self.cache.remove(obj)


@pytest.mark.parametrize("seed", range(12))
def test_cards_kept_through_random_changes_are_those_of_a_first_look(seed: int) -> None:
    world, kept = World(seed), ChangedCards(options())
    cards: list[CardState] = []
    for step in range(60):
        for _ in range(world.rng.randrange(1, 4)):
            world.step()
        snapshot = world.cache.snapshot()
        changes = kept.look(snapshot, step)
        for card in changes.before:
            cards.remove(card)
        cards += changes.after
        expected = card_states(snapshot, options())
        assert sorted(map(str, cards)) == sorted(map(str, expected)), (seed, step)
        assert (kept.units, kept.counts) == (amounts(expected), counts_of(expected))


async def _nothing(*_: Any) -> None:
    """An API server that nobody asks."""


def change_costs(size: int) -> dict[str, Steps]:
    """What a look costs after one change, beside so many nodes with a held card each, and a pod that waits for none."""
    cache, layouts, collector = SchedulerCache(), Layouts(), UsageCollector(ApiClient.in_process(_nothing))
    cache.apply(device_class())
    holders = [pod(f"p-{n}", node=f"node-{n}", claims=[f"p-{n}"]) for n in range(size)]
    claims = [allocated(claim(f"p-{n}"), allocation(f"node-{n}", "gpu-0"), holders[n]) for n in range(size)]
    for n in range(size):
        for obj in (node(f"node-{n}"), resource_slice(f"node-{n}", 2), holders[n], claims[n], pod_group(f"g-{n}", 2)):
            cache.apply(obj)
    cache.apply(pod("waits"))

    def look(*objects: Obj) -> Steps:
        for obj in objects:
            cache.apply(obj)
        view = ClusterView(cache.snapshot(), 0, (), layouts, ())
        with Steps() as counted:
            measured = collector._measure(view, 1000)
        assert sum(measured.units.values()) == 2000 * size
        return counted

    look()
    busy = {**holders[3], "metadata": {**holders[3]["metadata"], "labels": {"new": "yes"}}}
    tainted = resource_slice("node-4", [{"name": "gpu-0", "taints": [TAINT]}, {"name": "gpu-1"}])
    cordoned = {**node("node-5"), "spec": {"unschedulable": True}}
    given = allocated(claim("new"), allocation("node-6", "gpu-1"), pod("new"))
    return {
        "nothing": look(),
        "pod": look(busy),
        "slice": look(tainted),
        "node": look(cordoned),
        "claim": look(given),
        "group": look(pod_group("another", 3)),
    }


@pytest.mark.parametrize("sizes", SIZES)
def test_look_after_one_change_costs_as_much_in_a_large_cluster_as_in_a_small_one(sizes: tuple[int, ...]) -> None:
    assert_all_flat({size: change_costs(size) for size in sizes})
