"""How a Job's ended pods are counted exactly once, whatever crashes when (pure).

Each pod of a Job carries the finalizer `batch.kubernetes.io/job-tracking`. An ended pod is first written into
`status.uncountedTerminatedPods`; then its finalizer goes; a later status update moves it from there into the counters.
A pod is thus always in exactly one of three states: with the finalizer and unlisted (not counted), listed (counted
once, finalizer or not), neither (in the counters). Succeeded pods of Indexed Jobs need no list: their index is the
count.
Source: KEP-2307.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from haru.controllers.job_indexes import format_indexes, index_of, parse_indexes
from haru.controllers.objects import Obj, is_active, is_terminal, phase_of
from haru.kube.meta import has_finalizer, is_being_deleted, uid_of
from haru.kube.names import parse_time

TRACKING = "batch.kubernetes.io/job-tracking"
_MAX_UNCOUNTED = 500


def is_indexed(job: Mapping[str, Any]) -> bool:
    """completionMode is Indexed."""
    return bool(job["spec"].get("completionMode") == "Indexed")


def replaces_only_failed(job: Mapping[str, Any]) -> bool:
    """A pod that is being deleted counts as failed (and is replaced) only once it has ended."""
    policy = job["spec"].get("podReplacementPolicy")
    return bool(policy == "Failed" or (policy is None and job["spec"].get("podFailurePolicy")))


@dataclass(slots=True)
class Tally:
    """A Job's pods, counted."""

    active: list[Obj] = field(default_factory=list)
    terminating: list[Obj] = field(default_factory=list)
    to_release: list[Obj] = field(default_factory=list)
    """Listed (or otherwise counted) pods whose finalizer may go once the status is written."""
    strays: list[Obj] = field(default_factory=list)
    """Active pods without the finalizer: their deletion was begun and not finished."""
    uncounted_succeeded: list[str] = field(default_factory=list)
    uncounted_failed: list[str] = field(default_factory=list)
    settled_succeeded: int = 0
    settled_failed: int = 0
    completed: set[int] = field(default_factory=set)
    indexed: bool = False

    @property
    def succeeded(self) -> int:
        """Successes so far, listed ones included."""
        if self.indexed:
            return len(self.completed)
        return self.settled_succeeded + len(self.uncounted_succeeded)

    @property
    def failed(self) -> int:
        """Failures so far, listed ones included."""
        return self.settled_failed + len(self.uncounted_failed)

    @property
    def settled(self) -> bool:
        """Nothing is waiting to be counted."""
        return not (self.uncounted_succeeded or self.uncounted_failed or self.to_release)

    def status(self) -> Obj:
        """The counting part of the Job's status."""
        uncounted: Obj = {}
        if self.uncounted_succeeded:
            uncounted["succeeded"] = sorted(self.uncounted_succeeded)
        if self.uncounted_failed:
            uncounted["failed"] = sorted(self.uncounted_failed)
        status: Obj = {"uncountedTerminatedPods": uncounted}
        succeeded = len(self.completed) if self.indexed else self.settled_succeeded
        if succeeded:
            status["succeeded"] = succeeded
        if self.settled_failed:
            status["failed"] = self.settled_failed
        if self.completed:
            status["completedIndexes"] = format_indexes(self.completed)
        return status


def tally(job: Mapping[str, Any], pods: Sequence[Obj], *, everything_failed: bool = False) -> Tally:
    """Count the pods of a Job. With `everything_failed` (the Job has failed) those that still run are failures too."""
    status = job.get("status") or {}
    uncounted = status.get("uncountedTerminatedPods") or {}
    by_uid = {uid_of(pod): pod for pod in pods}
    result = Tally(indexed=is_indexed(job))
    result.settled_failed = status.get("failed") or 0
    if result.indexed:
        result.completed = parse_indexes(status.get("completedIndexes"), job["spec"].get("completions") or 0)
    else:
        result.settled_succeeded = status.get("succeeded") or 0

    listed: set[str] = set()
    for outcome in ("succeeded", "failed"):
        for uid in uncounted.get(outcome) or ():
            listed.add(uid)
            pod = by_uid.get(uid)
            if pod is not None and has_finalizer(pod, TRACKING):
                _uncounted(result, outcome).append(uid)
                result.to_release.append(pod)
            elif outcome == "succeeded":
                result.settled_succeeded += 1
            else:
                result.settled_failed += 1

    only_failed = replaces_only_failed(job)
    completions = job["spec"].get("completions") or 0
    for pod in pods:
        tracked = has_finalizer(pod, TRACKING)
        if not tracked and is_active(pod):
            result.strays.append(pod)
        elif is_active(pod):
            result.active.append(pod)
        elif not is_terminal(pod) and is_being_deleted(pod):
            result.terminating.append(pod)
        if not tracked or uid_of(pod) in listed:
            continue
        if len(result.uncounted_succeeded) + len(result.uncounted_failed) >= _MAX_UNCOUNTED:
            continue  # the rest comes with the next status update
        if phase_of(pod) == "Succeeded":
            _count_success(result, pod, completions)
        elif _has_failed(pod, only_failed) or (everything_failed and is_being_deleted(pod)):
            result.uncounted_failed.append(uid_of(pod))
            result.to_release.append(pod)
    return result


def _uncounted(result: Tally, outcome: str) -> list[str]:
    return result.uncounted_succeeded if outcome == "succeeded" else result.uncounted_failed


def _count_success(result: Tally, pod: Obj, completions: int) -> None:
    result.to_release.append(pod)
    if not result.indexed:
        result.uncounted_succeeded.append(uid_of(pod))
    elif 0 <= (index := index_of(pod)) < completions:
        result.completed.add(index)


def _has_failed(pod: Mapping[str, Any], only_failed: bool) -> bool:
    if phase_of(pod) == "Failed":
        return True
    return not only_failed and is_being_deleted(pod) and phase_of(pod) != "Succeeded"


def finished_at(pod: Mapping[str, Any]) -> datetime | None:
    """When the last container of an ended pod ended."""
    ends = []
    for status in (pod.get("status") or {}).get("containerStatuses") or ():
        ended = ((status.get("state") or {}).get("terminated") or {}).get("finishedAt")
        if ended:
            ends.append(parse_time(ended))
    if ends:
        return max(ends)
    fallback = pod["metadata"].get("deletionTimestamp") or pod["metadata"].get("creationTimestamp")
    return parse_time(fallback) if fallback else None


def restart_delay(pods: Sequence[Obj], now: datetime, base: float = 10.0, cap: float = 600.0) -> float:
    """How long to wait before another pod: it doubles with each failure since the last success."""
    ended = [(at, pod) for pod in pods if is_terminal(pod) and (at := finished_at(pod)) is not None]
    ended.sort(key=lambda item: item[0])
    failures = 0
    for _, pod in reversed(ended):
        if phase_of(pod) == "Succeeded":
            break
        failures += 1
    if not failures:
        return 0.0
    due = base * 2 ** min(failures - 1, 32)
    return float(max(0.0, min(due, cap) - (now - ended[-1][0]).total_seconds()))
