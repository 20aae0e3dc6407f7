"""API objects of a simulated node besides its slices: the Node itself, and the device classes of the drivers."""

from __future__ import annotations

import re
import uuid
from collections.abc import Sequence
from typing import Final

from haru.drivers.simulated.profiles import COMPUTE_DOMAIN_DRIVER, Profile
from haru.kube.container_restarts import RESTART_ALL_FEATURE
from haru.kube.meta import Obj
from haru.kube.names import short_hash
from haru.kube.quantity import parse_quantity

PROFILE_LABEL: Final = "simulated.haru.dev/profile"
FLEET_LABEL: Final = "simulated.haru.dev/fleet"
"""Names the fleet that a Node belongs to: its own process acts for it, and no other."""
OF_NO_FLEET: Final = f"!{FLEET_LABEL}"
PROFILE_SPEC: Final = "simulated.haru.dev/profile-spec"
OFFLINE: Final = "simulated.haru.dev/offline"
RACK_LABEL: Final = "topology.haru.dev/rack"
CLIQUE_LABEL: Final = "nvidia.com/gpu.clique"
_REGION: Final = "topology.kubernetes.io/region"
_ZONE: Final = "topology.kubernetes.io/zone"
PLACES: Final = frozenset({_REGION, _ZONE, RACK_LABEL, CLIQUE_LABEL})
"""The labels that say where a node stands."""
"""The NVLink domain of a node, and the part of it, as GPU feature discovery says it."""
KUBELET_VERSION: Final = "v1.36.0"

_EVICTION_RESERVE: Final = parse_quantity("100Mi")
FEATURES: Final = (RESTART_ALL_FEATURE,)
"""What a simulated node declares, unless gates are off."""
_CLUSTERS: Final = uuid.UUID("4a8d3b0e-1b2f-5d55-8c1f-6f0b5b8f2a10")


def node_object(profile: Profile, name: str, *, internal_ip: str, now: str, features: Sequence[str] = FEATURES) -> Obj:
    """A ready node of this profile, as its kubelet registers it."""
    annotations = {"node.alpha.kubernetes.io/ttl": "0"}
    if profile.source:
        annotations[PROFILE_SPEC] = profile.source
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": node_labels(profile, name), "annotations": annotations},
        "spec": {},
        "status": node_status(profile, name, internal_ip=internal_ip, now=now, features=features),
    }


def node_labels(profile: Profile, name: str) -> dict[str, str]:
    """The labels a kubelet sets, and where the node stands: some nodes of a profile share a rack."""
    number = re.search(r"(\d+)$", name)
    rack = int(number[1]) // profile.nodes_per_rack if number else 0
    cluster = uuid.uuid5(_CLUSTERS, f"{profile.name}/{rack}")
    return {
        "kubernetes.io/hostname": name if len(name) <= 63 else f"{name[:52].rstrip('-.')}-{short_hash(name)}",
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": profile.arch,
        # Older manifests select nodes by these.
        "beta.kubernetes.io/os": "linux",
        "beta.kubernetes.io/arch": profile.arch,
        "node.kubernetes.io/instance-type": profile.instance_type,
        _REGION: "simulated",
        _ZONE: "simulated-a",
        RACK_LABEL: _label(f"{profile.name}-rack-{rack}"),
        PROFILE_LABEL: profile_label(profile),
        **({CLIQUE_LABEL: f"{cluster}.0"} if profile.nvlink_domain else {}),
        **profile.labels,
    }


def profile_label(profile: Profile) -> str:
    """The value of the label by which nodes of a profile are known."""
    return _label(profile.name)


def _label(value: str) -> str:
    return value if len(value) <= 63 else f"{value[:52]}-{short_hash(value)}"


def node_status(profile: Profile, name: str, *, internal_ip: str, now: str, features: Sequence[str] = FEATURES) -> Obj:
    """Capacity, addresses, health and versions of a ready node."""
    capacity = {
        "cpu": profile.cpu,
        "memory": profile.memory,
        "ephemeral-storage": "2Ti",
        "hugepages-1Gi": "0",
        "hugepages-2Mi": "0",
        "pods": str(profile.pods),
        **profile.extended,
    }
    return {
        "capacity": capacity,
        "allocatable": {**capacity, "memory": str(parse_quantity(profile.memory) - _EVICTION_RESERVE)},
        "conditions": node_conditions(now),
        "addresses": [{"type": "InternalIP", "address": internal_ip}, {"type": "Hostname", "address": name}],
        # Nothing listens: a way into a container, or its log, is not looked for.
        "daemonEndpoints": {"kubeletEndpoint": {"Port": 0}},
        "declaredFeatures": list(features),
        "features": {"supplementalGroupsPolicy": True},
        "nodeInfo": {
            "machineID": short_hash(f"{name}/machine", 32),
            "systemUUID": short_hash(f"{name}/system", 32),
            "bootID": short_hash(f"{name}/boot", 32),
            "kernelVersion": "6.8.0",
            "osImage": "Simulated Linux",
            "containerRuntimeVersion": "simulated://1.0",
            "kubeletVersion": KUBELET_VERSION,
            "kubeProxyVersion": "",
            "operatingSystem": "linux",
            "architecture": profile.arch,
        },
    }


def node_conditions(now: str) -> list[Obj]:
    """The four conditions of a healthy kubelet, heard from at `now`."""
    listed = (
        ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
        ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
        ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
        ("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
    )
    return [
        {
            "type": type_,
            "status": status,
            "lastHeartbeatTime": now,
            "lastTransitionTime": now,
            "reason": reason,
            "message": message,
        }
        for type_, status, reason, message in listed
    ]


def device_classes() -> list[Obj]:
    """The device classes that the drivers bring along."""
    gpu = _device_class("gpu.nvidia.com", _typed("gpu.nvidia.com", "gpu"))
    gpu["spec"]["extendedResourceName"] = "nvidia.com/gpu"
    channel = f"{_typed(COMPUTE_DOMAIN_DRIVER, 'channel')} && device.attributes['{COMPUTE_DOMAIN_DRIVER}'].id == 0"
    return [
        gpu,
        _device_class("mig.nvidia.com", _typed("gpu.nvidia.com", "mig")),
        _device_class("vfio.gpu.nvidia.com", _typed("gpu.nvidia.com", "vfio")),
        _device_class("compute-domain-daemon.nvidia.com", _typed(COMPUTE_DOMAIN_DRIVER, "daemon")),
        _device_class("compute-domain-default-channel.nvidia.com", channel),
        *(_device_class(name, f"device.driver == '{name}'") for name in _PLAIN_CLASSES),
    ]


_PLAIN_CLASSES: Final = ("tpu.google.com", "gpu.amd.com", "gaudi.intel.com")


def _typed(driver: str, type_: str) -> str:
    return f"device.driver == '{driver}' && device.attributes['{driver}'].type == '{type_}'"


def _device_class(name: str, expression: str) -> Obj:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": name},
        "spec": {"selectors": [{"cel": {"expression": expression}}]},
    }
