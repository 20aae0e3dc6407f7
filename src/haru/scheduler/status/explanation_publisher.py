"""Publish why work waits, with its numbers and the first remedy, where people look: in conditions and events.

A unit is explained once it has waited for a second after it was refused or held, the newest of those that never were
explained first, the others at most every 30 seconds. Its PodGroup gets the whole text, its members one line, a pod
without one the whole text; an event is told when the reason or the first remedy is another one. The explanation is made
from the scheduler's snapshot, with a decision cache of its own (`explanation_worker` says where and how fast).
Source: our own. Decided in docs/adr/0022.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from haru.client.events import EventRecorder
from haru.engine import Options, Snapshot
from haru.engine.equivalence import DecisionCache
from haru.engine.framework import PreemptionOptions
from haru.engine.state import WHOLE, GroupKey, PodInfo
from haru.explain import AGAIN_SECONDS, UNEXPLAINED, ExplanationQueue, UnitKey
from haru.explanation_worker import SHARE, Worker, explain_in_time
from haru.gangs import is_translated
from haru.kube.kinds import Kind
from haru.kube.meta import Obj
from haru.kube.names import format_time
from haru.kube.partition_names import HOLDER
from haru.scheduler.binding.write_retry import PODS
from haru.scheduler.coexistence.partition_leases import annotations_of
from haru.scheduler.shared import SchedulerState
from haru.scheduler.status.status_writer import StatusWriter

if TYPE_CHECKING:
    from haru.explain import Explanation

REASON = "SchedulingExplained"
_BUSY_SECONDS = 1.0
"""How long after a cycle there may be more work: under load a scheduler waits for its API server."""
_LOOK_SECONDS = 0.25
_WRITE_SECONDS = 0.002
"""What a condition and an event are taken to cost."""
_QUESTIONS = "haru.explain.pending_question"
_log = logging.getLogger(__name__)


class QuestionOptions(Protocol):
    """How the scheduler would decide these pods, for a question that is no decision."""

    def __call__(self, pods: list[Obj], group: Obj | None) -> Options:
        """Return the engine's options."""


