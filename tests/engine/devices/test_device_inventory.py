"""The inventory: what a snapshot shows of the slices, and that it is small, quick and never changes."""

from __future__ import annotations

import json
import tracemalloc
from itertools import permutations

import pytest
from device_objects import DRIVER, NODE, Obj, chosen, claim, class_, device, request, slice_, solve, taken

from haru.engine.dra import AllocatedState, DeviceSnapshot, Features, Inventory, NodeView, allocate
from haru.engine.dra.model.interning import Interner, decode_slice
from haru.engine.dra.pools.pools import Pool


def pick(snapshot: DeviceSnapshot, node: str = "node-1", count: int = 1) -> list[list[str]] | None:
    wanted = [claim("c", request("r", count))]
    view = NodeView(node, {})
    return chosen(allocate(snapshot, AllocatedState(), view, wanted, Features(), new_share_id=str))


def test_order_of_slice_arrival_does_not_matter() -> None:
    slices = [
        slice_("s1", [device("old-1")], count=2),
        slice_("s2", [device("old-2")], count=2),
        slice_("t1", [device("new-1")], count=2, generation=2),
        slice_("t2", [device("new-2")], count=2, generation=2),
    ]
    for order in permutations(slices):
        inventory = Inventory()
        inventory.upsert_class(class_())
        for item in order:
            inventory.upsert_slice(item)
        assert pick(inventory.snapshot(), count=2) == [["new-1", "new-2"]]
        inventory.delete_slice("t2")
        assert pick(inventory.snapshot()) is None
        inventory.delete_slice("t1")
        assert pick(inventory.snapshot(), count=2) == [["old-1", "old-2"]]


def test_inventory_snapshots_are_immutable() -> None:
    inventory = Inventory()
    inventory.upsert_class(class_())
    inventory.upsert_slice(slice_("s", [device("a")]))
    first = inventory.snapshot()
    assert inventory.snapshot() is first
    inventory.upsert_slice(slice_("s", [device("b")], generation=2))
    second = inventory.snapshot()
    inventory.delete_class("any")
    inventory.delete_slice("s")
    assert (pick(first), pick(second)) == ([["a"]], [["b"]])
    assert not inventory.snapshot().pools
    assert not inventory.snapshot().by_node
    inventory.delete_slice("never there")
    inventory.delete_taint_rule("never there")


def test_slice_moved_to_another_pool_leaves_old_pool() -> None:
    inventory = Inventory()
    inventory.upsert_slice(slice_("s", [device("a")], pool="p"))
    inventory.upsert_slice(slice_("s", [device("a")], pool="q"))
    assert list(inventory.snapshot().pools) == [f"{DRIVER}/q"]


def test_only_pools_of_the_node_are_evaluated(monkeypatch: pytest.MonkeyPatch) -> None:
    inventory = Inventory()
    inventory.upsert_class(class_())
    for number in range(50):
        node = f"node-{number}"
        inventory.upsert_slice(slice_(f"d{number}", [device("a")], pool=node, node=node, count=2))
        inventory.upsert_slice(slice_(f"n{number}", pool=node, node=node, count=2, counters={"card": {"mem": 1}}))
    inventory.upsert_slice(slice_("wide", [device("w")], pool="wide", node=None, allNodes=True))
    looked: list[str] = []
    original = Pool.view

    def spy(pool: Pool, node: NodeView, partitionable: bool) -> object:
        looked.append(str(pool.key))
        return original(pool, node, partitionable)

    monkeypatch.setattr(Pool, "view", spy)
    assert pick(inventory.snapshot(), "node-7", 2) == [["a", "w"]]
    assert sorted(looked) == [f"{DRIVER}/node-7", f"{DRIVER}/wide"]


