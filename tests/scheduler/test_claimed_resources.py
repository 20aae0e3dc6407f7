"""What devices take of their node's resources, from the decision into the pod's status and back (KEP-5517)."""

from __future__ import annotations

import asyncio

import pytest
from scheduler_bench import CLAIMS, CLASSES, DRIVER, NS, PODS, SLICES, Bench, Obj, play

from haru.kube.gates import FeatureGates

CARD = "example.com/card"
STATUSES = "nodeAllocatableResourceClaimStatuses"


async def furnish(bench: Bench, cards: int = 2, memory: str = "6Gi") -> None:
    """A node with 16Gi and cards that need some of it."""
    await bench.create(CLASSES, {"metadata": {"name": "card"}, "spec": {"extendedResourceName": CARD}})
    await bench.node("n1")
    mappings = {"memory": {"allocationMultiplier": memory}}
    devices = [{"name": f"card-{i}", "nodeAllocatableResourceMappings": mappings} for i in range(cards)]
    pool = {"name": "n1", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "pool": pool, "nodeName": "n1", "devices": devices}
    await bench.create(SLICES, {"metadata": {"name": "slice-n1"}, "spec": spec})


async def using(bench: Bench, name: str, *claims: str, cards: int = 0) -> None:
    container: Obj = {"name": "main", "image": "i", "resources": {"claims": [{"name": c} for c in claims]}}
    if cards:
        container["resources"]["limits"] = {CARD: str(cards)}
    entries = [{"name": c, "resourceClaimName": c} for c in claims]
    spec = {"containers": [container], "resourceClaims": entries}
    await bench.create(PODS, {"metadata": {"name": name}, "spec": spec})


async def told(bench: Bench, name: str) -> list[Obj]:
    return list((await bench.api.get(PODS, name, NS))["status"].get(STATUSES) or ())


def test_mapped_amounts_are_written_before_binding_sorted_by_claim() -> None:
    async def scenario(bench: Bench) -> None:
        await furnish(bench, 3, "2Gi")
        for name in ("b", "a"):
            await bench.claim(name, "card")
        await using(bench, "p", "b", "a")
        await bench.eventually_bound("p", seconds=1)
        amount = {"containers": ["main"], "resources": {"memory": "2Gi"}}
        assert await told(bench, "p") == [{"resourceClaimName": name, **amount} for name in ("a", "b")]
        [placed] = bench.scheduler.cluster.snapshot().nodes["n1"].pods.values()
        assert placed.usage["memory"] == 4 * 2**30

    play(scenario)


def test_mapped_devices_are_refused_to_extended_resources() -> None:
    """The server takes amounts only of claims that the pod names: nothing is tried that it would refuse."""

    async def scenario(bench: Bench) -> None:
        await furnish(bench, 3, "2Gi")
        await using(bench, "p", cards=1)
        await asyncio.sleep(1)
        message = (await bench.condition(PODS, "p", "PodScheduled"))["message"]
        assert "node-allocatable resource claim not referenced by any container within the pod" in message
        assert await told(bench, "p") == []
        assert (await bench.api.list(CLAIMS, NS))["items"] == []

    play(scenario)


def test_mapped_amounts_reduce_resources_for_others() -> None:
    async def scenario(bench: Bench) -> None:
        await furnish(bench)
        for name in ("a", "b"):
            await bench.claim(name, "card")
        await using(bench, "first", "a")
        await bench.eventually_bound("first", seconds=1)
        await using(bench, "second", "b")
        await bench.eventually_bound("second", seconds=1)
        await bench.kill()
        await bench.start_scheduler()
        container: Obj = {"name": "c", "image": "i", "resources": {"requests": {"memory": "5Gi"}}}
        await bench.create(PODS, {"metadata": {"name": "third"}, "spec": {"containers": [container]}})
        await asyncio.sleep(1)
        message = (await bench.condition(PODS, "third", "PodScheduled"))["message"]
        assert message.startswith("0/1 nodes are available: 1 Insufficient memory.")
        await bench.delete("first")
        await bench.eventually_bound("third", seconds=15)

    play(scenario)


def test_mapped_amounts_are_removed_when_binding_fails() -> None:
    async def scenario(bench: Bench) -> None:
        await furnish(bench)
        await bench.claim("a", "card")
        bench.faulty.rate, bench.faulty.only = 1.0, lambda method, path: path.endswith("/binding")
        bench.faulty._rng.choice = lambda kinds: "refuse 409"  # type: ignore[method-assign]
        await using(bench, "p", "a")
        seen = False
        for _ in range(400):
            await asyncio.sleep(0.02)
            seen = seen or bool(await told(bench, "p"))
            if seen and not await told(bench, "p"):
                break
        else:
            pytest.fail("the status still tells of it")
        bench.faulty.rate = 0.0
        await bench.eventually_bound("p", seconds=15)
        assert len(await told(bench, "p")) == 1

    play(scenario)


def test_gate_off_writes_no_mapped_amounts() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.kill()
        bench.gates = FeatureGates.accelerator_defaults({"DRANodeAllocatableResources": False})
        await bench.start_scheduler()
        await furnish(bench, 1, "60Gi")
        await bench.claim("a", "card")
        await using(bench, "p", "a")
        await bench.eventually_bound("p", seconds=1)
        assert await told(bench, "p") == []

    play(scenario)
