import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
from in_memory_client import InMemoryClient, named

import virtual_time
from haru.drivers.simulated.driver import CLASSES, NODES, SLICES, SimulatedDriver
from haru.drivers.simulated.objects import FLEET_LABEL, PROFILE_LABEL
from haru.drivers.simulated.profiles import load_profile
from haru.drivers.simulated.slices import resource_slices
from haru.drivers.simulated.taints import TAINTS_ANNOTATION
from haru.drivers.slice_publishing import plan
from haru.kube.errors import StatusError

Obj = dict[str, Any]


class Recorder:
    def __init__(self) -> None:
        self.messages: list[str] = []

    def event(self, obj: Obj, type: str, reason: str, message: str, action: str = "", related: Any = None) -> None:
        self.messages.append(f"{reason} {message}")


@contextlib.asynccontextmanager
async def driver(
    client: InMemoryClient, nodes: str, recorder: Recorder | None = None, *, is_alone: bool = False
) -> AsyncIterator[SimulatedDriver]:
    running = SimulatedDriver(
        client,  # type: ignore[arg-type]
        named(nodes) if nodes else (),
        recorder=recorder or Recorder(),  # type: ignore[arg-type]
        resync_seconds=0.1,
        is_alone=is_alone,
    )
    task = asyncio.create_task(running.run())
    try:
        yield running
        if task.done():
            task.result()
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def slices(client: InMemoryClient) -> list[Obj]:
    return [obj for (plural, _, _), obj in client.objects.items() if plural == "resourceslices"]


def generations(client: InMemoryClient) -> set[int]:
    return {obj["spec"]["pool"]["generation"] for obj in slices(client)}


def tainted(client: InMemoryClient) -> dict[str, list[str]]:
    return {
        device["name"]: [taint["key"] for taint in device["taints"]]
        for obj in slices(client)
        for device in obj["spec"].get("devices", ())
        if device.get("taints")
    }


async def node(client: InMemoryClient, name: str, taints: str = "") -> Obj:
    annotations = {TAINTS_ANNOTATION: taints} if taints else {}
    labels = {PROFILE_LABEL: name.rpartition("-")[0]}
    return await client.create(NODES, {"metadata": {"name": name, "annotations": annotations, "labels": labels}})


async def annotate(client: InMemoryClient, name: str, taints: str | None) -> None:
    await client.patch(NODES, name, {"metadata": {"annotations": {TAINTS_ANNOTATION: taints}}})


async def test_devices_are_published_once_node_exists() -> None:
    client = InMemoryClient()
    async with driver(client, "dgx-h100-mig:1,cpu:1"):
        assert slices(client) == []
        stored = await node(client, "dgx-h100-mig-0")
        await client.until(lambda: len(slices(client)) == 9)
    assert generations(client) == {1}
    assert {obj["metadata"]["ownerReferences"][0]["uid"] for obj in slices(client)} == {stored["metadata"]["uid"]}


async def test_node_of_a_named_fleet_is_left_to_its_own_driver() -> None:
    client = InMemoryClient()
    labels = {PROFILE_LABEL: "dgx-h100", FLEET_LABEL: "lab"}
    await client.create(NODES, {"metadata": {"name": "lab-0", "labels": labels}})
    await node(client, "dgx-h100-0")
    async with driver(client, "dgx-h100:1"):
        await client.until(lambda: slices(client))
    assert {obj["spec"]["nodeName"] for obj in slices(client)} == {"dgx-h100-0"}


def test_device_classes_are_left_to_drivers_of_real_nodes() -> None:
    client = InMemoryClient()

    async def work() -> None:
        await client.create(NODES, {"metadata": {"name": "real-0"}})
        async with driver(client, "cpu:1"):
            await asyncio.sleep(3600)
            assert not [key for key in client.objects if key[0] == "deviceclasses"]
            await node(client, "dgx-h100-0")
            await client.until(lambda: ("deviceclasses", "", "gpu.nvidia.com") in client.objects)

    virtual_time.run(work())


