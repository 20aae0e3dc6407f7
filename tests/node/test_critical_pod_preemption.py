"""Lesser pods go for a critical one that their node has no room for, and it starts when they have ended."""

from __future__ import annotations

import asyncio
import math
import random
from collections import Counter
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from node_worker import loop_time as loop_time
from node_worker import node
from slow_runtime import SlowRuntime

import virtual_time
from haru.kube.pod_resize import Allocations
from haru.node.agent.agent import Agent
from haru.node.agent.evictions import Evictions
from haru.node.agent.options import NodeOptions
from haru.node.podworker.worker import PodWorker

Obj = dict[str, Any]
GONE = "Preempted in order to admit critical pod"


def pod(name: str, cpu: str, priority: int = 0, **spec: Any) -> Obj:
    containers = [{"name": "main", "resources": {"requests": {"cpu": cpu}}}]
    return {"metadata": {"name": name, "uid": name}, "spec": {"containers": containers, "priority": priority, **spec}}


class Worker:
    """The worker of a pod that runs, or is to."""

    def __init__(self, pod: Obj) -> None:
        self.uid, self.pod, self.evictable = pod["metadata"]["uid"], pod, pod
        self.evicted: list[tuple[str, str, float, str]] = []
        self.waits: tuple[list[str], float] | None = None
        self.rejected: tuple[str, str] | None = None

    def reject(self, reason: str, message: str) -> None:
        self.rejected = reason, message

    def evict(self, *why: Any) -> bool:
        self.evicted.append(why)
        return True

    def start_after(self, others: list[Worker], seconds: float) -> None:
        self.waits = [other.uid for other in others], seconds


class World:
    """An agent with four cores and these pods."""

    def __init__(self, directory: Path, *pods: Obj) -> None:
        self.agent = Agent(cast(Any, SimpleNamespace(shared=None)), NodeOptions("n", directory, directory))
        self.workers = {worker.uid: worker for worker in map(Worker, pods)}
        self.agent._workers = cast(Any, {uid: (worker, None) for uid, worker in self.workers.items()})
        self.events: list[tuple[str, str, str]] = []
        recorder = SimpleNamespace(event=self._event)
        self.agent.context = cast(
            Any,
            SimpleNamespace(
                allocatable={"cpu": "4", "memory": "1Gi", "pods": "110"},
                allocations=Allocations(),
                machine=SimpleNamespace(has_apparmor=False),
                recorder=SimpleNamespace(event=lambda *said: None),
            ),
        )
        self.agent._nodes = cast(Any, SimpleNamespace(get=lambda name: {"metadata": {"name": name}}))
        evictions = SimpleNamespace(context=SimpleNamespace(recorder=recorder), preemptions=Counter(), counts=Counter())
        evictions.preempt = partial(Evictions.preempt, evictions)
        evictions.pressure = SimpleNamespace(pressure=SimpleNamespace(conditions=()))
        self.evictions: Any = evictions
        self.agent.evictions = self.evictions

    def refusal(self, pod: Obj) -> tuple[str, str] | None:
        worker = self.workers[pod["metadata"]["uid"]] = Worker(pod)
        self.agent._admit(cast(Any, self.agent.context), pod, cast(PodWorker, worker))
        return worker.rejected

    def _event(self, about: Obj, type: str, reason: str, message: str, annotations: Any) -> None:
        self.events.append((about["metadata"]["name"], reason, message))


def test_critical_pod_takes_the_room_of_a_lesser_one_and_waits_for_its_end(tmp_path: Path) -> None:
    world = World(tmp_path, pod("a", "1"), pod("b", "2", terminationGracePeriodSeconds=20))
    assert world.refusal(pod("c", "3", 2_000_000_000)) is None
    condition = "Pod was preempted by Kubelet to accommodate a critical pod."
    assert world.workers["b"].evicted == [("Preempting", GONE, math.inf, condition)]
    assert (world.events, world.workers["c"].waits) == ([("b", "Preempting", GONE)], (["b"], 30.0))
    assert not world.workers["a"].evicted
    assert 'kubelet_preemptions{preemption_signal="cpu"} 1' in Evictions.lines(world.evictions)


@pytest.mark.parametrize(
    ("refused", "reason"),
    [
        (pod("c", "3"), "OutOfcpu"),
        (pod("c", "3", 2_000_000_000, nodeSelector={"zone": "b"}), "NodeAffinity"),
        (pod("c", "5", 2_000_000_000), "UnexpectedAdmissionError"),
    ],
)
def test_nobody_goes_for_a_pod_that_is_refused_all_the_same(tmp_path: Path, refused: Obj, reason: str) -> None:
    world = World(tmp_path, pod("a", "2"))
    found = world.refusal(refused)
    assert found is not None and found[0] == reason
    assert not world.events and not world.workers["a"].evicted


@pytest.mark.parametrize(("ends_after", "starts_after"), [(3, 3), (60, 10)])
def test_pod_starts_once_others_have_ended_or_the_time_is_over(
    tmp_path: Path, ends_after: float, starts_after: float
) -> None:
    other = SimpleNamespace(is_cleaned=False)

    async def body() -> float:
        async with node(SlowRuntime(random.Random(0), 0.0), tmp_path) as world:
            began = asyncio.get_running_loop().time()
            assert world.worker is not None
            world.worker.start_after([cast(PodWorker, other)], 10.0)
            asyncio.get_running_loop().call_later(ends_after, setattr, other, "is_cleaned", True)
            await world.until(lambda: world.runtime.running("main"))
            return asyncio.get_running_loop().time() - began

    assert round(virtual_time.run(body())) == pytest.approx(starts_after, abs=1)
