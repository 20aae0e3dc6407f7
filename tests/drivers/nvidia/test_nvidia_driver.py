"""The driver over its sockets: with the node's side of claims, and with the script that checks any driver."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
import pytest_asyncio
from dra_bench import CLAIMS, NODE, SLICES, Bench, bench, pod, result
from nvidia_bench import GROUP, VERSION, Written, machine, options, played

from haru.drivers.cdi.reader import CdiFiles
from haru.drivers.conformance import Conformance, DriverUnderTest
from haru.drivers.nvidia.nvml import Event, Readings
from haru.drivers.nvidia.process import serve
from haru.drivers.nvidia.simulated_nvml import SimulatedNvml
from haru.drivers.simulated.profiles import load_profile
from haru.drivers.simulated.slices import resource_slices
from haru.kube.meta import uid_of
from haru.node.dra import DriverFailed
from waiting import until

DRIVER = "gpu.nvidia.com"
MIG = "gpu-0-mig-3g40gb-9-4"


@pytest_asyncio.fixture
async def here() -> AsyncIterator[Bench]:
    async with bench() as made:
        yield made


class Running:
    """A driver that can be stopped and started again."""

    def __init__(self, here: Bench, nvml: SimulatedNvml, *gates: str, **more: Any) -> None:
        self.here, self.nvml, self.written = here, nvml, Written()
        files = here.root / "machine"
        host = machine(files) if not files.exists() else None
        self.options = options(here.root, *gates, host=host, command=self.written, **more)
        self.task: asyncio.Task[None] | None = None
        self.stopping = asyncio.Event()

    async def start(self) -> None:
        self.stopping.clear()
        work = serve(self.here.api, self.nvml, self.options, uid_of(self.here.node), self.stopping)
        self.task = asyncio.create_task(work)
        await until(self.is_published, "the slices")

    async def is_published(self) -> bool:
        assert self.task is not None
        if self.task.done():
            await self.task
        found = await self.here.slices()
        return bool(found) and len(found) == found[0]["spec"]["pool"]["resourceSliceCount"]

    async def stop(self) -> None:
        assert self.task is not None
        self.stopping.set()
        await asyncio.wait_for(self.task, 30)

    async def kill(self) -> None:
        assert self.task is not None
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


@asynccontextmanager
async def running(here: Bench, nvml: SimulatedNvml, *gates: str, **more: Any) -> AsyncIterator[Running]:
    driver = Running(here, nvml, *gates, **more)
    await driver.start()
    try:
        yield driver
    finally:
        await driver.kill()


async def test_partition_is_prepared_for_pod_and_destroyed_after_it(here: Bench) -> None:
    nvml, mine = played("dgx-h100-mig", 2), pod("p", "claim")
    (card, _) = nvml.cards()
    await here.claim("claim", result(MIG, driver=DRIVER), pods=[mine])
    async with running(here, nvml, "DynamicMIG"), here.running(DRIVER) as devices:
        prepared = await devices.prepare(mine)
        (made,) = nvml.instances(card.uuid)
        edits = CdiFiles([here.cdi]).resolve(prepared.devices["main"])
        assert [node.path for node in edits.device_nodes][1] == f"/dev/nvidia-caps/nvidia-cap{100 + 2 * made.id}"
        assert f"/usr/lib/x86_64-linux-gnu/libcuda.so.{VERSION}" in [mount.container_path for mount in edits.mounts]
        await devices.unprepare(mine["metadata"]["uid"])
        assert nvml.instances(card.uuid) == []


async def test_driver_publishes_slices_of_simulated_profile(here: Bench) -> None:
    async with running(here, played("dgx-h100-mig", 8), "DynamicMIG"):
        mine = sorted(await here.slices(), key=lambda obj: str(obj["metadata"]["name"]))
    profile = load_profile("dgx-h100-mig")
    simulated = resource_slices(profile, NODE, uid_of(here.node), {}, mine[0]["spec"]["pool"]["generation"])
    assert [obj["spec"] for obj in mine] == [obj["spec"] for obj in simulated]


async def test_failed_prepare_reports_reason(here: Bench) -> None:
    mine = pod("p", "claim")
    config = {
        "source": "FromClaim",
        "opaque": {"driver": DRIVER, "parameters": {"apiVersion": GROUP, "kind": "GpuConfig", "colour": "red"}},
    }
    await here.claim("claim", result("gpu-0", driver=DRIVER), pods=[mine], config=[config])
    other = pod("q", "t4")
    await here.claim("t4", result(MIG, driver=DRIVER), pods=[other])
    async with running(here, played("t4", 2), "DynamicMIG"), here.running(DRIVER) as devices:
        with pytest.raises(DriverFailed, match=r"opaque.parameters.colour: Invalid value: \"red\": unknown field"):
            await devices.prepare(mine)
        with pytest.raises(DriverFailed, match=r"Tesla T4 cannot be divided \(MIG\)"):
            await devices.prepare(other)


async def test_crash_between_gpu_and_compute_instance_is_recovered(here: Bench) -> None:
    nvml, mine = played("dgx-h100-mig", 1), pod("p", "claim")
    (card,) = nvml.cards()
    await here.claim("claim", result(MIG, driver=DRIVER), pods=[mine])

    def fails(uuid: str, instance: int) -> Any:
        raise RuntimeError("gone")

    async with running(here, nvml, "DynamicMIG") as driver, here.running(DRIVER) as devices:
        nvml.create_compute_instance = fails  # type: ignore[method-assign]
        with pytest.raises(DriverFailed, match="gone"):
            await devices.prepare(mine)
        before = devices.registry.find(DRIVER)
        await driver.kill()
        del nvml.create_compute_instance  # type: ignore[method-assign]
        assert [each.compute_instance for each in nvml.instances(card.uuid)] == [None]
        await driver.start()
        await until(lambda: devices.registry.find(DRIVER) not in (None, before), "the driver is back")
        await devices.prepare(mine)
        assert [each.compute_instance for each in nvml.instances(card.uuid)] == [0]
        await devices.unprepare(mine["metadata"]["uid"])
        assert nvml.instances(card.uuid) == []


async def test_xid_event_gives_taint_and_unhealthy_device(here: Bench) -> None:
    nvml, mine = played("dgx-h100", 2), pod("p", "claim")
    (card, _) = nvml.cards()
    await here.claim("claim", result("gpu-0", driver=DRIVER), pods=[mine])
    async with running(here, nvml, "NVMLDeviceHealthCheck"), here.running(DRIVER) as devices:
        await devices.prepare(mine)
        await until(lambda: nvml._watched == {each.uuid for each in nvml.cards()}, "the cards are watched")
        nvml.happen(Event(card.uuid, 79))

        async def taints() -> list[Any]:
            return [d.get("taints", []) for obj in await here.slices() for d in obj["spec"]["devices"]]

        async def is_tainted() -> bool:
            (first, second) = await taints()
            told = [(each["key"], each["value"], each["effect"]) for each in first]
            return told == [("gpu.nvidia.com/xid", "79", "NoSchedule")] and second == []

        await until(is_tainted, "the taint")
        nvml.lose(nvml.cards()[1].uuid)

        async def is_lost() -> bool:
            return [[each["key"].rpartition("/")[2] for each in some] for some in await taints()] == [
                ["xid"],
                ["gpu-lost"],
            ]

        await until(is_lost, "the card is lost")


async def test_utilization_is_written_to_claim_status(here: Bench) -> None:
    nvml, mine = played("dgx-h100", 2), pod("p", "claim")
    (card, _) = nvml.cards()
    nvml.set_readings(card.uuid, Readings(73))
    claim = await here.claim("claim", result("gpu-0", driver=DRIVER), pods=[mine])
    # What somebody else noted stays.
    claim["status"]["devices"] = [{"driver": DRIVER, "pool": NODE, "device": "gpu-0", "data": {"rack": 7}}]
    await here.api.update_status(CLAIMS, claim)

    async def said() -> Any:
        status = (await here.api.get(CLAIMS, "claim", "default"))["status"]
        return [each["data"] for each in status.get("devices") or () if each["driver"] == DRIVER]

    async with running(here, nvml, usage_seconds=0.05), here.running(DRIVER) as devices:
        await devices.prepare(mine)

        async def is_busy() -> bool:
            return bool(await said() == [{"rack": 7, "haru.dev/utilization-percent": 73}])

        await until(is_busy, "73 %")
        nvml.set_readings(card.uuid, Readings(0))

        async def is_idle() -> bool:
            return bool(await said() == [{"rack": 7, "haru.dev/utilization-percent": 0}])

        await until(is_idle, "idle")


@pytest.mark.parametrize(("profile", "gates"), [("dgx-h100-mig", ["DynamicMIG"]), ("t4", [])])
async def test_driver_passes_conformance_script(here: Bench, profile: str, gates: list[str]) -> None:
    nvml = played(profile, 2)
    async with running(here, nvml, *gates, "NVMLDeviceHealthCheck") as driver:

        async def restart() -> None:
            await driver.kill()
            await driver.start()

        subject = DriverUnderTest(DRIVER, NODE, here.kubelet, [here.cdi], restart=restart)
        found = await Conformance(here.api, subject).run()
        assert {one.name: one.message for one in found if one.verdict != "passed"} == {}
        assert len(found) == 10
    assert [nvml.instances(card.uuid) for card in nvml.cards()] == [[], []]


async def test_driver_with_partitions_only_passes_conformance_script(here: Bench) -> None:
    """The script takes the first free device: with the whole card held, that is a partition."""
    nvml = played("dgx-a100-40gb-mig-balanced", 1)
    async with running(here, nvml, "DynamicMIG") as driver:

        async def restart() -> None:
            await driver.kill()
            await driver.start()

        subject = DriverUnderTest(DRIVER, NODE, here.kubelet, [here.cdi], restart=restart)
        found = await Conformance(here.api, subject).run()
        assert {one.name: one.message for one in found if one.verdict != "passed"} == {}
        (pool,) = [obj["spec"] for obj in await here.slices() if obj["spec"].get("devices")]
        assert pool["devices"][0]["attributes"]["type"] == {"string": "mig"}
    assert nvml.instances(nvml.cards()[0].uuid) == []


async def test_stopped_driver_deletes_its_slices_unless_kept(here: Bench) -> None:
    driver = Running(here, played("t4", 1))
    driver.options = replace(driver.options, keep_slices=True)
    await driver.start()
    await driver.stop()
    assert len((await here.api.list(SLICES))["items"]) == 1
    driver.options = replace(driver.options, keep_slices=False)
    await driver.start()
    await driver.stop()
    assert (await here.api.list(SLICES))["items"] == []
