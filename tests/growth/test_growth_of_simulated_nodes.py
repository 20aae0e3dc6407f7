"""What simulated nodes, their driver and their provisioner do for an event does not depend on how much there is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from counted_calls import FLAT, SIZES, Steps, assert_all_flat, assert_flat
from growing_controllers import settle
from growing_nodes import (
    COMPONENTS,
    GrowingComponent,
    GrowingDriver,
    GrowingFleet,
    changed,
    events_of,
    make,
    stray_slice,
)

import haru
import virtual_time
from haru.client.informer import object_key
from haru.controllers.objects import PODS
from haru.simulated_nodes.heartbeats import Heartbeats
from haru.simulated_nodes.preemptions import Preemptions

Costs = dict[str, Steps]
WATCHES = ("Informer(", "metadata_informer(", "WorkQueue(")
OTHERS = {
    "simulated_nodes/standalone.py": "puts a fleet and a driver together",
    "drivers/simulated/process.py": "watches the one node of its process",
}
"""Modules of nodes and drivers that watch and are not about many objects, each with its reason."""


async def costs_of(made: type[GrowingComponent], size: int) -> Costs:
    """What each event takes beside `size` objects of each kind."""
    growing = made(size, virtual_time.clock())
    await growing.fill()
    found: Costs = {}
    for what, event in events_of(growing):
        with Steps() as counted:
            await event()
        found[what] = counted
        await settle()
    await growing.close()
    return found


@pytest.mark.parametrize("made", dict.fromkeys(COMPONENTS.values()), ids=lambda made: made.__name__)
@pytest.mark.parametrize("sizes", SIZES)
def test_event_costs_as_much_beside_many_objects_as_beside_few(
    made: type[GrowingComponent], sizes: tuple[int, ...]
) -> None:
    by_size = {size: virtual_time.run(costs_of(made, size)) for size in sizes}
    assert by_size[sizes[0]]
    assert_all_flat(by_size)


def test_every_module_of_nodes_and_drivers_that_watches_is_measured() -> None:
    root = Path(haru.__file__).parent
    modules = [path for part in ("simulated_nodes", "drivers") for path in (root / part).rglob("*.py")]
    found = {str(path.relative_to(root)) for path in modules if any(each in path.read_text() for each in WATCHES)}
    assert COMPONENTS.keys() | (OTHERS.keys() & found) == found


async def life_cost(size: int) -> Costs:
    """What a pod takes on its way from bound to gone, beside a running pod on each of so many nodes."""
    growing = GrowingFleet(size, virtual_time.clock())
    await growing.fill()
    pods, found = growing.fleet.pods._pods, Costs()
    bound = make(PODS, size + 1)
    bound["metadata"]["annotations"] = {"simulated.haru.dev/run-seconds": "30"}
    bound["spec"].update(nodeName="node-1", resourceClaims=[])

    def phase() -> str | None:
        pod = pods.store.get(object_key(bound))
        return pod["status"]["phase"] if pod is not None else None

    with Steps() as found["starts"]:
        await growing.hear(pods, "ADDED", bound)
    assert phase() == "Running"
    await asyncio.sleep(31)
    with Steps() as found["ends"]:
        growing.fleet.pods._queue.add(object_key(bound))
        await growing.work()
    assert phase() == "Succeeded"
    with Steps() as found["is let go"]:
        await growing.hear(pods, "MODIFIED", changed(pods.store[object_key(bound)]))
    assert phase() is None
    await growing.close()
    return found


async def upkeep_cost(size: int) -> Costs:
    """What the upkeep of one of so many nodes takes."""
    growing = GrowingFleet(size, virtual_time.clock())
    await growing.fill()
    fleet, keeper, found = growing.fleet, growing.fleet._keeper, Costs()
    node = fleet._nodes["node-0"]
    given_up = changed(node.stored)
    upkeep: dict[str, Callable[[], Coroutine[Any, Any, object]]] = {
        "lease": lambda: keeper._send_lease("node-0"),
        "status": lambda: keeper._send_status("node-0"),
        "comes up": lambda: keeper.bring_up(node, node.stored),
        "was given up": lambda: _done(keeper.compare, given_up),
        "offline and back": lambda: _done(fleet._node_updated, node.stored, _annotated(node.stored)),
    }
    for what, work in upkeep.items():
        with Steps() as counted:
            await work()
        found[what] = counted
    await growing.close()
    return found


async def _done(call: Callable[..., object], *arguments: object) -> None:
    call(*arguments)


def _annotated(node: dict[str, Any]) -> dict[str, Any]:
    return {**node, "metadata": {**node["metadata"], "annotations": {"simulated.haru.dev/offline": "true"}}}


@pytest.mark.parametrize("cost", [life_cost, upkeep_cost])
@pytest.mark.parametrize("sizes", SIZES)
def test_work_for_one_costs_as_much_beside_many_as_beside_few(
    cost: Callable[[int], Coroutine[Any, Any, Costs]], sizes: tuple[int, ...]
) -> None:
    assert_all_flat({size: virtual_time.run(cost(size)) for size in sizes})


async def heartbeat_cost(size: int) -> Steps:
    """What a heartbeat takes among those of so many nodes, from its timer to the next one being set."""
    sent: list[str] = []

    async def send(node: str) -> None:
        sent.append(node)

    beats = Heartbeats("lease", send, lambda: 10.0, timeouts=(10.0, 5.0), gathered=0.05)
    for n in range(size):
        beats.begin(f"node-{n}")
    await asyncio.sleep(10)
    sent.clear()
    with Steps() as counted:
        await asyncio.sleep(10)
    await beats.close()
    assert len(sent) >= size - 1
    counted.count //= len(sent)
    return counted


async def neighbour_cost(size: int) -> Steps:
    """What it takes to start a pod on a node that has so many already."""
    growing = GrowingFleet(1, virtual_time.clock())
    await growing.fill()
    growing.fleet._nodes["node-0"].allocatable.update(pods=10**9, cpu=10**9)
    pods = growing.fleet.pods._pods
    for n in range(2, size + 2):
        await growing.hear(pods, "ADDED", _on_first_node(n))
    with Steps() as counted:
        await growing.hear(pods, "ADDED", _on_first_node(size + 2))
    assert all(pod["status"]["phase"] == "Running" for pod in pods.store.values())
    await growing.close()
    return counted


def _on_first_node(n: int) -> dict[str, Any]:
    made = make(PODS, n)
    made["spec"].update(nodeName="node-0", resourceClaims=[])
    return made


async def stray_cost(size: int) -> Steps:
    """What it takes to look at a node's slices beside so many slices of nodes that their names do not tell."""
    growing = GrowingDriver(10, virtual_time.clock())
    await growing.fill()
    driver = growing.driver
    for n in range(size):
        stray = stray_slice(n)
        growing.client.remember(driver._slices.kind, stray)
        await growing.hear(driver._slices, "ADDED", stray)
    node = driver._nodes.get("node-3")
    assert node is not None and len(list(driver._strays.of_node("node-5"))) == size
    with Steps() as counted:
        await growing.hear(driver._nodes, "MODIFIED", changed(node))
    await growing.close()
    return counted


