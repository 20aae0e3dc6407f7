"""Preemption on the live scheduler: which pods are evicted, the events and metrics, and who gets the place."""

from __future__ import annotations

import asyncio

import pytest
from preemption_objects import gang, going, levels, nominated, occupied, occupied_by_gang
from scheduler_bench import CLAIMS, EVENTS, GROUPS, NODES, NS, PODS, Bench, play


def test_preemptor_evicts_pod_and_is_bound() -> None:
    async def scenario(bench: Bench) -> None:
        await occupied(bench, "old")
        urgent = await bench.pod("urgent", cpu="4", priorityClassName="high")
        await asyncio.sleep(2)
        assert await going(bench) == {"old"}
        target = await bench.condition(PODS, "old", "DisruptionTarget")
        assert (target["status"], target["reason"]) == ("True", "PreemptionByScheduler")
        assert target["message"] == "default-scheduler: preempting to accommodate a higher priority pod"
        assert await nominated(bench, "urgent") == "n1"
        told = [e for e in (await bench.api.list(EVENTS, NS))["items"] if e["reason"] == "Preempted"]
        assert [e["message"] for e in told] == [f"Preempted by pod {urgent['metadata']['uid']} on node n1"]
        # The room is kept: not for who is less important, and nobody else is evicted while it is being made.
        await bench.pod("late", cpu="4", priorityClassName="low")
        await bench.delete("old")
        await bench.eventually_bound("urgent")
        assert not await bench.node_of("late")
        assert bench.metric("scheduler_preemption_attempts_total") >= 1
        assert bench.metric("scheduler_preemption_victims_count") == 1
        assert bench.metric("scheduler_preemption_victims_sum") == 1

    play(scenario)


def test_no_further_pod_is_evicted_while_victims_terminate() -> None:
    async def scenario(bench: Bench) -> None:
        await occupied(bench, "a", "b")
        await bench.pod("urgent", cpu="4", priorityClassName="high")
        await asyncio.sleep(60)
        assert len(await going(bench)) == 1
        await bench.kill()
        await bench.start_scheduler()
        await asyncio.sleep(60)
        assert len(await going(bench)) == 1
        await bench.delete((await going(bench)).pop())
        await bench.eventually_bound("urgent")
        assert not await going(bench)

    play(scenario)


def test_whole_gang_is_evicted_for_fitting_gang() -> None:
    async def scenario(bench: Bench) -> None:
        old = await occupied_by_gang(bench, "old", 3)
        too_large = await gang(bench, "large", 4, "high")
        await asyncio.sleep(20)
        assert not await going(bench), "nobody is evicted in vain"
        new = await gang(bench, "new", 2, "high")
        await asyncio.sleep(2)
        assert await going(bench) == set(old)
        scheduled = await bench.condition(GROUPS, "new", "PodGroupScheduled")
        assert scheduled["message"] == "pod group is waiting for preemption to complete"
        for name in old:
            await bench.delete(name)
        await bench.eventually_bound(*new)
        assert not any([await bench.node_of(name) for name in too_large])

    play(scenario)


def test_preemptor_waits_until_claim_of_victim_is_free() -> None:
    async def scenario(bench: Bench) -> None:
        await levels(bench)
        for node in ("n1", "n2"):
            await bench.node(node, gpus=1)
        for name in ("a", "b"):
            await bench.claim(name)
            await bench.pod(name, claim=name, priorityClassName="low")
        await bench.eventually_bound("a", "b", seconds=1)
        await bench.claim("urgent")
        await bench.pod("urgent", claim="urgent", priorityClassName="high")
        await asyncio.sleep(2)
        (victim,) = await going(bench)
        await bench.delete(victim)
        # The pod is gone, its claim is not yet free: that is no reason to evict the other one as well.
        await asyncio.sleep(60)
        assert not await going(bench)
        assert not await bench.node_of("urgent")
        claim = await bench.api.get(CLAIMS, victim, NS)
        claim["status"] = {}
        await bench.api.update_status(CLAIMS, claim)
        await bench.eventually_bound("urgent")

    play(scenario)


def test_failed_eviction_clears_nomination_and_is_retried() -> None:
    async def scenario(bench: Bench) -> None:
        await occupied(bench, "old")
        bench.faulty.only = lambda method, path: method == "DELETE"
        bench.faulty.rate = 1.0
        await bench.pod("urgent", cpu="4", priorityClassName="high")
        await asyncio.sleep(1)
        bench.faulty.rate = 0.0
        await asyncio.sleep(15)
        assert await going(bench) == {"old"}
        await bench.delete("old")
        await bench.eventually_bound("urgent")

    play(scenario)


