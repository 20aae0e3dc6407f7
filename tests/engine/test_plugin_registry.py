"""The registry of plugins against the default profile's table, and the events of kube-scheduler's EventsToRegister."""

from __future__ import annotations

import pytest
from engine_objects import (
    Obj,
    allocated,
    allocation,
    claim,
    decide_all,
    device_class,
    node,
    pod,
    resource_slice,
)

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


def restarting(pod: Obj) -> Obj:
    """A pod that only nodes with the feature RestartAllContainersOnContainerExits take."""
    rule = {"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [1]}}
    pod["spec"]["containers"][0] |= {"restartPolicy": "Never", "restartPolicyRules": [rule]}
    return pod


APART: Obj = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"labelSelector": {"matchLabels": {"app": "other"}}, "topologyKey": "kubernetes.io/hostname"}
        ]
    }
}
SPREAD: list[Obj] = [
    {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchExpressions": [{"key": "app", "operator": "Exists"}]},
        "minDomains": 5,
    }
]


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ({"cpu": "9"}, "Insufficient cpu"),
        ({"affinity": APART}, "node(s) didn't match pod anti-affinity rules"),
        ({"topologySpreadConstraints": SPREAD}, "node(s) didn't match pod topology spread constraints"),
        ({"claims": ["c"]}, "cannot allocate all claims"),
        ({"claims": ["elsewhere"]}, "resourceclaim not available on the node"),
        ({}, "node(s) didn't match Pod's required features"),
    ],
)
@pytest.mark.parametrize("nodes", [1, 4])
def test_features_that_a_node_lacks_are_told_last(spec: Obj, told: str, nodes: int) -> None:
    """As in kube-scheduler 1.36, where the plugin comes after all others that filter."""
    names = [f"n{number}" for number in range(nodes)]
    objects = [part for name in names for part in (node(name), pod("other", node=name), resource_slice(name, 1))]
    for number, one in enumerate(found for found in objects if found["kind"] == "Pod"):
        one["metadata"] |= {"name": f"other{number}", "uid": f"uid-other{number}"}
    gone = allocated(claim("elsewhere"), allocation("gone", "gpu-0"))
    objects += [device_class(), claim("c", count=2), gone, waiting := restarting(pod("p", **spec))]
    message = decide_all(objects, only=[waiting]).message
    assert message.startswith(f"0/{nodes} nodes are available: {nodes} {told}."), message


def test_selector_that_fails_on_a_node_without_the_features_fails_the_pod() -> None:
    """As in kube-scheduler 1.36: the devices are asked first."""
    failing = device_class(expressions=['device.attributes["gpu.example.com"].model == "a"'])
    waiting = restarting(pod("p", claims=["c"]))
    decision = decide_all([node("n"), resource_slice("n", 1), failing, claim("c"), waiting])
    assert decision.reasons[0].type == "SelectorError"


def test_pod_starts_on_the_node_that_has_its_features_and_devices() -> None:
    able = node("b")
    able["status"]["declaredFeatures"] = ["RestartAllContainersOnContainerExits"]
    objects = [node("a"), able, device_class(), claim("c"), *(resource_slice(name, 1) for name in "ab")]
    assert decide_all([*objects, restarting(pod("p", claims=["c"]))]).members[0].node == "b"


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
