"""Explain the pods of other schedulers while they wait: `haru explain --publish`, an annotation and an event each.

It watches the cluster as the resident answer does. What is placed together is explained once, some seconds after it
began to wait, and at most every 30 seconds while the cluster changes. A pod is written when the verdict, the type of
the first reason or the first remedy is another one, and its annotations are removed once it is bound. The thread that
explains has a quarter of a processor's time, and ten pods are written in a second.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace

from haru.client.api import ApiClient
from haru.client.events import EventRecorder
from haru.clock import SYSTEM, Clock
from haru.cluster_view import ClusterView, ClusterWatch
from haru.engine.state import GroupKey, PodInfo
from haru.event_loop import cancelled
from haru.explain import (
    AGAIN_SECONDS,
    UNEXPLAINED,
    Explanation,
    ExplanationQueue,
    PendingQuestion,
    UnitKey,
    change_key,
    condition_line,
    condition_text,
    hypothetical_options,
    is_waiting,
)
from haru.explain.pending_pods import pending_pods
from haru.explain_server.pod_annotations import (
    annotation_patch,
    explanation_of,
    is_pending,
    no_longer_waiting,
    schedulers_of_haru,
)
from haru.explain_server.server import KINDS, NAME, SELECTIONS
from haru.explanation_worker import ThreadWorker, Worker, explain_in_time
from haru.kube.errors import StatusError
from haru.kube.kinds import known_kind
from haru.kube.meta import Obj, name_of, namespace_of
from haru.kube.names import format_time

REASON = "SchedulingExplained"
_PODS = known_kind("v1", "Pod")
_SETTLE_SECONDS = 5.0
_RETRY_SECONDS = 2.0
_LOOK_SECONDS = 1.0
_WRITE_SECONDS = 0.1
_ATTEMPTS = 3
_log = logging.getLogger(__name__)


class PodExplanationPublisher:
    """Explain what waits for schedulers that are not Haru's. `names`: names of all namespaces are shown.

    One process may do so at a time. `gates` says by which feature gates the cluster's controllers make pods.
    """

    def __init__(
        self,
        client: ApiClient,
        *,
        names: bool = False,
        gates: Callable[[ApiClient], Mapping[str, bool]] | None = None,
        worker: Worker | None = None,
        clock: Clock = SYSTEM,
    ) -> None:
        self._client, self._names, self._gates, self._clock = client, names, gates, clock
        self._worker = worker or ThreadWorker(lambda: False)
        self._recorder = EventRecorder(client, NAME, now=clock.now, monotonic=clock.monotonic)
        self._watch = ClusterWatch(client, kinds=KINDS, name=NAME, selections=SELECTIONS)
        self._queue = ExplanationQueue(_SETTLE_SECONDS)
        self._refused: dict[str, float] = {}
        """Pods that could not be written, and from when on that is tried again."""
        self.synced = asyncio.Event()
        """Whether the cache has what the server has."""

    async def run(self) -> None:
        """Explain and publish until cancelled."""
        try:
            while True:
                with contextlib.suppress(OSError):
                    async with self._watch.viewing():
                        await self._until_ended()
                await asyncio.sleep(_RETRY_SECONDS)
        finally:
            self._worker.stop()
            await self._watch.stop()
            await self._recorder.close()

    async def _until_ended(self) -> None:
        self.synced.set()
        ended = asyncio.create_task(self._watch.ended(), name=f"{NAME} watches")
        work = asyncio.create_task(self._publish_all(), name=f"{NAME} publisher")
        try:
            await asyncio.wait({ended, work}, return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                work.result()
        finally:
            await cancelled(ended, work)
            self.synced.clear()

    async def _publish_all(self) -> None:
        seen = -1
        while True:
            view, now = self._watch.view(), self._clock.monotonic()
            if view.version != seen:
                seen = view.version
                await self._look(view)
            due = self._queue.next_due(now)
            if due is not None and due[0] <= now:
                self._queue.take(due[1])
                await self._publish(due[1])
                continue
            # What comes within a second is looked at together.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(None if due is None else due[0] - now):
                    await asyncio.sleep(_LOOK_SECONDS)
                    await self._watch.changes.newer_than(seen)

    async def _look(self, view: ClusterView) -> None:
        """Have everything explained that waits, and take the words away from what does not any more."""
        own, now = schedulers_of_haru(view.snapshot), self._clock.monotonic()
        waiting = {_unit_of(pod) for pod in pending_pods(view.snapshot).values() if is_pending(pod, own)}
        for key in waiting:
            self._queue.add(key, now)
        self._queue.forget_all_but(waiting)
        self._refused = {path: until for path, until in self._refused.items() if until > now}
        for pod in no_longer_waiting(view.snapshot, own):
            await self._write(pod, "")

    async def _publish(self, key: UnitKey) -> None:
        """Explain what is placed together, and write it on each of its pods."""
        view = self._watch.view()
        pods = _members(view, key)
        if not pods:
            return
        found = await self._explained(view, key, pods[0].obj)
        why = change_key(found) if found is not None and is_waiting(found) else UNEXPLAINED
        last = self._queue.explained.get(key, (0.0, UNEXPLAINED))[1]
        written = True
        for pod in _members(self._watch.view(), key):
            written &= await self._tell(pod, found, changed=why != last)
        # What could not be written is tried again with the next explanation.
        self._queue.explained[key] = self._clock.monotonic(), why if written else UNEXPLAINED

    async def _explained(self, view: ClusterView, key: UnitKey, pod: Obj) -> Explanation | None:
        kind, namespace, name = key
        group = view.snapshot.pod_group(GroupKey(namespace, name)) if kind == "group" else None
        gates = self._gates(self._client) if self._gates is not None else None
        options = replace(hypothetical_options(), new_share_id=lambda: "explained")
        now = format_time(self._clock.now())
        question = PendingQuestion(view.snapshot, pod, group, options, now, view.refused, gates)
        try:
            return await explain_in_time(self._worker, question, names=self._names)
        except Exception:
            _log.exception("%s cannot be explained", "/".join(key))
            return None

    async def _tell(self, pod: PodInfo, found: Explanation | None, *, changed: bool) -> bool:
        """Write a pod, if there is something new to say; whether all is written."""
        there = explanation_of(pod.obj)
        if found is None or not is_waiting(found):
            return not there or await self._write(pod, "")
        text = condition_text(found)
        if there and (not changed or there == text):
            return True
        if not await self._write(pod, text):
            return False
        self._recorder.event(pod.obj, "Warning", REASON, condition_line(found), action="Explaining")
        return True

    async def _write(self, pod: PodInfo, text: str) -> bool:
        """Write the annotations of a pod, or remove them; whether that is done, or nothing is left to write to."""
        if self._refused.get(pod.key.path, 0.0) > self._clock.monotonic():
            return False
        patch = annotation_patch(pod.obj, text, format_time(self._clock.now()))
        problem = ""
        for attempt in range(_ATTEMPTS):
            await asyncio.sleep(_WRITE_SECONDS * 4**attempt)
            try:
                await self._client.patch(_PODS, name_of(pod.obj), patch, namespace_of(pod.obj))
            except StatusError as error:
                if error.code in (404, 409):
                    # It is gone; one of the same name is another pod.
                    return True
                problem = str(error)
                if error.code != 429 and error.code < 500:
                    break
            except OSError as error:
                problem = str(error)
            else:
                return True
        _log.warning("the explanation of pod %s is not written: %s", pod.key.path, problem)
        self._refused[pod.key.path] = self._clock.monotonic() + AGAIN_SECONDS
        return False


def _unit_of(pod: PodInfo) -> UnitKey:
    """What is placed together with a pod: itself, or its group."""
    if pod.group is not None:
        return "group", pod.group.namespace, pod.group.name
    return "pod", pod.key.namespace, pod.key.name


def _members(view: ClusterView, key: UnitKey) -> list[PodInfo]:
    """The pods of a unit that wait."""
    kind, namespace, name = key
    snapshot, own = view.snapshot, schedulers_of_haru(view.snapshot)
    paths = (
        sorted(snapshot.group_state(GroupKey(namespace, name)).unscheduled)
        if kind == "group"
        else [f"{namespace}/{name}"]
    )
    return [snapshot.pods[path] for path in paths if path in snapshot.pods and is_pending(snapshot.pods[path], own)]
