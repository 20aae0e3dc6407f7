"""Defaults of core/v1 but for pods, of networking, discovery, scheduling (KEP 4671, 5710) and storage."""

from __future__ import annotations

import base64

from haru.kube.defaulting.filling import Fillers, agree_on_first, fill, fill_unset, items, part, section
from haru.kube.defaulting.volumes import fill_volume_sources
from haru.kube.gates import FeatureGates
from haru.kube.meta import Obj

_CLIENT_IP_SECONDS = 10800


def _service(service: Obj, gates: FeatureGates) -> None:
    spec = section(service, "spec")
    fill(spec, sessionAffinity="None", type="ClusterIP")
    if spec["sessionAffinity"] == "None":
        spec.pop("sessionAffinityConfig", None)
    elif (
        spec["sessionAffinity"] == "ClientIP"
        and (part(spec, "sessionAffinityConfig", "clientIP") or {}).get("timeoutSeconds") is None
    ):
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
    spec, status = part(node, "spec"), part(node, "status")
    if spec is not None:
        agree_on_first(spec, "podCIDR", "podCIDRs")
    if status is not None and status.get("capacity") is not None and status.get("allocatable") is None:
        status["allocatable"] = dict(status["capacity"])


def _secret(secret: Obj, gates: FeatureGates) -> None:
    """`stringData` is a way to write `data`, and nobody sees it again."""
    fill(secret, type="Opaque")
    if plain := secret.pop("stringData", None):
        encoded = {name: base64.b64encode(value.encode()).decode() for name, value in plain.items()}
        secret["data"] = {**(secret.get("data") or {}), **encoded}


def _persistent_volume(volume: Obj, gates: FeatureGates) -> None:
    spec = section(volume, "spec")
    fill(spec, persistentVolumeReclaimPolicy="Retain")
    fill_unset(spec, volumeMode="Filesystem")
    fill_volume_sources(spec)
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


def _network_policy(policy: Obj, gates: FeatureGates) -> None:
    spec = section(policy, "spec")
    for rule in (*items(spec, "ingress"), *items(spec, "egress")):
        for port in items(rule, "ports"):
            fill_unset(port, protocol="TCP")
    if not spec.get("policyTypes"):
        spec["policyTypes"] = ["Ingress", "Egress"] if spec.get("egress") else ["Ingress"]


def _ingress_class(ingress_class: Obj, gates: FeatureGates) -> None:
    parameters = part(ingress_class, "spec", "parameters")
    if parameters is not None:
        fill_unset(parameters, scope="Cluster")


def _endpoint_slice(endpoint_slice: Obj, gates: FeatureGates) -> None:
    for port in items(endpoint_slice, "ports"):
        fill_unset(port, name="", protocol="TCP")


def _priority_class(priority_class: Obj, gates: FeatureGates) -> None:
    fill_unset(priority_class, preemptionPolicy="PreemptLowerPriority", value=0)


def _pod_group(pod_group: Obj, gates: FeatureGates) -> None:
    if gates.enabled("WorkloadAwarePreemption"):
        fill_unset(section(pod_group, "spec"), disruptionMode="Pod")


def _storage_class(storage_class: Obj, gates: FeatureGates) -> None:
    fill_unset(storage_class, reclaimPolicy="Delete", volumeBindingMode="Immediate")


def _volume_attachment(attachment: Obj, gates: FeatureGates) -> None:
    fill_volume_sources(part(attachment, "spec", "source", "inlineVolumeSpec") or {})


def _csi_driver(driver: Obj, gates: FeatureGates) -> None:
    spec = section(driver, "spec")
    fill_unset(
        spec,
        attachRequired=True,
        podInfoOnMount=False,
        storageCapacity=False,
        fsGroupPolicy="ReadWriteOnceWithFSType",
        requiresRepublish=False,
        seLinuxMount=False,
    )
    if not spec.get("volumeLifecycleModes"):
        spec["volumeLifecycleModes"] = ["Persistent"]


FILLERS: Fillers = {
    ("", "Service"): _service,
    ("", "Namespace"): _namespace,
    ("", "Node"): _node,
    ("", "Secret"): _secret,
    ("", "PersistentVolume"): _persistent_volume,
    ("", "PersistentVolumeClaim"): _persistent_volume_claim,
    ("", "Endpoints"): _endpoints,
    ("", "LimitRange"): _limit_range,
    ("networking.k8s.io", "NetworkPolicy"): _network_policy,
    ("networking.k8s.io", "IngressClass"): _ingress_class,
    ("discovery.k8s.io", "EndpointSlice"): _endpoint_slice,
    ("scheduling.k8s.io", "PriorityClass"): _priority_class,
    ("scheduling.k8s.io", "PodGroup"): _pod_group,
    ("storage.k8s.io", "StorageClass"): _storage_class,
    ("storage.k8s.io", "VolumeAttachment"): _volume_attachment,
    ("storage.k8s.io", "CSIDriver"): _csi_driver,
}
