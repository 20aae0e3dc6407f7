"""Kill containers: the preStop hook, the stop signal, and SIGKILL, within one grace period.

A task of its own kills each container; nothing here waits for it. Source: the termination of pods as documented;
sidecars end after the containers, the last one first.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from haru.kube.container_events import container_of
from haru.kube.container_restarts import is_sidecar
from haru.kube.meta import Obj
from haru.node.agent.context import Context
from haru.node.cri.errors import CriError
from haru.node.podworker.observed import EXITED, GRACE_PERIOD, RUNNING, UNKNOWN, SeenContainer, SeenPod
from haru.node.probes.probe_exec import Answer

_log = logging.getLogger(__name__)
_LEAST_SECONDS = 2.0
"""How long a container always has to end, after its hook, too."""
_ORPHAN_SECONDS = 30


@dataclass(frozen=True, slots=True)
class KillTarget:
    """A container to kill, with what its preStop hook needs; `pod` is None for one that the API does not know."""

    seen: SeenContainer
    pod: Obj | None = None
    container: Mapping[str, Any] | None = None
    address: str = ""


class ContainerKiller:
    """Kills the containers of one pod; `killed()` is called after each."""

    def __init__(self, context: Context, killed: Callable[[], None]) -> None:
        self._context, self._killed = context, killed
        self._tasks: dict[str, tuple[float, asyncio.Task[None]]] = {}
        self._hooked: dict[str, str] = {}
        """By container: the id of the last start whose preStop hook was run."""

    @property
    def is_busy(self) -> bool:
        """Whether a container is being killed."""
        return any(not task.done() for _, task in self._tasks.values())

    def is_killing(self, id_: str) -> bool:
        """Whether a container is being killed."""
        return id_ in self._tasks and not self._tasks[id_][1].done()

    def kill(self, target: KillTarget, grace: float, why: str) -> None:
        """Kill a container within `grace` seconds; a second call can only shorten that."""
        seen, deadline = target.seen, time.monotonic() + grace
        known = self._tasks.get(seen.id)
        if known is not None and not known[1].done():
            if known[0] <= deadline + 0.5:
                return
        elif target.pod is not None:
            self._context.recorder.event(container_of(target.pod, seen.name), "Normal", "Killing", why)
        task = asyncio.create_task(self._kill(target, deadline), name=f"kill {seen.name}")
        self._tasks[seen.id] = (deadline, task)
        task.add_done_callback(lambda _: self._forget(seen.id))

    def _forget(self, id_: str) -> None:
        """Forget a container that was killed, unless it is being killed anew."""
        if not self.is_killing(id_):
            self._tasks.pop(id_, None)

    async def _kill(self, target: KillTarget, deadline: float) -> None:
        seen = target.seen
        try:
            hook = ((target.container or {}).get("lifecycle") or {}).get("preStop")
            left = deadline - time.monotonic()
            if hook and target.pod is not None and left > 0 and self._hooked.get(seen.name) != seen.id:
                self._hooked[seen.name] = seen.id
                await self._run_pre_stop_hook(target.pod, target, hook, left)
                left = deadline - time.monotonic()
            await self._context.runtime.stop_container(seen.id, round(max(_LEAST_SECONDS, left)))
        except CriError as error:
            _log.warning("container %s (%s) could not be killed: %s", seen.name, seen.id, error)
            await asyncio.sleep(1.0)
        finally:
            self._killed()

    async def _run_pre_stop_hook(self, pod: Obj, target: KillTarget, hook: Mapping[str, Any], left: float) -> None:
        try:
            async with asyncio.timeout(left):
                container = target.container or {}
                answer = await self._context.handler_runner.run_hook(
                    hook, container, target.seen.id, target.address, left
                )
        except TimeoutError:
            # A sleep is not cut short by the end of the container.
            answer = Answer("sleep" in hook)
        if not answer.well:
            # What the hook said may be secret: whoever sees events is not told.
            about = container_of(pod, target.seen.name)
            self._context.recorder.event(about, "Warning", "FailedPreStopHook", "PreStopHook failed")

    async def remove(self, pod: Obj, listed: Sequence[SeenContainer]) -> None:
        """End containers as soon as can be, and remove them; their logs stay. Raises `CriError`."""
        for one in listed:
            if one.state != EXITED:
                self._context.recorder.event(container_of(pod, one.name), "Normal", "Killing", "killing")
                await self._context.runtime.stop_container(one.id, int(_LEAST_SECONDS))
            await self._context.runtime.remove_container(one.id)

    def kill_all(self, pod: Obj | None, seen: SeenPod, began: float, grace: float, address: str = "") -> bool:
        """Kill running containers, sidecars last; whether none is left. `began` is the time of the first call."""
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
            target = KillTarget(one, pod, specs.get(one.name), address)
            self.kill(target, grace, f"Stopping container {one.name}")
        return False

    def close(self) -> None:
        """Leave what is being killed to the runtime."""
        for _, task in self._tasks.values():
            task.cancel()


def grace_of(pod: Obj | None, seen: SeenPod | None = None) -> float:
    """The grace period of a pod in seconds; for one that the API lacks, from its containers' annotations."""
    if pod is None:
        noted = [one.annotations.get(GRACE_PERIOD, "") for one in (seen.containers if seen is not None else ())]
        return float(next((text for text in noted if text.isdigit()), _ORPHAN_SECONDS))
    asked = pod["metadata"].get("deletionGracePeriodSeconds")
    if asked is None:
        asked = pod["spec"].get("terminationGracePeriodSeconds")
    return float(_ORPHAN_SECONDS if asked is None else asked)
