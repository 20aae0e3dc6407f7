"""RayClusters, also those of RayJobs and RayServices: the head and its workers are one gang.

With autoscaling it is the head and each group's `minReplicas`; workers that come later join it. Preemption evicts
single members: Ray goes on without a worker.
Source: ray-project/kuberay v1.4, apis/ray/v1 and controllers/ray/utils (CalculateDesiredReplicas), as behaviour.
"""

from __future__ import annotations

from haru.gangs.gang import ForeignKind, Gang, Source, label, number, part
from haru.kube.meta import Obj

RAY_CLUSTER = ForeignKind("ray.io", ("v1", "v1alpha1"), "RayCluster", "rayclusters")
CLUSTER_LABEL = "ray.io/cluster"
NODE_TYPE_LABEL = "ray.io/node-type"
_NODE_TYPES = ("head", "worker")


class KubeRay:
    """The pods of a RayCluster; not the pod that submits a RayJob, nor the one that clears Redis."""

    name = "kuberay"
    kinds = (RAY_CLUSTER,)

    def source_of(self, pod: Obj) -> Source | None:
        """Return the RayCluster of a head or a worker."""
        name = label(pod, CLUSTER_LABEL)
        return Source(RAY_CLUSTER, name) if name and label(pod, NODE_TYPE_LABEL) in _NODE_TYPES else None

    def gang_of(self, pod: Obj, obj: Obj | None) -> Gang | None:
        """Return the gang of a RayCluster."""
        scales = part(obj, "spec", "enableInTreeAutoscaling") is True
        groups = part(obj, "spec", "workerGroupSpecs") or ()
        count = 1 + sum(_workers(group, scales) for group in groups)
        return Gang(RAY_CLUSTER.prefix + label(pod, CLUSTER_LABEL), count, whole=False) if count > 1 else None


def _workers(group: Obj, scales: bool) -> int:
    """Return how many pods a worker group starts with."""
    if group.get("suspend"):
        return 0
    least = number(group.get("minReplicas"))
    wanted = least if scales else max(least, number(group.get("replicas")))
    most = group.get("maxReplicas")
    return min(wanted, wanted if most is None else number(most)) * max(1, number(group.get("numOfHosts"), 1))