def test_higher_priority_pod_takes_nominated_place() -> None:
    async def scenario(bench: Bench) -> None:
        await occupied(bench, "old")
        await bench.pod("urgent", cpu="4", priorityClassName="high")
        await asyncio.sleep(2)
        await bench.pod("first", cpu="4", priorityClassName="higher")
        await asyncio.sleep(2)
        await bench.delete("old")
        await bench.eventually_bound("first")
        await asyncio.sleep(5)
        assert not await bench.node_of("urgent")
        assert not await nominated(bench, "urgent")

    play(scenario)


def test_victim_is_not_deleted_for_deleted_preemptor() -> None:
    async def scenario(bench: Bench) -> None:
        await occupied(bench, "old")
        bench.faulty.kinds = ("refuse 503",)
        bench.faulty.only = lambda method, path: method == "PATCH" and path.endswith("/old/status")
        bench.faulty.rate = 1.0
        await bench.pod("urgent", cpu="4", priorityClassName="high")
        await asyncio.sleep(0.5)
        await bench.delete("urgent")
        bench.faulty.rate = 0.0
        await asyncio.sleep(20)
        assert not await going(bench)
        assert await bench.node_of("old")
        assert (await bench.api.get(NODES, "n1"))["metadata"]["name"] == "n1"

    play(scenario)


@pytest.mark.parametrize("how", ["ended", "being deleted", "replaced"])
def test_victim_that_goes_by_itself_is_neither_marked_nor_deleted(how: str) -> None:
    async def scenario(bench: Bench) -> None:
        await levels(bench)
        await bench.node()
        for name in ("old", "other"):
            await bench.pod(name, cpu="2", priorityClassName="low")
        await bench.eventually_bound("old", "other", seconds=1)
        bench.faulty.kinds, bench.faulty.rate = ("refuse 503",), 1.0
        bench.faulty.only = lambda method, path: method == "PATCH" and path.endswith("/old/status")
        await bench.pod("urgent", cpu="4", priorityClassName="high")
        await asyncio.sleep(0.1)
        if how == "ended":
            await bench.api.patch(PODS, "old", {"status": {"phase": "Succeeded"}}, NS, "merge", "status")
        else:
            await bench.api.delete(PODS, "old", NS, grace_period_seconds=0 if how == "replaced" else None)
        if how == "replaced":
            await bench.pod("old", cpu="2", priorityClassName="low")
        bench.faulty.rate = 0.0
        await asyncio.sleep(3)
        assert not await bench.condition(PODS, "old", "DisruptionTarget")
        assert await going(bench) == ({"old", "other"} if how == "being deleted" else {"other"})

    play(scenario)


def test_claim_of_evicted_group_is_released_for_preemptor() -> None:
    async def scenario(bench: Bench) -> None:
        await levels(bench)
        await bench.node(gpus=1)
        await bench.claim("shared")
        shared = [{"name": "gpu", "resourceClaimName": "shared"}]
        policy = {"schedulingPolicy": {"gang": {"minCount": 2}}, "resourceClaims": shared}
        await bench.create(
            GROUPS,
            {"metadata": {"name": "old"}, "spec": {**policy, "priorityClassName": "low", "disruptionMode": "PodGroup"}},
        )
        for name in ("old-0", "old-1"):
            await bench.pod(name, group="old", claim="shared", priorityClassName="low")
        await bench.eventually_bound("old-0", "old-1", seconds=1)
        claim = await bench.api.get(CLAIMS, "shared", NS)
        assert [entry["resource"] for entry in claim["status"]["reservedFor"]] == ["podgroups"]
        await bench.claim("urgent")
        await bench.pod("urgent", claim="urgent", priorityClassName="high")
        await asyncio.sleep(2)
        assert await going(bench) == {"old-0", "old-1"}
        await bench.delete("old-0")
        await asyncio.sleep(2)
        assert await bench.allocation("shared")
        await bench.delete("old-1")
        for name in ("old-0", "old-1"):  # their controller makes them anew
            await bench.pod(name, group="old", claim="shared", priorityClassName="low")
        await bench.eventually_bound("urgent")
        assert not await bench.allocation("shared")
        assert not await bench.node_of("old-0")

    play(scenario)


