"""What a topology constraint promises, on the live scheduler in virtual time: what is told, and what is tried again.

How a domain is chosen is in the engine's `test_topology`.
"""

from __future__ import annotations

import asyncio

from scheduler_bench import CLAIMS, GROUPS, NODES, NS, PODS, Bench, play
from test_gang_rows import bound, members, sharing_gang, two_racks

CONSTRAINT = {"topology": [{"key": "rack"}]}


async def racks(bench: Bench, *sizes: int) -> None:
    """Racks a, b, … of nodes for one pod each."""
    for rack, size in zip("abc", sizes, strict=False):
        for number in range(size):
            await bench.node(f"{rack}{number}", cpu=1)
            await bench.api.patch(NODES, f"{rack}{number}", {"metadata": {"labels": {"rack": rack}}})


async def constrained(bench: Bench, minimum: int) -> None:
    spec = {"schedulingPolicy": {"gang": {"minCount": minimum}}, "schedulingConstraints": CONSTRAINT}
    await bench.create(GROUPS, {"metadata": {"name": "g"}, "spec": spec})


def test_gang_larger_than_every_rack_reports_reason_and_is_retried() -> None:
    async def scenario(bench: Bench) -> None:
        await racks(bench, 4, 4)
        await constrained(bench, 5)
        names = [f"p{i}" for i in range(5)]
        await members(bench, "g", *names)
        await asyncio.sleep(5)
        assert await bound(bench, *names) == []
        told = await bench.condition(GROUPS, "g", "PodGroupScheduled")
        assert (told["status"], told["reason"]) == ("False", "Unschedulable")
        assert told["message"].startswith(
            "0/2 placements are available, first placement status: 0/4 nodes are available: 4 Insufficient cpu."
        )
        await bench.node("b4", cpu=1)
        await bench.api.patch(NODES, "b4", {"metadata": {"labels": {"rack": "b"}}})
        await bench.eventually_bound(*names)
        assert {await bench.node_of(name) for name in names} == {f"b{i}" for i in range(5)}

    play(scenario)


def test_members_running_in_two_racks_are_an_error() -> None:
    async def scenario(bench: Bench) -> None:
        await racks(bench, 2, 2)
        await constrained(bench, 3)
        await bench.pod("p0", group="g", nodeName="a0")
        await bench.pod("p1", group="g", nodeName="b0")
        await bench.pod("p2", group="g")
        await asyncio.sleep(5)
        told = await bench.condition(GROUPS, "g", "PodGroupScheduled")
        assert (told["status"], told["reason"]) == ("False", "SchedulerError")
        assert told["message"] == "more than 1 domain found for pod group: a, b"
        assert (await bench.condition(PODS, "p2", "PodScheduled"))["reason"] == "SchedulerError"
        await bench.delete("p1")
        await bench.pod("p3", group="g")
        await asyncio.sleep(15)
        assert await bound(bench, "p2", "p3") == [], "the rack of the one that runs has one place left"
        await bench.delete("p0")
        await bench.node("b2", cpu=1)
        await bench.api.patch(NODES, "b2", {"metadata": {"labels": {"rack": "b"}}})
        await bench.pod("p4", group="g")
        await bench.eventually_bound("p2", "p3", "p4")
        assert {await bench.node_of(name) for name in ("p2", "p3", "p4")} == {"b0", "b1", "b2"}

    play(scenario)


def test_extra_member_waits_for_rack_of_the_others() -> None:
    async def scenario(bench: Bench) -> None:
        await racks(bench, 2, 3)
        await constrained(bench, 2)
        await members(bench, "g", "p0", "p1", nodeSelector={"rack": "a"})
        await bench.eventually_bound("p0", "p1")
        await bench.pod("extra", group="g")
        await asyncio.sleep(15)
        assert await bound(bench, "extra") == []
        told = await bench.condition(PODS, "extra", "PodScheduled")
        assert told["message"].startswith("0/2 nodes are available: 2 Insufficient cpu.")
        assert (await bench.condition(GROUPS, "g", "PodGroupScheduled"))["status"] == "True"

    play(scenario)


def test_failed_rack_keeps_no_shared_claim() -> None:
    async def scenario(bench: Bench) -> None:
        await two_racks(bench, 2, 4)
        await sharing_gang(bench, 4)
        await bench.kill()
        await bench.api.delete(GROUPS, "g", NS)
        await bench.api.patch(GROUPS, "g", {"metadata": {"finalizers": None}}, NS)
        uses = [{"name": "gpu", "resourceClaimName": "shared"}]
        spec = {"schedulingPolicy": {"gang": {"minCount": 4}}, "resourceClaims": uses}
        await bench.create(GROUPS, {"metadata": {"name": "g"}, "spec": {**spec, "schedulingConstraints": CONSTRAINT}})
        await bench.start_scheduler()
        names = [f"p{i}" for i in range(4)]
        await bench.eventually_bound(*names)
        assert {await bench.node_of(name) for name in names} == {"b0", "b1", "b2", "b3"}
        claim = await bench.api.get(CLAIMS, "shared", NS)
        assert [r["pool"] for r in claim["status"]["allocation"]["devices"]["results"]] == ["fabric-b"]

    play(scenario)
