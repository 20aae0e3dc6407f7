"""The pods that a new workload brings, as its controller would make them: Job, ReplicaSet, Deployment, StatefulSet.

A Job whose pods must start together brings its Workload and PodGroup too. Pods of a Deployment are its own here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from haru.answers.files import as_stored

Obj = dict[str, Any]


def made_by(workload: Obj, gates: Mapping[str, bool]) -> Iterator[Obj]:
    """The objects that the controller of a new workload makes at once; none for any other object."""
    if workload["kind"] == "Job":
        bodies = _by_job(workload, gates)
    elif workload["kind"] in ("ReplicaSet", "Deployment", "StatefulSet"):
        bodies = _replicas(workload)
    else:
        return
    number = 0
    for body in bodies:
        metadata = dict(body["metadata"])
        base = metadata.pop("generateName", None)
        if base is not None:
            metadata["name"], number = f"{base}{number}", number + 1
        yield as_stored({**body, "metadata": metadata}, workload["metadata"]["namespace"])


def _by_job(job: Obj, gates: Mapping[str, bool]) -> Iterator[Obj]:
    from haru.controllers.job_pods import job_pod
    from haru.controllers.job_workload import new_pod_group, new_workload
    from haru.kube.jobs import is_gang_job

    spec = job["spec"]
    if spec.get("suspend"):
        return
    group = None
    if gates["WorkloadWithJob"] and is_gang_job(spec):
        workload = new_workload(job)
        made = new_pod_group(job, workload)
        yield workload
        yield made
        group = made["metadata"]["name"]
    parallelism = int(spec.get("parallelism", 1))
    completions = spec.get("completions")
    for number in range(parallelism if completions is None else min(parallelism, int(completions))):
        yield job_pod(job, number if spec.get("completionMode") == "Indexed" else None, group)


def _replicas(owner: Obj) -> Iterator[Obj]:
    from haru.controllers.replica_set import pod_from_template
    from haru.kube.kinds import known_kind

    kind = known_kind(owner["apiVersion"], owner["kind"])
    count = owner["spec"].get("replicas")
    for _ in range(1 if count is None else int(count)):
        yield pod_from_template(owner, kind, owner["spec"]["template"])
