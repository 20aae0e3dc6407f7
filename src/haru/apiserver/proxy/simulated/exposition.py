"""What simulated pods use in Prometheus' text form, under the names of the kubelet and of cAdvisor. Pure.

Source: /metrics, /metrics/resource and /metrics/cadvisor of kubelets 1.36, as behaviour. Use has its time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Final

from haru.kube.meta import Obj, name_of, namespace_of, uid_of
from haru.kube.quantity import parse_quantity
from haru.kube.simulated_containers.usage import ContainerUsage, Used, sum_of

_NANO: Final = 1e9
_STATUSES: Final = ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses")
_OF_GROUPS: Final[Sequence[tuple[str, str, str, Callable[[Used], float]]]] = (
    ("container_cpu_usage_seconds_total", "counter", ',cpu="total"', lambda used: used.nano_seconds / _NANO),
    ("container_memory_rss", "gauge", "", lambda used: used.memory),
    ("container_memory_usage_bytes", "gauge", "", lambda used: used.memory),
    ("container_memory_working_set_bytes", "gauge", "", lambda used: used.memory),
)

PodUse = tuple[Obj, Sequence[ContainerUsage]]
Family = tuple[str, str, Sequence[tuple[str, float]]]
"""A name, counter or gauge, and the samples: labels and value."""


def of_kubelet(node_name: str, pods: Sequence[PodUse]) -> str:
    """/metrics: which node this is, and how much runs on it."""
    families: list[Family] = [
        ("kubelet_node_name", "gauge", [(_labels(node=node_name), 1)]),
        ("kubelet_running_containers", "gauge", [('container_state="running"', sum(len(usage) for _, usage in pods))]),
        ("kubelet_running_pods", "gauge", [("", len(pods))]),
    ]
    return _text(families, None)


def of_resources(pods: Sequence[PodUse], now: datetime) -> str:
    """/metrics/resource."""
    containers = [
        (_labels(container=one.name, namespace=namespace_of(pod), pod=name_of(pod)), one)
        for pod, usage in pods
        for one in usage
    ]
    sums = [(_labels(namespace=namespace_of(pod), pod=name_of(pod)), sum_of(usage)) for pod, usage in pods]
    node = sum_of([one for _, usage in pods for one in usage])
    families: list[Family] = [
        ("container_cpu_usage_seconds_total", "counter", [(k, one.used.nano_seconds / _NANO) for k, one in containers]),
        ("container_memory_working_set_bytes", "gauge", [(k, one.used.memory) for k, one in containers]),
        ("container_start_time_seconds", "gauge", [(k, one.started.timestamp()) for k, one in containers]),
        ("node_cpu_usage_seconds_total", "counter", [("", node.nano_seconds / _NANO)]),
        ("node_memory_working_set_bytes", "gauge", [("", node.memory)]),
        ("pod_cpu_usage_seconds_total", "counter", [(k, used.nano_seconds / _NANO) for k, used in sums]),
        ("pod_memory_working_set_bytes", "gauge", [(k, used.memory) for k, used in sums]),
        ("resource_scrape_error", "gauge", [("", 0.0)]),
    ]
    return _text(families, now)


def of_cadvisor(node: Obj, pods: Sequence[PodUse], now: datetime) -> str:
    """/metrics/cadvisor: a group for the node, each pod and each container; only containers have an image."""
    containers = [(_of_container(pod, one), one) for pod, usage in pods for one in usage]
    groups = [
        (_of_group("/"), sum_of([one for _, usage in pods for one in usage])),
        *((_of_group(_path(pod), pod), sum_of(usage)) for pod, usage in pods),
        *((labels, one.used) for labels, one in containers),
    ]
    families: list[Family] = [
        (name, kind, [(labels + extra, value(used)) for labels, used in groups])
        for name, kind, extra, value in _OF_GROUPS
    ]
    started = [(labels, one.started.timestamp()) for labels, one in containers]
    capacity = (node.get("status") or {}).get("capacity") or {}
    machine: list[Family] = [
        (name, "gauge", [("", parse_quantity(capacity[resource]).nano / _NANO)])
        for name, resource in (("machine_cpu_cores", "cpu"), ("machine_memory_bytes", "memory"))
        if resource in capacity
    ]
    return _text([*families, ("container_start_time_seconds", "gauge", started)], now) + _text(machine, None)


def _of_container(pod: Obj, container: ContainerUsage) -> str:
    status = pod.get("status") or {}
    statuses = [one for member in _STATUSES for one in status.get(member) or () if one["name"] == container.name]
    own_id = statuses[0].get("containerID", "").rpartition("//")[2] if statuses else ""
    image = statuses[0].get("image", "") if statuses else ""
    return _of_group(f"{_path(pod)}/{own_id}", pod, container=container.name, image=image, name=own_id)


def _path(pod: Obj) -> str:
    return f"/kubepods/pod{uid_of(pod)}"


def _of_group(path: str, pod: Obj | None = None, *, container: str = "", image: str = "", name: str = "") -> str:
    namespace, pod_name = ("", "") if pod is None else (namespace_of(pod), name_of(pod))
    return _labels(container=container, id=path, image=image, name=name, namespace=namespace, pod=pod_name)


def _labels(**values: str) -> str:
    return ",".join(f'{label}="{_escaped(value)}"' for label, value in values.items())


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _text(families: Sequence[Family], now: datetime | None) -> str:
    end = "" if now is None else f" {round(now.timestamp() * 1000)}"
    lines: list[str] = []
    for name, kind, samples in families:
        lines += [f"# HELP {name} [STABLE] Simulated by annotations", f"# TYPE {name} {kind}"]
        for labels, value in samples:
            lines.append(f"{name}{'{' + labels + '}' if labels else ''} {float(value)!r}{end}")
    return "\n".join([*lines, ""])
