"""What gang scheduling promises, situation by situation, on the live scheduler in virtual time.

Holds, lone replacements, kills between bindings and groups that stay True are in `test_scheduler_loop`.
"""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
from scheduler_bench import CLAIMS, DRIVER, GROUPS, NODES, NS, PODS, SLICES, Bench, play

from haru.kube.kinds import known_kind

PRIORITY_CLASSES = known_kind("scheduling.k8s.io/v1", "PriorityClass")
ATTEMPTS = "scheduler_podgroup_schedule_attempts_total"
Obj = dict[str, Any]


async def bound(bench: Bench, *names: str) -> list[str]:
    """Those of the pods that have a node."""
    return [name for name in names if await bench.node_of(name)]


async def members(bench: Bench, group: str, *names: str, **spec: Any) -> None:
    for name in names:
        await bench.pod(name, group=group, **spec)


def test_members_created_before_group_wait_for_it() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.node()
        await members(bench, "late", "a", "b")
        await asyncio.sleep(30)
        assert await bound(bench, "a", "b") == []
        assert bench.metric("scheduler_schedule_attempts_total") == 0
        held = await bench.condition(PODS, "a", "PodScheduled")
        assert held["message"] == 'waiting for pods\'s pod group "late" to appear in scheduling queue'
        await bench.gang("late", 2)
        await bench.eventually_bound("a", "b", seconds=1)

    play(scenario)


def test_three_of_four_members_are_bound_with_min_count_two() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.node(cpu=3)
        await bench.gang("g", 2)
        names = ["a", "b", "c", "d"]
        await members(bench, "g", *names)
        await asyncio.sleep(20)
        assert len(await bound(bench, *names)) == 3
        assert (await bench.condition(GROUPS, "g", "PodGroupScheduled"))["status"] == "True"

    play(scenario)


def test_basic_group_binds_one_of_three_pods() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.node(cpu=1)
        await bench.create(GROUPS, {"metadata": {"name": "g"}, "spec": {"schedulingPolicy": {"basic": {}}}})
        await members(bench, "g", "a", "b", "c")
        await asyncio.sleep(20)
        assert len(await bound(bench, "a", "b", "c")) == 1
        group = await bench.condition(GROUPS, "g", "PodGroupScheduled")
        assert (group["status"], group["reason"]) == ("True", "Scheduled")

    play(scenario)


def test_replacement_member_is_bound_alone() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.node(cpu=3, gpus=3)
        await bench.gang("g", 3)
        for name in ("a", "b", "c"):
            await bench.claim(name)
            await bench.pod(name, group="g", claim=name)
        await bench.eventually_bound("a", "b", "c")
        before = {name: await bench.allocation(name) for name in ("a", "c")}
        await bench.delete("b")
        claim = await bench.api.get(CLAIMS, "b", NS)
        claim["status"] = {}
        await bench.api.update_status(CLAIMS, claim)
        await bench.claim("new")
        await bench.pod("new", group="g", claim="new")
        await bench.eventually_bound("new", seconds=15)
        assert {name: await bench.allocation(name) for name in ("a", "c")} == before
        assert len({str((await bench.allocation(name))["devices"]) for name in ("a", "c", "new")}) == 3

    play(scenario)


def test_two_replacement_members_are_bound_together() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.node()
        await bench.gang("g", 3)
        await members(bench, "g", "a", "b", "c")
        await bench.eventually_bound("a", "b", "c")
        await bench.delete("a")
        await bench.delete("b")
        await bench.pod("d", group="g")
        await asyncio.sleep(30)
        assert await bound(bench, "c", "d") == ["c"]
        held = await bench.condition(PODS, "d", "PodScheduled")
        assert held["message"] == "waiting for minCount pods from a gang to appear in scheduling queue"
        await bench.pod("e", group="g")
        await bench.eventually_bound("d", "e", seconds=2)

    play(scenario)


