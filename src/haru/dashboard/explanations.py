"""Explanations for the queue, computed in the background.

On a large cluster one takes seconds. A page waits for them a moment and shows what there is, older ones or none; its
viewer is notified of more. One thread computes them and pauses most of the time: in `haru up` it shares the interpreter
with the API server and the scheduler.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import TypeVar

from haru.cluster_view import ClusterView
from haru.dashboard.views.queue import KnownPods, ShownExplanation, WaitingWorkload, pods_of, subject
from haru.dashboard.views.story import Story, signs_of, story
from haru.dashboard.views.workloads import Workload
from haru.engine import Snapshot
from haru.errors import NotFoundError
from haru.explain.entry import explain
from haru.explain.object_names import PlaceKind
from haru.explain.render import redacted, redacted_story
from haru.explain.results import DeviceStory, Explanation, NodeStory
from haru.explain.subjects import explain_place
from haru.kube.meta import Obj

_log = logging.getLogger(__name__)

T = TypeVar("T")

WAIT_SECONDS = 1.0
_IDLE_FACTOR = 3
_KEPT_FACTOR = 10
_VIEWED_SECONDS = 30.0


def now_text() -> str:
    """Return the current time as RFC 3339."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass(frozen=True, slots=True)
class _Made:
    """An explanation (None: there was nothing to explain), of which version it is, when it was made, what it cost."""

    explanation: Explanation | None
    version: int
    at: float
    cost: float
    at_text: str

    def is_of(self, view: ClusterView) -> bool:
        """Return whether it is of this view: events count as objects do."""
        return self.version == view.version

    def due(self, view: ClusterView) -> float | None:
        """Return when to compute it again; None if it is current."""
        return None if self.is_of(view) else self.at + _KEPT_FACTOR * self.cost


class ExplanationCache:
    """The explanations for all who see the same; `tell` is called when there are more than the last page could show.

    `worker` has one thread, which all caches of a dashboard share. Of what is explained only the names of the
    namespaces `shown` stay; None: all.
    """

    def __init__(
        self,
        tell: Callable[[], None],
        worker: Executor | None = None,
        shown: frozenset[str] | None = None,
    ) -> None:
        self._tell = tell
        self._shown = shown
        self._worker = worker or ThreadPoolExecutor(1, "dashboard explanations")
        self._made: dict[Workload, _Made] = {}
        self._wanted: tuple[ClusterView, Sequence[WaitingWorkload]] | None = None
        self._task: asyncio.Task[None] | None = None
        self._pods = KnownPods()
        """Only the worker's thread may use it."""
        self._signs: tuple[Sequence[Obj], Mapping[str, Sequence[Obj]]] = ((), {})
        self._viewed = 0.0
        self._waiting = 0

    async def run(self, work: Callable[[], T]) -> T:
        """Run other work that explains: the engine's caches allow one thread."""
        return await asyncio.get_running_loop().run_in_executor(self._worker, work)

    async def story(self, view: ClusterView, work: Workload) -> Story | None:
        """Make the story of a workload."""
        return await self.run(partial(self._story, view, work))

    async def place(self, view: ClusterView, kind: PlaceKind, name: str) -> NodeStory | DeviceStory | None:
        """Make the story of a node or a device; None if there is none. Raises InputError."""
        return await self.run(partial(self._place, view, kind, name))

    def _place(self, view: ClusterView, kind: PlaceKind, name: str) -> NodeStory | DeviceStory | None:
        try:
            found = explain_place(view.snapshot, kind, name, unread=view.refused)
        except NotFoundError:
            return None
        return found if self._shown is None else redacted_story(found, view.snapshot, self._shown)

    def _redact(self, told: Explanation, snapshot: Snapshot) -> Explanation:
        return told if self._shown is None else redacted(told, snapshot, self._shown)

    def _story(self, view: ClusterView, work: Workload) -> Story | None:
        found = story(view.snapshot, work, view.events, now_text(), self._pods)
        if found is None:
            return None
        here = self._redact(found.here, view.snapshot) if found.here is not None else None
        return replace(found, explanation=self._redact(found.explanation, view.snapshot), here=here)

    async def of(
        self, view: ClusterView, queue: Sequence[WaitingWorkload], wait: float | None = None
    ) -> Mapping[Workload, ShownExplanation]:
        """Return the explanations for a queue that are there after a moment (default: a second)."""
        self._wanted, self._viewed = (view, queue), time.monotonic()
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._work(), name="dashboard explanations")
        self._waiting += 1
        try:
            await asyncio.wait({self._task}, timeout=WAIT_SECONDS if wait is None else wait)
        finally:
            self._waiting -= 1
        found = {each.workload: self._made.get(each.workload) for each in queue}
        return {
            work: ShownExplanation(made.explanation, "" if made.is_of(view) else made.at_text)
            for work, made in found.items()
            if made is not None and made.explanation is not None
        }

    def stop(self) -> None:
        """End; the worker's owner ends the worker."""
        if self._task is not None:
            self._task.cancel()
        self._wanted = None
        self._made.clear()

    async def _work(self) -> None:
        while (step := self._next()) is not None and time.monotonic() - self._viewed < _VIEWED_SECONDS:
            work, due = step
            if (pause := due - time.monotonic()) > 0:
                await asyncio.sleep(min(pause, WAIT_SECONDS))
                continue
            assert self._wanted is not None
            view, began = self._wanted[0], time.monotonic()
            explanation = await self.run(partial(self._explained, view, work))
            ended = time.monotonic()
            self._made[work] = _Made(explanation, view.version, ended, ended - began, now_text())
            if not self._waiting:
                self._tell()
                await asyncio.sleep(_IDLE_FACTOR * (ended - began))
        if self._wanted is not None and self._next() is not None:
            self._wanted = None  # no viewer is left
            self._made.clear()

    def _explained(self, view: ClusterView, work: Workload) -> Explanation | None:
        snapshot, signs = view.snapshot, self._signs_of(view).get(work.namespace, ())
        about = subject(snapshot, work, pods_of(snapshot, work, self._pods))
        try:
            told = explain(snapshot, *about, signs, now_text()) if about is not None else None
            return self._redact(told, snapshot) if told is not None else None
        except Exception:
            # The page then has the scheduler's words for this one, and explanations for all others.
            _log.exception("%s/%s cannot be explained", *work)
            return None

    def _signs_of(self, view: ClusterView) -> Mapping[str, Sequence[Obj]]:
        """The events that explain what waits, by namespace; those of the last view are kept."""
        if self._signs[0] is not view.events:
            found: dict[str, list[Obj]] = {}
            for event in signs_of(view.events):
                found.setdefault(event["metadata"].get("namespace") or "", []).append(event)
            self._signs = view.events, found
        return self._signs[1]

    def _next(self) -> tuple[Workload, float] | None:
        """Choose what to explain next, and when: first what was never explained, in the order of the queue."""
        if self._wanted is None:
            return None
        view, queue = self._wanted
        listed = {each.workload for each in queue}
        self._made = {work: made for work, made in self._made.items() if work in listed}
        new = next((each.workload for each in queue if each.workload not in self._made), None)
        if new is not None:
            return new, 0.0
        dues = [(due, work) for work, made in self._made.items() if (due := made.due(view)) is not None]
        return (min(dues)[1], min(dues)[0]) if dues else None
