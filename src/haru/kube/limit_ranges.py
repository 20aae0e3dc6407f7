"""LimitRange: what containers get that say nothing, and within which limits they, pods and volume claims stay. Pure.

Source: admission plugin LimitRanger, as behaviour; its words as in 1.36.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from haru.kube.meta import Obj
from haru.kube.quantity import Quantity
from haru.kube.resources import parse_resource_list, pod_limits, pod_requests

Amounts = Mapping[str, Quantity]

ANNOTATION = "kubernetes.io/limit-ranger"
_VOLUMES = "PersistentVolumeClaim"
_MEMBERS = (("containers", "container"), ("initContainers", "init container"))


def set_defaults(limit_range: Obj, pod: Obj) -> None:
    """Give containers the requests and limits that they lack, and say so in an annotation.

    The pod's spec and metadata are replaced, not changed in place.
    """
    items = [item for item in _items(limit_range) if item.get("type") == "Container"]
    limits = _merged(item.get("default") for item in items)
    requests = _merged(item.get("defaultRequest") for item in items)
    applied: list[str] = []
    spec = dict(pod["spec"])
    for member, word in _MEMBERS:
        if spec.get(member):
            spec[member] = [_completed(each, word, requests, limits, applied) for each in spec[member]]
    if applied:
        annotations = dict(pod["metadata"].get("annotations") or {})
        annotations[ANNOTATION] = f"LimitRanger plugin set: {'; '.join(applied)}"
        pod["spec"] = spec
        pod["metadata"] = {**pod["metadata"], "annotations": annotations}


def _completed(container: Obj, word: str, requests: Obj, limits: Obj, applied: list[str]) -> Obj:
    resources = dict(container.get("resources") or {})
    for member, defaults in (("requests", requests), ("limits", limits)):
        own = resources.get(member) or {}
        missing = sorted(name for name in defaults if name not in own)
        if missing:
            resources[member] = {**own, **{name: defaults[name] for name in missing}}
            applied.append(f"{', '.join(missing)} {member.removesuffix('s')} for {word} {container.get('name')}")
    return {**container, "resources": resources} if resources else container


def _merged(lists: Iterable[Obj | None]) -> Obj:
    return {name: value for each in lists for name, value in (each or {}).items()}


def pod_faults(limit_range: Obj, pod: Obj) -> list[str]:
    """List the requests and limits of a pod that violate the LimitRange."""
    faults: list[str] = []
    spec = pod.get("spec") or {}
    for item in _items(limit_range):
        if item.get("type") == "Container":
            for member, _ in _MEMBERS:
                for container in spec.get(member) or ():
                    resources = container.get("resources") or {}
                    faults += _faults(item, _amounts(resources, "requests"), _amounts(resources, "limits"))
        elif item.get("type") == "Pod":
            own = {"spec": {name: value for name, value in spec.items() if name != "overhead"}}
            faults += _faults(item, pod_requests(own), pod_limits(own))
    return list(dict.fromkeys(faults))


def volume_claim_faults(limit_range: Obj, claim: Obj) -> list[str]:
    """List the requests of a volume claim that violate the LimitRange."""
    requests = _amounts((claim.get("spec") or {}).get("resources") or {}, "requests")
    faults: list[str] = []
    for item in _items(limit_range):
        if item.get("type") == _VOLUMES:
            faults += _each(item, "min", lambda name, bound: _below(_VOLUMES, name, bound, requests, {}))
            faults += _each(item, "max", lambda name, bound: _request_above(_VOLUMES, name, bound, requests))
    return list(dict.fromkeys(faults))


def _items(limit_range: Obj) -> Iterable[Obj]:
    return (limit_range.get("spec") or {}).get("limits") or ()


def _amounts(resources: Obj, member: str) -> Amounts:
    return parse_resource_list(resources.get(member))


def _each(item: Obj, member: str, look: Callable[[str, Quantity], str]) -> Iterator[str]:
    for name, bound in sorted(_amounts(item, member).items()):
        fault = look(name, bound)
        if fault:
            yield fault


def _faults(item: Obj, requests: Amounts, limits: Amounts) -> Iterator[str]:
    kind = item["type"]
    yield from _each(item, "min", lambda name, bound: _below(kind, name, bound, requests, limits))
    yield from _each(item, "max", lambda name, bound: _above(kind, name, bound, requests, limits))
    yield from _each(item, "maxLimitRequestRatio", lambda name, bound: _ratio(kind, name, bound, requests, limits))


def _below(kind: str, name: str, bound: Quantity, requests: Amounts, limits: Amounts) -> str:
    text = f"minimum {name} usage per {kind} is {bound}"
    if name not in requests:
        return f"{text}.  No request is specified"
    if requests[name] < bound:
        return f"{text}, but request is {requests[name]}"
    if name in limits and limits[name] < bound:
        return f"{text}, but limit is {limits[name]}"
    return ""


def _above(kind: str, name: str, bound: Quantity, requests: Amounts, limits: Amounts) -> str:
    text = f"maximum {name} usage per {kind} is {bound}"
    if name not in limits:
        return f"{text}.  No limit is specified"
    if limits[name] > bound:
        return f"{text}, but limit is {limits[name]}"
    if name in requests and requests[name] > bound:
        return f"{text}, but request is {requests[name]}"
    return ""


def _request_above(kind: str, name: str, bound: Quantity, requests: Amounts) -> str:
    text = f"maximum {name} usage per {kind} is {bound}"
    if name not in requests:
        return f"{text}.  No request is specified"
    return f"{text}, but request is {requests[name]}" if requests[name] > bound else ""


def _ratio(kind: str, name: str, bound: Quantity, requests: Amounts, limits: Amounts) -> str:
    text = f"{name} max limit to request ratio per {kind} is {bound}, but"
    if not requests.get(name):
        return f"{text} no request is specified or request is 0"
    if not limits.get(name):
        return f"{text} no limit is specified or limit is 0"
    limit, request = limits[name].nano, requests[name].nano
    return f"{text} provided ratio is {limit / request:f}" if limit * 10**9 > bound.nano * request else ""
