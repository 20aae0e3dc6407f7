"""Write what was decided: conditions of pods and groups, and events.

Reports about one object are written one after the other; a newer one replaces an older one that still waits. Each
carries the version that it was made for, so a late report never undoes a later write, such as the nomination of a pod
that is being bound now, or a group's `PodGroupScheduled=True`. An explanation comes after the words that it explains.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Container
from datetime import datetime
from typing import NamedTuple

from haru.client.api import ApiClient
from haru.client.events import EventRecorder
from haru.engine.backfill import CONDITION
from haru.engine.state import PodKey
from haru.explain import with_explanation, without_explanation
from haru.kube.errors import StatusError
from haru.kube.kinds import Kind
from haru.kube.meta import Obj
from haru.kube.names import format_time
from haru.scheduler.binding.write_retry import PODS, is_transient
from haru.scheduler.metrics import STATUS_CALL, SchedulerMetrics
from haru.scheduler.shared import WatchedObjects
from haru.scheduler.status.conditions import (
    ConditionText,
    NominationChange,
    condition,
    group_scheduled_patch,
    pod_scheduled_patch,
    reserved_patch,
    unnominated_patch,
)

Build = Callable[[Obj], Obj | None]
_EXPLANATION = "explanation"
_KEPT = NominationChange(keep=True)
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


class _Problem(NamedTuple):
    """Why a write failed. The error itself would keep the frames that it went through, and they would keep it."""

    code: int
    """Of the answer; 0: there was none."""
    is_transient: bool
    text: str


class Explanations:
    """Keep the explanation of each object that waits, with the scheduler's own message that it is about.

    A message that says something else stands alone until it is explained, too.
    """

    def __init__(self) -> None:
        self.kept = False
        """Whether there will be explanations at all."""
        self._own: dict[tuple[str, str], tuple[str, str]] = {}
        self._texts: dict[tuple[str, str], tuple[str, str, str]] = {}

    def told(self, kind: Kind, obj: Obj, message: str) -> None:
        """Note what the scheduler says of an object."""
        if self.kept:
            self._own[kind.plural, path_of(obj)] = obj["metadata"]["uid"], message

    def own_message(self, kind: Kind, obj: Obj, current: str) -> str:
        """The scheduler's own message, where the condition has `current`."""
        uid, message = self._own.get((kind.plural, path_of(obj)), ("", ""))
        return message if uid == obj["metadata"]["uid"] else without_explanation(current)[0]

    def explain(self, kind: Kind, obj: Obj, message: str, text: str) -> None:
        """Keep what explains a message; an empty text explains nothing."""
        key = kind.plural, path_of(obj)
        if text:
            self._texts[key] = obj["metadata"]["uid"], message, text
        else:
            self._texts.pop(key, None)

    def explained(self, kind: Kind, obj: Obj, message: str) -> str:
        """The message, with what explains it."""
        uid, about, text = self._texts.get((kind.plural, path_of(obj)), ("", "", ""))
        return with_explanation(message, text) if (uid, about) == (obj["metadata"]["uid"], message) else message

    def forget(self, plural: str, path: str) -> None:
        """Drop what is kept of an object that does not wait any more."""
        self._own.pop((plural, path), None)
        self._texts.pop((plural, path), None)

    def forget_all_but(self, pods: Container[str], groups: Container[str]) -> None:
        """Drop what is kept of pods and groups that do not wait any more."""
        for plural, path in self._own.keys() | self._texts.keys():
            if path not in (pods if plural == PODS.plural else groups):
                self.forget(plural, path)


