"""What a history keeps of preemptions, evictions and faults, and for how long."""

from __future__ import annotations

import asyncio
from pathlib import Path

from engine_objects import device_class, node, pod, resource_slice
from fake_api import FakeApi

from haru.accounting.collector import Intervals, UsageCollector
from haru.accounting.happenings import HappeningMeter
from haru.accounting.history import KEPT, NAME, History, read_happenings
from haru.accounting.ledger import Interval
from haru.client.api import ApiClient
from haru.explain.happenings import Happening
from haru.kube.kinds import known_kind
from waiting import until

EVENT = known_kind("v1", "Event")


def moment(at: int, text: str = "Preempted: ml/p: ") -> Happening:
    return Happening("preempted", "a", "ml", text, at, at)


def fault(began: int, ended: int = 0, text: str = "node a is not ready") -> Happening:
    return Happening("fault", "a", "", text, began, ended)


def test_moment_is_told_once_and_fault_with_its_beginning_and_end() -> None:
    meter = HappeningMeter()
    assert meter.moments([moment(5)]) == [moment(5)]
    assert meter.moments([moment(5), moment(25)]) == [moment(25)]
    assert meter.faults({"node a": [fault(10)]}, 10) == [fault(10)]
    assert meter.faults({"node a": [fault(20)]}, 20) == [], "a taint of which nobody knows since when"
    assert meter.faults({"node b": []}, 25) == []
    assert meter.faults({"node a": []}, 30) == [fault(10, 30)]
    assert meter.faults({"node a": [fault(40)]}, 40) == [fault(40)]
    assert meter.stop(50) == [fault(40, 50)]


def test_history_returns_what_happened_or_lasted_in_a_time(tmp_path: Path) -> None:
    history = History(tmp_path / NAME)
    history.put(Interval(0, 100, 100, {}))
    history.put_happenings([moment(5), moment(60), fault(10), fault(50, text="gpu-0 on a is tainted: xid")])
    history.put_happenings([fault(10, 30), moment(5)._replace(node="")])
    read = lambda since, until: [(each.began, each.ended) for each in read_happenings(tmp_path, since, until)]  # noqa: E731
    assert read(0, 100) == [(60, 60), (50, 0), (10, 30), (5, 5)]
    assert read(20, 40) == [(10, 30)] and read(200, 300) == [(50, 0)]
    assert read_happenings(tmp_path, 0, 9)[0].node == "a", "where it happened stays known when the pod has gone"
    history.close()
    # What lasted when a process died was last seen at its last interval.
    again = History(tmp_path / NAME)
    assert read(0, 200)[1] == (50, 100)
    again.tidy(KEPT + 50)
    assert read(0, KEPT) == [(60, 60), (50, 100)]
    again.close()


async def test_collector_keeps_of_events_that_are_no_happenings_only_which_they_are(tmp_path: Path) -> None:
    client = ApiClient.in_process(FakeApi())
    for name, reason in (("told", "Preempted"), ("other", "Scheduled")):
        metadata = {"name": name, "namespace": "default", "labels": {"a": "b"}}
        event = {"apiVersion": "v1", "kind": "Event", "metadata": metadata, "reason": reason, "message": "words"}
        await client.create(
            EVENT, {**event, "lastTimestamp": "2026-03-01T12:00:00Z", "involvedObject": {"kind": "Pod"}}
        )
    collector = UsageCollector(client, History(tmp_path / NAME), intervals=Intervals(0.02, 0.0))
    running = asyncio.create_task(collector.run())
    await collector.looked.wait()
    kept = {event["metadata"]["name"]: set(event) for event in collector._watch.view().events}
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert kept["told"] >= {"reason", "message", "lastTimestamp", "involvedObject"}
    assert kept["other"] == {"apiVersion", "kind", "metadata"}


async def test_collector_records_evictions_beyond_the_life_of_their_events(tmp_path: Path) -> None:
    api = FakeApi()
    client = ApiClient.in_process(api)
    tainted = resource_slice("a", [{"name": "gpu-0", "taints": [{"key": "xid", "value": "79", "effect": "NoExecute"}]}])
    victim = {**pod("victim", node="a"), "apiVersion": "v1", "kind": "Pod"}
    event = {
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": "e", "namespace": "default"},
        "reason": "DeviceTaintManagerEviction", "message": "Marking for deletion",
        "lastTimestamp": "2026-03-01T12:00:00Z",
        "involvedObject": {"kind": "Pod", "namespace": "default", "name": "victim"},
    }  # fmt: skip
    for obj in (node("a"), device_class(), tainted, victim, event):
        await client.create(known_kind(obj["apiVersion"], obj["kind"]), obj)
    history = History(tmp_path / NAME)
    collector = UsageCollector(client, history, intervals=Intervals(0.02, 0.0, 1e9))
    running = asyncio.create_task(collector.run())
    read = lambda: {each.kind: each for each in read_happenings(tmp_path, 0, 2**60)}  # noqa: E731
    await until(lambda: {"evicted", "fault"} <= read().keys())
    await client.delete(EVENT, "e", "default")
    await client.delete(known_kind("resource.k8s.io/v1", "ResourceSlice"), tainted["metadata"]["name"])
    await until(lambda: read()["fault"].ended > 0)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert (read()["evicted"].node, read()["evicted"].namespace) == ("a", "default")
    assert read()["fault"].text == "gpu-0 on a is tainted: xid=79:NoExecute"
