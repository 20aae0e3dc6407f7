"""What is told of extended resources that devices stand behind (KEP-5004)."""

from __future__ import annotations

from typing import Any

import pytest
from explain_schema import check_explanation

from haru.engine import SchedulerCache
from haru.explain import explain, to_json, to_text

Obj = dict[str, Any]
DRIVER, GPU = "gpu.example.com", "example.com/gpu"
ANNOTATION = "resource.kubernetes.io/extended-resource-claim"
TITLE = "container-0-request-1 (example.com/gpu)"


def node(name: str, plugin: int = 0) -> Obj:
    amounts = {"cpu": "8", "memory": "64Gi", "pods": "110", **({GPU: str(plugin)} if plugin else {})}
    return {"kind": "Node", "metadata": {"name": name}, "status": {"allocatable": amounts}}


def devices(where: str, count: int) -> Obj:
    pool = {"name": where, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "pool": pool, "nodeName": where, "devices": [{"name": f"gpu-{i}"} for i in range(count)]}
    return {"kind": "ResourceSlice", "metadata": {"name": f"slice-{where}"}, "spec": spec}


def pod(name: str, gpus: int, group: str = "", node: str = "") -> Obj:
    container = {"name": "main", "image": "i", "resources": {"requests": {"cpu": "1", GPU: str(gpus)}}}
    spec: Obj = {"schedulerName": "default-scheduler", "containers": [container]}
    if group:
        spec["schedulingGroup"] = {"podGroupName": group}
    if node:
        spec["nodeName"] = node
    metadata = {"name": name, "namespace": "default", "uid": f"uid-{name}"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": {"phase": "Pending"}}


def running(name: str, gpus: int, where: str) -> list[Obj]:
    """A pod with the claim that the scheduler made for it."""
    made = pod(name, gpus, node=where)
    claim = f"{name}-extended-resources-abcde"
    mapping = {"containerName": "main", "resourceName": GPU, "requestName": "container-0-request-1"}
    recorded = {"resourceClaimName": claim, "requestMappings": [mapping]}
    made["status"] = {"phase": "Running", "extendedResourceClaimStatus": recorded}
    request = {"name": "container-0-request-1", "exactly": {"deviceClassName": "gpu", "count": gpus}}
    results = [{"request": request["name"], "driver": DRIVER, "pool": where, "device": f"gpu-{i}"} for i in range(gpus)]
    owner = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": f"uid-{name}", "controller": True}
    metadata = {"name": claim, "namespace": "default", "uid": f"uid-{claim}", "annotations": {ANNOTATION: "true"}}
    status = {
        "allocation": {"devices": {"results": results}},
        "reservedFor": [{"resource": "pods", "name": name, "uid": f"uid-{name}"}],
    }
    spec = {"devices": {"requests": [request]}}
    kind = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim"}
    return [made, {**kind, "metadata": {**metadata, "ownerReferences": [owner]}, "spec": spec, "status": status}]


CLASS = {"kind": "DeviceClass", "metadata": {"name": "gpu"}, "spec": {"extendedResourceName": GPU}}


def group(name: str, minimum: int) -> Obj:
    return {
        "apiVersion": "scheduling.k8s.io/v1alpha2",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}"},
        "spec": {"schedulingPolicy": {"gang": {"minCount": minimum}}},
    }


def told(kind: Any, obj: Obj, *objects: Obj) -> str:
    explanation = explain(SchedulerCache.of([CLASS, *objects, obj]).snapshot(), kind, obj)
    check_explanation(to_json(explanation))
    return to_text(explanation)


def test_pending_pod_with_extended_resource_is_explained_by_devices() -> None:
    text = told("pod", pod("p", 2), node("n0"), devices("n0", 4), node("plug", 1), *running("h", 3, "n0"))
    lines = text.splitlines()
    assert lines[0] == f"Pod default/p: FitsLater: 1 device is free for request {TITLE}, 2 are needed: 1 short"
    assert f"asks     1 × {TITLE}: 2 of gpu" in lines
    assert "nodes    1 node (n0): 4 devices, 3 taken, 1 free" in lines
    assert "         1 node (plug): insufficient example.com/gpu: 2 asked, 1 left of 1" in lines
    assert "helps    end pod h (frees 3 devices)" in lines


def test_running_pod_with_extended_resource_shows_claim() -> None:
    held = running("h", 2, "n0")
    lines = told("pod", held[0], node("n0"), devices("n0", 4), held[1]).splitlines()
    assert lines[0] == "Pod default/h: Runs: it runs on node n0, with 2 devices"
    assert "holds    claim default/h-extended-resources-abcde: 2 devices" in lines


def test_device_plugin_node_needs_no_devices_for_extended_resource() -> None:
    text = told("pod", pod("p", 2), node("n0"), devices("n0", 1), node("plug", 4))
    assert text.startswith("Pod default/p: Starting:")
    assert "no device of class" not in text


@pytest.mark.parametrize(
    ("plugin", "needed", "short"), [(0, 6, 4), (2, 4, 2), (4, 2, 0)], ids=["no plugin", "for one", "for two"]
)
def test_members_placed_by_device_plugin_need_no_devices(plugin: int, needed: int, short: int) -> None:
    members = [pod(f"m{i}", 2, "g") for i in range(3)]
    objects = [node("n0"), devices("n0", 2), *([node("plug", plugin)] if plugin else []), *members]
    text = told("podgroup", group("g", 3), *objects)
    if short:
        assert f"= 2 free, {needed} needed: {short} short" in text
    else:
        assert ": Starting: " in text


def test_extended_resource_without_class_is_insufficient_resource() -> None:
    obj = pod("p", 2)
    explanation = explain(SchedulerCache.of([node("n0"), obj]).snapshot(), "pod", obj)
    assert explanation.summary == "insufficient example.com/gpu: 2 asked, 0 left of 0 (the only node)"