@pytest.mark.parametrize("level", ["low", "higher"])
def test_claim_of_evicted_group_is_released_by_the_next_scheduler_if_a_more_important_pod_is_promised_its_node(
    level: str,
) -> None:
    """The scheduler died before the last member was gone. What was not evicted leaves its claim to the group."""

    async def scenario(bench: Bench) -> None:
        await levels(bench)
        await bench.node(gpus=1)
        await bench.claim("shared")
        policy = {"schedulingPolicy": {"gang": {"minCount": 2}}, "priorityClassName": level}
        claims = [{"name": "gpu", "resourceClaimName": "shared"}]
        await bench.create(GROUPS, {"metadata": {"name": "old"}, "spec": {**policy, "resourceClaims": claims}})
        for name in ("old-0", "old-1"):
            await bench.pod(name, group="old", claim="shared", priorityClassName=level)
        await bench.eventually_bound("old-0", "old-1", seconds=1)
        await bench.claim("urgent")
        await bench.pod("urgent", claim="urgent", priorityClassName="high")
        await asyncio.sleep(2)
        assert await going(bench) == ({"old-0", "old-1"} if level == "low" else set())
        await bench.kill()
        await bench.api.patch(PODS, "urgent", {"status": {"nominatedNodeName": "n1"}}, NS, "merge", "status")
        for name in ("old-0", "old-1"):
            await bench.delete(name)
        await bench.start_scheduler()
        await asyncio.sleep(15)
        assert bool(await bench.node_of("urgent")) == (level == "low")
        assert bool(await bench.allocation("shared")) == (level == "higher")

    play(scenario)


@pytest.mark.parametrize("before_death", [0, 1], ids=["all are marked, none is deleted", "one is deleted"])
def test_eviction_of_a_group_goes_on_after_a_restart_though_who_was_deleted_is_gone_by_then(before_death: int) -> None:
    """The scheduler dies in the middle; the preemptor and a member are gone when the next one starts."""

    async def scenario(bench: Bench) -> None:
        await levels(bench)
        await bench.node(cpu=3)
        policy = {"schedulingPolicy": {"gang": {"minCount": 3}}, "disruptionMode": "PodGroup"}
        await bench.create(GROUPS, {"metadata": {"name": "old"}, "spec": {**policy, "priorityClassName": "low"}})
        names = ("old-0", "old-1", "old-2")
        for name in names:
            await bench.pod(name, group="old", priorityClassName="low")
        await bench.eventually_bound(*names, seconds=1)
        deleted = 0

        def is_refused(method: str, path: str) -> bool:
            nonlocal deleted
            deleted += method == "DELETE"
            return method == "DELETE" and deleted > before_death

        bench.faulty.kinds, bench.faulty.rate, bench.faulty.only = ("refuse 503",), 1.0, is_refused
        await bench.pod("urgent", priorityClassName="high")
        await asyncio.sleep(0.3)
        gone = await going(bench) or {names[0]}
        assert len(await going(bench)) == before_death
        for name in names:
            assert (await bench.condition(PODS, name, "DisruptionTarget"))["status"] == "True"
        await bench.kill()
        bench.faulty.rate = 0.0
        for name in gone:
            await bench.delete(name)
        await bench.delete("urgent")
        await bench.start_scheduler()
        await asyncio.sleep(2)
        assert await going(bench) == set(names) - gone

    play(scenario)


def test_preemptor_runs_and_the_rest_of_a_group_goes_though_the_scheduler_dies_between_the_deletions() -> None:
    """Once the first member is gone, nobody needs the others' places: they go since their eviction had begun."""

    async def scenario(bench: Bench) -> None:
        await levels(bench)
        await bench.node(cpu=3)
        old = await gang(bench, "old", 3, "low", mode="PodGroup", cpu="1")
        await bench.eventually_bound(*old, seconds=1)
        deletions: list[str] = []

        def is_refused(method: str, path: str) -> bool:
            deletions.extend([path] if method == "DELETE" else [])
            return method == "DELETE" and len(deletions) > 1

        bench.faulty.kinds, bench.faulty.rate, bench.faulty.only = ("refuse 503",), 1.0, is_refused
        await bench.pod("urgent", priorityClassName="high")
        await asyncio.sleep(0.3)
        (first,) = await going(bench)
        await bench.kill()
        await bench.delete(first)
        bench.faulty.rate = 0.0
        await bench.start_scheduler()
        await bench.eventually_bound("urgent", seconds=2)
        assert await going(bench) == {*old} - {first}

    play(scenario)


def test_eviction_of_a_group_that_began_before_a_restart_is_tried_until_it_succeeds() -> None:
    """The scheduler died after its first mark; the next one can mark no other for far longer than it would else try."""

    async def scenario(bench: Bench) -> None:
        old = await occupied_by_gang(bench, "old", 3)
        await bench.kill()
        mark = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
        await bench.api.patch(PODS, old[1], {"status": {"conditions": [mark]}}, NS, "strategic", "status")
        bench.faulty.kinds, bench.faulty.rate = ("refuse 503",), 1.0
        bench.faulty.only = lambda method, path: method == "PATCH" and path.endswith(f"/{old[0]}/status")
        await bench.start_scheduler()
        await asyncio.sleep(30)
        bench.faulty.rate = 0.0
        await asyncio.sleep(6)
        assert await going(bench) == {*old}

    play(scenario)


