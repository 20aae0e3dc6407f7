"""Defaults of batch/v1: jobs and cron jobs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from haru.kube.cloning import clone
from haru.kube.defaulting.filling import fill, fill_unset, items, part, section
from haru.kube.defaulting.pods import fill_template

if TYPE_CHECKING:
    from haru.kube.gates import FeatureGates

Obj = dict[str, Any]

_UNLIMITED = 2**31 - 1


def _job(job: Obj, gates: FeatureGates) -> None:
    spec = section(job, "spec")
    _job_spec(spec)
    metadata = section(job, "metadata")
    labels = (part(spec, "template", "metadata") or {}).get("labels")
    if labels and not metadata.get("labels"):
        metadata["labels"] = clone(labels)


def _job_spec(spec: Obj) -> None:
    if spec.get("completions") is None and spec.get("parallelism") is None:
        spec["completions"] = 1
    # Per-index retries have a limit of their own, so the job-wide one is out of the way.
    limit = 6 if spec.get("backoffLimitPerIndex") is None else _UNLIMITED
    fill_unset(
        spec, parallelism=1, backoffLimit=limit, completionMode="NonIndexed", suspend=False, manualSelector=False
    )
    fill_unset(spec, podReplacementPolicy="Failed" if spec.get("podFailurePolicy") else "TerminatingOrFailed")
    for rule in items(part(spec, "podFailurePolicy"), "rules"):
        for pattern in items(rule, "onPodConditions"):
            fill(pattern, status="True")
    fill_template(part(spec, "template"))


def _cron_job(cron_job: Obj, gates: FeatureGates) -> None:
    spec = section(cron_job, "spec")
    fill(spec, concurrencyPolicy="Allow")
    fill_unset(spec, suspend=False, successfulJobsHistoryLimit=3, failedJobsHistoryLimit=1)
    # The job's own defaults are filled in when the job is created; only its pod template is complete here.
    fill_template(part(spec, "jobTemplate", "spec", "template"))


FILLERS: Mapping[tuple[str, str], Callable[[Obj, FeatureGates], None]] = {
    ("batch", "Job"): _job,
    ("batch", "CronJob"): _cron_job,
}
