"""Heartbeats of simulated nodes: under load, after an outage of the API, and when a node controller gave a node up.

All in virtual time; figures are seconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections import defaultdict
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import uvloop
from in_memory_client import InMemoryClient, named

import virtual_time
from haru.client.api import ApiClient
from haru.clock import Clock
from haru.embedded.cluster import EmbeddedCluster
from haru.embedded.identity import ADMIN
from haru.embedded.options import UpOptions, parse_profiles
from haru.fair_loop import FairLoop
from haru.kube.kinds import Kind
from haru.kube.meta import get_condition
from haru.simulated_nodes.fleet import Fleet
from haru.simulated_nodes.heartbeats import Heartbeats
from haru.simulated_nodes.nodes import LEASES, NODES
from haru.simulated_nodes.pod_workers import PODS
from haru.testing.virtual_time import VirtualTimeLoop

Obj = dict[str, Any]


class Recorder:
    def event(self, *_: Any, **__: Any) -> None:
        pass


class Hasty(ApiClient):
    """A view of an API whose writes are given up after a while."""

    def __init__(self, api: Api, timeout: float) -> None:
        self._api, self._seconds = api, timeout

    async def create(self, *args: Any, **options: Any) -> Obj:
        async with asyncio.timeout(self._seconds):
            return await self._api.create(*args, **options)

    async def patch(self, *args: Any, **options: Any) -> Obj:
        async with asyncio.timeout(self._seconds):
            return await self._api.patch(*args, **options)


class Api(InMemoryClient):
    """An API that can be away, and slow with some kinds; it notes when each Lease was renewed."""

    def __init__(self) -> None:
        super().__init__()
        self.away = asyncio.Event()
        self.silent = asyncio.Event()
        self.slow: dict[str, float] = {}
        self.renewals: dict[str, list[float]] = defaultdict(list)

    def hasty(self, timeout: float) -> ApiClient:
        return Hasty(self, timeout)

    def _check(self) -> None:
        if self.away.is_set():
            raise ConnectionError("away")

    async def _reach(self) -> None:
        """Connections that were open when the network broke stay open, and nothing ever comes on them."""
        self._check()
        if self.silent.is_set():
            await asyncio.sleep(30)
            raise TimeoutError("silent")

    async def list(self, *args: Any, **options: Any) -> Obj:
        await self._reach()
        return await super().list(*args, **options)

    async def get(self, *args: Any, **options: Any) -> Obj:
        await self._reach()
        return await super().get(*args, **options)

    async def watch(self, *args: Any, **options: Any) -> AsyncIterator[tuple[str, Obj]]:  # type: ignore[override]
        await self._reach()
        events = aiter(super().watch(*args, **options))
        gone, mute = asyncio.ensure_future(self.away.wait()), asyncio.ensure_future(self.silent.wait())
        while True:
            event = asyncio.ensure_future(anext(events))
            try:
                await asyncio.wait({event, gone, mute}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                if not event.done():
                    event.cancel()
            self._check()
            if mute.done():
                await asyncio.Event().wait()
            yield event.result()

    async def create(self, kind: Kind, obj: Obj, *args: Any, **options: Any) -> Obj:
        await self._reach()
        created = await super().create(kind, obj, *args, **options)
        self._note(kind, created)
        return created

    async def patch(self, kind: Kind, name: str, *args: Any, **options: Any) -> Obj:
        await self._reach()
        await asyncio.sleep(self.slow.get(kind.plural, 0.0))
        patched = await super().patch(kind, name, *args, **options)
        self._note(kind, patched)
        return patched

    def _note(self, kind: Kind, obj: Obj) -> None:
        if kind == LEASES:
            self.renewals[obj["metadata"]["name"]].append(asyncio.get_running_loop().time())

    # -- as a test looks on -------------------------------------------------------------------------------------------

    def is_ready(self, node: str) -> bool:
        return (get_condition(self.objects["nodes", "", node], "Ready") or {}).get("status") == "True"

    async def give_up(self, *nodes: str) -> None:
        """What a node controller writes for nodes that it has not heard of for too long."""
        unknown = [{"type": type_, "status": "Unknown"} for type_ in ("Ready", "MemoryPressure")]
        for node in nodes:
            patch = {"status": {"conditions": unknown}}
            await InMemoryClient.patch(self, NODES, node, patch, type="strategic", subresource="status")

    def longest_gap(self) -> float:
        """The longest time that a node's Lease was not renewed, up to now."""
        now = asyncio.get_running_loop().time()
        return max(b - a for times in self.renewals.values() for a, b in zip(times, [*times[1:], now], strict=True))


