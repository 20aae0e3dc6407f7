"""The pods that a workload brings, as its controller would make them: Job, ReplicaSet, Deployment, StatefulSet.

A workload is new if it has never been stored (a manifest without UID) and nothing there belongs to it. Of a workload
that is stored it is told which pods its controller makes while it has none.

A Job whose pods must start together brings its Workload and PodGroup too. Pods of a Deployment are its own here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from haru.kube.job_groups import is_outgrown, never_started, new_pod_group, new_workload
from haru.kube.jobs import is_gang_job
from haru.kube.kinds import known_kind
from haru.kube.meta import Obj, controller_of, is_being_deleted, name_of, uid_of
from haru.kube.pod_templates import pod_for_job, pod_from_template
from haru.kube.stored import as_stored, has_identity

FAILED_CREATE: Final = "FailedCreate"
"""The reason of the event by which a controller tells that it could not make a pod."""
BY_QUOTA: Final = "exceeded quota: "
"""How its message tells that a quota has no room for the pod."""


def made_for_new(objects: Sequence[Obj], gates: Mapping[str, bool]) -> Iterator[Obj]:
    """List the objects that controllers create for the new workloads among these objects."""
    owners = set()
    for obj in objects:
        owner = controller_of(obj)
        if owner is not None:
            owners.add((owner.get("kind"), obj["metadata"].get("namespace"), owner.get("name")))
    for obj in objects:
        if not has_identity(obj) and (obj["kind"], obj["metadata"].get("namespace"), name_of(obj)) not in owners:
            yield from made_by(obj, gates)


def made_by(workload: Obj, gates: Mapping[str, bool], groups: Iterable[Obj] = ()) -> Iterator[Obj]:
    """The objects that the controller of a workload without pods makes at once; none for any other object.

    `groups` are the PodGroups that there are: pods join that of their Job.
    """
    if workload["kind"] == "Job":
        bodies = _by_job(workload, gates, groups)
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


def _by_job(job: Obj, gates: Mapping[str, bool], groups: Iterable[Obj]) -> Iterator[Obj]:
    spec = job["spec"]
    if spec.get("suspend"):
        return
    parallelism = int(spec.get("parallelism", 1))
    completions = spec.get("completions")
    left = None if completions is None else int(completions) - int((job.get("status") or {}).get("succeeded") or 0)
    group = None
    if gates["WorkloadWithJob"] and is_gang_job(job):
        own = [g for g in groups if (controller_of(g) or {}).get("uid") == uid_of(job)]
        group = _own_group(job, own)
        if group is None and (never_started(job, has_pods=False) or any(is_outgrown(g, job) for g in own)):
            workload = new_workload(job, members=left or 0)
            made = new_pod_group(job, workload)
            yield workload
            yield made
            group = made["metadata"]["name"]
    for number in range(parallelism if left is None else min(parallelism, left)):
        yield pod_for_job(job, number if spec.get("completionMode") == "Indexed" else None, group)


def _own_group(job: Obj, groups: Iterable[Obj]) -> str | None:
    """The PodGroup that was made for a Job of this size."""
    return next((name_of(g) for g in groups if not (is_being_deleted(g) or is_outgrown(g, job))), None)


def _replicas(owner: Obj) -> Iterator[Obj]:
    kind = known_kind(owner["apiVersion"], owner["kind"])
    count = owner["spec"].get("replicas")
    for _ in range(1 if count is None else int(count)):
        yield pod_from_template(owner, kind, owner["spec"]["template"])
