"""Ending containers: the preStop hook, the polite signal, and the end, within one grace period.

Nothing here waits for the end of a container: each is ended by a task of its own, and whoever asked is called when it
is through. Source: the termination of pods as documented; sidecars end after the containers, the last one first.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

from haru.node.agent.context import Context
from haru.node.cri.errors import CriError
from haru.node.podworker.observed import GRACE_PERIOD, RUNNING, UNKNOWN, SeenContainer, SeenPod
from haru.node.podworker.restarts import is_sidecar

Obj = dict[str, Any]
_log = logging.getLogger(__name__)
_LEAST_SECONDS = 2.0
_ORPHAN_SECONDS = 30


class Ender:
    """Ends the containers of one pod; `through()` is called after each."""

    def __init__(self, context: Context, through: Callable[[], None]) -> None:
        self._context, self._through = context, through
        self._tasks: dict[str, tuple[float, asyncio.Task[None]]] = {}
        self._hooked: set[str] = set()

    @property
    def is_busy(self) -> bool:
        """Something is being ended."""
        return any(not task.done() for _, task in self._tasks.values())

    def is_ending(self, id_: str) -> bool:
        """That container is being ended."""
        return id_ in self._tasks and not self._tasks[id_][1].done()

    def end(
        self,
        pod: Obj | None,
        container: Mapping[str, Any] | None,
        seen: SeenContainer,
        grace: float,
        why: str,
        ip: str = "",
    ) -> None:
        """End a container within `grace` seconds; asked again it only ever ends sooner."""
        deadline = time.monotonic() + grace
        known = self._tasks.get(seen.id)
        if known is not None and not known[1].done():
            if known[0] <= deadline + 0.5:
                return
        elif pod is not None:
            self._context.recorder.event(pod, "Normal", "Killing", why)
        task = asyncio.create_task(self._end(pod, container, seen, deadline, ip), name=f"end {seen.name}")
        self._tasks[seen.id] = (deadline, task)

    async def _end(
        self, pod: Obj | None, container: Mapping[str, Any] | None, seen: SeenContainer, deadline: float, ip: str
    ) -> None:
        try:
            hook = ((container or {}).get("lifecycle") or {}).get("preStop")
            left = deadline - time.monotonic()
            if hook and pod is not None and container is not None and left > 0 and seen.id not in self._hooked:
                self._hooked.add(seen.id)
                await self._before(pod, container, hook, seen, left, ip)
                left = max(_LEAST_SECONDS, deadline - time.monotonic())
            await self._context.runtime.stop_container(seen.id, max(0, round(left)))
        except CriError as error:
            _log.warning("container %s (%s) could not be ended: %s", seen.name, seen.id, error)
            await asyncio.sleep(1.0)
        finally:
            self._through()

    async def _before(
        self, pod: Obj, container: Mapping[str, Any], hook: Mapping[str, Any], seen: SeenContainer, left: float, ip: str
    ) -> None:
        try:
            async with asyncio.timeout(left):
                answer = await self._context.asker.ask(hook, container, seen.id, ip, left)
        except TimeoutError:
            return
        if not answer.well:
            self._context.recorder.event(pod, "Warning", "FailedPreStopHook", f"PreStopHook failed: {answer.text}")

    def end_all(self, pod: Obj | None, seen: SeenPod, began: float, grace: float, ip: str = "") -> bool:
        """End what runs, in the order of pods; whether nothing runs any more. `began` is when this was first asked."""
        running = [one for one in seen.containers if one.state in (RUNNING, UNKNOWN)]
        if not running:
            return not self.is_busy
        spec = pod["spec"] if pod is not None else {}
        specs = {one["name"]: one for one in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ()))}
        order = [one["name"] for one in spec.get("initContainers") or () if is_sidecar(one)]
        first = [one for one in running if one.name not in order]
        if not first:
            last = max(running, key=lambda one: order.index(one.name))
            left = max(_LEAST_SECONDS, began + grace - time.monotonic()) if grace else 0.0
            first, grace = [last], left
        for one in first:
            self.end(pod, specs.get(one.name), one, grace, f"Stopping container {one.name}", ip)
        return False

    def close(self) -> None:
        """Leave what is being ended to the runtime."""
        for _, task in self._tasks.values():
            task.cancel()


def grace_of(pod: Obj | None, seen: SeenPod | None = None) -> float:
    """Seconds that the containers of a pod have to end; what is no longer in the API said so when it was made."""
    if pod is None:
        noted = [one.annotations.get(GRACE_PERIOD, "") for one in (seen.containers if seen is not None else ())]
        return float(next((text for text in noted if text.isdigit()), _ORPHAN_SECONDS))
    asked = pod["metadata"].get("deletionGracePeriodSeconds")
    if asked is None:
        asked = pod["spec"].get("terminationGracePeriodSeconds")
    return float(_ORPHAN_SECONDS if asked is None else asked)
