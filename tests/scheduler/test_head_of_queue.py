"""Places kept for the head of the queue on the live scheduler, and the protections against eviction."""

from __future__ import annotations

import asyncio
from typing import Any

from preemption_objects import gang, nominated, occupied
from scheduler_bench import GROUPS, NODES, NS, PODS, Bench, play

from haru.kube.kinds import known_kind
from haru.scheduler.settings import Fairness

Obj = dict[str, Any]
BACKFILL = Fairness(backfill=True)
PRIORITIES = known_kind("scheduling.k8s.io/v1", "PriorityClass")
RESERVED = "haru.dev/Reserved"


async def small(bench: Bench, name: str, seconds: int | None = None, cpu: str = "4", **spec: Any) -> None:
    limit = {} if seconds is None else {"activeDeadlineSeconds": seconds, "terminationGracePeriodSeconds": 0}
    await bench.pod(name, cpu=cpu, restartPolicy="Never", **limit, **spec)


async def large(bench: Bench, name: str = "large", size: int = 2, **spec: Any) -> list[str]:
    await bench.gang(name, size)
    for number in range(size):
        await bench.pod(f"{name}-{number}", cpu="4", group=name, **spec)
    return [f"{name}-{number}" for number in range(size)]


async def two_nodes(bench: Bench) -> None:
    for name in ("n1", "n2"):
        await bench.node(name)


async def large_behind_small(bench: Bench) -> list[str]:
    """The members of a gang that waits for both nodes, of which a small pod has one."""
    await two_nodes(bench)
    await small(bench, "now")
    await bench.started("now")
    members = await large(bench)
    await asyncio.sleep(5)
    return members


async def stream(bench: Bench, rounds: int) -> None:
    """Two small pods at a time, each of which is followed by another one before it ends."""
    for number in range(2, rounds):
        await small(bench, f"small-{number}")
        await bench.delete(f"small-{number - 2}")
        await asyncio.sleep(30)


def test_backfill_does_not_starve_gang() -> None:
    async def scenario(bench: Bench) -> None:
        await two_nodes(bench)
        for number in range(2):
            await small(bench, f"small-{number}")
        await bench.started("small-0", "small-1")
        members = await large(bench)
        await asyncio.sleep(5)
        await stream(bench, 4)
        await bench.eventually_bound(*members)
        assert not await bench.node_of("small-2")
        for name in members:
            await bench.delete(name)
        await bench.eventually_bound("small-2", "small-3")

    play(scenario, fairness=BACKFILL)


def test_gang_starves_without_backfill() -> None:
    """As in Kubernetes: the stream takes every place as soon as it is free."""

    async def scenario(bench: Bench) -> None:
        await two_nodes(bench)
        for number in range(2):
            await small(bench, f"small-{number}")
        await bench.started("small-0", "small-1")
        members = await large(bench)
        await asyncio.sleep(5)
        await stream(bench, 12)
        assert not any([await bench.node_of(name) for name in members])

    play(scenario)


def test_short_work_is_backfilled_and_reservation_is_reported() -> None:
    async def scenario(bench: Bench) -> None:
        await two_nodes(bench)
        await small(bench, "now", 600)
        await bench.started("now")
        members = await large(bench)
        await asyncio.sleep(1)
        told = await bench.condition(GROUPS, "large", RESERVED)
        assert (told["status"], told["reason"]) == ("True", "HeadOfQueue")
        assert told["message"] == (
            "places for 2 pods are kept on n1, n2; waiting for the end of default/now, "
            "by 2026-01-01T00:10:00Z at the latest"
        )
        await small(bench, "slow", 700)
        await small(bench, "quick", 60)
        await bench.started("quick")
        assert not await bench.node_of("slow")
        await bench.delete("quick")
        await asyncio.sleep(60)
        assert not await bench.node_of("slow")
        await bench.delete("now")
        await bench.eventually_bound(*members)
        await asyncio.sleep(1)
        assert (await bench.condition(GROUPS, "large", RESERVED))["status"] == "False"

    play(scenario, fairness=BACKFILL)


