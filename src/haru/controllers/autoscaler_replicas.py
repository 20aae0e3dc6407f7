"""How many replicas one metric asks for: the arithmetic of the horizontal pod autoscaler. Pure.

Amounts are thousandths of a unit, as whole numbers. A pod without a sample counts as what changes least: as its target
where the others ask for fewer replicas, as nothing where they ask for more. So does a pod that is not ready yet.
Source: Kubernetes 1.36, pkg/controller/podautoscaler/replica_calculator.go, as behaviour.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from haru.controllers.objects import is_ready
from haru.kube.meta import Obj, get_condition, is_being_deleted, name_of, phase_of
from haru.kube.names import parse_time
from haru.kube.quantity import parse_quantity
from haru.kube.resources import is_pod_level_resource, pod_requests

INITIALIZATION: Final = timedelta(minutes=5)
"""For how long after its start the CPU of a pod counts only once it has been ready for a whole window."""
READINESS_DELAY: Final = timedelta(seconds=30)
"""A pod that stopped being ready within this time of its start was never ready."""
MOST_REPLICAS: Final = 2**31 - 1
_NO_PODS: Final = "no pods returned by selector while calculating replica count"
_NO_SAMPLES: Final = "did not receive metrics for targeted pods (pods might be unready)"


class UncountableError(Exception):
    """No replica count follows from a metric; the text says why."""


@dataclass(frozen=True, slots=True)
class Sample:
    """What one pod used, on average over the window that ends at `time`."""

    value: int
    time: datetime
    window: timedelta


Samples = Mapping[str, Sample]
"""Samples by the name of their pod."""


@dataclass(frozen=True, slots=True)
class Tolerances:
    """How far usage may be from its target, as a share of it, before anything is scaled."""

    down: float = 0.1
    up: float = 0.1

    def cover(self, ratio: float) -> bool:
        """Whether this ratio of usage to target is close enough to 1."""
        return 1.0 - self.down <= ratio <= 1.0 + self.up


@dataclass(frozen=True, slots=True)
class Scaled:
    """The workload that is scaled, at one moment."""

    replicas: int
    """What its scale asks for."""
    observed: int
    """What its scale says that there are."""
    pods: Sequence[Obj]
    now: datetime
    tolerances: Tolerances = Tolerances()
    pod_level: bool = True
    """Whether requests of whole pods count (PodLevelResources)."""


class Count(NamedTuple):
    """How many replicas a metric asks for, and what its status shows."""

    replicas: int
    amount: int
    utilization: int = 0
    """Percent of what the pods request."""


class _Usable(NamedTuple):
    """The samples that count, and the pods without one that counts."""

    values: Mapping[str, int]
    ready: int
    unready: frozenset[str]
    missing: frozenset[str]


def count_by_utilization(samples: Samples, scaled: Scaled, resource: str, container: str, target: int) -> Count:
    """Count by the usage of a resource in percent of what the pods, or one container of each, request."""
    usable = _usable(samples, scaled, resource)
    requests = {name_of(pod): _request(pod, container, resource, scaled.pod_level) for pod in scaled.pods}
    average, percent = _utilization(usable.values, requests)
    full = max(100, target)
    replicas = _replicas(
        usable,
        scaled,
        lambda values: _utilization(values, requests)[1] / target,
        lambda name: requests[name] * full // 100,
    )
    return Count(replicas, average, percent)


def count_by_average(samples: Samples, scaled: Scaled, target: int, resource: str = "") -> Count:
    """Count by the average of what the pods use."""
    usable = _usable(samples, scaled, resource)
    replicas = _replicas(usable, scaled, lambda values: _average(values) / target, lambda _: target)
    return Count(replicas, _average(usable.values))


def count_by_value(usage: int, scaled: Scaled, target: int) -> Count:
    """Count by one number for the whole workload, which is to come to its target."""
    ratio = usage / target
    if scaled.replicas == 0:
        return Count(_whole(ratio), usage)
    if scaled.tolerances.cover(ratio):
        return Count(scaled.replicas, usage)
    if not scaled.pods:
        raise UncountableError(f"unable to calculate ready pods: {_NO_PODS}")
    ready = sum(phase_of(pod) == "Running" and is_ready(pod) for pod in scaled.pods)
    return Count(_whole(ratio * ready), usage)


def count_by_share(usage: int, scaled: Scaled, target: int) -> Count:
    """Count by one number for the whole workload, of which each replica is to have its share."""
    if scaled.observed == 0:
        # Shared by nobody: 1.36 divides by zero here, and shows a number that overflowed.
        return Count(_whole(usage / target), usage)
    covered = scaled.tolerances.cover(usage / (target * scaled.observed))
    replicas = scaled.observed if covered else _whole(usage / target)
    return Count(replicas, math.ceil(usage / scaled.observed))


def _whole(count: float) -> int:
    return min(math.ceil(count), MOST_REPLICAS)


def _quotient(total: int, count: int) -> int:
    """`total / count` without its fraction: towards zero, also for a metric below zero."""
    return total // count if total >= 0 else -(-total // count)


def _average(values: Mapping[str, int]) -> int:
    return _quotient(sum(values.values()), len(values))


def _utilization(values: Mapping[str, int], requests: Mapping[str, int]) -> tuple[int, int]:
    """The average usage, and the usage in percent of the requests, of the pods that have both."""
    known = values.keys() & requests.keys()
    used, requested = sum(values[name] for name in known), sum(requests[name] for name in known)
    if not requested:
        raise UncountableError("no metrics returned matched known pods")
    return _quotient(used, len(known)), _quotient(used * 100, requested)


def _usable(samples: Samples, scaled: Scaled, resource: str) -> _Usable:
    if not scaled.pods:
        raise UncountableError(_NO_PODS)
    ready, ignored, unready, missing = 0, set[str](), set[str](), set[str]()
    for pod in scaled.pods:
        name, phase = name_of(pod), phase_of(pod)
        sample = samples.get(name)
        if is_being_deleted(pod) or phase == "Failed":
            ignored.add(name)
        elif phase == "Pending":
            unready.add(name)
        elif sample is None:
            missing.add(name)
        elif resource == "cpu" and _is_starting(pod, sample, scaled.now):
            unready.add(name)
        else:
            ready += 1
    values = {name: sample.value for name, sample in samples.items() if name not in ignored | unready}
    if not values:
        raise UncountableError(_NO_SAMPLES)
    return _Usable(values, ready, frozenset(unready), frozenset(missing))


def _is_starting(pod: Obj, sample: Sample, now: datetime) -> bool:
    """Whether what a pod used is what it takes to start, not to work."""
    condition, started = get_condition(pod, "Ready"), (pod.get("status") or {}).get("startTime")
    if condition is None or not started:
        return True
    unready, start = condition.get("status") == "False", parse_time(started)
    since = condition.get("lastTransitionTime")
    changed = parse_time(since) if since else datetime.min.replace(tzinfo=now.tzinfo)
    if start + INITIALIZATION > now:
        return unready or sample.time < changed + sample.window
    return unready and start + READINESS_DELAY > changed


def _replicas(
    usable: _Usable, scaled: Scaled, ratio: Callable[[Mapping[str, int]], float], target: Callable[[str], int]
) -> int:
    """Count by samples: first of those that are there, then with what the other pods are taken to use."""
    first = ratio(usable.values)
    starting = usable.unready if first > 1.0 else frozenset()
    if not starting and not usable.missing:
        return scaled.replicas if scaled.tolerances.cover(first) else _whole(first * usable.ready)
    assumed = dict(usable.values)
    if first != 1.0:
        assumed |= {name: target(name) if first < 1.0 else 0 for name in usable.missing}
    assumed |= dict.fromkeys(starting, 0)
    second = ratio(assumed)
    if scaled.tolerances.cover(second) or first < 1.0 < second or second < 1.0 < first:
        return scaled.replicas
    count = _whole(second * len(assumed))
    turned = count > scaled.replicas if second < 1.0 else count < scaled.replicas
    return scaled.replicas if turned else count


def _request(pod: Obj, container: str, resource: str, pod_level: bool) -> int:
    """What a pod, or one of its containers, requests."""
    spec, name = pod.get("spec") or {}, name_of(pod)
    own = (spec.get("resources") or {}).get("requests") or {}
    if pod_level and not container and any(map(is_pod_level_resource, own)):
        found = pod_requests(pod).get(resource)
        if found is None:
            raise UncountableError(f"missing pod-level request for {resource} in Pod {name}")
        return found.milli()
    chosen = [one for one in _running_on(spec) if container in ("", one["name"])]
    if container and not chosen:
        raise UncountableError(f"container {container} not found in Pod {name}")
    return sum(_container_request(one, resource, name) for one in chosen[: 1 if container else None])


def _running_on(spec: Obj) -> Iterable[Obj]:
    """The containers that run as long as their pod does."""
    yield from spec.get("containers") or ()
    yield from (one for one in spec.get("initContainers") or () if one.get("restartPolicy") == "Always")


def _container_request(container: Obj, resource: str, pod: str) -> int:
    request: Any = ((container.get("resources") or {}).get("requests") or {}).get(resource)
    if request is None:
        raise UncountableError(f"missing request for {resource} in container {container['name']} of Pod {pod}")
    return parse_quantity(request).milli()
