"""The claims behind extended resources on the real API server: made, recorded, found again, removed (KEP-5004)."""

from __future__ import annotations

import asyncio

import pytest
from scheduler_bench import CLAIMS, CLASSES, DRIVER, GROUPS, NODES, NS, PODS, SLICES, Bench, Obj, play

from haru.engine.dra import ANNOTATION
from haru.kube.gates import FeatureGates
from haru.scheduler.binding.claim_updates import FINALIZER

CARD = "example.com/card"
WRITES_OF_A_POD = 5
"""Claim created, protected, allocated and reserved, recorded in the pod; the binding."""


async def furnish(bench: Bench, cards: int = 2) -> None:
    await bench.create(CLASSES, {"metadata": {"name": "card"}, "spec": {"extendedResourceName": CARD}})
    await bench.node("n1", gpus=cards)


def container(name: str = "c", cards: int = 1) -> Obj:
    amounts = {CARD: str(cards)}
    return {"name": name, "image": "i", "resources": {"limits": amounts}}


async def asking(bench: Bench, name: str = "p", cards: int = 1, group: str = "") -> Obj:
    spec: Obj = {"containers": [container(cards=cards)]}
    if group:
        spec["schedulingGroup"] = {"podGroupName": group}
    return await bench.create(PODS, {"metadata": {"name": name}, "spec": spec})


async def claims(bench: Bench) -> list[Obj]:
    return list((await bench.api.list(CLAIMS, NS))["items"])


async def in_order(bench: Bench, *names: str, cards: int = 1) -> None:
    """Every pod is bound with one claim of its own that it names; there is no other, and no card is given twice."""
    found = {c["metadata"]["name"]: c for c in await claims(bench)}
    assert len(found) == len(names), sorted(found)
    given: list[str] = []
    for name in names:
        pod = await bench.api.get(PODS, name, NS)
        assert pod["spec"].get("nodeName"), name
        recorded = pod["status"]["extendedResourceClaimStatus"]
        claim = found[recorded["resourceClaimName"]]
        assert claim["metadata"]["ownerReferences"][0]["uid"] == pod["metadata"]["uid"]
        assert FINALIZER in claim["metadata"]["finalizers"]
        assert [user["uid"] for user in claim["status"]["reservedFor"]] == [pod["metadata"]["uid"]]
        results = claim["status"]["allocation"]["devices"]["results"]
        assert len(results) == cards
        given += [f"{r['pool']}/{r['device']}" for r in results]
    assert len(given) == len(set(given))


def test_pod_is_bound_with_generated_extended_resource_claim() -> None:
    async def scenario(bench: Bench) -> None:
        await furnish(bench)
        await asking(bench, cards=2)
        await bench.eventually_bound("p", seconds=1)
        await in_order(bench, "p", cards=2)
        [claim] = await claims(bench)
        metadata = claim["metadata"]
        assert metadata["name"].startswith("p-extended-resources-")
        assert metadata["generateName"] == "p-extended-resources-"
        assert metadata["annotations"] == {ANNOTATION: "true"}
        assert metadata["ownerReferences"][0]["controller"] is True
        pod = await bench.api.get(PODS, "p", NS)
        mapping = {"containerName": "c", "resourceName": CARD, "requestName": "container-0-request-0"}
        assert pod["status"]["extendedResourceClaimStatus"]["requestMappings"] == [mapping]
        assert bench.metric('scheduler_resourceclaim_creates_total{status="success"}') == 1.0

    play(scenario)


def test_device_plugin_node_needs_no_claim() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.create(CLASSES, {"metadata": {"name": "card"}, "spec": {"extendedResourceName": CARD}})
        await bench.node("n1")
        amounts = {"cpu": "4", "memory": "16Gi", "pods": "30", CARD: "1"}
        status = {"status": {"capacity": amounts, "allocatable": amounts}}
        await bench.api.patch(NODES, "n1", status, "", "merge", "status")
        await asking(bench)
        await bench.eventually_bound("p", seconds=1)
        assert await claims(bench) == []
        assert "extendedResourceClaimStatus" not in (await bench.api.get(PODS, "p", NS))["status"]
        await asking(bench, "q")
        await asyncio.sleep(1)
        message = (await bench.condition(PODS, "q", "PodScheduled"))["message"]
        assert message.startswith(f"0/1 nodes are available: 1 Insufficient {CARD}. ")

    play(scenario)


