"""The live scheduler: holds, conditions, events, groups, recovery - on the real API server."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from scheduler_bench import CLAIMS, EVENTS, GROUPS, NODES, NS, PODS, SLICES, Bench, play

from haru.engine.state import pinned_node
from haru.scheduler.binding.claim_updates import FINALIZER


def test_incomplete_gang_is_gated_and_reports_after_five_seconds() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.node()
        await bench.gang("g", 3)
        for name in ("a", "b"):
            await bench.pod(name, group="g")
        await asyncio.sleep(4)
        assert not await bench.condition(PODS, "a", "PodScheduled")
        await asyncio.sleep(7)
        held = await bench.condition(PODS, "a", "PodScheduled")
        assert (held["status"], held["reason"]) == ("False", "NotReadyForScheduling")
        assert held["message"] == "waiting for minCount pods from a gang to appear in scheduling queue"
        assert bench.metric("scheduler_schedule_attempts_total") == 0
        assert bench.metric('scheduler_pending_pods{queue="gated"}') == 2
        assert not (await bench.api.list(EVENTS, NS))["items"]
        await bench.pod("c", group="g")
        await bench.eventually_bound("a", "b", "c", seconds=1)
        assert bench.metric('scheduler_podgroup_schedule_attempts_total{profile="default-scheduler",r') == 1

    play(scenario)


def test_while_there_is_work_only_some_holds_are_told_at_once_and_all_of_them_later() -> None:
    async def scenario(bench: Bench) -> None:
        async def told() -> int:
            conditions = [await bench.condition(PODS, name, "PodScheduled") for name in held]
            return sum(condition.get("reason") == "NotReadyForScheduling" for condition in conditions)

        await bench.node(cpu=8)
        held = [f"held-{number}" for number in range(70)]
        for name in held:
            await bench.pod(name, claim=f"no-{name}")
        for number in range(6):
            await bench.pod(f"bound-{number}")
            await asyncio.sleep(2)
        assert 0 < await told() < 35
        await asyncio.sleep(10)
        assert await told() == len(held)

    play(scenario)


def test_rejected_and_bound_pods_have_conditions_and_events() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.node(cpu=1)
        await bench.pod("p", cpu="2")
        await asyncio.sleep(2)
        condition = await bench.condition(PODS, "p", "PodScheduled")
        assert (condition["status"], condition["reason"]) == ("False", "Unschedulable")
        assert condition["message"].startswith("0/1 nodes are available: 1 Insufficient cpu.")
        await bench.size("n1", 4)
        await bench.eventually_bound("p")
        assert (await bench.condition(PODS, "p", "PodScheduled"))["status"] == "True"
        await asyncio.sleep(2)
        told = {(e["type"], e["reason"]): e for e in (await bench.api.list(EVENTS, NS))["items"]}
        assert told["Warning", "FailedScheduling"]["message"] == condition["message"]
        assert told["Normal", "Scheduled"]["message"] == "Successfully assigned default/p to n1"

    play(scenario)


def test_scheduler_that_ends_writes_its_events_and_leaves_nothing_running() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.node()
        before = asyncio.all_tasks()
        await bench.pod("p")
        await bench.eventually_bound("p")
        await bench.kill()
        assert {
            task.get_name() for task in asyncio.all_tasks() - before if task.get_name().startswith("events")
        } == set()
        assert [e["reason"] for e in (await bench.api.list(EVENTS, NS))["items"]] == ["Scheduled"]
        await bench.start_scheduler()

    play(scenario)


def test_pods_of_a_burst_are_bound_but_for_the_one_that_fits_nowhere() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.node(cpu=4)
        names = [f"p{number}" for number in range(30)]
        await bench.kill()
        for name in names:
            await bench.pod(name, cpu="5" if name == "p9" else "100m")
        await bench.start_scheduler()
        await bench.eventually_bound(*(name for name in names if name != "p9"))
        told = await bench.condition(PODS, "p9", "PodScheduled")
        assert told["message"].startswith("0/1 nodes are available: 1 Insufficient cpu.")
        assert bench.metric('scheduler_schedule_attempts_total{profile="default-scheduler",result="scheduled"}') == 29
        assert bench.metric('scheduler_pod_scheduling_attempts_bucket{le="1"}') == 29

    play(scenario)


def test_assumed_pod_blocks_its_resources_before_binding_response() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.node(cpu=1)
        bench.faulty.kinds, bench.faulty.rate = ("lose",), 1.0
        bench.faulty.only = lambda method, path: path.endswith("/binding")
        await bench.pod("first")
        await bench.pod("second")
        await asyncio.sleep(1)
        assert not await bench.node_of("first")
        told = await bench.condition(PODS, "second", "PodScheduled")
        assert told["message"].startswith("0/1 nodes are available: 1 Insufficient cpu.")
        bench.faulty.rate = 0.0
        await bench.eventually_bound("first")
        await asyncio.sleep(15)
        assert not await bench.node_of("second")

    play(scenario)


def test_scheduled_group_stays_scheduled() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.node(cpu=2)
        await bench.gang("g", 2)
        for name in ("a", "b"):
            await bench.pod(name, group="g")
        await bench.eventually_bound("a", "b")
        await asyncio.sleep(1)
        group = await bench.condition(GROUPS, "g", "PodGroupScheduled")
        assert (group["status"], group["reason"]) == ("True", "Scheduled")
        await bench.pod("extra", group="g")
        await asyncio.sleep(15)
        assert (await bench.condition(PODS, "extra", "PodScheduled"))["reason"] == "Unschedulable"
        assert await bench.condition(GROUPS, "g", "PodGroupScheduled") == group

    play(scenario)


def test_gang_that_does_not_fit_leaves_resources_to_others() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.node(cpu=2)
        await bench.gang("g", 3)
        for name in ("a", "b", "c"):
            await bench.pod(name, group="g")
        await asyncio.sleep(2)
        group = await bench.condition(GROUPS, "g", "PodGroupScheduled")
        assert (group["status"], group["reason"], group["message"]) == (
            "False",
            "Unschedulable",
            "pod group is unschedulable, No preemption victims found for incoming preemptor",
        )
        await bench.pod("other", cpu="2")
        await bench.eventually_bound("other", seconds=1)

    play(scenario)


def test_only_pods_of_configured_scheduler_names_are_bound() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.node()
        for name in ("one", "two", "three"):
            await bench.pod(name, schedulerName=name)
        await bench.eventually_bound("one", "two")
        await asyncio.sleep(30)
        assert not await bench.node_of("three")
        await bench.gang("mixed", 2)
        for name in ("one", "two"):
            await bench.pod(f"m-{name}", group="mixed", schedulerName=name)
        await asyncio.sleep(2)
        for name in ("m-one", "m-two"):
            told = await bench.condition(PODS, name, "PodScheduled")
            assert (told["reason"], told["message"]) == (
                "SchedulerError",
                'all pods in a single pod group should have the same .spec.schedulerName set, got: "one" and "two"',
            )
            assert not await bench.node_of(name)

    play(scenario, "one", "two")


def test_gang_with_members_of_another_scheduler_reports_reason() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.node()
        await bench.gang("g", 2)
        await bench.pod("ours", group="g")
        await bench.pod("theirs", group="g", schedulerName="somebody")
        await asyncio.sleep(5)
        told = await bench.condition(PODS, "ours", "PodScheduled")
        assert "waiting for minCount pods from a gang to be scheduled" in told["message"]
        assert not await bench.node_of("ours")

    play(scenario)


async def half_bound(
    bench: Bench, names: str = "abc", done: int = 1, *, claims: bool = True, **group: Any
) -> list[str]:
    """A gang of which the scheduler was killed after one binding, or two; its cpu is all there is."""
    await bench.node("n1", cpu=len(names), gpus=len(names))
    await bench.gang("g", len(names), **group)
    sent = 0

    def only_one(method: str, path: str) -> bool:
        nonlocal sent
        sent += path.endswith("/binding")
        return path.endswith("/binding") and sent > done

    bench.faulty.rate, bench.faulty.only = 1.0, only_one
    bench.faulty._rng.choice = lambda kinds: "lose"  # type: ignore[method-assign]
    for name in names:
        if claims:
            await bench.claim(name)
        await bench.pod(name, group="g", claim=name if claims else "")
    await asyncio.sleep(2)
    await bench.kill()
    bench.faulty.rate = 0.0
    waiting = [name for name in names if not await bench.node_of(name)]
    assert len(waiting) == len(names) - done
    return waiting


@pytest.mark.parametrize("claims", [False, True])
@pytest.mark.parametrize(("names", "done", "urgent"), [("abc", 1, False), ("abc", 1, True), ("abcd", 2, False)])
def test_restarted_scheduler_completes_half_bound_gang_first(names: str, done: int, urgent: bool, claims: bool) -> None:
    """Each waiting member's place is stored: by its claim, which is of use on one node only, or by its status."""

    async def scenario(bench: Bench) -> None:
        waiting = await half_bound(bench, names, done, claims=claims)
        for name in waiting:
            status = (await bench.api.get(PODS, name, NS))["status"]
            assert status.get("nominatedNodeName") == (None if claims else "n1")
            assert not claims or pinned_node(await bench.allocation(name)) == "n1"
        spec: dict[str, Any] = {"priorityClassName": "system-cluster-critical"} if urgent else {}
        await bench.pod("competitor", cpu="2", **spec)
        await bench.start_scheduler()
        await bench.eventually_bound(*waiting, seconds=1)
        assert not await bench.node_of("competitor")
        for name in waiting:
            assert "nominatedNodeName" not in (await bench.api.get(PODS, name, NS))["status"]

    play(scenario)