def test_deleted_head_is_replaced_by_next_unit() -> None:
    async def scenario(bench: Bench) -> None:
        await two_nodes(bench)
        await small(bench, "now")
        await bench.started("now")
        first = await large(bench, "first")
        await asyncio.sleep(1)
        await large(bench, "second")
        await small(bench, "waits", cpu="2")
        await asyncio.sleep(30)
        assert not await bench.node_of("waits")
        assert not await bench.condition(GROUPS, "second", RESERVED)
        for name in first:
            await bench.delete(name)
        await asyncio.sleep(15)
        # The second gang is the head now: the small pod came after it.
        assert (await bench.condition(GROUPS, "second", RESERVED))["status"] == "True"
        assert (await bench.condition(GROUPS, "first", RESERVED))["status"] == "False"
        assert not await bench.node_of("waits")
        for number in range(2):
            await bench.delete(f"second-{number}")
        await bench.eventually_bound("waits")

    play(scenario, fairness=BACKFILL)


def test_gang_that_waits_for_its_victims_and_the_head_that_waits_for_it_are_tried_once_for_each_change() -> None:
    """Neither takes the places of the other: the nominated gang starts there, and the head after it."""

    async def scenario(bench: Bench) -> None:
        await occupied(bench, "a", "b")
        first = await gang(bench, "first", 2, "high")
        await asyncio.sleep(2)
        second = await gang(bench, "second", 2, "high")
        await asyncio.sleep(2)
        assert (await bench.condition(GROUPS, "second", RESERVED))["status"] == "True"
        places = [await nominated(bench, name) for name in first]
        for number in range(5):
            before = bench.metric("scheduler_podgroup_schedule_attempts_total")
            await bench.node(f"small-{number}", cpu=1)
            await asyncio.sleep(15)
            assert bench.metric("scheduler_podgroup_schedule_attempts_total") - before <= 2
        await bench.delete("a")
        await bench.delete("b")
        await bench.eventually_bound(*first)
        assert [await bench.node_of(name) for name in first] == places
        for name in first:
            await bench.delete(name)
        await bench.eventually_bound(*second)

    play(scenario, fairness=BACKFILL)


def test_higher_priority_unit_becomes_head() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.create(PRIORITIES, {"metadata": {"name": "high"}, "value": 100, "preemptionPolicy": "Never"})
        await bench.node("n1", cpu=4)
        await small(bench, "now", cpu="3")
        await bench.started("now")
        await small(bench, "old")
        await asyncio.sleep(1)
        assert (await bench.condition(PODS, "old", RESERVED))["status"] == "True"
        await small(bench, "urgent", priorityClassName="high", cpu="2")
        await asyncio.sleep(1)
        assert (await bench.condition(PODS, "urgent", RESERVED))["status"] == "True"
        assert (await bench.condition(PODS, "old", RESERVED))["status"] == "False"
        await bench.delete("now")
        await bench.eventually_bound("urgent")
        await asyncio.sleep(15)
        assert (await bench.condition(PODS, "old", RESERVED))["status"] == "True"

    play(scenario, fairness=BACKFILL)


def test_restarted_scheduler_keeps_reserved_places() -> None:
    async def scenario(bench: Bench) -> None:
        members = await large_behind_small(bench)
        told = await bench.condition(GROUPS, "large", RESERVED)
        await bench.kill()
        await small(bench, "a-small-one")
        await bench.start_scheduler()
        await asyncio.sleep(30)
        assert not await bench.node_of("a-small-one")
        assert await bench.condition(GROUPS, "large", RESERVED) == told
        await bench.delete("now")
        await bench.eventually_bound(*members)

    play(scenario, fairness=BACKFILL)


def test_restarted_scheduler_releases_the_reservation_of_a_gang_that_lost_a_member_meanwhile() -> None:
    async def scenario(bench: Bench) -> None:
        members = await large_behind_small(bench)
        assert (await bench.condition(GROUPS, "large", RESERVED))["status"] == "True"
        await bench.kill()
        await bench.delete(members[0])
        await bench.start_scheduler()
        await asyncio.sleep(1)
        assert (await bench.condition(GROUPS, "large", RESERVED))["status"] == "False"

    play(scenario, fairness=BACKFILL)


