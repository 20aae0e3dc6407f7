"""Allocated claims of members that are rejected while others of their group run: kept, or given back."""

from __future__ import annotations

import asyncio

from engine_objects import allocated, allocation, claim, pod
from scheduler_bench import CLAIMS, GROUPS, NS, Bench, play

from haru.engine import SchedulerCache
from haru.scheduler.binding.idle_claims import idle_claims


async def half_a_gang(bench: Bench) -> None:
    """A member runs on n1; the other one has a device of n2 from a scheduler that died, where a pod is in its way."""
    await bench.kill()
    for name in ("n1", "n2"):
        await bench.node(name, gpus=1)
    await bench.gang("g", 2)
    for name in ("runs", "waits"):
        await bench.claim(name)
    await bench.pod("blocks", cpu="4", nodeName="n2")
    await bench.reserve("runs", await bench.pod("runs", cpu="4", group="g", claim="runs", nodeName="n1"))
    await bench.reserve("waits", await bench.pod("waits", cpu="4", group="g", claim="waits"), "n2")


def test_half_a_gang_keeps_the_devices_of_a_member_that_has_no_place_at_the_moment() -> None:
    async def scenario(bench: Bench) -> None:
        await half_a_gang(bench)
        await bench.start_scheduler()
        await asyncio.sleep(5)
        await bench.claim("other")
        await bench.pod("other", cpu="0", claim="other")
        await asyncio.sleep(5)
        assert not await bench.node_of("other")
        await bench.delete("blocks")
        await bench.eventually_bound("waits")

    play(scenario)


def test_half_a_gang_gives_devices_back_where_others_complete_it() -> None:
    async def scenario(bench: Bench) -> None:
        await half_a_gang(bench)
        await bench.node("n3", gpus=1)
        await bench.start_scheduler()
        await bench.eventually_bound("waits")
        assert await bench.node_of("waits") == "n3"

    play(scenario)


def test_claim_of_a_group_stays_allocated_for_who_runs_when_another_member_has_no_place() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.node(gpus=1)
        await bench.claim("shared")
        shared = [{"name": "gpu", "resourceClaimName": "shared"}]
        spec = {"schedulingPolicy": {"basic": {}}, "resourceClaims": shared}
        await bench.create(GROUPS, {"metadata": {"name": "g"}, "spec": spec})
        await bench.pod("runs", cpu="4", group="g", claim="shared")
        await bench.eventually_bound("runs")
        before = await bench.api.get(CLAIMS, "shared", NS)
        assert [entry["resource"] for entry in before["status"]["reservedFor"]] == ["podgroups"]
        await bench.pod("waits", cpu="4", group="g", claim="shared")
        await asyncio.sleep(5)
        assert await bench.api.get(CLAIMS, "shared", NS) == before

    play(scenario)


def test_claim_is_not_idle_while_it_is_written_or_another_pod_is_about_to_use_it() -> None:
    mine, other = pod("p", claims=["c"]), pod("q", claims=["c"])
    held = allocated(claim("c"), allocation("a", "gpu-0"), mine)
    cluster = SchedulerCache.of([mine, other, held])
    assert [*idle_claims(cluster.snapshot(), [mine], [], None, workload_claims=True)] == ["default/c"]
    assert not idle_claims(cluster.snapshot(), [mine], [other], None, workload_claims=True)
    cluster.assume_claim(dict(held))
    assert not idle_claims(cluster.snapshot(), [mine], [], None, workload_claims=True)
