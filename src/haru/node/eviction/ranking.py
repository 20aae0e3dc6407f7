"""Which pod goes first when a node is short of something, and what is told of it. Pure.

Pods that use more than they request go before those that do not, unimportant before important ones, large before small
ones. Source: the kubelet's order of eviction and its messages, as documented and as behaviour.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from haru.kube.meta import Obj
from haru.kube.quantity import Quantity, parse_quantity
from haru.kube.resources import pod_requests
from haru.node.eviction.thresholds import Observation, Threshold

_NOTHING = Quantity(0, "BinarySI")


class Disk(NamedTuple):
    """Bytes and inodes."""

    used: int = 0
    inodes: int = 0

    def plus(self, other: Disk) -> Disk:
        """Both together."""
        return Disk(self.used + other.used, self.inodes + other.inodes)


_NO_DISK = Disk()


@dataclass(frozen=True, slots=True)
class ContainerUsage:
    """What a running container uses; None: not known."""

    memory: int | None = None
    layer: Disk | None = None
    logs: Disk | None = None


@dataclass(frozen=True, slots=True)
class PodUsage:
    """What a pod uses."""

    memory: int = 0
    processes: int = 0
    containers: Mapping[str, ContainerUsage] = field(default_factory=dict)
    volumes: Disk = _NO_DISK
    """Those on the node's disk."""

    def disk(self, *, layers: bool, files: bool) -> Disk:
        """What it has on a disk that holds writable layers, or logs and volumes, or all of them."""
        total = self.volumes if files else _NO_DISK
        for one in self.containers.values():
            total = total.plus(one.layer or _NO_DISK) if layers else total
            total = total.plus(one.logs or _NO_DISK) if files else total
        return total


Usages = Mapping[str, PodUsage]
"""By uid; a pod of which nothing is known has none."""


def ranked(threshold: Threshold, pods: Sequence[Obj], usages: Usages, *, image_disk: bool) -> list[Obj]:
    """The pods in the order in which they go; `image_disk`: images and layers have a file system of their own."""
    if threshold.resource == "pids":
        return sorted(pods, key=lambda pod: _by_processes(pod, usages))
    if threshold.resource == "memory":
        return sorted(pods, key=lambda pod: _by_usage(pod, usages, "memory", lambda found: found.memory))
    shared = not image_disk
    on_node = threshold.signal.startswith("nodefs")

    def amount(found: PodUsage) -> int:
        disk = found.disk(layers=shared or not on_node, files=shared or on_node)
        return disk.inodes if threshold.resource == "inodes" else disk.used

    return sorted(pods, key=lambda pod: _by_usage(pod, usages, threshold.resource, amount))


def _by_processes(pod: Obj, usages: Usages) -> tuple[int, bool, int]:
    found = usages.get(pod["metadata"]["uid"])
    return _priority(pod), found is not None, -(found.processes if found is not None else 0)


def _by_usage(
    pod: Obj, usages: Usages, resource: str, amount: Callable[[PodUsage], int]
) -> tuple[bool, bool, int, int]:
    found = usages.get(pod["metadata"]["uid"])
    if found is None:
        return False, False, _priority(pod), 0
    excess = amount(found) - pod_requests(pod).get(resource, _NOTHING).value()
    return True, excess <= 0, _priority(pod), -excess


def _priority(pod: Obj) -> int:
    return int(pod["spec"].get("priority") or 0)


class Told(NamedTuple):
    """The message of an eviction, and the annotations of its event."""

    message: str
    annotations: Mapping[str, str]


def told(
    threshold: Threshold,
    pod: Obj,
    usage: PodUsage | None,
    due: Sequence[Threshold],
    seen: Mapping[str, Observation],
) -> Told:
    """What is said of a pod that goes."""
    resource = threshold.resource
    text = f"The node was low on resource: {resource}. "
    first = next((one for one in due if one.resource == resource and one.signal in seen), None)
    if first is not None:
        found = seen[first.signal]
        available = Quantity(found.available * 10**9, "DecimalSI" if resource in ("inodes", "pids") else "BinarySI")
        text += f"Threshold quantity: {first.value.of(found.capacity)}, available: {available}. "
    if usage is None:
        return Told(text, {})
    more, notes = _of_pod(resource, pod, usage)
    text += more
    names, amounts = [], []
    for name, used, request in _exceeding(resource, pod, usage):
        text += f"Container {name} was using {used}, request is {request}, has larger consumption of {resource}. "
        names.append(name)
        amounts.append(str(used))
    notes |= {"offending_containers": ",".join(names), "offending_containers_usage": ",".join(amounts)}
    return Told(text, {**notes, "starved_resource": resource})


def _of_pod(resource: str, pod: Obj, usage: PodUsage) -> tuple[str, dict[str, str]]:
    """Of a pod that requests memory as a whole."""
    request = ((pod["spec"].get("resources") or {}).get("requests") or {}).get("memory")
    if resource != "memory" or request is None:
        return "", {}
    name, used = pod["metadata"]["name"], _bytes(usage.memory)
    text = f"Pod {name} was using {used}, request is {parse_quantity(request)}, has larger consumption of {resource}. "
    return text, {"offending_pod": name, "offending_pod_usage": str(used)}


def _exceeding(resource: str, pod: Obj, usage: PodUsage) -> list[tuple[str, Quantity, Quantity]]:
    """Containers that use more than they request: name, usage, request."""
    specs: dict[str, Mapping[str, Any]] = {
        one["name"]: one for one in (*pod["spec"]["containers"], *(pod["spec"].get("initContainers") or ()))
    }
    found = []
    for name, one in usage.containers.items():
        used = one.memory if resource == "memory" else None
        if resource == "ephemeral-storage" and one.layer is not None and one.logs is not None:
            used = one.layer.used + one.logs.used
        if used is None or name not in specs:
            continue
        text = ((specs[name].get("resources") or {}).get("requests") or {}).get(resource)
        request = parse_quantity(text) if text is not None else _NOTHING
        if _bytes(used) > request:
            found.append((name, _bytes(used), request))
    return found


def _bytes(amount: int) -> Quantity:
    return Quantity(amount * 10**9, "BinarySI")