async def network_cost(size: int) -> Steps:
    """What a look at a pod takes that asks for an address, and waits for a name of another namespace."""
    growing = GrowingFleet(size, virtual_time.clock())
    await growing.fill()
    pods, last = growing.fleet.pods, make(PODS, size - 1)["metadata"]
    address = pods._pods.store[f"{last['namespace']}/{last['name']}"]["status"]["podIP"]
    text = f"until nc -z {address} 80 && nslookup db.{last['namespace']}; do sleep 5; done"
    asks = make(PODS, size + 1)
    asks["spec"].update(nodeName="node-1", resourceClaims=[])
    asks["spec"]["initContainers"] = [{"name": "waits", "image": "busybox", "command": ["sh", "-c", text]}]
    await growing.hear(pods._pods, "ADDED", asks)
    with Steps() as counted:
        pods._queue.add(object_key(asks))
        await growing.work()
    assert pods.network.askers_of(f"{last['namespace']}/db") == {asks["metadata"]["uid"]}
    await growing.close()
    return counted


async def preemption_cost(size: int) -> Steps:
    """What the end of a pod takes beside so many critical pods that wait for the ends of others."""
    preemptions = Preemptions(virtual_time.clock().now)
    for n in range(size):
        preemptions.begin(make(PODS, f"critical-{n}"), [make(PODS, n), make(PODS, f"{n}-too")])
    with Steps() as counted:
        assert preemptions.forget(make(PODS, 1)) == [object_key(make(PODS, "critical-1"))]
    assert preemptions.seconds_left(make(PODS, "critical-1"))
    return counted


@pytest.mark.parametrize(
    ("cost", "most"),
    [
        (heartbeat_cost, FLAT),
        (neighbour_cost, FLAT),
        (stray_cost, FLAT),
        (network_cost, 1.02),  # the script itself takes most
        (preemption_cost, FLAT),
    ],
)
@pytest.mark.parametrize("sizes", SIZES)
def test_cost_does_not_grow_with_what_else_is_there(
    cost: Callable[[int], Coroutine[Any, Any, Steps]], most: float, sizes: tuple[int, ...]
) -> None:
    assert_flat({size: virtual_time.run(cost(size)) for size in sizes}, cost.__doc__ or "", most)
