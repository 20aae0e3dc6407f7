"""job-controller: pods until enough of them have succeeded, or too many have failed.

Counting is exact across crashes (see `job_tracking`). A Job ends in two steps: `SuccessCriteriaMet` or `FailureTarget`
as soon as the outcome is certain, `Complete` or `Failed` once no pod runs any more and all are counted.
Source: batch/v1 Job; KEP-2214 (Indexed), KEP-2232 (suspend), KEP-2307 (tracking), KEP-3939 (replacement policy).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, ClassVar, NamedTuple

from haru.client.informer import object_key
from haru.controllers.base import Context, Controller, bounded, slow_start
from haru.controllers.job_indexes import INDEX, index_of
from haru.controllers.job_tracking import TRACKING, Tally, is_indexed, replaces_only_failed, restart_delay, tally
from haru.controllers.job_workload import JobGroups
from haru.controllers.objects import (
    JOBS,
    POD_GROUPS,
    PODS,
    WORKLOADS,
    Obj,
    by_controller,
    is_ready,
    is_terminal,
    phase_of,
)
from haru.controllers.replica_set import deletion_order, pod_from_template
from haru.kube.errors import StatusError
from haru.kube.kinds import Kind
from haru.kube.meta import (
    controller_of,
    get_condition,
    has_finalizer,
    is_being_deleted,
    name_of,
    namespace_of,
    set_condition,
    uid_of,
)
from haru.kube.names import parse_time

_MANAGER = "kubernetes.io/job-controller"
_BURST = 500
_MAX_HOSTNAME = 63
_SUFFIX = 5


class Verdict(NamedTuple):
    """How a Job ends: the condition that announces it and the one that closes it."""

    announced: str
    final: str
    reason: str
    message: str


def _true(job: Mapping[str, Any], type: str) -> Obj | None:
    condition = get_condition(job, type)
    return condition if condition is not None and condition["status"] == "True" else None


def is_finished(job: Mapping[str, Any]) -> bool:
    """The Job is Complete or Failed."""
    return any(_true(job, type) is not None for type in ("Complete", "Failed"))


def job_pod(job: Obj, index: int | None, group: str | None) -> Obj:
    """A pod to create for a Job, for one completion index if it is Indexed."""
    pod = pod_from_template(job, JOBS, job["spec"]["template"])
    metadata, spec = pod["metadata"], pod["spec"]
    labels = metadata.setdefault("labels", {})
    for prefix in ("", "batch.kubernetes.io/"):
        labels.setdefault(f"{prefix}job-name", name_of(job))
        labels.setdefault(f"{prefix}controller-uid", uid_of(job))
    metadata["finalizers"] = [*metadata.get("finalizers", ()), TRACKING]
    if group is not None:
        spec["schedulingGroup"] = {"podGroupName": group}
    if index is None:
        return pod
    metadata.setdefault("annotations", {})[INDEX] = labels[INDEX] = str(index)
    room = _MAX_HOSTNAME - _SUFFIX - len(f"-{index}-")
    metadata["generateName"] = f"{name_of(job)[:room].rstrip('-.')}-{index}-"
    if not spec.get("hostname"):
        spec["hostname"] = f"{name_of(job)}-{index}"
    source = {"fieldRef": {"fieldPath": f"metadata.labels['{INDEX}']"}}
    for container in [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]:
        env = container.setdefault("env", [])
        if not any(variable["name"] == "JOB_COMPLETION_INDEX" for variable in env):
            env.append({"name": "JOB_COMPLETION_INDEX", "valueFrom": source})
    return pod


def _by_job(pod: Mapping[str, Any]) -> Iterable[str]:
    owner = controller_of(pod)
    return [f"{namespace_of(pod)}/{owner['name']}"] if owner and owner.get("kind") == JOBS.kind else []


class JobController(Controller):
    """Runs Jobs."""

    name: ClassVar[str] = "job-controller"
    needs: ClassVar[tuple[Kind, ...]] = (JOBS,)

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.jobs = self.informer(JOBS)
        self.pods = self.informer(PODS)
        self.pods.add_index("controller", by_controller)
        self.pods.add_index("job", _by_job)
        self.jobs.add_handler(self._changed, lambda _, new: self._changed(new), self._changed)
        self.pods.add_handler(self._pod_changed, lambda _, new: self._pod_changed(new), self._pod_changed)
        self.groups: JobGroups | None = None
        grouped = context.gates.enabled("WorkloadWithJob")
        if grouped and context.serves(WORKLOADS) and context.serves(POD_GROUPS):
            self.groups = JobGroups(self, self.queue.add)

    def _changed(self, job: Obj) -> None:
        self.queue.add(object_key(job))

    def _pod_changed(self, pod: Obj) -> None:
        for key in _by_job(pod):
            self.queue.add(key)

    async def sync(self, key: str) -> float | None:
        """Bring one Job into line."""
        namespace, _, name = key.partition("/")
        job = self.jobs.get(name, namespace)
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
        pods = self.pods.by_index("controller", uid_of(job))
        counted = tally(job, pods, everything_failed=_true(job, "FailureTarget") is not None)
        verdict = self._verdict(job, counted, pods)
        suspended = bool(job["spec"].get("suspend"))
        again: float | None = None
        failure: Exception | None = None
        if not is_being_deleted(job):
            try:
                again = await self._manage(job, counted, verdict, suspended, pods)
            except (StatusError, OSError) as error:
                failure = error
        status = self._status(job, counted, verdict, suspended)
        self._announce(job, status)
        job = await self.update_status(self.jobs, job, status)
        await bounded(counted.to_release, self._release)
        if failure is not None:
            raise failure
        return _sooner(again, self._until_deadline(job))

    def _verdict(self, job: Obj, counted: Tally, pods: Sequence[Obj]) -> Verdict | None:
        if (met := _true(job, "SuccessCriteriaMet")) is not None:
            return Verdict("SuccessCriteriaMet", "Complete", met.get("reason", ""), met.get("message", ""))
        if (target := _true(job, "FailureTarget")) is not None:
            return Verdict("FailureTarget", "Failed", target.get("reason", ""), target.get("message", ""))
        spec = job["spec"]
        limit = spec.get("backoffLimit", 6)
        if counted.failed > limit or _restarts_exceed(job, pods, limit):
            message = "Job has reached the specified backoff limit"
            return Verdict("FailureTarget", "Failed", "BackoffLimitExceeded", message)
        if self._until_deadline(job) == 0:
            message = "Job was active longer than specified deadline"
            return Verdict("FailureTarget", "Failed", "DeadlineExceeded", message)
        completions = spec.get("completions")
        if completions is None:
            enough = counted.succeeded > 0 and not counted.active and not counted.terminating
        else:
            enough = counted.succeeded >= completions
        if enough and not spec.get("suspend"):
            message = "Reached expected number of succeeded pods"
            return Verdict("SuccessCriteriaMet", "Complete", "CompletionsReached", message)
        return None

    def _until_deadline(self, job: Obj) -> float | None:
        limit, started = job["spec"].get("activeDeadlineSeconds"), (job.get("status") or {}).get("startTime")
        if limit is None or not started or job["spec"].get("suspend") or is_finished(job):
            return None
        return max(0.0, (parse_time(started) + timedelta(seconds=limit) - self.now()).total_seconds())

    # -- pods ---------------------------------------------------------------------------------------------------------

    async def _manage(
        self, job: Obj, counted: Tally, verdict: Verdict | None, suspended: bool, pods: Sequence[Obj]
    ) -> float | None:
        await bounded(counted.strays, lambda pod: self._delete(job, pod))
        if verdict is not None and verdict.final == "Failed":
            running = [pod for pod in pods if not is_terminal(pod) and not is_being_deleted(pod)]
            await bounded(running, lambda pod: self._delete(job, pod))
            return None
        if verdict is not None or suspended:
            await self._drop(job, counted, counted.active)
            return None
        surplus, missing = _difference(job, counted)
        await self._drop(job, counted, surplus)
        if not missing:
            return None
        if (delay := restart_delay(pods, self.now())) > 0:
            return delay
        group = await self.groups.group_for(job, bool(pods)) if self.groups is not None else None

        async def create(number: int) -> None:
            body = job_pod(job, missing[number], group)
            try:
                created = await self.create(self.pods, body)
            except StatusError as error:
                self.events.event(job, "Warning", "FailedCreate", f"Error creating: {error}")
                raise
            counted.active.append(created)
            self.events.event(job, "Normal", "SuccessfulCreate", f"Created pod: {name_of(created)}")

        await slow_start(min(len(missing), _BURST), create)
        return None

    async def _drop(self, job: Obj, counted: Tally, pods: Sequence[Obj]) -> None:
        """Delete pods that are not needed: without their finalizer, for they are no failures."""

        async def drop(pod: Obj) -> None:
            await self._release(pod)
            await self._delete(job, pod)

        dropped = {uid_of(pod) for pod in pods}
        await bounded(list(pods), drop)
        counted.active = [pod for pod in counted.active if uid_of(pod) not in dropped]

    async def _delete(self, job: Obj, pod: Obj) -> None:
        if await self.delete(self.pods, pod):
            self.events.event(job, "Normal", "SuccessfulDelete", f"Deleted pod: {name_of(pod)}")

    # -- status -------------------------------------------------------------------------------------------------------

    def _status(self, job: Obj, counted: Tally, verdict: Verdict | None, suspended: bool) -> Obj:
        old, now = job.get("status") or {}, self.timestamp()
        conditions = list(old.get("conditions") or ())
        status: Obj = {**counted.status(), "ready": sum(is_ready(pod) for pod in counted.active)}
        status["terminating"] = len(counted.terminating)
        if counted.active:
            status["active"] = len(counted.active)
        started = old.get("startTime")
        was_suspended = _true(job, "Suspended") is not None
        if suspended and verdict is None:
            started = None
            if not was_suspended:
                conditions = _with(conditions, "Suspended", "True", "JobSuspended", "Job suspended", now)
        elif was_suspended:
            conditions = _with(conditions, "Suspended", "False", "JobResumed", "Job resumed", now)
            started = now
        if not suspended or verdict is not None:
            started = started or now
        if started:
            status["startTime"] = started
        if verdict is not None:
            conditions = _with(conditions, verdict.announced, "True", verdict.reason, verdict.message, now)
            if not counted.active and not counted.terminating and not counted.strays and counted.settled:
                conditions = _with(conditions, verdict.final, "True", verdict.reason, verdict.message, now)
                if verdict.final == "Complete":
                    status["completionTime"] = now
        if conditions:
            status["conditions"] = conditions
        return status

    def _announce(self, job: Obj, status: Obj) -> None:
        tells: dict[tuple[str, str], tuple[Any, str]] = {
            ("Complete", "True"): ("Normal", "Completed"),
            ("Failed", "True"): ("Warning", ""),
            ("Suspended", "True"): ("Normal", "Suspended"),
            ("Suspended", "False"): ("Normal", "Resumed"),
        }
        for condition in status.get("conditions") or ():
            old = get_condition(job, condition["type"])
            tell = tells.get((condition["type"], condition["status"]))
            if tell is None or (old is not None and old["status"] == condition["status"]):
                continue
            message = "Job completed" if tell[1] == "Completed" else condition["message"]
            self.events.event(job, tell[0], tell[1] or condition["reason"], message)


def _with(conditions: list[Obj], type: str, status: str, reason: str, message: str, now: str) -> list[Obj]:
    new = {"type": type, "status": status, "lastProbeTime": now, "reason": reason, "message": message}
    old = get_condition(conditions, type)
    if old is not None and all(old.get(key) == new[key] for key in ("status", "reason", "message")):
        return conditions
    return set_condition(conditions, new, now)


def _difference(job: Obj, counted: Tally) -> tuple[list[Obj], list[int | None]]:
    """The pods that are too many, and the indexes (None: without one) of those that are missing."""
    spec = job["spec"]
    parallelism, completions = spec.get("parallelism", 1), spec.get("completions")
    active, surplus = counted.active, []
    waits_for = counted.terminating if replaces_only_failed(job) else []
    if is_indexed(job):
        keep: dict[int, Obj] = {}
        for pod in active:
            index = index_of(pod)
            if index in keep or not 0 <= index < completions or index in counted.completed:
                surplus.append(pod)
            else:
                keep[index] = pod
        active = list(keep.values())
    if completions is not None:
        wanted = min(parallelism, max(0, completions - counted.succeeded))
    else:
        wanted = parallelism if not counted.succeeded else min(len(active), parallelism)
    if len(active) > wanted:
        return surplus + deletion_order(active)[: len(active) - wanted], []
    count = wanted - len(active) - len(waits_for)
    if count <= 0:
        return surplus, []
    if not is_indexed(job):
        return surplus, [None] * count
    taken = counted.completed | {index_of(pod) for pod in (*active, *waits_for)}
    free = (index for index in range(completions) if index not in taken)
    return surplus, [index for index, _ in zip(free, range(count), strict=False)]


def _restarts_exceed(job: Obj, pods: Sequence[Obj], limit: int) -> bool:
    """With restartPolicy OnFailure the kubelet restarts containers: its restarts count against the limit."""
    if (job["spec"]["template"].get("spec") or {}).get("restartPolicy") != "OnFailure":
        return False
    restarts = 0
    for pod in pods:
        if phase_of(pod) in ("Running", "Pending"):
            status = pod.get("status") or {}
            containers = [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
            restarts += sum(container.get("restartCount", 0) for container in containers)
    return restarts > 0 if limit == 0 else restarts >= limit


def _sooner(*delays: float | None) -> float | None:
    return min((delay for delay in delays if delay is not None), default=None)
