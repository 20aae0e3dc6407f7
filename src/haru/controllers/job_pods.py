"""Which pods a Job lacks and which are too many, and what a new one looks like (pure).

Source: batch/v1 Job; KEP-2214 (Indexed), KEP-3850 (backoffLimitPerIndex), KEP-3939 (podReplacementPolicy).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from haru.controllers.job_indexes import index_of
from haru.controllers.job_retries import counts_after, index_delay
from haru.controllers.job_tracking import Tally, fails_by_index, is_indexed, replaces_only_failed
from haru.kube.meta import Obj, uid_of
from haru.kube.pod_removal import job_removal_rank
from haru.kube.pod_templates import pod_for_job


def job_pod(job: Obj, index: int | None, group: str | None, replaced: Mapping[str, Any] | None = None) -> Obj:
    """A pod to create for a Job, for one completion index if it is Indexed, after one that failed there."""
    pod = pod_for_job(job, index, group)
    if index is not None and fails_by_index(job):
        pod["metadata"]["annotations"].update(counts_after(job, replaced))
    return pod


class Change(NamedTuple):
    """What to do: pods to take away, and the indexes (None: without one) of pods to create."""

    surplus: list[Obj]
    missing: list[int | None]
    again: float | None = None
    """Seconds until an index that failed may be tried again."""


def change_of(job: Obj, counted: Tally, now: datetime, unwanted: Collection[str] = ()) -> Change:
    """Compare the pods that there are with those that should be; `unwanted` are uids of pods that must go."""
    spec = job["spec"]
    parallelism, completions = spec.get("parallelism", 1), spec.get("completions")
    surplus = [pod for pod in counted.active if uid_of(pod) in unwanted]
    active = [pod for pod in counted.active if uid_of(pod) not in unwanted]
    if is_indexed(job):
        active, repeated = _one_per_index(active, completions, counted)
        surplus += repeated
    if completions is not None:
        wanted = min(parallelism, max(0, completions - counted.succeeded))
    else:
        wanted = parallelism if not counted.succeeded else min(len(active), parallelism)
    if len(active) > wanted:
        return Change(surplus + sorted(active, key=job_removal_rank)[: len(active) - wanted], [])
    waits_for = counted.terminating if replaces_only_failed(job) else []
    count = wanted - len(active) - len(waits_for)
    if count <= 0:
        return Change(surplus, [])
    if not is_indexed(job):
        return Change(surplus, [None] * count)
    taken = counted.completed | counted.failed_indexes | {index_of(pod) for pod in (*active, *waits_for)}
    free = (index for index in range(completions) if index not in taken)
    failed = {index: counted.held.get(index) for index, _ in zip(free, range(count), strict=False)}
    delays = {index: index_delay(pod, now) if pod is not None else 0.0 for index, pod in failed.items()}
    return Change(
        surplus,
        [index for index, delay in delays.items() if delay <= 0],
        min((delay for delay in delays.values() if delay > 0), default=None),
    )


def _one_per_index(active: list[Obj], completions: int, counted: Tally) -> tuple[list[Obj], list[Obj]]:
    """The pods that stand for an index that is still to be done, and the others."""
    keep: dict[int, Obj] = {}
    others: list[Obj] = []
    for pod in active:
        index = index_of(pod)
        if index in keep or not 0 <= index < completions or index in counted.completed:
            others.append(pod)
        else:
            keep[index] = pod
    return list(keep.values()), others
