"""cronjob-controller: makes a Job when its time has come.

Of several times that were missed only the last is made good, and only within `startingDeadlineSeconds`. While a Job
still runs the policy decides: another one beside it (Allow), none (Forbid), or instead of it (Replace). Ended Jobs are
kept by number.
Source: batch/v1 CronJob, as behaviour.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import ClassVar

from haru.controllers.base import Context, Controller
from haru.controllers.job_verdict import true_condition
from haru.controllers.objects import CRON_JOBS, JOBS, by_controller
from haru.kube.cron_schedule import Schedule, ScheduleError, parse_schedule
from haru.kube.errors import StatusError
from haru.kube.kinds import Kind
from haru.kube.meta import (
    Obj,
    controller_of,
    is_being_deleted,
    name_of,
    namespace_of,
    owner_reference,
    uid_of,
)
from haru.kube.names import format_time, parse_time

TIME = "batch.kubernetes.io/cronjob-scheduled-timestamp"
_TOO_MANY = 100


class CronJobController(Controller):
    """Keeps the Jobs of each CronJob."""

    name: ClassVar[str] = "cronjob-controller"
    needs: ClassVar[tuple[Kind, ...]] = (CRON_JOBS, JOBS)

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.crons = self.informer(CRON_JOBS)
        self.jobs = self.informer(JOBS)
        self.jobs.add_index("cron", by_controller)
        self.crons.add_handler(self.enqueue, lambda _, new: self.enqueue(new))
        self.jobs.add_handler(self._job_changed, lambda _, new: self._job_changed(new), self._job_changed)

    def _job_changed(self, job: Obj) -> None:
        owner = controller_of(job)
        if owner is not None and owner.get("kind") == CRON_JOBS.kind:
            self.queue.add(f"{namespace_of(job)}/{owner['name']}")

    async def sync(self, key: str) -> float | None:
        """Bring one CronJob up to now; answers when it is due next."""
        namespace, _, name = key.partition("/")
        cron = self.crons.get(name, namespace)
        if cron is None or is_being_deleted(cron):
            return None
        jobs = self.jobs.by_index("cron", uid_of(cron))
        await self._clean_up(cron, jobs)
        status = self._observed(cron, jobs)
        again: float | None = None
        try:
            schedule = parse_schedule(cron["spec"]["schedule"], cron["spec"].get("timeZone") or "")
        except ScheduleError as error:
            reason = "UnknownTimeZone" if "time zone" in str(error) else "UnparseableSchedule"
            self.events.event(cron, "Warning", reason, f"unparseable schedule: {cron['spec']['schedule']!r}: {error}")
        else:
            if not cron["spec"].get("suspend"):
                status, again = await self._run_due(cron, schedule, status)
        await self.update_status(self.crons, self.crons.get(name, namespace) or cron, status)
        return again

    # --- what is there

    def _observed(self, cron: Obj, jobs: Sequence[Obj]) -> Obj:
        """The status as far as the Jobs that are there tell it."""
        status = dict(cron.get("status") or {})
        known = {entry.get("uid"): entry.get("name") for entry in status.get("active") or ()}
        active = [job for job in jobs if uid_of(job) in known and _outcome(job) == ""]
        for job in jobs:
            if known.pop(uid_of(job), None) is None:
                if not _outcome(job):
                    text = f"Saw a job that the controller did not create or forgot: {name_of(job)}"
                    self.events.event(cron, "Warning", "UnexpectedJob", text)
            elif _outcome(job):
                text = f"Saw completed job: {name_of(job)}, condition: {_outcome(job)}"
                self.events.event(cron, "Normal", "SawCompletedJob", text)
        for name in known.values():
            self.events.event(cron, "Normal", "MissingJob", f"Active job went missing: {name}")
        ended = [(job.get("status") or {}).get("completionTime") for job in jobs if _outcome(job) == "Complete"]
        last = max([time for time in (*ended, status.get("lastSuccessfulTime")) if time], default=None)
        if last is not None:
            status["lastSuccessfulTime"] = last
        status.pop("active", None)
        if active:
            status["active"] = [_reference(job) for job in sorted(active, key=name_of)]
        return status

    async def _clean_up(self, cron: Obj, jobs: Sequence[Obj]) -> None:
        """Forget the oldest Jobs that have ended, beyond what is to be kept of either kind."""
        for outcome, limit, default in (
            ("Complete", "successfulJobsHistoryLimit", 3),
            ("Failed", "failedJobsHistoryLimit", 1),
        ):
            kept = cron["spec"].get(limit)
            ended = [job for job in jobs if _outcome(job) == outcome and not is_being_deleted(job)]
            ended.sort(
                key=lambda job: (job.get("status") or {}).get("startTime") or job["metadata"]["creationTimestamp"]
            )
            for job in ended[: max(0, len(ended) - (default if kept is None else kept))]:
                if await self.delete(self.jobs, job, propagation_policy="Background"):
                    self.events.event(cron, "Normal", "SuccessfulDelete", f"Deleted job {name_of(job)}")

    # --- what is due

    async def _run_due(self, cron: Obj, schedule: Schedule, status: Obj) -> tuple[Obj, float | None]:
        now = self.now()
        due, missed = _last_due(cron, schedule, now)
        following = schedule.after(now)
        again = None if following is None else max(0.0, (following - now).total_seconds()) + 0.05
        if missed > _TOO_MANY:
            advice = "Set or decrease .spec.startingDeadlineSeconds or check clock skew"
            text = f"too many missed start times: {missed}. {advice}"
            self.events.event(cron, "Warning", "TooManyMissedTimes", text)
        if due is None:
            return status, again
        deadline = cron["spec"].get("startingDeadlineSeconds")
        if deadline is not None and due + timedelta(seconds=deadline) < now:
            text = f"Missed scheduled time to start a job: {format_time(due)}"
            self.events.event(cron, "Warning", "MissSchedule", text)
            return status, again
        active = status.get("active") or ()
        policy = cron["spec"].get("concurrencyPolicy", "Allow")
        if active and policy == "Forbid":
            text = "Not starting job because prior execution is running and concurrency policy is Forbid"
            self.events.event(cron, "Normal", "JobAlreadyActive", text)
            return status, again
        if active and policy == "Replace":
            for entry in active:
                if (job := self.jobs.get(entry["name"], entry["namespace"])) is not None:
                    await self.delete(self.jobs, job, propagation_policy="Background")
                    self.events.event(cron, "Normal", "SuccessfulDelete", f"Deleted job {name_of(job)}")
            status = {name: value for name, value in status.items() if name != "active"}
        return await self._start(cron, due, status), again

    async def _start(self, cron: Obj, due: datetime, status: Obj) -> Obj:
        body = job_of(cron, due)
        try:
            job = await self.create(self.jobs, body)
        except StatusError as error:
            if error.reason != "AlreadyExists":
                self.events.event(cron, "Warning", "FailedCreate", f"Error creating job: {error}")
                raise
            # Made before, by a controller that did not come to write it down.
            made = await self.live(JOBS, body["metadata"]["name"], namespace_of(cron))
            if made is None or (controller_of(made) or {}).get("uid") != uid_of(cron):
                return {**status, "lastScheduleTime": format_time(due)}
            job = made
            self.jobs.observe(job)
        else:
            self.events.event(cron, "Normal", "SuccessfulCreate", f"Created job {name_of(job)}")
        known = [entry for entry in status.get("active") or () if entry["uid"] != uid_of(job)]
        active = [*known, _reference(job)]
        return {**status, "active": active, "lastScheduleTime": format_time(due)}


def _last_due(cron: Obj, schedule: Schedule, now: datetime) -> tuple[datetime | None, int]:
    """The newest time up to now that no Job was made for, and how many such times there are (at most a few)."""
    last = (cron.get("status") or {}).get("lastScheduleTime")
    moment = parse_time(last or cron["metadata"]["creationTimestamp"])
    deadline = cron["spec"].get("startingDeadlineSeconds")
    if deadline is not None:
        moment = max(moment, now - timedelta(seconds=deadline))
    due, missed = None, 0
    following = schedule.after(moment)
    while following is not None and following <= now:
        due, missed = following, missed + 1
        if missed > _TOO_MANY:
            # So long ago that each time is not counted any more: the last one is near.
            moment = max(moment, now - timedelta(days=1))
            recent = schedule.after(moment)
            while recent is not None and recent <= now:
                due, recent = recent, schedule.after(recent)
            break
        following = schedule.after(following)
    return due, missed


def job_of(cron: Obj, due: datetime) -> Obj:
    """The Job for a time; its name says which, so that there is one for each."""
    template = cron["spec"]["jobTemplate"]
    given = template.get("metadata") or {}
    annotations = {**(given.get("annotations") or {}), TIME: format_time(due)}
    metadata: Obj = {
        "name": f"{name_of(cron)[:52]}-{int(due.timestamp()) // 60}",
        "namespace": namespace_of(cron),
        "labels": dict(given.get("labels") or {}),
        "annotations": annotations,
        "ownerReferences": [owner_reference(cron, CRON_JOBS)],
    }
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": copy.deepcopy(template["spec"])}


def _outcome(job: Obj) -> str:
    """`Complete`, `Failed`, or nothing for a Job that has not ended."""
    return next((kind for kind in ("Complete", "Failed") if true_condition(job, kind)), "")


def _reference(job: Obj) -> Obj:
    metadata = job["metadata"]
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": metadata["name"],
        "namespace": metadata["namespace"],
        "uid": metadata["uid"],
        "resourceVersion": metadata.get("resourceVersion", ""),
    }