def test_new_device_class_wakes_pod() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.node("n1", gpus=1)
        await asking(bench)
        await asyncio.sleep(20)
        assert not await bench.node_of("p")
        await bench.create(CLASSES, {"metadata": {"name": "card"}, "spec": {"extendedResourceName": CARD}})
        await bench.eventually_bound("p", seconds=1)

    play(scenario)


def test_gate_off_creates_no_extended_resource_claim() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.kill()
        bench.gates = FeatureGates.accelerator_defaults({"DRAExtendedResource": False})
        await bench.start_scheduler()
        await furnish(bench)
        await asking(bench)
        await asyncio.sleep(5)
        assert not await bench.node_of("p")
        assert await claims(bench) == []

    play(scenario)


class Cut:
    """Lets the first writes of the scheduler through and nothing after them: where it is killed."""

    def __init__(self, bench: Bench, writes: int, kind: str = "lose") -> None:
        self.left = writes
        bench.faulty.rate, bench.faulty.only = 1.0, self.hits
        bench.faulty._rng.choice = lambda kinds: kind  # type: ignore[method-assign]

    def hits(self, method: str, path: str) -> bool:
        if method == "GET" or "/events" in path:
            return False
        self.left -= 1
        return self.left < 0


@pytest.mark.parametrize("writes", range(WRITES_OF_A_POD + 1))
@pytest.mark.parametrize("kind", ["lose", "act and drop"])
def test_crash_after_any_write_leaves_no_extra_claims(writes: int, kind: str) -> None:
    async def scenario(bench: Bench) -> None:
        await furnish(bench)
        Cut(bench, writes, kind)
        await asking(bench)
        await asyncio.sleep(0.02)
        await bench.kill()
        bench.faulty.rate = 0.0
        await bench.start_scheduler()
        await bench.eventually_bound("p", seconds=1)
        await asyncio.sleep(31)
        await in_order(bench, "p")

    play(scenario)


@pytest.mark.parametrize("writes", range(2 * WRITES_OF_A_POD + 1))
def test_gang_is_whole_after_crash_at_any_write(writes: int) -> None:
    """Before the first binding every claim is stored; so whoever comes next can complete it, and nobody else."""

    async def scenario(bench: Bench) -> None:
        await furnish(bench)
        await bench.gang("g", 2)
        Cut(bench, writes)
        for name in ("a", "b"):
            await asking(bench, name, group="g")
        await asyncio.sleep(0.02)
        await bench.kill()
        bound = [name for name in ("a", "b") if await bench.node_of(name)]
        if bound:
            allocated = [c for c in await claims(bench) if (c.get("status") or {}).get("allocation")]
            assert len(allocated) == 2
        bench.faulty.rate = 0.0
        await asking(bench, "rival")
        await bench.start_scheduler()
        await asyncio.sleep(31)
        if bound:
            await in_order(bench, "a", "b")
        else:
            placed = [name for name in ("a", "b", "rival") if await bench.node_of(name)]
            assert placed in (["a", "b"], ["rival"])
            used = [c for c in await claims(bench) if (c.get("status") or {}).get("allocation")]
            assert len(used) == len(placed)

    play(scenario)


def test_lost_create_response_causes_no_second_claim() -> None:
    async def scenario(bench: Bench) -> None:
        await furnish(bench)
        bench.faulty.rate = 1.0
        bench.faulty.only = lambda method, path: method == "POST" and path.endswith("/resourceclaims")
        kinds = iter(["act and drop", "lose"])
        bench.faulty._rng.choice = lambda _: next(kinds)  # type: ignore[method-assign]
        await asking(bench)
        await bench.eventually_bound("p", seconds=2)
        await in_order(bench, "p")

    play(scenario)


