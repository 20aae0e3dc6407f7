"""HorizontalPodAutoscaler between autoscaling/v1 and autoscaling/v2.

v1 has a field for one metric, the CPU utilization; whatever else v2 says travels through v1 as JSON in annotations
(`autoscaling.alpha.kubernetes.io/…`), so that a client of v1 loses nothing when it writes back what it read. What
they say of `behavior` has Go's names of the fields, as in 1.36.
"""

from __future__ import annotations

import json
from typing import Any

from haru.kube.meta import Obj

_PREFIX = "autoscaling.alpha.kubernetes.io/"
_METRICS, _CURRENT, _CONDITIONS, _BEHAVIOR = (
    _PREFIX + name for name in ("metrics", "current-metrics", "conditions", "behavior")
)

DEFAULT_UTILIZATION = 80
"""Percent of the CPU that an autoscaler without metrics aims at."""


def autoscaler_as_v2(autoscaler: Obj) -> Obj:
    """An autoscaler of either version, in v2."""
    return autoscaler_to_v2(autoscaler) if autoscaler.get("apiVersion") == "autoscaling/v1" else autoscaler


def autoscaler_to_v2(autoscaler: Obj) -> Obj:
    """v1 to v2: the CPU target becomes a metric, the annotations become the fields they stand for."""
    metadata = autoscaler.get("metadata") or {}
    annotations = metadata.get("annotations") or {}
    spec = dict(autoscaler.get("spec") or {})
    status = dict(autoscaler.get("status") or {})
    metrics = [_metric_to_v2(metric, "target") for metric in _carried(annotations, _METRICS, [])]
    percentage = spec.pop("targetCPUUtilizationPercentage", None)
    if percentage is not None:
        metrics.append(_cpu({"target": {"type": "Utilization", "averageUtilization": percentage}}))
    # Without any, v1 means the default of v2.
    spec["metrics"] = metrics or [_cpu({"target": {"type": "Utilization", "averageUtilization": DEFAULT_UTILIZATION}})]
    behavior = _behavior_to_v2(_carried(annotations, _BEHAVIOR, None))
    if behavior:
        spec["behavior"] = behavior
    current = [_metric_to_v2(metric, "current") for metric in _carried(annotations, _CURRENT, [])]
    percentage = status.pop("currentCPUUtilizationPercentage", None)
    if percentage is not None and not any(_cpu_utilization(metric, "current") is not None for metric in current):
        current.append(_cpu({"current": {"averageUtilization": percentage}}))
    if current:
        status["currentMetrics"] = current
    conditions = _carried(annotations, _CONDITIONS, None)
    if conditions:
        status["conditions"] = conditions
    kept = {name: text for name, text in annotations.items() if not name.startswith(_PREFIX)}
    return _assembled(autoscaler, metadata, kept, spec, status)


def autoscaler_to_v1(autoscaler: Obj) -> Obj:
    """v2 to v1: what v1 has no field for goes into annotations."""
    metadata = autoscaler.get("metadata") or {}
    annotations = dict(metadata.get("annotations") or {})
    spec = dict(autoscaler.get("spec") or {})
    status = dict(autoscaler.get("status") or {})
    others = []
    for metric in spec.pop("metrics", None) or ():
        percentage = _cpu_utilization(metric, "target")
        if percentage is not None and "targetCPUUtilizationPercentage" not in spec:
            spec["targetCPUUtilizationPercentage"] = percentage
        else:
            others.append(_metric_to_v1(metric, "target"))
    current = []
    for metric in status.pop("currentMetrics", None) or ():
        percentage = _cpu_utilization(metric, "current")
        if percentage is not None and "currentCPUUtilizationPercentage" not in status:
            status["currentCPUUtilizationPercentage"] = percentage
        current.append(_metric_to_v1(metric, "current"))
    carried = {
        _METRICS: others,
        _CURRENT: current,
        _CONDITIONS: status.pop("conditions", None),
        _BEHAVIOR: _behavior_to_v1(spec.pop("behavior", None)),
    }
    annotations.update({name: json.dumps(value, separators=(",", ":")) for name, value in carried.items() if value})
    return _assembled(autoscaler, metadata, annotations, spec, status)


def carries_metrics(autoscaler: Obj) -> bool:
    """Whether an autoscaler of v1 has metrics in its annotations."""
    return bool(_carried((autoscaler.get("metadata") or {}).get("annotations") or {}, _METRICS, []))


