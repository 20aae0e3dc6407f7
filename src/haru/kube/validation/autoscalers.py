"""HorizontalPodAutoscalers (autoscaling/v2, and v1 in its words)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from haru.kube.autoscaling import autoscaler_as_v2
from haru.kube.errors import FieldError, forbidden, invalid, not_supported, required
from haru.kube.meta import Obj
from haru.kube.quantity import Quantity, parse_quantity
from haru.kube.validation.common import items, label_name, not_negative, part, path_segment
from haru.kube.validation.resources import container_resource_name, quantity
from haru.kube.validation.types import Rules

_SOURCES: Mapping[str, str] = {
    "Object": "object",
    "External": "external",
    "Pods": "pods",
    "Resource": "resource",
    "ContainerResource": "containerResource",
}
"""The member that each type of metrics has, in the order in which 1.36 looks at them."""
_TARGETS = ("Utilization", "Value", "AverageValue")
_SELECT_POLICIES = ("Disabled", "Max", "Min")
_POLICIES = ("Percent", "Pods")
_MAX_PERIOD = 1800
_MAX_WINDOW = 3600


def validate_autoscaler(autoscaler: Obj, rules: Rules) -> list[FieldError]:
    """A HorizontalPodAutoscaler when it is created."""
    return _autoscaler(_spec(autoscaler), None, rules)


def validate_autoscaler_update(new: Obj, old: Obj, rules: Rules) -> list[FieldError]:
    """Validate an update; a version that was stored wrong may stay so."""
    return _autoscaler(_spec(new), part(old, "spec"), rules)


def validate_autoscaler_status(new: Obj, old: Obj) -> list[FieldError]:
    """The status of a HorizontalPodAutoscaler: counts that are not negative."""
    status = part(new, "status")
    counted = ("currentReplicas", "desiredReplicas")
    return [error for name in counted for error in not_negative(f"status.{name}", status.get(name))]


def _spec(autoscaler: Obj) -> Obj:
    """The spec in v2: v1 has metrics of its own, and others in annotations."""
    return part(autoscaler_as_v2(autoscaler), "spec")


def _autoscaler(spec: Obj, before: Obj | None, rules: Rules) -> list[FieldError]:
    low, high, found = spec.get("minReplicas"), spec.get("maxReplicas") or 0, list[FieldError]()
    least = 0 if rules.gates.enabled("HPAScaleToZero") or (before or {}).get("minReplicas") == 0 else 1
    if low is not None and low < least:
        found.append(invalid("spec.minReplicas", low, f"must be greater than or equal to {least}"))
    if high < 0:
        found.append(invalid("spec.maxReplicas", high, "must be greater than or equal to 1"))
    elif not high:
        found.append(required("spec.maxReplicas", "must be set and greater than 0"))
    if low is not None and high < low:
        found.append(invalid("spec.maxReplicas", high, "must be greater than or equal to `minReplicas`"))
    found += _scaled(part(spec, "scaleTargetRef"), part(before, "scaleTargetRef"))
    for index, metric in enumerate(items(spec, "metrics")):
        found += _metric(f"spec.metrics[{index}]", metric)
    if low == 0 and not any(metric.get("type") in ("Object", "External") for metric in items(spec, "metrics")):
        why = "must specify at least one Object or External metric to support scaling to zero replicas"
        found.append(forbidden("spec.metrics", why))
    for member in ("scaleUp", "scaleDown"):
        behavior = part(spec, "behavior").get(member)
        found += _rules(f"spec.behavior.{member}", behavior) if behavior is not None else []
    return found


def _scaled(target: Obj, before: Obj) -> list[FieldError]:
    """What is scaled: of the core group there is one kind alone; what was stored may stay."""
    kept = bool(before) and all(target.get(name) == before.get(name) for name in ("apiVersion", "kind"))
    field, version = "spec.scaleTargetRef", target.get("apiVersion") or ""
    found = _reference(field, target, checks_version=not kept)
    if not kept and "/" not in version and target.get("kind") != "ReplicationController":
        found.append(invalid(f"{field}.apiVersion", version, "apiVersion must specify API group"))
    return found


def _reference(field: str, reference: Obj, *, checks_version: bool) -> list[FieldError]:
    found: list[FieldError] = []
    for name in ("kind", "name"):
        value = reference.get(name) or ""
        found += path_segment(f"{field}.{name}", value) if value else [required(f"{field}.{name}")]
    version = reference.get("apiVersion") or ""
    if checks_version and version.count("/") > 1:
        found.append(invalid(f"{field}.apiVersion", version, f"unexpected GroupVersion string: {version}"))
    return found


def _metric(field: str, metric: Obj) -> list[FieldError]:
    kind, found = metric.get("type") or "", list[FieldError]()
    if not kind:
        found.append(required(f"{field}.type", "must specify a metric source type"))
    if kind not in _SOURCES:
        found.append(not_supported(f"{field}.type", kind, sorted(_SOURCES)))
    given = [member for member in _SOURCES.values() if metric.get(member) is not None]
    if given:
        found += _source(f"{field}.{given[0]}", given[0], metric[given[0]])
    expected = _SOURCES.get(kind, "")
    if not expected:
        found.append(not_supported(f"{field}.type", kind, sorted(_SOURCES)))
    elif expected not in given:
        found.append(required(f"{field}.{expected}", "must populate information for the given metric source"))
    if len(given) > 1:
        why = "must populate the given metric source only"
        found += [forbidden(f"{field}.{member}", why) for member in given if member != expected]
    return found


def _source(field: str, member: str, source: Obj) -> list[FieldError]:
    target, found = part(source, "target"), list[FieldError]()
    if member == "object":
        found += _reference(f"{field}.describedObject", part(source, "describedObject"), checks_version=True)
    if member in ("resource", "containerResource"):
        name = source.get("name") or ""
        found += [] if name else [required(f"{field}.name", "must specify a resource name")]
        if member == "containerResource":
            found += container_resource_name(f"{field}.name", name) if name else []
            inside, place = source.get("container") or "", f"{field}.container"
            found += label_name(place, inside) if inside else [required(place, "must specify a container")]
    else:
        name = part(source, "metric").get("name") or ""
        place = f"{field}.metric.name"
        found += path_segment(place, name) if name else [required(place, "must specify a metric name")]
    return found + _target(f"{field}.target", target) + _wanted(f"{field}.target", member, target)


def _target(field: str, target: Obj) -> list[FieldError]:
    kind, share = target.get("type") or "", target.get("averageUtilization")
    found = [] if kind else [required(f"{field}.type", "must specify a metric target type")]
    if kind not in _TARGETS:
        found.append(invalid(f"{field}.type", kind, "must be either Utilization, Value, or AverageValue"))
    for name in ("value", "averageValue"):
        amount = target.get(name)
        if amount is not None and parse_quantity(amount) <= Quantity(0):
            found.append(invalid(f"{field}.{name}", str(amount), "must be positive"))
    if share is not None and share < 1:
        found.append(invalid(f"{field}.averageUtilization", share, "must be greater than 0"))
    return found


def _wanted(field: str, member: str, target: Obj) -> list[FieldError]:
    """Which value a target has, by what is measured."""
    value, average, share = (target.get(name) is not None for name in ("value", "averageValue", "averageUtilization"))
    if member == "pods":
        why = "must specify a positive target averageValue"
        return [] if average else [required(f"{field}.averageValue", why)]
    if member in ("object", "external"):
        if not value and not average:
            what = "averageValue" if member == "object" else "for metric or a per-pod target"
            why = f"must set either a target value {'or ' if member == 'object' else ''}{what}"
            return [required(f"{field}.averageValue", why)]
        why = "may not set both a target value for metric and a per-pod target"
        return [forbidden(f"{field}.value", why)] if member == "external" and value and average else []
    if not share and not average:
        return [required(f"{field}.averageUtilization", "must set either a target raw value or a target utilization")]
    why = "may not set both a target raw value and a target utilization"
    return [forbidden(f"{field}.averageValue", why)] if share and average else []


def _rules(field: str, rules: Obj) -> list[FieldError]:
    window, select, policies = (
        rules.get("stabilizationWindowSeconds"),
        rules.get("selectPolicy"),
        items(rules, "policies"),
    )
    found: list[FieldError] = []
    place = f"{field}.stabilizationWindowSeconds"
    if window is not None and window < 0:
        found.append(invalid(place, window, "must be greater than or equal to zero"))
    if window is not None and window > _MAX_WINDOW:
        found.append(invalid(place, window, f"must be less than or equal to {_MAX_WINDOW}"))
    if select is not None and select not in _SELECT_POLICIES:
        found.append(not_supported(f"{field}.selectPolicy", select, _SELECT_POLICIES))
    found += [] if policies else [required(f"{field}.policies", "must specify at least one Policy")]
    for index, policy in enumerate(policies):
        found += _policy(f"{field}.policies[{index}]", policy)
    tolerance: Any = rules.get("tolerance")
    return found + (quantity(f"{field}.tolerance", "", tolerance)[1] if tolerance is not None else [])


def _policy(field: str, policy: Obj) -> list[FieldError]:
    value, period = policy.get("value") or 0, policy.get("periodSeconds") or 0
    kind = policy.get("type") or ""
    found = [] if kind in _POLICIES else [not_supported(f"{field}.type", kind, _POLICIES)]
    found += [] if value > 0 else [invalid(f"{field}.value", value, "must be greater than zero")]
    found += [] if period > 0 else [invalid(f"{field}.periodSeconds", period, "must be greater than zero")]
    if period > _MAX_PERIOD:
        found.append(invalid(f"{field}.periodSeconds", period, f"must be less than or equal to {_MAX_PERIOD}"))
    return found
