"""List the plugins, and find those of one extension point or one cluster event.

The order is kube-scheduler's: the first filter that refuses a node says why. Source: kube-scheduler's plugin registry.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType

from haru.engine.framework.arguments import ReadArguments
from haru.engine.framework.cluster_event import ClusterEvent
from haru.engine.framework.interfaces import ArgumentsPlugin, FilterPlugin, Plugin, PreFilterPlugin, ScorePlugin
from haru.engine.plugins.defaultpreemption.plugin import DefaultPreemption
from haru.engine.plugins.dynamicresources.plugin import DynamicResources
from haru.engine.plugins.gangscheduling.plugin import GangScheduling
from haru.engine.plugins.haruexpected.plugin import HaruExpected
from haru.engine.plugins.harupartition.plugin import HaruPartition
from haru.engine.plugins.imagelocality.plugin import ImageLocality
from haru.engine.plugins.interpodaffinity.plugin import InterPodAffinity
from haru.engine.plugins.nodeaffinity.plugin import NodeAffinity
from haru.engine.plugins.nodedeclaredfeatures.plugin import NodeDeclaredFeatures
from haru.engine.plugins.nodename.plugin import NodeName
from haru.engine.plugins.nodeports.plugin import NodePorts
from haru.engine.plugins.noderesources.plugin import NodeResourcesBalancedAllocation, NodeResourcesFit
from haru.engine.plugins.nodeunschedulable.plugin import NodeUnschedulable
from haru.engine.plugins.nodevolumelimits.plugin import NodeVolumeLimits
from haru.engine.plugins.podtopologyspread.plugin import PodTopologySpread
from haru.engine.plugins.score_request import ScoreRequest
from haru.engine.plugins.tainttoleration.plugin import TaintToleration
from haru.engine.plugins.volumebinding.plugin import VolumeBinding
from haru.engine.plugins.volumerestrictions.plugin import VolumeRestrictions
from haru.engine.plugins.volumezone.plugin import VolumeZone

DYNAMIC_RESOURCES = DynamicResources()
PARTITION = HaruPartition()
PLUGINS: tuple[Plugin, ...] = (
    PARTITION,
    NodeUnschedulable(),
    NodeName(),
    TaintToleration(),
    NodeAffinity(),
    NodePorts(),
    NodeResourcesFit(),
    VolumeRestrictions(),
    NodeVolumeLimits(),
    VolumeBinding(),
    VolumeZone(),
    PodTopologySpread(),
    InterPodAffinity(),
    DYNAMIC_RESOURCES,
    DefaultPreemption(),
    NodeResourcesBalancedAllocation(),
    ImageLocality(),
    NodeDeclaredFeatures(),
    GangScheduling(),
    HaruExpected(),
)
PRE_FILTER_PLUGINS = tuple(plugin for plugin in PLUGINS if isinstance(plugin, PreFilterPlugin))
FILTER_PLUGINS = tuple(plugin for plugin in PLUGINS if isinstance(plugin, FilterPlugin))
SCORE_PLUGINS: tuple[ScorePlugin[ScoreRequest], ...] = (
    # A key begins with what the allocator says of the node's devices.
    DYNAMIC_RESOURCES,
    *(plugin for plugin in PLUGINS if isinstance(plugin, ScorePlugin) and plugin is not DYNAMIC_RESOURCES),
)
ARGUMENT_READERS: Mapping[str, ReadArguments] = MappingProxyType(
    {plugin.name: plugin.read_arguments for plugin in PLUGINS if isinstance(plugin, ArgumentsPlugin)}
)
"""The plugins that take arguments, each with the method that reads them."""


@cache
def plugins_for(event: ClusterEvent) -> frozenset[str]:
    """Return the names of the plugins whose rejections an event may undo."""
    return frozenset(plugin.name for plugin in PLUGINS if event in plugin.events)
