"""Pods as the controllers of workloads create them from the workloads' templates (pure)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from haru.kube.cloning import clone
from haru.kube.kinds import Kind, known_kind
from haru.kube.meta import Obj, name_of, namespace_of, owner_reference, uid_of

JOB_INDEX = "batch.kubernetes.io/job-completion-index"
JOB_TRACKING = "batch.kubernetes.io/job-tracking"
_JOBS = known_kind("batch/v1", "Job")
_MAX_HOSTNAME = 63
_SUFFIX = 5


def pod_from_template(owner: Obj, kind: Kind, template: Mapping[str, Any]) -> Obj:
    """A pod to create for a workload object, named after it."""
    given = template.get("metadata") or {}
    metadata: Obj = {
        "generateName": f"{name_of(owner)}-",
        "namespace": namespace_of(owner),
        "ownerReferences": [owner_reference(owner, kind)],
    }
    for part in ("labels", "annotations", "finalizers"):
        if given.get(part):
            metadata[part] = clone(given[part])
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": clone(template.get("spec") or {})}


def pod_for_job(job: Obj, index: int | None, group: str | None) -> Obj:
    """A pod to create for a Job, for one completion index if it is Indexed, as a member of a PodGroup if it has one."""
    pod = pod_from_template(job, _JOBS, job["spec"]["template"])
    metadata, spec = pod["metadata"], pod["spec"]
    labels = metadata.setdefault("labels", {})
    for prefix in () if job["spec"].get("manualSelector") else ("", "batch.kubernetes.io/"):
        labels.setdefault(f"{prefix}job-name", name_of(job))
        labels.setdefault(f"{prefix}controller-uid", uid_of(job))
    metadata["finalizers"] = [*metadata.get("finalizers", ()), JOB_TRACKING]
    if group is not None:
        spec["schedulingGroup"] = {"podGroupName": group}
    if index is None:
        return pod
    metadata.setdefault("annotations", {})[JOB_INDEX] = labels[JOB_INDEX] = str(index)
    room = _MAX_HOSTNAME - _SUFFIX - len(f"-{index}-")
    metadata["generateName"] = f"{name_of(job)[:room].rstrip('-.')}-{index}-"
    if not spec.get("hostname"):
        spec["hostname"] = f"{name_of(job)}-{index}"
    source = {"fieldRef": {"fieldPath": f"metadata.labels['{JOB_INDEX}']"}}
    for container in [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]:
        env = container.setdefault("env", [])
        if not any(variable["name"] == "JOB_COMPLETION_INDEX" for variable in env):
            env.append({"name": "JOB_COMPLETION_INDEX", "valueFrom": source})
    return pod
