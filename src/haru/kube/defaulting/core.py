"""Defaults of the remaining core/v1 kinds: services, namespaces, nodes, volumes, secrets, limits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from haru.kube.defaulting.filling import fill, fill_unset, items, part, section

if TYPE_CHECKING:
    from haru.kube.gates import FeatureGates

Obj = dict[str, Any]

_CLIENT_IP_SECONDS = 10800


def _service(service: Obj, gates: FeatureGates) -> None:
    spec = section(service, "spec")
    fill(spec, sessionAffinity="None", type="ClusterIP")
    if spec["sessionAffinity"] == "None":
        spec.pop("sessionAffinityConfig", None)
    elif (part(spec, "sessionAffinityConfig", "clientIP") or {}).get("timeoutSeconds") is None:
        spec["sessionAffinityConfig"] = {"clientIP": {"timeoutSeconds": _CLIENT_IP_SECONDS}}
    for port in items(spec, "ports"):
        fill(port, protocol="TCP", targetPort=port.get("port"))
    kind = spec["type"]
    outside = kind in ("LoadBalancer", "NodePort") or (kind == "ClusterIP" and bool(spec.get("externalIPs")))
    if outside:
        fill(spec, externalTrafficPolicy="Cluster")
    if kind in ("NodePort", "LoadBalancer", "ClusterIP"):
        fill_unset(spec, internalTrafficPolicy="Cluster")
    if kind == "LoadBalancer":
        fill_unset(spec, allocateLoadBalancerNodePorts=True)
        for ingress in items(part(service, "status", "loadBalancer"), "ingress"):
            if ingress.get("ip"):
                fill_unset(ingress, ipMode="VIP")


def _namespace(namespace: Obj, gates: FeatureGates) -> None:
    metadata = section(namespace, "metadata")
    if metadata.get("name"):
        section(metadata, "labels")["kubernetes.io/metadata.name"] = metadata["name"]
    fill(section(namespace, "status"), phase="Active")


def _node(node: Obj, gates: FeatureGates) -> None:
    status = part(node, "status")
    if status is not None and status.get("capacity") is not None and status.get("allocatable") is None:
        status["allocatable"] = dict(status["capacity"])


def _secret(secret: Obj, gates: FeatureGates) -> None:
    fill(secret, type="Opaque")


def _persistent_volume(volume: Obj, gates: FeatureGates) -> None:
    spec = section(volume, "spec")
    fill(spec, persistentVolumeReclaimPolicy="Retain")
    fill_unset(spec, volumeMode="Filesystem")
    host_path = part(spec, "hostPath")
    if host_path is not None:
        fill_unset(host_path, type="")
    fill(section(volume, "status"), phase="Pending")


def _persistent_volume_claim(claim: Obj, gates: FeatureGates) -> None:
    fill_unset(section(claim, "spec"), volumeMode="Filesystem")
    fill(section(claim, "status"), phase="Pending")


def _endpoints(endpoints: Obj, gates: FeatureGates) -> None:
    for subset in items(endpoints, "subsets"):
        for port in items(subset, "ports"):
            fill(port, protocol="TCP")


def _limit_range(limit_range: Obj, gates: FeatureGates) -> None:
    for item in items(part(limit_range, "spec"), "limits"):
        if item.get("type") != "Container":
            continue
        limits = {**(item.get("max") or {}), **(item.get("default") or {})}
        requests = {**(item.get("min") or {}), **limits, **(item.get("defaultRequest") or {})}
        if limits:
            item["default"] = limits
        if requests:
            item["defaultRequest"] = requests


FILLERS: Mapping[tuple[str, str], Callable[[Obj, FeatureGates], None]] = {
    ("", "Service"): _service,
    ("", "Namespace"): _namespace,
    ("", "Node"): _node,
    ("", "Secret"): _secret,
    ("", "PersistentVolume"): _persistent_volume,
    ("", "PersistentVolumeClaim"): _persistent_volume_claim,
    ("", "Endpoints"): _endpoints,
    ("", "LimitRange"): _limit_range,
}
