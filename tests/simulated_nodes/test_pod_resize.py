"""Pods that are resized in place on simulated nodes: allocated when they fit, deferred until then."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from fleet_stage import Stage
from in_memory_client import InMemoryClient

from haru.kube.meta import get_condition
from haru.kube.pod_resize import in_turn
from haru.simulated_nodes.pod_workers import PODS

Obj = dict[str, Any]
NODE_CPU = 32


def container(cpu: int | str, name: str = "c", **more: Any) -> Obj:
    return {"name": name, "image": "i", "resources": {"requests": {"cpu": str(cpu)}}, **more}


async def started(stage: Stage, name: str, cpu: int, **spec: Any) -> Obj:
    await stage.pod(name, node="cpu-0", containers=[container(cpu)], **spec)
    return await stage.phase(name, "Running")


async def resize(client: InMemoryClient, name: str, cpu: int, generation: int) -> None:
    patch = {"metadata": {"generation": generation}, "spec": {"containers": [container(cpu)]}}
    await client.patch(PODS, name, patch, "default")


def told(pod: Obj) -> tuple[str, str]:
    """What the pod was allocated and what it has."""
    (status,) = pod["status"]["containerStatuses"]
    return status["allocatedResources"]["cpu"], status["resources"]["requests"]["cpu"]


def pending(pod: Obj) -> Obj:
    return get_condition(pod, "PodResizePending") or {}


async def has(stage: Stage, name: str, cpu: int) -> Obj:
    return await stage.client.until(
        lambda: (p := stage.stored(name)) and told(p) == (str(cpu), str(cpu)) and not pending(p) and p
    )


async def test_fitting_resize_is_allocated_at_once() -> None:
    stage = Stage()
    async with stage.running():
        pod = await started(stage, "p", 4)
        assert told(pod) == ("4", "4")
        await resize(stage.client, "p", 6, 2)
        resized = await has(stage, "p", 6)
        assert resized["status"]["observedGeneration"] == 2
    assert stage.reasons("p")[-2:] == ["ResizeStarted", "ResizeCompleted"]
    assert "Started" in stage.reasons("p") and resized["status"]["containerStatuses"][0]["restartCount"] == 0
    message = next(text for _, reason, text in stage.recorder.events if reason == "ResizeCompleted")
    what, _, summary = message.partition(": ")
    assert what == "Pod resize completed"
    assert json.loads(summary) == {
        "containers": [{"name": "c", "resources": {"requests": {"cpu": "6"}}}],
        "generation": 2,
    }


async def test_container_is_restarted_for_a_resource_whose_policy_says_so() -> None:
    stage = Stage()
    policy = [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]
    async with stage.running():
        first, second = container(4, "a", resizePolicy=policy), container(4, "b")
        await stage.pod("p", node="cpu-0", containers=[first, second])
        await stage.phase("p", "Running")
        resized = [container(6, "a", resizePolicy=policy), container(6, "b")]
        patch = {"metadata": {"generation": 2}, "spec": {"containers": resized}}
        await stage.client.patch(PODS, "p", patch, "default")

        def done() -> Obj | None:
            pod = stage.stored("p")
            statuses = pod["status"]["containerStatuses"] if pod else []
            are_resized = all(one["resources"]["requests"]["cpu"] == "6" for one in statuses)
            return pod if pod and are_resized and all(one["ready"] for one in statuses) else None

        pod = await stage.client.until(done)
    restarted, untouched = pod["status"]["containerStatuses"]
    assert (restarted["restartCount"], restarted["lastState"]["terminated"]["exitCode"]) == (1, 143)
    assert (untouched["restartCount"], untouched["lastState"]) == (0, {})
    assert pod["status"]["observedGeneration"] == 2
    told = [text for _, reason, text in stage.recorder.events if reason == "Killing"]
    assert told == ["Container a resize requires restart"]


async def test_resize_is_deferred_until_another_pod_ends() -> None:
    stage = Stage()
    async with stage.running():
        await started(stage, "p", 4)
        await started(stage, "other", NODE_CPU - 8)
        await resize(stage.client, "p", 10, 2)
        deferred = await stage.client.until(lambda: (p := stage.stored("p")) and pending(p) and p)
        condition = pending(deferred)
        assert (condition["status"], condition["reason"], condition["observedGeneration"]) == ("True", "Deferred", 2)
        assert condition["message"] == (
            "Node didn't have enough resource: cpu, requested: 10000, used: 24000, capacity: 32000"
        )
        assert told(deferred) == ("4", "4"), "the pod keeps what it has"
        await stage.pod("third", node="cpu-0", containers=[container(4)])
        await stage.phase("third", "Running")  # what is asked for, but not allocated, takes no room
        await stage.client.delete(PODS, "other", "default")
        await has(stage, "p", 10)
    (event,) = (text for name, reason, text in stage.recorder.events if (name, reason) == ("p", "ResizeDeferred"))
    assert event.startswith("Pod resize OutOfcpu: {")


async def test_reverted_deferred_resize_leaves_no_condition() -> None:
    stage = Stage()
    async with stage.running():
        await started(stage, "p", 4)
        await resize(stage.client, "p", NODE_CPU + 1, 2)
        await stage.client.until(lambda: pending(stage.stored("p") or {}))
        await resize(stage.client, "p", 4, 3)
        await has(stage, "p", 4)
    assert "ResizeStarted" not in stage.reasons("p")


async def test_concurrent_resizes_never_exceed_node() -> None:
    stage = Stage()
    async with stage.running():
        names = [f"p{number}" for number in range(4)]
        for name in names:
            await started(stage, name, 2)
        await asyncio.gather(*(resize(stage.client, name, 12, 2) for name in names))

        def settled() -> list[Obj] | None:
            pods = [stage.stored(name) or {} for name in names]
            return pods if all(pending(pod) or told(pod) == ("12", "12") for pod in pods) else None

        pods = await stage.client.until(settled)
        assert sorted(told(pod)[0] for pod in pods) == ["12", "12", "2", "2"]


async def test_shrinking_pod_lets_deferred_resize_proceed() -> None:
    stage = Stage()
    async with stage.running():
        await started(stage, "p", 4)
        await started(stage, "other", NODE_CPU - 8)
        await resize(stage.client, "p", 10, 2)
        await stage.client.until(lambda: pending(stage.stored("p") or {}))
        await resize(stage.client, "other", 8, 2)
        await has(stage, "p", 10)


async def test_allocated_resources_survive_restart_and_are_set_on_older_pods() -> None:
    stage = Stage()
    async with stage.running():
        await started(stage, "p", 4)
        await started(stage, "old", 4)
        await started(stage, "other", NODE_CPU - 10)
        await resize(stage.client, "p", 10, 2)
        await stage.client.until(lambda: pending(stage.stored("p") or {}))
    old = stage.stored("old") or {}
    statuses = [
        {name: value for name, value in one.items() if name not in ("resources", "allocatedResources")}
        for one in old["status"]["containerStatuses"]
    ]
    await stage.client.patch(PODS, "old", {"status": {"containerStatuses": statuses}}, "default")
    before = stage.reasons("p").count("ResizeDeferred")
    async with stage.running():
        await has(stage, "old", 4)
        await started(stage, "new", 2)  # there is room, since 10 are not allocated
        assert told(stage.stored("p") or {}) == ("4", "4")
    assert stage.reasons("p").count("ResizeDeferred") == before == 1


async def test_restarted_container_keeps_allocated_resources() -> None:
    stage = Stage()
    async with stage.running():
        await started(stage, "p", 4)
        await resize(stage.client, "p", NODE_CPU + 1, 2)
        await stage.client.until(lambda: pending(stage.stored("p") or {}))
        failing = {"metadata": {"annotations": {"simulated.haru.dev/fail": "0"}}}
        await stage.client.patch(PODS, "p", failing, "default")
        crashed = await stage.client.until(
            lambda: (p := stage.stored("p")) and p["status"]["containerStatuses"][0]["restartCount"] and p
        )
        assert told(crashed) == ("4", "4") and pending(crashed)


async def test_pod_level_resize_is_applied() -> None:
    stage = Stage()
    async with stage.running():
        await started(stage, "p", 4, resources={"requests": {"cpu": "6"}})
        patch = {"metadata": {"generation": 2}, "spec": {"resources": {"requests": {"cpu": "8"}}}}
        await stage.client.patch(PODS, "p", patch, "default")
        pod = await stage.client.until(
            lambda: (p := stage.stored("p")) and p["status"].get("allocatedResources") == {"cpu": "8"} and p
        )
        assert pod["status"]["resources"] == {"requests": {"cpu": "8"}}


def deferred(name: str, asked: int, held: int, since: int, priority: int = 0, guaranteed: bool = False) -> Obj:
    amounts = {"cpu": str(asked), "memory": "1"}
    resources = {"requests": amounts, **({"limits": amounts} if guaranteed else {})}
    status = {"name": "c", "resources": {"requests": {"cpu": str(held), "memory": "1"}}}
    condition = {"type": "PodResizePending", "lastTransitionTime": f"2026-01-01T00:00:{since:02}Z"}
    return {
        "metadata": {"name": name, "uid": name},
        "spec": {"priority": priority, "containers": [{"name": "c", "resources": resources}]},
        "status": {"conditions": [condition], "containerStatuses": [status]},
    }


def test_deferred_resizes_are_retried_by_priority_qos_and_age() -> None:
    pods = [
        deferred("late", 2, 1, 9),
        deferred("early", 2, 1, 1),
        deferred("guaranteed", 2, 1, 5, guaranteed=True),
        deferred("important", 2, 1, 8, priority=7),
        deferred("shrinks", 1, 2, 9),
    ]
    expected = ["shrinks", "important", "guaranteed", "early", "late"]
    assert [pod["metadata"]["name"] for pod in in_turn(pods)] == expected
