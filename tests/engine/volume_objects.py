"""PersistentVolumes, claims and StorageClasses as a person would write them, defaults filled in."""

from __future__ import annotations

from typing import Any

Obj = dict[str, Any]
HOSTNAME = "kubernetes.io/hostname"
LOCAL = "local"
FAST = "fast"
"""A class without a provisioner, and one with."""
PROVISIONER = "csi.example.com"


def storage_class(name: str = LOCAL, provisioner: str = "kubernetes.io/no-provisioner", **fields: Any) -> Obj:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name},
        "provisioner": provisioner,
        "reclaimPolicy": "Delete",
        "volumeBindingMode": "WaitForFirstConsumer",
        **fields,
    }


def within(key: str, *values: str) -> Obj:
    """A NodeSelector."""
    return {"nodeSelectorTerms": [{"matchExpressions": [{"key": key, "operator": "In", "values": list(values)}]}]}


def volume(
    name: str,
    node: str = "",
    size: str = "1Gi",
    class_name: str = LOCAL,
    *,
    phase: str = "Available",
    labels: Obj | None = None,
    claim: Obj | None = None,
    **spec: Any,
) -> Obj:
    """A volume on one node (or, without, everywhere); `claim`: the one that it is reserved for."""
    obj: Obj = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name, "uid": f"uid-{name}", "resourceVersion": "1", "labels": labels or {}},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "capacity": {"storage": size},
            "storageClassName": class_name,
            "volumeMode": "Filesystem",
            "persistentVolumeReclaimPolicy": "Retain",
            "local" if node else "hostPath": {"path": f"/mnt/{name}"},
            **spec,
        },
        "status": {"phase": phase},
    }
    if node:
        obj["spec"]["nodeAffinity"] = {"required": within(HOSTNAME, node)}
    if claim is not None:
        metadata = claim["metadata"]
        owner = {"namespace": metadata["namespace"], "name": metadata["name"], "uid": metadata.get("uid", "")}
        obj["spec"]["claimRef"] = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", **owner}
    return obj


def volume_claim(
    name: str, size: str = "1Gi", class_name: str = LOCAL, *, selected: str = "", bound: str = "", **spec: Any
) -> Obj:
    """A claim; `selected`: the node for which it is to be provisioned, `bound`: its volume."""
    annotations = {}
    metadata: Obj = {"name": name, "namespace": "default", "uid": f"uid-{name}", "resourceVersion": "1"}
    if selected:
        annotations["volume.kubernetes.io/selected-node"] = selected
    if bound:
        annotations["pv.kubernetes.io/bind-completed"] = "yes"
        spec["volumeName"] = bound
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {**metadata, "annotations": annotations},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": class_name,
            "volumeMode": "Filesystem",
            "resources": {"requests": {"storage": size}},
            **spec,
        },
        "status": {"phase": "Bound" if bound else "Pending"},
    }


def uses(*claims: str) -> list[Obj]:
    """`spec.volumes` of a pod that uses these claims."""
    return [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in claims]


def csi_driver(name: str = PROVISIONER, *, storage_capacity: bool = True) -> Obj:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSIDriver",
        "metadata": {"name": name},
        "spec": {"storageCapacity": storage_capacity},
    }


def csi_capacity(name: str, topology: Obj | None, capacity: str = "10Gi", class_name: str = FAST, **fields: Any) -> Obj:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSIStorageCapacity",
        "metadata": {"name": name, "namespace": "kube-system"},
        "storageClassName": class_name,
        "nodeTopology": topology,
        "capacity": capacity,
        **fields,
    }


def csi_volume(name: str, **more: Any) -> Obj:
    """A volume of the provisioner's driver, reachable from every node."""
    return volume(name, class_name=FAST, hostPath=None, csi={"driver": PROVISIONER, "volumeHandle": name}, **more)


def volume_limit(node: str, count: int) -> Obj:
    """The CSINode of a node that can attach so many volumes of the provisioner's driver."""
    driver = {"name": PROVISIONER, "nodeID": node, "allocatable": {"count": count}}
    version = "storage.k8s.io/v1"
    return {"apiVersion": version, "kind": "CSINode", "metadata": {"name": node}, "spec": {"drivers": [driver]}}


def attachment(name: str, node: str) -> Obj:
    """A volume that is attached to a node."""
    spec = {"attacher": PROVISIONER, "nodeName": node, "source": {"persistentVolumeName": name}}
    meta = {"name": f"{name}-on-{node}"}
    return {"apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": meta, "spec": spec}
