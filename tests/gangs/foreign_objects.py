"""Objects of other projects as their controllers write them, cut down to what says who starts together."""

from __future__ import annotations

from typing import Any

Obj = dict[str, Any]
NS = "default"


def pod(name: str, labels: Obj | None = None, annotations: Obj | None = None, phase: str = "", **spec: Any) -> Obj:
    metadata = {"name": name, "namespace": NS, "uid": f"uid-{name}", "labels": labels or {}}
    if annotations:
        metadata["annotations"] = annotations
    found: Obj = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [], **spec}}
    return {**found, "status": {"phase": phase}} if phase else found


def owned(obj: Obj, kind: str, name: str) -> Obj:
    reference = {"apiVersion": "batch/v1", "kind": kind, "name": name, "uid": f"uid-{name}", "controller": True}
    return {**obj, "metadata": {**obj["metadata"], "ownerReferences": [reference]}}


def custom(api_version: str, kind: str, name: str, spec: Obj, **metadata: Any) -> Obj:
    meta = {"name": name, "namespace": NS, "uid": f"uid-{name}", **metadata}
    return {"apiVersion": api_version, "kind": kind, "metadata": meta, "spec": spec}


def coscheduling(name: str, minimum: int, timeout: int | None = None) -> Obj:
    spec: Obj = {"minMember": minimum}
    if timeout is not None:
        spec["scheduleTimeoutSeconds"] = timeout
    return custom("scheduling.x-k8s.io/v1alpha1", "PodGroup", name, spec)


def grouped(name: str, group: str, **rest: Any) -> Obj:
    return pod(name, {"scheduling.x-k8s.io/pod-group": group}, **rest)


def replicated_job(name: str, replicas: int, parallelism: int, **rest: Any) -> Obj:
    template = {"spec": {"parallelism": parallelism, "completions": parallelism, "template": {"spec": {}}}}
    return {"name": name, "replicas": replicas, "template": template, **rest}


def job_set(name: str, *jobs: Obj, **spec: Any) -> Obj:
    return custom("jobset.x-k8s.io/v1alpha2", "JobSet", name, {"replicatedJobs": list(jobs), **spec})


def job_set_pod(name: str, owner: str, job: str, attempt: int | None = None, **rest: Any) -> Obj:
    labels = {"jobset.sigs.k8s.io/jobset-name": owner, "jobset.sigs.k8s.io/replicatedjob-name": job}
    labels |= {"jobset.sigs.k8s.io/restart-attempt": str(attempt)} if attempt is not None else {}
    return pod(name, labels, **rest)


def leader_worker_set(name: str, size: int, **spec: Any) -> Obj:
    spec = {"replicas": 2, "leaderWorkerTemplate": {"size": size, "workerTemplate": {"spec": {}}}, **spec}
    return custom("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", name, spec)


def lws_pod(name: str, owner: str, group: int, worker: int, size: int, revision: str = "", **annotations: str) -> Obj:
    prefix = "leaderworkerset.sigs.k8s.io/"
    labels = {
        f"{prefix}name": owner,
        f"{prefix}group-index": str(group),
        f"{prefix}worker-index": str(worker),
        f"{prefix}group-key": f"hash-{group}",
        **({f"{prefix}template-revision-hash": revision} if revision else {}),
    }
    return pod(name, labels, {f"{prefix}size": str(size), **{prefix + k: v for k, v in annotations.items()}})


def ray_cluster(name: str, *groups: Obj, **spec: Any) -> Obj:
    template = {"template": {"spec": {}}}
    workers = [{"groupName": f"g{number}", **template, **group} for number, group in enumerate(groups)]
    return custom("ray.io/v1", "RayCluster", name, {"headGroupSpec": template, "workerGroupSpecs": workers, **spec})


def ray_pod(name: str, cluster: str, node_type: str) -> Obj:
    return pod(name, {"ray.io/cluster": cluster, "ray.io/node-type": node_type})


def training_job(kind: str, name: str, field: str, roles: dict[str, int], policy: Obj | None = None) -> Obj:
    specs = {role: {"replicas": count, "template": {"spec": {}}} for role, count in roles.items()}
    spec: Obj = {field: specs}
    if policy is not None:
        spec["runPolicy"] = {"schedulingPolicy": policy}
    return custom("kubeflow.org/v1", kind, name, spec)


def training_pod(name: str, job: str, operator: str, role: str = "worker") -> Obj:
    prefix = "training.kubeflow.org/"
    return pod(name, {f"{prefix}job-name": job, f"{prefix}operator-name": operator, f"{prefix}job-role": role})


def mpi_job(name: str, workers: int, **spec: Any) -> Obj:
    roles = {"Launcher": {"replicas": 1}, "Worker": {"replicas": workers}}
    return custom("kubeflow.org/v2beta1", "MPIJob", name, {"mpiReplicaSpecs": roles, **spec})


def kueue_pod(name: str, group: str, total: int, **annotations: str) -> Obj:
    prefix = "kueue.x-k8s.io/"
    given = {f"{prefix}pod-group-total-count": str(total), **{prefix + k: v for k, v in annotations.items()}}
    return pod(name, {f"{prefix}pod-group-name": group}, given)


def workload(name: str, conditions: list[Obj] | None = None, owner: str = "", **spec: Any) -> Obj:
    metadata: Obj = {}
    if owner:
        metadata["ownerReferences"] = [{"apiVersion": "batch/v1", "kind": "Job", "name": owner, "uid": f"uid-{owner}"}]
    found = custom("kueue.x-k8s.io/v1beta2", "Workload", name, {"queueName": "team-a", **spec}, **metadata)
    return {**found, "status": {"conditions": conditions or []}}
