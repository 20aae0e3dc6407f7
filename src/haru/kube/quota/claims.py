"""ResourceClaims: the devices that they may get of each class, at worst (KEP-4381), and the extended resources that
these classes stand for (KEP-5004).

A request for all devices counts as the most that a claim can hold; of alternatives the largest number of each class
counts; admin access counts like any other. What the pod of a claim that the scheduler made counts as already is not
counted again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from haru.kube.meta import Obj
from haru.kube.quantity import Quantity, parse_quantity
from haru.kube.quota.pods import Pods
from haru.kube.quota.usage import (
    IMPLICIT,
    ONE,
    REQUESTS,
    ZERO,
    Evaluator,
    Surroundings,
    Usage,
    add,
    is_extended_quota,
)

PER_CLASS = ".deviceclass.resource.k8s.io/devices"
ALL_DEVICES = 32
SPECIAL = "resource.kubernetes.io/extended-resource-claim"
"""Annotation of claims that the scheduler makes for extended resources."""
_PODS = Pods()


class Claims(Evaluator):
    """The evaluator of ResourceClaims."""

    updates = True

    def __init__(self) -> None:
        super().__init__("resource.k8s.io", "resourceclaims")

    def names(self, hard: Iterable[str], around: Surroundings) -> list[str]:
        """See Evaluator."""
        explicit = set(around.classes.values())
        found = []
        for name in hard:
            if name == self.count or name.endswith(PER_CLASS):
                found.append(name)
            elif around.extended and is_extended_quota(name):
                resource = name.removeprefix(REQUESTS)
                if resource.startswith(IMPLICIT) or resource in explicit:
                    found.append(name)
        return found

    def usage(self, obj: Obj, around: Surroundings) -> Usage:
        """See Evaluator."""
        devices: Usage = {}
        for request in ((obj.get("spec") or {}).get("devices") or {}).get("requests") or ():
            add(devices, _devices(request))
        found: Usage = {self.count: ONE}
        found |= {f"{name}{PER_CLASS}": amount for name, amount in devices.items()}
        if around.extended:
            found |= _extended(devices, obj, around)
        return found

    def handles(self, operation: str, subresource: str, new: Obj, old: Obj | None) -> bool:
        """See Evaluator."""
        return not subresource


def _devices(request: Obj) -> Usage:
    """The devices of one request, by class."""
    worst: Usage = {}
    alternatives: Sequence[Obj] = request.get("firstAvailable") or ()
    for asked in alternatives or (request.get("exactly") or request,):
        name = str(asked.get("deviceClassName") or "")
        amount = _amount(asked)
        if name and (amount > worst.get(name, ZERO) or not alternatives):
            worst[name] = amount
    return worst


def _amount(request: Obj) -> Quantity:
    match request.get("allocationMode") or "ExactCount":
        case "ExactCount":
            return parse_quantity(int(request.get("count") or 1))
        case "All":
            return parse_quantity(ALL_DEVICES)
    return ZERO


def _extended(devices: Usage, claim: Obj, around: Surroundings) -> Usage:
    """The devices under the extended resource of their class, explicit and implicit, less what the pod counts as."""
    named: Usage = {}
    for name, amount in devices.items():
        named[f"{REQUESTS}{IMPLICIT}{name}"] = amount
        if around.classes.get(name):
            add(named, {f"{REQUESTS}{around.classes[name]}": amount})
    pod = around.pod_of(claim) if is_special(claim) else None
    charged = _PODS.usage(pod, around) if pod is not None else {}
    rest = {name: amount - charged.get(name, ZERO) for name, amount in named.items()}
    return {name: amount for name, amount in rest.items() if amount > ZERO}


def is_special(claim: Obj) -> bool:
    """Whether the scheduler made a claim for a pod's extended resources."""
    return bool((claim["metadata"].get("annotations") or {}).get(SPECIAL) == "true")


def owning_pod(claim: Obj) -> tuple[str, str] | None:
    """Name and uid of the pod that controls a special claim."""
    for owner in claim["metadata"].get("ownerReferences") or ():
        if owner.get("controller"):
            if (owner.get("apiVersion"), owner.get("kind")) == ("v1", "Pod"):
                return str(owner.get("name")), str(owner.get("uid"))
            return None
    return None


def covers(pod: Obj, claim: Obj, siblings: Iterable[Obj]) -> bool:
    """Whether what a pod counts as covers a special claim that it controls; `siblings` are all claims that it does.

    Of several, the one that the pod's status names, or else the oldest.
    """
    status = (pod.get("status") or {}).get("extendedResourceClaimStatus")
    if status:
        return bool(status.get("resourceClaimName") == claim["metadata"].get("name"))
    own = _age(claim)
    return all(_age(other) >= own for other in siblings)


def _age(claim: Obj) -> tuple[str, str]:
    metadata = claim["metadata"]
    return str(metadata.get("creationTimestamp") or ""), str(metadata.get("name") or "")


def extended_names(classes: Iterable[Obj]) -> dict[str, str]:
    """The names of extended resources, by the device class that has one."""
    named = ((obj["metadata"]["name"], (obj.get("spec") or {}).get("extendedResourceName")) for obj in classes)
    return {str(name): str(resource) for name, resource in named if resource}