def _assembled(autoscaler: Obj, metadata: Obj, annotations: Obj, spec: Obj, status: Obj) -> Obj:
    metadata = {name: value for name, value in metadata.items() if name != "annotations"}
    if annotations:
        metadata["annotations"] = annotations
    out = {**autoscaler, "metadata": metadata, "spec": spec}
    if status or "status" in autoscaler:
        out["status"] = status
    return out


def _carried(annotations: Obj, name: str, absent: Any) -> Any:
    """What the annotation carries; text that is not JSON carries nothing."""
    try:
        return json.loads(annotations[name]) if name in annotations else absent
    except ValueError:
        return absent


def _behavior_to_v1(behavior: Obj | None) -> Obj | None:
    """A behavior as its annotation has it: under the names of Go, and whole."""
    rules = ("stabilizationWindowSeconds", "selectPolicy", "policies", "tolerance")
    policy = ("type", "value", "periodSeconds")
    made: Obj = {}
    for member in ("scaleUp", "scaleDown") if behavior else ():
        found: Obj | None = (behavior or {}).get(member)
        if found is not None:
            policies = [{_go_name(name): one.get(name) for name in policy} for one in found.get("policies") or ()]
            found = {_go_name(name): policies or None if name == "policies" else found.get(name) for name in rules}
        made[_go_name(member)] = found
    return made or None


def _behavior_to_v2(value: Any) -> Any:
    """What the annotation says, under names of either case."""
    if isinstance(value, list):
        return [_behavior_to_v2(one) for one in value]
    if not isinstance(value, dict):
        return value
    return {name[:1].lower() + name[1:]: _behavior_to_v2(one) for name, one in value.items() if one is not None}


def _go_name(name: str) -> str:
    return name[:1].upper() + name[1:]


def _cpu(values: Obj) -> Obj:
    return {"type": "Resource", "resource": {"name": "cpu", **values}}


def _cpu_utilization(metric: Obj, side: str) -> int | None:
    """The utilization of a metric that v1 has a field for, else None."""
    resource = metric.get("resource") or {}
    if metric.get("type") != "Resource" or resource.get("name") != "cpu":
        return None
    value: int | None = (resource.get(side) or {}).get("averageUtilization")
    return value


def _source(metric: Obj) -> tuple[str, Obj]:
    """The member of a metric that its type names."""
    kind = str(metric.get("type") or "")
    member = kind[:1].lower() + kind[1:]
    return member, metric.get(member) or {}


def _present(**values: Any) -> Obj:
    return {name: value for name, value in values.items() if value is not None}


def _metric_to_v2(metric: Obj, side: str) -> Obj:
    """A metric of v1 in v2; `side` is what of it: its `target`, or its `current` values."""
    member, old = _source(metric)
    values = _present(
        value=old.get(f"{side}Value"),
        averageValue=old.get(f"{side}AverageValue", old.get("averageValue")),
        averageUtilization=old.get(f"{side}AverageUtilization"),
    )
    if side == "target":
        names = {"averageUtilization": "Utilization", "averageValue": "AverageValue", "value": "Value"}
        values["type"] = next((names[name] for name in names if name in values), "Value")
    return {"type": metric.get("type"), member: {**_identity_to_v2(member, old), side: values}}


def _metric_to_v1(metric: Obj, side: str) -> Obj:
    member, new = _source(metric)
    of_side = new.get(side) or {}
    values = {
        f"{side}Value": of_side.get("value"),
        "averageValue" if member == "object" else f"{side}AverageValue": of_side.get("averageValue"),
        f"{side}AverageUtilization": of_side.get("averageUtilization"),
    }
    source = {**_identity_to_v1(member, new), **_present(**values)}
    if "container" in source:
        source["container"] = source.pop("container")  # it stands last
    return {"type": metric.get("type"), member: source}


def _identity_to_v2(member: str, old: Obj) -> Obj:
    """Which series a metric reads."""
    if member in ("resource", "containerResource"):
        return _present(name=old.get("name"), container=old.get("container"))
    selector = old.get("metricSelector") if member == "external" else old.get("selector")
    return _present(metric=_present(name=old.get("metricName"), selector=selector), describedObject=old.get("target"))


def _identity_to_v1(member: str, new: Obj) -> Obj:
    if member in ("resource", "containerResource"):
        return _present(name=new.get("name"), container=new.get("container"))
    metric = new.get("metric") or {}
    values = {
        "metricName": metric.get("name"),
        "metricSelector" if member == "external" else "selector": metric.get("selector"),
        "target": new.get("describedObject"),
    }
    return _present(**values)
