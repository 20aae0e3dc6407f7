"""What has gone leaves nothing behind: no object in a cache, and nothing that only a garbage collection frees."""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest
from engine_objects import claim, device_class, node, options, pod, resource_slice
from left_over import left_to_a_collection, objects_by_type
from scheduler_bench import CLAIMS, EVENTS, GROUPS, NS, Bench, play

import virtual_time
from haru.apiserver import background
from haru.apiserver.encoding import objects
from haru.cel.device import DeviceView, compile_device_selector
from haru.client.api import ApiClient
from haru.client.events import EventRecorder
from haru.controllers.base import slow_start
from haru.engine import SchedulerCache, decide
from haru.engine.equivalence import filter_results, node_class_index, prefilter_state
from haru.errors import raise_first
from haru.event_loop import SharedTimeout, bounded
from haru.kube.errors import StatusError
from haru.kube.kinds import Kind, known_kind
from haru.storage import history

Obj = dict[str, Any]
GANGS, MEMBERS = 3, 3
RECORDER = "haru.client.events."
NAMESPACES, MAPS = known_kind("v1", "Namespace"), known_kind("v1", "ConfigMap")
OF_PODS = ("haru.engine.state.pod_info.", "haru.engine.plugins.", "haru.scheduler.")


async def come_and_go(bench: Bench) -> None:
    """Gangs with claims, one of them too large, are bound, run and are deleted with all that belongs to them."""
    members = {f"gang-{gang}-{member}": f"gang-{gang}" for gang in range(GANGS) for member in range(MEMBERS)}
    for gang in [*dict.fromkeys(members.values()), "large"]:
        await bench.gang(gang, MEMBERS)
    for name, gang in {**members, **{f"large-{member}": "large" for member in range(MEMBERS)}}.items():
        await bench.claim(name, count=99 if gang == "large" else 1)
        await bench.pod(name, group=gang, claim=name)
    await bench.started(*members)
    for name in (*members, *(f"large-{member}" for member in range(MEMBERS))):
        await bench.delete(name)
        await bench.api.patch(CLAIMS, name, {"status": None}, NS, "merge", "status")
        await bench.api.patch(CLAIMS, name, {"metadata": {"finalizers": None}}, NS, "merge")
        await bench.api.delete(CLAIMS, name, NS)
    for gang in [*dict.fromkeys(members.values()), "large"]:
        await bench.api.patch(GROUPS, gang, {"metadata": {"finalizers": None}}, NS, "merge")
        await bench.api.delete(GROUPS, gang, NS)
    await asyncio.sleep(30)


def test_pods_that_have_gone_leave_nothing_in_the_scheduler_though_its_writes_fail() -> None:
    async def scenario(bench: Bench) -> None:
        for number in range(4):
            await bench.node(f"n{number}", cpu=8, gpus=4)
        bench.faulty.rate = 0.2
        for _ in range(2):
            await come_and_go(bench)
        first = objects_by_type()
        with left_to_a_collection() as garbage:
            for _ in range(4):
                await come_and_go(bench)
        assert sum(bench.faulty.counts.values()) > 30
        assert not garbage
        more = {kind: number - first[kind] for kind, number in objects_by_type().items() if kind.startswith(OF_PODS)}
        assert {kind: number for kind, number in more.items() if number >= GANGS * MEMBERS} == {}

    play(scenario)


MISSING = 'device.attributes["gpu.example.com"].missing == "x"'


@pytest.mark.parametrize("expression", ['device.driver == "gpu.example.com"', MISSING, f"{MISSING} || {MISSING}"])
def test_decision_leaves_nothing_to_a_collection_and_keeps_no_frames(expression: str) -> None:
    cache = SchedulerCache()
    for number in range(3):
        cache.apply(node(f"n{number}"))
        cache.apply(resource_slice(f"n{number}", 4))
    waiting = pod("p", claims=["c"])
    for obj in (device_class("gpu", [expression]), claim("c"), waiting):
        cache.apply(obj)
    with left_to_a_collection() as garbage:
        of_others = objects_by_type()["builtins.traceback"]
        for _ in range(3):
            decide(cache.snapshot(), [waiting], group=None, options=options())
        assert objects_by_type()["builtins.traceback"] <= of_others
    assert not garbage


