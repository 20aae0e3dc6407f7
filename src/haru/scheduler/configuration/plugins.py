"""Which plugins of a profile filter and score, and with which weight: the defaults, and what a file changes.

`multiPoint` enables a plugin wherever it has a part; an extension point's own list wins over it, and enabling wins over
disabling. Source: KubeSchedulerConfiguration v1, kube-scheduler 1.36's default plugins, as behaviour.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from haru.engine.framework import DEFAULT_PLUGINS, EXPECTED, FILTERS, PACKING, PLACEMENT_WEIGHTS, WEIGHTS
from haru.kube.errors import duplicate, forbidden, invalid, not_supported
from haru.scheduler.configuration.fields import Fields, suggestion

POINTS = (
    "preEnqueue",
    "queueSort",
    "preFilter",
    "filter",
    "postFilter",
    "preScore",
    "score",
    "reserve",
    "permit",
    "preBind",
    "bind",
    "postBind",
    "placementGenerate",
    "placementScore",
)
_NODE_FILTER = ("preFilter", "filter")
_NODE_SCORE = ("preScore", "score")
_EXTENDS: Mapping[str, tuple[str, ...]] = {plugin.name: plugin.extension_points for plugin in DEFAULT_PLUGINS}
_OFF_BY_DEFAULT = frozenset(plugin.name for plugin in DEFAULT_PLUGINS if not plugin.enabled)
_ESSENTIAL = {
    "SchedulingGates": "the API server refuses to bind gated pods",
    "PrioritySort": "it is the only order of the queue",
    "DynamicResources": "pods would be placed where their devices are not; disable it at score if you want to",
    "DefaultBinder": "nothing else binds pods",
}
_GONE = {
    "EBSLimits": "NodeVolumeLimits",
    "GCEPDLimits": "NodeVolumeLimits",
    "AzureDiskLimits": "NodeVolumeLimits",
    "CinderLimits": "NodeVolumeLimits",
    "SelectorSpread": "PodTopologySpread",
    "NodeResourcesLeastAllocated": "NodeResourcesFit with scoringStrategy LeastAllocated",
    "NodeResourcesMostAllocated": "NodeResourcesFit with scoringStrategy MostAllocated",
    "RequestedToCapacityRatio": "NodeResourcesFit with scoringStrategy RequestedToCapacityRatio",
}


@dataclass(frozen=True, slots=True)
class Selection:
    """What is enabled: filters, scores and placement scores with their weights, preemption, packing.

    `expected` is the weight of HaruExpected, 0 if it is not enabled.

    `explicit` are the plugins that the file enables by name.
    """

    filters: frozenset[str]
    weights: Mapping[str, int]
    placement_weights: Mapping[str, int]
    preemption: bool
    packing: bool
    expected: int = 0
    explicit: frozenset[str] = frozenset()


@dataclass(slots=True)
class _Set:
    """The two lists of an extension point: names with weights (0: none given), and what is disabled."""

    path: str
    enabled: dict[str, int]
    disabled: set[str]

    def leaves(self, name: str) -> bool:
        """Whether a plugin that is enabled elsewhere stays."""
        return "*" not in self.disabled and name not in self.disabled


def read_plugins(plugins: Fields) -> Selection:
    """The selection that a profile's `plugins` come to."""
    given = {point: _read_set(plugins.part(point), point) for point in (*POINTS, "multiPoint")}
    plugins.done()
    multi = given.pop("multiPoint")
    everywhere = _everywhere(multi)
    at = {point: _resolved(point, everywhere, chosen) for point, chosen in given.items()}
    _check_essential(plugins, at, given)
    for before, after in (_NODE_FILTER, _NODE_SCORE):
        _check_prepared(plugins, before, after, at, given)
    weights = {name: weight for name, weight in at["score"].items() if name in WEIGHTS}
    return Selection(
        filters=FILTERS & at["filter"].keys(),
        weights=weights,
        placement_weights=at["placementScore"],
        preemption="DefaultPreemption" in at["postFilter"],
        packing=PACKING in at["score"],
        expected=at["score"].get(EXPECTED, 0),
        explicit=frozenset(multi.enabled) | frozenset(given["score"].enabled),
    )


def _read_set(chosen: Fields, point: str) -> _Set:
    enabled: dict[str, int] = {}
    for plugin in chosen.parts("enabled"):
        name = plugin.need("name")
        weight = plugin.integer("weight", 0) or 0
        plugin.done()
        _check_name(plugin, name, point)
        if name in enabled:
            plugin.findings.append(duplicate(plugin.at("name"), name))
        if weight < 0:
            plugin.findings.append(invalid(plugin.at("weight"), weight, "must be 1 or more"))
        enabled[name] = weight
    disabled: set[str] = set()
    for plugin in chosen.parts("disabled"):
        name = plugin.need("name")
        plugin.skip("weight")
        plugin.done()
        if name != "*" and name not in _GONE:
            _check_name(plugin, name, point)
        disabled.add(name)
    chosen.done()
    return _Set(chosen.path, enabled, disabled)


def _check_name(plugin: Fields, name: str, point: str) -> None:
    if not name:
        return
    if name in _GONE:
        plugin.findings.append(forbidden(plugin.at("name"), f"plugin {name} is gone in 1.36: use {_GONE[name]}"))
    elif name not in _EXTENDS:
        plugin.findings.append(forbidden(plugin.at("name"), f'"{name}": no such plugin{suggestion(name, _EXTENDS)}'))
    elif point != "multiPoint" and point not in _EXTENDS[name]:
        plugin.findings.append(not_supported(plugin.at("name"), name, _extending(point)))


def _extending(point: str) -> list[str]:
    return sorted(name for name, points in _EXTENDS.items() if point in points)


def _everywhere(chosen: _Set) -> dict[str, int | None]:
    """What is enabled at all points where it has a part, with the weight that was given; None: the default one."""
    kept = {name: None for name in _EXTENDS if name not in _OFF_BY_DEFAULT and chosen.leaves(name)}
    return {**kept, **{name: weight or 1 for name, weight in chosen.enabled.items()}}


def _resolved(point: str, everywhere: Mapping[str, int | None], chosen: _Set) -> dict[str, int]:
    """What is enabled at one point, with weights."""
    usual = PLACEMENT_WEIGHTS if point == "placementScore" else WEIGHTS
    found = {
        name: usual.get(name, 1) if weight is None else weight
        for name, weight in everywhere.items()
        if point in _EXTENDS.get(name, ()) and chosen.leaves(name)
    }
    for name, weight in chosen.enabled.items():
        found[name] = weight or 1
    return found


def _check_essential(plugins: Fields, at: Mapping[str, Mapping[str, int]], given: Mapping[str, _Set]) -> None:
    for name, why in _ESSENTIAL.items():
        for point in _EXTENDS[name]:
            if point not in ("score", "postFilter") and name not in at[point]:
                path = given[point].path if not given[point].leaves(name) else plugins.at("multiPoint")
                plugins.findings.append(forbidden(f"{path}.disabled", f"plugin {name} cannot be disabled: {why}"))
                break


def _check_prepared(
    plugins: Fields, before: str, after: str, at: Mapping[str, Mapping[str, int]], given: Mapping[str, _Set]
) -> None:
    """A plugin that filters or scores prepares that at the point before."""
    for name, points in _EXTENDS.items():
        if before in points and name in at[after] and name not in at[before]:
            why = f"plugin {name} prepares there what it does at {after}: disable it at {after} too, or at multiPoint"
            plugins.findings.append(forbidden(f"{given[before].path}.disabled", why))
