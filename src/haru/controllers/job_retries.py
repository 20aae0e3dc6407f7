"""When a failed pod is replaced, and how often that has happened (pure).

The wait doubles with each failure. For most Jobs it is one for all their pods; where indexes are tried independently
of each other each has its own, and its count travels from a failed pod to its replacement in annotations - that is why
the failed one is held by its finalizer until the replacement is there.
Source: batch/v1 Job; KEP-3850 (backoffLimitPerIndex).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from haru.controllers.job_policies import judge
from haru.kube.meta import annotations_of, get_condition, phase_of
from haru.kube.names import parse_time

FAILURES = "batch.kubernetes.io/job-index-failure-count"
IGNORED_FAILURES = "batch.kubernetes.io/job-index-ignored-failure-count"
_BASE_SECONDS = 10.0
_CAP_SECONDS = 600.0
_MAX_COUNT = 2**31 - 1


def finished_at(pod: Mapping[str, Any]) -> datetime | None:
    """When a pod ended: its last container, else when it was no longer ready or was told to go."""
    ends = []
    for status in (pod.get("status") or {}).get("containerStatuses") or ():
        ended = ((status.get("state") or {}).get("terminated") or {}).get("finishedAt")
        if ended:
            ends.append(parse_time(ended))
    if ends:
        return max(ends)
    ready = get_condition(pod, "Ready")
    if ready is not None and ready.get("status") == "False" and ready.get("lastTransitionTime"):
        return parse_time(ready["lastTransitionTime"])
    metadata = pod["metadata"]
    if deleted := metadata.get("deletionTimestamp"):
        return parse_time(deleted) - timedelta(seconds=metadata.get("deletionGracePeriodSeconds") or 0)
    created = metadata.get("creationTimestamp")
    return parse_time(created) if created else None


class Ending(NamedTuple):
    """When a pod ended, and how."""

    at: datetime
    failed: bool


def ending_of(pod: Mapping[str, Any]) -> Ending | None:
    """How a pod ended that ran, or was told to go and counts as failed already."""
    at = finished_at(pod)
    return Ending(at, phase_of(pod) != "Succeeded") if at is not None else None


def restart_delay(
    endings: Sequence[Ending], now: datetime, base: float = _BASE_SECONDS, cap: float = _CAP_SECONDS
) -> float:
    """How long to wait before another pod, in seconds: it doubles with each failure since the last success."""
    ended = sorted(endings, key=lambda ending: (ending.at, not ending.failed))
    failures = 0
    for ending in reversed(ended):
        if not ending.failed:
            break
        failures += 1
    return _remaining(failures, ended[-1].at, now, base, cap) if failures else 0.0


def index_delay(failed: Mapping[str, Any], now: datetime) -> float:
    """How long the index of the pod that failed last in it waits for another one, in seconds."""
    since = finished_at(failed)
    return _remaining(sum(failure_counts(failed)) + 1, since, now, _BASE_SECONDS, _CAP_SECONDS) if since else 0.0


def _remaining(failures: int, since: datetime, now: datetime, base: float, cap: float) -> float:
    due = base * 2 ** min(failures - 1, 32)
    return float(max(0.0, min(due, cap) - (now - since).total_seconds()))


def failure_counts(pod: Mapping[str, Any]) -> tuple[int, int]:
    """How many pods of the index failed before this one: those that count, and those that were ignored."""
    return _count(pod, FAILURES), _count(pod, IGNORED_FAILURES)


def _count(pod: Mapping[str, Any], annotation: str) -> int:
    text = annotations_of(pod).get(annotation, "")
    number = int(text) if text.isascii() and text.isdigit() else 0
    return number if number <= _MAX_COUNT else 0


def counts_after(job: Mapping[str, Any], failed: Mapping[str, Any] | None) -> dict[str, str]:
    """The annotations of the pod that comes after `failed` in its index (None: of the first one)."""
    counted, ignored = failure_counts(failed) if failed is not None else (0, 0)
    if failed is not None and judge(job, failed).counts:
        counted += 1
    elif failed is not None:
        ignored += 1
    annotations = {FAILURES: str(counted)}
    return {**annotations, IGNORED_FAILURES: str(ignored)} if ignored else annotations


def is_last_failure(job: Mapping[str, Any], failed: Mapping[str, Any]) -> bool:
    """Whether this failure of a pod fails its index: by the policy, or because it was tried often enough."""
    judgement = judge(job, failed)
    if judgement.action == "FailIndex":
        return True
    return bool(judgement.counts and failure_counts(failed)[0] >= job["spec"]["backoffLimitPerIndex"])
