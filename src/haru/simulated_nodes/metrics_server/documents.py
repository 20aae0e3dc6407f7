"""The objects and the discovery of `metrics.k8s.io/v1beta1`. Pure.

Source: the types of k8s.io/metrics; metrics-server, as behaviour.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from haru.drivers.simulated.objects import PROFILE_LABEL
from haru.kube.meta import Obj, labels_of, name_of, namespace_of
from haru.kube.names import format_time
from haru.kube.simulated_containers.usage import pod_usage

GROUP, VERSION = "metrics.k8s.io", "v1beta1"
API_SERVICE: Final = f"{VERSION}.{GROUP}"
ROOT: Final = f"/apis/{GROUP}/{VERSION}"
_WINDOW: Final = "15s"
_GROUP_VERSION: Final = {"groupVersion": f"{GROUP}/{VERSION}", "version": VERSION}
_API_GROUP: Final[Obj] = {"name": GROUP, "versions": [_GROUP_VERSION], "preferredVersion": _GROUP_VERSION}
_VERBS: Final = ["get", "list"]
DISCOVERY: Final[Mapping[str, Obj]] = {
    "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_API_GROUP]},
    f"/apis/{GROUP}": {"kind": "APIGroup", "apiVersion": "v1", **_API_GROUP},
    ROOT: {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": f"{GROUP}/{VERSION}",
        "resources": [
            {"name": "nodes", "singularName": "", "namespaced": False, "kind": "NodeMetrics", "verbs": _VERBS},
            {"name": "pods", "singularName": "", "namespaced": True, "kind": "PodMetrics", "verbs": _VERBS},
        ],
    },
    "/openapi/v2": {"swagger": "2.0", "info": {"title": GROUP, "version": VERSION}, "paths": {}},
    "/openapi/v3": {"paths": {}},
}


def is_simulated(node: Obj) -> bool:
    """Whether a Node has no kubelet that measures anything."""
    return PROFILE_LABEL in labels_of(node)


def pod_metrics(pod: Obj, now: datetime) -> Obj:
    """PodMetrics of a pod that runs."""
    containers = [
        {"name": one.name, "usage": _usage(one.used.nano_cores, one.used.memory)} for one in pod_usage(pod, now)
    ]
    return {**_head("PodMetrics", pod, now), "containers": containers}


def node_metrics(node: Obj, pods: Iterable[Obj], now: datetime) -> Obj:
    """NodeMetrics: the sum of what the pods of the node use."""
    used = [one.used for pod in pods for one in pod_usage(pod, now)]
    usage = _usage(sum(one.nano_cores for one in used), sum(one.memory for one in used))
    return {**_head("NodeMetrics", node, now), "usage": usage}


def listed(kind: str, items: Sequence[Obj]) -> Obj:
    """A list of metrics."""
    return {"kind": f"{kind}List", "apiVersion": f"{GROUP}/{VERSION}", "metadata": {}, "items": list(items)}


def _head(kind: str, obj: Obj, now: datetime) -> Obj:
    metadata: dict[str, Any] = {"name": name_of(obj), "creationTimestamp": format_time(now)}
    if namespace := namespace_of(obj):
        metadata["namespace"] = namespace
    if labels := labels_of(obj):
        metadata["labels"] = labels
    times = {"timestamp": format_time(now), "window": _WINDOW}
    return {"kind": kind, "apiVersion": f"{GROUP}/{VERSION}", "metadata": metadata, **times}


def _usage(nano_cores: int, memory: int) -> Obj:
    return {"cpu": f"{nano_cores}n" if nano_cores else "0", "memory": f"{memory // 1024}Ki" if memory else "0"}
