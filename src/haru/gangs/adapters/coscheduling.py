"""PodGroups of the coscheduling plugin: `scheduling.x-k8s.io/v1alpha1`, named by a label of the pod.

`spec.minMember` is the gang's size. Nobody waits with devices in hand here, so `scheduleTimeoutSeconds` only tells how
long the author meant the pods to wait; `spec.minResources` is not read: the members' own requests decide.
A pod whose PodGroup does not exist waits for it, as there.
Source: kubernetes-sigs/scheduler-plugins v0.35, apis/scheduling/v1alpha1 and pkg/coscheduling, as behaviour.
"""

from __future__ import annotations

from haru.gangs.gang import ForeignKind, Gang, Source, label, number, part
from haru.kube.meta import Obj

COSCHEDULING_POD_GROUP = ForeignKind("scheduling.x-k8s.io", ("v1alpha1",), "PodGroup", "podgroups")
LABEL = "scheduling.x-k8s.io/pod-group"


class Coscheduling:
    """Members of a preempted gang go one by one, as kube-scheduler evicts them there."""

    name = "coscheduling"
    kinds = (COSCHEDULING_POD_GROUP,)

    def source_of(self, pod: Obj) -> Source | None:
        """Return the PodGroup that the label names."""
        name = label(pod, LABEL)
        return Source(COSCHEDULING_POD_GROUP, name) if name else None

    def gang_of(self, pod: Obj, obj: Obj | None) -> Gang | None:
        """Return the gang of a PodGroup."""
        name = COSCHEDULING_POD_GROUP.prefix + label(pod, LABEL)
        timeout = number(part(obj, "spec", "scheduleTimeoutSeconds")) or None
        return Gang(name, max(1, number(part(obj, "spec", "minMember"), 1)), timeout, whole=False)
