"""Pods whose devices have binding conditions are bound once their driver says that the devices are ready."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from scheduler_bench import CLAIMS, DRIVER, EVENTS, GROUPS, NS, PODS, SLICES, Bench, play

from haru.engine.framework import DEFAULT_PROFILE
from haru.scheduler.configuration import Configuration

Obj = dict[str, Any]


async def fabric(bench: Bench, *names: str) -> None:
    """A node, and devices that are attached to it on demand."""
    await bench.node()
    made = [{"name": name, "bindingConditions": ["attached"], "bindingFailureConditions": ["failed"]} for name in names]
    pool = {"name": "n1", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "pool": pool, "nodeName": "n1", "devices": made}
    await bench.create(SLICES, {"metadata": {"name": "slice-n1"}, "spec": spec})


async def tell(bench: Bench, claim: str, condition: str) -> None:
    """As the driver does of a device."""
    (result,) = (await bench.allocation(claim))["devices"]["results"]
    at = {"lastTransitionTime": "2026-01-01T00:00:00Z", "reason": "Told", "message": "m"}
    told = {**{name: result[name] for name in ("driver", "pool", "device")}}
    body = {"status": {"devices": [{**told, "conditions": [{"type": condition, "status": "True", **at}]}]}}
    await bench.api.patch(CLAIMS, claim, body, NS, "merge", "status")


async def events(bench: Bench) -> list[Obj]:
    return list((await bench.api.list(EVENTS, NS))["items"])


def ended(bench: Bench, status: str) -> tuple[float, float]:
    """How many devices were waited for with this end, as the counter and as the histogram have it."""
    labels = f'{{driver="{DRIVER}",profile="default-scheduler",status="{status}"}}'
    name = "scheduler_dra_bindingconditions"
    return bench.metric(f"{name}_allocations_total{labels}"), bench.metric(
        f"{name}_wait_duration_seconds_count{labels}"
    )


def test_pod_is_bound_once_its_device_is_ready() -> None:
    async def scenario(bench: Bench) -> None:
        await fabric(bench, "d0")
        await bench.claim("c")
        await bench.pod("p", claim="c")
        await asyncio.sleep(60)
        assert not await bench.node_of("p") and await bench.allocation("c")
        [event] = [one for one in await events(bench) if one["reason"] == "BindingConditionsPending"]
        assert event["message"] == "waiting for binding conditions for device on node n1"
        assert (event["type"], event["action"]) == ("Normal", "Scheduling")
        assert ended(bench, "success") == (0, 0)
        await tell(bench, "c", "attached")
        await bench.eventually_bound("p")
        assert ended(bench, "success") == (1, 1)

    play(scenario)


def test_pod_gets_a_device_anew_where_one_cannot_be_attached() -> None:
    async def scenario(bench: Bench) -> None:
        await fabric(bench, "d0")
        await bench.claim("c")
        await bench.pod("p", claim="c")
        await asyncio.sleep(1)
        before = await bench.allocation("c")
        await tell(bench, "c", "failed")
        await asyncio.sleep(1)
        told = await bench.condition(PODS, "p", "PodScheduled")
        assert 'device binding failed: claim=c, reason=Told, message="m"' in told["message"]
        assert ended(bench, "failure") == (1, 1)
        await asyncio.sleep(30)
        after = await bench.api.get(CLAIMS, "c", NS)
        assert after["status"]["allocation"]["allocationTimestamp"] > before["allocationTimestamp"]
        assert "devices" not in after["status"] and not await bench.node_of("p")
        await tell(bench, "c", "attached")
        await bench.eventually_bound("p")

    play(scenario)


def test_device_of_which_nothing_is_told_is_given_back_after_ten_minutes() -> None:
    async def scenario(bench: Bench) -> None:
        await fabric(bench, "d0")
        await bench.claim("c")
        await bench.pod("p", claim="c")
        await asyncio.sleep(595)
        assert await bench.allocation("c")
        await asyncio.sleep(6)
        told = await bench.condition(PODS, "p", "PodScheduled")
        assert "device binding timeout: claim=c" in told["message"]
        assert ended(bench, "timeout") == (1, 1)

    play(scenario)


def test_claim_of_two_pods_is_allocated_anew_after_its_timeout() -> None:
    """None of them waits longer because it came later, or came again."""

    async def scenario(bench: Bench) -> None:
        await fabric(bench, "d0")
        await bench.claim("c")
        await bench.pod("p", claim="c")
        await asyncio.sleep(20)
        await bench.pod("q", claim="c")
        before = await bench.allocation("c")
        await asyncio.sleep(25)
        for name in ("p", "q"):
            told = await bench.condition(PODS, name, "PodScheduled")
            assert "binding timeout" in told["message"]
        after = await bench.allocation("c")
        assert after["allocationTimestamp"] > before["allocationTimestamp"]
        await tell(bench, "c", "attached")
        await bench.eventually_bound("p", "q")

    patient = {"default-scheduler": replace(DEFAULT_PROFILE, device_timeout=30)}
    play(scenario, configuration=Configuration(patient))


def test_pod_that_joins_a_claim_after_its_timeout_has_it_allocated_anew() -> None:
    async def scenario(bench: Bench) -> None:
        await fabric(bench, "d0")
        await bench.claim("c")
        await bench.pod("p", claim="c")
        await asyncio.sleep(1)
        before = await bench.allocation("c")
        await bench.kill()
        await asyncio.sleep(700)
        await bench.start_scheduler()
        await asyncio.sleep(10)
        after = await bench.allocation("c")
        assert after["allocationTimestamp"] > before["allocationTimestamp"]
        await tell(bench, "c", "attached")
        await bench.eventually_bound("p")

    play(scenario)


@pytest.mark.parametrize("condition", ["attached", "failed"])
def test_no_member_of_a_gang_is_bound_before_the_devices_of_all_are_ready(condition: str) -> None:
    async def scenario(bench: Bench) -> None:
        await fabric(bench, "d0", "d1")
        await bench.gang("g", 2)
        for name in ("p", "q"):
            await bench.claim(name)
            await bench.pod(name, claim=name, group="g")
        await asyncio.sleep(5)
        await tell(bench, "p", "attached")
        await asyncio.sleep(5)
        assert not await bench.node_of("p") and not await bench.node_of("q")
        await tell(bench, "q", condition)
        if condition == "attached":
            await bench.eventually_bound("p", "q")
            return
        await asyncio.sleep(10)
        for name in ("p", "q"):
            assert "devices" not in (await bench.api.get(CLAIMS, name, NS))["status"] and not await bench.node_of(name)

    play(scenario)


def test_group_whose_quorum_is_being_bound_is_not_told_that_it_is_unschedulable() -> None:
    async def scenario(bench: Bench) -> None:
        await fabric(bench, "d0")
        await bench.gang("g", 1)
        await bench.claim("p")
        await bench.pod("p", claim="p", group="g")
        await asyncio.sleep(5)
        await bench.pod("q", cpu="9", group="g")
        await asyncio.sleep(5)
        assert "Insufficient cpu" in (await bench.condition(PODS, "q", "PodScheduled"))["message"]
        assert not await bench.node_of("p")
        group = await bench.api.get(GROUPS, "g", NS)
        assert not (group.get("status") or {}).get("conditions")
        await tell(bench, "p", "attached")
        await bench.eventually_bound("p")

    play(scenario)


def test_next_scheduler_waits_for_a_device_that_an_earlier_one_has_reserved() -> None:
    async def scenario(bench: Bench) -> None:
        await fabric(bench, "d0")
        await bench.claim("c")
        await bench.pod("p", claim="c")
        await asyncio.sleep(1)
        await bench.kill()
        await bench.start_scheduler()
        await asyncio.sleep(30)
        assert not await bench.node_of("p")
        await tell(bench, "c", "attached")
        await bench.eventually_bound("p")

    play(scenario)


def test_pod_that_is_deleted_meanwhile_is_not_waited_for() -> None:
    async def scenario(bench: Bench) -> None:
        await fabric(bench, "d0")
        for name in ("c", "other"):
            await bench.claim(name)
        await bench.pod("p", claim="c")
        await asyncio.sleep(1)
        await bench.delete("p")
        await bench.pod("q", claim="other")
        await asyncio.sleep(10)
        await tell(bench, "other", "attached")
        await bench.eventually_bound("q")

    play(scenario)
