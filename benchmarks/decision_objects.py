"""Clusters and gangs for the benchmarks of the pure decision: nodes in racks, cards with an identity of their own."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import Any

from benchmarks.device_objects import CLASSES, GPU, full_gpu, pool
from haru.engine import Decision, SchedulerCache
from haru.engine.state import MemberDecision

Obj = dict[str, Any]

RACK = "topology.kubernetes.io/rack"
HOSTNAME = "kubernetes.io/hostname"


def node_objects(number: int, rack: int, cards: int) -> list[Obj]:
    """A node with cpu 96, memory 1 Ti, room for 110 pods, and its cards as the driver publishes them."""
    name = f"node-{number:05}"
    labels = {HOSTNAME: name, RACK: f"rack-{rack:03}"}
    made: list[Obj] = [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": labels},
            "spec": {},
            "status": {"allocatable": {"cpu": "96", "memory": "1Ti", "pods": "110"}},
        }
    ]
    if cards:
        roots = [f"pci{number % 97:04x}:{card // 2:02x}" for card in range(cards)]
        devices = [
            full_gpu(card, "Hopper", card // 4, roots[card], uuid=f"GPU-{number:05}-{card}") for card in range(cards)
        ]
        made += [{"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", **item} for item in pool(name, devices)]
    return made


def cluster_of(nodes: int, racks: int, cards: int = 8) -> SchedulerCache:
    """Nodes in racks of equal size, all of them empty."""
    classes = [{"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", **item} for item in CLASSES]
    cluster = SchedulerCache.of(classes)
    for number in range(nodes):
        for obj in node_objects(number, number * racks // nodes, cards):
            cluster.apply(obj)
    return cluster


def fill(cluster: SchedulerCache, share: float, cards: int = 8, seed: int = 1) -> None:
    """Running pods with a card each, on about this share of all cards."""
    rng = random.Random(seed)
    for name in cluster.snapshot().node_names:
        for card in range(cards):
            if rng.random() < share:
                for obj in member(f"used-{name}-{card}", "", 1, node=name, card=f"gpu-{card}"):
                    cluster.apply(obj)


def member(name: str, group: str, cards: int, *, node: str = "", card: str = "", cpu: str = "8") -> list[Obj]:
    """A pod with a claim of its own, if it asks for cards; `node` and `card` say what it has already."""
    spec: Obj = {
        "schedulerName": "default-scheduler",
        "containers": [{"name": "main", "image": "work:1", "resources": {"requests": {"cpu": cpu, "memory": "64Gi"}}}],
    }
    status: Obj = {"phase": "Running" if node else "Pending"}
    meta: Obj = {"name": name, "namespace": "default", "uid": f"uid-{name}"}
    made: Obj = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec, "status": status}
    if group:
        spec["schedulingGroup"] = {"podGroupName": group}
    if node:
        spec["nodeName"] = node
    if not cards:
        return [made]
    spec["resourceClaims"] = [{"name": "cards", "resourceClaimTemplateName": "cards"}]
    status["resourceClaimStatuses"] = [{"name": "cards", "resourceClaimName": f"{name}-cards"}]
    return [made, claim_of(made, cards, node, [card])]


def taken_member(
    name: str, node: str, cards: Sequence[int], *, priority: int = 0, cpu: str = "4", memory: str = "64Gi"
) -> list[Obj]:
    """A running pod that has these cards of a node."""
    made, _ = member(name, "", 1, node=node, card="gpu-0", cpu=cpu)
    made["spec"]["containers"][0]["resources"]["requests"]["memory"] = memory
    made["spec"]["priority"] = priority
    return [made, claim_of(made, len(cards), node, [f"gpu-{card}" for card in cards])]


def claim_of(owner: Obj, cards: int, node: str = "", given: Sequence[str] = ()) -> Obj:
    """A pod's claim for cards; `node` and `given` say where it has which ones already."""
    name, uid = owner["metadata"]["name"], owner["metadata"]["uid"]
    exactly = {"deviceClassName": GPU, "allocationMode": "ExactCount", "count": cards}
    reference = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid, "controller": True}
    claim: Obj = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {
            "name": f"{name}-cards",
            "namespace": "default",
            "uid": f"uid-{name}-cards",
            "resourceVersion": "1",
            "ownerReferences": [reference],
        },
        "spec": {"devices": {"requests": [{"name": "card", "exactly": exactly}]}},
    }
    if node:
        field = {"key": "metadata.name", "operator": "In", "values": [node]}
        results = [{"request": "card", "driver": GPU, "pool": node, "device": card} for card in given]
        selector = {"nodeSelectorTerms": [{"matchFields": [field]}]}
        claim["status"] = {
            "allocation": {"devices": {"results": results}, "nodeSelector": selector},
            "reservedFor": [{"resource": "pods", "name": name, "uid": uid}],
        }
    return claim


def pod_group(name: str, size: int, topology: str = "", *, priority: int = 0, whole: bool = False) -> Obj:
    """A PodGroup of which so many members must run at once, in one domain of a label if one is given.

    `whole`: it is evicted as a whole or not at all.
    """
    spec: Obj = {"schedulingPolicy": {"gang": {"minCount": size}}}
    if topology:
        spec["schedulingConstraints"] = {"topology": [{"key": topology}]}
    if priority:
        spec["priority"] = priority
    if whole:
        spec["disruptionMode"] = "PodGroup"
    meta = {"name": name, "namespace": "default", "uid": f"uid-{name}"}
    return {"apiVersion": "scheduling.k8s.io/v1alpha2", "kind": "PodGroup", "metadata": meta, "spec": spec}


def gang(name: str, size: int, cards: int, topology: str = "", cpu: str = "8") -> list[Obj]:
    """A gang that wants all of its members placed, in one domain of a label if one is given."""
    made = [pod_group(name, size, topology)]
    for number in range(size):
        made += member(f"{name}-{number:05}", name, cards, cpu=cpu)
    return made


def take(cluster: SchedulerCache, decision: Decision) -> None:
    """Carry a decision out as the live scheduler does: assume pods and claims."""
    put(cluster, decision.placed)


def put(cluster: SchedulerCache, members: Iterable[MemberDecision]) -> None:
    """Assume members in their places, with their claims."""
    for member in members:
        for given in member.allocations:
            claim = cluster.snapshot().claims[given.path]
            status = {"allocation": given.allocation, "reservedFor": [given.reserve_for]}
            # What the API has taken has another version than what the cache was shown, or it is nothing new.
            metadata = {**claim["metadata"], "resourceVersion": str(int(claim["metadata"]["resourceVersion"]) + 1)}
            cluster.assume_claim({**claim, "metadata": metadata, "status": status}, written=True)
        cluster.assume_pod(member.pod, member.node or "")