def test_gang_that_loses_a_member_while_it_waits_is_held_and_not_tried() -> None:
    """A node that comes would wake it, for a decision that tells what 1.36 does not tell."""

    async def scenario(bench: Bench) -> None:
        await bench.node("n1")
        await bench.gang("g", 2)
        for name in ("a", "b"):
            await bench.pod(name, cpu="3", group="g")
        await asyncio.sleep(5)
        assert (await bench.condition(PODS, "a", "PodScheduled"))["reason"] == "Unschedulable"
        before = (await bench.condition(GROUPS, "g", "PodGroupScheduled"))["message"]
        await bench.delete("b")
        await bench.node("n2")
        await asyncio.sleep(30)
        assert (await bench.condition(GROUPS, "g", "PodGroupScheduled"))["message"] == before
        assert (await bench.condition(PODS, "a", "PodScheduled"))["reason"] == "NotReadyForScheduling"
        await bench.pod("c", cpu="3", group="g")
        await bench.eventually_bound("a", "c")

    play(scenario)


def test_failing_binding_of_one_member_is_retried() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.node(gpus=3)
        await bench.gang("g", 3)
        refused = 0

        def the_second(method: str, path: str) -> bool:
            nonlocal refused
            refused += path.endswith("/b/binding")
            return path.endswith("/b/binding") and refused <= 3

        bench.faulty.rate, bench.faulty.only = 1.0, the_second
        bench.faulty._rng.choice = lambda kinds: "refuse 500"  # type: ignore[method-assign]
        for name in ("a", "b", "c"):
            await bench.claim(name)
            await bench.pod(name, group="g", claim=name)
        await bench.eventually_bound("a", "c", seconds=5)
        await bench.eventually_bound("b", seconds=30)
        assert refused > 3
        assert len({str((await bench.allocation(name))["devices"]) for name in ("a", "b", "c")}) == 3

    play(scenario)


# -- claims -----------------------------------------------------------------------------------------------------------


def test_members_get_different_devices() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.node(gpus=8)
        await bench.gang("g", 4)
        for name in "abcd":
            await bench.claim(name, count=2)
            await bench.pod(name, group="g", claim=name)
        await bench.eventually_bound(*"abcd")
        results = [r for name in "abcd" for r in (await bench.allocation(name))["devices"]["results"]]
        assert sorted(r["device"] for r in results) == [f"gpu-{i}" for i in range(8)]

    play(scenario)


async def two_racks(bench: Bench, *sizes: int) -> None:
    """Racks of nodes for one pod each; one device per rack, for all of its nodes."""
    for rack, size in zip("ab", sizes, strict=True):
        for number in range(size):
            name = f"{rack}{number}"
            await bench.node(name, cpu=1)
            await bench.api.patch(NODES, name, {"metadata": {"labels": {"rack": rack}}})
        terms = [{"matchExpressions": [{"key": "rack", "operator": "In", "values": [rack]}]}]
        pool = {"name": f"fabric-{rack}", "generation": 1, "resourceSliceCount": 1}
        spec = {
            "driver": DRIVER,
            "pool": pool,
            "nodeSelector": {"nodeSelectorTerms": terms},
            "devices": [{"name": "x"}],
        }
        await bench.create(SLICES, {"metadata": {"name": f"slice-{rack}"}, "spec": spec})


async def sharing_gang(bench: Bench, size: int) -> None:
    await bench.claim("shared")
    uses = [{"name": "gpu", "resourceClaimName": "shared"}]
    spec = {"schedulingPolicy": {"gang": {"minCount": size}}, "resourceClaims": uses}
    await bench.create(GROUPS, {"metadata": {"name": "g"}, "spec": spec})
    for number in range(size):
        await bench.pod(f"p{number}", group="g", claim="shared")


def test_members_stay_in_rack_of_shared_device() -> None:
    async def scenario(bench: Bench) -> None:
        await two_racks(bench, 3, 4)
        await sharing_gang(bench, 4)
        names = [f"p{i}" for i in range(4)]
        await bench.eventually_bound(*names)
        assert {await bench.node_of(name) for name in names} == {"b0", "b1", "b2", "b3"}
        status = (await bench.api.get(CLAIMS, "shared", NS))["status"]
        group = await bench.api.get(GROUPS, "g", NS)
        reference = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "g"}
        assert status["reservedFor"] == [{**reference, "uid": group["metadata"]["uid"]}]
        assert status["allocation"]["devices"]["results"][0]["pool"] == "fabric-b"

    play(scenario)


