"""What the kubelet of a simulated node would answer: its pods, and what they use by their annotations.

Source: /pods, /healthz, the Summary API and /metrics/resource of kubelets 1.36, as behaviour.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

import orjson

from haru.apiserver.object_store import ObjectStore
from haru.apiserver.request.http import Request, Response, text_response
from haru.kube.errors import StatusError, method_not_allowed_error
from haru.kube.meta import Obj, name_of, namespace_of, uid_of
from haru.kube.names import format_time
from haru.kube.quantity import parse_quantity
from haru.kube.simulated_containers.usage import ContainerUsage, Used, pod_usage

_METRICS: Final = "text/plain; version=0.0.4; charset=utf-8"
_NANO: Final = 1e9
PodUse = tuple[Obj, list[ContainerUsage]]


async def simulated_kubelet(objects: ObjectStore, request: Request, node_name: str, path: str) -> Response:
    """The answer for a path at the kubelet of a node that has none. 503 for what nothing simulated can tell."""
    answers = {"/pods", "/pods/", "/healthz", "/stats/summary", "/metrics/resource"}
    if path not in answers:
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
    if path == "/metrics/resource":
        return Response(200, resource_exposition(used, now).encode(), _METRICS)
    return Response(200, orjson.dumps(summary(node_name, node, used, now)), "application/json")


def summary(name: str, node: Obj, pods: Sequence[PodUse], now: datetime) -> Obj:
    """The Summary API's object."""
    all_used = _sum([one.used for _, usage in pods for one in usage])
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
        **_figures(_sum([one.used for one in usage]), now),
    }


def _figures(used: Used, now: datetime) -> Obj:
    time = format_time(now)
    memory = {"usageBytes": used.memory, "workingSetBytes": used.memory, "rssBytes": used.memory}
    return {
        "cpu": {"time": time, "usageNanoCores": used.nano_cores, "usageCoreNanoSeconds": used.nano_seconds},
        "memory": {"time": time, **memory},
    }


def _sum(every: Sequence[Used]) -> Used:
    return Used(
        sum(one.nano_cores for one in every), sum(one.memory for one in every), sum(one.nano_seconds for one in every)
    )


def resource_exposition(pods: Sequence[PodUse], now: datetime) -> str:
    """The exposition of /metrics/resource."""
    stamp = round(now.timestamp() * 1000)
    containers = [
        (f'container="{one.name}",namespace="{namespace_of(pod)}",pod="{name_of(pod)}"', one)
        for pod, usage in pods
        for one in usage
    ]
    sums = [
        (f'namespace="{namespace_of(pod)}",pod="{name_of(pod)}"', _sum([one.used for one in usage]))
        for pod, usage in pods
    ]
    node = _sum([used for _, used in sums])
    families: list[tuple[str, str, list[tuple[str, float]]]] = [
        ("container_cpu_usage_seconds_total", "counter", [(k, one.used.nano_seconds / _NANO) for k, one in containers]),
        ("container_memory_working_set_bytes", "gauge", [(k, one.used.memory) for k, one in containers]),
        ("container_start_time_seconds", "gauge", [(k, one.started.timestamp()) for k, one in containers]),
        ("node_cpu_usage_seconds_total", "counter", [("", node.nano_seconds / _NANO)]),
        ("node_memory_working_set_bytes", "gauge", [("", node.memory)]),
        ("pod_cpu_usage_seconds_total", "counter", [(k, used.nano_seconds / _NANO) for k, used in sums]),
        ("pod_memory_working_set_bytes", "gauge", [(k, used.memory) for k, used in sums]),
        ("resource_scrape_error", "gauge", [("", 0.0)]),
    ]
    lines: list[str] = []
    for name, kind, samples in families:
        lines += [f"# HELP {name} [STABLE] Simulated by annotations", f"# TYPE {name} {kind}"]
        for labels, value in samples:
            lines.append(f"{name}{'{' + labels + '}' if labels else ''} {float(value)!r} {stamp}")
    return "\n".join([*lines, ""])
