"""What the kubelet of a simulated node would answer: its pods, and what they use by their annotations.

Source: /pods, /healthz, the Summary API and the metrics of kubelets 1.36, as behaviour.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

import orjson

from haru.apiserver.object_store import ObjectStore
from haru.apiserver.proxy.simulated import exposition
from haru.apiserver.request.http import Request, Response, text_response
from haru.kube.errors import StatusError, method_not_allowed_error
from haru.kube.meta import Obj, name_of, namespace_of, uid_of
from haru.kube.names import format_time
from haru.kube.quantity import parse_quantity
from haru.kube.simulated_containers.usage import ContainerUsage, Used, pod_usage, sum_of

_METRICS: Final = "text/plain; version=0.0.4; charset=utf-8"
_NANO: Final = 1e9
_ANSWERS: Final = frozenset(
    {"/pods", "/pods/", "/healthz", "/stats/summary", "/metrics", "/metrics/resource", "/metrics/cadvisor"}
)


async def simulated_kubelet(objects: ObjectStore, request: Request, node_name: str, path: str) -> Response:
    """The answer for a path at the kubelet of a node that has none. 503 for what nothing simulated can tell."""
    if path not in _ANSWERS:
        raise StatusError(503, "ServiceUnavailable", f"there is no kubelet on node {node_name}: it is simulated")
    if request.method not in ("GET", "HEAD"):
        raise method_not_allowed_error("the server does not allow this method on the requested resource")
    if path == "/healthz":
        return text_response("ok")
    node = await objects.peek("", "nodes", "", node_name) or {}
    pods = await objects.peek_all("", "pods", indexed=node_name)
    if path.startswith("/pods"):
        found = {"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": pods}
        return Response(200, orjson.dumps(found), "application/json")
    now = objects.clock()
    used = [(pod, usage) for pod in pods if (usage := pod_usage(pod, now))]
    match path:
        case "/metrics":
            return Response(200, exposition.of_kubelet(node_name, used).encode(), _METRICS)
        case "/metrics/resource":
            return Response(200, exposition.of_resources(used, now).encode(), _METRICS)
        case "/metrics/cadvisor":
            return Response(200, exposition.of_cadvisor(node, used, now).encode(), _METRICS)
    return Response(200, orjson.dumps(summary(node_name, node, used, now)), "application/json")


def summary(name: str, node: Obj, pods: Sequence[exposition.PodUse], now: datetime) -> Obj:
    """The Summary API's object."""
    all_used = sum_of([one for _, usage in pods for one in usage])
    capacity = parse_quantity(((node.get("status") or {}).get("capacity") or {}).get("memory") or "0").nano / _NANO
    shown: Obj = {"nodeName": name}
    if created := (node.get("metadata") or {}).get("creationTimestamp"):
        shown["startTime"] = created
    shown |= _figures(all_used, now)
    shown["memory"]["availableBytes"] = max(0, round(capacity) - all_used.memory)
    return {"node": shown, "pods": [_pod(pod, usage, now) for pod, usage in pods]}


def _pod(pod: Obj, usage: Sequence[ContainerUsage], now: datetime) -> Obj:
    containers = [{"name": one.name, "startTime": format_time(one.started), **_figures(one.used, now)} for one in usage]
    started = (pod.get("status") or {}).get("startTime")
    return {
        "podRef": {"name": name_of(pod), "namespace": namespace_of(pod), "uid": uid_of(pod)},
        **({"startTime": started} if started else {}),
        "containers": containers,
        **_figures(sum_of(usage), now),
    }


def _figures(used: Used, now: datetime) -> Obj:
    time = format_time(now)
    memory = {"usageBytes": used.memory, "workingSetBytes": used.memory, "rssBytes": used.memory}
    return {
        "cpu": {"time": time, "usageNanoCores": used.nano_cores, "usageCoreNanoSeconds": used.nano_seconds},
        "memory": {"time": time, **memory},
    }
