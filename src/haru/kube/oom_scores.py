"""Which container the kernel ends first when a node is out of memory. Pure.

Source: the kubelet's OOM scores, as behaviour.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from haru.kube.node_admission import is_critical
from haru.kube.quantity import Quantity, parse_quantity
from haru.kube.resources import pod_requests
from haru.kube.strategy import qos_class

Obj = Mapping[str, Any]
_GUARANTEED_SCORE: Final = -997
_BEST_EFFORT_SCORE: Final = 1_000


def oom_score(pod: Obj, container: Obj, capacity: int) -> int:
    """`oom_score_adj`: higher requests are killed later, BestEffort first.

    A sidecar is not killed before what it serves.
    """
    spec = pod.get("spec") or {}
    if is_critical(pod):
        return _GUARANTEED_SCORE
    qos = qos_class(dict(spec))
    if qos != "Burstable":
        return _GUARANTEED_SCORE if qos == "Guaranteed" else _BEST_EFFORT_SCORE
    counted = _requested(container) + _share_of_the_rest(spec)
    if container.get("restartPolicy") == "Always":
        counted = max(counted, min(_requested(other) for other in spec["containers"]))
    score = 1000 - 1000 * counted // capacity if capacity else _BEST_EFFORT_SCORE
    return min(max(score, 1000 + _GUARANTEED_SCORE), _BEST_EFFORT_SCORE - 1)


def _share_of_the_rest(spec: Obj) -> int:
    """What a pod requests as a whole beyond its containers' requests, divided among them (KEP-2837)."""
    whole = _requested(spec)
    if not whole:
        return 0
    alone = pod_requests({"spec": {key: spec.get(key) for key in ("containers", "initContainers")}})
    count = len(spec.get("containers") or ()) + len(spec.get("initContainers") or ())
    return max(0, whole - alone.get("memory", Quantity(0)).value()) // max(1, count)


def _requested(container: Obj) -> int:
    return parse_quantity(((container.get("resources") or {}).get("requests") or {}).get("memory", "0")).value()
