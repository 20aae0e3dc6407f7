"""Arguments of plugins: what `pluginConfig` says of one profile.

Source: the plugin arguments of KubeSchedulerConfiguration v1 with their validation, as behaviour.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast, get_args

from haru.engine.profile import SYSTEM_SPREAD, FitStrategy, Profile, Strategy
from haru.kube.errors import duplicate, forbidden, invalid, not_supported, required
from haru.kube.validation.common import label_key
from haru.kube.validation.selectors import validate_node_selector, validate_node_selector_term
from haru.scheduler.configuration.fields import Fields, suggestion

_API_VERSION = "kubescheduler.config.k8s.io/v1"
_WHEN = ("DoNotSchedule", "ScheduleAnyway")
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def read_plugin_config(entries: list[Fields], profile: Profile) -> Profile:
    """The profile with the arguments of its plugins."""
    seen: set[str] = set()
    for entry in entries:
        name = entry.need("name")
        arguments = entry.part("args")
        entry.done()
        if name in seen:
            entry.findings.append(duplicate(entry.at("name"), name))
        elif name in _READERS:
            _check_type(arguments, name)
            profile = _READERS[name](arguments, profile)
            arguments.done()
        elif name:
            why = f'"{name}": no plugin of this name takes arguments{suggestion(name, _READERS)}'
            entry.findings.append(forbidden(entry.at("name"), why))
        seen.add(name)
    return profile


def _check_type(arguments: Fields, plugin: str) -> None:
    for name, wanted in (("apiVersion", _API_VERSION), ("kind", f"{plugin}Args")):
        given = arguments.text(name, wanted)
        if given != wanted:
            arguments.findings.append(invalid(arguments.at(name), given, f'must be "{wanted}"'))


def _fit(arguments: Fields, profile: Profile) -> Profile:
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


def _strategy(strategy: Fields, default: FitStrategy) -> FitStrategy:
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


def _resources(owner: Fields, most: int = 100) -> tuple[tuple[str, int], ...]:
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


def _shape(ratio: Fields) -> tuple[tuple[int, int], ...]:
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


def _balanced(arguments: Fields, profile: Profile) -> Profile:
    resources = _resources(arguments, most=1)
    return replace(profile, balanced=tuple(name for name, _ in resources)) if resources else profile


def _spread(arguments: Fields, profile: Profile) -> Profile:
    listed = arguments.parts("defaultConstraints")
    kind = arguments.text("defaultingType", "System")
    if kind not in ("List", "System"):
        arguments.findings.append(not_supported(arguments.at("defaultingType"), kind, ("List", "System")))
    elif kind == "System" and listed:
        why = "when .defaultConstraints are not empty: write List"
        arguments.findings.append(invalid(arguments.at("defaultingType"), kind, why))
    constraints = tuple(_constraint(entry) for entry in listed)
    pairs = [(c["topologyKey"], c["whenUnsatisfiable"]) for c in constraints]
    for index, (key, when) in enumerate(pairs):
        if (key, when) in pairs[:index]:
            arguments.findings.append(duplicate(f"{arguments.at('defaultConstraints')}[{index}]", f"{{{key}, {when}}}"))
    if kind == "List":
        return replace(profile, default_spread=constraints, system_spread=False)
    return replace(profile, default_spread=SYSTEM_SPREAD, system_spread=True)


def _constraint(entry: Fields) -> dict[str, Any]:
    skew, key, when = entry.integer("maxSkew", 0) or 0, entry.need("topologyKey"), entry.need("whenUnsatisfiable")
    if skew <= 0:
        entry.findings.append(invalid(entry.at("maxSkew"), skew, "not in valid range (0, inf)"))
    if key:
        entry.findings += label_key(entry.at("topologyKey"), key)
    if when and when not in _WHEN:
        entry.findings.append(not_supported(entry.at("whenUnsatisfiable"), when, _WHEN))
    entry.refuse("labelSelector", "constraint must not define a selector, as they deduced for each pod")
    found: dict[str, Any] = {"maxSkew": skew, "topologyKey": key, "whenUnsatisfiable": when}
    if entry.has("minDomains"):
        found["minDomains"] = entry.integer("minDomains")
    for name in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
        if entry.has(name):
            found[name] = entry.text(name)
            if found[name] not in ("Honor", "Ignore"):
                entry.findings.append(not_supported(entry.at(name), found[name], ("Honor", "Ignore")))
    if entry.has("matchLabelKeys"):
        found["matchLabelKeys"] = entry.texts("matchLabelKeys")
    entry.done()
    return found


def _node_affinity(arguments: Fields, profile: Profile) -> Profile:
    added = arguments.part("addedAffinity")
    affinity: dict[str, Any] = {}
    if added.has(_REQUIRED):
        selector = added.take(_REQUIRED)
        affinity[_REQUIRED] = selector
        added.findings += validate_node_selector(added.at(_REQUIRED), selector)
    for entry in added.parts(_PREFERRED):
        weight, preference = entry.integer("weight", 0) or 0, entry.take("preference") or {}
        entry.done()
        if not 1 <= weight <= 100:
            entry.findings.append(invalid(entry.at("weight"), weight, "must be in the range 1-100"))
        entry.findings += validate_node_selector_term(entry.at("preference"), preference)
        affinity.setdefault(_PREFERRED, []).append({"weight": weight, "preference": preference})
    added.done()
    return replace(profile, added_affinity=affinity or None)


def _inter_pod(arguments: Fields, profile: Profile) -> Profile:
    weight = arguments.integer("hardPodAffinityWeight", 1)
    assert weight is not None
    if not 0 <= weight <= 100:
        arguments.findings.append(invalid(arguments.at("hardPodAffinityWeight"), weight, "not in valid range [0, 100]"))
    ignore = arguments.flag("ignorePreferredTermsOfExistingPods")
    return replace(profile, hard_affinity_weight=weight, ignore_preferred_of_existing=ignore)


def _preemption(arguments: Fields, profile: Profile) -> Profile:
    """How many candidates are tried: here all are, so the numbers are checked and change nothing."""
    share = arguments.integer("minCandidateNodesPercentage", 10)
    count = arguments.integer("minCandidateNodesAbsolute", 100)
    if share is not None and not 0 <= share <= 100:
        name = arguments.at("minCandidateNodesPercentage")
        arguments.findings.append(invalid(name, share, "not in valid range [0, 100]"))
    if count is not None and count < 0:
        name = arguments.at("minCandidateNodesAbsolute")
        arguments.findings.append(invalid(name, count, "not in valid range [0, inf)"))
    if share == 0 and count == 0:
        name = arguments.at("minCandidateNodesPercentage")
        why = "cannot be zero at the same time as minCandidateNodesAbsolute"
        arguments.findings.append(invalid(name, share, why))
    return profile


def _volume_binding(arguments: Fields, profile: Profile) -> Profile:
    """Volumes are not bound late, so there is nothing to wait for."""
    seconds = arguments.integer("bindTimeoutSeconds", 600)
    if seconds is not None and seconds < 0:
        why = "invalid BindTimeoutSeconds, should not be a negative value"
        arguments.findings.append(invalid(arguments.at("bindTimeoutSeconds"), seconds, why))
    arguments.refuse("shape", "needs the feature gate StorageCapacityScoring, which is not there")
    return profile


def _devices(arguments: Fields, profile: Profile) -> Profile:
    """The search of devices is bounded by steps, not by time; binding conditions are not waited for."""
    if arguments.seconds("filterTimeout", 10.0) < 0:
        arguments.findings.append(invalid(arguments.at("filterTimeout"), "", "must be zero or positive"))
    if arguments.seconds("bindingTimeout", 600.0) < 1:
        arguments.findings.append(invalid(arguments.at("bindingTimeout"), "", "must be at least 1 second"))
    return profile


_READERS: dict[str, Callable[[Fields, Profile], Profile]] = {
    "NodeResourcesFit": _fit,
    "NodeResourcesBalancedAllocation": _balanced,
    "PodTopologySpread": _spread,
    "NodeAffinity": _node_affinity,
    "InterPodAffinity": _inter_pod,
    "DefaultPreemption": _preemption,
    "VolumeBinding": _volume_binding,
    "DynamicResources": _devices,
}
