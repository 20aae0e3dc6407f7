"""One pod: look, tell, decide, do; again whenever something happened.

The worker holds nothing that a restart of the agent would miss: what runs is known by the runtime's labels, what was
told by the pod's status. It ends when the pod has gone from the API and from the machine.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from haru.client.backoff import Backoff
from haru.kube.errors import StatusError
from haru.kube.kinds import known_kind
from haru.kube.names import parse_time
from haru.node.agent.context import Context
from haru.node.agent.images import StartError
from haru.node.cgroups.tree import CgroupError
from haru.node.cri.errors import CriError
from haru.node.dra.devices import DevicesError, Prepared
from haru.node.podworker.container_kill import Ender, grace_of
from haru.node.podworker.container_start import Starter
from haru.node.podworker.environment import Sources
from haru.node.podworker.fields import ConfigError, Place
from haru.node.podworker.observed import CREATED, EXITED, SeenContainer, SeenPod
from haru.node.podworker.plan import Plan, container_hash, crash_key, decide
from haru.node.podworker.pod_cleanup import Clearing
from haru.node.podworker.restarts import CrashLoop
from haru.node.podworker.runtime_status import Looker
from haru.node.podworker.sandboxes import Sandboxes
from haru.node.podworker.userns import UserNamespaceError
from haru.node.probes.prober import Prober
from haru.node.status.container_status import by_name, has_run, living_ids
from haru.node.status.pod_status import TERMINAL, pod_ips
from haru.node.status.status_manager import PODS, StatusManager

Obj = dict[str, Any]
_log = logging.getLogger(__name__)
RUNTIME_CLASSES = known_kind("node.k8s.io/v1", "RuntimeClass")
_RETRY_SECONDS = 10.0
OVERDUE = "Pod was active on the node longer than the specified deadline"


class PodWorker:
    """Keeps one pod as it should be. `told(pod)` is called with what the API answered to a written status."""

    def __init__(self, context: Context, starter: Starter, uid: str, told: Callable[[Obj], None]) -> None:
        options = context.options
        self._context, self._starter, self.uid, self._told = context, starter, uid, told
        self.pod: Obj | None = None
        self.seen = SeenPod()
        self._wake = asyncio.Event()
        self._looker = Looker(context.runtime, uid)
        self._ender = Ender(context, self.poke)
        self._prober = Prober(context.asker, context.recorder, self.poke)
        self._teller = StatusManager(context)
        self._sandboxes = Sandboxes(context)
        self._clearing = Clearing(context, self._sandboxes, uid)
        self._loop = CrashLoop(options.intervals.crash_first_seconds, options.intervals.crash_longest_seconds)
        self._backoff = Backoff(base=1.0, cap=20.0)
        self._reasons: dict[str, tuple[str, str]] = {}
        self._retry_at: dict[str, float] = {}
        self._failure: tuple[str, str] | None = None
        self._over = False
        self._gone = False
        self._end_began: float | None = None
        self._cleaned = False

    # -- what others say ----------------------------------------------------------------------------------------------

    def update(self, pod: Obj) -> None:
        """The pod as the API has it now."""
        if self.pod is not None and self.pod["metadata"].get("generation") != pod["metadata"].get("generation"):
            self._retry_at.clear()
        self.pod = pod
        self.poke()

    def removed(self) -> None:
        """The pod is no longer in the API, or never was."""
        self._gone = True
        self.poke()

    def objects_changed(self) -> None:
        """Something that the pod refers to has changed: what failed for the want of it is tried again."""
        self._retry_at.clear()
        self.poke()

    def reject(self, reason: str, message: str) -> None:
        """The node does not take the pod."""
        self._failure, self._over = (reason, f"Pod was rejected: {message}"), True

    def poke(self) -> None:
        """Look again."""
        self._wake.set()

    # -- the loop -----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Until the pod has gone from the API and from this machine."""
        try:
            while True:
                self._wake.clear()
                try:
                    wait = await self._sync()
                    self._backoff.reset()
                except (CriError, CgroupError, OSError, StatusError) as error:
                    _log.warning("pod %s: %s", self._where(), error)
                    wait = self._backoff.next()
                except Exception:
                    _log.exception("pod %s", self._where())
                    wait = self._backoff.next()
                if wait is None:
                    return
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(min(wait, self._context.options.intervals.resync_seconds)):
                        await self._wake.wait()
        finally:
            self._prober.close()
            self._ender.close()
            self._context.objects.forget(self.uid)

    async def _sync(self) -> float | None:
        """One round; seconds until the next one, or None if there is none."""
        pod = self.pod
        seen = self.seen = await self._look(pod)
        if pod is None:
            return await self._end(None, seen) if self._gone else self._context.options.intervals.resync_seconds
        if self._gone or pod["metadata"].get("deletionTimestamp"):
            return await self._end(pod, seen)
        if (pod.get("status") or {}).get("phase") in TERMINAL:
            return await self._rest(pod, seen)
        left = self._check_deadline(pod)
        if self._over:
            if not await self._all_ended(pod, seen):
                await self._tell(pod, seen)
                return self._context.options.intervals.resync_seconds
            await self._tell(pod, await self._look(pod))
            return 0.0
        wait = await self._keep(pod, seen)
        return wait if left is None else min(wait, left)

    async def _look(self, pod: Obj | None) -> SeenPod:
        return await self._looker.look(living_ids(pod) if pod is not None else ())

    def _check_deadline(self, pod: Obj) -> float | None:
        """Seconds until the pod has been active for too long; it is over from then on."""
        allowed, began = pod["spec"].get("activeDeadlineSeconds"), (pod.get("status") or {}).get("startTime")
        if allowed is None or began is None:
            return None
        left = parse_time(began).timestamp() + float(allowed) - time.time()
        if left <= 0 and not self._over:
            self._context.recorder.event(pod, "Normal", "DeadlineExceeded", OVERDUE)
            self._failure, self._over = ("DeadlineExceeded", OVERDUE), True
        return max(0.0, left)

    # -- a pod that is to run -----------------------------------------------------------------------------------------

    async def _keep(self, pod: Obj, seen: SeenPod) -> float:
        place = self._place(pod, seen)
        self._watch_probes(pod, seen, place)
        plan = decide(pod, seen, self._prober.results(), self._loop, time.time())
        self._note(plan, seen)
        self._over = self._over or plan.is_over
        pod = await self._tell(pod, seen)
        if plan.end_pod:
            if not await self._all_ended(pod, seen):
                return self._context.options.intervals.resync_seconds
            return 0.0
        if plan.is_over:
            return 0.0
        for kill in plan.kills:
            self._kill(pod, seen, kill.id, kill.message, kill.probe, place)
        await self._clearing.note(pod)
        sources = await self._prepare(pod, place)
        if sources is None:
            return _RETRY_SECONDS
        if plan.make_sandbox:
            return 0.0 if await self._make_sandbox(pod, plan.attempt, seen) else self._backoff.next()
        return await self._start_all(pod, seen, plan, sources, place)

    def _note(self, plan: Plan, seen: SeenPod) -> None:
        """What is told of containers that wait."""
        for name in list(self._reasons):
            last = seen.newest(name)
            if (last is not None and last.runs) or self._reasons[name][0] == "CrashLoopBackOff":
                del self._reasons[name]
        for name, message in plan.crashing.items():
            self._reasons[name] = "CrashLoopBackOff", message

    async def _prepare(self, pod: Obj, place: Place) -> Sources | None:
        """What the pod refers to and its volumes; None if something is missing, which is told."""
        try:
            sources = await self._context.objects.want(pod)
            await self._starter.volumes(pod, sources, place)
        except ConfigError as error:
            self._context.recorder.event(pod, "Warning", "FailedMount", str(error))
            return None
        return sources

    async def _make_sandbox(self, pod: Obj, attempt: int, seen: SeenPod) -> bool:
        for sandbox in seen.sandboxes:
            # Those that died have a network that nobody has taken down.
            await self._context.runtime.stop_sandbox(sandbox.id)
        try:
            await self._context.devices.prepare(pod)
        except DevicesError as error:
            self._context.recorder.event(pod, "Warning", error.reason, str(error))
            return False
        try:
            await self._sandboxes.make(pod, attempt, await self._handler(pod))
        except (CriError, CgroupError, UserNamespaceError, OSError, StatusError) as error:
            text = f"Failed to create pod sandbox: {error}"
            self._context.recorder.event(pod, "Warning", "FailedCreatePodSandBox", text)
            _log.warning("pod %s: %s", self._where(), text)
            return False
        return True

    async def _handler(self, pod: Obj) -> str:
        name = pod["spec"].get("runtimeClassName")
        return str((await self._context.client.get(RUNTIME_CLASSES, name))["handler"]) if name else ""

    async def _start_all(self, pod: Obj, seen: SeenPod, plan: Plan, sources: Sources, place: Place) -> float:
        """Start what is to start now; seconds until there is more to do."""
        options, now = self._context.options, time.time()
        wait = options.intervals.resync_seconds if plan.wake_after is None else plan.wake_after
        for name in plan.crashing:
            self._context.recorder.event(pod, "Warning", "BackOff", _backed_off(pod, name))
        specs = {one["name"]: one for one in (*(pod["spec"].get("initContainers") or ()), *pod["spec"]["containers"])}
        began = False
        prepared: Prepared | None = None
        for name in plan.starts:
            if self._retry_at.get(name, 0.0) > now:
                wait = min(wait, self._retry_at[name] - now)
                continue
            try:
                prepared = prepared or await self._context.devices.prepare(pod)
                await self._start(pod, specs[name], seen, sources, place, prepared)
                self._reasons.pop(name, None)
                began = True
            except StartError as error:
                self._reasons[name] = error.reason, str(error)
                pause = _RETRY_SECONDS if error.wait is None else max(error.wait, 0.1)
                self._retry_at[name] = time.time() + pause
                wait = min(wait, pause)
                self.poke()
            except DevicesError as error:
                self._context.recorder.event(pod, "Warning", error.reason, str(error))
                wait = min(wait, _RETRY_SECONDS)
        return 0.0 if began else wait

    async def _start(
        self, pod: Obj, spec: Obj, seen: SeenPod, sources: Sources, place: Place, prepared: Prepared
    ) -> None:
        history, sandbox = seen.history(spec["name"]), seen.sandbox
        assert sandbox is not None
        attempt = self._attempt(pod, spec["name"], seen)
        await self._clear_way(history)
        if history and history[0].state == EXITED:
            self._loop.started(crash_key(spec), history[0].finished_at / 1e9, time.time())
        config = self._sandboxes.config(pod, sandbox.attempt)
        made = partial(self._looker.expect, sandbox=sandbox.id)
        await self._starter.start(pod, spec, sandbox, config, attempt, sources, place, prepared, made)
        # One end is remembered beside the container that runs.
        for old in history[1:]:
            await self._context.runtime.remove_container(old.id)
            with contextlib.suppress(OSError):
                await asyncio.to_thread(Path(old.log_path).unlink)

    async def _clear_way(self, history: Sequence[SeenContainer]) -> None:
        """Make sure that no earlier start of a container runs or comes to run: nothing runs twice. Raises `StartError`.

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

    def _attempt(self, pod: Obj, name: str, seen: SeenPod) -> int:
        """How often the container was started before.

        One that never ran is replaced under its own number: the runtime gives the name with that number only once, so
        who does not see that a start is still on its way is refused.
        """
        last = seen.newest(name)
        if last is not None:
            return last.attempt if last.state == CREATED else last.attempt + 1
        status = pod.get("status") or {}
        for field in ("containerStatuses", "initContainerStatuses"):
            for one in status.get(field) or ():
                if one["name"] == name and one.get("containerID"):
                    return int(one.get("restartCount", 0)) + has_run(one)
        return 0

    def _kill(self, pod: Obj, seen: SeenPod, id_: str, message: str, probe: str, place: Place) -> None:
        container = next(one for one in seen.containers if one.id == id_)
        spec = next(
            one
            for one in (*(pod["spec"].get("initContainers") or ()), *pod["spec"]["containers"])
            if one["name"] == container.name
        )
        own = (spec.get(f"{probe}Probe") or {}).get("terminationGracePeriodSeconds") if probe else None
        grace = grace_of(pod) if own is None else float(own)
        self._ender.end(pod, spec, container, grace, message, next(iter(place.pod_ips), ""))

    def _watch_probes(self, pod: Obj, seen: SeenPod, place: Place) -> None:
        specs = {one["name"]: one for one in (*(pod["spec"].get("initContainers") or ()), *pod["spec"]["containers"])}
        before = {**by_name(pod, "containerStatuses"), **by_name(pod, "initContainerStatuses")}
        running = [one for one in seen.containers if one.runs and not self._ender.is_ending(one.id)]
        self._prober.keep_only({one.id for one in seen.containers if one.runs})
        for one in running:
            spec = specs.get(one.name)
            if spec is None or (one.hash and one.hash != container_hash(spec)):
                continue
            had = before.get(one.name)
            same = had is not None and str(had.get("containerID", "")).endswith(f"//{one.id}")
            self._prober.watch(pod, spec, one, next(iter(place.pod_ips), "127.0.0.1"), had if same else None)

    # -- ends ---------------------------------------------------------------------------------------------------------

    async def _all_ended(self, pod: Obj | None, seen: SeenPod) -> bool:
        """End containers, then sandboxes; whether nothing of the pod runs."""
        if self._end_began is None:
            self._end_began = time.monotonic()
        place = self._place(pod, seen) if pod is not None else Place()
        grace = grace_of(pod, seen)
        if not self._ender.end_all(pod, seen, self._end_began, grace, next(iter(place.pod_ips), "")):
            return False
        for sandbox in seen.sandboxes:
            if sandbox.ready:
                await self._context.runtime.stop_sandbox(sandbox.id)
        self._end_began = None
        return True

    async def _rest(self, pod: Obj, seen: SeenPod) -> float:
        """A pod that is over and told so: nothing runs, devices and volumes are given back; its logs stay."""
        self._over = True
        if await self._all_ended(pod, seen) and not self._cleaned:
            await self._clearing.give_back(pod)
            self._cleaned = True
        return self._context.options.intervals.resync_seconds

    async def _end(self, pod: Obj | None, seen: SeenPod) -> float | None:
        """A pod that is deleted: everything of it goes, then itself."""
        self._over = True
        if not await self._all_ended(pod, seen):
            if pod is not None and not self._gone:
                await self._tell(pod, seen)
            return self._context.options.intervals.resync_seconds
        if pod is not None and not self._gone and (pod.get("status") or {}).get("phase") not in TERMINAL:
            pod = await self._tell(pod, await self._look(pod))
        await self._clearing.remove(pod, seen)
        if pod is not None and not self._gone:
            await self._delete(pod)
        return None

    async def _delete(self, pod: Obj) -> None:
        meta = pod["metadata"]
        try:
            await self._context.client.delete(PODS, meta["name"], meta["namespace"], self.uid, grace_period_seconds=0)
        except StatusError as error:
            if error.code not in (404, 409):
                raise

    # -- what is told -------------------------------------------------------------------------------------------------

    def _place(self, pod: Obj, seen: SeenPod) -> Place:
        addresses = self._context.addresses
        return Place(addresses, pod_ips(pod, seen, addresses), self._context.allocatable)

    async def _tell(self, pod: Obj, seen: SeenPod) -> Obj:
        """Write the status if it has changed; the pod as it is then."""
        answer = await self._teller.tell(
            pod,
            seen,
            reasons=self._reasons,
            probed=self._prober.results(),
            is_over=self._over,
            failure=self._failure,
        )
        if answer is None:
            return pod
        if self.pod is pod:
            self.pod = answer
        self._told(answer)
        return answer

    def _where(self) -> str:
        if self.pod is None:
            return self.uid
        meta = self.pod["metadata"]
        return f"{meta.get('namespace')}/{meta.get('name')}"


def _backed_off(pod: Obj, name: str) -> str:
    meta = pod["metadata"]
    return f"Back-off restarting failed container {name} in pod {meta['name']}_{meta['namespace']}({meta['uid']})"
