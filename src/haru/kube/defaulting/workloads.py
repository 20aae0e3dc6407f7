"""Defaults of apps/v1 and batch/v1: deployments, replica sets, stateful sets, daemon sets, jobs and cron jobs."""

from __future__ import annotations

from haru.kube.defaulting.filling import Fillers, fill, fill_unset, items, part, section
from haru.kube.defaulting.pods import fill_template
from haru.kube.gates import FeatureGates
from haru.kube.meta import Obj

_UNLIMITED = 2**31 - 1


def _deployment(deployment: Obj, gates: FeatureGates) -> None:
    spec = section(deployment, "spec")
    fill_unset(spec, replicas=1, revisionHistoryLimit=10, progressDeadlineSeconds=600)
    strategy = section(spec, "strategy")
    fill(strategy, type="RollingUpdate")
    if strategy["type"] == "RollingUpdate":
        fill_unset(section(strategy, "rollingUpdate"), maxUnavailable="25%", maxSurge="25%")
    fill_template(section(spec, "template"))


def _replica_set(replica_set: Obj, gates: FeatureGates) -> None:
    spec = section(replica_set, "spec")
    fill_unset(spec, replicas=1)
    fill_template(section(spec, "template"))


def _stateful_set(stateful_set: Obj, gates: FeatureGates) -> None:
    spec = section(stateful_set, "spec")
    fill(spec, podManagementPolicy="OrderedReady")
    fill_unset(spec, replicas=1, revisionHistoryLimit=10)
    strategy = section(spec, "updateStrategy")
    if not strategy.get("type"):
        strategy["type"] = "RollingUpdate"
        section(strategy, "rollingUpdate")
    rolling = part(strategy, "rollingUpdate")
    if strategy["type"] == "RollingUpdate" and rolling is not None:
        fill_unset(rolling, partition=0)
    fill(section(spec, "persistentVolumeClaimRetentionPolicy"), whenDeleted="Retain", whenScaled="Retain")
    for claim in items(spec, "volumeClaimTemplates"):
        claim.update(apiVersion="v1", kind="PersistentVolumeClaim")  # whatever it was called
        fill_unset(section(claim, "spec"), volumeMode="Filesystem")
        fill(section(claim, "status"), phase="Pending")
    fill_template(section(spec, "template"))


TEMPLATE_GENERATION = "deprecated.daemonset.template.generation"


def _daemon_set(daemon_set: Obj, gates: FeatureGates) -> None:
    fill_unset(section(section(daemon_set, "metadata"), "annotations"), **{TEMPLATE_GENERATION: "0"})
    spec = section(daemon_set, "spec")
    fill_unset(spec, revisionHistoryLimit=10)
    strategy = section(spec, "updateStrategy")
    fill(strategy, type="RollingUpdate")
    if strategy["type"] == "RollingUpdate":
        fill_unset(section(strategy, "rollingUpdate"), maxUnavailable=1, maxSurge=0)
    fill_template(section(spec, "template"))


def _job(job: Obj, gates: FeatureGates) -> None:
    spec = section(job, "spec")
    _job_spec(spec)
    metadata = section(job, "metadata")
    labels = (part(spec, "template", "metadata") or {}).get("labels")
    if labels and not metadata.get("labels"):
        metadata["labels"] = labels


def _job_spec(spec: Obj) -> None:
    if spec.get("completions") is None and spec.get("parallelism") is None:
        spec["completions"] = 1
    # Per-index retries have a limit of their own, so the job-wide one is out of the way.
    limit = 6 if spec.get("backoffLimitPerIndex") is None else _UNLIMITED
    fill_unset(
        spec, parallelism=1, backoffLimit=limit, completionMode="NonIndexed", suspend=False, manualSelector=False
    )
    fill_unset(spec, podReplacementPolicy="Failed" if spec.get("podFailurePolicy") else "TerminatingOrFailed")
    _failure_policy(spec)
    fill_template(section(spec, "template"))


def _failure_policy(spec: Obj) -> None:
    for rule in items(part(spec, "podFailurePolicy"), "rules"):
        for pattern in items(rule, "onPodConditions"):
            fill(pattern, status="True")


def _cron_job(cron_job: Obj, gates: FeatureGates) -> None:
    spec = section(cron_job, "spec")
    fill(spec, concurrencyPolicy="Allow")
    fill_unset(spec, suspend=False, successfulJobsHistoryLimit=3, failedJobsHistoryLimit=1)
    # The job's own defaults are filled in when the job is created; its pod template and patterns are complete here.
    job = section(section(spec, "jobTemplate"), "spec")
    _failure_policy(job)
    fill_template(section(job, "template"))


FILLERS: Fillers = {
    ("apps", "Deployment"): _deployment,
    ("apps", "ReplicaSet"): _replica_set,
    ("apps", "StatefulSet"): _stateful_set,
    ("apps", "DaemonSet"): _daemon_set,
    ("batch", "Job"): _job,
    ("batch", "CronJob"): _cron_job,
}
