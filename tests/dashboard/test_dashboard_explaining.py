"""Explanations that take long hold up neither the page nor each other, and are never made twice for nothing."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from typing import Any
from weakref import ref

import pytest
from engine_objects import node, pod

from haru.cluster_view import ClusterView
from haru.dashboard import explanations
from haru.dashboard.explanations import ExplanationCache
from haru.dashboard.views.queue import waiting_work
from haru.dashboard.views.workloads import Workload
from haru.engine import SchedulerCache, Snapshot
from haru.explain.cards import Layouts
from haru.explain.entry import explain
from haru.kube.meta import Obj
from waiting import until

ONE, TWO = Workload("default", "pod/one"), Workload("default", "pod/two")


class Slow:
    """`explain` that lasts until it is let go; `asked` has the names that it was asked about."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.go = threading.Semaphore(0)
        self.fails: set[str] = set()

    def __call__(self, snapshot: Snapshot, kind: Any, obj: Any, *more: Any) -> Any:
        name = obj["metadata"]["name"]
        self.asked.append(name)
        assert self.go.acquire(timeout=30)
        if name in self.fails:
            raise ValueError("a bug")
        return explain(snapshot, kind, obj, *more)


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Iterator[Slow]:
    made = Slow()
    monkeypatch.setattr(explanations, "explain", made)
    monkeypatch.setattr(explanations, "WAIT_SECONDS", 0.01)
    monkeypatch.setattr(explanations, "_IDLE_FACTOR", 0)
    monkeypatch.setattr(explanations, "_KEPT_FACTOR", 0)
    yield made
    for _ in range(10):
        made.go.release()


def cluster(*names: str) -> SchedulerCache:
    return SchedulerCache.of([node("a"), *(pod(name, cpu="99") for name in names)])


class Viewer:
    """Asks for a queue's explanations, and hears when there are more."""

    def __init__(self) -> None:
        self.told = asyncio.Event()
        self.explaining = ExplanationCache(self.told.set)
        self._seen: object = None
        self._version = 0

    async def look(self, snapshot: Snapshot, events: Sequence[Obj] = ()) -> dict[Workload, str]:
        found = await self.explaining.of(self._view(snapshot, events), waiting_work(snapshot))
        return {work: told.explanation.verdict + (" before" if told.as_of else "") for work, told in found.items()}

    def _view(self, snapshot: Snapshot, events: Sequence[Obj]) -> ClusterView:
        """Each other snapshot or list of events is another version."""
        seen = (snapshot.pods, snapshot.nodes, tuple(events))
        if seen != self._seen:
            self._seen, self._version = seen, self._version + 1
        return ClusterView(snapshot, self._version, (), Layouts(), events)

    async def more(self) -> None:
        async with asyncio.timeout(30):
            await self.told.wait()
        self.told.clear()


async def test_page_is_served_before_explanations_and_updated_with_them(slow: Slow) -> None:
    viewer, snapshot = Viewer(), cluster("one", "two").snapshot()
    assert await viewer.look(snapshot) == {}
    slow.go.release()
    await viewer.more()
    assert await viewer.look(snapshot) == {ONE: "NeverFits"}
    slow.go.release()
    await viewer.more()
    assert await viewer.look(snapshot) == {ONE: "NeverFits", TWO: "NeverFits"}
    assert await viewer.look(snapshot) == {ONE: "NeverFits", TWO: "NeverFits"}
    assert slow.asked == ["one", "two"]
    viewer.explaining.stop()


async def test_old_explanation_keeps_nothing_of_the_cluster_of_its_time(slow: Slow) -> None:
    viewer, changing = Viewer(), cluster("one")
    slow.go.release()
    while not await viewer.look(changing.snapshot()):
        pass
    earlier = ref(changing.snapshot())
    changing.apply(node("b", cpu="200"))
    assert await viewer.look(changing.snapshot()) == {ONE: "NeverFits before"}
    await until(lambda: slow.asked == ["one", "one"])
    assert earlier() is None
    viewer.explaining.stop()


async def test_old_explanations_are_shown_until_new_ones_are_ready(slow: Slow) -> None:
    viewer, changing = Viewer(), cluster("one")
    slow.go.release()
    while not await viewer.look(changing.snapshot()):
        pass
    changing.apply(node("b", cpu="200"))
    assert await viewer.look(changing.snapshot()) == {ONE: "NeverFits before"}
    slow.go.release()
    await viewer.more()
    assert await viewer.look(changing.snapshot()) == {ONE: "Starting"}
    changing.remove(pod("one"))
    assert await viewer.look(changing.snapshot()) == {}
    assert slow.asked == ["one", "one"]
    viewer.explaining.stop()


async def test_event_alone_makes_an_explanation_anew(slow: Slow) -> None:
    maker = {"metadata": {"name": "w", "namespace": "default", "uid": "u"}, "kind": "ReplicaSet"}
    template = {"metadata": {}, "spec": {"containers": [{"name": "main", "image": "x"}]}}
    changing = SchedulerCache.of([node("a"), {**maker, "apiVersion": "apps/v1", "spec": {"template": template}}])
    viewer, snapshot = Viewer(), changing.snapshot()
    for _ in range(9):
        slow.go.release()
    work = Workload("default", "replicaset/w")
    await until(lambda: viewer.look(snapshot))
    assert await viewer.look(snapshot) == {work: "FitsLater"}
    about = {"kind": "ReplicaSet", "namespace": "default", "name": "w", "uid": "u"}
    event = {"metadata": {"namespace": "default", "name": "e"}, "reason": "FailedCreate", "involvedObject": about}

    async def is_told() -> bool:
        return await viewer.look(snapshot, [{**event, "message": "no ServiceAccount"}]) == {work: "FitsIf"}

    await until(is_told)
    viewer.explaining.stop()


async def test_failing_explanation_does_not_affect_others(slow: Slow, caplog: pytest.LogCaptureFixture) -> None:
    viewer, snapshot = Viewer(), cluster("one", "two").snapshot()
    slow.fails.add("one")
    slow.go.release()
    slow.go.release()
    while TWO not in (found := await viewer.look(snapshot)):
        pass
    assert found == {TWO: "NeverFits"} and "default/pod/one cannot be explained" in caplog.text
    viewer.explaining.stop()
