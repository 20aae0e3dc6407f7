"""Refuse and score nodes by resources: NodeResourcesFit and NodeResourcesBalancedAllocation.

Source: kube-scheduler 1.36's plugins of these names and the validation of its arguments, as behaviour.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any, cast, get_args

from haru.engine.framework.arguments import Arguments
from haru.engine.framework.cluster_event import ClusterEvent
from haru.engine.framework.interfaces import FilterRequest, NodeFilter, Scorer
from haru.engine.framework.profile import DEFAULT_PROFILE, FitStrategy, IgnoredResources, Profile, Strategy
from haru.engine.framework.status import FilterFailure, refuse
from haru.engine.plugins.noderesources.score import NodeResourcesScore
from haru.engine.plugins.score_request import ScoreRequest
from haru.engine.state.node_info import NodeInfo
from haru.engine.state.pod_info import PodInfo
from haru.kube.errors import duplicate, invalid, not_supported, required


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
