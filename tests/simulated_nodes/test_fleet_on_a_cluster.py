"""`haru fleet`: names that are somebody else's, nodes that are left out, and the removal of a fleet."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from in_memory_client import InMemoryClient

import virtual_time
from haru.clock import Clock
from haru.drivers.simulated.objects import FLEET_LABEL
from haru.drivers.simulated.profiles import load_profile
from haru.simulated_nodes.fleet import Fleet, FleetOptions
from haru.simulated_nodes.fleet_nodes import (
    PODS,
    SLICES,
    FleetError,
    Nodes,
    delete_fleet,
    fleet_nodes,
    parse_taint,
    prepare_fleet,
    selector_of,
)
from haru.simulated_nodes.nodes import LEASE_NAMESPACE, LEASES, NODES

Obj = dict[str, Any]


def node(name: str, fleet: str = "") -> Obj:
    return {"metadata": {"name": name, "labels": {FLEET_LABEL: fleet} if fleet else {}}}


def bound_pod(name: str, where: str) -> Obj:
    return {"metadata": {"name": name, "namespace": "default"}, "spec": {"nodeName": where, "containers": []}}


async def api(*nodes: Obj) -> InMemoryClient:
    client = InMemoryClient()
    for one in nodes:
        await client.create(NODES, one)
    return client


class Recorder:
    def event(self, *_: Any, **__: Any) -> None:
        pass


async def a_minute_of(client: InMemoryClient, nodes: Nodes, options: FleetOptions) -> None:
    clock = Clock(virtual_time.now, asyncio.get_running_loop().time)
    fleet = Fleet(client, nodes, clock, recorder=Recorder(), options=options)  # type: ignore[arg-type]
    task = asyncio.create_task(fleet.run())
    await fleet.ready.wait()
    await asyncio.sleep(60)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def test_node_of_another_owner_with_a_wanted_name_is_refused() -> None:
    async def story() -> None:
        client = await api(node("cpu-0"), node("cpu-1", "other"), node("cpu-2", "mine"))
        with pytest.raises(FleetError, match="not of the fleet mine: cpu-0, cpu-1; take another --name-prefix"):
            await prepare_fleet(client, "mine", ["cpu-0", "cpu-1", "cpu-2"], with_slices=True)
        assert ("nodes", "", "cpu-2") in client.objects

    virtual_time.run(story())


def test_own_node_left_out_is_deleted_unless_a_pod_is_bound_to_it() -> None:
    async def story() -> None:
        client = await api(node("cpu-0", "mine"), node("cpu-1", "mine"), node("theirs"))
        await client.create(PODS, bound_pod("p", "cpu-1"))
        with pytest.raises(FleetError, match="default/p"):
            await prepare_fleet(client, "mine", ["cpu-0"], with_slices=True)
        await client.delete(PODS, "p", "default", grace_period_seconds=0)
        assert await prepare_fleet(client, "mine", ["cpu-0"], with_slices=True) == 1
        assert {name for plural, _, name in client.objects if plural == "nodes"} == {"cpu-0", "theirs"}

    virtual_time.run(story())


def test_delete_removes_nodes_leases_slices_and_bound_pods_of_the_fleet_only() -> None:
    async def story() -> None:
        client = await api(node("a", "mine"), node("b", "other"))
        for name in "ab":
            await client.create(PODS, bound_pod(f"p-{name}", name))
            await client.create(LEASES, {"metadata": {"name": name, "namespace": LEASE_NAMESPACE}})
            await client.create(SLICES, {"metadata": {"name": f"s-{name}"}, "spec": {"nodeName": name}})
        assert await delete_fleet(client, "mine", with_slices=True) == (1, 1)
        assert sorted(name for _, _, name in client.objects) == ["b", "b", "p-b", "s-b"]

    virtual_time.run(story())


def test_fleet_creates_its_nodes_with_label_and_taint_and_leaves_others_alone() -> None:
    async def story() -> None:
        foreign = {"metadata": {"name": "theirs", "labels": {"simulated.haru.dev/profile": "cpu"}}}
        client = await api(foreign)
        nodes = fleet_nodes("mine", [(load_profile("cpu"), 2)], "sim-", {"team": "red"})
        options = FleetOptions(selector_of("mine"), (parse_taint("simulated.haru.dev/node:NoSchedule"),))
        await a_minute_of(client, nodes, options)
        made = client.objects["nodes", "", "sim-cpu-1"]
        assert made["spec"]["taints"] == [{"key": "simulated.haru.dev/node", "effect": "NoSchedule"}]
        assert made["metadata"]["labels"].items() >= {FLEET_LABEL: "mine", "team": "red"}.items()
        assert sorted(name for plural, _, name in client.objects if plural == "leases") == ["sim-cpu-0", "sim-cpu-1"]
        assert "status" not in client.objects["nodes", "", "theirs"]

    virtual_time.run(story())


def test_fleet_without_a_name_leaves_the_nodes_of_named_fleets_to_them() -> None:
    async def story() -> None:
        profile = {"simulated.haru.dev/profile": "cpu"}
        named = {"metadata": {"name": "theirs", "labels": {**profile, FLEET_LABEL: "mine"}}}
        client = await api(named, {"metadata": {"name": "ours", "labels": profile}})
        await client.create(PODS, bound_pod("p", "theirs"))
        await a_minute_of(client, [], FleetOptions())
        assert "status" in client.objects["nodes", "", "ours"]
        assert "status" not in client.objects["nodes", "", "theirs"]
        assert "status" not in client.objects["pods", "default", "p"]

    virtual_time.run(story())


@pytest.mark.parametrize("text", ["key", "key:Never", "=v:NoSchedule", ""])
def test_malformed_taint_is_refused(text: str) -> None:
    with pytest.raises(FleetError, match="write KEY"):
        parse_taint(text)
