"""The pods that a new workload brings, as its controller would make them: Job, ReplicaSet, Deployment, StatefulSet.

A workload is new if it has never been stored (a manifest without UID) and nothing there belongs to it.

A Job whose pods must start together brings its Workload and PodGroup too. Pods of a Deployment are its own here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from haru.answers.files import as_stored, has_identity
from haru.kube.meta import controller_of, name_of

Obj = dict[str, Any]


def made_for_new(objects: Sequence[Obj], gates: Mapping[str, bool]) -> Iterator[Obj]:
    """What the controllers make for all new workloads among these objects."""
    owners = set()
    for obj in objects:
        owner = controller_of(obj)
        if owner is not None:
            owners.add((owner.get("kind"), obj["metadata"].get("namespace"), owner.get("name")))
    for obj in objects:
        if not has_identity(obj) and (obj["kind"], obj["metadata"].get("namespace"), name_of(obj)) not in owners:
            yield from made_by(obj, gates)


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
