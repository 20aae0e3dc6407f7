"""The starts of a pod's containers that are due: each at its time, and why a container waits.

A container that crashed waits for the pause of its loop, one that could not be started for its next attempt. What is
known of that goes with the worker; a restart of the agent begins anew.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from haru.kube.container_events import container_of
from haru.kube.container_restarts import CrashLoop
from haru.kube.meta import Obj
from haru.node.agent.context import Context
from haru.node.agent.images import PULL_ERROR, StartError
from haru.node.cri.errors import CriError
from haru.node.dra.devices import DevicesError, Prepared
from haru.node.podworker.attempts import failed_to_run, next_attempt, target_id
from haru.node.podworker.container_start import ContainerStart, ContainerStarter, PodInputs
from haru.node.podworker.observed import CREATED, EXITED, SeenContainer, SeenPod
from haru.node.podworker.plan import Plan, container_specs, crash_key
from haru.node.podworker.resize import PodResizer
from haru.node.podworker.runtime_status import RuntimeStatus
from haru.node.podworker.sandboxes import Sandboxes

RETRY_SECONDS = 10.0


class DueStarts:
    """Starts the containers of one pod. `wake` has it synced soon."""

    def __init__(
        self,
        context: Context,
        starter: ContainerStarter,
        runtime_status: RuntimeStatus,
        places: tuple[Sandboxes, PodResizer],
        wake: Callable[[], None],
    ) -> None:
        self._context, self._starter, self._runtime_status, self._wake = context, starter, runtime_status, wake
        self._sandboxes, self._resizer = places
        intervals = context.options.intervals
        self.pauses = CrashLoop(intervals.crash_first_seconds, intervals.crash_longest_seconds)
        self.reasons: dict[str, tuple[str, str]] = {}
        """By container that waits: a reason and a message."""
        self.prepared: Prepared | None = None
        """The devices of the pod's sandbox, once they were asked for: a container that starts again asks nobody."""
        self._retry_at: dict[str, float] = {}
        """By container that did not start: when the next attempt may be made, by the monotonic clock."""

    def retry(self) -> None:
        """Try again at once what could not be started."""
        self._retry_at.clear()

    def forget(self) -> None:
        """All containers begin anew."""
        self.reasons.clear()
        self._retry_at.clear()

    def note_crashing(self, plan: Plan, seen: SeenPod) -> None:
        """Update the reasons of waiting containers; one that crashes is said to wait until it runs again."""
        for name in list(self.reasons):
            last = seen.newest(name)
            if last is not None and last.runs:
                del self.reasons[name]
        for name in failed_to_run(self.reasons, seen):
            self._retry_at.pop(name, None)
        for name in self._crashing(plan):
            self.reasons[name] = "CrashLoopBackOff", plan.crashing[name]

    def _crashing(self, plan: Plan) -> list[str]:
        """The containers that wait because they crash; of others the last start failed, which says more."""
        return [name for name in plan.crashing if name not in self._retry_at]

    async def start_all(self, pod: Obj, seen: SeenPod, plan: Plan, inputs: PodInputs) -> float:
        """Start the containers that are due; seconds until the next ones are."""
        options, now = self._context.options, time.monotonic()
        wait = options.intervals.resync_seconds if plan.wake_after is None else plan.wake_after
        for name in self._crashing(plan):
            self._context.recorder.event(container_of(pod, name), "Warning", "BackOff", _backed_off(pod, name))
        specs = {one["name"]: one for one in container_specs(pod)}
        began = False
        for name in plan.starts:
            if self._retry_at.get(name, 0.0) > now:
                wait = min(wait, self._retry_at[name] - now)
                continue
            try:
                if self.prepared is None:
                    self.prepared = await self._context.devices.prepare(pod)
                await self._start(pod, specs[name], seen, replace(inputs, prepared=self.prepared))
                self.reasons.pop(name, None)
                self._retry_at.pop(name, None)
                began = True
            except StartError as error:
                self.reasons[name] = error.reason, str(error)
                pause = _retry_pause(error, has_run=seen.newest(name) is not None)
                if pause:
                    self._retry_at[name] = time.monotonic() + max(pause, 0.1)
                wait = min(wait, max(pause, 0.1))
                self._wake()
            except DevicesError as error:
                self._context.recorder.event(pod, "Warning", error.reason, str(error))
                wait = min(wait, RETRY_SECONDS)
        return 0.0 if began else wait

    async def _start(self, pod: Obj, spec: Obj, seen: SeenPod, inputs: PodInputs) -> None:
        history, sandbox = seen.history(spec["name"]), seen.sandbox
        assert sandbox is not None
        attempt = next_attempt(pod, spec["name"], seen)
        await self._remove_earlier_starts(history)
        if history and history[0].state == EXITED:
            self.pauses.started(crash_key(spec), history[0].finished_at / 1e9, time.time())
        config = self._sandboxes.config(pod, sandbox.attempt)
        target = target_id(spec, seen)
        request = ContainerStart(pod, spec, attempt, sandbox, config, inputs, target)
        id_ = await self._starter.start(request, partial(self._runtime_status.expect, sandbox=sandbox.id))
        self._resizer.started(id_, spec)
        # One end is remembered beside the container that runs.
        for old in history[1:]:
            await self._context.runtime.remove_container(old.id)
            with contextlib.suppress(OSError):
                await asyncio.to_thread(Path(old.files.log).unlink)

    async def _remove_earlier_starts(self, history: Sequence[SeenContainer]) -> None:
        """Remove or stop earlier starts of a container, so that nothing runs twice. Raises `StartError`.

        One that is only made may be on its way to run, if a call for that took longer than anybody waited, or its
        caller was stopped. A runtime refuses to remove it in the middle of that; once it is removed it does not start.
        """
        try:
            for one in history:
                if one.state == CREATED:
                    await self._context.runtime.remove_container(one.id)
                elif one.state != EXITED:
                    await self._context.runtime.stop_container(one.id, 2)
        except CriError as error:
            raise StartError("CreateContainerError", f"an earlier start is not over: {error}", 1.0) from error


def _retry_pause(error: StartError, *, has_run: bool) -> float:
    """How long the next attempt waits; 0 where a look at once says more: that a crash loop, or one of pulls, has begun.

    Kubelets look again after a failed pull because the pod's sandbox is new; that of a container which has run is not.
    """
    if error.wait is None or (has_run and error.reason == PULL_ERROR):
        return RETRY_SECONDS
    return error.wait


def _backed_off(pod: Obj, name: str) -> str:
    meta = pod["metadata"]
    return f"Back-off restarting failed container {name} in pod {meta['name']}_{meta['namespace']}({meta['uid']})"
