"""Gangs of other projects on servers without PodGroups of Kubernetes: bound whole or not at all."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import foreign_objects as made
import pytest
from foreign_definitions import definition
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from preemption_objects import PRIORITIES
from scheduler_bench import GROUPS, NS, PODS, Bench, Obj, play
from test_older_servers import OlderServer

from haru.client.discovery import adapt_to_server
from haru.gangs import KINDS, foreign_kind
from haru.kube.gates import FeatureGates
from haru.kube.kinds import Kind, known_kind

DEFINITIONS = known_kind("apiextensions.k8s.io/v1", "CustomResourceDefinition")


async def define(bench: Bench, *names: str) -> None:
    """Have the server serve these kinds, by their keys; without any, all that some adapter reads."""
    for each in KINDS:
        if not names or each.key in names:
            await bench.api.create(DEFINITIONS, definition(each), "")
    await adapt_to_server(bench.api)
    await asyncio.sleep(2)


async def write(bench: Bench, *objects: Obj) -> None:
    for obj in objects:
        custom = foreign_kind(obj)
        stripped = {**obj, "metadata": {k: v for k, v in obj["metadata"].items() if k != "uid"}}
        if custom is not None:
            await bench.api.create(custom.as_kind(obj["apiVersion"].rpartition("/")[2]), stripped, NS)
            continue
        requests = {"requests": {"cpu": "1"}}
        spec = {**stripped["spec"], "containers": [{"name": "c", "image": "i", "resources": requests}]}
        await bench.api.create(PODS, {**stripped, "spec": spec}, NS)


async def bound(bench: Bench) -> set[str]:
    items = (await bench.api.list(PODS, NS))["items"]
    return {pod["metadata"]["name"] for pod in items if pod["spec"].get("nodeName")}


def holds(bench: Bench) -> set[str]:
    """Why pods are held, as the dump of the queue has it."""
    return {message for unit in bench.scheduler.dump().units for message in unit.reasons.values()}


GANGS = {
    "coscheduling": (made.coscheduling("g", 3), *(made.grouped(f"p{n}", "g") for n in range(3))),
    "jobset": (
        made.job_set("t", made.replicated_job("d", 1, 1), made.replicated_job("w", 1, 2)),
        *(made.job_set_pod(f"p{n}", "t", "d" if n == 0 else "w") for n in range(3)),
    ),
    "leaderworkerset": (made.leader_worker_set("s", 3), *(made.lws_pod(f"p{n}", "s", 0, n, 3) for n in range(3))),
    "kuberay": (
        made.ray_cluster("r", {"replicas": 2}),
        *(made.ray_pod(f"p{n}", "r", "worker" if n else "head") for n in range(3)),
    ),
    "kubeflow": (
        made.training_job("PyTorchJob", "j", "pytorchReplicaSpecs", {"Master": 1, "Worker": 2}),
        *(made.training_pod(f"p{n}", "j", "pytorchjob-controller") for n in range(3)),
    ),
    "mpijob": (made.mpi_job("m", 2), *(made.training_pod(f"p{n}", "m", "mpi-operator") for n in range(3))),
    "kueue": tuple(made.kueue_pod(f"p{n}", "k", 3) for n in range(3)),
}


@pytest.mark.parametrize(
    "bench", [OlderServer(34), OlderServer(33), OlderServer(36)], ids=("1.34", "1.33", "1.36 with gates off")
)
def test_every_kind_of_gang_waits_whole_and_is_bound_whole(bench: Bench) -> None:
    async def scenario(bench: Bench) -> None:
        assert bench.gates.minor == 36 or not bench.api.version.serves(GROUPS)
        await define(bench)
        for number, (name, objects) in enumerate(GANGS.items()):
            await bench.node(f"n{number}", cpu=2)
            await write(bench, *objects)
            await asyncio.sleep(15)
            assert await bound(bench) == set(), name
            condition = await bench.condition(PODS, "p0", "PodScheduled")
            assert condition["reason"] == "Unschedulable", (name, condition)
            await bench.node(f"more-{number}", cpu=1)
            await bench.eventually_bound("p0", "p1", "p2")
            for pod in ("p0", "p1", "p2"):
                await bench.delete(pod)
            await bench.api.delete(known_kind("v1", "Node"), f"n{number}", "")
            await bench.api.delete(known_kind("v1", "Node"), f"more-{number}", "")

    play(scenario, bench=bench)


def test_leader_of_new_revision_waits_for_its_own_workers_and_not_beside_those_of_the_last() -> None:
    async def scenario(bench: Bench) -> None:
        await define(bench, "LeaderWorkerSet.leaderworkerset.x-k8s.io")
        await bench.node("n1", cpu=3)
        old = [made.lws_pod(f"old-{n}", "s", 0, n, 3, "a") for n in range(3)]
        await write(bench, made.leader_worker_set("s", 3), *old)
        await bench.eventually_bound("old-0", "old-1", "old-2")
        await bench.delete("old-0")  # as an update of the leaders' StatefulSet does; its workers go later
        await write(bench, made.lws_pod("new-0", "s", 0, 0, 3, "b"))
        await asyncio.sleep(15)
        assert await bound(bench) == {"old-1", "old-2"}
        await write(bench, *(made.lws_pod(f"new-{n}", "s", 0, n, 3, "b") for n in (1, 2)))
        await bench.delete("old-1")
        await bench.delete("old-2")
        await bench.eventually_bound("new-0", "new-1", "new-2")

    play(scenario, bench=OlderServer(34))


def test_gang_of_four_waits_for_devices_and_starts_when_they_come() -> None:
    async def scenario(bench: Bench) -> None:
        await define(bench, "PodGroup.scheduling.x-k8s.io")
        await bench.node("n1", cpu=8, gpus=3)
        await write(bench, made.coscheduling("g", 4))
        for number in range(4):
            await bench.claim(f"c{number}")
            claims = [{"name": "gpu", "resourceClaimName": f"c{number}"}]
            await write(bench, made.grouped(f"p{number}", "g", resourceClaims=claims))
        await asyncio.sleep(30)
        assert await bound(bench) == set()
        assert [await bench.allocation(f"c{number}") for number in range(4)] == [{}] * 4
        await bench.node("n2", cpu=8, gpus=1)
        await bench.eventually_bound("p0", "p1", "p2", "p3")

    play(scenario, bench=OlderServer(34))


def test_too_few_members_and_missing_object_hold_pods_until_they_come() -> None:
    async def scenario(bench: Bench) -> None:
        await define(bench, "PodGroup.scheduling.x-k8s.io")
        await bench.node("n1", cpu=8)
        await write(bench, made.grouped("a", "g"), made.grouped("b", "g"))
        await asyncio.sleep(20)
        assert await bound(bench) == set()
        message = 'waiting for pods\'s pod group "podgroup:g" to appear in scheduling queue'
        assert holds(bench) == {message}
        await write(bench, made.coscheduling("g", 3))
        await asyncio.sleep(20)
        assert await bound(bench) == set()
        assert holds(bench) == {"waiting for minCount pods from a gang to appear in scheduling queue"}
        await write(bench, made.grouped("c", "g"))
        await bench.eventually_bound("a", "b", "c")

    play(scenario, bench=OlderServer(34))


def test_lower_min_member_releases_members_that_wait() -> None:
    async def scenario(bench: Bench) -> None:
        await define(bench, "PodGroup.scheduling.x-k8s.io")
        await bench.node("n1", cpu=8)
        await write(bench, made.coscheduling("g", 3), made.grouped("a", "g"), made.grouped("b", "g"))
        await asyncio.sleep(10)
        assert await bound(bench) == set()
        group = foreign_kind(made.coscheduling("g", 3))
        assert group is not None
        await bench.api.patch(group.as_kind("v1alpha1"), "g", {"spec": {"minMember": 2}}, NS)
        await bench.eventually_bound("a", "b")

    play(scenario, bench=OlderServer(34))


@pytest.mark.parametrize("minimum", [1, 4, None], ids=["enough run", "too few are there", "object is deleted"])
def test_gang_that_keeps_its_promised_places_no_longer_wakes_who_is_more_important(minimum: int | None) -> None:
    """Of three members that are needed one runs, and one is promised a place, which is kept from everybody."""

    async def scenario(bench: Bench) -> None:
        await define(bench, "PodGroup.scheduling.x-k8s.io")
        await bench.create(PRIORITIES, {"metadata": {"name": "high"}, "value": 9, "preemptionPolicy": "Never"})
        await bench.node("n1", cpu=3)
        group = foreign_kind(made.coscheduling("g", 3))
        assert group is not None
        await write(bench, made.coscheduling("g", 3))
        for name in ("runs", "promised", "third"):
            label = {"scheduling.x-k8s.io/pod-group": "g"}
            spec = {"nodeName": "n1"} if name == "runs" else {"schedulerName": "somebody"}
            container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
            pod = {"metadata": {"name": name, "labels": label}, "spec": {"containers": [container], **spec}}
            await bench.create(PODS, pod)
        await bench.api.patch(PODS, "promised", {"status": {"nominatedNodeName": "n1"}}, NS, "merge", "status")
        await bench.pod("p", cpu="2", priorityClassName="high")
        await asyncio.sleep(31)
        assert not await bench.node_of("p")
        if minimum is None:
            await bench.api.delete(group.as_kind("v1alpha1"), "g", NS)
        else:
            await bench.api.patch(group.as_kind("v1alpha1"), "g", {"spec": {"minMember": minimum}}, NS)
        await bench.eventually_bound("p", seconds=1.0)

    play(scenario, bench=OlderServer(34))


def test_job_set_that_waits_for_kueue_is_tried_once_its_gates_go() -> None:
    async def scenario(bench: Bench) -> None:
        await define(bench)
        await bench.node("n1", cpu=8)
        gate = [{"name": "kueue.x-k8s.io/topology"}]
        await write(bench, made.job_set("t", made.replicated_job("w", 1, 2)))
        await write(bench, *(made.job_set_pod(f"p{n}", "t", "w", schedulingGates=gate) for n in range(2)))
        await bench.api.patch(PODS, "p0", {"spec": {"schedulingGates": None}}, NS)
        await asyncio.sleep(20)
        assert await bound(bench) == set()
        await bench.api.patch(PODS, "p1", {"spec": {"schedulingGates": None}}, NS)
        await bench.eventually_bound("p0", "p1")

    play(scenario, bench=OlderServer(34))


def test_pod_that_replaces_member_starts_beside_those_that_run_or_have_succeeded() -> None:
    async def scenario(bench: Bench) -> None:
        await define(bench)
        await bench.node("n1", cpu=8)
        await write(bench, *GANGS["jobset"])
        await bench.started("p0", "p1", "p2")
        await bench.api.patch(PODS, "p0", {"status": {"phase": "Succeeded"}}, NS, "merge", "status")
        await bench.delete("p1")
        await bench.delete("p2")
        await write(bench, *(made.job_set_pod(name, "t", "w") for name in ("q1", "q2")))
        await bench.eventually_bound("q1", "q2")

    play(scenario, bench=OlderServer(34))


def test_pods_of_last_attempt_that_still_terminate_do_not_complete_restarted_job_set() -> None:
    """JobSet makes each Job again as soon as its predecessor is gone, whatever is left of the others."""

    async def scenario(bench: Bench) -> None:
        await define(bench)
        await bench.node("n1", cpu=8)
        await write(bench, made.job_set("t", made.replicated_job("w", 3, 1)))
        await write(bench, *(made.job_set_pod(f"p{n}", "t", "w", attempt=0) for n in range(3)))
        await bench.started("p0", "p1", "p2")
        for name in ("p0", "p1"):
            await bench.api.delete(PODS, name, NS)
        await write(bench, made.job_set_pod("q2", "t", "w", attempt=1))
        await asyncio.sleep(20)
        assert "q2" not in await bound(bench)
        await write(bench, *(made.job_set_pod(name, "t", "w", attempt=1) for name in ("q0", "q1")))
        await bench.eventually_bound("q0", "q1", "q2")

    play(scenario, bench=OlderServer(34))


def test_gang_is_evicted_whole_for_higher_priority() -> None:
    async def scenario(bench: Bench) -> None:
        await define(bench)
        await bench.node("n1", cpu=3)
        await write(bench, *GANGS["jobset"])
        await bench.started("p0", "p1", "p2")
        classes = known_kind("scheduling.k8s.io/v1", "PriorityClass")
        await bench.create(classes, {"metadata": {"name": "high"}, "value": 100})
        high = [made.grouped(f"h{n}", "h", priorityClassName="high") for n in range(2)]
        await write(bench, made.coscheduling("h", 2), *high)
        await asyncio.sleep(5)
        for name in ("p0", "p1", "p2"):
            pod = await bench.api.get(PODS, name, NS)
            assert pod["metadata"].get("deletionTimestamp"), name
            await bench.delete(name)
        await bench.eventually_bound("h0", "h1")

    play(scenario, bench=OlderServer(34))


def test_adapters_that_are_turned_off_leave_pods_alone() -> None:
    class Off(OlderServer):
        def adapters(self) -> frozenset[str]:
            return frozenset({"jobset"})

    async def scenario(bench: Bench) -> None:
        await define(bench)
        await bench.node("n1", cpu=1)
        await write(bench, made.coscheduling("g", 2), made.grouped("a", "g"), made.grouped("b", "g"))
        await asyncio.sleep(10)
        assert len(await bound(bench)) == 1

    play(scenario, bench=Off(34))


def test_labels_without_their_definition_and_native_groups_work_as_before() -> None:
    class Native(Bench):
        def __init__(self) -> None:
            super().__init__()
            self.gates = FeatureGates.accelerator_defaults()

    async def scenario(bench: Bench) -> None:
        await bench.node("n1", cpu=2)
        await write(bench, made.grouped("alone", "g"))
        await bench.eventually_bound("alone")
        await define(bench)
        await bench.gang("own", 2)
        own = {"schedulingGroup": {"podGroupName": "own"}}
        await write(bench, made.coscheduling("g", 1), *(made.grouped(f"p{n}", "g", **own) for n in range(2)))
        await asyncio.sleep(10)
        assert await bound(bench) == {"alone"}
        assert (await bench.condition(GROUPS, "own", "PodGroupScheduled"))["reason"] == "Unschedulable"
        await bench.node("n2", cpu=2)
        await bench.eventually_bound("p0", "p1")

    play(scenario, bench=Native())


def test_kind_that_may_not_be_listed_leaves_its_pods_alone(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def nothing_but_definitions(_: Any, of: Kind) -> bool:
        return of.kind == "CustomResourceDefinition"

    async def scenario(bench: Bench) -> None:
        await bench.node("n1", cpu=1)
        await define(bench, "JobSet.jobset.x-k8s.io")
        await write(bench, *GANGS["jobset"])
        await asyncio.sleep(10)
        assert len(await bound(bench)) == 1

    monkeypatch.setattr("haru.scheduler.events.foreign_gangs.may_list", nothing_but_definitions)
    play(scenario, bench=OlderServer(34))
    told = "jobsets.jobset.x-k8s.io may not be listed: its gangs are not scheduled as such"
    assert [record.message for record in caplog.records].count(told) == 1


# --- whatever comes in whatever order, no gang runs below its minCount

MEMBERS = {name: objects for name, objects in GANGS.items() if name != "mpijob"}


def _renamed(objects: Sequence[Obj], name: str) -> list[Obj]:
    def changed(obj: Obj) -> Obj:
        if obj["kind"] != "Pod":
            return obj
        return {**obj, "metadata": {**obj["metadata"], "name": f"{name}-{obj['metadata']['name']}"}}

    return [changed(obj) for obj in objects]


@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_gang_never_runs_below_min_count(data: st.DataObject) -> None:
    names = data.draw(st.lists(st.sampled_from(sorted(MEMBERS)), min_size=1, max_size=4, unique=True), "gangs")
    events: list[Any] = [obj for name in names for obj in _renamed(MEMBERS[name], name)]
    order = data.draw(st.permutations(events), "order")
    sizes = data.draw(st.lists(st.integers(0, 4), min_size=1, max_size=4), "nodes")
    gone = data.draw(st.lists(st.sampled_from(order), max_size=2, unique_by=id), "deleted")

    async def scenario(bench: Bench) -> None:
        await define(bench)
        ever: dict[str, set[str]] = defaultdict(set)
        for number, cpu in enumerate(sizes):
            await bench.node(f"n{number}", cpu=cpu)
            share = len(order) * number // len(sizes), len(order) * (number + 1) // len(sizes)
            await write(bench, *order[slice(*share)])
            await asyncio.sleep(12)
            for pod in await bound(bench):
                ever[pod.rpartition("-")[0]].add(pod)
            assert all(len(members) == 3 for members in ever.values()), ever
        for obj in gone:
            if obj["kind"] == "Pod":
                await bench.delete(obj["metadata"]["name"])
        await asyncio.sleep(12)
        for pod in await bound(bench):
            ever[pod.rpartition("-")[0]].add(pod)
        assert all(len(members) == 3 for members in ever.values()), ever

    play(scenario, bench=OlderServer(34))
