"""Random clusters in which something waits: nodes with cards, work of several namespaces that holds some."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

from haru.kube.meta import Obj

DRIVER, CLASS = "gpu.example.com", "gpu.example.com"
OTHERS = ("zz-oncology", "zz-ranking")
OWNERS = (("ReplicaSet", "zz-folding"), ("Job", "zz-sweep"), ("StatefulSet", "zz-serving"))
MODELS = ("H100", "A100")
SELECTORS = ({"rack": "b"}, {"rack": "c"}, {"kubernetes.io/hostname": "n0"}, {"gpu": "yes"})


@dataclass(frozen=True)
class Situation:
    """The objects of a cluster, and what waits in namespace `default`: `pod/p` or `podgroup/g`."""

    objects: tuple[Obj, ...]
    about: str


def situation(random: Random) -> Situation:
    """A situation; nearly always the work waits."""
    nodes = [_Node(random, f"n{number}") for number in range(random.randint(1, 4))]
    objects = [_device_class(), *(obj for node in nodes for obj in node.objects(random))]
    objects += [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in ("default", *OTHERS)]
    free = [(node.name, device) for node in nodes for device in range(node.devices)]
    random.shuffle(free)
    for number in range(random.randint(0, len(free))):
        objects += _holder(random, number, *free.pop())
    waiting, about = _waiting(random)
    return Situation((*objects, *waiting), about)


class _Node:
    def __init__(self, random: Random, name: str) -> None:
        self.name, self.devices = name, random.choice((0, 1, 2, 4, 8))

    def objects(self, random: Random) -> Iterator[Obj]:
        labels = {"kubernetes.io/hostname": self.name, "rack": random.choice("ab")}
        amounts = {"cpu": str(random.choice((2, 8, 32))), "memory": "64Gi", "pods": "20"}
        spec: Obj = {"unschedulable": True} if random.random() < 0.15 else {}
        if random.random() < 0.2:
            spec["taints"] = [{"key": "team", "value": random.choice("xy"), "effect": "NoSchedule"}]
        status = {"capacity": amounts, "allocatable": amounts, "conditions": [{"type": "Ready", "status": "True"}]}
        metadata = {"name": self.name, "labels": labels, "uid": f"uid-{self.name}"}
        yield {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": spec, "status": status}
        if self.devices:
            yield self._slice(random)

    def _slice(self, random: Random) -> Obj:
        devices: list[Obj] = []
        for number in range(self.devices):
            device: Obj = {"name": f"gpu-{number}", "attributes": {"model": {"string": random.choice(MODELS)}}}
            if random.random() < 0.1:
                device["taints"] = [{"key": f"{DRIVER}/broken", "effect": "NoSchedule"}]
            devices.append(device)
        pool = {"name": self.name, "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": DRIVER, "pool": pool, "nodeName": self.name, "devices": devices}
        return {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"name": self.name},
            "spec": spec,
        }


def _device_class() -> Obj:
    selector = {"cel": {"expression": f'device.driver == "{DRIVER}"'}}
    metadata = {"name": CLASS}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": metadata,
        "spec": {"selectors": [selector]},
    }


def _holder(random: Random, number: int, node: str, device: int) -> list[Obj]:
    """A running pod that holds a device, of a workload in some namespace."""
    namespace = random.choice(("default", *OTHERS))
    kind, owner = random.choice(OWNERS)
    own = namespace == "default"
    owner = owner.replace("zz-", "my-") if own else owner
    name = f"{owner}-{number}"
    metadata: Obj = {"name": name, "namespace": namespace, "uid": f"uid-{name}"}
    if random.random() < 0.8:
        metadata["ownerReferences"] = [
            {"apiVersion": "apps/v1", "kind": kind, "name": owner, "uid": f"uid-{owner}", "controller": True}
        ]
    claim = f"{name}-card"
    spec = {
        "nodeName": node,
        "priority": random.choice((0, 0, 100)),
        "containers": [{"name": "main", "image": "x", "resources": {"requests": {"cpu": "100m"}}}],
        "resourceClaims": [{"name": "card", "resourceClaimName": claim}],
    }
    status = {"phase": "Running", "startTime": "2026-01-01T00:00:00Z"}
    result = {"request": "card", "driver": DRIVER, "pool": node, "device": f"gpu-{device}"}
    allocation = {"devices": {"results": [result]}, "nodeSelector": _only(node)}
    reserved = [{"resource": "pods", "name": name, "uid": f"uid-{name}"}]
    return [
        {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": status},
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": claim, "namespace": namespace, "uid": f"uid-{claim}"},
            "spec": _request(1),
            "status": {"allocation": allocation, "reservedFor": reserved},
        },
    ]


def _only(node: str) -> Obj:
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    return {"nodeSelectorTerms": [{"matchFields": [field]}]}


def _request(count: int, selector: str = "", of: str = CLASS) -> Obj:
    exactly: Obj = {"deviceClassName": of, "count": count}
    if selector:
        exactly["selectors"] = [{"cel": {"expression": selector}}]
    return {"devices": {"requests": [{"name": "card", "exactly": exactly}]}}


def _waiting(random: Random) -> tuple[list[Obj], str]:
    """A pod, or a gang of which members may be missing; with a claim each, or with none."""
    size = random.choice((1, 1, 2, 3, 6))
    spec: Obj = {"containers": [{"name": "main", "image": "x", "resources": {"requests": {"cpu": _cpu(random)}}}]}
    if random.random() < 0.25:
        spec["nodeSelector"] = random.choice(
            ({"rack": "b"}, {"rack": "c"}, {"kubernetes.io/hostname": "n0"}, {"gpu": "yes"})
        )
    devices = random.random() < 0.8
    count = random.choice((1, 1, 2, 4, 9))
    selector = random.choice(("", "", f'device.attributes["{DRIVER}"].model == "H100"'))
    of = "gpu.exmaple.com" if random.random() < 0.05 else CLASS
    if size == 1:
        return _member("p", spec, devices, _request(count, selector, of)), "pod/p"
    group: Obj = {"apiVersion": "scheduling.k8s.io/v1alpha2", "kind": "PodGroup"}
    group |= {"metadata": {"name": "g", "namespace": "default", "uid": "uid-g"}}
    group["spec"] = {"schedulingPolicy": {"gang": {"minCount": size}}}
    there = size - 1 if random.random() < 0.15 else size
    spec["schedulingGroup"] = {"podGroupName": "g"}
    members = [_member(f"g-{number}", spec, devices, _request(count, selector, of)) for number in range(there)]
    return [group, *(obj for member in members for obj in member)], "podgroup/g"


def _cpu(random: Random) -> str:
    return random.choice(("100m", "1", "4", "64"))


def _member(name: str, spec: Obj, devices: bool, request: Obj) -> list[Obj]:
    metadata = {"name": name, "namespace": "default", "uid": f"uid-{name}"}
    pod: dict[str, Any] = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}
    pod |= {"spec": {**spec, "schedulerName": "default-scheduler"}, "status": {"phase": "Pending"}}
    if not devices:
        return [pod]
    pod["spec"]["resourceClaims"] = [{"name": "card", "resourceClaimName": f"{name}-card"}]
    claim = {"name": f"{name}-card", "namespace": "default", "uid": f"uid-{name}-card"}
    return [pod, {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": claim, "spec": request}]
