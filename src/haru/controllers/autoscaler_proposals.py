"""What each metric of an autoscaler proposes: reads it, counts replicas, and tells it as the status and messages do.

Source: Kubernetes 1.36, pkg/controller/podautoscaler/horizontal.go, as behaviour: reasons, messages, and which text
goes into the condition and the event (the inner one) and which into the summary (the outer one).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeVar

from haru.controllers.autoscaler_metrics import MetricsReader
from haru.controllers.autoscaler_replicas import (
    Count,
    Scaled,
    UncountableError,
    count_by_average,
    count_by_share,
    count_by_utilization,
    count_by_value,
)
from haru.kube.meta import Obj
from haru.kube.quantity import Quantity, parse_quantity
from haru.kube.selectors import label_selector_from, label_selector_struct, label_selector_text

T = TypeVar("T")
_MILLI: Final = 10**6
_NO_TARGET: Final = "invalid {} metric source: neither {} target was set"


class Proposal(NamedTuple):
    """How many replicas a metric asks for, what it is called in reasons, and its status."""

    replicas: int
    metric: str
    status: Obj


class MetricError(Exception):
    """A metric proposes nothing: `str()` is for the summary of all metrics, `told` for condition and event."""

    def __init__(self, reason: str, told: str, summary: str) -> None:
        super().__init__(summary)
        self.reason, self.told = reason, told


@dataclass(frozen=True, slots=True)
class Question:
    """What every metric of an autoscaler is asked about."""

    reader: MetricsReader
    namespace: str
    pods: str
    """The selector of the workload's pods, as text."""
    scaled: Scaled


class _Answer(NamedTuple):
    """A count, the name of the metric, and the members of its status."""

    counted: Count
    metric: str
    status: Obj


class _Source(NamedTuple):
    """One type of metric: its member, the reason of its failures, and what could not be had then."""

    member: str
    reason: str
    what: Callable[[Obj], str]
    answer: Callable[[Obj, Question], Awaitable[_Answer]]


async def propose(metric: Obj, question: Question) -> Proposal:
    """Ask for one entry of `spec.metrics`; MetricError says why it proposes nothing."""
    type_ = str(metric.get("type") or "")
    source = _SOURCES.get(type_)
    if source is None:
        text = f'unknown metric source type "{type_}"'
        raise MetricError("InvalidMetricSourceType", text, text)
    given = metric.get(source.member) or {}
    try:
        answer = await source.answer(given, question)
    except UncountableError as error:
        told = error.told if isinstance(error, _SummarizedError) else str(error)
        raise MetricError(source.reason, told, f"failed to get {source.what(given)}: {error}") from error
    return Proposal(answer.counted.replicas, answer.metric, {"type": type_, source.member: answer.status})


class _SummarizedError(UncountableError):
    """A failure whose summary says more than its condition."""

    def __init__(self, told: str, summary: str) -> None:
        super().__init__(summary)
        self.told = told


async def _read(reading: Awaitable[T], what: str, where: str = "") -> T:
    try:
        return await reading
    except UncountableError as error:
        raise UncountableError(f"{what}: {error}{where}") from error


# -- resources of pods and containers ---------------------------------------------------------------------------------


async def _of_pod_resource(source: Obj, question: Question) -> _Answer:
    return await _of_resource(source, question, "")


async def _of_container_resource(source: Obj, question: Question) -> _Answer:
    answer = await _of_resource(source, question, source["container"])
    return answer._replace(status={**answer.status, "container": source["container"]})


async def _of_resource(source: Obj, question: Question, container: str) -> _Answer:
    name, target = source["name"], source.get("target") or {}
    average, percent = target.get("averageValue"), int(target.get("averageUtilization") or 0)
    if average is None and not percent:
        raise UncountableError(
            _NO_TARGET.format("resource", "an average utilization target nor an average value (usage)")
        )
    try:
        reading = question.reader.of_resource(name, question.namespace, question.pods, container)
        samples = await _read(reading, f"unable to get metrics for resource {name}")
        if average is not None:
            count = count_by_average(samples, question.scaled, parse_quantity(average).milli(), name)
        else:
            count = count_by_utilization(samples, question.scaled, name, container, percent)
    except UncountableError as error:
        what = "usage" if average is not None else "utilization"
        raise UncountableError(f"failed to get {name} {what}: {error}") from error
    current: Obj = {"averageValue": _quantity(count.amount, name)}
    if average is not None:
        return _Answer(count, f"{name} resource", {"name": name, "current": current})
    current = {"averageUtilization": count.utilization, **current}
    whose = "container " if container else ""
    text = f"{name} {whose}resource utilization (percentage of request)"
    return _Answer(count, text, {"name": name, "current": current})