def test_shared_claim_of_pending_gang_is_not_allocated() -> None:
    async def scenario(bench: Bench) -> None:
        await two_racks(bench, 3, 3)
        await sharing_gang(bench, 4)
        await asyncio.sleep(20)
        assert await bound(bench, *(f"p{i}" for i in range(4))) == []
        claim = await bench.api.get(CLAIMS, "shared", NS)
        assert not claim.get("status") and not claim["metadata"].get("finalizers")
        await bench.node("b3", cpu=1)
        await bench.api.patch(NODES, "b3", {"metadata": {"labels": {"rack": "b"}}})
        await bench.eventually_bound(*(f"p{i}" for i in range(4)))

    play(scenario)


@pytest.mark.nightly
def test_three_hundred_members_share_one_claim_reserved_for_group() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.node(cpu=400, gpus=1)
        amounts = {"cpu": "400", "memory": "16Gi", "pods": "400"}
        status = {"status": {"capacity": amounts, "allocatable": amounts}}
        await bench.api.patch(NODES, "n1", status, "", "merge", "status")
        await sharing_gang(bench, 300)
        await bench.eventually_bound(*(f"p{i}" for i in range(300)), seconds=60)
        reserved = (await bench.api.get(CLAIMS, "shared", NS))["status"]["reservedFor"]
        assert [entry["resource"] for entry in reserved] == ["podgroups"]

    play(scenario)


# -- gangs against each other -----------------------------------------------------------------------------------------


def once_or_a_hundred_times() -> list[Any]:
    return [pytest.param(5, id="few"), pytest.param(100, id="many", marks=pytest.mark.nightly)]


@pytest.mark.parametrize("rounds", once_or_a_hundred_times())
def test_exactly_one_of_two_gangs_is_bound_whole(rounds: int) -> None:
    async def scenario(bench: Bench) -> None:
        await bench.node("n1", cpu=2)
        await bench.node("n2", cpu=2)
        for number in range(rounds):
            names = {gang: [f"{gang}-{i}" for i in range(3)] for gang in (f"x{number}", f"y{number}")}
            for gang in names:
                await bench.gang(gang, 3)
            # Both at the same time, one member of each in turn: four places for six.
            await asyncio.gather(*(bench.pod(each[i], group=g) for i in range(3) for g, each in names.items()))
            await asyncio.sleep(3)
            ends = sorted([len(await bound(bench, *each)) for each in names.values()])
            assert ends == [0, 3], f"round {number}"
            for each in names.values():
                for name in each:
                    await bench.delete(name)

    play(scenario)


def test_two_of_four_interleaved_gangs_are_bound_and_others_follow() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.node("n1", cpu=4, gpus=4)
        await bench.node("n2", cpu=4, gpus=3)
        gangs = {gang: [f"{gang}{i}" for i in range(3)] for gang in "abcd"}
        for gang in gangs:
            await bench.gang(gang, 3)
        for number in range(3):
            for gang, names in gangs.items():
                await bench.claim(names[number])
                await bench.pod(names[number], group=gang, claim=names[number])
        await asyncio.sleep(20)
        ends = {gang: len(await bound(bench, *names)) for gang, names in gangs.items()}
        assert sorted(ends.values()) == [0, 0, 3, 3]
        for gang, count in ends.items():
            for name in gangs[gang] if count else ():
                await bench.delete(name)
                claim = await bench.api.get(CLAIMS, name, NS)
                claim["status"] = {}
                await bench.api.update_status(CLAIMS, claim)
        waiting = [name for gang, count in ends.items() if not count for name in gangs[gang]]
        await bench.eventually_bound(*waiting, seconds=20)

    play(scenario)


