"""ResourceQuota and LimitRange.

Source: k8s.io/kubernetes core validation, as behaviour.
"""

from __future__ import annotations

from typing import Any

from haru.kube import names
from haru.kube.errors import FieldError, duplicate, forbidden, invalid, required
from haru.kube.meta import Obj
from haru.kube.quantity import Quantity, parse_quantity
from haru.kube.validation.common import each_message, immutable, items, part
from haru.kube.validation.resources import is_overcommittable, quantity

_COMPUTE = frozenset(
    {"cpu", "memory", *(f"{side}.{name}" for side in ("requests", "limits") for name in ("cpu", "memory"))}
)
_COUNTED = frozenset(
    (
        "pods",
        "resourcequotas",
        "services",
        "replicationcontrollers",
        "secrets",
        "configmaps",
        "persistentvolumeclaims",
        "services.nodeports",
        "services.loadbalancers",
    )
)
_DISK = frozenset({"ephemeral-storage", "requests.ephemeral-storage", "limits.ephemeral-storage", "requests.storage"})
_STANDARD = _COMPUTE | _COUNTED | _DISK
_OF_PODS = _COMPUTE | {"pods"}
_SCOPES = {
    "Terminating": _OF_PODS,
    "NotTerminating": _OF_PODS,
    "BestEffort": frozenset({"pods"}),
    "NotBestEffort": _OF_PODS,
    "PriorityClass": _OF_PODS,
    "CrossNamespacePodAffinity": _OF_PODS,
    "VolumeAttributesClass": frozenset({"persistentvolumeclaims", "requests.storage"}),
}
"""Which standard names a quota with a scope may limit."""
_CONFLICTS = ({"BestEffort", "NotBestEffort"}, {"Terminating", "NotTerminating"})
_WITH_VALUES = ("PriorityClass", "VolumeAttributesClass")


def validate_resource_quota(quota: Obj) -> list[FieldError]:
    """A ResourceQuota: what it limits, and its scopes."""
    spec = part(quota, "spec")
    found: list[FieldError] = []
    for name, value in part(spec, "hard").items():
        place = f"spec.hard[{name}]"
        found += _quota_name(place, name)
        amount, problems = quantity(place, name, value)
        found += problems
        if not problems and amount is not None and name in _COUNTED and not amount.is_integer():
            found.append(invalid(place, str(amount), "must be an integer"))
    return found + _scopes(spec) + _scope_selector(spec)


def validate_resource_quota_update(new: Obj, old: Obj) -> list[FieldError]:
    """A quota's scopes stay."""
    after, before = (sorted(items(part(quota, "spec"), "scopes")) for quota in (new, old))
    return immutable("spec.scopes", after, before)


def _quota_name(place: str, name: str) -> list[FieldError]:
    found = each_message(place, name, names.is_qualified_name(name))
    if found or "/" in name or name in _STANDARD:
        return found
    if name.removeprefix("requests.").startswith("hugepages-"):
        return []
    return [invalid(place, name, "must be a standard resource for quota")]


def _applies(scope: str, spec: Obj) -> bool:
    limited = _STANDARD.intersection(part(spec, "hard"))
    return limited <= _SCOPES[scope]


def _scopes(spec: Obj) -> list[FieldError]:
    scopes = items(spec, "scopes")
    found: list[FieldError] = []
    for scope in scopes:
        if scope not in _SCOPES:
            found.append(invalid("spec.scopes", scopes, "unsupported scope"))
        elif not _applies(scope, spec):
            found.append(invalid("spec.scopes", scopes, "unsupported scope applied to resource"))
    if any(pair <= set(scopes) for pair in _CONFLICTS):
        found.append(invalid("spec.scopes", scopes, "conflicting scopes"))
    return found


def _scope_selector(spec: Obj) -> list[FieldError]:
    found: list[FieldError] = []
    selector = part(spec, "scopeSelector")
    field = "spec.scopeSelector.matchExpressions"
    for requirement in items(selector, "matchExpressions"):
        scope, operator = requirement.get("scopeName"), requirement.get("operator")
        values = items(requirement, "values")
        if scope not in _SCOPES:
            found.append(invalid(f"{field}.scopeName", scope, "unsupported scope"))
            continue
        if not _applies(scope, spec):
            found.append(invalid(field, selector, "unsupported scope applied to resource"))
        if scope not in _WITH_VALUES and operator != "Exists":
            why = (
                "must be 'Exist' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, "
                "ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or "
                "ResourceQuotaScopeCrossNamespacePodAffinity"
            )
            found.append(invalid(f"{field}.operator", operator, why))
        if operator in ("In", "NotIn"):
            if not values:
                why = "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector"
                found.append(required(f"{field}.values", why))
        elif operator in ("Exists", "DoesNotExist"):
            if values:
                why = "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector"
                found.append(invalid(f"{field}.values", values, why))
        else:
            found.append(invalid(f"{field}.operator", operator, "not a valid selector operator"))
    return found


