"""The Workload and PodGroup of a Job whose pods must start together: their names and what is in them.

Names are derived from the Job alone, another one for each further attempt. Both say for which parallelism they were
made.
Source: KEP-5547; a template name that would be too long is cut and hashed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from haru.kube.jobs import COUNT_SUCCEEDED, JOB_PARALLELISM
from haru.kube.kinds import known_kind
from haru.kube.meta import Obj, annotations_of, controller_of, name_of, namespace_of, owner_reference, uid_of
from haru.kube.names import NAME_ALPHABET

JOBS = known_kind("batch/v1", "Job")
WORKLOADS = known_kind("scheduling.k8s.io/v1alpha2", "Workload")
POD_GROUPS = known_kind("scheduling.k8s.io/v1alpha2", "PodGroup")
_MAX_NAME = 253
_MAX_TEMPLATE_NAME = 63


def _fnv32a(data: bytes) -> int:
    value = 0x811C9DC5
    for byte in data:
        value = ((value ^ byte) * 0x01000193) & 0xFFFFFFFF
    return value


def _hash(text: str) -> str:
    """The decimal digits of FNV-1a, each as a letter that forms no words."""
    return "".join(NAME_ALPHABET[ord(c) % len(NAME_ALPHABET)] for c in str(_fnv32a(text.encode())))


def template_name(job_name: str) -> str:
    """`<job>-pgt-0`; a Job name that leaves no room is cut and its hash added."""
    name = f"{job_name}-pgt-0"
    if len(name) <= _MAX_TEMPLATE_NAME:
        return name
    suffix = f"-{_hash(job_name)}-pgt-0"
    return job_name[: _MAX_TEMPLATE_NAME - len(suffix)].rstrip("-.") + suffix


def workload_name(job: Mapping[str, Any], attempt: int = 0) -> str:
    """`<job>-<hash of its uid>`; another hash for each further attempt, when the name was taken."""
    suffix = "-" + _hash(uid_of(job) + _further(attempt))
    return name_of(job)[: _MAX_NAME - len(suffix)].rstrip("-.") + suffix


def pod_group_name(workload: str, template: str, attempt: int = 0) -> str:
    """`<workload>-<template>-<hash of both>`; if too long each part gets half, or what the other leaves over."""
    suffix = "-" + _hash(workload + template + _further(attempt))
    room = _MAX_NAME - len(suffix) - 1
    if len(workload) + len(template) > room:
        half = room // 2
        of_workload = max(half, room - len(template))
        workload = workload[:of_workload].rstrip("-.")
        template = template[: room - len(workload)].rstrip("-.")
    return f"{workload}-{template}{suffix}"


def _further(attempt: int) -> str:
    return f"/{attempt}" if attempt else ""


def never_started(job: Mapping[str, Any], has_pods: bool) -> bool:
    """The Job has no history: only then its group is made. To have been suspended is no history."""
    status = job.get("status") or {}
    return not (has_pods or status.get("startTime") or status.get("succeeded") or status.get("failed"))


def is_outgrown(obj: Mapping[str, Any], job: Mapping[str, Any]) -> bool:
    """The Workload or PodGroup was made for the Job when it had another parallelism."""
    made_for = annotations_of(obj).get(JOB_PARALLELISM)
    if made_for is None or (controller_of(obj) or {}).get("uid") != uid_of(job):
        return False
    return made_for != str(job["spec"].get("parallelism"))


def new_workload(job: Mapping[str, Any], attempt: int = 0, members: int = 0) -> Obj:
    """The Workload for a Job; `members`: of how many pods, if fewer are left to run than its parallelism."""
    parallelism = job["spec"]["parallelism"]
    gang = {"gang": {"minCount": members or parallelism}}
    return {
        "apiVersion": WORKLOADS.api_version,
        "kind": WORKLOADS.kind,
        "metadata": {
            "name": workload_name(job, attempt),
            "namespace": namespace_of(job),
            "annotations": {JOB_PARALLELISM: str(parallelism)},
            "ownerReferences": [owner_reference(job, JOBS)],
        },
        "spec": {
            "controllerRef": {"apiGroup": JOBS.group, "kind": JOBS.kind, "name": name_of(job)},
            "podGroupTemplates": [{"name": template_name(name_of(job)), "schedulingPolicy": gang}],
        },
    }


def new_pod_group(job: Mapping[str, Any], workload: Mapping[str, Any], attempt: int = 0) -> Obj:
    """The PodGroup for the only template of a Job's Workload: the template's policy, copied."""
    template = workload["spec"]["podGroupTemplates"][0]
    spec = {key: value for key, value in template.items() if key != "name" and value is not None}
    annotations = {COUNT_SUCCEEDED: "true"}  # an index that is done is not missing
    if made_for := annotations_of(workload).get(JOB_PARALLELISM):
        annotations[JOB_PARALLELISM] = made_for
    reference = {"workloadName": name_of(workload), "podGroupTemplateName": template["name"]}
    return {
        "apiVersion": POD_GROUPS.api_version,
        "kind": POD_GROUPS.kind,
        "metadata": {
            "name": pod_group_name(name_of(workload), template["name"], attempt),
            "namespace": namespace_of(job),
            "annotations": annotations,
            # The Workload is an owner, but not one whose deletion waits for the group.
            "ownerReferences": [owner_reference(job, JOBS), owner_reference(workload, WORKLOADS, controller=False)],
        },
        "spec": {"podGroupTemplateRef": {"workload": reference}, **spec},
    }
