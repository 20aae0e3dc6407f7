"""How a Job's ended pods are counted exactly once, whatever crashes when (pure).

Each pod of a Job carries the finalizer `batch.kubernetes.io/job-tracking`. An ended pod is first written into
`status.uncountedTerminatedPods`; then its finalizer goes; a later status update moves it from there into the counters.
A pod is thus always in exactly one of three states: with the finalizer and unlisted (not counted), listed (counted
once, finalizer or not), neither (in the counters, or ignored). Succeeded pods of Indexed Jobs need no list: their
index is the count.
Source: KEP-2307; KEP-3329 (ignored failures), KEP-3850 (indexes that fail on their own).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from haru.controllers.job_indexes import format_indexes, index_of, parse_indexes
from haru.controllers.job_policies import judge
from haru.controllers.job_retries import failure_counts, finished_at, is_last_failure
from haru.controllers.objects import is_active, is_terminal
from haru.kube.meta import Obj, has_finalizer, is_being_deleted, phase_of, uid_of
from haru.kube.pod_templates import JOB_TRACKING

TRACKING = JOB_TRACKING
_MAX_UNCOUNTED = 500
_NEVER = datetime.min.replace(tzinfo=UTC)


def is_indexed(job: Mapping[str, Any]) -> bool:
    """completionMode is Indexed."""
    return bool(job["spec"].get("completionMode") == "Indexed")


def fails_by_index(job: Mapping[str, Any]) -> bool:
    """Each index has retries of its own."""
    return is_indexed(job) and job["spec"].get("backoffLimitPerIndex") is not None


def replaces_only_failed(job: Mapping[str, Any]) -> bool:
    """A pod that is being deleted counts as failed (and is replaced) only once it has ended."""
    policy = job["spec"].get("podReplacementPolicy")
    return bool(policy == "Failed" or (policy is None and job["spec"].get("podFailurePolicy")))


def has_failed(job: Mapping[str, Any], pod: Mapping[str, Any]) -> bool:
    """The pod is a failure: it ended as one, or is on its way and nobody waits to see how it ends."""
    if phase_of(pod) == "Failed":
        return True
    return not replaces_only_failed(job) and is_being_deleted(pod) and phase_of(pod) != "Succeeded"


@dataclass(slots=True)
class Tally:
    """A Job's pods, counted."""

    job: Obj
    active: list[Obj] = field(default_factory=list)
    terminating: list[Obj] = field(default_factory=list)
    to_release: list[Obj] = field(default_factory=list)
    """Listed (or otherwise counted) pods whose finalizer may go once the status is written."""
    strays: list[Obj] = field(default_factory=list)
    """Pods without the finalizer that are still alive: their deletion was begun and not finished."""
    failures: list[Obj] = field(default_factory=list)
    """Pods that failed and still have the finalizer: what they mean for the whole Job is not settled yet."""
    held: dict[int, Obj] = field(default_factory=dict)
    """Per index without a live pod the one that failed last: it goes when its replacement has taken its count."""
    uncounted_succeeded: list[str] = field(default_factory=list)
    uncounted_failed: list[str] = field(default_factory=list)
    settled_succeeded: int = 0
    settled_failed: int = 0
    completed: set[int] = field(default_factory=set)
    failed_indexes: set[int] = field(default_factory=set)

    @property
    def succeeded(self) -> int:
        """Successes so far, listed ones included."""
        if is_indexed(self.job):
            return len(self.completed)
        return self.settled_succeeded + len(self.uncounted_succeeded)

    @property
    def left(self) -> int:
        """How many indexes of an Indexed Job are still to be done."""
        return int(self.job["spec"].get("completions") or 0) - len(self.completed | self.failed_indexes)

    @property
    def failed(self) -> int:
        """Failures so far, listed ones and those that are held included."""
        held = sum(judge(self.job, pod).counts for pod in self.held.values())
        return self.settled_failed + len(self.uncounted_failed) + held

    @property
    def settled(self) -> bool:
        """Nothing is waiting to be counted."""
        return not (self.uncounted_succeeded or self.uncounted_failed or self.to_release or self.held)

    def let_go(self) -> None:
        """Nobody will be replaced any more: count those that were held for it."""
        for pod in self.held.values():
            _count_failure(self, pod)
        self.held.clear()

    def status(self) -> Obj:
        """The counting part of the Job's status."""
        uncounted: Obj = {}
        if self.uncounted_succeeded:
            uncounted["succeeded"] = sorted(self.uncounted_succeeded)
        if self.uncounted_failed:
            uncounted["failed"] = sorted(self.uncounted_failed)
        status: Obj = {"uncountedTerminatedPods": uncounted}
        succeeded = len(self.completed) if is_indexed(self.job) else self.settled_succeeded
        if succeeded:
            status["succeeded"] = succeeded
        if self.settled_failed:
            status["failed"] = self.settled_failed
        if self.completed:
            status["completedIndexes"] = format_indexes(self.completed)
        if fails_by_index(self.job):
            status["failedIndexes"] = format_indexes(self.failed_indexes)
        return status