def test_late_duplicate_claim_is_deleted() -> None:
    async def scenario(bench: Bench) -> None:
        await furnish(bench)
        kinds = iter(["late", "lose"])
        bench.faulty.rate, bench.faulty.only = 1.0, lambda method, path: method == "POST" and "claims" in path
        bench.faulty._rng.choice = lambda _: next(kinds)  # type: ignore[method-assign]
        bench.faulty._rng.random = lambda: 0.9  # type: ignore[method-assign]
        await asking(bench)
        await asyncio.sleep(0.06)
        bench.faulty.rate = 0.0
        await bench.eventually_bound("p", seconds=2)
        await asyncio.sleep(1)
        assert len(await claims(bench)) == 2
        await asyncio.sleep(31)
        await in_order(bench, "p")

    play(scenario)


def test_failed_binding_releases_claim() -> None:
    async def scenario(bench: Bench) -> None:
        await furnish(bench)
        bench.faulty.rate, bench.faulty.only = 1.0, lambda method, path: path.endswith("/binding")
        bench.faulty._rng.choice = lambda kinds: "refuse 409"  # type: ignore[method-assign]
        await asking(bench)
        seen: set[str] = set()
        for _ in range(200):
            await asyncio.sleep(0.02)
            seen |= {c["metadata"]["name"] for c in await claims(bench)}
            pod = await bench.api.get(PODS, "p", NS)
            if seen and not await claims(bench) and "extendedResourceClaimStatus" not in pod["status"]:
                break
        else:
            pytest.fail("the claim of the pod that could not be bound is still there")
        assert len(seen) == 1
        bench.faulty.rate = 0.0
        await bench.eventually_bound("p", seconds=15)
        await in_order(bench, "p")

    play(scenario)


async def reserved_elsewhere(bench: Bench) -> str:
    """A pod that has its claim on n1, was not bound, and whose scheduler is dead; the claim's name."""
    await furnish(bench)
    Cut(bench, WRITES_OF_A_POD - 1)
    await asking(bench)
    await asyncio.sleep(0.02)
    await bench.kill()
    bench.faulty.rate = 0.0
    [claim] = await claims(bench)
    assert claim["status"]["allocation"]
    return str(claim["metadata"]["name"])


def test_claim_on_deleted_node_is_released() -> None:
    async def scenario(bench: Bench) -> None:
        stale = await reserved_elsewhere(bench)
        await bench.api.delete(NODES, "n1")
        await bench.api.delete(SLICES, "slice-n1")
        await bench.start_scheduler()
        await asyncio.sleep(1)
        assert await claims(bench) == []
        await bench.node("n2", gpus=1)
        await bench.eventually_bound("p", seconds=15)
        await in_order(bench, "p")
        assert (await claims(bench))[0]["metadata"]["name"] != stale

    play(scenario)


def test_pod_moved_to_device_plugin_node_drops_its_claim() -> None:
    async def scenario(bench: Bench) -> None:
        await reserved_elsewhere(bench)
        await bench.api.delete(NODES, "n1")
        amounts = {"cpu": "4", "memory": "16Gi", "pods": "30", CARD: "1"}
        await bench.node("n2")
        status = {"status": {"capacity": amounts, "allocatable": amounts}}
        await bench.api.patch(NODES, "n2", status, "", "merge", "status")
        await bench.start_scheduler()
        await bench.eventually_bound("p", seconds=15)
        assert await bench.node_of("p") == "n2"
        assert "extendedResourceClaimStatus" not in (await bench.api.get(PODS, "p", NS))["status"]
        await asyncio.sleep(31)
        assert await claims(bench) == []

    play(scenario)