class Shared(Api):
    """An API on a processor that all requests share evenly: a request takes its seconds times how many there are."""

    def __init__(self) -> None:
        super().__init__()
        self.busy_seconds = 0.0
        self._present = 0

    async def patch(self, *args: Any, **options: Any) -> Obj:
        left = self.busy_seconds
        self._present += 1
        try:
            while left > 1e-9:
                await asyncio.sleep(0.05)
                left -= 0.05 / self._present
        finally:
            self._present -= 1
        return await super().patch(*args, **options)


@contextlib.asynccontextmanager
async def fleet(api: Api, nodes: str) -> AsyncIterator[Fleet]:
    clock = Clock(virtual_time.now, asyncio.get_running_loop().time)
    running = Fleet(api, named(nodes), clock, recorder=Recorder())  # type: ignore[arg-type]
    task = asyncio.create_task(running.run())
    try:
        await running.ready.wait()
        yield running
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def names(count: int) -> list[str]:
    return [f"cpu-{number}" for number in range(count)]


def test_node_marked_unknown_becomes_ready_at_next_heartbeat() -> None:
    async def story() -> None:
        api = Api()
        async with fleet(api, "cpu:2"):
            await asyncio.sleep(30)
            await api.give_up("cpu-0")
            assert not api.is_ready("cpu-0")
            await asyncio.sleep(1)
            assert api.is_ready("cpu-0")
            pressure = get_condition(api.objects["nodes", "", "cpu-0"], "MemoryPressure")
            assert pressure is not None and pressure["status"] == "False"

    virtual_time.run(story())


def test_pods_may_have_an_extended_resource_that_an_operator_writes_into_the_capacity_of_a_node() -> None:
    async def story() -> None:
        api = Api()

        async def write(amount: str | None) -> Obj:
            """The resources that pods may have ten seconds later."""
            patch = {"status": {"capacity": {"example.com/dongle": amount}}}
            await InMemoryClient.patch(api, NODES, "cpu-0", patch, type="strategic", subresource="status")
            await asyncio.sleep(11)
            allocatable: Obj = api.objects["nodes", "", "cpu-0"]["status"]["allocatable"]
            return allocatable

        async with fleet(api, "cpu:2"):
            before = await write(None)
            assert (await write("4")) == {**before, "example.com/dongle": "4"}
            request = {"resources": {"requests": {"example.com/dongle": "5"}}}
            pod = {"metadata": {"name": "p"}, "spec": {"nodeName": "cpu-0", "containers": [{"name": "c", **request}]}}
            await api.create(PODS, pod, "default")
            await asyncio.sleep(1)
            assert api.objects["pods", "default", "p"]["status"]["reason"] == "OutOfexample.com/dongle"
            assert (await write("1")) == {**before, "example.com/dongle": "1"}
            assert (await write(None)) == before

    virtual_time.run(story())


@pytest.mark.parametrize("count", [3, 400])
@pytest.mark.parametrize("given_up_after", [0.0, 2.0])
def test_nodes_are_ready_within_10_seconds_after_api_outage(count: int, given_up_after: float) -> None:
    async def story() -> None:
        api = Api()
        async with fleet(api, f"cpu:{count}"):
            await asyncio.sleep(60)
            api.away.set()
            await asyncio.sleep(120)
            api.away.clear()
            back = asyncio.get_running_loop().time()
            await asyncio.sleep(given_up_after)
            await api.give_up(*names(count))
            await asyncio.sleep(10 - given_up_after)
            assert all(api.is_ready(name) for name in names(count))
            late = [name for name in names(count) if not any(back <= time for time in api.renewals[name])]
            assert not late, f"{len(late)} Leases were not renewed by then"
            # What failed does not come in a burst afterwards.
            before = sum(map(len, api.renewals.values()))
            await asyncio.sleep(20)
            assert sum(map(len, api.renewals.values())) - before <= 2 * count + 1

    virtual_time.run(story())