def tally(job: Obj, pods: Sequence[Obj], *, everything_failed: bool = False) -> Tally:
    """Count the pods of a Job. With `everything_failed` (the Job has failed) those that still run are failures too."""
    result = Tally(job)
    listed = _settle(result, {uid_of(pod): pod for pod in pods})
    for pod in pods:
        tracked = has_finalizer(pod, TRACKING)
        if not tracked and is_active(pod):
            result.strays.append(pod)
        elif is_active(pod):
            result.active.append(pod)
        elif not is_terminal(pod) and is_being_deleted(pod):
            result.terminating.append(pod)
        if tracked and (has_failed(job, pod) or (everything_failed and _gives_up(pod))):
            result.failures.append(pod)
        elif tracked and phase_of(pod) == "Succeeded" and uid_of(pod) not in listed and _has_room(result):
            _count_success(result, pod)  # what finds no room comes with the next status update
    fresh = [pod for pod in result.failures if uid_of(pod) not in listed]
    if fails_by_index(job):
        # A pod that is taken away because the Job is over says nothing about its index.
        judged = [pod for pod in result.failures if not (everything_failed and is_being_deleted(pod))]
        last = {_valid_index(job, pod) for pod in judged if is_last_failure(job, pod)}
        result.failed_indexes = (result.failed_indexes | last) - result.completed - {-1}
        result.held = _last_failures(result, fresh)
    held = {uid_of(pod) for pod in result.held.values()}
    for pod in fresh:
        if uid_of(pod) not in held and _has_room(result):
            _count_failure(result, pod)
    return result


def _gives_up(pod: Mapping[str, Any]) -> bool:
    return is_being_deleted(pod) and phase_of(pod) != "Succeeded"


def _settle(result: Tally, by_uid: Mapping[str, Obj]) -> set[str]:
    """Take over what the status has counted; the uids that it lists."""
    job = result.job
    status = job.get("status") or {}
    completions = job["spec"].get("completions") or 0
    result.settled_failed = status.get("failed") or 0
    if is_indexed(job):
        result.completed = parse_indexes(status.get("completedIndexes"), completions)
    else:
        result.settled_succeeded = status.get("succeeded") or 0
    if fails_by_index(job):
        result.failed_indexes = parse_indexes(status.get("failedIndexes"), completions)
    uncounted = status.get("uncountedTerminatedPods") or {}
    listed: set[str] = set()
    for outcome in ("succeeded", "failed"):
        for uid in uncounted.get(outcome) or ():
            listed.add(uid)
            pod = by_uid.get(uid)
            if pod is not None and has_finalizer(pod, TRACKING):
                (result.uncounted_succeeded if outcome == "succeeded" else result.uncounted_failed).append(uid)
                result.to_release.append(pod)
            elif outcome == "succeeded":
                result.settled_succeeded += 1
            else:
                result.settled_failed += 1
    return listed


def _has_room(result: Tally) -> bool:
    return len(result.uncounted_succeeded) + len(result.uncounted_failed) < _MAX_UNCOUNTED


def _valid_index(job: Mapping[str, Any], pod: Mapping[str, Any]) -> int:
    """The completion index of a pod, -1 if it has none that the Job (still) has."""
    index = index_of(pod)
    return index if index < (job["spec"].get("completions") or 0) else -1


def _last_failures(result: Tally, failed: Sequence[Obj]) -> dict[int, Obj]:
    """Per index that may be tried again and has no pod: the failed pod that knows how often it was tried."""
    alive = {index_of(pod) for pod in result.active}
    last: dict[int, Obj] = {}
    for pod in failed:
        index = _valid_index(result.job, pod)
        if index < 0 or index in result.completed or index in result.failed_indexes or index in alive:
            continue
        if index not in last or _later(last[index]) <= _later(pod):
            last[index] = pod
    return last


def _later(pod: Obj) -> tuple[int, datetime]:
    return sum(failure_counts(pod)), finished_at(pod) or _NEVER


def _count_success(result: Tally, pod: Obj) -> None:
    result.to_release.append(pod)
    if not is_indexed(result.job):
        result.uncounted_succeeded.append(uid_of(pod))
    elif (index := _valid_index(result.job, pod)) >= 0:
        result.completed.add(index)


def _count_failure(result: Tally, pod: Obj) -> None:
    result.to_release.append(pod)
    of_job = not is_indexed(result.job) or _valid_index(result.job, pod) >= 0
    if of_job and judge(result.job, pod).counts:
        result.uncounted_failed.append(uid_of(pod))
