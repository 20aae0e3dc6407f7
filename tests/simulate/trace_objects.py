"""What a trace says as Kubernetes objects: machines as nodes with devices that can be shared, pods with claims.

A card is a device that several claims may share (KEP-5075): its capacity `part` counts thousandths, of which a claim
takes as many as the pod asks for, and a whole card takes all. Its model is an attribute, which the selector of a claim
names. So the engine can be asked the question of a trace.
"""

from __future__ import annotations

from typing import Any

from haru.simulate.packing import CARD, Machine, Shape

Obj = dict[str, Any]
DRIVER = "gpu.openb.example"
DEVICE_CLASS = "openb-gpu"


def device_class() -> Obj:
    """The class of all cards."""
    selector = {"cel": {"expression": f"device.driver == '{DRIVER}'"}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": DEVICE_CLASS},
        "spec": {"selectors": [selector]},
    }


def machine_objects(name: str, machine: Machine) -> list[Obj]:
    """A Node, and its ResourceSlice if it has cards."""
    amounts = {"cpu": f"{machine.cpu}m", "memory": f"{machine.memory}Mi", "pods": "1000"}
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "uid": f"node/{name}", "labels": {"kubernetes.io/hostname": name}},
        "spec": {},
        "status": {"capacity": amounts, "allocatable": amounts},
    }
    if not machine.cards:
        return [node]
    device = {
        "attributes": {"model": {"string": machine.model}},
        "capacity": {"part": {"value": str(CARD)}},
        "allowMultipleAllocations": True,
    }
    sliced = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": f"{name}-cards", "uid": f"slice/{name}"},
        "spec": {
            "driver": DRIVER,
            "nodeName": name,
            "pool": {"name": name, "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": f"card-{index}", **device} for index in range(machine.cards)],
        },
    }
    return [node, sliced]


def pod_objects(name: str, shape: Shape) -> list[Obj]:
    """A Pod, and before it the ResourceClaim for its cards, if it asks for any."""
    container: Obj = {
        "name": "work",
        "image": "work",
        "resources": {"requests": {"cpu": f"{shape.cpu}m", "memory": f"{shape.memory}Mi"}},
    }
    metadata = {"name": name, "namespace": "default"}
    pod: Obj = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**metadata, "uid": f"pod/{name}"},
        "spec": {"schedulerName": "default-scheduler", "containers": [container]},
        "status": {"phase": "Pending"},
    }
    if not shape.cards:
        return [pod]
    exactly: Obj = {
        "deviceClassName": DEVICE_CLASS,
        "allocationMode": "ExactCount",
        "count": shape.cards,
        "capacity": {"requests": {"part": str(shape.part)}},
    }
    if shape.models:
        listed = ", ".join(f"'{model}'" for model in sorted(shape.models))
        exactly["selectors"] = [{"cel": {"expression": f"device.attributes['{DRIVER}'].model in [{listed}]"}}]
    claim = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {**metadata, "uid": f"claim/{name}"},
        "spec": {"devices": {"requests": [{"name": "cards", "exactly": exactly}]}},
    }
    pod["spec"]["resourceClaims"] = [{"name": "cards", "resourceClaimName": name}]
    container["resources"]["claims"] = [{"name": "cards"}]
    return [claim, pod]