def test_members_made_anew_are_not_evicted_after_a_restart_while_one_that_was_evicted_is_still_going() -> None:
    async def scenario(bench: Bench) -> None:
        await levels(bench)
        await bench.node("n1")
        old = await gang(bench, "old", 2, "low", mode="PodGroup", cpu="2")
        await bench.eventually_bound(*old, seconds=1)
        where = {"nodeSelector": {"kubernetes.io/hostname": "n1"}}
        await bench.pod("urgent", cpu="4", priorityClassName="high", **where)
        await asyncio.sleep(2)
        assert await going(bench) == {*old}
        await bench.delete(old[0])
        await bench.node("n2")
        for name in ("new-0", "new-1"):
            await bench.pod(name, cpu="2", group="old", priorityClassName="low")
        await bench.eventually_bound("new-0", "new-1")
        await bench.kill()
        await bench.start_scheduler()
        await asyncio.sleep(20)
        assert await going(bench) == {old[1]}

    play(scenario)


def test_eviction_of_one_pod_of_a_group_takes_no_other_after_a_restart() -> None:
    async def scenario(bench: Bench) -> None:
        await levels(bench)
        await bench.node(cpu=3)
        policy = {"schedulingPolicy": {"basic": {}}, "priorityClassName": "low"}
        await bench.create(GROUPS, {"metadata": {"name": "old"}, "spec": policy})
        old = [f"old-{number}" for number in range(3)]
        for name in old:
            await bench.pod(name, group="old", priorityClassName="low")
        await bench.eventually_bound(*old, seconds=1)
        await bench.pod("urgent", priorityClassName="high")
        await asyncio.sleep(1)
        (first,) = await going(bench)
        await bench.kill()
        await bench.start_scheduler()
        await asyncio.sleep(20)
        assert await going(bench) == {first}

    play(scenario)


@pytest.mark.parametrize("size", [0, 2], ids=["pod", "gang"])
def test_half_a_gang_of_less_importance_is_evicted_as_soon_as_it_is_whole(size: int) -> None:
    """While a member has a promised place, that is kept from everybody, and the other member is evicted in vain."""

    async def scenario(bench: Bench) -> None:
        await levels(bench)
        for name in ("n1", "n2"):
            await bench.node(name)
        await bench.gang("w", 2, priorityClassName="low")
        await bench.pod("runs", cpu="4", group="w", priorityClassName="low", nodeName="n1")
        await bench.pod("promised", cpu="4", group="w", priorityClassName="low", schedulerName="somebody")
        await bench.api.patch(PODS, "promised", {"status": {"nominatedNodeName": "n2"}}, NS, "merge", "status")
        if size:
            await gang(bench, "urgent", size, "high")
        else:
            where = {"nodeSelector": {"kubernetes.io/hostname": "n2"}}
            await bench.pod("urgent", cpu="4", priorityClassName="high", **where)
        await asyncio.sleep(20)
        assert not await going(bench)
        target = {"apiVersion": "v1", "kind": "Node", "name": "n2"}
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "promised"}, "target": target}
        await bench.api.create_subresource(PODS, "promised", "binding", binding, NS)
        await asyncio.sleep(2)
        assert await going(bench) == ({"runs", "promised"} if size else {"promised"})

    play(scenario)


def test_preemptor_is_not_tried_before_its_devices_are_free() -> None:
    """Each attempt in vain would lengthen its backoff, for which less important work does not wait."""

    async def scenario(bench: Bench) -> None:
        await levels(bench)
        await bench.node(cpu=16, gpus=4)
        for name in ("a", "b"):
            await bench.claim(name, count=2)
            await bench.pod(name, claim=name, priorityClassName="low")
        await bench.started("a", "b")
        await bench.claim("urgent", count=4)
        await bench.pod("urgent", claim="urgent", priorityClassName="high")
        await asyncio.sleep(30)
        assert await going(bench) == {"a", "b"}
        attempts = bench.metric("scheduler_schedule_attempts_total")
        for name in ("a", "b"):
            await bench.delete(name)
            await asyncio.sleep(20)
        assert bench.metric("scheduler_schedule_attempts_total") == attempts
        for name in ("a", "b"):
            free = {"status": {"allocation": None, "reservedFor": None}}
            await bench.api.patch(CLAIMS, name, free, NS, "merge", "status")
        await bench.eventually_bound("urgent", seconds=3.0)

    play(scenario)
