"""One pod: observe, write its status, decide, act; again whenever something happened.

The worker holds nothing that a restart of the agent would miss: what runs is known by the runtime's labels, what was
told by the pod's status. It ends when the pod has gone from the API and from the machine.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Sequence

from haru.client.backoff import Backoff
from haru.kube.errors import StatusError, suppress_status
from haru.kube.kinds import known_kind
from haru.kube.meta import Obj
from haru.kube.pod_claims import FAILED_PREPARE
from haru.kube.pod_environment.environment import ReferencedObjects
from haru.kube.pod_environment.fields import ConfigError, DownwardFacts
from haru.node.agent.context import Context
from haru.node.cgroups.tree import CgroupError
from haru.node.cri.errors import CriError
from haru.node.dra.devices import DevicesError
from haru.node.podworker.container_kill import ContainerKiller, KillTarget, grace_of
from haru.node.podworker.container_start import ContainerStarter, PodInputs, VolumesError
from haru.node.podworker.due_starts import RETRY_SECONDS, DueStarts
from haru.node.podworker.failed_mounts import FailedMounts
from haru.node.podworker.observed import SeenPod
from haru.node.podworker.plan import Kill, Pauses, container_hash, container_specs, decide
from haru.node.podworker.pod_cleanup import PodCleanup
from haru.node.podworker.pod_end import DEADLINE_EXCEEDED, OVERDUE, PodEnd, seconds_left
from haru.node.podworker.resize import PodResizer
from haru.node.podworker.runtime_status import RuntimeStatus
from haru.node.podworker.sandboxes import Sandboxes
from haru.node.podworker.userns import UserNamespaceError
from haru.node.probes.prober import Prober
from haru.node.status.container_status import INIT, MAIN, StatusInputs, by_name, living_ids
from haru.node.status.pod_status import TERMINAL, pod_ips
from haru.node.status.status_manager import PODS, StatusManager

_log = logging.getLogger(__name__)
_LATER = (422, 429)
"""Codes of an API that takes a status at another time."""
_LOOK_SECONDS = 0.2
"""Between looks at pods that end first."""
_SANDBOX_CHANGED = "Pod sandbox changed, it will be killed and re-created."
RUNTIME_CLASSES = known_kind("node.k8s.io/v1", "RuntimeClass")


class PodWorker:
    """Syncs one pod. `written(pod)` is called with what the API answered to a written status."""

    def __init__(self, context: Context, starter: ContainerStarter, uid: str, written: Callable[[Obj], None]) -> None:
        self._context, self._starter, self.uid, self._written = context, starter, uid, written
        self.pod: Obj | None = None
        self.seen = SeenPod()
        self._wake = asyncio.Event()
        self._runtime_status = RuntimeStatus(context.runtime, uid)
        self._killer = ContainerKiller(context, self.wake)
        self._prober = Prober(context.handler_runner, context.recorder, self.wake)
        self._failed_mounts = FailedMounts(context.recorder)
        self._status_manager = StatusManager(context, self.wake)
        self._sandboxes = Sandboxes(context)
        self._resizer = PodResizer(context, self._sandboxes)
        self._cleanup = PodCleanup(context, self._sandboxes, uid)
        self._backoff, self._sandbox_backoff = (Backoff(base=1.0, cap=20.0) for _ in range(2))
        places = self._sandboxes, self._resizer
        self._starts = DueStarts(context, starter, self._runtime_status, places, self.wake)
        self._replaced: set[str] = set()
        """Ids of containers that were killed to be started again."""
        self._end = PodEnd()
        self._after: Sequence[PodWorker] = ()
        self._after_until = 0.0
        self._is_told = True
        """The API has the status of the last round."""

    # -- what others say ----------------------------------------------------------------------------------------------

    def update(self, pod: Obj) -> None:
        """The pod as the API has it now."""
        if self.pod is not None and self.pod["metadata"].get("generation") != pod["metadata"].get("generation"):
            self._starts.retry()
        self.pod = pod
        self.wake()

    def removed(self) -> None:
        """The pod is no longer in the API, or never was."""
        self._end.is_gone = True
        self.wake()

    def objects_changed(self) -> None:
        """Retry what failed: an object that the pod refers to has changed."""
        self._starts.retry()
        self.wake()

    def reject(self, reason: str, message: str) -> None:
        """The node does not take the pod."""
        self._end.reject(reason, message)

    def start_after(self, others: Sequence[PodWorker], seconds: float) -> None:
        """Start nothing until these have ended, or that time is over."""
        self._after, self._after_until = others, time.monotonic() + seconds

    @property
    def evictable(self) -> Obj | None:
        """The pod, unless it ends anyway."""
        pod, end = self.pod, self._end
        if pod is None or end.is_over or end.is_gone or pod["metadata"].get("deletionTimestamp"):
            return None
        return None if (pod.get("status") or {}).get("phase") in TERMINAL else pod

    def evict(self, reason: str, message: str, grace: float = 1.0, disruption: str = "") -> bool:
        """End the pod within `grace` seconds, as failed; whether it did not end anyway."""
        if self.evictable is None:
            return False
        self._end.evict(reason, message, grace, disruption)
        self.wake()
        return True

    @property
    def is_cleaned(self) -> bool:
        """Nothing of the pod is left but its containers' logs."""
        return self._end.is_cleaned

    def wake(self) -> None:
        """Sync the pod soon."""
        self._wake.set()

    # -- the loop -----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Sync the pod until it is deleted from the API and from this machine."""
        try:
            while True:
                self._wake.clear()
                self._is_told = True
                try:
                    wait = await self._sync()
                    if self._is_told:
                        self._backoff.reset()
                    elif wait is not None:
                        wait = min(wait, self._backoff.next())
                except (CriError, CgroupError, DevicesError, OSError, StatusError) as error:
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
            self._end.is_cleaned = True
            self._prober.close()
            self._killer.close()
            self._status_manager.close()
            self._context.objects.forget(self.uid)
            self._context.allocations.forget(self.uid)
            self._starter.forget(self.uid)

    async def _sync(self) -> float | None:
        """One round; seconds until the next one, or None if there is none."""
        pod = self.pod
        seen = self.seen = await self._observe(pod)
        if pod is None:
            return (
                await self._sync_deleted(None, seen)
                if self._end.is_gone
                else self._context.options.intervals.resync_seconds
            )
        if self._end.is_gone or pod["metadata"].get("deletionTimestamp"):
            return await self._sync_deleted(pod, seen)
        if (pod.get("status") or {}).get("phase") in TERMINAL:
            return await self._sync_terminal(pod, seen)
        left = self._check_deadline(pod)
        if self._end.is_over:
            if not await self._kill_all(pod, seen):
                await self._write_status(pod, seen)
                return self._context.options.intervals.resync_seconds
            await self._write_status(pod, await self._observe(pod))
            return 0.0
        if time.monotonic() < self._after_until and not all(other.is_cleaned for other in self._after):
            return _LOOK_SECONDS
        self._after = ()
        wait = await self._sync_active(pod, seen)
        return wait if left is None else min(wait, left)

    async def _observe(self, pod: Obj | None) -> SeenPod:
        return await self._runtime_status.observe(living_ids(pod) if pod is not None else ())

    def _check_deadline(self, pod: Obj) -> float | None:
        """Seconds until the pod has been active for too long; it is over from then on."""
        left = seconds_left(pod)
        if left == 0.0 and not self._end.is_over:
            self._context.recorder.event(pod, "Normal", DEADLINE_EXCEEDED, OVERDUE)
            self._end.fail(DEADLINE_EXCEEDED, OVERDUE)
        return left

    # -- a pod that is to run -----------------------------------------------------------------------------------------

    async def _sync_active(self, pod: Obj, seen: SeenPod) -> float:
        facts = self._facts(pod, seen)
        self._watch_probes(pod, seen, facts)
        allocated = self._resizer.allocate(pod)
        pauses = Pauses(self._starts.pauses, time.time())
        plan = decide(allocated, seen, self._prober.results(), pauses, self._replaced)
        self._replaced |= set(plan.again)
        self._starts.note_crashing(plan, seen)
        self._end.is_over = self._end.is_over or plan.is_over
        kills = plan.kills if plan.end_pod else (*plan.kills, *await self._resizer.actuate(allocated, seen))
        pod = self._resizer.allocated(await self._write_status(pod, seen))
        if plan.end_pod:
            if not await self._kill_all(pod, seen):
                return self._context.options.intervals.resync_seconds
            return 0.0
        if plan.is_over:
            return 0.0
        if plan.removes:
            await self._killer.remove(pod, plan.removes)
            self._starts.forget()
            return 0.0
        for kill in kills:
            self._kill(pod, seen, kill, facts)
        await self._cleanup.note(pod)
        inputs = await self._prepare(pod, facts, first=plan.make_sandbox)
        if inputs is None:
            return RETRY_SECONDS
        if plan.make_sandbox:
            if not await self._make_sandbox(pod, plan.attempt, seen):
                return self._sandbox_backoff.next()
            self._sandbox_backoff.reset()
            return 0.0
        wait = await self._starts.start_all(pod, seen, plan, inputs)
        return min(wait, RETRY_SECONDS) if self._resizer.conditions else wait

    async def _prepare(self, pod: Obj, facts: DownwardFacts, *, first: bool) -> PodInputs | None:
        """Read referenced objects and set up volumes; None, after events, if something is missing.

        Only the first time: what a pod with a sandbox has in its volumes stays as it was, whatever has gone since.
        """
        problems: Sequence[str] = ()
        sources: ReferencedObjects | None = None
        try:
            sources = await self._context.objects.want(pod)
            await self._starter.volumes(pod, sources, facts)
        except ConfigError as error:
            problems = (str(error),)
        except VolumesError as error:
            problems = error.problems
        self._failed_mounts.tell(pod, problems, time.monotonic())
        return None if sources is None or (first and problems) else PodInputs(sources, facts)

    async def _make_sandbox(self, pod: Obj, attempt: int, seen: SeenPod) -> bool:
        if seen.sandboxes:
            self._context.recorder.event(pod, "Normal", "SandboxChanged", _SANDBOX_CHANGED)
        for sandbox in seen.sandboxes:
            # Those that died have a network that nobody has taken down.
            await self._context.runtime.stop_sandbox(sandbox.id)
        try:
            self._starts.prepared = await self._context.devices.prepare(pod)
        except DevicesError as error:
            preparing = "Failed to prepare dynamic resources: " if error.reason == FAILED_PREPARE else ""
            self._context.recorder.event(pod, "Warning", error.reason, f"{preparing}{error}")
            return False
        try:
            await self._sandboxes.make(pod, attempt, await self._handler(pod))
        except (ConfigError, CriError, CgroupError, UserNamespaceError, OSError, StatusError) as error:
            text = f"Failed to create pod sandbox: {error}"
            self._context.recorder.event(pod, "Warning", "FailedCreatePodSandBox", text)
            _log.warning("pod %s: %s", self._where(), text)
            return False
        return True

    async def _handler(self, pod: Obj) -> str:
        name = pod["spec"].get("runtimeClassName")
        return str((await self._context.client.get(RUNTIME_CLASSES, name))["handler"]) if name else ""

    def _kill(self, pod: Obj, seen: SeenPod, kill: Kill, facts: DownwardFacts) -> None:
        if kill.again:
            self._replaced.add(kill.id)
        container = next(one for one in seen.containers if one.id == kill.id)
        spec = next(one for one in container_specs(pod) if one["name"] == container.name)
        own = (spec.get(f"{kill.probe}Probe") or {}).get("terminationGracePeriodSeconds") if kill.probe else None
        grace = grace_of(pod) if own is None else float(own)
        self._killer.kill(KillTarget(container, pod, spec, next(iter(facts.pod_ips), "")), grace, kill.message)

    def _watch_probes(self, pod: Obj, seen: SeenPod, facts: DownwardFacts) -> None:
        specs = {one["name"]: one for one in container_specs(pod)}
        before = by_name(pod, MAIN, INIT)
        running = [one for one in seen.containers if one.runs and not self._killer.is_killing(one.id)]
        self._prober.keep_only({one.id for one in seen.containers if one.runs})
        for one in running:
            spec = specs.get(one.name)
            if spec is None or (one.hash and one.hash != container_hash(spec)):
                continue
            had = before.get(one.name)
            same = had is not None and str(had.get("containerID", "")).endswith(f"//{one.id}")
            self._prober.watch(pod, spec, one, next(iter(facts.pod_ips), "127.0.0.1"), had if same else None)

    # -- ends ---------------------------------------------------------------------------------------------------------

    async def _kill_all(self, pod: Obj | None, seen: SeenPod) -> bool:
        """End containers, then sandboxes; whether nothing of the pod runs."""
        facts = self._facts(pod, seen) if pod is not None else DownwardFacts()
        grace = min(grace_of(pod, seen), self._end.grace)
        if not self._killer.kill_all(pod, seen, self._end.begin_kill(), grace, next(iter(facts.pod_ips), "")):
            return False
        for sandbox in seen.sandboxes:
            if sandbox.ready:
                await self._context.runtime.stop_sandbox(sandbox.id)
        self._end.kill_began = None
        return True

    async def _sync_terminal(self, pod: Obj, seen: SeenPod) -> float:
        """Release devices and volumes of a pod in a terminal phase; its logs stay."""
        self._end.is_over = True
        if await self._kill_all(pod, seen) and not self._end.is_cleaned:
            await self._cleanup.give_back(pod)
            self._end.is_cleaned = True
        return self._context.options.intervals.resync_seconds

    async def _sync_deleted(self, pod: Obj | None, seen: SeenPod) -> float | None:
        """Remove everything of a deleted pod, then the pod itself."""
        self._end.is_over = True
        self._prober.end_restarts()
        if not await self._kill_all(pod, seen):
            if pod is not None and not self._end.is_gone:
                await self._write_status(pod, seen)
            return self._context.options.intervals.resync_seconds
        if pod is not None and not self._end.is_gone and (pod.get("status") or {}).get("phase") not in TERMINAL:
            pod = await self._write_status(pod, await self._observe(pod))
        await self._cleanup.remove(pod, seen)
        if pod is not None and not self._end.is_gone:
            await self._delete(pod)
        return None

    async def _delete(self, pod: Obj) -> None:
        meta = pod["metadata"]
        with suppress_status(404, 409):
            await self._context.client.delete(PODS, meta["name"], meta["namespace"], self.uid, grace_period_seconds=0)

    # -- what is told -------------------------------------------------------------------------------------------------

    def _facts(self, pod: Obj, seen: SeenPod) -> DownwardFacts:
        addresses = self._context.addresses
        return DownwardFacts(addresses, pod_ips(pod, seen, addresses), self._context.allocatable)

    async def _write_status(self, pod: Obj, seen: SeenPod) -> Obj:
        """Write the status if it has changed; the pod as it is then. Raises `DevicesError` if it holds devices still.

        Where a pod has ended its claims may be given to others at once: its devices go back before it is told.
        """
        kept = await self._give_back_devices() if self._end.is_over and not seen.runs else None
        known = StatusInputs(
            runtime=self._context.runtime_info.name,
            reasons=dict(self._starts.reasons),
            probed=self._prober.results(),
            host_ips=self._context.addresses,
            is_over=self._end.is_over,
            failure=self._end.failure,
            replaced=self._replaced,
            is_rejected=self._end.is_rejected,
            disruption=self._end.disruption,
            resources=self._resizer.reported(pod, seen),
            level=self._resizer.level(pod),
            resizes=self._resizer.conditions,
            recursive_read_only=self._context.runtime_info.has_recursive_read_only,
            holds_devices=kept is not None,
        )
        try:
            answer = await self._status_manager.update(pod, seen, known)
        except (OSError, StatusError) as error:
            if self._end.is_over or (isinstance(error, StatusError) and error.code < 500 and error.code not in _LATER):
                raise
            # A container was told as ended by mistake: it runs all the same, and its end can be told again. Or the API
            # is away: what runs goes on, and what was crashing is started again.
            _log.warning("pod %s: %s", self._where(), error)
            self._is_told = isinstance(error, StatusError) and error.code == 422
            return pod
        if answer is not None:
            if self.pod is pod:
                self.pod = answer
            self._written(answer)
        if kept is not None:
            raise kept
        return answer or pod

    async def _give_back_devices(self) -> DevicesError | None:
        try:
            await self._context.devices.unprepare(self.uid)
        except DevicesError as error:
            return error
        return None

    def _where(self) -> str:
        if self.pod is None:
            return self.uid
        meta = self.pod["metadata"]
        return f"{meta.get('namespace')}/{meta.get('name')}"
