"""Claims of pods on a node: real drivers of the library behind real sockets, the kubelet's side of them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, cast

import pytest
import pytest_asyncio
from dra_bench import CLAIMS, DRIVER, NODE, SLICES, Bench, bench, device, pod, result

import virtual_time
from haru.client.api import ApiClient
from haru.drivers.cdi.reader import CdiFiles
from haru.drivers.checkpoint import CheckpointError
from haru.drivers.library import (
    ClaimToPrepare,
    DeviceError,
    Edits,
    Entry,
    Health,
    Mount,
    Pool,
    ReadyDevice,
)
from haru.drivers.protocol import V1BETA1
from haru.node.dra import ClaimRefused, DriverFailed, DriverMissing
from haru.node.dra.slices import SliceCleaner
from waiting import until


class Cards:
    """A driver whose devices are environment variables; it counts what it is asked."""

    def __init__(self) -> None:
        self.prepared: list[str] = []
        self.unprepared: list[str] = []
        self.broken: set[str] = set()
        self.stuck = False

    async def prepare(self, claim: ClaimToPrepare) -> Sequence[ReadyDevice]:
        self.prepared.append(claim.name)
        for one in claim.devices:
            if one.device in self.broken:
                raise DeviceError(one.device, "fell off the bus")
        made = []
        for one in claim.devices:
            edits = Edits(
                (f"CARD_{one.device[-1]}={one.pool}/{one.device}",), (Mount("/etc/hosts", f"/x/{one.device}"),)
            )
            made.append(ReadyDevice(one, edits, attributes={"model": {"string": "X"}}))
        return made

    async def unprepare(self, claim: Entry) -> None:
        self.unprepared.append(claim.name)
        if self.stuck:
            raise DeviceError("gpu-0", "is still busy")


@pytest_asyncio.fixture
async def here() -> AsyncIterator[Bench]:
    async with bench() as made:
        yield made


async def test_claim_is_prepared_used_and_unprepared(here: Bench) -> None:
    cards, mine = Cards(), pod("p", "claim")
    claim = await here.claim("claim", result("gpu-0"), result("gpu-1", "other"), pods=[mine])
    async with here.driver(cards), here.running(DRIVER) as devices:
        prepared = await devices.prepare(mine)
        uid = claim["metadata"]["uid"]
        assert prepared.devices == {"main": (f"{DRIVER}/claim={uid}-gpu-0", f"{DRIVER}/claim={uid}-gpu-1")}
        edits = CdiFiles([here.cdi]).resolve(prepared.devices["main"])
        assert edits.env == (f"CARD_0={NODE}/gpu-0", f"CARD_1={NODE}/gpu-1")
        assert await devices.prepare(mine) == prepared
        assert cards.prepared == ["claim"]
        await devices.unprepare(mine["metadata"]["uid"])
        assert cards.unprepared == ["claim"]
        assert not list(here.cdi.glob("*.json"))
        assert devices.manager.claims() == []
        await devices.unprepare(mine["metadata"]["uid"])
        assert cards.unprepared == ["claim"]


async def test_container_gets_devices_of_its_named_request(here: Bench) -> None:
    mine = pod("p", "claim", request="second")
    await here.claim("claim", result("gpu-0", "first"), result("gpu-1", "second/small"), pods=[mine])
    async with here.driver(Cards()), here.running(DRIVER) as devices:
        prepared = await devices.prepare(mine)
        assert CdiFiles([here.cdi]).resolve(prepared.devices["main"]).env == (f"CARD_1={NODE}/gpu-1",)


async def test_shared_claim_is_prepared_once_and_unprepared_with_last_pod(here: Bench) -> None:
    cards, first, second = Cards(), pod("a", "claim"), pod("b", "claim")
    await here.claim("claim", result("gpu-0"), pods=[first, second])
    async with here.driver(cards), here.running(DRIVER) as devices:
        one, other = await asyncio.gather(devices.prepare(first), devices.prepare(second))
        assert one.devices == other.devices
        assert cards.prepared == ["claim"]
        await devices.unprepare(first["metadata"]["uid"])
        assert cards.unprepared == []
        await devices.unprepare(second["metadata"]["uid"])
        assert cards.unprepared == ["claim"]


@pytest.mark.parametrize("why", ["missing", "not reserved", "not allocated", "another node", "no driver", "no entry"])
async def test_claim_not_usable_by_pod_is_refused_before_driver_call(here: Bench, why: str) -> None:
    cards, mine, other = Cards(), pod("p", "claim"), pod("other", "claim")
    error: type[Exception] = ClaimRefused
    if why == "not reserved":
        await here.claim("claim", result("gpu-0"), pods=[other])
    elif why == "not allocated":
        await here.unallocated("claim")
    elif why == "another node":
        made = await here.unallocated("claim")
        await here.allocate(made, result("gpu-0"), pods=[mine], node="node-b")
    elif why == "no driver":
        error = DriverMissing
        await here.claim("claim", result("gpu-0", driver="else.example.com"), pods=[mine])
    elif why == "no entry":
        mine["spec"]["resourceClaims"] = [{"name": "c0", "resourceClaimTemplateName": "t"}]
    async with here.driver(cards), here.running(DRIVER) as devices:
        with pytest.raises(error) as told:
            await devices.prepare(mine)
        assert cards.prepared == []
        assert devices.manager.claims() == []
    expected = {
        "missing": "not found",
        "not reserved": "is not allowed to use ResourceClaim claim (",
        "not allocated": "is not allowed to use ResourceClaim",
        "another node": "is allocated on other nodes than node-a",
        "no driver": "DRA driver else.example.com is not registered",
        "no entry": "not created yet",
    }
    assert expected[why] in str(told.value)


async def test_driver_error_is_reported_and_retried(here: Bench) -> None:
    cards, mine = Cards(), pod("p", "claim")
    cards.broken.add("gpu-0")
    await here.claim("claim", result("gpu-0"), pods=[mine])
    async with here.driver(cards), here.running(DRIVER) as devices:
        with pytest.raises(DriverFailed, match="failed for ResourceClaim claim: device gpu-0: fell off the bus"):
            await devices.prepare(mine)
        cards.broken.clear()
        assert (await devices.prepare(mine)).devices["main"]
        cards.stuck = True
        with pytest.raises(DriverFailed, match="is still busy"):
            await devices.unprepare(mine["metadata"]["uid"])
        assert len(devices.manager.claims()) == 1
        cards.stuck = False
        await devices.manager.reconcile(())
        assert devices.manager.claims() == []


async def test_recreated_claim_waits_until_old_one_is_unprepared(here: Bench) -> None:
    cards, first, second = Cards(), pod("a", "claim"), pod("b", "claim")
    await here.claim("claim", result("gpu-0"), pods=[first])
    async with here.driver(cards), here.running(DRIVER) as devices:
        await devices.prepare(first)
        await here.reserve("claim")
        await here.api.delete(CLAIMS, "claim", "default")
        await here.claim("claim", result("gpu-0"), pods=[second])
        with pytest.raises(ClaimRefused, match="and different UID"):
            await devices.prepare(second)
        await devices.unprepare(first["metadata"]["uid"])
        await devices.prepare(second)
        assert cards.prepared == ["claim", "claim"]


async def test_restarted_node_knows_prepared_claims(here: Bench) -> None:
    cards, mine = Cards(), pod("p", "claim")
    await here.claim("claim", result("gpu-0"), pods=[mine])
    async with here.driver(cards):
        async with here.running(DRIVER) as devices:
            before = await devices.prepare(mine)
        async with here.running(DRIVER) as devices:
            (info,) = devices.manager.claims()
            assert info.pods == {mine["metadata"]["uid"]}
            assert await devices.prepare(mine) == before
            await devices.unprepare(mine["metadata"]["uid"])
    assert (cards.prepared, cards.unprepared) == (["claim"], ["claim"])


async def test_damaged_checkpoint_is_refused(here: Bench) -> None:
    mine = pod("p", "claim")
    await here.claim("claim", result("gpu-0"), pods=[mine])
    async with here.driver(Cards()), here.running(DRIVER) as devices:
        await devices.prepare(mine)
    path = here.kubelet / "dra_manager_state"
    text = path.read_text()
    path.write_text(text.replace(mine["metadata"]["uid"], "somebody-else"))
    with pytest.raises(CheckpointError, match="checksum does not fit"):
        here.devices().load()
    path.write_text(text[:-20])
    with pytest.raises(CheckpointError, match="dra_manager_state"):
        here.devices().load()
    path.write_text(text)
    here.devices().load()


async def test_v1beta1_driver_and_two_driver_instances_work(here: Bench) -> None:
    old, new, mine = Cards(), Cards(), pod("p", "claim")
    await here.claim("claim", result("gpu-0"), pods=[mine])
    async with here.running() as devices:
        async with here.driver(old, versions=(V1BETA1,), instance="1"):
            await until(lambda: devices.registry.find(DRIVER), "the first instance")
            assert devices.registry.get(DRIVER).version == V1BETA1
            async with here.driver(new, instance="2"):
                await until(lambda: devices.registry.get(DRIVER).version != V1BETA1, "the second instance")
                await devices.prepare(mine)
                assert (old.prepared, new.prepared) == ([], ["claim"])
            await until(lambda: devices.registry.get(DRIVER).version == V1BETA1, "the first one again")
            await devices.unprepare(mine["metadata"]["uid"])
        await until(lambda: not devices.registry.drivers(), "nobody is left")


async def test_slices_of_unregistered_driver_are_deleted(here: Bench) -> None:
    foreign = {
        "metadata": {"name": "foreign"},
        "spec": {
            "driver": DRIVER,
            "nodeName": "node-b",
            "pool": {"name": "node-b", "generation": 1, "resourceSliceCount": 1},
        },
    }
    await here.api.create(SLICES, foreign)
    leftover = {**foreign, "metadata": {"name": "leftover"}}
    leftover["spec"] = {**foreign["spec"], "driver": "gone.example.com", "nodeName": NODE}
    await here.api.create(SLICES, leftover)

    async def names() -> list[str]:
        return sorted(one["metadata"]["name"] for one in await here.slices())

    async def left(expected: list[str]) -> bool:
        return await names() == expected

    mine = f"{NODE}-{DRIVER}-0"
    async with here.running(grace_seconds=0.5) as devices:
        async with here.driver(Cards()):
            await until(lambda: left(["foreign", mine]), "the leftover goes, what is served stays")
            # A driver that never registered is nobody's to clean up after.
            await until(lambda: DRIVER in devices.registry.drivers(), "the driver is registered")
        await until(lambda: left(["foreign"]), "the driver's own go with it")


def test_slices_of_driver_that_starts_again_stay() -> None:
    """Also when it is away at the moment at which those of absent drivers go, 30 s after the start of the node."""

    class Slices:
        def __init__(self) -> None:
            self.stored = {driver: {"metadata": {"name": driver, "uid": driver}, "spec": {"driver": driver}}
                           for driver in ("gone", "restarts")}  # fmt: skip

        async def list(self, *_: object, **__: object) -> dict[str, object]:
            return {"items": list(self.stored.values())}

        async def delete(self, _: object, name: str, **__: object) -> None:
            del self.stored[name]

    async def work() -> None:
        connected, slices = {"restarts"}, Slices()
        cleaner = SliceCleaner(cast(ApiClient, slices), NODE, lambda: connected, 30.0)
        running = asyncio.create_task(cleaner.run())
        await asyncio.sleep(29)
        connected.clear()
        cleaner.changed("restarts")
        await asyncio.sleep(2)
        assert list(slices.stored) == ["restarts"]
        await asyncio.sleep(29)
        assert not slices.stored
        running.cancel()

    virtual_time.run(work())


async def test_device_health_reaches_pod_status_and_slice_taints(here: Bench) -> None:
    mine = pod("p", "claim")
    await here.claim("claim", result("gpu-0"), pods=[mine])
    here.pods.append(mine)
    async with here.running() as devices, here.driver(Cards()) as server:
        await until(lambda: devices.registry.find(DRIVER), "the driver")
        prepared = await devices.prepare(mine)

        def told() -> list[dict[str, str]]:
            return devices.status(mine)["main"][0]["resources"]

        await until(lambda: told()[0]["health"] == "Healthy", "the first report")
        while not devices.health.pods.empty():
            devices.health.pods.get_nowait()
        taint = {"key": "cards.example.com/hot", "effect": "NoSchedule"}
        await server.set_health({(NODE, "gpu-0"): Health("Unhealthy", "too hot", taints=(taint,))})
        async with asyncio.timeout(30):
            assert await devices.pod_to_update() == mine["metadata"]["uid"]
        assert devices.status(mine) == {
            "main": [
                {
                    "name": "claim:c0",
                    "resources": [
                        {"resourceID": prepared.devices["main"][0], "health": "Unhealthy", "message": "too hot"}
                    ],
                }
            ]
        }
        await server.wait_published()
        (found,) = await here.slices()
        assert found["spec"]["devices"][0]["taints"][0]["key"] == taint["key"]
        assert "taints" not in found["spec"]["devices"][1]
        assert found["spec"]["pool"]["generation"] == 1
        await server.__aexit__(None, None, None)
        await until(lambda: told()[0]["health"] == "Unknown", "a driver that is gone says nothing")


async def test_device_metadata_files_are_mounted_in_container(here: Bench) -> None:
    mine = pod("p", "direct", "made")
    await here.claim("direct", result("gpu-0", "gpu/small"), pods=[mine])
    annotation = {"resource.kubernetes.io/pod-claim-name": "train"}
    await here.claim("made", result("gpu-1"), pods=[mine], annotations=annotation)
    options = {"metadata_versions": ("v1alpha1", "v9")}
    async with here.driver(Cards(), **options) as server, here.running(DRIVER) as devices:
        prepared = await devices.prepare(mine)
        mounts = CdiFiles([here.cdi]).resolve(prepared.devices["main"]).mounts
        inside = {m.container_path: Path(m.host_path) for m in mounts if m.container_path.startswith("/var/run")}
        base = "/var/run/kubernetes.io/dra-device-attributes"
        direct = inside[f"{base}/resourceclaims/direct/gpu/{DRIVER}-metadata.json"]
        made = inside[f"{base}/resourceclaimtemplates/train/gpu/{DRIVER}-metadata.json"]
        content = json.loads(direct.read_text())
        assert (content["kind"], content["apiVersion"]) == ("DeviceMetadata", "metadata.resource.k8s.io/v1alpha1")
        assert content["metadata"]["generation"] == 1
        device_told = {"driver": DRIVER, "pool": NODE, "name": "gpu-0", "attributes": {"model": {"string": "X"}}}
        assert content["requests"] == [{"name": "gpu/small", "devices": [device_told]}]
        assert json.loads(made.read_text())["podClaimName"] == "train"
        assert server.preparer.metadata is not None
        server.preparer.metadata.update("default", "made", "gpu", "gpu-1", {"interfaceName": "eth1"})
        updated = json.loads(made.read_text())
        assert updated["metadata"]["generation"] == 2
        assert updated["requests"][0]["devices"][0]["networkData"] == {"interfaceName": "eth1"}
        with pytest.raises(ValueError, match="request none"):
            server.preparer.metadata.update("default", "made", "none", "gpu-1", {})
        await devices.unprepare(mine["metadata"]["uid"])
        assert not direct.parent.parent.exists()
        assert not list(here.cdi.iterdir())


def version_of(obj: dict[str, Any]) -> str:
    return str(obj["metadata"]["resourceVersion"])


async def test_only_changed_slices_are_written_and_larger_change_raises_generation(here: Bench) -> None:
    names = [f"gpu-{n}" for n in range(130)]
    async with here.driver(Cards(), names) as server:
        first = {s["metadata"]["name"]: s for s in await here.slices()}
        assert [len(s["spec"]["devices"]) for s in first.values()] == [64, 64, 2]
        changed = [device(name, model="X") for name in names[:-1]] + [device(names[-1], model="Y")]
        await server.declare({NODE: Pool.of(changed)})
        await server.wait_published()
        second = {s["metadata"]["name"]: s for s in await here.slices()}
        versions = [
            first[n]["metadata"]["resourceVersion"] == s["metadata"]["resourceVersion"] for n, s in second.items()
        ]
        assert sorted(versions) == [False, True, True]
        assert {s["spec"]["pool"]["generation"] for s in second.values()} == {1}
        await server.declare({NODE: Pool.of([device(name, model="Z") for name in names[:70]])})
        await server.wait_published()
        third = await here.slices()
        assert [len(s["spec"]["devices"]) for s in third] == [64, 6]
        assert {s["spec"]["pool"]["generation"] for s in third} == {2}
        await server.withdraw()
        assert await here.slices() == []


async def test_deleted_slice_is_published_again(here: Bench) -> None:
    async with here.driver(Cards(), foreign_seconds=0.1):
        (found,) = await here.slices()
        await here.api.delete(SLICES, found["metadata"]["name"])
        assert await until(here.slices, "the slice is back")