def test_reservation_is_recomputed_after_overrun_limit() -> None:
    """`now` overruns what it promised: from then on nobody knows when the head starts, and nothing goes first."""

    async def scenario(bench: Bench) -> None:
        await two_nodes(bench)
        await bench.create(
            PODS,
            {
                "metadata": {"name": "now", "annotations": {"haru.dev/run-time-limit": "5m"}},
                "spec": {
                    "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "4"}}}],
                    "restartPolicy": "Never",
                    "terminationGracePeriodSeconds": 0,
                },
            },
        )
        await bench.started("now")
        await large(bench)
        await asyncio.sleep(310)
        told = await bench.condition(GROUPS, "large", RESERVED)
        assert told["message"] == "places for 2 pods are kept on n1, n2; waiting for the end of default/now"
        await small(bench, "quick", 10)
        await asyncio.sleep(15)
        assert not await bench.node_of("quick")

    play(scenario, fairness=BACKFILL)


def test_head_moves_when_its_node_is_deleted() -> None:
    async def scenario(bench: Bench) -> None:
        await two_nodes(bench)
        await small(bench, "a")
        await small(bench, "b")
        await bench.started("a", "b")
        await small(bench, "head")
        await asyncio.sleep(1)
        [kept] = [n for n in ("n1", "n2") if n in (await bench.condition(PODS, "head", RESERVED))["message"]]
        await bench.api.delete(NODES, kept, "")
        await bench.node("n3")
        await bench.eventually_bound("head")
        assert await bench.node_of("head") == "n3"

    play(scenario, fairness=BACKFILL)


# -- protections -------------------------------------------------------------------------------------------------------


async def urgent_and_low(bench: Bench) -> None:
    for name, value in (("low", 10), ("high", 100)):
        await bench.create(PRIORITIES, {"metadata": {"name": name}, "value": value})
    await bench.node()
    await bench.pod("old", cpu="4", priorityClassName="low")
    await bench.started("old")


async def is_going(bench: Bench, name: str) -> bool:
    return bool((await bench.api.get(PODS, name, NS))["metadata"].get("deletionTimestamp"))


def test_started_pod_is_evicted_only_after_minimum_run_time() -> None:
    async def scenario(bench: Bench) -> None:
        await urgent_and_low(bench)
        await bench.pod("urgent", cpu="4", priorityClassName="high")
        await asyncio.sleep(115)
        assert not await is_going(bench, "old")
        # No event wakes the pod: it is the time.
        await asyncio.sleep(10)
        assert await is_going(bench, "old")
        await bench.delete("old")
        await bench.eventually_bound("urgent")

    play(scenario, fairness=Fairness(minimum_run_time=120))


def test_preemptor_waits_for_preemption_delay() -> None:
    async def scenario(bench: Bench) -> None:
        await urgent_and_low(bench)
        await asyncio.sleep(600)
        await bench.pod("urgent", cpu="4", priorityClassName="high")
        await asyncio.sleep(55)
        assert not await is_going(bench, "old")
        told = await bench.condition(PODS, "urgent", "PodScheduled")
        assert told["message"].endswith("preemption waits: the preemption delay has not passed.")
        await asyncio.sleep(10)
        assert await is_going(bench, "old")

    play(scenario, fairness=Fairness(preemption_delay=60))


def test_head_is_not_retried_while_pod_terminates() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.node()
        await small(bench, "old")
        await bench.started("old")
        await bench.api.delete(PODS, "old", NS)
        await small(bench, "head")
        await asyncio.sleep(15)
        attempts = bench.metric("scheduler_schedule_attempts_total")
        await asyncio.sleep(200)
        assert bench.metric("scheduler_schedule_attempts_total") == attempts
        await bench.delete("old")
        await bench.eventually_bound("head")

    play(scenario, fairness=BACKFILL)
