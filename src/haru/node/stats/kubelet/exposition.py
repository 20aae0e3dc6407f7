"""A snapshot in Prometheus' text form, under cAdvisor's and the kubelet's names. Pure. Samples have their time.

Source: /metrics/cadvisor and /metrics/resource of 1.36; KEP-4205 for pressure, which is on the former alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from haru.exposition import escaped
from haru.node.stats import psi
from haru.node.stats.kubelet.snapshot import ContainerFigures, Interface, PodFigures, Reading, Snapshot

_CPU = "container_cpu_usage_seconds_total"
_OF_GROUPS: Sequence[tuple[str, str, str, Callable[[Reading], float | None]]] = (
    (_CPU, "counter", "Cumulative cpu time consumed in seconds.", lambda r: _seconds(r.cpu)),
    ("container_memory_failures_total", "counter", "Page faults.", lambda r: r.faults),
    ("container_memory_rss", "gauge", "Size of RSS in bytes.", lambda r: r.rss),
    ("container_memory_swap", "gauge", "Container swap usage in bytes.", lambda r: r.swap),
    ("container_memory_usage_bytes", "gauge", "Current memory usage in bytes.", lambda r: r.memory),
    ("container_memory_working_set_bytes", "gauge", "Current working set in bytes.", lambda r: r.working_set),
    ("container_processes", "gauge", "Number of processes in the container.", lambda r: r.processes),
)
_EXTRA = {_CPU: ',cpu="total"', "container_memory_failures_total": ',failure_type="pgfault",scope="hierarchy"'}
_OF_NETWORKS: Sequence[tuple[str, str, Callable[[Interface], int]]] = (
    ("container_network_receive_bytes_total", "Bytes received.", lambda i: i.received),
    ("container_network_receive_errors_total", "Errors while receiving.", lambda i: i.receive_errors),
    ("container_network_transmit_bytes_total", "Bytes sent.", lambda i: i.sent),
    ("container_network_transmit_errors_total", "Errors while sending.", lambda i: i.send_errors),
)


def cadvisor(snapshot: Snapshot) -> str:
    """/metrics/cadvisor."""
    stamp = _milliseconds(snapshot)
    groups = list(_groups(snapshot))
    lines: list[str] = []
    for name, kind, text, value in _OF_GROUPS:
        found = [(labels + _EXTRA.get(name, ""), value(reading)) for labels, reading in groups]
        lines += _family(name, kind, text, found, stamp)
    started = [(_labels(c.group, p, c), c.started)
               for p in snapshot.pods for c in p.containers]  # fmt: skip
    times = [(labels, None if time is None else time.timestamp()) for labels, time in started]
    lines += _family("container_start_time_seconds", "gauge", "Start time of the container.", times, stamp)
    for name, text, of in _OF_NETWORKS:
        sent = [(f'{_labels(pod.group, pod)},interface="{escaped(one.name)}"', of(one))
                for pod in snapshot.pods for one in pod.network]  # fmt: skip
        lines += _family(name, "counter", text, sent, stamp)
    lines += _pressure(groups, stamp)
    lines += _family("machine_cpu_cores", "gauge", "Number of logical CPU cores.", [("", snapshot.cpus)], None)
    lines += _family("machine_memory_bytes", "gauge", "Memory of the machine.", [("", snapshot.memory_capacity)], None)
    return "\n".join([*lines, ""])


def _pressure(groups: Sequence[tuple[str, Reading]], stamp: int) -> list[str]:
    """The six families; none where pressure is not accounted."""
    samples: dict[str, list[str]] = {}
    for labels, reading in groups:
        for family, line in psi.samples(labels, reading.psi, stamp):
            samples.setdefault(family, []).append(line)
    lines = []
    for family, text in psi.FAMILIES.values():
        if family in samples:
            lines += [f"# HELP {family} Total time in seconds in which {text}.", f"# TYPE {family} counter"]
            lines += samples[family]
    return lines


def resource(snapshot: Snapshot) -> str:
    """/metrics/resource."""
    stamp, node = _milliseconds(snapshot), snapshot.reading
    containers = [(_short(c.name, p.namespace, p.name), c) for p in snapshot.pods for c in p.containers]
    pods = [(f'namespace="{p.namespace}",pod="{p.name}"', p) for p in snapshot.pods]

    def of_containers(value: Callable[[Reading], float | None]) -> list[tuple[str, float | None]]:
        return [(labels, value(one.reading)) for labels, one in containers]

    def of_pods(value: Callable[[Reading], float | None]) -> list[tuple[str, float | None]]:
        return [(labels, value(one.reading)) for labels, one in pods]

    started = [(labels, None if one.started is None else one.started.timestamp()) for labels, one in containers]
    families: Sequence[tuple[str, str, str, list[tuple[str, float | None]]]] = (
        (_CPU, "counter", "Cpu time of the container.", of_containers(lambda r: _seconds(r.cpu))),
        ("container_memory_working_set_bytes", "gauge", "Working set.", of_containers(lambda r: r.working_set)),
        ("container_start_time_seconds", "gauge", "Start time of the container.", started),
        ("container_swap_limit_bytes", "gauge", "Swap limit.", of_containers(lambda r: r.swap_limit)),
        ("container_swap_usage_bytes", "gauge", "Swap usage.", of_containers(lambda r: r.swap)),
        ("node_cpu_usage_seconds_total", "counter", "Cpu time of the node.", [("", _seconds(node.cpu))]),
        ("node_memory_working_set_bytes", "gauge", "Working set of the node.", [("", node.working_set)]),
        ("node_swap_usage_bytes", "gauge", "Swap usage of the node.", [("", node.swap)]),
        ("pod_cpu_usage_seconds_total", "counter", "Cpu time of the pod.", of_pods(lambda r: _seconds(r.cpu))),
        ("pod_memory_working_set_bytes", "gauge", "Working set of the pod.", of_pods(lambda r: r.working_set)),
        ("pod_swap_usage_bytes", "gauge", "Swap usage of the pod.", of_pods(lambda r: r.swap)),
    )
    lines: list[str] = []
    for name, kind, text, found in families:
        # A start was not measured at a time.
        lines += _family(name, kind, text, found, None if found is started else stamp)
    lines += _family("resource_scrape_error", "gauge", "1 if there was an error, 0 otherwise.", [("", 0)], None)
    return "\n".join([*lines, ""])


def _groups(snapshot: Snapshot) -> Iterator[tuple[str, Reading]]:
    """Labels and reading of every group; only containers and pods have more labels than their path."""
    yield _labels("/"), snapshot.reading
    for path, reading in (*([snapshot.pods_group] if snapshot.pods_group else []), *snapshot.groups):
        yield _labels(path), reading
    for pod in snapshot.pods:
        yield _labels(pod.group, pod), pod.reading
        for one in pod.containers:
            yield _labels(one.group, pod, one), one.reading


def _labels(path: str, pod: PodFigures | None = None, container: ContainerFigures | None = None) -> str:
    values = {
        "container": container.name if container is not None else "",
        "id": path,
        "image": container.image if container is not None else "",
        "name": container.id if container is not None else "",
        "namespace": pod.namespace if pod is not None else "",
        "pod": pod.name if pod is not None else "",
    }
    return ",".join(f'{label}="{escaped(value)}"' for label, value in values.items())


def _short(container: str, namespace: str, pod: str) -> str:
    return f'container="{container}",namespace="{namespace}",pod="{pod}"'


def _family(
    name: str, kind: str, text: str, samples: Sequence[tuple[str, float | None]], stamp: int | None
) -> list[str]:
    known = [(labels, value) for labels, value in samples if value is not None]
    if not known:
        return []
    end = "" if stamp is None else f" {stamp}"
    lines = [f"{name}{{{labels}}} {value!r}{end}" if labels else f"{name} {value!r}{end}" for labels, value in known]
    return [f"# HELP {name} {text}", f"# TYPE {name} {kind}", *lines]


def _seconds(nanoseconds: int | None) -> float | None:
    return None if nanoseconds is None else nanoseconds / 1e9


def _milliseconds(snapshot: Snapshot) -> int:
    return int(snapshot.time.timestamp() * 1000)
