"""Score nodes by their resources: NodeResourcesFit and NodeResourcesBalancedAllocation together.

Source: kube-scheduler 1.36's plugins of these names and their weights, as behaviour.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from haru.engine.framework.interfaces import NodeScorer
from haru.engine.framework.profile import FitStrategy, Profile
from haru.engine.framework.scores import MAX_SCORE, rounded
from haru.engine.state.node_info import NodeInfo
from haru.engine.state.pod_info import PodInfo

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
        if even and balance is not None:
            self._parts.append((even, balance))

    def key(self, node: NodeInfo) -> int:
        """Both scores of the node, weighted and added."""
        total = 0
        for weight, score in self._parts:
            total += weight * score(node)
        return total

    def scores(self, keys: Sequence[int], sizes: Sequence[int]) -> list[int]:
        """The keys are the scores."""
        del sizes
        return list(keys)
