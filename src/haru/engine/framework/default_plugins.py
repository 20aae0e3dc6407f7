"""List the plugins of the default profile with their extension points and weights.

The names, the order and the weights are those of kube-scheduler 1.36; HaruPacking and HaruExpected are our own and are
off by default. Source: kube-scheduler's default plugins (apis/config/v1) and the interfaces that each plugin has.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

PACKING = "HaruPacking"
EXPECTED = "HaruExpected"


class DefaultPlugin(NamedTuple):
    """One plugin. Weights are 0 where its score is not used by default."""

    name: str
    extension_points: tuple[str, ...]
    weight: int = 0
    placement_weight: int = 0
    enabled: bool = True


_FILTER = ("preFilter", "filter")
_SCORE = ("preScore", "score")
DEFAULT_PLUGINS: tuple[DefaultPlugin, ...] = (
    DefaultPlugin("SchedulingGates", ("preEnqueue",)),
    DefaultPlugin("PrioritySort", ("queueSort",)),
    DefaultPlugin("NodeUnschedulable", ("filter",)),
    DefaultPlugin("NodeName", ("filter",)),
    DefaultPlugin("TaintToleration", ("filter", *_SCORE), weight=3),
    DefaultPlugin("NodeAffinity", (*_FILTER, *_SCORE), weight=2),
    DefaultPlugin("NodePorts", _FILTER),
    DefaultPlugin("NodeResourcesFit", (*_FILTER, *_SCORE, "placementScore"), weight=1, placement_weight=1),
    DefaultPlugin("VolumeRestrictions", _FILTER),
    DefaultPlugin("NodeVolumeLimits", _FILTER),
    DefaultPlugin("VolumeBinding", (*_FILTER, *_SCORE, "reserve", "preBind")),
    DefaultPlugin("VolumeZone", _FILTER),
    DefaultPlugin("PodTopologySpread", (*_FILTER, *_SCORE), weight=2),
    DefaultPlugin("InterPodAffinity", (*_FILTER, *_SCORE), weight=2),
    DefaultPlugin("DynamicResources", ("preEnqueue", *_FILTER, "postFilter", "score", "reserve", "preBind"), weight=2),
    DefaultPlugin("DefaultPreemption", ("preEnqueue", "postFilter")),
    DefaultPlugin("NodeResourcesBalancedAllocation", _SCORE, weight=1),
    DefaultPlugin("ImageLocality", ("score",), weight=1),
    DefaultPlugin("DefaultBinder", ("bind",)),
    DefaultPlugin("NodeDeclaredFeatures", _FILTER),
    DefaultPlugin("GangScheduling", ("preEnqueue", "reserve", "permit")),
    DefaultPlugin("TopologyPlacementGenerator", ("placementGenerate",)),
    DefaultPlugin("PodGroupPodsCount", ("placementScore",), placement_weight=1),
    DefaultPlugin(PACKING, ("score",), enabled=False),
    DefaultPlugin(EXPECTED, ("score",), enabled=False),
)

FILTERS = frozenset(plugin.name for plugin in DEFAULT_PLUGINS if "filter" in plugin.extension_points)
WEIGHTS: Mapping[str, int] = MappingProxyType({p.name: p.weight for p in DEFAULT_PLUGINS if p.weight})
PLACEMENT_WEIGHTS: Mapping[str, int] = MappingProxyType(
    {p.name: p.placement_weight for p in DEFAULT_PLUGINS if p.placement_weight}
)