@pytest.mark.parametrize(("count", "given_up_after"), [(1, 0.0), (16, 0.0), (16, 5.0), (60, 9.5)])
def test_nodes_are_ready_within_10_seconds_after_a_partition_that_closed_no_connection(
    count: int, given_up_after: float
) -> None:
    """A node controller that comes back later than the kubelets gives up nodes that have reported already."""

    async def story() -> None:
        api = Api()
        async with fleet(api, f"cpu:{count}"):
            await asyncio.sleep(60)
            api.silent.set()
            await asyncio.sleep(75)
            await api.give_up(*names(count))
            await asyncio.sleep(2)
            api.silent.clear()
            await asyncio.sleep(given_up_after)
            await api.give_up(*names(count))
            await asyncio.sleep(max(10 - given_up_after, 1.0))
            assert [name for name in names(count) if not api.is_ready(name)] == []

    virtual_time.run(story())


def test_nodes_become_ready_on_a_machine_that_serves_few_requests_at_a_time() -> None:
    """Requests share one processor: all together take longer, and who gives one up has wasted its share."""

    async def story() -> None:
        api = Shared()
        async with fleet(api, "cpu:200"):
            await asyncio.sleep(60)
            loop: Any = asyncio.get_running_loop()
            api.busy_seconds = 0.09
            loop._virtual.now += 75  # the process was stopped
            await api.give_up(*names(200))
            await asyncio.sleep(60)
            assert [name for name in names(200) if not api.is_ready(name)] == []

    virtual_time.run(story())


@pytest.mark.parametrize(("count", "period"), [(20, 10.0), (400, 20.0)])
def test_every_lease_is_renewed_within_its_period(count: int, period: float) -> None:
    async def story() -> None:
        api = Api()
        async with fleet(api, f"cpu:{count}"):
            labels = {"simulated.haru.dev/profile": "cpu"}
            for number in range(8):
                await asyncio.sleep(7)
                await api.create(NODES, {"metadata": {"name": f"young-{number}", "labels": labels}})
            await asyncio.sleep(50)
            assert len(api.renewals) == count + 8
            assert api.longest_gap() <= period + 0.1
            # Level, not in bursts: of any second about its share.
            seconds = [int(time) for times in api.renewals.values() for time in times if time > 30]
            assert max(map(seconds.count, set(seconds))) <= 2 * count / period + 2

    virtual_time.run(story())


def test_lease_renewals_are_not_delayed_by_other_writes() -> None:
    async def story() -> None:
        api = Api()
        async with fleet(api, "cpu:400"):
            api.slow = {"nodes": 25.0, "pods": 25.0}
            spec = {"nodeName": "cpu-1", "containers": [{"name": "c", "image": "i"}]}
            for number in range(100):
                await api.create(PODS, {"metadata": {"name": f"p-{number}"}, "spec": spec, "status": {}})
            await asyncio.sleep(400)  # all nodes report their status once
            assert api.longest_gap() <= 21

    virtual_time.run(story())


def test_slow_renewals_of_some_nodes_do_not_delay_others() -> None:
    async def story() -> None:
        api = Api()
        async with fleet(api, "cpu:400"):
            api.slow = {"leases": 2.0}
            await asyncio.sleep(300)
            assert api.longest_gap() <= 23

    virtual_time.run(story())


