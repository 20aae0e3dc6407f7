"""What a Job's spec means, for all who need to know: the API server's rules and the controller."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from haru.kube.meta import annotations_of, controller_of

COUNT_SUCCEEDED = "haru.dev/count-succeeded"
"""Annotation of a PodGroup: `"true"` if members that have succeeded count as present."""

JOB_PARALLELISM = "haru.dev/job-parallelism"
"""Annotation of the Workload and PodGroup that the Job controller made: the parallelism that the Job had then. When a
suspended Job comes back with another one, it makes others."""


GANG = "haru.dev/gang"
"""Annotation of a Job: `"false"` if it is to have no group of its own."""
EXCLUSIVE_TOPOLOGY = "alpha.jobset.sigs.k8s.io/exclusive-topology"
"""JobSet's annotation of Jobs and their pods: one Job per domain of the topology. JobSet's webhook refuses all pods but
the first until that one has its node, which tells the domain."""
NODE_SELECTOR_STRATEGY = "alpha.jobset.sigs.k8s.io/node-selector"
"""Beside the former: nodes carry the names of Jobs already, and no pod waits for another."""


def is_gang_job(job: Mapping[str, Any]) -> bool:
    """The Job gets a Workload and a PodGroup: it is of the shape for them, and nothing speaks against them."""
    return has_gang_shape(job.get("spec") or {}) and not gang_refusal(job)


def gang_refusal(job: Mapping[str, Any]) -> str:
    """Why a Job is to have no group of its own, whatever its shape; an empty text if nothing speaks against one."""
    own = annotations_of(job)
    if own.get(GANG) == "false":
        return f'its annotation {GANG} is "false"'
    annotations = {**annotations_of((job.get("spec") or {}).get("template") or {}), **own}
    if EXCLUSIVE_TOPOLOGY in annotations and NODE_SELECTOR_STRATEGY not in annotations:
        return f"JobSet places it exclusively ({EXCLUSIVE_TOPOLOGY}), and its other pods come once the first has a node"
    owner = controller_of(job) or {}
    if owner.get("kind") == "JobSet":
        return f"the pods of all Jobs of JobSet {owner.get('name')} are the gang"
    return ""


def has_gang_shape(spec: Mapping[str, Any]) -> bool:
    """All pods must run at the same time for the Job to complete, and its author did not group them (KEP-5547)."""
    parallelism, completions = spec.get("parallelism"), spec.get("completions")
    return bool(
        parallelism is not None
        and parallelism > 1
        and spec.get("completionMode") == "Indexed"
        and completions == parallelism
        and not has_own_group(spec)
    )


def has_own_group(spec: Mapping[str, Any]) -> bool:
    """The author says in the pod template which PodGroup the pods belong to."""
    return bool(((spec.get("template") or {}).get("spec") or {}).get("schedulingGroup"))
