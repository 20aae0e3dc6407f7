"""Probes of the running containers of one pod: a task for each, and what they found.

A container that already ran when the agent started has the results that the pod's status tells of until its probes have
decided anew: a restart of the agent makes nothing unready. What could not be asked is asked three times,
and then counts for nothing, as in the kubelet.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from random import Random
from typing import Any, Final

from haru.client.events import EventRecorder
from haru.kube.container_events import container_of
from haru.kube.meta import Obj
from haru.node.podworker.observed import SeenContainer
from haru.node.podworker.plan import ProbeResults
from haru.node.probes.metrics import probed
from haru.node.probes.probe_exec import Answer, HandlerRunner
from haru.node.probes.schedule import FIELDS, ProbeName, ProbeState

_ATTEMPTS: Final = 3
_log = logging.getLogger(__name__)


class Prober:
    """The probes of one pod; `changed()` is called when a result turns."""

    def __init__(self, handler_runner: HandlerRunner, recorder: EventRecorder, changed: Callable[[], None]) -> None:
        self._handler_runner, self._recorder, self._changed = handler_runner, recorder, changed
        self._tasks: dict[str, list[asyncio.Task[None]]] = {}
        self._streaks: dict[str, dict[ProbeName, ProbeState]] = {}

    def results(self) -> dict[str, ProbeResults]:
        """By container id."""
        return {
            id_: ProbeResults(**{name: streak.result for name, streak in streaks.items()})
            for id_, streaks in self._streaks.items()
        }

    def watch(
        self, pod: Obj, container: Mapping[str, Any], seen: SeenContainer, address: str, before: Obj | None
    ) -> None:
        """Probe a running container, if it is not probed yet. `before` is the status that it had, if it is its own."""
        if seen.id in self._streaks:
            return
        streaks = {name: ProbeState(container[field], name) for name, field in FIELDS.items() if container.get(field)}
        if before is not None:
            if "startup" in streaks and before.get("started"):
                streaks["startup"].result = True
            if "readiness" in streaks and before.get("ready"):
                streaks["readiness"].result = True
        self._streaks[seen.id] = streaks
        if streaks:
            tasks = [asyncio.create_task(self._probe(pod, container, seen, address, s)) for s in streaks.values()]
            self._tasks[seen.id] = tasks

    def keep_only(self, ids: set[str]) -> None:
        """Those of other containers end."""
        for id_ in [id_ for id_ in self._streaks if id_ not in ids]:
            del self._streaks[id_]
            for task in self._tasks.pop(id_, ()):
                task.cancel()

    def end_restarts(self) -> None:
        """Go on with readiness alone: the pod is being deleted, and no container of it is restarted any more."""
        for id_, tasks in self._tasks.items():
            for name, task in zip(self._streaks[id_], tasks, strict=True):
                if name != "readiness":
                    task.cancel()

    def close(self) -> None:
        """All end."""
        self.keep_only(set())

    async def _probe(
        self, pod: Obj, container: Mapping[str, Any], seen: SeenContainer, address: str, streak: ProbeState
    ) -> None:
        wait = streak.delay(seen.started_at / 1e9, time.time())
        if time.time() - seen.started_at / 1e9 > streak.period:
            wait = max(wait, Random().uniform(0, min(streak.period, 1.0)))
        await asyncio.sleep(wait)
        counts, counted = self._handler_runner.counts, probed(pod, container["name"], streak.name)
        try:
            while not streak.is_final:
                if not self._is_due(seen.id, streak):
                    await asyncio.sleep(0.1)
                    continue
                answer = await self._ask(container, seen, address, streak)
                self._tell(container_of(pod, container["name"]), streak, answer)
                if answer.result != "unknown":
                    counts.count(counted, answer.well)
                    if streak.heard(answer.well):
                        self._changed()
                if not streak.is_final:
                    await asyncio.sleep(streak.period)
        finally:
            counts.forget(counted)

    async def _ask(self, container: Mapping[str, Any], seen: SeenContainer, address: str, streak: ProbeState) -> Answer:
        answer = Answer(False, "", "unknown")
        for _ in range(_ATTEMPTS):
            try:
                answer = await self._handler_runner.run(streak.probe, container, seen.id, address, streak.timeout)
            except Exception as error:
                _log.exception("container %s: the %s probe could not be made", seen.name, streak.name)
                answer = Answer(False, str(error), "unknown")
            if answer.result != "unknown":
                break
        return answer

    def _tell(self, about: Obj, streak: ProbeState, answer: Answer) -> None:
        name = f"{streak.name.capitalize()} probe"
        if answer.result == "unknown":
            text = f"{name} errored and resulted in unknown state: {answer.text}"
            self._recorder.event(about, "Warning", "Unhealthy", text)
        elif answer.result == "warning":
            self._recorder.event(about, "Warning", "ProbeWarning", f"{name} warning: {answer.text}")
        elif not answer.well:
            self._recorder.event(about, "Warning", "Unhealthy", f"{name} failed: {answer.text}")

    def _is_due(self, id_: str, streak: ProbeState) -> bool:
        startup = self._streaks.get(id_, {}).get("startup")
        return streak.name == "startup" or startup is None or startup.result is True