@pytest.mark.parametrize("claims", [False, True])
def test_half_bound_gang_that_goes_as_a_whole_makes_room_for_who_is_more_important(claims: bool) -> None:
    async def scenario(bench: Bench) -> None:
        waiting = await half_bound(bench, claims=claims, disruptionMode="PodGroup")
        await bench.pod("competitor", cpu="3", priorityClassName="system-cluster-critical")
        await bench.start_scheduler()
        await asyncio.sleep(1)
        (bound,) = {"a", "b", "c"}.difference(waiting)
        assert (await bench.api.get(PODS, bound, NS))["metadata"].get("deletionTimestamp")
        await bench.delete(bound)
        await bench.eventually_bound("competitor")
        assert [await bench.node_of(name) for name in waiting] == ["", ""]

    play(scenario)


def test_half_bound_gang_is_completed_on_another_node() -> None:
    async def scenario(bench: Bench) -> None:
        waiting = await half_bound(bench)
        await bench.api.delete(NODES, "n1")
        await bench.api.delete(SLICES, "slice-n1")
        await bench.node("n2", cpu=3, gpus=3)
        await bench.start_scheduler()
        await bench.eventually_bound(*waiting, seconds=15)
        assert [await bench.node_of(name) for name in waiting] == ["n2", "n2"]

    play(scenario)


