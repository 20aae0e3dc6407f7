"""Hold what all parts of one scheduler share: the cache, the queue, the watched objects, background tasks.

Every part gets the same `SchedulerState`, so that a decision, its binding and the next event see one cluster.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any

from haru.client.informer import Informer
from haru.engine import SchedulerCache
from haru.kube.kinds import Kind
from haru.kube.meta import Obj
from haru.scheduler.metrics import SchedulerMetrics
from haru.scheduler.queue.scheduling_queue import SchedulingQueue
from haru.scheduler.settings import SchedulerConfig

_log = logging.getLogger(__name__)


class WatchedObjects:
    """Read and update the informers' objects; empty until the watches begin.

    Each answer of the API server is observed, so that no decision relies on something older than the scheduler's own
    writes.
    """

    def __init__(self) -> None:
        self.informers: Mapping[str, Informer] = {}
        self.began = 0
        """The revision at which the watches began: a scheduler before this one may still write by what is no newer."""

    def begin(self) -> None:
        """Take the first lists as what is left of others; call once they are there."""
        versions = [informer.resource_version for informer in self.informers.values()]
        self.began = max((int(version) for version in versions if version.isdigit()), default=0)

    def is_inherited(self, obj: Obj) -> bool:
        """Tell whether an object has not been written since the watches began."""
        version = str(obj["metadata"].get("resourceVersion") or "")
        return version.isdigit() and int(version) <= self.began

    def get(self, kind: Kind, path: str) -> Obj | None:
        """Return an object as it was last seen; None if it is not known."""
        informer = self.informers.get(kind.kind)
        return informer.store.get(path) if informer is not None else None

    def observe(self, kind: Kind, obj: Obj, *, is_kept: bool = False) -> None:
        """Store the API server's answer to a write or read; `is_kept`: made of what is stored."""
        informer = self.informers.get(kind.kind)
        if informer is not None:
            informer.observe(obj, is_kept=is_kept)

    def announce(self, kind: Kind, obj: Obj) -> None:
        """Have the watch pass over a write: `observe` is about to be called with it, or with one that follows it."""
        informer = self.informers.get(kind.kind)
        if informer is not None:
            informer.announce(obj)

    def hold_events(self, kind: Kind, obj: Obj) -> None:
        """Have events of an object wait until `observe` is called with the answer to a write, or with the object."""
        informer = self.informers.get(kind.kind)
        if informer is not None:
            informer.hold_events(obj)

    def observe_deleted(self, kind: Kind, obj: Obj) -> None:
        """Remove an object that was deleted."""
        informer = self.informers.get(kind.kind)
        if informer is not None:
            informer.observe_deleted(obj)


class BackgroundTasks:
    """Run writes beside the scheduling cycles; an exception in one is logged."""

    def __init__(self) -> None:
        self.running: set[asyncio.Task[None]] = set()

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Start a task."""
        task: asyncio.Task[None] = asyncio.get_running_loop().create_task(work)
        self.running.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self.running.discard(task)
        if not task.cancelled() and task.exception() is not None:
            _log.error("a task of the scheduler failed", exc_info=task.exception())


@dataclass(frozen=True, slots=True)
class SchedulerState:
    """Hold the parts that every other part reads or changes. `woken`: some unit may be ready to be decided."""

    config: SchedulerConfig
    cluster: SchedulerCache
    queue: SchedulingQueue
    metrics: SchedulerMetrics = field(default_factory=SchedulerMetrics)
    objects: WatchedObjects = field(default_factory=WatchedObjects)
    tasks: BackgroundTasks = field(default_factory=BackgroundTasks)
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    woken: asyncio.Event = field(default_factory=asyncio.Event)
