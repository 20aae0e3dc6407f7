"""Whether a Job is over, and why (pure).

A Job ends in two steps: `SuccessCriteriaMet` or `FailureTarget` as soon as the outcome is certain, `Complete` or
`Failed` once no pod runs any more and all are counted. What was announced stands.
Source: batch/v1 Job; KEP-3329, KEP-3850, KEP-3998.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from haru.controllers.job_policies import job_failure, success
from haru.controllers.job_tracking import Tally, fails_by_index, is_indexed
from haru.kube.meta import Obj, get_condition, phase_of
from haru.kube.names import parse_time


class Verdict(NamedTuple):
    """How a Job ends: the condition that announces it and the one that closes it."""

    announced: str
    final: str
    reason: str
    message: str

    @property
    def failed(self) -> bool:
        """The Job fails."""
        return self.final == "Failed"


def true_condition(job: Mapping[str, Any], type: str) -> Obj | None:
    """The Job's condition of that type if it is True."""
    condition = get_condition(job, type)
    return condition if condition is not None and condition["status"] == "True" else None


def is_finished(job: Mapping[str, Any]) -> bool:
    """The Job is Complete or Failed."""
    return any(true_condition(job, type) is not None for type in ("Complete", "Failed"))


def _failure(reason: str, message: str) -> Verdict:
    return Verdict("FailureTarget", "Failed", reason, message)


def _success(reason: str, message: str) -> Verdict:
    return Verdict("SuccessCriteriaMet", "Complete", reason, message)


def verdict_of(job: Obj, counted: Tally, pods: Sequence[Obj], now: datetime) -> Verdict | None:
    """The outcome of a Job, as far as it is certain; failures are looked for before successes."""
    if (met := true_condition(job, "SuccessCriteriaMet")) is not None:
        return _success(met.get("reason", ""), met.get("message", ""))
    if (target := true_condition(job, "FailureTarget")) is not None:
        return _failure(target.get("reason", ""), target.get("message", ""))
    if why := job_failure(job, counted.failures):
        return _failure("PodFailurePolicy", why)
    limit = job["spec"].get("backoffLimit", 6)
    if counted.failed > limit or _restarts_exceed(job, pods, limit):
        return _failure("BackoffLimitExceeded", "Job has reached the specified backoff limit")
    if until_deadline(job, now) == 0:
        return _failure("DeadlineExceeded", "Job was active longer than specified deadline")
    return _by_index(job, counted) or _by_count(job, counted)


def _by_index(job: Obj, counted: Tally) -> Verdict | None:
    spec = job["spec"]
    if fails_by_index(job):
        most, failed = spec.get("maxFailedIndexes"), len(counted.failed_indexes)
        if most is not None and failed > most:
            message = "Job has exceeded the specified maximal number of failed indexes"
            return _failure("MaxFailedIndexesExceeded", message)
        if failed and failed + counted.succeeded >= spec["completions"]:
            return _failure("FailedIndexes", "Job has failed indexes")
    if is_indexed(job) and (why := success(job, counted.completed)):
        return _success("SuccessPolicy", why)
    return None


def _by_count(job: Obj, counted: Tally) -> Verdict | None:
    spec = job["spec"]
    completions = spec.get("completions")
    if completions is None:
        alive = counted.active or counted.terminating
        enough = counted.succeeded > 0 and not alive and not spec.get("suspend")
    else:
        enough = counted.succeeded >= completions
    return _success("CompletionsReached", "Reached expected number of succeeded pods") if enough else None


def until_deadline(job: Mapping[str, Any], now: datetime) -> float | None:
    """Seconds until the Job has run too long; None if it may run for ever or does not run."""
    limit, started = job["spec"].get("activeDeadlineSeconds"), (job.get("status") or {}).get("startTime")
    if limit is None or not started or job["spec"].get("suspend") or is_finished(job):
        return None
    return max(0.0, (parse_time(started) + timedelta(seconds=limit) - now).total_seconds())


def _restarts_exceed(job: Mapping[str, Any], pods: Sequence[Obj], limit: int) -> bool:
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
