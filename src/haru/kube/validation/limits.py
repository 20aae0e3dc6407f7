"""ResourceQuota and LimitRange.

Source: k8s.io/kubernetes core validation, as behaviour.
"""

from __future__ import annotations

from typing import Any

from haru.kube import names
from haru.kube.errors import FieldError, duplicate, forbidden, invalid, required
from haru.kube.meta import Obj
from haru.kube.quantity import Quantity, parse_quantity
from haru.kube.validation.common import each_message, items, part
from haru.kube.validation.resources import (
    container_resource_name,
    is_overcommittable,
    is_standard_for_quota,
    quantity,
    standard_or_qualified_name,
)

_COMPUTE = frozenset(
    {"cpu", "memory", *(f"{side}.{name}" for side in ("requests", "limits") for name in ("cpu", "memory"))}
)
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
    return _amounts("spec.hard", part(spec, "hard")) + _scopes(spec) + _scope_selector(spec)


def validate_resource_quota_status(new: Obj, old: Obj) -> list[FieldError]:
    """What a quota's status says is limited and used."""
    status = part(new, "status")
    return _amounts("status.hard", part(status, "hard")) + _amounts("status.used", part(status, "used"))


def _amounts(field: str, amounts: Obj) -> list[FieldError]:
    found: list[FieldError] = []
    for name, value in amounts.items():
        place = f"{field}[{name}]"
        found += standard_or_qualified_name(place, name)
        if "/" not in name and not is_standard_for_quota(name):
            found.append(invalid(place, name, "must be a standard resource for quota"))
        found += quantity(place, name, value)[1]
    return found


def validate_resource_quota_update(new: Obj, old: Obj) -> list[FieldError]:
    """A quota's scopes stay."""
    after, before = (set(items(part(quota, "spec"), "scopes")) for quota in (new, old))
    return [] if after == before else [invalid("spec.scopes", sorted(after), "field is immutable")]


def _scopes(spec: Obj) -> list[FieldError]:
    scopes = items(spec, "scopes")
    found: list[FieldError] = []
    for scope in scopes:
        if scope not in _SCOPES:
            found.append(invalid("spec.scopes", scopes, "unsupported scope"))
        found += _unfit("spec.scopes", scope, spec, scopes)
    return found + _conflicting("spec.scopes", scopes, scopes)


def _unfit(field: str, scope: str, spec: Obj, value: Any) -> list[FieldError]:
    """What is limited that no scope like this one counts."""
    limited = [name for name in part(spec, "hard") if is_standard_for_quota(name)]
    return [
        invalid(field, value, "unsupported scope applied to resource")
        for name in limited
        if scope in _SCOPES and name not in _SCOPES[scope]
    ]


def _conflicting(field: str, scopes: list[str], value: Any) -> list[FieldError]:
    return [invalid(field, value, "conflicting scopes") for pair in _CONFLICTS if pair <= set(scopes)]


def _scope_selector(spec: Obj) -> list[FieldError]:
    found: list[FieldError] = []
    selector = part(spec, "scopeSelector")
    field = "spec.scopeSelector.matchExpressions"
    requirements = items(selector, "matchExpressions")
    for requirement in requirements:
        scope, operator = requirement.get("scopeName") or "", requirement.get("operator") or ""
        if scope not in _SCOPES:
            found.append(invalid(f"{field}.scopeName", scope, "unsupported scope"))
        found += _unfit(field, scope, spec, selector)
        if scope in _SCOPES and scope not in _WITH_VALUES and operator != "Exists":
            why = (
                "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, "
                "ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or "
                "ResourceQuotaScopeCrossNamespacePodAffinity"
            )
            found.append(invalid(f"{field}.operator", operator, why))
        found += _scope_values(field, operator, items(requirement, "values"))
    scopes = [requirement.get("scopeName") or "" for requirement in requirements]
    return found + _conflicting(field, scopes, items(spec, "scopes"))


def _scope_values(field: str, operator: str, values: list[str]) -> list[FieldError]:
    if operator in ("In", "NotIn"):
        why = "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector"
        return [] if values else [required(f"{field}.values", why)]
    if operator in ("Exists", "DoesNotExist"):
        why = "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector"
        return [invalid(f"{field}.values", values, why)] if values else []
    return [invalid(f"{field}.operator", operator, "not a valid selector operator")]


# --- limit ranges


_LIMIT_TYPES = ("Container", "PersistentVolumeClaim", "Pod")
_BOUNDS = ("max", "min", "default", "defaultRequest", "maxLimitRequestRatio")
_DEFAULTS = ("default", "defaultRequest")


def validate_limit_range(limit_range: Obj) -> list[FieldError]:
    """A LimitRange: one item of each type, whose bounds do not contradict each other."""
    found: list[FieldError] = []
    seen: set[str] = set()
    for index, item in enumerate(items(part(limit_range, "spec"), "limits")):
        place, kind = f"spec.limits[{index}]", str(item.get("type") or "")
        wrong = each_message(f"{place}.type", kind, names.is_qualified_name(kind))
        if not wrong and "/" not in kind and kind not in _LIMIT_TYPES:
            wrong = [invalid(f"{place}.type", kind, "must be a standard limit type or fully qualified")]
        found += wrong
        if kind in seen:
            found.append(duplicate(f"{place}.type", kind))
        seen.add(kind)
        if kind == "Pod":
            why = "may not be specified when `type` is 'Pod'"
            found += [forbidden(f"{place}.{member}", why) for member in _DEFAULTS if item.get(member)]
        if kind == "PersistentVolumeClaim" and not any("storage" in part(item, member) for member in ("min", "max")):
            why = "either minimum or maximum storage value is required, but neither was provided"
            found.append(required(f"{place}.limits", why))
        found += _bounds(place, item, kind)
    return found


def _bounds(place: str, item: Obj, kind: str) -> list[FieldError]:
    check = container_resource_name if kind in ("Pod", "Container") else standard_or_qualified_name
    amounts: dict[str, dict[str, Quantity]] = {}
    found: list[FieldError] = []
    for member in (m for m in _BOUNDS if kind != "Pod" or m not in _DEFAULTS):
        amounts[member] = {}
        for name, value in part(item, member).items():
            where = f"{place}.{member}[{name}]"
            found += check(where, name)
            try:
                amounts[member][name] = parse_quantity(value)
            except ValueError as problem:
                found.append(invalid(where, value, str(problem)))
    for name in sorted({name for each in amounts.values() for name in each}):
        found += _contradictions(place, name, {member: each[name] for member, each in amounts.items() if name in each})
    return found


_ORDERED = (
    ("min", "min", "min", "value", "max", "max value"),
    ("defaultRequest", "defaultRequest", "min", "value", "defaultRequest", "default request value"),
    ("defaultRequest", "defaultRequest", "defaultRequest", "", "max", "max value"),
    ("defaultRequest", "defaultRequest", "defaultRequest", "", "default", "default limit value"),
    ("default", "min", "min", "value", "default", "default value"),
    ("default", "max", "default", "value", "max", "max value"),
)
"""Where it is told, with whose value, what must not be more than what, and how the other one is called."""


def _contradictions(place: str, name: str, bounds: dict[str, Quantity]) -> list[FieldError]:
    found = []
    for told, shown, small, word, large, called in _ORDERED:
        if small in bounds and large in bounds and bounds[small] > bounds[large]:
            first = f"{small} {word}" if word else "default request value"
            why = f"{first} {bounds[small]} is greater than {called} {bounds[large]}"
            found.append(invalid(f"{place}.{told}[{name}]", str(bounds[shown]), why))
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