# --- limit ranges


def validate_limit_range(limit_range: Obj) -> list[FieldError]:
    """A LimitRange: one item of each type, whose bounds do not contradict each other."""
    found: list[FieldError] = []
    seen: set[str] = set()
    for index, item in enumerate(items(part(limit_range, "spec"), "limits")):
        place, kind = f"spec.limits[{index}]", str(item.get("type") or "")
        found += each_message(f"{place}.type", kind, names.is_qualified_name(kind))
        if kind in seen:
            found.append(duplicate(f"{place}.type", kind))
        seen.add(kind)
        if kind == "Pod":
            for member in ("default", "defaultRequest"):
                if item.get(member):
                    found.append(forbidden(f"{place}.{member}", "may not be specified when `type` is 'Pod'"))
        if kind == "PersistentVolumeClaim" and not any("storage" in part(item, member) for member in ("min", "max")):
            why = "either minimum or maximum storage value is required, but neither was provided"
            found.append(required(f"{place}.limits", why))
        found += _bounds(place, item)
    return found


def _bounds(place: str, item: Obj) -> list[FieldError]:
    amounts: dict[str, dict[str, Quantity]] = {}
    found: list[FieldError] = []
    for member in ("max", "min", "default", "defaultRequest", "maxLimitRequestRatio"):
        amounts[member] = {}
        for name, value in part(item, member).items():
            where = f"{place}.{member}[{name}]"
            found += each_message(where, name, names.is_qualified_name(name))
            amount, problems = (
                quantity(where, name, value) if member != "maxLimitRequestRatio" else _ratio(where, value)
            )
            found += problems
            if amount is not None and not problems:
                amounts[member][name] = amount
    for name in sorted({name for each in amounts.values() for name in each}):
        found += _contradictions(place, name, {member: each[name] for member, each in amounts.items() if name in each})
    return found


def _ratio(where: str, value: Any) -> tuple[Quantity | None, list[FieldError]]:
    try:
        return parse_quantity(value), []
    except ValueError as problem:
        return None, [invalid(where, value, str(problem))]


_ORDERED = (
    ("min", "min", "value", "max", "max value"),
    ("defaultRequest", "min", "value", "defaultRequest", "default request value"),
    ("defaultRequest", "defaultRequest", "", "max", "max value"),
    ("defaultRequest", "defaultRequest", "", "default", "default limit value"),
    ("default", "min", "value", "default", "default value"),
    ("default", "default", "value", "max", "max value"),
)
"""Where it is told, what must not be more than what, and how the other one is called."""


def _contradictions(place: str, name: str, bounds: dict[str, Quantity]) -> list[FieldError]:
    found = []
    for told, small, word, large, called in _ORDERED:
        if small in bounds and large in bounds and bounds[small] > bounds[large]:
            first = f"{small} {word}" if word else "default request value"
            why = f"{first} {bounds[small]} is greater than {called} {bounds[large]}"
            found.append(invalid(f"{place}.{told}[{name}]", str(bounds[told]), why))
    ratio, where = bounds.get("maxLimitRequestRatio"), f"{place}.maxLimitRequestRatio[{name}]"
    if ratio is not None and ratio < parse_quantity(1):
        found.append(invalid(where, str(ratio), f"ratio {ratio} is less than 1"))
    if ratio is not None and bounds.get("min") and "max" in bounds:
        most = bounds["max"].nano / bounds["min"].nano
        if ratio.nano * bounds["min"].nano > bounds["max"].nano * 10**9:
            found.append(invalid(where, str(ratio), f"ratio {ratio} is greater than max/min = {most:f}"))
    default, request = bounds.get("default"), bounds.get("defaultRequest")
    if not is_overcommittable(name) and default is not None and request is not None and default != request:
        why = f"default value {default} must equal to defaultRequest value {request} in {name}"
        found.append(invalid(f"{place}.defaultRequest[{name}]", str(request), why))
    return found
