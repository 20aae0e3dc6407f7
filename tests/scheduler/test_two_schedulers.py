"""Two schedulers on the same nodes, neither of which knows what the other is about to bind: the kubelet judges."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from scheduler_bench import NS, PODS, Bench

import virtual_time
from faulty_api import FaultyApi
from haru.client.api import ApiClient
from haru.client.event_series import SeriesRecorder
from haru.client.informer import Informer, Selection
from haru.engine.framework import DEFAULT_PROFILE, FitStrategy
from haru.kube.node_admission import admission_problem
from haru.scheduler.config import scheduler_config
from haru.scheduler.configuration import Configuration
from haru.scheduler.scheduler import Scheduler

Obj = dict[str, Any]
PLACES = 8
"""Pods that a node has room for."""


class Kubelets:
    """Admit what is bound, or refuse it; what was refused is made anew, as its controller would do."""

    def __init__(self, bench: Bench) -> None:
        self.api = bench.api
        self.admitted: dict[str, dict[str, Obj]] = {}
        self.refused: Counter[str] = Counter()
        self._bench = bench
        self._bound: asyncio.Queue[Obj] = asyncio.Queue()
        self._pods = Informer(bench.api, PODS, Selection(field_selector="spec.nodeName!="))
        self._pods.add_handler(self._bound.put_nowait, lambda old, new: None)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._pods.run())
            group.create_task(self._admit())

    async def _admit(self) -> None:
        while True:
            pod = await self._bound.get()
            name, node = pod["metadata"]["name"], pod["spec"]["nodeName"]
            there = self.admitted.setdefault(node, {})
            room = {"cpu": PLACES * 1000, "memory": 16 * 2**30 * 1000, "pods": 30_000}
            if admission_problem(pod, list(there.values()), room) is None:
                there[name] = pod
                await self._tell(name, "Running")
                continue
            self.refused[pod["spec"]["schedulerName"]] += 1
            await self._tell(name, "Failed")
            await self._bench.pod(f"{name}x", schedulerName=pod["spec"]["schedulerName"])

    async def _tell(self, name: str, phase: str) -> None:
        await self.api.patch(PODS, name, {"status": {"phase": phase}}, NS, "merge", "status")

    def running(self) -> int:
        return sum(len(pods) for pods in self.admitted.values())


def packing(name: str) -> Configuration:
    """Both fill the nodes in the same order, so that they meet."""
    return Configuration({name: replace(DEFAULT_PROFILE, fit=FitStrategy("MostAllocated"))})


async def a_second_scheduler(bench: Bench) -> asyncio.Task[None]:
    """Serves the name `two`, and has as slow a way to the API as the first one."""
    slow = FaultyApi(bench.server, random.Random(2), 1.0)
    slow.kinds, slow.only = bench.faulty.kinds, bench.faulty.only
    monotonic = asyncio.get_running_loop().time
    config = scheduler_config(
        bench.gates, (), configuration=packing("two"), clock=virtual_time.now, monotonic=monotonic
    )
    recorder = SeriesRecorder(bench.api, "two", now=virtual_time.now, monotonic=monotonic)
    scheduler = Scheduler(ApiClient.in_process(slow, "admin"), config, recorder)
    task = asyncio.create_task(scheduler.run())
    await scheduler.ready.wait()
    return task


async def share(bench: Bench, each: int) -> None:
    bench.faulty.kinds, bench.faulty.rate = ("slow",), 1.0
    bench.faulty.only = lambda method, path: path.endswith("/binding")
    for number in range(2 * each // PLACES):
        await bench.node(f"n{number:03}", cpu=PLACES)
    kubelets = Kubelets(bench)
    tasks = [await a_second_scheduler(bench), asyncio.create_task(kubelets.run())]
    try:
        for number in range(each):
            for name in ("one", "two"):
                await bench.pod(f"{name}-{number}", schedulerName=name)
        async with asyncio.timeout(600):
            while kubelets.running() < 2 * each:
                assert not any(task.done() for task in tasks)
                await asyncio.sleep(1)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    assert min(kubelets.refused["one"], kubelets.refused["two"]) > 0, "they never met"
    stored = [p for p in (await bench.api.list(PODS, NS))["items"] if p["status"]["phase"] == "Running"]
    assert Counter(p["spec"]["schedulerName"] for p in stored) == {"one": each, "two": each}
    assert max(Counter(p["spec"]["nodeName"] for p in stored).values()) == PLACES


@pytest.mark.parametrize("each", [20, pytest.param(1000, marks=pytest.mark.nightly)])
def test_two_schedulers_bind_all_pods_without_overcommit(each: int) -> None:
    async def run() -> None:
        bench = Bench("one")
        bench.configuration = packing("one")
        await bench.start()
        try:
            await share(bench, each)
        finally:
            await bench.stop()

    virtual_time.run(run())
