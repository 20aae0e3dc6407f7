"""What a kubelet relies on, tried on a driver that shares nothing with Haru's, on good days and with faults."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import pytest_asyncio
from dra_bench import NODE, Bench, bench, pod, result
from minimal_driver import MinimalDriver

from haru.drivers.conformance import Conformance, DriverUnderTest
from haru.node.dra import DriverFailed
from waiting import until

NAME = "minimal.example.com"


@pytest_asyncio.fixture
async def here() -> AsyncIterator[Bench]:
    async with bench() as made:
        yield made


@asynccontextmanager
async def minimal(here: Bench, *faults: str) -> AsyncIterator[MinimalDriver]:
    driver = MinimalDriver(NAME, NODE, here.api, here.kubelet, *faults)
    await driver.start()
    await driver.publish(["d0", "d1"])
    try:
        yield driver
    finally:
        await driver.stop()


async def checked(here: Bench, driver: MinimalDriver, seconds: float = 60.0) -> dict[str, tuple[str, str]]:
    async def restart() -> None:
        await driver.stop()
        await driver.start()

    subject = DriverUnderTest(NAME, NODE, here.kubelet, [here.cdi], restart=restart, seconds=seconds)
    return {r.name: (r.verdict, r.message) for r in await Conformance(here.api, subject).run()}


async def test_correct_driver_passes_conformance_checks(here: Bench) -> None:
    async with minimal(here) as driver:
        found = await checked(here, driver)
        assert {name: verdict for name, (verdict, _) in found.items() if verdict != "passed"} == {
            "health": "not applicable"
        }, found
        assert driver.claims() == []


async def test_claim_of_a_shared_device_says_what_it_consumes(here: Bench) -> None:
    driver = MinimalDriver(NAME, NODE, here.api, here.kubelet)
    await driver.start()
    await driver.publish(["d0"], allowMultipleAllocations=True, capacity={"memory": {"value": "40Gi"}})
    try:
        found = await checked(here, driver)
    finally:
        await driver.stop()
    assert found["prepare"] == ("passed", "")
    assert driver.consumed[0] == {"memory": "40Gi"}


async def test_driver_failing_whole_call_for_wrong_claim_passes(here: Bench) -> None:
    """So does upstream's kubeletplugin helper, which NVIDIA's driver is built on."""
    async with minimal(here, "whole") as driver:
        found = await checked(here, driver)
        assert found["wrong claims"] == ("passed", "")
        assert driver.claims() == []


@pytest.mark.parametrize(
    ("fault", "check", "told"),
    [
        ("type", "registration", 'type: "CSIPlugin"'),
        ("version", "registration", "v9.DRAPlugin"),
        ("forgetful", "prepare", "the answer is about"),
        ("abort", "prepare", "INTERNAL: it has burnt"),
        ("restless", "prepare twice", "the second answer is another one"),
        ("credulous", "wrong claims", "whose UID is another one's is prepared"),
        ("strict", "unprepare", "never heard of it"),
        ("health", "health", "the report lacks node-a/d0"),
    ],
)
async def test_faulty_driver_fails_the_matching_conformance_check(
    here: Bench, fault: str, check: str, told: str
) -> None:
    async with minimal(here, fault) as driver:
        found = await checked(here, driver)
    assert found[check][0] == "failed", found
    assert told in found[check][1]


async def test_node_agent_works_with_driver_not_built_on_our_library(here: Bench) -> None:
    mine = pod("p", "claim")
    await here.claim("claim", result("d0", driver=NAME), pods=[mine])
    async with minimal(here) as driver, here.running(NAME) as devices:
        assert driver.told == b"\x08\x01"
        assert (await devices.prepare(mine)).devices == {"main": ()}
        assert len(driver.claims()) == 1
        (info,) = devices.manager.claims()
        assert [one.device for one in info.drivers[NAME]] == ["d0"]
        before = devices.registry.find(NAME)
        await driver.stop()
        await driver.start()
        await until(lambda: devices.registry.find(NAME) not in (None, before), "the driver is back")
        await devices.unprepare(mine["metadata"]["uid"])
        assert driver.claims() == []


@pytest.mark.parametrize(
    ("fault", "told"), [("forgetful", "does not mention it"), ("abort", "code = Internal desc = it has burnt")]
)
async def test_node_agent_reports_fault_of_driver(here: Bench, fault: str, told: str) -> None:
    mine = pod("p", "claim")
    await here.claim("claim", result("d0", driver=NAME), pods=[mine])
    async with minimal(here, fault), here.running(NAME) as devices:
        with pytest.raises(DriverFailed, match=told):
            await devices.prepare(mine)


@pytest.mark.parametrize(("fault", "told"), [("type", b"only DRAPlugin"), ("version", b"name v1.DRAPlugin")])
async def test_refused_plugin_registration_returns_reason(here: Bench, fault: str, told: bytes) -> None:
    async with minimal(here, fault) as driver, here.running() as devices:
        await until(lambda: told in getattr(driver, "told", b""), "the refusal")
        assert devices.registry.drivers() == set()
