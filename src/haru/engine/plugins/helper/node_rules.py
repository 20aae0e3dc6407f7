"""Match a pod against one node: node affinity and taints, for the plugins of these names and for PodTopologySpread.

Source: component-helpers of Kubernetes (scheduling/corev1), as behaviour.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from haru.engine.state.pod_info import PodInfo
from haru.kube.meta import Obj, tolerates
from haru.kube.selectors import node_selector_matches

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_HARD_EFFECTS = ("NoSchedule", "NoExecute")


def matches_node_affinity(pod: PodInfo, name: str, labels: Mapping[str, str]) -> bool:
    """Return whether a node satisfies the pod's nodeSelector and its required node affinity."""
    selector = pod.spec.get("nodeSelector") or {}
    if any(labels.get(key) != value for key, value in selector.items()):
        return False
    required = pod.affinity("nodeAffinity").get(REQUIRED)
    return required is None or node_selector_matches(required, name, labels)


def untolerated_taint(pod: PodInfo, taints: Sequence[Obj]) -> Obj | None:
    """Return the first NoSchedule or NoExecute taint that the pod does not tolerate."""
    for taint in taints:
        if taint.get("effect") in _HARD_EFFECTS and not tolerates(pod.tolerations, taint):
            return taint
    return None