def test_incomplete_pool_affects_every_node_until_complete() -> None:
    inventory = Inventory()
    inventory.upsert_slice(slice_("n", pool="far", node="node-2", count=2, counters={"card": {"mem": 1}}))
    assert inventory.snapshot().troubled == {f"{DRIVER}/far"}
    inventory.upsert_slice(slice_("d", [device("a")], pool="far", node="node-2", count=2))
    assert not inventory.snapshot().troubled
    inventory.upsert_slice(slice_("n", pool="far", node="node-2", count=2, counters={"other": {"mem": 1}}))
    assert not inventory.snapshot().troubled
    lost = device("a", consumes={"card": {"mem": 1}})
    inventory.upsert_slice(slice_("d", [lost], pool="far", node="node-2", count=2))
    assert inventory.snapshot().troubled == {f"{DRIVER}/far"}
    (view,) = inventory.snapshot().views(NODE)
    assert (view.status, view.problem) == ("invalid", "device a consumes from unknown counter set card")


def test_device_named_twice_on_another_node_takes_counters_of_both() -> None:
    """Whoever sees it twice is offered nothing of the pool; for others what it takes is taken."""
    counters = slice_("a", count=3, counters={"card": {"memory": 4}})
    far = [device("far", consumes={"card": {"memory": 3}}), device("far", consumes={"card": {"memory": 1}})]
    near = [device("near", consumes={"card": {"memory": 1}})]
    for order in (far, far[::-1]):
        slices = [counters, slice_("b", order, count=3, node="node-2"), slice_("c", near, count=3)]
        assert chosen(solve(slices, [claim("c", request("r"))])) == [["near"]]
        assert chosen(solve(slices, [claim("c", request("r"))], state=taken("far"))) is None


def test_equal_devices_share_decoded_values() -> None:
    interner = Interner()
    made = [
        decode_slice(
            slice_(f"s{i}", [device("gpu-0", {"model": "x"}, capacity={"mem": "1Gi"})], node=f"n{i}"), interner
        )
        for i in range(2)
    ]
    first, second = (item.devices[0] for item in made)
    assert first.shape is second.shape
    other = decode_slice(slice_("s", [device("gpu-0", {"model": "y"})]), interner).devices[0]
    assert other.shape is not first.shape
    assert decode_slice(slice_("s", [device("a", {"n": 1})]), interner).devices[0].shape is not (
        decode_slice(slice_("s", [device("a", {"n": True})]), interner).devices[0].shape
    )


def node_slices(number: int) -> list[Obj]:
    """A node with 8 cards of 26 partitions, as a MIG driver publishes it."""
    node = f"node-{number}"
    cards = [
        [
            device(
                f"gpu-{card}-part-{part}",
                {"type": "mig", "profile": f"p{part % 7}", "product": "H100", "card": card},
                capacity={"memory": f"{part % 7 + 1}Gi"},
                consumes={f"gpu-{card}": {"mem": part % 7 + 1, f"slice-{part % 8}": 1}},
            )
            for part in range(26)
        ]
        for card in range(8)
    ]
    counters = {f"gpu-{card}": {"mem": 8, **{f"slice-{i}": 1 for i in range(8)}} for card in range(8)}
    slices = [slice_(f"{node}-{i}", found, pool=node, node=node, count=9) for i, found in enumerate(cards)]
    return [*slices, slice_(f"{node}-n", pool=node, node=node, count=9, counters=counters)]


def test_inventory_of_26000_devices_is_small_in_memory() -> None:
    """An eighth of 208,000 devices in 9,000 slices: the whole is to stay well below 100 MB."""
    inventory = Inventory()
    tracemalloc.start()
    for number in range(20):
        for item in node_slices(number):
            inventory.upsert_slice(json.loads(json.dumps(item)))
    before = tracemalloc.get_traced_memory()[0]
    for number in range(20, 60):
        for item in node_slices(number):
            inventory.upsert_slice(json.loads(json.dumps(item)))
    each = (tracemalloc.get_traced_memory()[0] - before) / (40 * 208)
    tracemalloc.stop()
    assert each < 300


def test_unused_interned_values_are_evicted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("haru.engine.dra.model.slice_decoder._FOREVER", 50)
    inventory = Inventory()
    for number in range(200):
        inventory.upsert_slice(slice_("s", [device("a", {"uuid": f"GPU-{number}"})], generation=number))
    assert len(inventory._decoder) < 200
