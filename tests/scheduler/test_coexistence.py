"""Schedulers that share devices: what is allocated twice is found, and given back by the one that wrote second."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scheduler_bench import CLAIMS, DRIVER, EVENTS, NS, PODS, Bench, play

import virtual_time
from delayed_watch import DelayedWatches
from haru.client.api import ApiClient
from haru.client.event_series import SeriesRecorder
from haru.engine.framework import DEFAULT_PROFILE
from haru.engine.state import Partition, partition_from
from haru.scheduler.config import scheduler_config
from haru.scheduler.configuration import Configuration
from haru.scheduler.scheduler import Scheduler

Obj = dict[str, Any]


class Schedulers(Bench):
    """Several schedulers, each of which sees the cluster through a late watch of its own."""

    def __init__(self, *names: str, delay: float = 0.0, confirm: Any = "auto", seed: int = 1) -> None:
        super().__init__(*names)
        self.delay, self.confirm, self.rng = delay, confirm, random.Random(seed)
        self.partitions: Mapping[str, Partition] = {}
        self.schedulers: dict[str, Scheduler] = {}
        self.watches: dict[str, DelayedWatches] = {}
        self.tasks: list[asyncio.Task[None]] = []

    async def start_scheduler(self) -> None:
        for name in self.names:
            await self.start_one(name)
        self.scheduler, self.task = self.schedulers[self.names[0]], self.tasks[0]

    async def start_one(self, name: str) -> None:
        monotonic = asyncio.get_running_loop().time
        config = scheduler_config(
            self.gates,
            (),
            configuration=Configuration({name: DEFAULT_PROFILE}, partition=self.partitions.get(name, Partition())),
            confirm_allocations=self.confirm,
            clock=virtual_time.now,
            monotonic=monotonic,
        )
        watches = self.watches[name] = DelayedWatches(self.server, self.rng, self.delay)
        recorder = SeriesRecorder(self.api, name, now=virtual_time.now, monotonic=monotonic)
        scheduler = Scheduler(ApiClient.in_process(watches, "admin"), config, recorder)
        self.schedulers[name] = scheduler
        self.tasks.append(asyncio.create_task(scheduler.run()))
        await scheduler.ready.wait()

    async def kill(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        self.tasks.clear()

    def counted(self, name: str, metric: str) -> float:
        lines = self.schedulers[name].metrics.text().decode().splitlines()
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(f"{metric} "))

    async def holders(self) -> Counter[str]:
        """Devices by how many claims with a bound pod hold them."""
        bound = {p["metadata"]["uid"] for p in (await self.api.list(PODS, NS))["items"] if p["spec"].get("nodeName")}
        held: Counter[str] = Counter()
        for claim in (await self.api.list(CLAIMS, NS))["items"]:
            status = claim.get("status") or {}
            if any(entry["uid"] in bound for entry in status.get("reservedFor") or ()):
                held.update(f"{r['pool']}/{r['device']}" for r in status["allocation"]["devices"]["results"])
        return held

    async def allocate(self, claim: str, device: str, pod: Obj, pool: str = "n1") -> Obj:
        """As another scheduler writes it."""
        result = {"request": "r", "driver": DRIVER, "pool": pool, "device": device}
        user = {"resource": "pods", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}
        status = {"allocation": {"devices": {"results": [result]}}, "reservedFor": [user]}
        return await self.api.patch(CLAIMS, claim, {"status": status}, NS, "merge", "status")

    async def bind(self, pod: str, node: str = "n1") -> None:
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod}, "target": {"name": node}}
        await self.api.create_subresource(PODS, pod, "binding", binding, NS)

    async def foreign(self, number: int, device: str) -> Obj:
        """A pod of a scheduler that is not here, with a claim that has a device."""
        await self.claim(f"foreign-{number}")
        pod = await self.pod(f"foreign-{number}", claim=f"foreign-{number}", schedulerName="elsewhere")
        await self.allocate(f"foreign-{number}", device, pod)
        return pod

    async def events(self, reason: str) -> list[Obj]:
        return [e for e in (await self.api.list(EVENTS, NS))["items"] if e["reason"] == reason]


async def race(bench: Schedulers, pods: int, devices: int) -> Counter[str]:
    """Both schedulers are given as many pods as there are devices, at once; then everything settles."""
    await bench.node("n1", cpu=100, gpus=devices)
    await bench.foreign(0, "gpu-0")
    await bench.bind("foreign-0")
    await asyncio.sleep(1 + bench.delay)
    for number in range(pods):
        for name in bench.names:
            await bench.claim(f"{name}-{number}")
            await bench.pod(f"{name}-{number}", cpu="10m", claim=f"{name}-{number}", schedulerName=name)
    await asyncio.sleep(60)
    return await bench.holders()


@settings(max_examples=4, deadline=None)
@given(seed=st.integers(0, 2**16), delay=st.sampled_from([0.05, 0.5, 2.0]), pods=st.integers(2, 6))
def test_two_schedulers_that_mend_leave_no_device_with_two_bound_holders(seed: int, delay: float, pods: int) -> None:
    async def scenario(bench: Bench) -> None:
        assert isinstance(bench, Schedulers)
        devices = pods + 2
        held = await race(bench, pods, devices)
        assert max(held.values()) == 1, held
        # Nobody waits while a device is free.
        assert len(held) == min(devices, 2 * pods + 1)

    play(scenario, bench=Schedulers("one", "two", delay=delay, seed=seed))


def test_two_schedulers_that_do_not_mend_give_devices_out_twice() -> None:
    async def scenario(bench: Bench) -> None:
        assert isinstance(bench, Schedulers)
        held = await race(bench, 6, 8)
        assert max(held.values()) == 2
        assert bench.counted("one", "haru_scheduler_devices_allocated_twice") > 0
        assert bench.counted("one", "haru_scheduler_allocations_given_back_total") == 0

    play(scenario, bench=Schedulers("one", "two", delay=0.5, confirm="never"))


def test_scheduler_alone_on_its_devices_confirms_nothing() -> None:
    async def scenario(bench: Bench) -> None:
        assert isinstance(bench, Schedulers)
        await bench.node("n1", cpu=100, gpus=8)
        for number in range(8):
            await bench.claim(f"c{number}")
            await bench.pod(f"p{number}", cpu="10m", claim=f"c{number}", schedulerName="one")
        await bench.eventually_bound(*[f"p{number}" for number in range(8)])
        for metric in ("allocations_confirmed_total", "foreign_allocations", "devices_allocated_twice"):
            assert bench.counted("one", f"haru_scheduler_{metric}") == 0

    play(scenario, bench=Schedulers("one"))


def test_pods_are_confirmed_only_while_foreign_claims_are_there() -> None:
    async def scenario(bench: Bench) -> None:
        assert isinstance(bench, Schedulers)
        await bench.node("n1", cpu=100, gpus=8)
        await bench.foreign(0, "gpu-7")
        await bench.bind("foreign-0")
        await asyncio.sleep(1)
        for name, confirmed in (("a", 1), ("b", 1)):
            await bench.claim(name)
            await bench.pod(name, cpu="10m", claim=name, schedulerName="one")
            await bench.eventually_bound(name)
            assert bench.counted("one", "haru_scheduler_allocations_confirmed_total") == confirmed
            assert bench.counted("one", "haru_scheduler_foreign_allocations") == (name == "a")
            if name == "a":
                await bench.delete("foreign-0")
                await bench.api.patch(CLAIMS, "foreign-0", {"status": None}, NS, "merge", "status")
                await asyncio.sleep(1)

    play(scenario, bench=Schedulers("one"))


def test_allocation_after_a_foreign_one_is_given_back_and_its_pod_goes_elsewhere() -> None:
    async def scenario(bench: Bench) -> None:
        assert isinstance(bench, Schedulers)
        await bench.node("n1", cpu=100, gpus=3)
        await bench.foreign(0, "gpu-2")
        await asyncio.sleep(1)
        bench.watches["one"].open.clear()
        await bench.claim("ours")
        await bench.foreign(1, "gpu-0")
        bench.watches["one"].open.set()
        await bench.pod("ours", claim="ours", schedulerName="one")
        await bench.eventually_bound("ours", seconds=30)
        results = (await bench.allocation("ours"))["devices"]["results"]
        assert [r["device"] for r in results] == ["gpu-1"]

    play(scenario, bench=Schedulers("one", delay=0.0))


@pytest.mark.parametrize("foreign_is_bound", [True, False])
def test_after_a_restart_the_claim_of_a_bound_pod_wins(foreign_is_bound: bool) -> None:
    """The scheduler died after it had written an allocation; another one has given the device out as well, later."""

    async def scenario(bench: Bench) -> None:
        assert isinstance(bench, Schedulers)
        await bench.node("n1", cpu=100, gpus=2)
        await bench.kill()
        await bench.claim("ours")
        pod = await bench.pod("ours", claim="ours", schedulerName="one")
        await bench.allocate("ours", "gpu-0", pod)
        await bench.foreign(0, "gpu-0")
        if foreign_is_bound:
            await bench.bind("foreign-0")
        await bench.start_one("one")
        bench.task = bench.tasks[0]
        await bench.eventually_bound("ours", seconds=60)
        results = (await bench.allocation("ours"))["devices"]["results"]
        assert [r["device"] for r in results] == ["gpu-1" if foreign_is_bound else "gpu-0"]

    play(scenario, bench=Schedulers("one"))


def test_device_with_two_holders_is_reported_within_a_second_to_both_sides() -> None:
    async def scenario(bench: Bench) -> None:
        assert isinstance(bench, Schedulers)
        await bench.node("n1", cpu=100, gpus=2)
        for number in range(2):
            await bench.foreign(number, "gpu-0")
            await bench.bind(f"foreign-{number}")
        await asyncio.sleep(1)
        told = {
            (e["involvedObject"]["kind"], e["involvedObject"]["name"])
            for e in await bench.events("DeviceAllocatedTwice")
        }
        assert told == {(kind, f"foreign-{n}") for kind in ("Pod", "ResourceClaim") for n in range(2)}
        assert bench.counted("one", "haru_scheduler_devices_allocated_twice") == 1
        assert bench.counted("one", "haru_scheduler_double_allocations_total") == 1
        await bench.delete("foreign-1")
        await bench.api.patch(CLAIMS, "foreign-1", {"status": None}, NS, "merge", "status")
        await asyncio.sleep(1)
        assert bench.counted("one", "haru_scheduler_devices_allocated_twice") == 0

    play(scenario, bench=Schedulers("one"))


def test_bound_pods_of_other_schedulers_with_devices_are_warned_of_once() -> None:
    async def scenario(bench: Bench) -> None:
        assert isinstance(bench, Schedulers)
        await bench.node("n1", cpu=100, gpus=4)
        await bench.pod("plain", schedulerName="elsewhere")
        await bench.bind("plain")
        for number in range(2):
            await bench.foreign(number, f"gpu-{number}")
            await bench.bind(f"foreign-{number}")
        await asyncio.sleep(1)
        assert sorted(e["involvedObject"]["name"] for e in await bench.events("ForeignScheduler")) == [
            "foreign-0",
            "foreign-1",
        ]
        line = 'haru_scheduler_foreign_pods{scheduler_name="elsewhere"}'
        assert bench.counted("one", line) == 2
        await bench.delete("foreign-0")
        await asyncio.sleep(1)
        assert bench.counted("one", line) == 1

    play(scenario, bench=Schedulers("one"))


def test_two_partitioned_schedulers_stay_on_their_own_devices() -> None:
    async def scenario(bench: Bench) -> None:
        assert isinstance(bench, Schedulers)
        for node in ("n1", "n2"):
            await bench.node(node, cpu=100, gpus=4)
        for number in range(4):
            for name in bench.names:
                await bench.claim(f"{name}-{number}")
                await bench.pod(f"{name}-{number}", cpu="10m", claim=f"{name}-{number}", schedulerName=name)
        await bench.eventually_bound(*[f"{name}-{n}" for name in bench.names for n in range(4)])
        assert {await bench.node_of(f"one-{n}") for n in range(4)} == {"n1"}
        assert {await bench.node_of(f"two-{n}") for n in range(4)} == {"n2"}
        for name in bench.names:
            assert bench.counted(name, "haru_scheduler_foreign_allocations") == 0
            assert bench.counted(name, "haru_scheduler_allocations_confirmed_total") == 0
        await bench.claim("late")
        await bench.pod("late", cpu="10m", claim="late", schedulerName="one")
        await asyncio.sleep(2)
        message = (await bench.condition(PODS, "late", "PodScheduled"))["message"]
        assert "1 node(s) were outside this scheduler's partition" in message

    bench = Schedulers("one", "two", delay=0.5)
    bench.partitions = {
        "one": partition_from({"nodeSelector": "kubernetes.io/hostname=n1"}),
        "two": partition_from({"pools": ["n2"]}),
    }
    play(scenario, bench=bench)