class StatusWriter:
    """Write reports beside the scheduling cycles."""

    def __init__(
        self,
        client: ApiClient,
        recorder: EventRecorder,
        clock: Callable[[], datetime],
        objects: WatchedObjects,
        metrics: SchedulerMetrics | None = None,
    ) -> None:
        self._metrics = metrics or SchedulerMetrics()
        self._client = client
        self._recorder = recorder
        self._clock = clock
        self._objects = objects
        self.explanations = Explanations()
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
            told = self.explanations.explained(PODS, pod, message)
            return pod_scheduled_patch(current, ConditionText(reason, told, format_time(self._clock())), nomination)

        self.explanations.told(PODS, pod, message)
        self._put(PODS, pod, build, lasting=False)

    def explained(self, kind: Kind, obj: Obj, text: str) -> None:
        """Write after the scheduler's own words why a pod or a PodGroup waits; take it away if `text` is empty."""
        type_ = "PodScheduled" if kind is PODS else "PodGroupScheduled"

        def build(current: Obj) -> Obj | None:
            told = condition((current.get("status") or {}).get("conditions"), type_)
            placed = (current.get("spec") or {}).get("nodeName") or current["metadata"].get("deletionTimestamp")
            if placed or told is None or told.get("status") != "False" or told.get("reason") == "SchedulingGated":
                return None
            own = self.explanations.own_message(kind, obj, str(told.get("message") or ""))
            self.explanations.explain(kind, obj, own, text)
            message, now = self.explanations.explained(kind, obj, own), format_time(self._clock())
            if kind is PODS:
                return pod_scheduled_patch(current, ConditionText(told["reason"], message, now), _KEPT)
            return group_scheduled_patch(current, "False", told["reason"], message, now)

        self._put(kind, obj, build, lasting=False, about=_EXPLANATION)

    def unnominated(self, pod: Obj) -> None:
        """The pod's promised place is gone."""
        self._put(PODS, pod, unnominated_patch, lasting=False)

    def bound(self, pod: Obj, node: str) -> None:
        """The pod has its node."""
        text = f"Successfully assigned {path_of(pod)} to {node}"
        self._recorder.event(pod, "Normal", "Scheduled", text, action="Binding", component=_scheduler_of(pod))

    def awaits_devices(self, pod: Obj, node: str) -> None:
        """Tell that a pod is bound once its devices are ready for its node."""
        text = f"waiting for binding conditions for device on node {node}"
        self._recorder.event(
            pod, "Normal", "BindingConditionsPending", text, action="Scheduling", component=_scheduler_of(pod)
        )

    def group(self, kind: Kind, group: Obj, status: str, reason: str, message: str) -> None:
        """`PodGroupScheduled`; once it is to become True nothing else is told."""

        def build(current: Obj) -> Obj | None:
            told = self.explanations.explained(kind, group, message)
            return group_scheduled_patch(current, status, reason, told, format_time(self._clock()))

        if status == "True":
            self.explanations.forget(kind.plural, path_of(group))
        else:
            self.explanations.told(kind, group, message)
        self._put(kind, group, build, lasting=status == "True")

    def reserved(self, kind: Kind, obj: Obj, text: str | None) -> None:
        """Places are kept for a pod or group, or no longer (None)."""

        def build(current: Obj) -> Obj | None:
            return reserved_patch(current, text, format_time(self._clock()))

        self._put(kind, obj, build, lasting=False, about=CONDITION)

    def cancel(self, pod_path: str) -> None:
        """Drop the reports about a pod: it is being bound now."""
        self.explanations.forget(PODS.plural, pod_path)
        for key in ((PODS.plural, pod_path), (f"{PODS.plural}{_EXPLANATION}", pod_path)):
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
        path, uid, began = path_of(obj), metadata["uid"], self._metrics.clock()
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
                self._measure(kind, "success", began)
                return
            if problem.code == 404:
                return
            text = problem.text
            if problem.code != 409 and not problem.is_transient:
                break
        self._measure(kind, "error", began)
        _log.warning("status of %s %s: %s", kind.kind, path, text)

    def _measure(self, kind: Kind, result: str, began: float) -> None:
        if kind is PODS:
            self._metrics.api_call(STATUS_CALL, result, self._metrics.clock() - began)

    async def _send(self, kind: Kind, obj: Obj, patch: Obj) -> _Problem | None:
        metadata = obj["metadata"]
        async with self._slots:
            try:
                answer = await self._client.patch(
                    kind, metadata["name"], patch, metadata.get("namespace", ""), "strategic", "status"
                )
            except (StatusError, OSError) as error:
                return _Problem(error.code if isinstance(error, StatusError) else 0, is_transient(error), str(error))
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
