"""A fleet answers for each of its nodes what the node answers alone, however it got to where it is."""

from __future__ import annotations

import random
from typing import Any

import pytest
from device_objects import SHARE_ID, claim, class_, device, exact, first_of, request, slice_

from haru.engine.dra import (
    Allocated,
    AllocatedState,
    AllocationError,
    DeviceId,
    Features,
    Inventory,
    NodeView,
    allocate,
)
from haru.engine.equivalence.claim_query import ClaimQuery
from haru.engine.equivalence.node_class_index import NodeClassIndex

Obj = dict[str, Any]

NODES = [NodeView(f"node-{i}", {"zone": "ab"[i % 2]}) for i in range(8)]
DRIVER = "gpu.example.com"
CLAIMS = (
    [claim("one", request("r"))],
    [claim("two", request("r", 2), match="root")],
    [claim("mix", first_of("r", exact(3), exact(2)), request("s"))],
    [claim("all", request("r", None))],
    [claim("root", request("r", 1, f"device.attributes['{DRIVER}'].root == 'r1'"))],
    [claim("share", request("r", 1, capacity={"requests": {"memory": "2"}}))],
    [claim("fails", request("r", 2, f"device.attributes['{DRIVER}'].uuid != ''"))],
    [claim("many", request("r", 33))],
    [claim("no-class", request("r", 1, deviceClassName="absent"))],
)


def alone(inventory: Inventory, state: AllocatedState, node: NodeView, claims: list[Obj]) -> object:
    try:
        answer = allocate(inventory.snapshot(), state, node, claims, Features(), new_share_id=lambda: SHARE_ID)
    except AllocationError as error:
        return str(error)
    return answer.results if isinstance(answer, Allocated) else answer.reasons


def together(fleet: NodeClassIndex, number: int, claims: list[Obj]) -> object:
    answer = ClaimQuery(fleet, claims, Features()).results(fleet, number, lambda: SHARE_ID)
    if isinstance(answer, tuple):
        return answer
    return str(answer) if isinstance(answer, AllocationError) else getattr(answer, "reasons", answer)


def node_slices(rng: random.Random, node: str) -> list[Obj]:
    kind = rng.randrange(6)
    named = rng.choice(("gpu", node))
    if kind == 0:
        return []
    if kind == 1:
        cards = [device(f"{named}-{i}", {"root": f"r{i % 2}"}, consumes={"card": {"mem": 1 + i % 2}}) for i in range(4)]
        counters = {"card": {"mem": rng.choice((3, 5))}}
        return [
            slice_(f"{node}-a", cards, pool=node, node=node, count=2),
            slice_(f"{node}-b", pool=node, node=node, count=2, counters=counters),
        ]
    if kind == 2:
        shared = device("s", {"root": "r0"}, capacity={"memory": "4"}, allowMultipleAllocations=True)
        return [slice_(f"{node}-a", [shared], pool=node, node=node)]
    count = rng.choice((1, 1, 1, 2))  # sometimes the pool is incomplete
    devices = [device(f"{named}-{i}", {"root": f"r{i % 2}", "uuid": f"{rng.random()}"}) for i in range(kind)]
    if rng.random() < 0.2:
        devices[0]["taints"] = [{"key": "broken", "effect": "NoSchedule"}]
    return [slice_(f"{node}-a", devices, pool=node, node=node, count=count)]


def wide_slices(rng: random.Random) -> list[Obj]:
    selector = {
        "nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": [rng.choice("ab")]}]}]
    }
    devices = [device(f"net-{i}", {"root": "r1"}) for i in range(rng.randint(1, 2))]
    placed = [
        {**device("own-0", {"root": "r0"}), "nodeName": rng.choice(NODES).name},
        {**device("own-1", {"root": "r1"}), "allNodes": True},
    ]
    return [
        slice_("wide", devices, pool="wide", node=None, nodeSelector=selector),
        slice_("placed", placed, pool="placed", node=None, perDeviceNodeSelection=True),
    ]


