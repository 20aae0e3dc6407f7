"""Refuse and score nodes by resources: NodeResourcesFit and NodeResourcesBalancedAllocation.

Source: kube-scheduler 1.36's plugins of these names and the validation of its arguments, as behaviour.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, cast, get_args

from haru.engine.framework.arguments import Arguments
from haru.engine.framework.cluster_event import ClusterEvent
from haru.engine.framework.interfaces import (
    MAX_SCORE,
    FilterFailure,
    FilterRequest,
    NodeFilter,
    NodeScorer,
    PluginScore,
    Scorer,
    refuse,
    rounded,
)
from haru.engine.framework.profile import DEFAULT_PROFILE, FitStrategy, IgnoredResources, Profile, Strategy
from haru.engine.plugins.score_request import ScoreRequest
from haru.engine.state.node_info import NodeInfo
from haru.engine.state.pod_info import PodInfo
from haru.kube.errors import duplicate, invalid, not_supported, required

NodeScore = Callable[[NodeInfo], int]
_NATIVE = ("cpu", "memory", "ephemeral-storage")
_SHAPE_SCALE = 10
"""A shape's scores go up to 10."""


def fit_score(strategy: FitStrategy, pod: PodInfo) -> NodeScore:
    """The score of NodeResourcesFit, a function of the node."""
    of_resource = _OF_RESOURCE.get(strategy.type) or _broken_line(strategy.shape)
    ratio = strategy.type == "RequestedToCapacityRatio"
    asked = [_asked(pod, name, weight) for name, weight in strategy.resources]
    counted = [entry for entry in asked if entry.amount or entry.place is not None or entry.name in _NATIVE]

    def score(node: NodeInfo) -> int:
        total = weights = 0
        allocatable = node.spec.allocatable
        for name, weight, amount, place in counted:
            capacity = allocatable.get(name, 0)
            if not capacity:
                continue
            used = node.scoring_requested[place] if place is not None else node.requested.get(name, 0)
            value = of_resource(used + amount, capacity)
            if ratio and value <= 0:
                continue
            total += value * weight
            weights += weight
        if not weights:
            return 0
        return rounded(total / weights) if ratio else total // weights

    return score


class _Asked(NamedTuple):
    """What a pod asks of a resource, as it is scored; `place` is that of cpu and memory among the scored amounts."""

    name: str
    weight: int
    amount: int
    place: int | None


def _asked(pod: PodInfo, name: str, weight: int) -> _Asked:
    if name in ("cpu", "memory"):
        place = 0 if name == "cpu" else 1
        return _Asked(name, weight, pod.scoring_requests[place], place)
    return _Asked(name, weight, pod.requests.get(name, 0), None)


def _least(asked: int, capacity: int) -> int:
    return (capacity - asked) * MAX_SCORE // capacity if asked <= capacity else 0


def _most(asked: int, capacity: int) -> int:
    return min(asked, capacity) * MAX_SCORE // capacity


_OF_RESOURCE: dict[str, Callable[[int, int], int]] = {"LeastAllocated": _least, "MostAllocated": _most}


def _broken_line(shape: Sequence[tuple[int, int]]) -> Callable[[int, int], int]:
    points = [(utilization, score * _SHAPE_SCALE) for utilization, score in shape]

    def of(asked: int, capacity: int) -> int:
        used = asked * MAX_SCORE // capacity if asked <= capacity else MAX_SCORE
        for (left, low), (right, high) in zip([points[0], *points], points, strict=False):
            if used <= right:
                return high if left == right else low + math.trunc((high - low) * (used - left) / (right - left))
        return points[-1][1]

    return of


def balance_score(resources: Sequence[str], pod: PodInfo) -> NodeScore | None:
    """The score of NodeResourcesBalancedAllocation: 75 if the pod leaves the balance as it is, more if it mends it.

    None for a pod that asks for none of the resources, which would pile up where the balance is best.
    """
    if not any(pod.requests.get(name) for name in resources):
        return None

    counted = [(name, pod.requests.get(name, 0)) for name in resources if pod.requests.get(name) or name in _NATIVE]
    half = MAX_SCORE // 2

    def score(node: NodeInfo) -> int:
        before: list[float] = []
        after: list[float] = []
        allocatable, requested = node.spec.allocatable, node.requested
        for name, asked in counted:
            capacity = allocatable.get(name, 0)
            if capacity:
                used = requested.get(name, 0)
                # Quotients of integers are rounded once, as those of exact doubles are.
                before.append(used / capacity if used < capacity else 1.0)
                after.append((used + asked) / capacity if used + asked < capacity else 1.0)
        return half + (half + _evenness(after) - _evenness(before)) // 2

    return score


