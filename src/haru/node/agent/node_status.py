"""The Node object of this machine: labels, capacity, addresses, conditions. Pure.

Source: v1 NodeStatus and the well-known labels, as kubelets write them.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from haru.kube.cgroup_values import shares_of
from haru.kube.container_restarts import RESTART_ALL_FEATURE
from haru.kube.errors import aggregate
from haru.kube.gates import FeatureGates
from haru.kube.meta import Obj, get_condition
from haru.kube.quantity import parse_quantity
from haru.node.agent.machine import Machine
from haru.node.agent.options import NodeOptions
from haru.node.cgroups.amounts import Amounts
from haru.node.eviction.thresholds import kept_from_pods
from haru.proto import cri_pb2 as cri

KUBELET_VERSION = "v1.36.0"
_FEATURES = (
    "ExtendWebSocketsToKubelet",
    "InPlacePodLevelResourcesVerticalScaling",
    "InPlacePodVerticalScalingInitContainers",
)
_VERSION = re.compile(r"v?(\d+(?:\.\d+)+)(.*)")
_SEMANTIC = re.compile(r"(-[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?(\+[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?")
"""What may follow the numbers of a semantic version."""
_MOST_IMAGES = 50
_MOST_IMAGE_NAMES = 5


def declared_features(gates: FeatureGates) -> list[str]:
    """Features that nodes of 1.36 declare, and that this one has, in their order."""
    restarts = [RESTART_ALL_FEATURE] if gates.enabled(RESTART_ALL_FEATURE) else []
    return [*_FEATURES, *restarts]


def node_labels(options: NodeOptions, machine: Machine) -> dict[str, str]:
    """The well-known labels of the machine, and the configured ones."""
    known = {
        "beta.kubernetes.io/arch": machine.architecture,
        "beta.kubernetes.io/os": "linux",
        "kubernetes.io/arch": machine.architecture,
        "kubernetes.io/hostname": options.name,
        "kubernetes.io/os": "linux",
    }
    return {**known, **options.registration.labels}


def capacity(options: NodeOptions, machine: Machine) -> dict[str, str]:
    """What the machine has, as quantities."""
    found = {
        "cpu": str(machine.cpus),
        "ephemeral-storage": f"{machine.storage // 1024}Ki",
        "memory": f"{machine.memory // 1024}Ki",
        "pods": str(options.max_pods),
        **{f"hugepages-{size}": f"{amount // 1024}Ki" for size, amount in machine.huge_pages.items()},
    }
    return {name: str(parse_quantity(text)) for name, text in found.items()}


def allocatable(options: NodeOptions, machine: Machine) -> dict[str, str]:
    """What pods may have of it: without what is reserved, what would have them evicted, and huge pages of memory."""
    found: dict[str, str] = {}
    sizes = {"memory": machine.memory, "ephemeral-storage": machine.storage}
    kept = kept_from_pods(options.eviction.thresholds, sizes)
    for name, text in capacity(options, machine).items():
        left = parse_quantity(text) - parse_quantity(options.reserved.get(name, "0"))
        if name in kept:
            left -= kept[name]
        if name == "memory":
            left -= parse_quantity(str(sum(machine.huge_pages.values())))
        found[name] = str(left) if left.nano > 0 else "0"
    return found


def amounts_of_pods(options: NodeOptions, machine: Machine) -> Amounts:
    """What all pods may have together. Huge pages are no part of the memory that is bounded so."""
    found = capacity(options, machine)
    left = {name: parse_quantity(found[name]) - parse_quantity(options.reserved.get(name, "0")) for name in found}
    return Amounts(shares_of(left["cpu"].milli()), 0, max(0, left["memory"].value()))


def with_resources_of_others(wanted: Obj, stored: Mapping[str, Any]) -> Obj:
    """Keep resources that others wrote into the capacity of a node, and let pods have them.

    So an operator gives a node extended resources of which no driver knows.
    """
    had = (stored.get("status") or {}).get("capacity") or {}
    others = {name: text for name, text in had.items() if not name.startswith("hugepages-")}
    return {
        **wanted,
        "capacity": {**others, **wanted["capacity"]},
        "allocatable": {**others, **wanted["allocatable"]},
    }


@dataclass(frozen=True, slots=True)
class Host:
    """The machine, its addresses, and the port of the kubelet API (0: none)."""

    machine: Machine
    addresses: Sequence[str]
    port: int = 0


def node_status(options: NodeOptions, host: Host, version: cri.VersionResponse, images: Sequence[cri.Image]) -> Obj:
    """The status without its conditions."""
    machine = host.machine
    listed = sorted(images, key=lambda image: (-image.size, image.id))[:_MOST_IMAGES]
    status: Obj = {
        "capacity": capacity(options, machine),
        "allocatable": allocatable(options, machine),
        "addresses": [
            *({"type": "InternalIP", "address": address} for address in host.addresses),
            {"type": "Hostname", "address": options.name},
        ],
        "nodeInfo": {
            "architecture": machine.architecture,
            "bootID": machine.boot_id,
            "containerRuntimeVersion": f"{version.runtime_name}://{runtime_version(version.runtime_version)}",
            "kernelVersion": machine.kernel,
            "kubeProxyVersion": "",
            "kubeletVersion": KUBELET_VERSION,
            "machineID": machine.machine_id,
            "operatingSystem": "linux",
            "osImage": machine.os_image,
            "systemUUID": machine.system_uuid or machine.machine_id,
            **({"swap": {"capacity": machine.swap}} if machine.swap else {}),
        },
        "images": [
            {"names": [*image.repo_digests, *image.repo_tags][:_MOST_IMAGE_NAMES], "sizeBytes": image.size}
            for image in listed
        ],
    }
    if options.gates.enabled("NodeDeclaredFeatures"):
        status["declaredFeatures"] = declared_features(options.gates)
    if host.port:
        status["daemonEndpoints"] = {"kubeletEndpoint": {"Port": host.port}}
    return status


def runtime_version(text: str) -> str:
    """A runtime's version without what is no part of it: `1.6.20~ds1` and `v1.6.20` are `1.6.20`."""
    found = _VERSION.match(text)
    if found is None:
        return text
    return found[1] + (found[2] if found[1].count(".") == 2 and _SEMANTIC.fullmatch(found[2]) else "")


