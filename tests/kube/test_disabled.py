"""The disabled-field rule, gate by gate: dropped on create, kept on update where the stored object uses it."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from kube_cases import (
    ALL,
    NOW,
    Obj,
    claim,
    controller,
    device,
    group,
    kind_of,
    pod,
    put,
    resource,
    slice_of,
    template,
    workload,
)

from haru.kube.conversion import convert
from haru.kube.disabled import drop_disabled_fields
from haru.kube.gates import FeatureGates
from haru.kube.kinds import by_kind

EXACT = "spec.devices.requests.0.exactly"
COUNTERS = [{"counterSet": "s", "counters": {"c": {"value": "1"}}}]
RESULT = {"request": "gpu", "driver": "d", "pool": "p", "device": "x"}

# gate -> (an object that does without it, a path, a value that needs the gate)
CASES: list[tuple[str, Obj, str, Any]] = [
    (
        "DRADeviceTaints",
        slice_of(device()),
        "spec.devices.0.taints",
        [{"key": "k", "effect": "None", "timeAdded": NOW}],
    ),
    ("DRADeviceTaints", claim(), f"{EXACT}.tolerations", [{"operator": "Exists"}]),
    ("DRAPartitionableDevices", slice_of(device()), "spec.devices.0.consumesCounters", COUNTERS),
    ("DRAPartitionableDevices", slice_of(), "spec.sharedCounters", [{"name": "s"}]),
    ("DRAPartitionableDevices", slice_of(device()), "spec.perDeviceNodeSelection", True),
    ("DRAPartitionableDevices", slice_of(device()), "spec.devices.0.nodeName", "n"),
    ("DRADeviceBindingConditions", slice_of(device()), "spec.devices.0.bindsToNode", True),
    ("DRADeviceBindingConditions", claim(), "status.allocation.allocationTimestamp", NOW),
    ("DRAConsumableCapacity", slice_of(device()), "spec.devices.0.allowMultipleAllocations", True),
    ("DRAConsumableCapacity", slice_of(device()), "spec.devices.0.capacity.memory.requestPolicy", {"default": "1"}),
    ("DRAConsumableCapacity", claim(), f"{EXACT}.capacity", {"requests": {"memory": "1"}}),
    ("DRAListTypeAttributes", slice_of(device()), "spec.devices.0.attributes.model.strings", ["a"]),
    ("DRANodeAllocatableResources", slice_of(device()), "spec.devices.0.nodeAllocatableResourceMappings", {"cpu": {}}),
    ("DRAPrioritizedList", claim(), "spec.devices.requests.0.firstAvailable", [{"name": "s"}]),
    ("DRAResourceClaimDeviceStatus", claim(), "status.devices", [RESULT]),
    ("DRAExtendedResource", resource("DeviceClass", {}), "spec.extendedResourceName", "example.com/gpu"),
    ("DRAExtendedResource", pod(), "status.extendedResourceClaimStatus", {"resourceClaimName": "c"}),
    ("ContainerRestartRules", pod(containers=[{"name": "c"}]), "spec.containers.0.restartPolicy", "Always"),
    ("ContainerRestartRules", pod(initContainers=[{"name": "c"}]), "spec.initContainers.0.restartPolicy", "Never"),
    ("ContainerRestartRules", pod(initContainers=[{"name": "c"}]), "spec.initContainers.0.restartPolicyRules", [{}]),
    (
        "ResourceHealthStatus",
        put(pod(), "status.containerStatuses", [{"name": "c"}]),
        "status.containerStatuses.0.allocatedResourcesStatus",
        [{"name": "r"}],
    ),
    ("GenericWorkload", pod(), "spec.schedulingGroup", {"podGroupName": "g"}),
    ("GenericWorkload", controller("Job"), "spec.template.spec.schedulingGroup", {"podGroupName": "g"}),
    ("GenericWorkload", controller("Deployment"), "spec.template.spec.schedulingGroup", {"podGroupName": "g"}),
    ("TopologyAwareWorkloadScheduling", group(), "spec.schedulingConstraints", {"topology": [{"key": "rack"}]}),
    ("DRAWorkloadResourceClaims", group(), "spec.resourceClaims", [{"name": "c", "resourceClaimName": "x"}]),
    ("WorkloadAwarePreemption", group(), "spec.priorityClassName", "high"),
    ("WorkloadAwarePreemption", workload(template()), "spec.podGroupTemplates.0.priority", 3),
]


def without(gate: str) -> FeatureGates:
    return FeatureGates.accelerator_defaults({gate: False})


def dropped(obj: Obj, old: Obj | None, gates: FeatureGates) -> Obj:
    before = copy.deepcopy(obj)
    result = drop_disabled_fields(obj, old, kind_of(obj), gates)
    assert obj == before
    return result


def pruned(obj: Obj) -> Any:
    """Without the empty dicts that a vanished field leaves behind."""
    if not isinstance(obj, dict):
        return [pruned(item) for item in obj] if isinstance(obj, list) else obj
    inner = {name: pruned(value) for name, value in obj.items()}
    return {name: value for name, value in inner.items() if value != {}}


@pytest.mark.parametrize(("gate", "plain", "path", "value"), CASES)
def test_gated_field_is_dropped_unless_in_use(gate: str, plain: Obj, path: str, value: Any) -> None:
    using = put(plain, path, value)
    assert dropped(using, None, ALL) is using
    assert pruned(dropped(using, None, without(gate))) == pruned(plain)
    assert dropped(using, using, without(gate)) is using
    assert pruned(dropped(using, plain, without(gate))) == pruned(plain)
    assert dropped(plain, None, without(gate)) is plain


@pytest.mark.parametrize(
    ("gate", "plain", "path", "value"), [case for case in CASES if "resource.k8s.io" in case[1]["apiVersion"]]
)
def test_gated_field_is_dropped_in_v1beta1(gate: str, plain: Obj, path: str, value: Any) -> None:
    beta = by_kind("resource.k8s.io/v1beta1", plain["kind"])
    assert beta is not None
    using, bare = convert(put(plain, path, value), beta), convert(plain, beta)
    assert pruned(dropped(using, None, without(gate))) == pruned(bare)
    assert dropped(using, using, without(gate)) is using


def test_dropped_list_attribute_leaves_attribute_without_value() -> None:
    obj = slice_of(device(attributes={"a": {"ints": [1]}, "b": {"int": 1}}))
    made = dropped(obj, None, FeatureGates())
    assert made["spec"]["devices"][0]["attributes"] == {"a": {}, "b": {"int": 1}}


def test_lifecycle_goes_with_its_only_member() -> None:
    for lifecycle in ({"stopSignal": "SIGINT"}, {"stopSignal": "SIGINT", "preStop": {"sleep": {"seconds": 1}}}, {}):
        [made] = dropped(pod(containers=[{"name": "c", "lifecycle": lifecycle}]), None, FeatureGates())["spec"][
            "containers"
        ]
        left = {name: value for name, value in lifecycle.items() if name != "stopSignal"}
        assert made == ({"name": "c", "lifecycle": left} if left or not lifecycle else {"name": "c"})


def test_sidecar_needs_no_gate() -> None:
    sidecar = pod(initContainers=[{"name": "c", "restartPolicy": "Always"}])
    assert dropped(sidecar, None, without("ContainerRestartRules")) is sidecar
    rules = without("ContainerRestartRules")
    assert not rules.enabled("RestartAllContainersOnContainerExits")


def test_configuration_of_nodes_is_dropped_unless_in_use() -> None:
    bare: Obj = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "spec": {}, "status": {}}
    node = {**bare, "spec": {"configSource": {"configMap": {}}}, "status": {"config": {"error": ""}}}
    assert dropped(node, None, ALL) == dropped(node, bare, ALL) == bare
    assert dropped(node, node, ALL) is node


def test_field_in_use_in_stored_object_is_kept() -> None:
    taints = [{"key": "k", "effect": "None"}]
    old = slice_of(device("a", taints=taints), device("b"))
    new = slice_of(device("a"), device("b", taints=taints))
    assert dropped(new, old, without("DRADeviceTaints")) is new
