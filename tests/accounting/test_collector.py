"""The collector sees every change through the API, measures the time between changes, and exports metrics."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest
from engine_objects import DRIVER, Obj, allocated, allocation, claim, device_class, node, pod, resource_slice
from fake_api import FakeApi

from haru.accounting import collector as keeping
from haru.accounting.collector import Intervals, Labels, UsageCollector
from haru.accounting.device_states import UsageKey
from haru.accounting.history import HOUR, NAME, History, read
from haru.accounting.ledger import total
from haru.accounting.report import usage_over
from haru.client.api import ApiClient
from haru.cluster_view import ClusterView
from haru.event_loop import where
from haru.kube.kinds import known_kind
from waiting import until

POD, CLAIM = known_kind("v1", "Pod"), known_kind("resource.k8s.io/v1", "ResourceClaim")


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long a look takes on a loaded machine, the next one follows at once."""
    monkeypatch.setattr(keeping, "_PAUSE_FACTOR", 0.0)


async def made(client: ApiClient, *objects: Obj) -> None:
    for obj in objects:
        await client.create(known_kind(obj["apiVersion"], obj["kind"]), obj)


async def cluster() -> tuple[FakeApi, ApiClient]:
    api = FakeApi()
    client = ApiClient.in_process(api)
    await made(client, node("a"), device_class(), resource_slice("a", 2))
    return api, client


async def test_collector_with_a_process_of_its_own_keeps_of_pods_what_decisions_read() -> None:
    _, client = await cluster()
    made_pod = pod("p", node="a")
    made_pod["spec"]["containers"] = [{"name": "main", "image": "work:1", "env": [{"name": "A", "value": "B"}]}]
    await made(client, made_pod)
    collector = UsageCollector(client, intervals=Intervals(0.02, 0.0))
    running = asyncio.create_task(collector.run())
    await collector.looked.wait()
    kept = collector._watch.view().snapshot.pods["default/p"].obj
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert kept["spec"]["containers"] == [{"name": "main", "image": "work:1"}]


async def test_collector_counts_device_seconds_by_state_across_events(tmp_path: Path) -> None:
    _, client = await cluster()
    now = [1000.0 * 3600]
    history = History(tmp_path / NAME)
    collector = UsageCollector(client, history, clock=lambda: now[0], intervals=Intervals(0.02, 0.0, 1e9))
    running = asyncio.create_task(collector.run())
    await until(lambda: sum(collector.units().values()) == 2000)
    assert {key.state for key in collector.units()} == {"Free"}
    now[0] += 3600
    holder = pod("p", node="a", claims=["p"])
    holder = await client.create(POD, holder)
    await made(client, allocated(claim("p"), allocation("a", "gpu-0"), holder))
    await until(lambda: collector.units()[UsageKey("Held", "default", "pod/p", DRIVER, "unmeasured")] == 1000)
    now[0] += 1800
    await until(lambda: collector.seconds()[Labels("default", "Held", DRIVER)] == 1800 * 1_000_000)
    text = collector.text().decode()
    assert f'haru_devices{{driver="{DRIVER}",namespace="default",state="Held"}} 1.0' in text
    assert f'haru_device_seconds_total{{driver="{DRIVER}",namespace="default",state="Held"}} 1800.0' in text
    assert f'haru_device_seconds_total{{driver="{DRIVER}",namespace="",state="Free"}} 9000.0' in text
    end = int(now[0] * 1000)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    usage = usage_over(total(read(tmp_path, 0, end), end - 2 * HOUR, end))
    assert usage.by_state == {"Held": 0.5, "Free": 2.5}
    assert [(row.owner, row.held) for row in usage.rows] == [("pod/p", 0.5)]
    assert usage.observed_seconds == 5400
    rows = read(tmp_path, 0, end)
    assert all(row.began // HOUR == (row.ended - 1) // HOUR for row in rows), "intervals end with the hour"


@pytest.mark.parametrize("steps", range(4))
async def test_collector_ends_also_where_something_changes_just_then(steps: int) -> None:
    _, client = await cluster()
    collector = UsageCollector(client, intervals=Intervals(60.0, 0.0, 1e9))
    running = asyncio.create_task(collector.run())
    await until(lambda: collector.looked.is_set() and re.search("newer_than|wait_for", where(running)))
    collector._watch.changes.add()
    for _ in range(steps):
        await asyncio.sleep(0)
    running.cancel()
    done, _ = await asyncio.wait({running}, timeout=2)
    running.cancel()
    assert done
    assert running.cancelled()


async def test_owners_that_have_gone_are_not_kept_for_the_metrics() -> None:
    _, client = await cluster()
    collector = UsageCollector(client, intervals=Intervals(0.02, 0.0, 1e9))
    running = asyncio.create_task(collector.run())
    for number in range(5):
        holder = await client.create(POD, pod(f"p{number}", node="a", claims=[f"p{number}"]))
        await made(client, allocated(claim(f"p{number}"), allocation("a", "gpu-0"), holder))
        await until(lambda: sum(key.owner != "" for key in collector.units()) == 1)
        await client.delete(POD, f"p{number}", "default")
        await client.delete(CLAIM, f"p{number}", "default")
        await until(lambda: not any(key.owner for key in collector.units()))
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert {labels.namespace for labels in collector.seconds()} == {"", "default"}
    assert len(collector._before) <= 3


async def test_time_without_a_working_watch_is_not_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeping, "_RETRY_SECONDS", 0.01)
    _, client = await cluster()
    now = [5000.0]
    collector = UsageCollector(
        client, History(tmp_path / NAME), clock=lambda: now[0], intervals=Intervals(0.02, 0.0, 1e9)
    )
    running = asyncio.create_task(collector.run())
    await collector.looked.wait()
    now[0] += 100
    await until(lambda: sum(collector.seconds().values()) == 2 * 100 * 1_000_000)
    collector.looked.clear()
    broken = True

    def measure(view: ClusterView, at: int) -> object:
        if broken:
            raise RuntimeError("a fault of ours")
        return original(view, at)

    original = collector._measure
    monkeypatch.setattr(collector, "_measure", measure)
    await made(client, pod("x"))
    await until(lambda: collector._meter.current() is None)
    now[0] += 1000
    broken = False
    await until(lambda: collector._meter.current() is not None)
    now[0] += 10
    await until(lambda: sum(collector.seconds().values()) == 2 * 110 * 1_000_000)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    end = int(now[0] * 1000)
    found = total(read(tmp_path, 0, end), 5_000_000, end)
    assert (found.observed, found.until - found.since) == (110_000, 1_110_000)


