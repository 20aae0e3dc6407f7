"""Groups of plain pods that Kueue admits together: `kueue.x-k8s.io/pod-group-name` and its total count.

The pods of a StatefulSet or of anything else that serves (`pod-group-serving`) come one by one and are no gang. What
Kueue holds, and why, is told by `haru.gangs.kueue`.
Source: kubernetes-sigs/kueue v0.19, pkg/controller/jobs/pod/constants, as behaviour.
"""

from __future__ import annotations

from haru.gangs.gang import SEPARATOR, ForeignKind, Gang, Source, annotation, label, number
from haru.kube.meta import Obj

KUEUE_WORKLOAD = ForeignKind("kueue.x-k8s.io", ("v1beta2", "v1beta1"), "Workload", "workloads")
KUEUE_LOCAL_QUEUE = ForeignKind("kueue.x-k8s.io", ("v1beta2", "v1beta1"), "LocalQueue", "localqueues")
KUEUE_KINDS = (KUEUE_WORKLOAD, KUEUE_LOCAL_QUEUE)
"""What explanations read of Kueue; no gang is made of it."""
GROUP_LABEL = "kueue.x-k8s.io/pod-group-name"
TOTAL_COUNT = "kueue.x-k8s.io/pod-group-total-count"
SERVING = "kueue.x-k8s.io/pod-group-serving"
FAST_ADMISSION = "kueue.x-k8s.io/pod-group-fast-admission"


class Kueue:
    """A pod group of Kueue; its size stands on each pod."""

    name = "kueue"
    kinds = KUEUE_KINDS

    def source_of(self, pod: Obj) -> Source | None:
        """Return that the pod itself says all, if it belongs to a group."""
        comes_later = "true" in (annotation(pod, SERVING), annotation(pod, FAST_ADMISSION))
        name = "" if comes_later else label(pod, GROUP_LABEL)
        return Source(None, name) if name and number(annotation(pod, TOTAL_COUNT)) > 1 else None

    def gang_of(self, pod: Obj, obj: Obj | None) -> Gang | None:
        """Return the gang of a pod group."""
        count = number(annotation(pod, TOTAL_COUNT))
        name = f"kueue{SEPARATOR}{label(pod, GROUP_LABEL)}"
        return Gang(name, count, whole=False) if count > 1 else None