def test_claim_of_deleted_pod_does_not_block_pod_of_same_name() -> None:
    async def scenario(bench: Bench) -> None:
        await furnish(bench, cards=1)
        bench.faulty.rate, bench.faulty.only = 1.0, lambda method, path: method == "POST" and "resourceclaims" in path
        bench.faulty._rng.choice = lambda kinds: "lose"  # type: ignore[method-assign]
        await asking(bench)
        await asyncio.sleep(0.01)
        await bench.delete("p")
        await asking(bench)
        await asyncio.sleep(0.3)
        bench.faulty.rate = 0.0
        await bench.eventually_bound("p", seconds=15)
        pod = await bench.api.get(PODS, "p", NS)
        mine = [c for c in await claims(bench) if c["metadata"]["ownerReferences"][0]["uid"] == pod["metadata"]["uid"]]
        assert len(mine) == 1

    play(scenario)


def spare(owner: Obj, name: str) -> Obj:
    reference = {"apiVersion": "v1", "kind": "Pod", "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"]}
    request = {"name": "container-0-request-0", "exactly": {"deviceClassName": "card"}}
    metadata = {
        "name": name,
        "annotations": {ANNOTATION: "true"},
        "ownerReferences": [{**reference, "controller": True}],
    }
    return {"metadata": metadata, "spec": {"devices": {"requests": [request]}}}


def test_surplus_own_claims_are_deleted_and_foreign_claims_kept() -> None:
    async def scenario(bench: Bench) -> None:
        await furnish(bench)
        ours = await asking(bench)
        await bench.eventually_bound("p", seconds=1)
        spec = {"schedulerName": "other", "containers": [container()]}
        foreign = await bench.create(PODS, {"metadata": {"name": "foreign"}, "spec": spec})
        for owner, name in ((ours, "a"), (ours, "b"), (foreign, "c"), (foreign, "d")):
            await bench.create(CLAIMS, spare(owner, name))
        held = await bench.api.get(CLAIMS, "b", NS)
        result = {"request": "container-0-request-0", "driver": DRIVER, "pool": "n1", "device": "gpu-1"}
        held["status"] = {"allocation": {"devices": {"results": [result]}}}
        held["metadata"]["finalizers"] = [FINALIZER]
        stored = await bench.api.update(CLAIMS, held)
        await bench.api.update_status(CLAIMS, {**stored, "status": held["status"]})
        await asyncio.sleep(31)
        names = sorted(c["metadata"]["name"] for c in await claims(bench))
        assert names[:2] == ["c", "d"]
        assert len(names) == 3

    play(scenario)


def test_half_bound_gang_is_completed_on_another_node() -> None:
    async def scenario(bench: Bench) -> None:
        await furnish(bench)
        await bench.gang("g", 2)
        Cut(bench, 2 * WRITES_OF_A_POD - 1)
        for name in ("a", "b"):
            await asking(bench, name, group="g")
        await asyncio.sleep(0.02)
        await bench.kill()
        bench.faulty.rate = 0.0
        [waiting] = [name for name in ("a", "b") if not await bench.node_of(name)]
        await bench.api.delete(NODES, "n1")
        await bench.api.delete(SLICES, "slice-n1")
        await bench.node("n2", gpus=2)
        await bench.start_scheduler()
        await bench.eventually_bound(waiting, seconds=15)
        assert await bench.node_of(waiting) == "n2"
        await asyncio.sleep(31)
        assert len(await claims(bench)) == 2

    play(scenario)


def test_group_condition_becomes_scheduled() -> None:
    async def scenario(bench: Bench) -> None:
        await furnish(bench, cards=4)
        await bench.gang("g", 2)
        for name in ("a", "b"):
            await asking(bench, name, cards=2, group="g")
        await bench.eventually_bound("a", "b", seconds=1)
        await in_order(bench, "a", "b", cards=2)
        await asyncio.sleep(0.1)
        assert (await bench.condition(GROUPS, "g", "PodGroupScheduled"))["status"] == "True"

    play(scenario)
