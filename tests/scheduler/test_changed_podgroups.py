"""PodGroups that are deleted, or made anew with another minCount, while their members wait, are bound, or make room."""

from __future__ import annotations

import asyncio

from preemption_objects import going, levels
from scheduler_bench import GROUPS, NS, PODS, Bench, play


async def members(bench: Bench, *names: str, **more: str) -> None:
    for name in names:
        await bench.pod(name, group="g", **more)


async def bound(bench: Bench, *names: str) -> list[str]:
    return [name for name in names if await bench.node_of(name)]


async def group_goes(bench: Bench) -> None:
    """Somebody takes its finalizer off by hand, which keeps it while it has members."""
    await bench.api.patch(GROUPS, "g", {"metadata": {"finalizers": None}}, NS)
    await bench.api.delete(GROUPS, "g", NS)


def test_victim_is_not_deleted_for_a_gang_whose_group_is_deleted() -> None:
    async def scenario(bench: Bench) -> None:
        await levels(bench)
        await bench.node()
        await bench.pod("old", cpu="4", priorityClassName="low")
        await bench.eventually_bound("old")
        bench.faulty.kinds, bench.faulty.rate = ("refuse 503",), 1.0
        bench.faulty.only = lambda method, path: method == "PATCH" and path.endswith("/old/status")
        await bench.gang("g", 2, priorityClassName="high")
        await members(bench, "a", "b", cpu="2", priorityClassName="high")
        await asyncio.sleep(0.5)
        await group_goes(bench)
        bench.faulty.rate = 0.0
        await asyncio.sleep(20)
        assert not await going(bench)
        assert await bench.node_of("old")

    play(scenario)


def test_gang_waits_for_its_group_to_come_back_and_takes_the_new_quorum() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.node()
        await bench.gang("g", 4)
        await members(bench, "a", "b", "c")
        await asyncio.sleep(1)
        await group_goes(bench)
        await asyncio.sleep(12)
        told = await bench.condition(PODS, "a", "PodScheduled")
        assert told["message"] == 'waiting for pods\'s pod group "g" to appear in scheduling queue'
        await bench.gang("g", 3)
        await bench.eventually_bound("a", "b", "c", seconds=2)

    play(scenario)


def test_nobody_of_a_gang_is_bound_whose_new_group_needs_more_members() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.node(gpus=3)
        for name in ("a", "b"):
            await bench.claim(name)
        bench.faulty.kinds, bench.faulty.rate = ("refuse 503",), 1.0
        bench.faulty.only = lambda method, path: method in ("PUT", "PATCH") and path.endswith("resourceclaims/b/status")
        await bench.gang("g", 2)
        for name in ("a", "b"):
            await bench.pod(name, group="g", claim=name)
        await asyncio.sleep(0.05)
        await group_goes(bench)
        await bench.gang("g", 3)
        await asyncio.sleep(0.05)
        bench.faulty.rate = 0.0
        await asyncio.sleep(10)
        assert await bound(bench, "a", "b") == []
        await bench.claim("c")
        await bench.pod("c", group="g", claim="c")
        await bench.eventually_bound("a", "b", "c", seconds=15)

    play(scenario)


def test_half_bound_gang_binds_the_others_together_though_its_group_was_away() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.node(cpu=2)
        await bench.gang("g", 3)
        await bench.pod("a", group="g", nodeName="n1")
        await members(bench, "b", "c")
        await asyncio.sleep(1)
        await group_goes(bench)
        await bench.size("n1", 3)
        await asyncio.sleep(15)
        assert await bound(bench, "b", "c") == []
        await bench.size("n1", 2)
        await bench.gang("g", 3)
        await asyncio.sleep(15)
        assert await bound(bench, "b", "c") == []
        await bench.size("n1", 3)
        await bench.eventually_bound("b", "c", seconds=2)

    play(scenario)
