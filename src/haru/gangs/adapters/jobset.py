"""JobSets: all pods that a JobSet makes at once are one gang; TrainJobs of Kubeflow Trainer v2 are JobSets, too.

Where one ReplicatedJob starts after another (`dependsOn`, `startupPolicyOrder: InOrder`), each is a gang of its own:
the pods of the later one do not exist yet. With exclusive placement the controller makes the other pods of a Job once
its first one has a place: such a JobSet is no gang. After a failure the Jobs are made again one by one, each as soon as
its predecessor is gone: what is left of the last attempt is no member of the gang of the new one.
Source: kubernetes-sigs/jobset v0.12, api/jobset/v1alpha2 and pkg/controllers, as behaviour.
"""

from __future__ import annotations

from haru.gangs.gang import NO_GANG, SEPARATOR, ForeignKind, Gang, Source, annotation, job_pods, label, number, part
from haru.kube.meta import Obj

JOB_SET = ForeignKind("jobset.x-k8s.io", ("v1alpha2",), "JobSet", "jobsets")
NAME_LABEL = "jobset.sigs.k8s.io/jobset-name"
REPLICATED_JOB_LABEL = "jobset.sigs.k8s.io/replicatedjob-name"
RESTART_LABEL = "jobset.sigs.k8s.io/restart-attempt"
EXCLUSIVE = "alpha.jobset.sigs.k8s.io/exclusive-topology"
NODE_SELECTOR_STRATEGY = "alpha.jobset.sigs.k8s.io/node-selector"


class JobSet:
    """A JobSet, or each of its ReplicatedJobs where they start in order."""

    name = "jobset"
    kinds = (JOB_SET,)

    def source_of(self, pod: Obj) -> Source | None:
        """Return the JobSet of the label, which the controller sets on all its pods."""
        name = label(pod, NAME_LABEL)
        return Source(JOB_SET, name) if name else None

    def gang_of(self, pod: Obj, obj: Obj | None) -> Gang | None:
        """Return the gang of a JobSet, or of the ReplicatedJob that the pod belongs to."""
        if annotation(pod, EXCLUSIVE) and not annotation(pod, NODE_SELECTOR_STRATEGY):
            return None
        jobs = part(obj, "spec", "replicatedJobs") or ()
        if any(_is_none(job) for job in jobs if job.get("name") == label(pod, REPLICATED_JOB_LABEL)):
            return None
        name, own = JOB_SET.prefix + label(pod, NAME_LABEL), label(pod, REPLICATED_JOB_LABEL)
        if starts_in_order(obj):
            name, jobs = f"{name}{SEPARATOR}{own}", [job for job in jobs if job.get("name") == own]
        if number(label(pod, RESTART_LABEL)):
            name = f"{name}{SEPARATOR}{label(pod, RESTART_LABEL)}"
        count = sum(pods_of(job) for job in jobs if not _is_none(job))
        return Gang(name, count) if count > 1 else None


def starts_in_order(obj: Obj | None) -> bool:
    """Return whether some pods of a JobSet are made only after others have started or ended."""
    if part(obj, "spec", "startupPolicy", "startupPolicyOrder") == "InOrder":
        return True
    return any(job.get("dependsOn") for job in part(obj, "spec", "replicatedJobs") or ())


def _is_none(job: Obj) -> bool:
    """Return whether the template of a ReplicatedJob says that its pods are no gang."""
    return annotation({"metadata": part(job, "template", "metadata") or {}}, NO_GANG) == "false"


def pods_of(job: Obj) -> int:
    """Return how many pods a ReplicatedJob has at once."""
    return number(job.get("replicas"), 1) * job_pods(part(job, "template", "spec"))