class ExplanationPublisher:
    """Explain the units of one scheduler that wait, and write it down. `names`: names of all namespaces are shown."""

    def __init__(
        self,
        state: SchedulerState,
        status: StatusWriter,
        recorder: EventRecorder,
        options: QuestionOptions,
        *,
        names: bool = False,
    ) -> None:
        self._state, self._status, self._recorder, self._options = state, status, recorder, options
        self._names = names
        self._queue = ExplanationQueue()
        self._cache = DecisionCache()
        self._added = asyncio.Event()
        self._last_cycle = float("-inf")
        self._forgotten = 0.0
        status.explanations.kept = True

    def waits(self, key: UnitKey) -> None:
        """Hear that a unit was refused or is held."""
        self._queue.add(key, self._now())
        self._added.set()

    def cycle_ran(self) -> None:
        """Hear that there was work to schedule."""
        self._last_cycle = self._now()

    def busy(self) -> bool:
        """Tell whether there is work to schedule. May be called from any thread."""
        return self._now() - self._last_cycle < _BUSY_SECONDS or bool(self._state.tasks.running)

    async def run(self, worker: Worker) -> None:
        """Explain and publish until cancelled."""
        try:
            while True:
                due = self._queue.next_due(self._now())
                if due is None or due[0] > self._now():
                    await self._rest_until(due[0] if due is not None else None)
                    continue
                self._queue.take(due[1])
                try:
                    written = await self._publish(due[1], worker)
                except Exception:
                    # What cannot be explained has the scheduler's own words.
                    _log.exception("%s cannot be explained", "/".join(due[1]))
                    self._queue.explained[due[1]] = (self._now(), UNEXPLAINED)
                    written = 0
                await self._pause(written)
                self._forget()
        finally:
            worker.stop()

    async def _rest_until(self, time: float | None) -> None:
        self._added.clear()
        try:
            async with asyncio.timeout(None if time is None else max(time - self._now(), 0.0)):
                await self._added.wait()
        except TimeoutError:
            return

    async def _pause(self, written: int) -> None:
        """Leave the time to others while they have work: what was written took some of it, too."""
        left = written * _WRITE_SECONDS / SHARE
        while left > 0.0 and self.busy():
            await asyncio.sleep(min(left, _LOOK_SECONDS))
            left -= _LOOK_SECONDS
        await asyncio.sleep(0)

    def _forget(self) -> None:
        """Drop what is kept of those that do not wait any more, once in a while."""
        if self._now() - self._forgotten < 10 * AGAIN_SECONDS:
            return
        self._forgotten, units = self._now(), self._state.queue.units
        self._queue.forget_all_but(units)
        pods = {path for unit in units.values() for path in unit.pods}
        groups = {f"{namespace}/{name}" for sort, namespace, name in units if sort == "group"}
        self._status.explanations.forget_all_but(pods, groups)

    def _now(self) -> float:
        return self._state.config.monotonic()

    # -- one unit -----------------------------------------------------------------------------------------------------

    async def _publish(self, key: UnitKey, worker: Worker) -> int:
        """Explain a unit and write it down; return how many objects that is told of."""
        snapshot = self._state.cluster.snapshot()
        members = self._members(key, snapshot)
        if not members:
            return 0
        group = snapshot.pod_group(GroupKey(key[1], key[2])) if key[0] == "group" else None
        found = await self._explained(snapshot, members, group, worker)
        if found is None:
            self._queue.explained[key] = (self._now(), UNEXPLAINED)
            return 0
        return self._told(key, found, self._members(key, self._state.cluster.snapshot()), group)

    def _members(self, key: UnitKey, snapshot: Snapshot) -> list[PodInfo]:
        unit = self._state.queue.units.get(key)
        found = [snapshot.pods[path] for path in unit.pods if path in snapshot.pods] if unit is not None else []
        return [pod for pod in found if not (pod.node or pod.terminal or pod.deleting or pod.gated)]

    async def _explained(
        self, snapshot: Snapshot, members: list[PodInfo], group: Obj | None, worker: Worker
    ) -> Explanation | None:
        """Explain with remedies, without where that takes too long; None where that does, too."""
        if _QUESTIONS not in sys.modules:
            # A tenth of a second, which neither a start nor the event loop waits for.
            await worker.run(lambda _: importlib.import_module(_QUESTIONS))
        from haru.explain import PendingQuestion

        seen = replace(
            snapshot,
            others={**snapshot.others, "Lease": {"": self._lease()}},
            node_device_classes=None,
            decision_cache=self._cache,
        )
        pods = [pod.obj for pod in members]
        options = replace(self._options(pods, group), preemption=PreemptionOptions(), new_share_id=lambda: "explained")
        question = PendingQuestion(seen, pods[0], group, options, format_time(self._state.config.clock()))
        return await explain_in_time(worker, question, names=self._names)

    def _lease(self) -> Obj:
        """What tells that the pods' scheduler is known: this one."""
        annotations = annotations_of(self._state.config.scheduler_names, WHOLE)
        metadata = {"name": "haru-scheduler", "namespace": "kube-system", "annotations": {**annotations, HOLDER: "-"}}
        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": metadata,
            "spec": {"holderIdentity": "-"},
        }

    def _told(self, key: UnitKey, found: Explanation, members: list[PodInfo], group: Obj | None) -> int:
        """Write the conditions, and the events if they say something new."""
        from haru.explain import change_key, condition_line, condition_text, is_waiting

        waiting, why = is_waiting(found), change_key(found)
        line = condition_line(found) if waiting else ""
        whole = condition_text(found) if waiting else ""
        last = self._queue.explained.get(key, (0.0, UNEXPLAINED))[1]
        self._queue.explained[key] = (self._now(), why)
        written = 0
        own_group = group if group is not None and not is_translated(group) else None
        kind = self._group_kind()
        if own_group is not None and kind is not None:
            self._status.explained(kind, own_group, whole)
            written += 1
        for pod in members:
            self._status.explained(PODS, pod.obj, line if own_group is not None else whole)
        if waiting and why != last:
            for obj in ([own_group] if own_group is not None else []) + [pod.obj for pod in members]:
                name = members[0].scheduler_name if members else ""
                self._recorder.event(obj, "Warning", REASON, line, action="Scheduling", component=name)
        return written + len(members)

    def _group_kind(self) -> Kind | None:
        informer = self._state.objects.informers.get("PodGroup")
        return informer.kind if informer is not None else None
