"""What a pod asks of a node: the effective request of each resource.

Containers run together with the sidecars; init containers run before, one after another, beside the sidecars that
were started earlier. The larger of both peaks counts; a pod-level request (KEP-2837) replaces the sum; overhead
comes on top. While a pod is resized in place (KEP-1287, KEP-5419) the largest of what it asks for, was promised and
has counts. Source: k8s.io/component-helpers `resource`, as behaviour.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from haru.kube.quantity import Quantity, parse_quantity

Requests = dict[str, Quantity]

_POD_LEVEL: Final = ("cpu", "memory")
_ZERO: Final = parse_quantity("0")


def is_pod_level_resource(name: str) -> bool:
    """Whether `spec.resources` of a pod may name this resource."""
    return name in _POD_LEVEL or name.startswith("hugepages-")


def parse_resource_list(values: Mapping[str, Any] | None) -> Requests:
    """A ResourceList with its quantities parsed."""
    return {name: parse_quantity(value) for name, value in (values or {}).items()}


def _add(total: Requests, more: Mapping[str, Quantity]) -> None:
    for name, quantity in more.items():
        present = total.get(name)
        total[name] = quantity if present is None else present + quantity


def _raise_to(total: Requests, other: Mapping[str, Quantity]) -> None:
    for name, quantity in other.items():
        present = total.get(name)
        if present is None or present < quantity:
            total[name] = quantity


def _statuses(pod: Mapping[str, Any], field: str) -> dict[str, Mapping[str, Any]]:
    listed = (pod.get("status") or {}).get(field) or ()
    return {status["name"]: status for status in listed if "name" in status}


def _resize_is_infeasible(pod: Mapping[str, Any]) -> bool:
    for condition in (pod.get("status") or {}).get("conditions") or ():
        if condition.get("type") == "PodResizePending":
            return bool(condition.get("reason") == "Infeasible")
    return False


def _held(requested: Requests, status: Mapping[str, Any] | None, infeasible: bool) -> Requests:
    """What is asked for; once a status tells what there is, the largest of asked, allocated and actual.

    What an infeasible resize asks for does not count, a resource that it adds neither.
    """
    if status is None or status.get("resources") is None:
        return requested
    held = parse_resource_list(status.get("allocatedResources"))
    _raise_to(held, parse_resource_list(status["resources"].get("requests")))
    if not infeasible:
        _raise_to(held, requested)
    return held


def _container(
    container: Mapping[str, Any], status: Mapping[str, Any] | None, infeasible: bool, missing: Mapping[str, Quantity]
) -> Requests:
    """A container's request, `missing` added for what it does not ask for."""
    requested = parse_resource_list((container.get("resources") or {}).get("requests"))
    held = _held(requested, status, infeasible)
    return {**missing, **held} if missing else held


_NOTHING: Final[Mapping[str, Quantity]] = {}


def claimed_resources(pod: Mapping[str, Any], statuses: Iterable[Mapping[str, Any]] | None = None) -> Requests:
    """Sum the node resources of a pod's devices (KEP-5517), on top of its requests.

    `statuses` are the entries of `status.nodeAllocatableResourceClaimStatuses`, by default those that the pod has. What
    the pod's own level requests is an upper bound that the devices are within.
    """
    if statuses is None:
        statuses = (pod.get("status") or {}).get("nodeAllocatableResourceClaimStatuses") or ()
    bounded = ((pod.get("spec") or {}).get("resources") or {}).get("requests") or {}
    total: Requests = {}
    for status in statuses:
        amounts = parse_resource_list(status.get("resources"))
        _add(total, {name: quantity for name, quantity in amounts.items() if name not in bounded})
    return total


def pod_requests(pod: Mapping[str, Any], missing: Mapping[str, Quantity] = _NOTHING) -> Requests:
    """The effective request of a pod for every resource that it names (`pods` is not among them).

    `missing` is what a container counts as that does not ask for a resource: scores use it, nothing else does.
    """
    spec = pod.get("spec") or {}
    infeasible = _resize_is_infeasible(pod)
    running = _statuses(pod, "containerStatuses")
    total: Requests = {}
    for container in spec.get("containers") or ():
        _add(total, _container(container, running.get(container.get("name")), infeasible, missing))
    init = spec.get("initContainers")
    if init:
        starting = _statuses(pod, "initContainerStatuses")
        sidecars: Requests = {}
        peak: Requests = {}
        for container in init:
            # Only sidecars run on, so only they can be resized.
            sidecar = container.get("restartPolicy") == "Always"
            status = starting.get(container.get("name")) if sidecar else None
            request = _container(container, status, infeasible, missing)
            if sidecar:
                _add(sidecars, request)
                _raise_to(peak, sidecars)
            else:
                beside = dict(sidecars)
                _add(beside, request)
                _raise_to(peak, beside)
        _add(total, sidecars)
        _raise_to(total, peak)
    whole = parse_resource_list((spec.get("resources") or {}).get("requests"))
    if whole:
        held = _held(whole, pod.get("status"), infeasible)
        total |= {name: held.get(name, _ZERO) for name in whole if is_pod_level_resource(name)}
    _add(total, parse_resource_list(spec.get("overhead")))
    return total


def pod_limits(pod: Mapping[str, Any]) -> Requests:
    """Sum a pod's limits, of each resource for which a container or the pod has one.

    Overhead comes on top of limits that there are; quotas count limits, schedulers do not.
    """
    spec = pod.get("spec") or {}
    total: Requests = {}
    for container in spec.get("containers") or ():
        _add(total, parse_resource_list((container.get("resources") or {}).get("limits")))
    sidecars: Requests = {}
    peak: Requests = {}
    for container in spec.get("initContainers") or ():
        beside = dict(sidecars)
        _add(beside, parse_resource_list((container.get("resources") or {}).get("limits")))
        if container.get("restartPolicy") == "Always":
            sidecars = beside
        _raise_to(peak, beside)
    _add(total, sidecars)
    _raise_to(total, peak)
    whole = parse_resource_list((spec.get("resources") or {}).get("limits"))
    total |= {name: quantity for name, quantity in whole.items() if is_pod_level_resource(name)}
    overhead = parse_resource_list(spec.get("overhead"))
    _add(total, {name: quantity for name, quantity in overhead.items() if total.get(name)})
    return total