def test_small_cluster_keeps_results_of_so_many_sorts_of_pods_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filter_results, "_MAX_SIGNATURES", 20)
    cache = SchedulerCache()
    cache.apply(node("n1"))
    gc.collect()
    before = objects_by_type()
    for sort in range(100):
        decide(cache.snapshot(), [pod("p", cpu=f"{sort + 1}m")], group=None, options=options())
    gc.collect()
    grown = {kind: number - before[kind] for kind, number in objects_by_type().items()}
    results = {kind: number for kind, number in grown.items() if kind.startswith("haru.engine.equivalence.")}
    assert 15 <= max(results.values()) <= 25, results


def test_results_are_kept_for_few_of_the_pods_that_name_their_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filter_results, "_MAX_NAMING", 20)
    cache = SchedulerCache()
    for number in range(100):
        cache.apply(node(f"n{number}"))
    gc.collect()
    before = objects_by_type()
    for number in range(100):
        name = {"key": "metadata.name", "operator": "In", "values": [f"n{number}"]}
        required = {"nodeSelectorTerms": [{"matchFields": [name]}]}
        affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
        found = decide(cache.snapshot(), [pod("p", affinity=affinity)], group=None, options=options())
        assert [member.node for member in found.placed] == [f"n{number}"]
    gc.collect()
    kept = "haru.engine.equivalence.node_feasibility.NodeFeasibility"
    assert 15 <= objects_by_type()[kept] - before[kept] <= 25


def test_score_keys_of_a_node_are_kept_for_few_of_the_loads_that_it_ever_had() -> None:
    cache, waiting = SchedulerCache(), pod("p")
    cache.apply(node("n1"))
    of_others = {id(obj) for obj in gc.get_objects() if type(obj) is prefilter_state.PreFilterState}
    for load in range(100):
        running = pod("running", cpu=f"{load + 1}m", node="n1")
        cache.apply(running)
        assert decide(cache.snapshot(), [waiting], group=None, options=options()).status == "scheduled"
        cache.remove(running)
    kept = [obj for obj in gc.get_objects() if type(obj) is prefilter_state.PreFilterState and id(obj) not in of_others]
    assert kept and all(0 < len(state._keys) < 80 for state in kept)


def test_nodes_that_come_and_go_leave_no_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_class_index, "_SPARE", 10)
    cache, waiting = SchedulerCache(), pod("p", claims=["c"])
    for obj in (device_class("gpu", ['device.attributes["gpu.example.com"].uuid != "x"']), claim("c"), waiting):
        cache.apply(obj)
    of_others = objects_by_type()["haru.engine.dra.pools.device_table.DeviceTable"]
    for number in range(100):
        cards = [{"name": f"gpu-{card}", "attributes": {"uuid": {"string": f"{number}-{card}"}}} for card in range(4)]
        came = node(f"n{number}"), resource_slice(f"n{number}", cards)
        for obj in came:
            cache.apply(obj)
        assert decide(cache.snapshot(), [waiting], group=None, options=options()).status == "scheduled"
        for obj in came:
            cache.remove(obj)
    gc.collect()
    assert objects_by_type()["haru.engine.dra.pools.device_table.DeviceTable"] - of_others < 30


class Missing(Exception):
    """What goes wrong."""


async def failing(*_: object) -> None:
    raise Missing


async def too_long(_: object) -> None:
    timeout = SharedTimeout(0.001)
    await timeout.wait_for(asyncio.sleep(10))


