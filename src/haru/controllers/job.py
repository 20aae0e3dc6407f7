"""job-controller: pods until enough of them have succeeded, or too many have failed.

One pass counts the pods (`job_tracking`, exact across crashes), judges (`job_verdict`), creates and deletes pods
(`job_pods`), writes the status (`job_status`), and lets go of the pods that are counted there.
Source: batch/v1 Job; KEP-2214 (Indexed), KEP-2232 (suspend), KEP-2307 (tracking), KEP-3939 (replacement policy),
KEP-4368 (managedBy).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

from cachetools import FIFOCache

from haru.client.informer import object_key
from haru.client.workqueue import WorkQueue
from haru.controllers.base import Context, slow_start
from haru.controllers.controller_refs import ClaimRule, claim
from haru.controllers.job_groups import GroupPending, JobGroups
from haru.controllers.job_pods import change_of, job_pod
from haru.controllers.job_retries import Ending, ending_of, restart_delay
from haru.controllers.job_status import announcements, status_of
from haru.controllers.job_tracking import TRACKING, Tally, fails_by_index, tally
from haru.controllers.job_verdict import Verdict, is_finished, true_condition, until_deadline, verdict_of
from haru.controllers.objects import JOBS, POD_GROUPS, WORKLOADS, is_terminal
from haru.controllers.pod_owner import PodOwnerController
from haru.errors import raise_first
from haru.event_loop import bounded
from haru.kube.errors import StatusError
from haru.kube.kinds import Kind
from haru.kube.meta import Obj, controller_of, has_finalizer, is_being_deleted, name_of, namespace_of, uid_of

_MANAGER = "kubernetes.io/job-controller"
_BURST = 500
_REMEMBERED_JOBS = 10_000
_REMEMBERED_PODS = 8
"""More failures do not make the wait longer."""


def _by_job(pod: Mapping[str, Any]) -> Iterable[str]:
    owner = controller_of(pod) or {}
    if (owner.get("apiVersion"), owner.get("kind")) != (JOBS.api_version, JOBS.kind):
        return []
    return [f"{namespace_of(pod)}/{owner['name']}"]


class JobController(PodOwnerController):
    """Runs Jobs."""

    name: ClassVar[str] = "job-controller"
    needs: ClassVar[tuple[Kind, ...]] = (JOBS,)

    def __init__(self, context: Context) -> None:
        self.orphans: WorkQueue[str] = WorkQueue("job_orphan_pod")
        """Pods that wait to be counted by a Job and have none."""
        super().__init__(context, JOBS)
        self.jobs = self.sets
        self.pods.add_index("job", _by_job)
        self.jobs.add_handler(on_delete=self._gone)
        self._endings: FIFOCache[str, dict[str, Ending]] = FIFOCache(_REMEMBERED_JOBS)
        """How the last pods of each Job ended that it has counted, whether or not they are still there."""
        self.groups: JobGroups | None = None
        grouped = context.gates.enabled("WorkloadWithJob")
        if grouped and context.serves(WORKLOADS) and context.serves(POD_GROUPS):
            self.groups = JobGroups(self, self.queue.add)

    def _gone(self, job: Obj) -> None:
        self._endings.pop(uid_of(job), None)
        self.enqueue(job)

    def _dependent_changed(self, obj: Obj) -> None:
        super()._dependent_changed(obj)
        if controller_of(obj) is None and has_finalizer(obj, TRACKING):
            self.orphans.add(object_key(obj))

    def background(self) -> Iterable[Callable[[], Any]]:
        """Pods whose reference to a Job was taken away."""
        return (lambda: self.orphans.run(self._sync_orphan),)

    async def _sync_orphan(self, key: str) -> None:
        pod = self.pods.store.get(key)
        if pod is not None and controller_of(pod) is None:  # else it was adopted meanwhile
            await self._release(pod)

    async def sync(self, key: str) -> float | None:
        """Bring one Job into line."""
        job = self.jobs.store.get(key)
        await self._release_orphans(key, job)
        if job is None or (job["spec"].get("managedBy") or _MANAGER) != _MANAGER:
            return None
        if is_finished(job):
            pods = self.pods.by_index("controller", uid_of(job))
            await bounded(pods, self._release)
            return None
        return await self._sync(job)

    async def _release_orphans(self, key: str, job: Obj | None) -> None:
        """Pods whose Job is gone wait for nobody to count them."""
        uid = uid_of(job) if job is not None else ""
        orphans = [
            pod
            for pod in self.pods.by_index("job", key)
            if has_finalizer(pod, TRACKING) and (controller_of(pod) or {}).get("uid") != uid
        ]
        if not orphans:
            return
        namespace, _, name = key.partition("/")
        live = await self.live(JOBS, name, namespace)
        gone = [p for p in orphans if live is None or (controller_of(p) or {}).get("uid") != uid_of(live)]
        await bounded(gone, self._release)

    async def _release(self, pod: Obj) -> None:
        await self.remove_finalizer(self.pods, pod, TRACKING)

    # -- one pass -----------------------------------------------------------------------------------------------------

    async def _sync(self, job: Obj) -> float | None:
        selector = self.selector_of(job)
        pods = await claim(self, self.jobs, job, self.pods, ClaimRule(selector, finalizers=(TRACKING,)))
        counted = tally(job, pods, everything_failed=true_condition(job, "FailureTarget") is not None)
        verdict = verdict_of(job, counted, pods, self.now())
        if verdict is not None or is_being_deleted(job):
            counted.let_go()
        again: float | None = None
        failures: list[Exception] = []
        if not is_being_deleted(job):
            try:
                again = await self._manage(job, counted, verdict, pods)
            except GroupPending as error:
                if not (job.get("status") or {}).get("startTime"):
                    raise  # a Job that is said to have started would never get its group
                failures.append(error)
            except (StatusError, OSError) as error:
                failures.append(error)
        status = status_of(job, counted, verdict, self.timestamp())
        for type, reason, message in announcements(job, status):
            self.events.event(job, type, reason, message)
        job = await self.update_status(self.jobs, job, status)
        if not fails_by_index(job):
            self._remember(job, counted.to_release)
        await bounded(counted.to_release, self._release)
        raise_first(failures)
        return _sooner(again, until_deadline(job, self.now()))

    # -- pods ---------------------------------------------------------------------------------------------------------

    def _remember(self, job: Obj, pods: Iterable[Obj]) -> dict[str, Ending]:
        """Note how pods ended, and return what is known of the last ones."""
        known = self._endings.get(uid_of(job), {})
        known |= {uid_of(pod): ended for pod in pods if (ended := ending_of(pod)) is not None}
        last = {uid: known[uid] for uid in sorted(known, key=lambda uid: known[uid].at)[-_REMEMBERED_PODS:]}
        if last:
            self._endings[uid_of(job)] = last
        return last

    async def _manage(self, job: Obj, counted: Tally, verdict: Verdict | None, pods: Sequence[Obj]) -> float | None:
        await bounded(counted.strays, lambda pod: self._delete(job, pod))
        if verdict is not None and verdict.failed:
            running = [pod for pod in pods if not is_terminal(pod) and not is_being_deleted(pod)]
            await bounded(running, lambda pod: self._delete(job, pod))
            return None
        if verdict is not None or job["spec"].get("suspend"):
            await self._drop(job, counted, counted.active)
            return None
        waiting = self.groups.left_behind(job, counted.active) if self.groups is not None else ()
        change = change_of(job, counted, self.now(), waiting)
        await self._drop(job, counted, change.surplus)
        if not change.missing:
            return change.again
        if not fails_by_index(job):
            endings = self._remember(job, [*filter(is_terminal, pods), *counted.to_release])
            if (delay := restart_delay([*endings.values()], self.now())) > 0:
                return delay
        group: str | None = None
        if self.groups is not None:
            group = await self.groups.group_for(job, pods, counted.active, counted.left)

        async def create(number: int) -> None:
            index = change.missing[number]
            body = job_pod(job, index, group, counted.held.get(index) if index is not None else None)
            try:
                created = await self.create(self.pods, body)
            except StatusError as error:
                self.events.event(job, "Warning", "FailedCreate", f"Error creating: {error}")
                raise
            counted.active.append(created)
            self.events.event(job, "Normal", "SuccessfulCreate", f"Created pod: {name_of(created)}")

        await slow_start(min(len(change.missing), _BURST), create)
        return change.again

    async def _drop(self, job: Obj, counted: Tally, pods: Sequence[Obj]) -> None:
        """Delete pods that are not needed: without their finalizer, for they are no failures."""

        async def drop(pod: Obj) -> None:
            await self._release(pod)
            await self._delete(job, pod)

        dropped = {uid_of(pod): pod for pod in pods}
        await bounded(list(pods), drop)
        counted.active = [pod for pod in counted.active if uid_of(pod) not in dropped]
        counted.terminating += dropped.values()

    async def _delete(self, job: Obj, pod: Obj) -> None:
        if await self.delete(self.pods, pod):
            self.events.event(job, "Normal", "SuccessfulDelete", f"Deleted pod: {name_of(pod)}")


def _sooner(*delays: float | None) -> float | None:
    return min((delay for delay in delays if delay is not None), default=None)