def _evenness(shares: Sequence[float]) -> int:
    """100 less the standard deviation of the shares in percent."""
    spread = 0.0
    if len(shares) == 2:
        spread = abs((shares[0] - shares[1]) / 2)
    elif len(shares) > 2:
        total = 0.0
        for share in shares:
            total += share
        mean = total / float(len(shares))
        squares = 0.0
        for share in shares:
            squares = squares + (share - mean) * (share - mean)
        spread = math.sqrt(squares / float(len(shares)))
    return int((1 - spread) * float(MAX_SCORE))


class NodeResourcesScore(NodeScorer):
    """NodeResourcesFit and NodeResourcesBalancedAllocation, weighted: they are compared without being normalised."""

    weight = 1

    def __init__(self, profile: Profile, pod: PodInfo) -> None:
        balance = balance_score(profile.balanced, pod)
        fit, even = profile.weight("NodeResourcesFit"), profile.weight("NodeResourcesBalancedAllocation")
        self._parts = [(fit, fit_score(profile.fit, pod))] if fit else []
        self._names = ["NodeResourcesFit"] if fit else []
        if even and balance is not None:
            self._parts.append((even, balance))
            self._names.append("NodeResourcesBalancedAllocation")

    def key(self, node: NodeInfo) -> int:
        """Both scores of the node, weighted and added."""
        total = 0
        for weight, score in self._parts:
            total += weight * score(node)
        return total

    def by_plugin(self, node: NodeInfo) -> list[PluginScore]:
        """Both scores of the node, each by itself."""
        named = zip(self._names, self._parts, strict=True)
        return [PluginScore(name, weight, score(node)) for name, (weight, score) in named]

    def scores(self, keys: Sequence[int], sizes: Sequence[int]) -> list[int]:
        """The keys are the scores."""
        del sizes
        return list(keys)


def node_resources_fit(pod: PodInfo, backed: Collection[str] = (), profile: Profile = DEFAULT_PROFILE) -> NodeFilter:
    """Refuse nodes with too little left of a requested resource; a zero request never fails.

    `backed` are extended resources with a DeviceClass behind them: where the node does not advertise one itself,
    devices are allocated for it, and this is not the filter to say whether there are any (KEP-5004).
    """
    requests = sorted((name, amount) for name, amount in pod.requests.items() if not profile.ignores(name))

    def check(node: NodeInfo) -> Sequence[FilterFailure]:
        failures: list[FilterFailure] = []
        offered, requested = node.spec.allocatable, node.requested
        room = offered.get("pods")
        if room is not None and len(node.pods) + 1 > room:
            failures.append(_too_many_pods(len(node.pods), room))
        for name, amount in requests:
            allocatable = offered.get(name, 0)
            if name in backed and not allocatable:
                continue
            used = requested.get(name, 0)
            if amount > allocatable - used:
                data: dict[str, Any] = {
                    "resource": name,
                    "requested": amount,
                    "used": used,
                    "allocatable": allocatable,
                }
                possible = amount <= allocatable
                failures.append(
                    refuse(
                        "NodeResourcesFit", "InsufficientResource", f"Insufficient {name}", data, resolvable=possible
                    )
                )
        return failures

    return check


def _too_many_pods(used: int, room: int) -> FilterFailure:
    data = {"resource": "pods", "requested": 1, "used": used, "allocatable": room}
    return refuse("NodeResourcesFit", "TooManyPods", "Too many pods", data, resolvable=room > 0)