@pytest.mark.parametrize(
    ("problem", "made"), [(ConnectionError("not yet"), True), (StatusError(403, "Forbidden", "not allowed"), False)]
)
def test_driver_is_ready_once_its_device_classes_are_there_or_left_to_others(problem: Exception, made: bool) -> None:
    async def work() -> None:
        client = InMemoryClient()
        client.fail("create", "deviceclasses", problem)
        await node(client, "dgx-h100-0")
        async with driver(client, "dgx-h100:1") as running:
            await running.ready.wait()
            assert slices(client)
            assert (("deviceclasses", "", "tpu.google.com") in client.objects) == made
            await client.until(lambda: ("deviceclasses", "", "tpu.google.com") in client.objects)

    virtual_time.run(work())


async def test_driver_that_is_alone_installs_the_device_classes_before_any_node_has_devices() -> None:
    client = InMemoryClient()
    async with driver(client, "", is_alone=True) as running:
        await running.ready.wait()
        made = [obj for (plural, _, _), obj in client.objects.items() if plural == "deviceclasses"]
    assert "tpu.google.com" in {one["metadata"]["name"] for one in made}
    assert running.class_revision == max(int(one["metadata"]["resourceVersion"]) for one in made)


async def test_existing_device_classes_are_kept() -> None:
    client = InMemoryClient()
    mine = await client.create(CLASSES, {"metadata": {"name": "mig.nvidia.com"}, "spec": {}})
    client.fail("create", "deviceclasses", ConnectionError("not yet"))
    await node(client, "dgx-h100-0")
    async with driver(client, "dgx-h100:1"):
        await client.until(lambda: ("deviceclasses", "", "tpu.google.com") in client.objects)
    assert client.objects["deviceclasses", "", "mig.nvidia.com"] == mine


def test_restart_writes_no_slices() -> None:
    client = InMemoryClient()

    async def work() -> None:
        await node(client, "a30-mig-0", "gpu-1=k:NoSchedule")
        async with driver(client, "a30-mig:1"):
            await client.until(lambda: len(slices(client)) == 5)
        before = [w for w in client.writes if w[1] == "resourceslices"]
        async with driver(client, "a30-mig:1"):
            await asyncio.sleep(3600)
        assert [w for w in client.writes if w[1] == "resourceslices"] == before

    virtual_time.run(work())


async def test_device_taints_follow_annotation() -> None:
    client, recorder = InMemoryClient(), Recorder()
    await node(client, "dgx-h100-0")
    async with driver(client, "dgx-h100:1", recorder):
        await client.until(lambda: slices(client))
        await annotate(client, "dgx-h100-0", "gpu-3=maintenance=true:NoSchedule,gpu-5=key:NoExecute")
        await client.until(lambda: tainted(client) == {"gpu-3": ["maintenance"], "gpu-5": ["key"]})
        assert generations(client) == {1}
        await annotate(client, "dgx-h100-0", "gpu-3=maintenance=true:Sometimes")
        await client.until(lambda: recorder.messages)
        assert recorder.messages[0].startswith(
            f'InvalidDeviceTaints annotation {TAINTS_ANNOTATION}: "gpu-3=maintenance=true:Sometimes": the effect'
        )
        assert tainted(client) == {"gpu-3": ["maintenance"], "gpu-5": ["key"]}
        await annotate(client, "dgx-h100-0", None)
        await client.until(lambda: tainted(client) == {})


async def test_published_taints_survive_restart_with_invalid_annotation() -> None:
    client, recorder = InMemoryClient(), Recorder()
    await node(client, "a30-mig-0", "gpu-1=k:NoSchedule")
    async with driver(client, "a30-mig:1"):
        await client.until(lambda: len(tainted(client)) == 14)
    await annotate(client, "a30-mig-0", "nonsense")
    async with driver(client, "a30-mig:1", recorder):
        await client.until(lambda: recorder.messages)
        await asyncio.sleep(0.05)
    assert len(tainted(client)) == 14 and "stay in force" in recorder.messages[0]