def test_claim_and_nomination_of_rejected_pod_are_released() -> None:
    """A claim that is allocated on a node that went away, and a nomination to it."""

    async def scenario(bench: Bench) -> None:
        await bench.node("n1", gpus=1)
        await bench.claim("mine")
        await bench.pod("p", claim="mine")
        await bench.eventually_bound("p")
        await bench.delete("p")
        await bench.kill()
        await bench.pod("p", claim="mine")
        await bench.api.patch(PODS, "p", {"status": {"nominatedNodeName": "n1"}}, NS, "merge", "status")
        await bench.api.delete(NODES, "n1")
        claim = await bench.api.get(CLAIMS, "mine", NS)
        claim["status"]["reservedFor"] = []
        await bench.api.update_status(CLAIMS, claim)
        assert await bench.allocation("mine")
        await bench.start_scheduler()
        await asyncio.sleep(2)
        assert not await bench.allocation("mine")
        freed = await bench.api.get(CLAIMS, "mine", NS)
        assert FINALIZER not in (freed["metadata"].get("finalizers") or ())
        assert "nominatedNodeName" not in (await bench.api.get(PODS, "p", NS))["status"]
        await bench.node("n2", gpus=1)
        await bench.eventually_bound("p")

    play(scenario)


def test_gang_whose_scheduler_died_after_the_last_binding_is_reported_as_scheduled() -> None:
    """Also where its group is listed after its pods."""

    async def scenario(bench: Bench) -> None:
        async def way(scope: Any, receive: Any, send: Any) -> None:
            await asyncio.sleep(0.5 * scope["path"].endswith("/podgroups"))
            await bench.faulty(scope, receive, send)

        bench.way = way
        await bench.node()
        await bench.kill()
        await bench.gang("g", 2)
        for name in ("a", "b"):
            await bench.pod(name, group="g", nodeName="n1")
        await bench.start_scheduler()
        await asyncio.sleep(1)
        assert (await bench.condition(GROUPS, "g", "PodGroupScheduled"))["status"] == "True"

    play(scenario)


def test_unfinished_allocation_is_released_at_start() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.kill()
        await bench.claim("left")
        await bench.api.patch(CLAIMS, "left", {"metadata": {"finalizers": [FINALIZER]}}, NS)
        await bench.start_scheduler()
        await asyncio.sleep(1)
        assert not (await bench.api.get(CLAIMS, "left", NS))["metadata"].get("finalizers")

    play(scenario)


def test_failed_reservation_of_one_member_binds_none() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.node(gpus=2)
        await bench.gang("g", 2)
        refused = "/resourceclaims/b/status"
        bench.faulty.rate, bench.faulty.only = 1.0, lambda method, path: method == "PUT" and path.endswith(refused)
        bench.faulty._rng.choice = lambda kinds: "refuse 500"  # type: ignore[method-assign]
        for name in ("a", "b"):
            await bench.claim(name)
            await bench.pod(name, group="g", claim=name)
        await asyncio.sleep(4.0)
        bench.faulty.only = lambda method, path: path.endswith((refused, "/binding"))
        for _ in range(100):
            await asyncio.sleep(0.1)
            assert not await bench.node_of("a") and not await bench.node_of("b")
            if (await bench.condition(PODS, "a", "PodScheduled")).get("reason") == "SchedulerError":
                break
        told = await bench.condition(PODS, "a", "PodScheduled")
        assert told["reason"] == "SchedulerError" and "a sibling could not be reserved" in told["message"]
        bench.faulty.rate = 0.0
        await bench.eventually_bound("a", "b")

    play(scenario)


def test_stopped_scheduler_leaves_no_tasks() -> None:
    async def scenario(bench: Bench) -> None:
        await half_bound(bench)
        running = {str(task.get_coro()) for task in asyncio.all_tasks()}
        assert not [name for name in running if "Scheduler" in name or "Carrier" in name or "Reporter" in name]
        await bench.start_scheduler()

    play(scenario)