async def test_history_with_later_timestamps_is_not_overwritten_after_clock_goes_back(tmp_path: Path) -> None:
    """After the clock was set back, time is counted once it has caught up with what is there."""
    _, client = await cluster()
    for start in (9000.0, 8000.0):
        now = [start]
        collector = UsageCollector(
            client, History(tmp_path / NAME), clock=lambda now=now: now[0], intervals=Intervals(0.02, 0.0, 1e9)
        )  # type: ignore[misc]
        running = asyncio.create_task(collector.run())
        await collector.looked.wait()
        now[0] = start + 500 if start > 8500 else 9600.0
        expected = 500 if start > 8500 else 100
        await until(lambda e=expected, k=collector: sum(k.seconds().values()) == 2 * e * 1_000_000)  # type: ignore[misc]
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    assert [(row.began, row.ended) for row in read(tmp_path, 0, 1 << 60)] == [
        (9_000_000, 9_500_000),
        (9_500_000, 9_600_000),
    ]


async def test_suspended_machine_counts_no_time() -> None:
    _, client = await cluster()
    now = [7000.0]
    collector = UsageCollector(client, clock=lambda: now[0], intervals=Intervals(0.02, 0.0))
    running = asyncio.create_task(collector.run())
    await collector.looked.wait()
    now[0] += 200
    await until(lambda: sum(collector.seconds().values()) == 2 * 200 * 1_000_000)
    now[0] += 8 * 3600
    await until(lambda: collector._meter.until == int(now[0] * 1000))
    now[0] += 50
    await until(lambda: sum(collector.seconds().values()) == 2 * 250 * 1_000_000)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_event_that_tells_of_no_happening_causes_no_look(tmp_path: Path) -> None:
    _, client = await cluster()
    collector = UsageCollector(client, History(tmp_path / NAME), intervals=Intervals(10.0, 0.0))
    running = asyncio.create_task(collector.run())
    await collector.looked.wait()
    version, events = collector._watch.changes.version, collector._watch.view().events
    about = {"involvedObject": {"kind": "Node", "name": "a"}, "type": "Normal", "message": "x"}
    for number, reason in enumerate(("Scheduled", "Pulled", "NodeNotReady")):
        named = {"name": f"e-{number}", "namespace": "default"}
        await made(client, {"apiVersion": "v1", "kind": "Event", "metadata": named, "reason": reason, **about})
    await until(lambda: len(collector._watch.view().events) == 3)
    assert collector._watch.changes.version == version + 1
    assert events == ()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
