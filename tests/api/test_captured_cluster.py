"""What is read from a cluster at once, and written to a file, tells the same as the cluster."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import haru
from haru.api.anonymize import hidden
from haru.cli.main import main
from haru.testing import Cluster

WORK = """
apiVersion: v1
kind: LimitRange
metadata: {name: small}
spec: {limits: [{type: Container, max: {cpu: "4"}}]}
---
apiVersion: v1
kind: ResourceQuota
metadata: {name: one-pod}
spec: {hard: {pods: "1"}}
---
apiVersion: batch/v1
kind: Job
metadata: {name: secret-large}
spec:
  template:
    spec:
      restartPolicy: Never
      containers: [{name: main, image: x, resources: {requests: {cpu: "6"}, limits: {cpu: "6"}}}]
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: secret-web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: main, image: x, resources: {requests: {cpu: "1"}, limits: {cpu: "1"}}}]}
"""


def held(snapshot: haru.Snapshot) -> dict[str, tuple[str, str]]:
    """Of each workload that waits: the verdict and its sentence, without the name of the pod that was tried."""
    items = snapshot.explain_pending().as_dict()["items"]
    told = ((item["workload"], item["explanation"]) for item in items)
    return {workload: (found["verdict"], _untimed(found["summary"])) for workload, found in told}


def _untimed(message: str) -> str:
    return re.sub(r'pods "[^"]*"|20[0-9TZ:-]*', "", message)


def test_captured_cluster_tells_why_pods_are_not_created(
    haru_cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    haru_cluster.apply(WORK)
    haru_cluster.wait_for_event("secret-large", "FailedCreate")
    haru_cluster.wait("Deployment", "secret-web", "ReplicaFailure")
    file = tmp_path / "cluster.json"
    assert main(["capture", "--kubeconfig", str(haru_cluster.kubeconfig), "-w", str(file)]) == 0
    assert "refused" not in capsys.readouterr().err
    read, fetched = haru.Snapshot.read(file), haru.Snapshot.fetch(haru_cluster.kubeconfig)
    told = held(read)
    assert told == held(fetched)
    verdict, reason = told["job/secret-large"]
    assert verdict == "FitsIf" and "maximum cpu usage per Container is 4, but limit is 6" in reason
    found = read.explain("job/secret-large")
    assert {"FailedCreate", "QuotaExceeded"} <= {one.type for one in found.reasons}, "quotas are asked last"
    ways = [(way.kind, way.confirmed) for way in found.remedies]
    assert ways == [("LowerRequest", False), ("RaiseQuota", False)]
    verdict, reason = told["deployment/secret-web"]
    assert "one-pod" in reason
    assert read.what_if(haru.Delete("deployment/secret-web")).displaced[0].outcome == "Deleted"
    # Nobody's names, and yet the same verdicts.
    assert "secret-" not in json.dumps(hidden(read.objects))
    assert sorted(verdict for verdict, _ in held(read.hidden()).values()) == sorted(v for v, _ in told.values())


STORAGE: list[dict[str, Any]] = [
    {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": "disk", "annotations": {"by": "secret"}},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "csi": {
                "driver": "csi.example.com",
                "volumeHandle": "projects/secret/disk",
                "nodeStageSecretRef": {"name": "secret"},
            },
            "mountOptions": ["secret"],
        },
    },
    {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": "share"},
        "spec": {"capacity": {"storage": "1Gi"}, "nfs": {"server": "secret.example.com", "path": "/secret"}},
    },
    {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": "fast"},
        "provisioner": "csi.example.com",
        "parameters": {"pool": "secret"},
    },
    {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSINode",
        "metadata": {"name": "secret-node"},
        "spec": {
            "drivers": [{"name": "csi.example.com", "nodeID": "projects/secret/node", "allocatable": {"count": 1}}]
        },
    },
    {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "VolumeAttachment",
        "metadata": {"name": "secret-attached"},
        "spec": {"attacher": "csi.example.com", "nodeName": "secret-node", "source": {"persistentVolumeName": "disk"}},
        "status": {"attached": True, "attachmentMetadata": {"devicePath": "/dev/secret"}},
    },
    {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "late", "annotations": {"volume.kubernetes.io/selected-node": "secret-node"}},
        "spec": {"storageClassName": "fast"},
    },
]


def test_hidden_capture_says_nothing_of_where_storage_is_and_keeps_its_limits() -> None:
    found = {obj["kind"]: obj for obj in hidden(STORAGE)}
    assert "secret" not in json.dumps(hidden(STORAGE))
    limits, attached = found["CSINode"], found["VolumeAttachment"]
    assert limits["spec"]["drivers"][0]["allocatable"] == {"count": 1}
    assert attached["spec"]["nodeName"] == limits["metadata"]["name"]
    assert [*found["PersistentVolumeClaim"]["metadata"]["annotations"].values()] == [limits["metadata"]["name"]]
