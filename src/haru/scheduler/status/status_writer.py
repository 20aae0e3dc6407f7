"""Write what was decided: conditions of pods and groups, and events.

Reports about one object are written one after the other; a newer one replaces an older one that still waits. Each
carries the version that it was made for, so a late report never undoes a later write, such as the nomination of a pod
that is being bound now, or a group's `PodGroupScheduled=True`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import datetime
from typing import Any

from haru.client.api import ApiClient
from haru.client.events import EventRecorder
from haru.engine.backfill import CONDITION
from haru.engine.state import PodKey
from haru.kube.errors import StatusError
from haru.kube.kinds import Kind
from haru.kube.names import format_time
from haru.scheduler.binding.binder import PODS, is_transient
from haru.scheduler.shared import WatchedObjects
from haru.scheduler.status.conditions import (
    ConditionText,
    NominationChange,
    group_scheduled_patch,
    pod_scheduled_patch,
    reserved_patch,
    unnominated_patch,
)

Obj = dict[str, Any]
Build = Callable[[Obj], Obj | None]
_AT_ONCE = 16
_ATTEMPTS = 8
_log = logging.getLogger(__name__)


def path_of(obj: Obj) -> str:
    """`namespace/name`."""
    return f"{obj['metadata'].get('namespace', '')}/{obj['metadata']['name']}"


def pod_key(pod: Obj) -> PodKey:
    """The pod's name and identity."""
    metadata = pod["metadata"]
    return PodKey(metadata.get("namespace", ""), metadata["name"], metadata.get("uid", ""))


def _scheduler_of(pod: Obj) -> str:
    """In whose name events about a pod are told: its profile's."""
    return str((pod.get("spec") or {}).get("schedulerName") or "")


class StatusWriter:
    """Write reports beside the scheduling cycles."""

    def __init__(
        self,
        client: ApiClient,
        recorder: EventRecorder,
        clock: Callable[[], datetime],
        objects: WatchedObjects,
    ) -> None:
        self._client = client
        self._recorder = recorder
        self._clock = clock
        self._objects = objects
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._waiting: dict[tuple[str, str], tuple[Kind, Obj, Build, bool]] = {}
        self._running: dict[tuple[str, str], asyncio.Task[None]] = {}

    # -- what is told -------------------------------------------------------------------------------------------------

    def rejected(self, pod: Obj, reason: str, message: str, nomination: NominationChange) -> None:
        """Report that the pod was not scheduled: an event and its PodScheduled condition."""
        name = _scheduler_of(pod)
        self._recorder.event(pod, "Warning", "FailedScheduling", message, action="Scheduling", component=name)
        self.not_scheduled(pod, reason, message, nomination)

    def not_scheduled(self, pod: Obj, reason: str, message: str, nomination: NominationChange) -> None:
        """Write the PodScheduled condition of a pod that was not scheduled."""

        def build(current: Obj) -> Obj | None:
            if (current.get("spec") or {}).get("nodeName") or current["metadata"].get("deletionTimestamp"):
                return None
            text = ConditionText(reason, message, format_time(self._clock()))
            return pod_scheduled_patch(current, text, nomination)

        self._put(PODS, pod, build, lasting=False)

    def unnominated(self, pod: Obj) -> None:
        """The pod's promised place is gone."""
        self._put(PODS, pod, unnominated_patch, lasting=False)

    def bound(self, pod: Obj, node: str) -> None:
        """The pod has its node."""
        text = f"Successfully assigned {path_of(pod)} to {node}"
        self._recorder.event(pod, "Normal", "Scheduled", text, action="Binding", component=_scheduler_of(pod))

    def group(self, kind: Kind, group: Obj, status: str, reason: str, message: str) -> None:
        """`PodGroupScheduled`; once it is to become True nothing else is told."""

        def build(current: Obj) -> Obj | None:
            return group_scheduled_patch(current, status, reason, message, format_time(self._clock()))

        self._put(kind, group, build, lasting=status == "True")

    def reserved(self, kind: Kind, obj: Obj, text: str | None) -> None:
        """Places are kept for a pod or group, or no longer (None)."""

        def build(current: Obj) -> Obj | None:
            return reserved_patch(current, text, format_time(self._clock()))

        self._put(kind, obj, build, lasting=False, about=CONDITION)

    def cancel(self, pod_path: str) -> None:
        """Drop the reports about a pod: it is being bound now."""
        key = (PODS.plural, pod_path)
        self._waiting.pop(key, None)
        if key in self._running:
            self._running[key].cancel()

    @property
    def tasks(self) -> set[asyncio.Task[None]]:
        """The reports that are being written."""
        return set(self._running.values())

    # -- writing ------------------------------------------------------------------------------------------------------

    def _put(self, kind: Kind, obj: Obj, build: Build, *, lasting: bool, about: str = "") -> None:
        key = (f"{kind.plural}{about}", path_of(obj))
        if key in self._waiting and self._waiting[key][3] and not lasting:
            return
        if key not in self._running and build(obj) is None:
            return
        self._waiting[key] = (kind, obj, build, lasting)
        if key not in self._running:
            self._start(key)

    def _start(self, key: tuple[str, str]) -> None:
        task = asyncio.get_running_loop().create_task(self._work(key), name=f"report {'/'.join(key)}")
        self._running[key] = task
        task.add_done_callback(lambda done: self._ended(key, done))

    def _ended(self, key: tuple[str, str], task: asyncio.Task[None]) -> None:
        del self._running[key]
        if not task.cancelled() and task.exception() is not None:
            _log.error("a report failed", exc_info=task.exception())
        if key in self._waiting and not task.get_loop().is_closed():
            self._start(key)

    async def _work(self, key: tuple[str, str]) -> None:
        while (job := self._waiting.pop(key, None)) is not None:
            kind, obj, build, _ = job
            await self._write(kind, obj, build)

    async def _write(self, kind: Kind, obj: Obj, build: Build) -> None:
        metadata = obj["metadata"]
        path, uid = path_of(obj), metadata["uid"]
        current: Obj | None = self._objects.get(kind, path)
        for attempt in range(_ATTEMPTS):
            if attempt:
                await asyncio.sleep(0.05 * 2.0**attempt)
                current = await self._read(kind, obj)
            if current is None or current["metadata"].get("uid") != uid:
                return
            patch = build(current)
            if patch is None:
                return
            version = current["metadata"].get("resourceVersion")
            patch = {**patch, "metadata": {"uid": uid, "resourceVersion": version}}
            problem = await self._send(kind, obj, patch)
            if problem is None:
                return
            conflict = isinstance(problem, StatusError) and problem.code == 409
            if isinstance(problem, StatusError) and problem.code == 404:
                return
            if not conflict and not is_transient(problem):
                break
        _log.warning("status of %s %s: %s", kind.kind, path, problem)

    async def _send(self, kind: Kind, obj: Obj, patch: Obj) -> Exception | None:
        metadata = obj["metadata"]
        async with self._slots:
            try:
                answer = await self._client.patch(
                    kind, metadata["name"], patch, metadata.get("namespace", ""), "strategic", "status"
                )
            except (StatusError, OSError) as error:
                return error
        self._objects.observe(kind, answer)
        return None

    async def _read(self, kind: Kind, obj: Obj) -> Obj | None:
        metadata = obj["metadata"]
        try:
            found = await self._client.get(kind, metadata["name"], metadata.get("namespace", ""))
        except (StatusError, OSError):
            return self._objects.get(kind, path_of(obj))
        self._objects.observe(kind, found)
        return found
