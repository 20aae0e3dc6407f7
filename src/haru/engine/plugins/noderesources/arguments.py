"""Read NodeResourcesFitArgs and NodeResourcesBalancedAllocationArgs.

Source: the arguments of KubeSchedulerConfiguration v1 with their validation, as behaviour.
"""

from __future__ import annotations

from dataclasses import replace
from typing import cast, get_args

from haru.engine.framework.arguments import Arguments
from haru.engine.framework.profile import FitStrategy, Profile, Strategy
from haru.kube.errors import duplicate, invalid, not_supported, required
from haru.kube.validation.common import label_key


def read_fit_arguments(arguments: Arguments, profile: Profile) -> Profile:
    """Return the profile with the scoring strategy and the resources that filters ignore."""
    for index, group in enumerate(arguments.texts("ignoredResourceGroups")):
        if "/" in group:
            why = "resource group name can't contain '/'"
            arguments.findings.append(invalid(f"{arguments.at('ignoredResourceGroups')}[{index}]", group, why))
    for index, resource in enumerate(arguments.texts("ignoredResources")):
        arguments.findings += label_key(f"{arguments.at('ignoredResources')}[{index}]", resource)
    changed = replace(
        profile,
        ignored_resources=frozenset(arguments.texts("ignoredResources")),
        ignored_groups=frozenset(arguments.texts("ignoredResourceGroups")),
    )
    if not arguments.has("scoringStrategy"):
        return changed
    return replace(changed, fit=_strategy(arguments.part("scoringStrategy"), profile.fit))


def read_balanced_arguments(arguments: Arguments, profile: Profile) -> Profile:
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