# -- custom and external metrics --------------------------------------------------------------------------------------


async def _of_pods(source: Obj, question: Question) -> _Answer:
    metric, selector = source["metric"], _selector_text(source["metric"])
    reading = question.reader.of_pods(metric["name"], question.namespace, question.pods, selector)
    samples = await _read(reading, f"unable to get metric {metric['name']}")
    target = parse_quantity((source.get("target") or {})["averageValue"]).milli()
    count = count_by_average(samples, question.scaled, target)
    current = {"averageValue": _quantity(count.amount)}
    return _Answer(count, f"pods metric {metric['name']}", {"metric": metric, "current": current})


async def _of_object(source: Obj, question: Question) -> _Answer:
    metric, target, about = source["metric"], source.get("target") or {}, source["describedObject"]
    name, selector = metric["name"], _selector_text(metric)
    kind = target.get("type")
    member = {"Value": "value", "AverageValue": "averageValue"}.get(str(kind), "")
    if target.get(member) is None:
        raise UncountableError(_NO_TARGET.format("object", "a value target nor an average value"))
    reading = question.reader.of_object(name, question.namespace, about, selector)
    where = f" on {about['kind']} {question.namespace}/{about['name']}"
    try:
        usage = await _read(reading, f"unable to get metric {name}", where)
        count = _count(usage, question.scaled, target, member)
    except UncountableError as error:
        if member == "value":
            raise
        raise _SummarizedError(str(error), f"failed to get {name} object metric: {error}") from error
    status = {"metric": metric, "current": {member: _quantity(count.amount)}, "describedObject": about}
    text = f"{about['kind']} metric {name}" if member == "value" else _external_name(metric)
    return _Answer(count, text, status)


async def _of_outside(source: Obj, question: Question) -> _Answer:
    metric, target = source["metric"], source.get("target") or {}
    name = metric["name"]
    member = next((one for one in ("averageValue", "value") if target.get(one) is not None), "")
    if not member:
        raise UncountableError(_NO_TARGET.format("external", "a value target nor an average value"))
    try:
        reading = question.reader.of_outside(name, question.namespace, _selector_text(metric))
        what = f"{question.namespace}/{name}/{label_selector_struct(metric.get('selector'))}"
        usage = await _read(reading, f"unable to get external metric {what}")
        count = _count(usage, question.scaled, target, member)
    except UncountableError as error:
        which = f"{name} external metric" if member == "averageValue" else f"external metric {name}"
        raise _SummarizedError(str(error), f"failed to get {which}: {error}") from error
    status = {"metric": metric, "current": {member: _quantity(count.amount)}}
    return _Answer(count, _external_name(metric), status)


def _count(usage: int, scaled: Scaled, target: Mapping[str, Any], member: str) -> Count:
    amount = parse_quantity(target[member]).milli()
    return (count_by_value if member == "value" else count_by_share)(usage, scaled, amount)


# -- texts ------------------------------------------------------------------------------------------------------------


def _quantity(milli: int, resource: str = "") -> str:
    return str(Quantity(milli * _MILLI, "BinarySI" if resource == "memory" else "DecimalSI"))


def _selector_text(metric: Obj) -> str:
    """The selector of a metric's series as a query has it; without one nothing is sent."""
    selector = metric.get("selector")
    try:
        label_selector_from(selector)
    except ValueError as error:
        raise UncountableError(str(error)) from error
    return label_selector_text(selector or {})


def _external_name(metric: Obj) -> str:
    return f"external metric {metric['name']}({label_selector_struct(metric.get('selector'))})"


_SOURCES: Final[Mapping[str, _Source]] = {
    "Object": _Source("object", "FailedGetObjectMetric", lambda _: "object metric value", _of_object),
    "Pods": _Source("pods", "FailedGetPodsMetric", lambda _: "pods metric value", _of_pods),
    "Resource": _Source(
        "resource",
        "FailedGetResourceMetric",
        lambda source: f"{source['name']} resource metric value",
        _of_pod_resource,
    ),
    "ContainerResource": _Source(
        "containerResource",
        "FailedGetContainerResourceMetric",
        lambda source: f"{source['container']} container metric value",
        _of_container_resource,
    ),
    "External": _Source(
        "external",
        "FailedGetExternalMetric",
        lambda source: f"{source['metric']['name']} external metric value",
        _of_outside,
    ),
}