def test_overdue_renewals_are_sent_at_once_after_blocked_loop() -> None:
    async def story() -> None:
        api = Api()
        async with fleet(api, "cpu:400"):
            await asyncio.sleep(60)
            loop: Any = asyncio.get_running_loop()
            loop._virtual.now += 45  # nobody had a turn for so long
            await asyncio.sleep(1)
            assert all(loop.time() - times[-1] <= 20 for times in api.renewals.values())
            count = sum(map(len, api.renewals.values()))
            await asyncio.sleep(20)
            assert 400 <= sum(map(len, api.renewals.values())) - count <= 440

    virtual_time.run(story())


def test_paused_process_loses_no_node(tmp_path: Path) -> None:
    """Controllers and kubelets share one loop: after a pause both look at clocks that are far ahead."""

    async def story(loop: VirtualTimeLoop) -> None:
        cluster = EmbeddedCluster(
            UpOptions(profiles=parse_profiles("cpu:20"), listen=("127.0.0.1", 0)), tmp_path, loop.clock
        )
        try:
            await cluster.start()
            client = cluster.client(ADMIN)
            began = (await client.list(NODES))["metadata"]["resourceVersion"]
            for _ in range(3):
                loop.jump(100)
                await asyncio.sleep(0.1)
                loop.jump(5)
                await asyncio.sleep(0.1)
            lost = set()
            async with contextlib.aclosing(client.watch(NODES, resource_version=began, timeout_seconds=1)) as events:
                async for type_, node in events:
                    ready = get_condition(node, "Ready") or {}
                    if type_ == "MODIFIED" and ready.get("status") != "True":
                        lost.add(node["metadata"]["name"])
            assert not lost
        finally:
            await cluster.stop()

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, VirtualTimeLoop)
        runner.run(story(loop))


def test_offline_node_stays_unknown() -> None:
    async def story() -> None:
        api = Api()
        async with fleet(api, "cpu:2"):
            patch = {"metadata": {"annotations": {"simulated.haru.dev/offline": "true"}}}
            await api.patch(NODES, "cpu-0", patch)
            await asyncio.sleep(60)
            await api.give_up("cpu-0")
            await asyncio.sleep(400)
            assert not api.is_ready("cpu-0") and api.is_ready("cpu-1")
            back: Obj = {"metadata": {"annotations": {"simulated.haru.dev/offline": None}}}
            await api.patch(NODES, "cpu-0", back)
            await asyncio.sleep(1)
            assert api.is_ready("cpu-0")

    virtual_time.run(story())


def test_leases_due_at_nearly_the_same_time_are_renewed_together_and_in_time() -> None:
    sent: dict[str, list[float]] = defaultdict(list)

    async def scenario() -> None:
        async def send(node: str) -> None:
            sent[node].append(asyncio.get_running_loop().time())

        beats = Heartbeats("lease", send, lambda: 10.0, timeouts=(5.0, 5.0), gathered=0.05)
        began = asyncio.get_running_loop().time()
        for number in range(1000):
            beats.begin(f"n{number}")
        await asyncio.sleep(40.0)
        await beats.close()
        for times in sent.values():
            assert times[0] - began < 10.05
            assert all(9.9 < later - before < 10.1 for before, later in itertools.pairwise(times))

    virtual_time.run(scenario())
    assert len(sent) == 1000
    moments = {round(time, 4) for times in sent.values() for time in times}
    assert len(moments) <= 40 / 0.05 + 1


@pytest.mark.parametrize("loop", [asyncio.SelectorEventLoop, uvloop.new_event_loop, FairLoop])
def test_heartbeat_that_is_due_now_may_be_hastened(loop: Any) -> None:
    """A timer of uvloop that is due at once knows no time."""

    async def run() -> int:
        sent = 0

        async def send(_: str) -> None:
            nonlocal sent
            sent += 1

        beats = Heartbeats("lease", send, lambda: 3600.0, timeouts=(10.0, 10.0))
        beats.begin("a")
        for _ in range(3):
            beats.hasten("a")
        await asyncio.sleep(0.05)
        await beats.close()
        return sent

    with asyncio.Runner(loop_factory=loop) as runner:
        assert runner.run(run()) == 1