def test_higher_priority_members_are_placed_first() -> None:
    """Two of three have room; the third, whose priority is lowest, waits - also when it came first."""

    async def scenario(bench: Bench) -> None:
        for name, value in (("high", 10), ("middle", 5)):
            await bench.create(PRIORITY_CLASSES, {"metadata": {"name": name}, "value": value})
        await bench.node(cpu=2)
        await bench.gang("g", 2)
        await bench.kill()
        await bench.pod("low", group="g")
        for name in ("middle", "high"):
            await bench.pod(name, group="g", priorityClassName=name)
        await bench.start_scheduler()
        await bench.eventually_bound("high", "middle")
        await asyncio.sleep(15)
        assert await bound(bench, "low") == []

    play(scenario)


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.nightly) for seed in range(2, 8))])
def test_ten_contending_gangs_all_finish(seed: int) -> None:
    """Random sizes and priorities, room for the largest only; what is bound runs for a while and is gone."""

    async def scenario(bench: Bench) -> None:
        rng = random.Random(seed)
        for value in range(3):
            await bench.create(PRIORITY_CLASSES, {"metadata": {"name": f"c{value}"}, "value": value + 1})
        for number in range(3):
            await bench.node(f"n{number}", cpu=2)
        gangs = {f"g{i}": [f"g{i}-{m}" for m in range(rng.randint(2, 6))] for i in range(10)}
        todo = [(gang, name, f"c{rng.randrange(3)}") for gang, names in gangs.items() for name in names]
        rng.shuffle(todo)
        for gang, names in gangs.items():
            await bench.gang(gang, len(names))
        for gang, name, priority in todo:
            await bench.pod(name, group=gang, priorityClassName=priority)
            await asyncio.sleep(rng.random() / 10)
        left, rounds = dict(gangs), 0
        while left:
            rounds += 1
            assert rounds < 200, f"{sorted(left)} never ran"
            await asyncio.sleep(1)
            for gang, names in list(left.items()):
                there = await bound(bench, *names)
                if there and len(there) < len(names):  # we may have looked between two of its bindings
                    await asyncio.sleep(1)
                    there = await bound(bench, *names)
                assert len(there) in (0, len(names)), f"{gang} is bound by halves"
                if there:
                    del left[gang]
                    for name in names:
                        await bench.delete(name)
        assert bench.metric(ATTEMPTS) < 10 * 40

    play(scenario)


# -- members that have finished ---------------------------------------------------------------------------------------


async def finish(bench: Bench, name: str, phase: str) -> None:
    await bench.api.patch(PODS, name, {"status": {"phase": phase}}, NS, "merge", "status")


@pytest.mark.parametrize("counted", [True, False])
def test_replacement_waits_unless_succeeded_members_count(counted: bool) -> None:
    """One has finished, one has failed: as 1.36 counts, three are too few for ever."""

    async def scenario(bench: Bench) -> None:
        await bench.node()
        annotations = {"haru.dev/count-succeeded": "true"} if counted else {}
        spec = {"schedulingPolicy": {"gang": {"minCount": 4}}}
        await bench.create(GROUPS, {"metadata": {"name": "g", "annotations": annotations}, "spec": spec})
        await members(bench, "g", "a", "b", "c", "d")
        await bench.eventually_bound("a", "b", "c", "d")
        await finish(bench, "a", "Succeeded")
        await finish(bench, "b", "Failed")
        await bench.pod("e", group="g")
        if counted:
            await bench.eventually_bound("e", seconds=2)
        else:
            await asyncio.sleep(400)
            assert await bound(bench, "e") == []

    play(scenario)


def test_succeeded_members_count_after_restart_while_they_exist() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.node(cpu=8)
        spec = {"schedulingPolicy": {"gang": {"minCount": 3}}}
        counting = {"name": "g", "annotations": {"haru.dev/count-succeeded": "true"}}
        await bench.create(GROUPS, {"metadata": counting, "spec": spec})
        await members(bench, "g", "a", "b", "c")
        await bench.eventually_bound("a", "b", "c")
        for name in ("a", "b"):
            await finish(bench, name, "Succeeded")
        await bench.kill()
        await finish(bench, "c", "Failed")
        await bench.pod("d", group="g")
        await bench.start_scheduler()
        await bench.eventually_bound("d", seconds=2)
        for name in ("a", "b", "d"):
            await bench.delete(name)
        await bench.pod("e", group="g")
        await asyncio.sleep(30)
        assert await bound(bench, "e") == []  # nobody is there but itself

    play(scenario)


def test_rejected_gang_is_retried_when_a_member_succeeds() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.node(cpu=2)
        spec = {"schedulingPolicy": {"gang": {"minCount": 3}}}
        counting = {"name": "g", "annotations": {"haru.dev/count-succeeded": "true"}}
        await bench.create(GROUPS, {"metadata": counting, "spec": spec})
        await bench.pod("a", group="g", nodeName="n1")
        await members(bench, "g", "b", "c")
        await asyncio.sleep(5)
        assert await bound(bench, "b", "c") == []
        await finish(bench, "a", "Succeeded")
        await bench.eventually_bound("b", "c", seconds=15)

    play(scenario)