async def given_up(_: object) -> None:
    task = asyncio.create_task(SharedTimeout(10.0).wait_for(asyncio.sleep(10)))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def told_later(_: object) -> None:
    failures: list[Exception] = []
    try:
        await failing()
    except Missing as error:
        failures.append(error)
    raise_first(failures)


async def selecting(_: object) -> None:
    device = DeviceView("gpu.example.com", {}, {})
    compile_device_selector(f"{MISSING} || [1].exists(x, {MISSING})").matches(device)


@pytest.mark.parametrize(
    "work",
    [
        lambda _: bounded(range(3), failing),
        lambda _: slow_start(3, failing),
        too_long,
        given_up,
        told_later,
        selecting,
    ],
    ids=["bounded", "slow start", "too long", "given up", "told later", "selector"],
)
async def test_work_that_fails_leaves_nothing_to_a_collection(work: Callable[[object], Awaitable[object]]) -> None:
    async def once() -> None:
        try:
            await work(None)
        except Exception:
            return

    await once()
    with left_to_a_collection() as garbage:
        for _ in range(5):
            await once()
        await asyncio.sleep(0)
    assert not garbage


async def refused(api: ApiClient, kind: Kind, obj: Obj, namespace: str = "") -> None:
    try:
        await api.create(kind, obj, namespace)
    except StatusError:
        return
    raise AssertionError(f"{obj} is created")


def test_requests_that_the_api_server_refuses_leave_nothing_to_a_collection() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.kill()
        nobody = ApiClient.in_process(bench.server)
        await bench.create(NAMESPACES, {"metadata": {"name": "going", "finalizers": ["example.com/kept"]}})
        await bench.create(MAPS, {"metadata": {"name": "there"}})
        await bench.api.delete(NAMESPACES, "going")

        async def all_refused() -> None:
            there = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "there"}}
            for api, namespace in ((bench.api, NS), (bench.api, "going"), (bench.api, "nowhere"), (nobody, NS)):
                await refused(api, MAPS, there, namespace)
            await refused(bench.api, MAPS, {**there, "data": {"a": 1}}, NS)

        await all_refused()
        with left_to_a_collection() as garbage:
            for _ in range(3):
                await all_refused()
        assert not garbage
        await bench.start_scheduler()

    play(scenario)


def test_api_server_keeps_nothing_of_what_has_gone_and_of_events_that_are_too_old(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(background, "EVENT_LIFE", timedelta(minutes=10))
    monkeypatch.setattr(history, "KEEP_AT_LEAST", 20)
    monkeypatch.setattr(history, "KEEP_SECONDS", 60.0)
    monkeypatch.setattr(objects, "RECENT_BYTES", 64 * 1024)

    async def scenario(bench: Bench) -> None:
        await bench.kill()
        recorder = EventRecorder(bench.api, "test", now=virtual_time.now, monotonic=asyncio.get_running_loop().time)

        async def minutes(first: int, last: int) -> Counter[str]:
            """Each minute pods come, are told of and go; what lives at the end of all that."""
            for minute in range(first, last):
                for number in range(4):
                    made = await bench.pod(f"p-{minute}-{number}")
                    recorder.event(made, "Normal", "Scheduled", f"Successfully assigned p-{minute}-{number}")
                await recorder.flush()
                for number in range(4):
                    await bench.delete(f"p-{minute}-{number}")
                await asyncio.sleep(60)
            gc.collect()
            return objects_by_type()

        before = await minutes(0, 20)
        after = await minutes(20, 120)
        # Of 400 pods; histories are cut in lumps of 256. The recorder remembers more than there is here.
        grown = {
            kind: (before[kind], number)
            for kind, number in after.items()
            if kind.startswith("haru.") and not kind.startswith(RECORDER) and number - before[kind] > 300
        }
        assert grown == {}
        assert 30 < len((await bench.api.list(EVENTS, NS))["items"]) < 60
        await recorder.close()
        await bench.start_scheduler()

    play(scenario)
