"""Scopes: a quota with scopes counts only what is in all of them."""

from __future__ import annotations

from collections.abc import Iterable

from haru.kube.meta import Obj
from haru.kube.strategy import qos_class


def selectors_of(quota: Obj) -> list[Obj]:
    """A quota's scopes and its scope selector, as requirements."""
    spec = quota.get("spec") or {}
    plain = [{"scopeName": scope, "operator": "Exists"} for scope in spec.get("scopes") or ()]
    return plain + list((spec.get("scopeSelector") or {}).get("matchExpressions") or ())


def pod_in_scope(selector: Obj, pod: Obj) -> bool:
    """Whether a pod is in a scope."""
    spec = pod.get("spec") or {}
    match selector.get("scopeName"):
        case "Terminating":
            return is_terminating(pod)
        case "NotTerminating":
            return not is_terminating(pod)
        case "BestEffort":
            return qos_class(spec) == "BestEffort"
        case "NotBestEffort":
            return qos_class(spec) != "BestEffort"
        case "PriorityClass":
            name = spec.get("priorityClassName")
            return _selects(selector, [name] if name else [])
        case "CrossNamespacePodAffinity":
            return _crosses_namespaces(spec)
    return False


def is_terminating(pod: Obj) -> bool:
    """Whether a pod ends by itself: it has a deadline."""
    deadline = (pod.get("spec") or {}).get("activeDeadlineSeconds")
    return deadline is not None and int(deadline) >= 0


def volume_claim_in_scope(selector: Obj, claim: Obj) -> bool:
    """Whether a volume claim is in a scope."""
    if selector.get("scopeName") != "VolumeAttributesClass":
        return False
    return _selects(selector, volume_attributes_classes(claim))


def volume_attributes_classes(claim: Obj) -> list[str]:
    """The attributes classes that a volume claim has, had or is to have."""
    status = claim.get("status") or {}
    found = (
        (claim.get("spec") or {}).get("volumeAttributesClassName"),
        status.get("currentVolumeAttributesClassName"),
        (status.get("modifyVolumeStatus") or {}).get("targetVolumeAttributesClassName"),
    )
    return sorted({str(name) for name in found if name})


def _selects(selector: Obj, found: list[str]) -> bool:
    values = selector.get("values") or ()
    match selector.get("operator"):
        case "Exists":
            return bool(found)
        case "DoesNotExist":
            return not found
        case "In":
            return any(name in values for name in found)
        case "NotIn":
            return not found or any(name not in values for name in found)
    return False


def _crosses_namespaces(spec: Obj) -> bool:
    affinity = spec.get("affinity") or {}
    terms = [t for kind in ("podAffinity", "podAntiAffinity") for t in _terms(affinity.get(kind) or {})]
    return any(term.get("namespaces") or term.get("namespaceSelector") is not None for term in terms)


def _terms(affinity: Obj) -> Iterable[Obj]:
    yield from affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or ()
    for weighted in affinity.get("preferredDuringSchedulingIgnoredDuringExecution") or ():
        yield weighted.get("podAffinityTerm") or {}
