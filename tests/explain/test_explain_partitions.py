"""What is told of schedulers that share a cluster: partitions, and devices with two holders."""

from __future__ import annotations

import json
from typing import Any

import haru

Obj = dict[str, Any]
DRIVER = "gpu.example.com"


def cluster(*more: Obj) -> haru.Snapshot:
    """Two nodes with a device each."""
    objects: list[Obj] = [
        {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "gpu"}, "spec": {}}
    ]
    for name in ("n1", "n2"):
        room = {"cpu": "8", "memory": "8Gi", "pods": "10"}
        metadata = {"name": name, "labels": {"team": name}}
        objects.append({"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": {"allocatable": room}})
        pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": DRIVER, "nodeName": name, "pool": pool, "devices": [{"name": "d0"}]}
        objects.append(
            {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": name}, "spec": spec}
        )
    return haru.Snapshot.of([*objects, *more])


def claim(name: str, device: str = "", pod: str = "") -> Obj:
    spec = {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}}
    status: Obj = {}
    if device:
        result = {"request": "r", "driver": DRIVER, "pool": "n1", "device": device}
        status = {"allocation": {"devices": {"results": [result]}}}
    if pod:
        status["reservedFor"] = [{"resource": "pods", "name": pod, "uid": f"uid-{pod}"}]
    metadata = {"name": name, "namespace": "default", "uid": f"uid-{name}"}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": metadata,
        "spec": spec,
        "status": status,
    }


def pod(name: str, claim: str, node: str = "", scheduler: str = "haru") -> Obj:
    spec: Obj = {
        "schedulerName": scheduler,
        "containers": [{"name": "c", "image": "i"}],
        "resourceClaims": [{"name": "gpu", "resourceClaimName": claim}],
    }
    if node:
        spec["nodeName"] = node
    metadata = {"name": name, "namespace": "default", "uid": f"uid-{name}"}
    phase = {"phase": "Running" if node else "Pending"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": phase}


def lease(partition: Obj, holder: str = "host_1") -> Obj:
    told = {"schedulerNames": ["haru"], "partition": partition}
    annotations = {
        "scheduler.haru.dev/partition": json.dumps(told),
        "scheduler.haru.dev/published-by": holder,
    }
    metadata = {
        "name": "second" if holder == "host_1" else "haru",
        "namespace": "kube-system",
        "annotations": annotations,
    }
    spec = {"holderIdentity": "host_1", "leaseDurationSeconds": 15}
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}


def test_device_with_two_holders_is_told_by_top_and_explain() -> None:
    taken = [
        claim("a", "d0", "a"),
        claim("b", "d0", "b"),
        pod("a", "a", "n1"),
        pod("b", "b", "n1", "default-scheduler"),
    ]
    snapshot = cluster(*taken)
    usage = snapshot.usage()
    assert usage.as_dict()["devicesAllocatedTwice"] == [
        {"device": f"{DRIVER}/n1/d0", "claims": ["default/a", "default/b"], "exceeded": ""}
    ]
    sentence = f"device {DRIVER}/n1/d0 is allocated to default/a and default/b: delete the pod of one of them"
    assert sentence in str(usage)
    for subject in ("pod/a", "pod/b", "resourceclaim/a"):
        told = snapshot.explain(subject).as_dict()
        assert sentence in [reason["message"] for reason in told["reasons"] if reason["type"] == "DeviceAllocatedTwice"]


def test_pod_is_explained_under_the_partition_of_its_scheduler() -> None:
    waiting = [claim("a", "d0"), claim("w"), pod("w", "w")]
    assert cluster(*waiting, lease({})).explain("pod/w").as_dict()["verdict"] == "Starting"
    told = cluster(*waiting, lease({"nodeSelector": "team=n1"})).explain("pod/w").as_dict()
    assert told["verdict"] != "Starting"
    assert "outside this scheduler's partition" in json.dumps(told)
    # What an earlier holder of the Lease wrote does not count.
    old = cluster(*waiting, lease({"nodeSelector": "team=n1"}, holder="host_2")).explain("pod/w")
    assert old.as_dict()["verdict"] == "Starting"


def test_pools_outside_the_partition_are_counted_in_the_explanation() -> None:
    told = cluster(claim("w"), pod("w", "w"), lease({"pools": ["elsewhere"]})).explain("pod/w").as_dict()
    assert "1 device of the node is outside this scheduler's partition" in json.dumps(told)
