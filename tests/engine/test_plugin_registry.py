"""The registry of plugins against the default profile's table, and the events of kube-scheduler's EventsToRegister."""

from __future__ import annotations

import pytest
from engine_objects import decide_all, node, pod

from haru.engine.framework.cluster_event import NODE_UPDATES, ClusterEvent
from haru.engine.framework.default_plugins import DEFAULT_PLUGINS, FILTERS, WEIGHTS
from haru.engine.framework.interfaces import FilterPlugin, PreFilterPlugin
from haru.engine.plugins.registry import FILTER_PLUGINS, PLUGINS, SCORE_PLUGINS, plugins_for

FOLLOWS_PLACEMENTS = {"PodTopologySpread", "InterPodAffinity", "DynamicResources"}
"""Filters that the overlay or the allocator answers, so that no plan has them."""
PARTITION = {"HaruPartition"}
"""A filter that no profile can switch off, so that the default profile's table does not have it."""
VOLUMES = {"VolumeRestrictions", "NodeVolumeLimits", "VolumeBinding", "VolumeZone"}


def test_every_default_filter_is_registered_in_the_order_of_the_table() -> None:
    expected = [p.name for p in DEFAULT_PLUGINS if p.name in FILTERS - FOLLOWS_PLACEMENTS]
    assert [plugin.name for plugin in FILTER_PLUGINS] == [*PARTITION, *expected]


def test_features_that_a_node_lacks_are_told_last() -> None:
    """As in kube-scheduler 1.36, where the plugin comes after all others that filter."""
    rule = {"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [1]}}
    waiting = pod("p", cpu="9")
    waiting["spec"]["containers"][0] |= {"restartPolicy": "Never", "restartPolicyRules": [rule]}
    assert decide_all([node("n"), waiting]).message.startswith("0/1 nodes are available: 1 Insufficient cpu.")
    small = pod("p", cpu="1")
    small["spec"]["containers"][0] |= {"restartPolicy": "Never", "restartPolicyRules": [rule]}
    assert "1 node(s) didn't match Pod's required features" in decide_all([node("n"), small]).message


def test_every_weighted_score_is_registered_and_dynamic_resources_is_first() -> None:
    names = [plugin.name for plugin in SCORE_PLUGINS]
    # NodeResourcesFit's scorer serves NodeResourcesBalancedAllocation too.
    assert set(names) == (WEIGHTS.keys() - {"NodeResourcesBalancedAllocation"}) | {"HaruExpected"}
    assert names[0] == "DynamicResources"
    assert len(names) == len(set(names))


def test_plugins_have_the_extension_points_of_the_table() -> None:
    points = {plugin.name: plugin.extension_points for plugin in DEFAULT_PLUGINS}
    assert {plugin.name for plugin in PLUGINS} <= points.keys() | PARTITION
    for plugin in PLUGINS:
        if plugin.name in PARTITION:
            continue
        if isinstance(plugin, FilterPlugin):
            assert "filter" in points[plugin.name]
        if isinstance(plugin, PreFilterPlugin):
            assert "preFilter" in points[plugin.name]


@pytest.mark.parametrize(
    ("event", "names"),
    [
        (ClusterEvent.NODE_ADD, FILTERS | PARTITION | {"GangScheduling"}),
        (ClusterEvent.NODE_ALLOCATABLE, {"NodeResourcesFit", "DynamicResources", "GangScheduling"}),
        (
            ClusterEvent.NODE_LABEL,
            {"NodeAffinity", "InterPodAffinity", "PodTopologySpread", "DynamicResources", "GangScheduling"}
            | VOLUMES
            | PARTITION,
        ),
        (
            ClusterEvent.NODE_TAINT,
            {"TaintToleration", "NodeUnschedulable", "PodTopologySpread", "GangScheduling"} | PARTITION,
        ),
        (ClusterEvent.NODE_UNSCHEDULABLE, {"NodeUnschedulable", "TaintToleration", "GangScheduling"}),
        (ClusterEvent.NODE_DECLARED_FEATURE, {"NodeDeclaredFeatures", "GangScheduling"}),
        (ClusterEvent.POD_ADD, {"InterPodAffinity", "PodTopologySpread"}),
        (
            ClusterEvent.POD_DELETE,
            {"NodeResourcesFit", "NodePorts", "InterPodAffinity", "PodTopologySpread"}
            | {"NodeVolumeLimits", "VolumeRestrictions"},
        ),
        (ClusterEvent.POD_NOMINATION, {"DynamicResources"}),
        (ClusterEvent.POD_SCALE, {"NodeResourcesFit", "GangScheduling"}),
        (ClusterEvent.POD_TERMINATING, {"PodTopologySpread"}),
        (ClusterEvent.POD_BOUND, {"DefaultPreemption"}),
        (ClusterEvent.DEVICES, {"DynamicResources", "GangScheduling"}),
        (ClusterEvent.DEVICE_CLASS, {"DynamicResources", "GangScheduling", "NodeResourcesFit"} | PARTITION),
        (ClusterEvent.NAMESPACE, {"InterPodAffinity", "GangScheduling"}),
        (ClusterEvent.SELECTOR, {"PodTopologySpread"}),
        (ClusterEvent.VOLUME, VOLUMES),
    ],
)
def test_event_wakes_the_plugins_that_registered_it(event: ClusterEvent, names: set[str]) -> None:
    assert plugins_for(event) == names


def test_every_event_has_a_row_and_every_node_update_wakes_gangs() -> None:
    assert all(plugins_for(event) for event in ClusterEvent)
    assert all("GangScheduling" in plugins_for(event) for event in NODE_UPDATES)
