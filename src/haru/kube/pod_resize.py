"""Pods that are resized in place: what each was allocated, and what its status says of it.

Pure. A kubelet remembers what it allocated to a pod beside what the spec asks for. It follows the spec as soon as that
fits beside what the others were allocated; until then the resize is deferred and the pod keeps what it has. On
simulated nodes what is allocated is in force at once. Source: kubelet `allocation`, as behaviour (KEP-1287, KEP-5419).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from haru.kube.meta import Obj, get_condition, uid_of
from haru.kube.quantity import Quantity
from haru.kube.resources import pod_requests
from haru.kube.strategy import qos_class
from haru.kube.validation.common import same

Sizes = dict[str, Obj]
"""The resources of a pod's containers by name, and of the pod's own level under the empty name."""

PENDING: Final = "PodResizePending"
IN_PROGRESS: Final = "PodResizeInProgress"
DEFERRED: Final = "Deferred"
_LEVELS: Final = (("containers", "containerStatuses"), ("initContainers", "initContainerStatuses"))


class Allocations:
    """What the pods of a node, or of a fleet, were allocated: one by one the checkpoint of a kubelet.

    Of a pod that ran before this process did, its status says what it was allocated.
    """

    def __init__(self) -> None:
        self._sizes: dict[str, Sizes] = {}

    def allocate(self, pod: Obj) -> None:
        """The pod gets what its spec asks for."""
        self._sizes[uid_of(pod)] = _asked(pod)

    def forget(self, uid: str) -> None:
        """The pod has ended."""
        self._sizes.pop(uid, None)

    def allocated(self, pod: Obj) -> Obj:
        """The pod with what it was allocated in its spec; the very pod if that is what it asks for."""
        sizes = self._sizes.get(uid_of(pod)) or _reported(pod)
        if all(same(sizes.get(name, resources), resources) for name, resources in _asked(pod).items()):
            return pod
        return resized(pod, sizes)


def resized(pod: Obj, sizes: Mapping[str, Obj]) -> Obj:
    """The pod with these resources in its spec."""
    spec = pod.get("spec") or {}
    changed = {**spec}
    if "" in sizes:
        changed["resources"] = sizes[""]
    for member, _ in _LEVELS:
        if spec.get(member):
            changed[member] = [_sized(container, sizes) for container in spec[member]]
    return {**pod, "spec": changed}


def _asked(pod: Obj) -> Sizes:
    spec = pod.get("spec") or {}
    sizes = {one["name"]: one.get("resources") or {} for member, _ in _LEVELS for one in spec.get(member) or ()}
    return {**sizes, "": spec["resources"]} if spec.get("resources") else sizes


def _reported(pod: Obj) -> Sizes:
    status = pod.get("status") or {}
    found = {
        one["name"]: one["resources"]
        for _, member in _LEVELS
        for one in status.get(member) or ()
        if one.get("resources") is not None
    }
    own = (pod.get("spec") or {}).get("resources")
    return {**found, "": _own(own, status["resources"])} if own and status.get("resources") else found


def _own(asked: Obj, told: Obj) -> Obj:
    """What is told of the pod's own level, without what is told of its containers as a sum."""
    kinds = {kind: [name for name in asked[kind] if name in (told.get(kind) or {})] for kind in asked}
    return {kind: {name: told[kind][name] for name in names} for kind, names in kinds.items() if names}


def _sized(container: Obj, sizes: Mapping[str, Obj]) -> Obj:
    return {**container, "resources": sizes[container["name"]]} if container["name"] in sizes else container


def unheld(pod: Obj) -> Obj:
    """The pod as its spec asks, without what it holds now: what must fit for a resize to be allocated."""
    held = ("containerStatuses", "initContainerStatuses", "resources", "allocatedResources")
    status = {name: value for name, value in (pod.get("status") or {}).items() if name not in held}
    return {**pod, "status": status}


# -- what is told


def reported_resources(container: Mapping[str, Any]) -> Obj:
    """The part of a container's status that says what it was allocated and has."""
    resources = container.get("resources") or {}
    requests = resources.get("requests")
    return {**({"allocatedResources": requests} if requests else {}), "resources": resources}


