"""Every kind of change that can help a waiting pod wakes it, without waiting for the flush after five minutes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from preemption_objects import PRIORITIES
from scheduler_bench import CLAIMS, CLASSES, NODES, NS, PODS, Bench, play

from haru.kube.kinds import known_kind

Step = Callable[[Bench], Awaitable[Any]]


async def nothing(_: Bench) -> None:
    return None


async def full(bench: Bench) -> None:
    await bench.node(cpu=1)
    await bench.pod("other")
    await bench.eventually_bound("other")


async def taken(bench: Bench) -> None:
    """The only card is held by a claim without consumers."""
    await bench.node(gpus=1)
    await bench.claim("other")
    await bench.pod("user", claim="other")
    await bench.eventually_bound("user")
    await bench.delete("user")
    await bench.claim("mine")


async def free_claim(bench: Bench) -> None:
    await bench.api.patch(CLAIMS, "other", {"status": {"allocation": None, "reservedFor": None}}, NS, "merge", "status")


async def finish_other(bench: Bench) -> None:
    await bench.api.patch(PODS, "other", {"status": {"phase": "Succeeded"}}, NS, "merge", "status")


async def tolerate(bench: Bench) -> None:
    pod = await bench.api.get(PODS, "p", NS)
    pod["spec"].setdefault("tolerations", []).append({"key": "busy", "operator": "Exists"})
    await bench.api.update(PODS, pod)


def patch_node(patch: dict[str, Any]) -> Step:
    return lambda bench: bench.api.patch(NODES, "n1", patch)


BUSY = [{"key": "busy", "effect": "NoSchedule"}]
CASES: dict[str, tuple[Step, dict[str, Any], Step]] = {
    "a node is added": (nothing, {}, lambda b: b.node()),
    "a node is uncordoned": (lambda b: b.node(unschedulable=True), {}, patch_node({"spec": {"unschedulable": None}})),
    "a node is labelled": (
        lambda b: b.node(),
        {"nodeSelector": {"zone": "a"}},
        patch_node({"metadata": {"labels": {"zone": "a"}}}),
    ),
    "a taint goes": (lambda b: b.node(taints=BUSY), {}, patch_node({"spec": {"taints": None}})),
    "a node grows": (lambda b: b.node(cpu=1), {"cpu": "2"}, lambda b: b.size("n1", 4)),
    "a pod is deleted": (full, {}, lambda b: b.delete("other")),
    "a pod has finished": (full, {}, finish_other),
    "a claim is freed": (taken, {"claim": "mine"}, free_claim),
    "devices are added": (
        lambda b: asyncio.gather(b.node(), b.claim("mine")),
        {"claim": "mine"},
        lambda b: b.devices("n1", 1),
    ),
    "a device class is added": (
        lambda b: asyncio.gather(b.node(gpus=1), b.claim("mine", "late")),
        {"claim": "mine"},
        lambda b: b.create(CLASSES, {"metadata": {"name": "late"}, "spec": {}}),
    ),
    "a claim is created": (lambda b: b.node(gpus=1), {"claim": "mine"}, lambda b: b.claim("mine")),
    "a PodGroup is created": (lambda b: b.node(), {"group": "g"}, lambda b: b.gang("g", 1)),
    "the pod tolerates more": (lambda b: b.node(taints=BUSY), {}, tolerate),
    "the pod's gate goes": (
        lambda b: b.node(),
        {"schedulingGates": [{"name": "g"}]},
        lambda b: b.api.patch(PODS, "p", {"spec": {"schedulingGates": None}}, NS),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_change_wakes_rejected_pod(case: str) -> None:
    before, pod, change = CASES[case]

    async def scenario(bench: Bench) -> None:
        await before(bench)
        await bench.pod("p", **pod)
        await asyncio.sleep(31)  # no backoff runs any more, and the unit was looked at
        assert not await bench.node_of("p")
        attempts = bench.metric("scheduler_schedule_attempts_total")
        await asyncio.sleep(40)
        assert bench.metric("scheduler_schedule_attempts_total") == attempts, "it is tried without a reason"
        await change(bench)
        await bench.eventually_bound("p", seconds=3.0)  # a node comes in several writes: the first may wake in vain

    play(scenario)


def test_end_of_nomination_wakes_pod() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.node(cpu=1)
        await bench.pod("other", schedulerName="somebody")
        await bench.api.patch(PODS, "other", {"status": {"nominatedNodeName": "n1"}}, NS, "merge", "status")
        await bench.pod("p")
        await asyncio.sleep(31)
        assert not await bench.node_of("p")
        await bench.delete("other")
        await bench.eventually_bound("p", seconds=1.0)

    play(scenario)


def test_end_of_a_member_that_a_gang_needs_wakes_who_is_more_important() -> None:
    """Of three members one runs, and one is promised a place: as long as there are three it is kept from everybody."""

    async def scenario(bench: Bench) -> None:
        await bench.create(PRIORITIES, {"metadata": {"name": "high"}, "value": 9, "preemptionPolicy": "Never"})
        await bench.node(cpu=3)
        await bench.gang("w", 3)
        await bench.pod("runs", group="w", nodeName="n1")
        for name in ("promised", "third"):
            await bench.pod(name, group="w", schedulerName="somebody")
        await bench.api.patch(PODS, "promised", {"status": {"nominatedNodeName": "n1"}}, NS, "merge", "status")
        await bench.pod("p", cpu="2", priorityClassName="high")
        await asyncio.sleep(31)
        assert not await bench.node_of("p")
        await bench.delete("third")
        await bench.eventually_bound("p", seconds=1.0)

    play(scenario)


VOLUME_CLAIMS = known_kind("v1", "PersistentVolumeClaim")
VOLUMES = known_kind("v1", "PersistentVolume")


def test_volume_claim_wakes_only_pod_that_names_it() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.node()
        for name in ("p", "other"):
            await bench.pod(name, volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": name}}])
        await asyncio.sleep(31)
        assert not await bench.node_of("p")
        attempts = bench.metric("scheduler_schedule_attempts_total")
        room = {"accessModes": ["ReadWriteOnce"], "storageClassName": ""}
        claim = {**room, "resources": {"requests": {"storage": "1Gi"}}, "volumeName": "v"}
        reference = {"kind": "PersistentVolumeClaim", "namespace": NS, "name": "p"}
        source = {"csi": {"driver": "d", "volumeHandle": "v"}, "capacity": {"storage": "1Gi"}, "claimRef": reference}
        await bench.create(VOLUMES, {"metadata": {"name": "v"}, "spec": {**room, **source}})
        await bench.create(VOLUME_CLAIMS, {"metadata": {"name": "p"}, "spec": claim})
        bound = {"metadata": {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}}}
        await bench.api.patch(VOLUME_CLAIMS, "p", bound, NS)
        await bench.api.patch(VOLUME_CLAIMS, "p", {"status": {"phase": "Bound"}}, NS, "merge", "status")
        await bench.eventually_bound("p", seconds=12.0)
        await asyncio.sleep(31)
        unschedulable = bench.metric('scheduler_schedule_attempts_total{profile="default-scheduler",result="unsch')
        assert unschedulable <= attempts + 3, "only the pod that names it is tried, after each of its events"
        assert bench.queued("other").attempts == attempts / 2

    play(scenario)


def test_recreated_claim_wakes_pod() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.node(gpus=1)
        await bench.claim("mine", "late")
        await bench.pod("p", claim="mine")
        await asyncio.sleep(31)
        assert not await bench.node_of("p")
        await bench.api.delete(CLAIMS, "mine", NS)
        await asyncio.sleep(31)
        held = await bench.condition(PODS, "p", "PodScheduled")
        assert held["message"] == 'resourceclaim.resource.k8s.io "mine" not found'
        await bench.claim("mine")
        await bench.eventually_bound("p", seconds=3.0)

    play(scenario)


def test_irrelevant_changes_wake_no_pod() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.node(cpu=1)
        await bench.pod("p", cpu="2")
        await asyncio.sleep(31)
        attempts = bench.metric("scheduler_schedule_attempts_total")
        ready = {"type": "Ready", "status": "True"}
        await bench.api.patch(NODES, "n1", {"status": {"conditions": [ready]}}, "", "merge", "status")
        await bench.claim("unrelated")
        await asyncio.sleep(31)
        assert bench.metric("scheduler_schedule_attempts_total") == attempts

    play(scenario)


@pytest.mark.parametrize("size", [1, 2])
def test_who_waits_longest_gets_freed_devices(size: int) -> None:
    """Nobody is tried before the devices are free: a backoff, longer each time, lets younger work pass."""

    async def work(bench: Bench, name: str) -> None:
        if size > 1:
            await bench.gang(name, size)
        for number in range(size):
            await bench.claim(f"{name}-{number}")
            await bench.pod(f"{name}-{number}", group=name if size > 1 else "", claim=f"{name}-{number}")

    async def scenario(bench: Bench) -> None:
        await bench.node(gpus=size)
        await bench.claim("other")
        await bench.pod("holder", claim="other")
        await bench.eventually_bound("holder")
        await work(bench, "older")
        for number in range(4):
            await asyncio.sleep(12)
            await bench.node(f"empty-{number}")
        await asyncio.sleep(12)
        await work(bench, "younger")
        await asyncio.sleep(5)
        await bench.delete("holder")
        await asyncio.sleep(0.05)
        await free_claim(bench)
        await bench.eventually_bound("older-0", seconds=5.0)

    play(scenario)