class NodeResourcesFit:
    """Refuse and score nodes by resources.

    The scorer serves NodeResourcesBalancedAllocation too: neither score is normalised, so one key has both.
    """

    name = "NodeResourcesFit"
    events = frozenset(
        {
            ClusterEvent.NODE_ADD,
            ClusterEvent.NODE_ALLOCATABLE,
            ClusterEvent.POD_DELETE,
            ClusterEvent.POD_SCALE,
            ClusterEvent.DEVICE_CLASS,
        }
    )
    general = True

    def filters(self, request: FilterRequest) -> Sequence[NodeFilter | None]:
        """Make the filter for the pod's requests."""
        return (node_resources_fit(request.pod, request.backed, request.profile),)

    def scorer(self, request: ScoreRequest) -> Scorer | None:
        """Make the scorer of both plugins, with their weights in the keys."""
        return NodeResourcesScore(request.profile, request.pod)

    def read_arguments(self, arguments: Arguments, profile: Profile) -> Profile:
        """Return the profile with the scoring strategy and the resources that filters ignore."""
        for index, group in enumerate(arguments.texts("ignoredResourceGroups")):
            if "/" in group:
                why = "resource group name can't contain '/'"
                arguments.findings.append(invalid(f"{arguments.at('ignoredResourceGroups')}[{index}]", group, why))
        for index, resource in enumerate(arguments.texts("ignoredResources")):
            arguments.check_label_key(f"{arguments.at('ignoredResources')}[{index}]", resource)
        changed = replace(
            profile,
            ignored=IgnoredResources(
                frozenset(arguments.texts("ignoredResources")), frozenset(arguments.texts("ignoredResourceGroups"))
            ),
        )
        if not arguments.has("scoringStrategy"):
            return changed
        return replace(changed, fit=_strategy(arguments.part("scoringStrategy"), profile.fit))


class NodeResourcesBalancedAllocation:
    """Score nodes by how evenly their resources are used; the scorer of NodeResourcesFit computes it."""

    name = "NodeResourcesBalancedAllocation"
    events: frozenset[ClusterEvent] = frozenset()

    def read_arguments(self, arguments: Arguments, profile: Profile) -> Profile:
        """Return the profile with the resources to balance; the defaults if none are listed."""
        resources = _resources(arguments, most=1)
        return replace(profile, balanced=tuple(name for name, _ in resources)) if resources else profile


def _strategy(strategy: Arguments, default: FitStrategy) -> FitStrategy:
    kind = strategy.text("type", default.type)
    if kind not in get_args(Strategy):
        strategy.findings.append(not_supported(strategy.at("type"), kind, get_args(Strategy)))
        kind = default.type
    resources = _resources(strategy) or default.resources
    shape: tuple[tuple[int, int], ...] = ()
    if kind == "RequestedToCapacityRatio":
        if not strategy.has("requestedToCapacityRatio"):
            why = "must be specified when type is RequestedToCapacityRatio"
            strategy.findings.append(required(strategy.at("requestedToCapacityRatio"), why))
        ratio = strategy.part("requestedToCapacityRatio")
        shape = _shape(ratio)
        ratio.done()
    else:
        strategy.refuse("requestedToCapacityRatio", "must be nil when type is not RequestedToCapacityRatio")
    strategy.done()
    return FitStrategy(cast(Strategy, kind), resources, shape)


def _resources(owner: Arguments, most: int = 100) -> tuple[tuple[str, int], ...]:
    found: dict[str, int] = {}
    for entry in owner.parts("resources"):
        name, weight = entry.need("name"), entry.integer("weight", 0) or 1
        entry.done()
        if not 1 <= weight <= most:
            why = f"resource weight of {name} not in valid range (0, {most}]" if most > 1 else "must be 1"
            entry.findings.append(invalid(entry.at("weight"), weight, why))
        if name in found:
            entry.findings.append(duplicate(entry.at("name"), name))
        found[name] = weight
    return tuple(found.items())


def _shape(ratio: Arguments) -> tuple[tuple[int, int], ...]:
    points: list[tuple[int, int]] = []
    for point in ratio.parts("shape"):
        utilization, score = point.integer("utilization", 0) or 0, point.integer("score", 0) or 0
        point.done()
        if not 0 <= utilization <= 100:
            point.findings.append(invalid(point.at("utilization"), utilization, "not in valid range [0, 100]"))
        if not 0 <= score <= 10:
            point.findings.append(invalid(point.at("score"), score, "not in valid range [0, 10]"))
        if points and utilization <= points[-1][0]:
            why = "values must be sorted in increasing order"
            point.findings.append(invalid(point.at("utilization"), utilization, why))
        points.append((utilization, score))
    if not points:
        ratio.findings.append(required(ratio.at("shape"), "at least one point must be specified"))
    return tuple(points)