@pytest.mark.parametrize("looking", [False, True])
@pytest.mark.parametrize("seed", range(10))
def test_class_index_answers_equal_those_per_node(seed: int, looking: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """`looking`: nodes that only look alike to the claims share answers as well. Some fleets always start anew."""
    monkeypatch.setattr("haru.engine.equivalence.claim_query._FEW_CLASSES", 0 if looking else 10**6)
    monkeypatch.setattr("haru.engine.equivalence.claim_query._USES", 10**6)
    if seed % 3 == 0:
        monkeypatch.setattr("haru.engine.equivalence.node_class_index._SPARE", -(10**6))
    rng = random.Random(seed)
    inventory, state = Inventory(), AllocatedState()
    inventory.upsert_class(class_())
    published: dict[str, list[Obj]] = {}

    def publish(name: str, slices: list[Obj]) -> None:
        for old in published.get(name, ()):
            inventory.delete_slice(old["metadata"]["name"])
        for new in slices:
            inventory.upsert_slice(new)
        published[name] = slices

    for node in NODES:
        publish(node.name, node_slices(rng, node.name))
    if seed % 2:
        publish("", wide_slices(rng))
    fleet = NodeClassIndex(inventory.snapshot(), state, NODES)
    questions = [ClaimQuery(fleet, claims, Features()) for claims in CLAIMS]
    for step in range(12):
        change = rng.random()
        if change < 0.2:
            node = rng.choice(NODES)
            publish(node.name, node_slices(rng, node.name))
        elif change < 0.3 and seed % 2:
            publish("", wide_slices(rng))
        elif change < 0.8:
            pools = [s for slices in published.values() for s in slices if s["spec"].get("devices")]
            spec = rng.choice(pools)["spec"]
            chosen = rng.choice(spec["devices"])
            result = {"driver": DRIVER, "pool": spec["pool"]["name"], "device": chosen["name"]}
            if chosen.get("allowMultipleAllocations"):
                result |= {"shareID": f"share-{step}", "consumedCapacity": {"memory": "1"}}
            state = state.with_allocation(f"c-{rng.randrange(4)}", {"devices": {"results": [result]}})
        else:
            state = state.without(f"c-{rng.randrange(4)}")
        fleet.update(inventory.snapshot(), state)
        fresh = NodeClassIndex(inventory.snapshot(), state, NODES)
        for question, claims in zip(questions, CLAIMS, strict=True):
            expected = [alone(inventory, state, node, claims) for node in NODES]
            assert [together(fresh, number, claims) for number in range(len(NODES))] == expected
            assert [together(fleet, number, claims) for number in range(len(NODES))] == expected
            fitting = [number for number, answer in enumerate(expected) if answer and isinstance(answer, tuple)]
            fitting = [n for n in fitting if isinstance(expected[n][0], dict)]  # type: ignore[index]
            assert question.fits(fleet) == fitting


@pytest.mark.parametrize("seed", range(4))
def test_class_index_follows_added_removed_and_relabelled_nodes(seed: int) -> None:
    rng = random.Random(seed)
    inventory = Inventory()
    inventory.upsert_class(class_())
    for node in NODES:
        for item in node_slices(rng, node.name):
            inventory.upsert_slice(item)
    for item in wide_slices(rng):
        inventory.upsert_slice(item)
    state, present = AllocatedState(), {node.name: node for node in NODES[:4]}
    fleet = NodeClassIndex(inventory.snapshot(), state, present.values())
    questions = [ClaimQuery(fleet, claims, Features()) for claims in CLAIMS]
    for _ in range(12):
        node = rng.choice(NODES)
        if rng.random() < 0.4:
            fleet.drop(node.name)
            present.pop(node.name, None)
        else:
            present[node.name] = NodeView(node.name, {"zone": rng.choice("ab")})
            fleet.put(present[node.name])
        for question, claims in zip(questions, CLAIMS, strict=True):
            expected = {name: alone(inventory, state, view, claims) for name, view in present.items()}
            for name, (number,) in ((name, fleet.numbers(name)) for name in present):
                assert together(fleet, number, claims) == expected[name]
            fitting = {
                name for name, found in expected.items() if isinstance(found, tuple) and isinstance(found[0], dict)
            }
            assert {fleet.nodes[number].name for number in question.fits(fleet)} == fitting
    assert all(not fleet.numbers(node.name) for node in NODES if node.name not in present)


def test_equal_nodes_are_one_class_and_a_changed_node_moves() -> None:
    inventory = Inventory()
    inventory.upsert_class(class_())
    for node in NODES:
        devices = [device(f"{node.name}-gpu-{i}") for i in range(4)]
        inventory.upsert_slice(slice_(f"{node.name}-a", devices, pool=node.name, node=node.name))
    state = AllocatedState()
    fleet = NodeClassIndex(inventory.snapshot(), state, NODES)
    assert len(fleet.classes) == 1
    question = ClaimQuery(fleet, [claim("c", request("r", 4))], Features())
    assert question.fits(fleet) == list(range(8))
    taken = {"devices": {"results": [{"driver": DRIVER, "pool": "node-3", "device": "node-3-gpu-1"}]}}
    fleet.update(inventory.snapshot(), state.with_allocation("x", taken))
    assert sorted(len(peers.nodes) for peers in fleet.classes.values()) == [1, 7]
    assert question.fits(fleet) == [0, 1, 2, 4, 5, 6, 7]
    released = fleet.allocated.without_device(DeviceId(DRIVER, "node-3", "node-3-gpu-1"))
    fleet.update(inventory.snapshot(), released)
    assert len(fleet.classes) == 1


def test_unselected_device_attributes_do_not_split_node_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Devices with identities of their own: all nodes look alike, and one is asked."""
    inventory, nodes = Inventory(), [NodeView(f"node-{i}", {}) for i in range(20)]
    inventory.upsert_class(class_())
    for node in nodes:
        devices = [device(f"gpu-{i}", {"uuid": f"{node.name}/{i}", "root": f"r{i}"}) for i in range(4)]
        inventory.upsert_slice(slice_(f"{node.name}-a", devices, pool=node.name, node=node.name))
    fleet = NodeClassIndex(inventory.snapshot(), AllocatedState(), nodes)
    assert len(fleet.classes) == fleet.inventory_count == 20
    asked: list[int] = []
    ask = ClaimQuery._solve
    monkeypatch.setattr(
        ClaimQuery, "_solve", lambda self, fleet, n, views: asked.append(n) or ask(self, fleet, n, views)
    )
    question = ClaimQuery(fleet, [claim("c", request("r", 2), distinct="root")], Features())
    assert question.fits(fleet) == list(range(20))
    assert asked == [0]
    answer = question.results(fleet, 7, lambda: SHARE_ID)
    assert isinstance(answer, tuple)
    assert [r["pool"] for r in answer[0]["devices"]["results"]] == ["node-7"] * 2
    own = f"device.attributes['{DRIVER}'].uuid == 'node-3/0'"
    assert ClaimQuery(fleet, [claim("c", request("r", 1, own))], Features()).fits(fleet) == [3]
