"""How long pods may run at most, and so when they end at the latest; backfill relies on it.

A limit is `activeDeadlineSeconds` of the pod or of its Job, which Kubernetes enforces, or the annotation
`haru.dev/run-time-limit` of the pod or its PodGroup, which is a promise. The grace period of the pod comes on top.
Source: Kubernetes' deadlines of pods and Jobs; that they bound a reservation is our own (docs/adr/0007).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from functools import lru_cache

from haru.engine.state.pod_info import RUN_TIME_LIMIT as ANNOTATION
from haru.engine.state.pod_info import PodInfo
from haru.engine.state.snapshot import Snapshot
from haru.kube.durations import seconds_of
from haru.kube.meta import Obj
from haru.kube.names import format_time, parse_time

_GRACE_SECONDS = 30
_START_SECONDS = 5.0
"""Seconds that a pod on a node may need before its own limit begins."""


def latest_end(snapshot: Snapshot, pod: PodInfo, now: float) -> float | None:
    """The time (seconds since the epoch) by which the pod is gone; None if nothing limits it.

    A pod that has not started is taken to start in a moment. A limit that has passed, with the pod there, is none.
    """
    if pod.is_unlimited:
        return None  # as with most pods, of which there may be many
    started = epoch(pod.status.get("startTime")) or now + _START_SECONDS
    ends = [started + limit for limit in _limits(snapshot, pod)]
    job = _job(snapshot, pod)
    deadline = ((job or {}).get("spec") or {}).get("activeDeadlineSeconds")
    if job is not None and deadline is not None:
        ends.append((epoch((job.get("status") or {}).get("startTime")) or now) + deadline)
    if not ends:
        return None
    grace = pod.spec.get("terminationGracePeriodSeconds")
    end = min(ends) + (_GRACE_SECONDS if grace is None else grace)
    return end if end >= now else None


def run_limit(snapshot: Snapshot, pod: PodInfo) -> float | None:
    """Return for how many seconds a pod may run by its own limit, its group's and its Job's; None: no limit."""
    limits = [*_limits(snapshot, pod)]
    deadline = ((_job(snapshot, pod) or {}).get("spec") or {}).get("activeDeadlineSeconds")
    if deadline is not None:
        limits.append(float(deadline))
    return min(limits, default=None)


def parse_limit(text: str) -> float:
    """Seconds of a text such as `90s` or `1h30m`. Raises ValueError, which says what to write."""
    try:
        seconds = seconds_of(text)
    except ValueError:
        seconds = -1.0
    if seconds <= 0:
        raise ValueError(f'Invalid value: "{text}": write a duration such as 10m or 1h30m')
    return seconds


def _limits(snapshot: Snapshot, pod: PodInfo) -> Iterator[float]:
    deadline = pod.spec.get("activeDeadlineSeconds")
    if deadline is not None:
        yield float(deadline)
    group = snapshot.pod_group(pod.group) if pod.group is not None else None
    for obj in (pod.obj, group):
        limit = _declared((obj or {}).get("metadata") or {})
        if limit is not None:
            yield limit


def _declared(metadata: Mapping[str, Obj]) -> float | None:
    text = (metadata.get("annotations") or {}).get(ANNOTATION)
    try:
        return parse_limit(text) if isinstance(text, str) else None
    except ValueError:
        # A promise that nobody understands is none.
        return None


def _job(snapshot: Snapshot, pod: PodInfo) -> Obj | None:
    """The Job that controls the pod, if it is known."""
    owner = pod.controller
    if owner is None or owner.get("kind") != "Job":
        return None
    found = snapshot.objects("Job").get(f"{pod.key.namespace}/{owner.get('name')}")
    return found if found is not None and found["metadata"].get("uid") == owner.get("uid") else None


@lru_cache(maxsize=4096)
def _parsed(text: str) -> float | None:
    try:
        return parse_time(text).timestamp()
    except ValueError:
        return None


def epoch(text: object) -> float | None:
    """Seconds since the epoch of an RFC 3339 time; None of anything else."""
    return _parsed(text) if isinstance(text, str) else None


def time_text(seconds: float) -> str:
    """The RFC 3339 time of seconds since the epoch."""
    return format_time(datetime.fromtimestamp(seconds, UTC))
