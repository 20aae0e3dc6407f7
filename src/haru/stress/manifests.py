"""The objects of a work: pods, claims, and the PodGroup of a gang. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from haru.kube.kinds import Kind, known_kind
from haru.kube.meta import Obj
from haru.stress.plan import WorkloadUnit

RUN_LABEL: Final = "stress.haru.dev/run"
UNIT_LABEL: Final = "stress.haru.dev/unit"
PRIORITY_CLASS: Final = "haru-stress-important"
PRIORITY: Final = 1000
_SIMULATED_IMAGE: Final = "pause"
"""Simulated nodes pull no image."""
NODES: Final = known_kind("v1", "Node")
PODS: Final = known_kind("v1", "Pod")
NAMESPACES: Final = known_kind("v1", "Namespace")
CLAIMS: Final = known_kind("resource.k8s.io/v1", "ResourceClaim")
SLICES: Final = known_kind("resource.k8s.io/v1", "ResourceSlice")
CLASSES: Final = known_kind("resource.k8s.io/v1", "DeviceClass")
GROUPS: Final = known_kind("scheduling.k8s.io/v1alpha2", "PodGroup")
PRIORITY_CLASSES: Final = known_kind("scheduling.k8s.io/v1", "PriorityClass")


@dataclass(frozen=True, slots=True)
class Target:
    """Where work goes and who schedules it."""

    namespace: str = "haru-stress"
    run: str = "1"
    scheduler: str = "default-scheduler"
    node_selector: dict[str, str] = field(default_factory=dict)
    tolerations: tuple[Obj, ...] = ()
    device_class: str = "gpu.nvidia.com"
    image: str = ""
    """Of the pods; empty only where all nodes are simulated."""


def namespace_object(target: Target) -> Obj:
    """The namespace of a run."""
    return {"metadata": {"name": target.namespace, "labels": {RUN_LABEL: target.run}}}


def priority_class(target: Target) -> Obj:
    """The PriorityClass of work that preempts."""
    meta = {"name": PRIORITY_CLASS, "labels": {RUN_LABEL: target.run}}
    return {"metadata": meta, "value": PRIORITY, "description": "Work of haru stress that preempts other work of it"}


def objects_of(unit: WorkloadUnit, target: Target) -> list[tuple[Kind, Obj]]:
    """Everything that a work consists of, in the order in which it is created."""
    found: list[tuple[Kind, Obj]] = []
    if unit.kind == "gang":
        policy = {"gang": {"minCount": unit.min_count}}
        found.append((GROUPS, {"metadata": _meta(unit, target, unit.name), "spec": {"schedulingPolicy": policy}}))
        if unit.important:
            found[0][1]["spec"]["priorityClassName"] = PRIORITY_CLASS
    found += [(CLAIMS, _claim(unit, target, name)) for name in claim_names(unit)]
    return found + [(PODS, _pod(unit, target, number)) for number in range(unit.pods)]


def claim_names(unit: WorkloadUnit) -> list[str]:
    """The claims of a work."""
    return [f"{unit.name}-{number}" for number in range(unit.claims)]


def pod_names(unit: WorkloadUnit) -> list[str]:
    """The pods of a work."""
    return [f"{unit.name}-{number}" for number in range(unit.pods)]


def _meta(unit: WorkloadUnit, target: Target, name: str) -> Obj:
    labels = {RUN_LABEL: target.run, UNIT_LABEL: unit.name}
    return {"name": name, "namespace": target.namespace, "labels": labels}


def _claim(unit: WorkloadUnit, target: Target, name: str) -> Obj:
    exactly = {"deviceClassName": target.device_class, "count": unit.devices}
    spec = {"devices": {"requests": [{"name": "devices", "exactly": exactly}]}}
    return {"metadata": _meta(unit, target, name), "spec": spec}


def _pod(unit: WorkloadUnit, target: Target, number: int) -> Obj:
    requests = {"cpu": f"{unit.milli_cpu}m", "memory": f"{unit.mebibytes}Mi"}
    container: Obj = {"name": "work", "image": target.image or _SIMULATED_IMAGE, "resources": {"requests": requests}}
    spec: Obj = {
        "schedulerName": target.scheduler,
        "nodeSelector": target.node_selector,
        "tolerations": list(target.tolerations),
        "terminationGracePeriodSeconds": 0,
        "automountServiceAccountToken": False,
        "containers": [container],
    }
    if unit.important:
        spec["priorityClassName"] = PRIORITY_CLASS
    if unit.kind == "gang":
        spec["schedulingGroup"] = {"podGroupName": unit.name}
    if unit.devices:
        claim = claim_names(unit)[0 if unit.kind == "shared" else number]
        spec["resourceClaims"] = [{"name": "devices", "resourceClaimName": claim}]
        container["resources"]["claims"] = [{"name": "devices"}]
    return {"metadata": _meta(unit, target, f"{unit.name}-{number}"), "spec": spec}