def runtime_fields(answer: cri.StatusResponse) -> Obj:
    """Features of the runtime's handlers."""
    fields: Obj = {}
    if answer.runtime_handlers:
        fields["runtimeHandlers"] = [
            {
                "name": handler.name,
                "features": {
                    "recursiveReadOnlyMounts": handler.features.recursive_read_only_mounts,
                    "userNamespaces": handler.features.user_namespaces,
                },
            }
            for handler in answer.runtime_handlers
        ]
    if answer.HasField("features"):
        fields["features"] = {"supplementalGroupsPolicy": answer.features.supplemental_groups_policy}
    return fields


def not_ready_reasons(answer: cri.StatusResponse | None, error: str = "") -> list[str]:
    """Why the runtime keeps the node from being ready; nothing if it does not."""
    if answer is None:
        return [f"container runtime is down: {error}"]
    required = {"RuntimeReady": "container runtime not ready", "NetworkReady": "container runtime network not ready"}
    found = {one.type: one for one in answer.status.conditions}
    reasons = []
    for kind, text in required.items():
        one = found.get(kind)
        if one is None:
            reasons.append(f"{text}: {kind}=unknown")
        elif not one.status:
            reasons.append(f"{text}: {kind}=false reason:{one.reason} message:{one.message}")
    return reasons


class _Condition(NamedTuple):
    type: str
    holds: bool
    reason: str
    message: str


def node_conditions(stored: Mapping[str, Any], unready: Sequence[str], short: Collection[str], now: str) -> list[Obj]:
    """The four conditions, with those of `short` true; a time of transition stays while a status does."""
    table = [_Condition(name, name in short, *_WORDS[name][name in short]) for name in _WORDS]
    ready = _Condition("Ready", True, "KubeletReady", "kubelet is posting ready status")
    if unready:
        ready = _Condition("Ready", False, "KubeletNotReady", aggregate(unready))
    return [_condition(stored, each, now) for each in (*table, ready)]


_WORDS = {
    "MemoryPressure": (
        ("KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
        ("KubeletHasInsufficientMemory", "kubelet has insufficient memory available"),
    ),
    "DiskPressure": (
        ("KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
        ("KubeletHasDiskPressure", "kubelet has disk pressure"),
    ),
    "PIDPressure": (
        ("KubeletHasSufficientPID", "kubelet has sufficient PID available"),
        ("KubeletHasInsufficientPID", "kubelet has insufficient PID available"),
    ),
}
"""Reason and message, without the condition and with it."""


def _condition(stored: Mapping[str, Any], condition: _Condition, now: str) -> Obj:
    status = "True" if condition.holds else "False"
    had = get_condition(stored, condition.type) or {}
    same = had.get("status") == status and had.get("lastTransitionTime")
    return {
        "type": condition.type,
        "status": status,
        "lastHeartbeatTime": now,
        "lastTransitionTime": had["lastTransitionTime"] if same else now,
        "reason": condition.reason,
        "message": condition.message,
    }


_EVENTS = {
    ("MemoryPressure", "True"): "NodeHasInsufficientMemory",
    ("MemoryPressure", "False"): "NodeHasSufficientMemory",
    ("DiskPressure", "True"): "NodeHasDiskPressure",
    ("DiskPressure", "False"): "NodeHasNoDiskPressure",
    ("PIDPressure", "True"): "NodeHasInsufficientPID",
    ("PIDPressure", "False"): "NodeHasSufficientPID",
    ("Ready", "True"): "NodeReady",
    ("Ready", "False"): "NodeNotReady",
}


def condition_events(stored: Mapping[str, Any], conditions: Sequence[Obj]) -> list[str]:
    """Reasons of events of a node: one for each condition that changed. That it is not ready at first is not told."""
    had = {one["type"]: one.get("status") for one in (stored.get("status") or {}).get("conditions") or ()}
    changed = [(one["type"], one["status"]) for one in conditions if had.get(one["type"]) != one["status"]]
    return [_EVENTS[one] for one in changed if one != ("Ready", "False") or "Ready" in had]