async def test_foreign_changes_to_slices_are_reverted() -> None:
    client = InMemoryClient()
    await node(client, "a30-mig-0")
    async with driver(client, "a30-mig:1"):
        await client.until(lambda: len(slices(client)) == 5)
        await client.delete(SLICES, "a30-mig-0-gpu.nvidia.com-gpu-2")
        await client.until(lambda: len(slices(client)) == 5)
        await client.until(lambda: generations(client) == {2})
        foreign = {"driver": "gpu.nvidia.com", "nodeName": "a30-mig-0", "pool": {"name": "a30-mig-0", "generation": 9}}
        await client.create(SLICES, {"metadata": {"name": "foreign"}, "spec": foreign})
        await client.update(SLICES, await client.get(SLICES, "foreign"))
        await client.until(lambda: len(slices(client)) == 5 and generations(client) == {10})


async def test_failed_slice_writes_are_retried() -> None:
    client = InMemoryClient()
    await node(client, "t4-0")
    client.fail("create", "resourceslices", ConnectionError("gone"))
    async with driver(client, "t4:1"):
        await client.until(lambda: slices(client))


def build(profile: str, taints: dict[str, list[Obj]] | None = None) -> Any:
    return lambda generation: resource_slices(load_profile(profile), "n", "u", taints or {}, generation)


def as_stored(desired: list[Obj]) -> list[Obj]:
    return [{**obj, "metadata": {**obj["metadata"], "resourceVersion": str(i)}} for i, obj in enumerate(desired)]


TAINT = {"key": "k", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("before", "after", "counts", "generation"),
    [
        ([], build("a30-mig"), (5, 0, 0), 1),
        (build("a30-mig")(4), build("a30-mig"), (0, 0, 0), None),
        (build("a30-mig")(4), build("a30-mig", {"gpu-1": [TAINT]}), (0, 1, 0), 4),
        (build("a30-mig")(4), build("a30-mig", {"gpu-1": [TAINT], "gpu-2": [TAINT]}), (0, 5, 0), 5),
        (build("a30-mig")(4), build("a30"), (1, 0, 5), 5),
        (build("a30-mig")(4)[:3], build("a30-mig"), (2, 3, 0), 5),
    ],
)
def test_publication_plan_has_expected_creates_updates_and_deletes(
    before: list[Obj], after: Any, counts: tuple[int, int, int], generation: int | None
) -> None:
    publication = plan(as_stored(before), after)
    assert (len(publication.create), len(publication.update), len(publication.delete)) == counts
    written = [*publication.create, *publication.update]
    assert {obj["spec"]["pool"]["generation"] for obj in written} == ({generation} if generation else set())
    assert all("resourceVersion" in obj["metadata"] for obj in publication.update)


def test_time_added_of_taints_is_kept_and_not_a_difference() -> None:
    taints = {"gpu-1": [TAINT]}
    stored = as_stored(build("a30", taints)(1))
    for device in stored[0]["spec"]["devices"]:
        for taint in device.get("taints", ()):
            taint["timeAdded"] = "2026-01-01T00:00:00Z"
    assert not plan(stored, build("a30", {"gpu-1": [dict(TAINT, effect="NoSchedule")]}))
    more = {"gpu-1": [{"key": "k", "effect": "NoSchedule"}], "gpu-2": [{"key": "k", "effect": "NoSchedule"}]}
    [update] = plan(stored, build("a30", more)).update
    times = {d["name"]: t.get("timeAdded") for d in update["spec"]["devices"] for t in d.get("taints", ())}
    assert times == {"gpu-1": "2026-01-01T00:00:00Z", "gpu-2": None}