def resize_status(pod: Obj, allocated: Obj, now: str, problem: str = "") -> Obj | None:
    """What the status of a running pod lacks about what it was allocated and why that is not more; None for nothing.

    `problem` says why the node has no room for what the spec asks.
    """
    status, spec = pod.get("status") or {}, allocated.get("spec") or {}
    patch: Obj = {}
    for member, statuses in _LEVELS:
        specs = {container["name"]: container for container in spec.get(member) or ()}
        before = status.get(statuses) or []
        after = [_resized(specs[one["name"]], one) if one["name"] in specs else one for one in before]
        if not same(after, before):
            patch[statuses] = after
    level = reported_resources(spec) if spec.get("resources") else {}
    patch |= {name: value for name, value in level.items() if not same(status.get(name), value)}
    condition = _condition(pod, now, problem)
    if condition is not None:
        patch["conditions"] = [condition]
    if not patch:
        return None
    generation = pod["metadata"].get("generation")
    return {**patch, "observedGeneration": generation} if generation else patch


def _resized(container: Obj, status: Obj) -> Obj:
    """The status of a container that is resized while it runs, or is to be restarted for that."""
    return status if must_restart(container, status) else {**status, **reported_resources(container)}


def must_restart(container: Mapping[str, Any], status: Obj) -> bool:
    """Whether a running container has other resources than it was allocated, and gets them by a restart only."""
    if not container.get("resizePolicy") or "running" not in (status.get("state") or {}):
        return False
    wanted, having = container.get("resources") or {}, status.get("resources") or {}
    return any(
        not same(
            (wanted.get(kind) or {}).get(policy["resourceName"]), (having.get(kind) or {}).get(policy["resourceName"])
        )
        for policy in container["resizePolicy"]
        if policy.get("restartPolicy") == "RestartContainer"
        for kind in ("requests", "limits")
    )


def _condition(pod: Obj, now: str, problem: str) -> Obj | None:
    """The condition as a patch; None if it is as it should be."""
    before = get_condition(pod, PENDING)
    if not problem:
        return {"$patch": "delete", "type": PENDING} if before is not None else None
    told = {"status": "True", "reason": DEFERRED, "message": problem}
    generation = pod["metadata"].get("generation")
    if generation:
        told["observedGeneration"] = generation
    if before is not None and all(before.get(name) == value for name, value in told.items()):
        return None
    since = (before or {}).get("lastTransitionTime") or now
    return {"type": PENDING, "lastTransitionTime": since, **told}


def is_news(pod: Obj) -> bool:
    """Whether nobody has told yet that this resize is deferred."""
    before = get_condition(pod, PENDING) or {}
    seen = before.get("reason"), before.get("observedGeneration")
    return seen != (DEFERRED, pod["metadata"].get("generation"))


def event_message(pod: Obj, what: str, problem: str = "") -> str:
    """As kubelets word it: what the spec asks for, as JSON."""
    spec = pod.get("spec") or {}
    summary: Obj = {
        member: [{"name": one["name"], "resources": one.get("resources") or {}} for one in spec[member]]
        for member in ("initContainers", "containers")
        if spec.get(member)
    }
    summary["generation"] = pod["metadata"].get("generation", 0)
    if problem:
        summary["error"] = problem
    return f"Pod resize {what}: {json.dumps(summary, separators=(',', ':'))}"


def in_turn(pods: Iterable[Obj]) -> list[Obj]:
    """Deferred resizes in the order in which they are tried: shrinking, important, guaranteed, long deferred first."""
    return sorted(pods, key=_turn)


def _turn(pod: Obj) -> tuple[bool, int, bool, str]:
    spec = pod.get("spec") or {}
    wanted, held = pod_requests(unheld(pod)), pod_requests({"spec": Allocations().allocated(pod).get("spec")})
    nothing = Quantity(0)
    grows = any(wanted.get(name, nothing) > held.get(name, nothing) for name in ("cpu", "memory"))
    since = (get_condition(pod, PENDING) or {}).get("lastTransitionTime") or ""
    return grows, -(spec.get("priority") or 0), qos_class(spec) != "Guaranteed", since
