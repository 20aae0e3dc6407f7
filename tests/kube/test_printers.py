from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from haru.kube import printers
from haru.kube.errors import StatusError
from haru.kube.kinds import Kind, all_kinds, known_kind

Obj = dict[str, Any]
NOW = datetime(2026, 1, 2, 12, 0, 0, tzinfo=UTC)
MINUTE, HOUR, DAY, YEAR = 60, 3600, 86400, 365 * 86400


def cells(api_version: str, kind: str, obj: Obj) -> Obj:
    """Column name -> cell, of an object created an hour and a half ago."""
    obj = {**obj, "metadata": {"name": "x", "creationTimestamp": "2026-01-02T10:30:00Z", **obj.get("metadata", {})}}
    found = known_kind(api_version, kind)
    row = printers.row(found, obj, NOW)
    columns = printers.columns(found)
    assert len(row) >= len(columns)
    return {column["name"]: cell for column, cell in zip(columns, row, strict=False)}


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "<invalid>"),
        (-1, "0s"),
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (190, "3m10s"),
        (10 * MINUTE, "10m"),
        (179 * MINUTE, "179m"),
        (3 * HOUR, "3h"),
        (7 * HOUR + 59 * MINUTE, "7h59m"),
        (8 * HOUR + 59 * MINUTE, "8h"),
        (47 * HOUR, "47h"),
        (2 * DAY, "2d"),
        (5 * DAY + 3 * HOUR, "5d3h"),
        (8 * DAY + 3 * HOUR, "8d"),
        (729 * DAY, "729d"),
        (2 * YEAR, "2y"),
        (3 * YEAR + 5 * DAY, "3y5d"),
        (9 * YEAR + 5 * DAY, "9y"),
    ],
)
def test_age_is_shown_as_human_duration(seconds: float, text: str) -> None:
    assert printers.human_duration(seconds) == text


def status(name: str, ready: bool = False, restarts: int = 0, finished: str = "", **state: Obj) -> Obj:
    last = {"terminated": {"finishedAt": finished}} if finished else {}
    return {"name": name, "ready": ready, "restartCount": restarts, "state": state, "lastState": last}


RUNNING: Obj = {"running": {"startedAt": "2026-01-02T11:00:00Z"}}
POD_CASES: list[tuple[str, Obj, tuple[str, str, str]]] = [
    ("pending", {"status": {"phase": "Pending"}}, ("0/1", "Pending", "0")),
    (
        "gated",
        {"status": {"phase": "Pending", "conditions": [{"type": "PodScheduled", "reason": "SchedulingGated"}]}},
        ("0/1", "SchedulingGated", "0"),
    ),
    (
        "running",
        {"status": {"phase": "Running", "containerStatuses": [status("c", True, **RUNNING)]}},
        ("1/1", "Running", "0"),
    ),
    (
        "crashing",
        {
            "status": {
                "phase": "Running",
                "containerStatuses": [
                    status("c", restarts=3, finished="2026-01-02T11:55:00Z", waiting={"reason": "CrashLoopBackOff"})
                ],
            }
        },
        ("0/1", "CrashLoopBackOff", "3 (5m ago)"),
    ),
    (
        "ended",
        {"status": {"phase": "Failed", "containerStatuses": [status("c", terminated={"exitCode": 3})]}},
        ("0/1", "ExitCode:3", "0"),
    ),
    (
        "killed",
        {"status": {"phase": "Failed", "containerStatuses": [status("c", terminated={"exitCode": 1, "signal": 9})]}},
        ("0/1", "Signal:9", "0"),
    ),
    (
        "initializing",
        {
            "spec": {"initContainers": [{"name": "i"}, {"name": "j"}], "containers": [{"name": "c"}]},
            "status": {
                "phase": "Pending",
                "initContainerStatuses": [
                    status("i", terminated={"exitCode": 0}),
                    status("j", waiting={"reason": "PodInitializing"}),
                ],
                "containerStatuses": [status("c", waiting={"reason": "PodInitializing"})],
            },
        },
        ("0/1", "Init:1/2", "0"),
    ),
    (
        "init failed",
        {
            "spec": {"initContainers": [{"name": "i"}], "containers": [{"name": "c"}]},
            "status": {
                "phase": "Pending",
                "initContainerStatuses": [status("i", restarts=2, terminated={"exitCode": 1, "reason": "Error"})],
            },
        },
        ("0/1", "Init:Error", "2"),
    ),
    (
        "sidecar",
        {
            "spec": {
                "initContainers": [{"name": "s", "restartPolicy": "Always"}],
                "containers": [{"name": "c"}],
            },
            "status": {
                "phase": "Running",
                "initContainerStatuses": [{**status("s", True, restarts=1, **RUNNING), "started": True}],
                "containerStatuses": [status("c", True, **RUNNING)],
            },
        },
        ("2/2", "Running", "1"),
    ),
    (
        "half done",
        {
            "spec": {"containers": [{"name": "a"}, {"name": "b"}]},
            "status": {
                "phase": "Running",
                "containerStatuses": [
                    status("a", terminated={"exitCode": 0, "reason": "Completed"}),
                    status("b", True, **RUNNING),
                ],
            },
        },
        ("1/2", "NotReady", "0"),
    ),
    (
        "deleting",
        {
            "metadata": {"deletionTimestamp": "2026-01-02T12:00:30Z"},
            "status": {"phase": "Running", "containerStatuses": [status("c", True, **RUNNING)]},
        },
        ("1/1", "Terminating", "0"),
    ),
    (
        "lost",
        {
            "metadata": {"deletionTimestamp": "2026-01-02T12:00:30Z"},
            "status": {"phase": "Running", "reason": "NodeLost"},
        },
        ("0/1", "Unknown", "0"),
    ),
    ("evicted", {"status": {"phase": "Failed", "reason": "Evicted"}}, ("0/1", "Evicted", "0")),
]


@pytest.mark.parametrize(("obj", "expected"), [case[1:] for case in POD_CASES], ids=[case[0] for case in POD_CASES])
def test_pod_row_shows_ready_status_and_restarts(obj: Obj, expected: tuple[str, str, str]) -> None:
    row = cells("v1", "Pod", {"spec": {"containers": [{"name": "c"}]}, **obj})
    assert (row["Ready"], row["Status"], row["Restarts"]) == expected
    assert row["Age"] == "90m"


def test_wide_pod_columns() -> None:
    obj = {
        "spec": {"nodeName": "n", "readinessGates": [{"conditionType": "a"}, {"conditionType": "b"}]},
        "status": {"podIP": "10.0.0.1", "conditions": [{"type": "a", "status": "True"}]},
    }
    row = cells("v1", "Pod", obj)
    wide = ("IP", "Node", "Nominated Node", "Readiness Gates")
    assert [row[name] for name in wide] == ["10.0.0.1", "n", "<none>", "1/2"]
    shown = [c["name"] for c in printers.columns(known_kind("v1", "Pod")) if c["priority"] == 0]
    assert shown == ["Name", "Ready", "Status", "Restarts", "Age"]


CLAIM: Obj = {"allocation": {"devices": {}}}
METADATA_DELETED = {"deletionTimestamp": "2026-01-02T12:00:00Z"}
POOL = {"totalDevices": 8, "allocatedDevices": 2, "availableDevices": 5, "unavailableDevices": 1}
COMPLETE = {"type": "Complete", "status": "True", "lastTransitionTime": "2026-01-02T11:30:00Z"}
CASES: list[tuple[str, str, Obj, Obj]] = [
    (
        "v1", "Node",
        {"metadata": {"labels": {"node-role.kubernetes.io/worker": "", "kubernetes.io/role": "gpu"}},
         "spec": {"unschedulable": True},
         "status": {"conditions": [{"type": "Ready", "status": "True"}],
                    "nodeInfo": {"kubeletVersion": "v1.36.0"},
                    "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}]}},
        {"Status": "Ready,SchedulingDisabled", "Roles": "gpu,worker", "Version": "v1.36.0", "Internal-IP": "10.0.0.1"},
    ),
    ("v1", "Node", {}, {"Status": "Unknown", "Roles": "<none>"}),
    (
        "apps/v1", "Deployment",
        {"spec": {"replicas": 3, "selector": {"matchLabels": {"a": "b"}},
                  "template": {"spec": {"containers": [{"name": "c", "image": "i"}, {"name": "d", "image": "j"}]}}},
         "status": {"readyReplicas": 2, "updatedReplicas": 3, "availableReplicas": 1}},
        {"Ready": "2/3", "Up-to-date": 3, "Available": 1, "Containers": "c,d", "Images": "i,j", "Selector": "a=b"},
    ),
    ("apps/v1", "ReplicaSet", {"spec": {"replicas": 2}, "status": {"replicas": 1}},
     {"Desired": 2, "Current": 1, "Ready": 0, "Selector": "<none>"}),
    ("apps/v1", "StatefulSet", {"spec": {"replicas": 2}}, {"Ready": "0/2"}),
    ("apps/v1", "DaemonSet", {"status": {"desiredNumberScheduled": 2}}, {"Desired": 2, "Node Selector": "<none>"}),
    (
        "batch/v1", "Job",
        {"spec": {"completions": 4}, "status": {"succeeded": 1, "startTime": "2026-01-02T11:59:00Z"}},
        {"Status": "Running", "Completions": "1/4", "Duration": "60s"},
    ),
    (
        "batch/v1", "Job",
        {"spec": {"parallelism": 3},
         "status": {"conditions": [{"type": "Complete", "status": "True"}], "succeeded": 1,
                    "startTime": "2026-01-02T11:00:00Z", "completionTime": "2026-01-02T11:00:05Z"}},
        {"Status": "Complete", "Completions": "1/1 of 3", "Duration": "5s"},
    ),
    ("batch/v1", "Job", {"status": {"conditions": [{"type": "Suspended", "status": "True"}]}},
     {"Status": "Suspended", "Completions": "0/1", "Duration": ""}),
    ("batch/v1", "CronJob", {"spec": {"schedule": "* * * * *", "suspend": False}},
     {"Schedule": "* * * * *", "Suspend": "False", "Active": 0, "Last Schedule": "<none>", "Timezone": "<none>"}),
    (
        "v1", "Service",
        {"spec": {"type": "LoadBalancer", "clusterIP": "10.0.0.1", "selector": {"a": "b"},
                  "ports": [{"port": 80, "nodePort": 30080, "protocol": "TCP"}, {"port": 53, "protocol": "UDP"}]}},
        {"Cluster-IP": "10.0.0.1", "External-IP": "<pending>", "Port(s)": "80:30080/TCP,53/UDP", "Selector": "a=b"},
    ),
    ("v1", "Service", {"spec": {"type": "ExternalName", "externalName": "e.org"}},
     {"Cluster-IP": "<none>", "External-IP": "e.org", "Port(s)": "<none>"}),
    ("v1", "Namespace", {"status": {"phase": "Active"}}, {"Status": "Active"}),
    ("v1", "ConfigMap", {"data": {"a": ""}, "binaryData": {"b": ""}}, {"Data": 2}),
    ("v1", "Secret", {"type": "Opaque", "data": {"a": ""}}, {"Type": "Opaque", "Data": 1}),
    ("v1", "ServiceAccount", {}, {"Name": "x"}),
    (
        "v1", "Event",
        {"type": "Warning", "reason": "Failed", "message": " m\n", "involvedObject": {"kind": "Pod", "name": "p"},
         "firstTimestamp": "2026-01-02T11:00:00Z", "lastTimestamp": "2026-01-02T11:59:00Z", "count": 7,
         "source": {"component": "scheduler", "host": "h"}},
        {"Last Seen": "60s", "Object": "pod/p", "Message": "m", "First Seen": "60m", "Count": 7,
         "Source": "scheduler, h"},
    ),
    (
        "events.k8s.io/v1", "Event",
        {"note": "n", "regarding": {"kind": "Pod", "name": "p"}, "eventTime": "2026-01-02T11:59:00.000000Z",
         "reportingController": "c"},
        {"Last Seen": "60s", "Object": "pod/p", "Message": "n", "Count": 1, "Source": "c"},
    ),
    (
        "v1", "PersistentVolumeClaim",
        {"spec": {"volumeName": "v", "storageClassName": "s"},
         "status": {"phase": "Bound", "capacity": {"storage": "1Gi"},
                    "accessModes": ["ReadWriteMany", "ReadWriteOnce"]}},
        {"Status": "Bound", "Capacity": "1Gi", "Access Modes": "RWO,RWX", "StorageClass": "s", "VolumeMode": "<unset>"},
    ),
    ("v1", "PersistentVolume", {"spec": {"claimRef": {"namespace": "n", "name": "c"}}}, {"Claim": "n/c"}),
    ("storage.k8s.io/v1", "StorageClass",
     {"metadata": {"annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}, "provisioner": "p"},
     {"Name": "x (default)", "VolumeBindingMode": "Immediate", "AllowVolumeExpansion": False}),
    ("coordination.k8s.io/v1", "Lease", {"spec": {"holderIdentity": "me"}}, {"Holder": "me"}),
    ("v1", "Endpoints",
     {"subsets": [{"addresses": [{"ip": f"10.0.0.{i}"} for i in range(5)], "ports": [{"port": 80}]}]},
     {"Endpoints": "10.0.0.0:80,10.0.0.1:80,10.0.0.2:80 + 2 more..."}),
    ("networking.k8s.io/v1", "Ingress", {"spec": {"rules": [{"host": "a.org"}], "tls": [{}]}},
     {"Class": "<none>", "Hosts": "a.org", "Ports": "80, 443"}),
    ("scheduling.k8s.io/v1", "PriorityClass", {"value": 7}, {"Value": 7, "Global-Default": False}),
    ("policy/v1", "PodDisruptionBudget", {"spec": {"minAvailable": 0}},
     {"Min Available": "0", "Max Unavailable": "N/A", "Allowed Disruptions": 0}),
    ("rbac.authorization.k8s.io/v1", "ClusterRole", {}, {"Created At": "2026-01-02T10:30:00Z"}),
    (
        "rbac.authorization.k8s.io/v1", "RoleBinding",
        {"roleRef": {"kind": "Role", "name": "r"},
         "subjects": [{"kind": "User", "name": "u"}, {"kind": "ServiceAccount", "name": "s", "namespace": "n"}]},
        {"Role": "Role/r", "Users": "u", "Groups": "", "ServiceAccounts": "n/s"},
    ),
    ("certificates.k8s.io/v1", "CertificateSigningRequest",
     {"spec": {"signerName": "s", "username": "u", "expirationSeconds": 3600},
      "status": {"conditions": [{"type": "Approved"}], "certificate": "x"}},
     {"RequestedDuration": "60m", "Condition": "Approved,Issued"}),
    (
        "autoscaling/v2", "HorizontalPodAutoscaler",
        {"spec": {"scaleTargetRef": {"kind": "Deployment", "name": "d"}, "maxReplicas": 5, "metrics": [
            {"type": "Resource", "resource": {"name": "cpu", "target": {"averageUtilization": 80}}}]},
         "status": {"currentMetrics": [{"type": "Resource", "resource": {"current": {"averageUtilization": 40}}}]}},
        {"Reference": "Deployment/d", "Targets": "cpu: 40%/80%", "MinPods": "<none>", "MaxPods": 5},
    ),
    ("autoscaling/v1", "HorizontalPodAutoscaler",
     {"apiVersion": "autoscaling/v1", "spec": {"targetCPUUtilizationPercentage": 80, "minReplicas": 0}},
     {"Targets": "cpu: <unknown>/80%", "MinPods": "0"}),
    ("autoscaling/v1", "HorizontalPodAutoscaler",
     {"apiVersion": "autoscaling/v1",
      "metadata": {"annotations": {"autoscaling.alpha.kubernetes.io/metrics": json.dumps([
         {"type": "Resource", "resource": {"name": "memory", "targetAverageUtilization": 50}}])}}},
     {"Targets": "memory: <unknown>/50%"}),
    ("v1", "ResourceQuota", {"status": {"hard": {"limits.cpu": "2", "pods": "3"}, "used": {"pods": "1"}}},
     {"Request": "pods: 1/3", "Limit": "limits.cpu: 0/2"}),
    ("resource.k8s.io/v1", "ResourceClaim", {}, {"State": "pending"}),
    ("resource.k8s.io/v1beta1", "ResourceClaim", {"status": CLAIM}, {"State": "allocated"}),
    ("resource.k8s.io/v1", "ResourceClaim", {"status": {**CLAIM, "reservedFor": [{}]}},
     {"State": "allocated,reserved"}),
    ("resource.k8s.io/v1", "ResourceClaim", {"metadata": METADATA_DELETED, "status": CLAIM},
     {"State": "deleted,allocated"}),
    ("resource.k8s.io/v1", "ResourceClaim", {"metadata": METADATA_DELETED}, {"State": "deleted"}),
    ("resource.k8s.io/v1", "ResourceSlice", {"spec": {"driver": "d", "nodeName": "n", "pool": {"name": "p"}}},
     {"Node": "n", "Driver": "d", "Pool": "p"}),
    ("resource.k8s.io/v1", "DeviceClass", {}, {"Name": "x", "Age": "90m"}),
    ("resource.k8s.io/v1beta2", "DeviceTaintRule",
     {"spec": {"deviceSelector": {"driver": "d"}, "taint": {"key": "k", "value": "v", "effect": "NoExecute"}}},
     {"Key": "k", "Value": "v", "Effect": "NoExecute", "TimeAdded": "<unknown>"}),
    ("resource.k8s.io/v1alpha3", "ResourcePoolStatusRequest", {"spec": {"driver": "d"}},
     {"Driver": "d", "Total": "-", "Pools": 0, "Status": "Pending", "Completed": "<none>"}),
    ("resource.k8s.io/v1alpha3", "ResourcePoolStatusRequest",
     {"spec": {"driver": "d"},
      "status": {"poolCount": 3, "pools": [POOL, {"validationError": "incomplete"}], "conditions": [COMPLETE]}},
     {"Total": "8", "Available": "5", "Allocated": "2", "Unavailable": "1", "Errors": "1", "Pools": 3,
      "Status": "Complete (2/3 pools)", "Completed": "30m"}),
    (
        "scheduling.k8s.io/v1alpha2", "PodGroup",
        {"spec": {"schedulingPolicy": {"gang": {"minCount": 4}}},
         "status": {"conditions": [{"type": "PodGroupScheduled", "status": "False", "reason": "Unschedulable"}]}},
        {"Policy": "Gang", "Workload": "<none>", "Status": "Unschedulable"},
    ),
    ("scheduling.k8s.io/v1alpha2", "PodGroup", {"spec": {"schedulingPolicy": {"basic": {}}}},
     {"Policy": "Basic", "Workload": "<none>", "Status": "Pending"}),
    ("scheduling.k8s.io/v1alpha2", "Workload",
     {"spec": {"controllerRef": {"kind": "Job", "name": "j"}, "podGroupTemplates": [{"name": "t"}]}},
     {"Name": "x"}),
]  # fmt: skip


@pytest.mark.parametrize(("api_version", "kind", "obj", "expected"), CASES)
def test_row_has_expected_cells(api_version: str, kind: str, obj: Obj, expected: Obj) -> None:
    row = cells(api_version, kind, obj)
    assert {name: row[name] for name in expected} == expected


@pytest.mark.parametrize("kind", [k for k in all_kinds() if not k.virtual], ids=str)
def test_every_kind_prints_an_empty_object(kind: Kind) -> None:
    row = printers.row(kind, {}, NOW)
    columns = printers.columns(kind)
    assert len(row) == len(columns) + (kind.plural == "ipaddresses")  # which has a cell without a column
    for cell, column in zip(row, columns, strict=False):
        expected = {"integer": int, "boolean": (bool, str)}.get(column["type"], str | int | bool)
        assert isinstance(cell, expected)  # type: ignore[arg-type]
    names = [column["name"] for column in columns]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("phase", "message"),
    [("Failed", "The pod failed."), ("Succeeded", "The pod has completed successfully."), ("Running", "")],
)
def test_row_of_a_pod_that_is_over_says_so(phase: str, message: str) -> None:
    obj = {"metadata": {"name": "x"}, "status": {"phase": phase}}
    completed = [{"type": "Completed", "status": "True", "reason": phase, "message": message}] if message else None
    kind = known_kind("v1", "Pod")
    assert printers.table(kind, [obj], NOW)["rows"][0].get("conditions") == completed
    assert json.loads(printers.PreparedRow.of(kind, obj).encoded(NOW)).get("conditions") == completed


@pytest.mark.parametrize(
    ("info", "shown"),
    [
        ({"kernelVersion": "6.1", "architecture": "amd64"}, "6.1 (amd64)"),
        ({"kernelVersion": "6.1"}, "6.1"),
        ({"architecture": "amd64"}, "<unknown> (amd64)"),
    ],
)
def test_kernel_of_a_node_is_shown_with_its_architecture(info: Obj, shown: str) -> None:
    assert cells("v1", "Node", {"status": {"nodeInfo": info}})["Kernel-Version"] == shown


def test_table_has_columns_rows_and_requested_objects() -> None:
    kind = known_kind("v1", "ConfigMap")
    obj = {"metadata": {"name": "x", "labels": {"a": "b"}}, "data": {"k": "v"}}
    table = printers.table(kind, [obj], NOW, list_metadata={"resourceVersion": "7"})
    assert (table["kind"], table["apiVersion"], table["metadata"]) == (
        "Table",
        "meta.k8s.io/v1",
        {"resourceVersion": "7"},
    )
    assert table["columnDefinitions"][0] == {
        "name": "Name", "type": "string", "format": "name", "description": "The object's name.", "priority": 0,
    }  # fmt: skip
    partial = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": obj["metadata"]}
    assert table["rows"] == [{"cells": ["x", 1, "<unknown>"], "object": partial}]
    whole = printers.table(kind, [obj], NOW, "Object", with_columns=False)
    assert whole["columnDefinitions"] == []
    assert whole["rows"][0]["object"] == {"kind": "ConfigMap", "apiVersion": "v1", **obj}
    assert printers.table(kind, [obj], NOW, "None")["rows"][0]["object"] is None
    with pytest.raises(StatusError, match="includeObject: Invalid value: \"Everything\": must be 'Metadata'"):
        printers.table(kind, [obj], NOW, "Everything")


@pytest.mark.parametrize(
    ("api_version", "kind", "obj", "expected"),
    [
        (
            "storage.k8s.io/v1",
            "CSIDriver",
            {
                "spec": {
                    "attachRequired": False,
                    "tokenRequests": [{"audience": "a"}],
                    "volumeLifecycleModes": ["Ephemeral"],
                }
            },
            {"AttachRequired": False, "PodInfoOnMount": False, "TokenRequests": "a", "Modes": "Ephemeral"},
        ),
        ("storage.k8s.io/v1", "CSINode", {"spec": {"drivers": [{}, {}]}}, {"Drivers": 2, "Age": "90m"}),
        (
            "storage.k8s.io/v1",
            "CSIStorageCapacity",
            {"storageClassName": "s"},
            {"Created At": "2026-01-02T10:30:00Z"},
        ),
        ("storage.k8s.io/v1", "VolumeAttributesClass", {"driverName": "d"}, {"DriverName": "d"}),
        (
            "flowcontrol.apiserver.k8s.io/v1",
            "FlowSchema",
            {"spec": {"priorityLevelConfiguration": {"name": "p"}, "matchingPrecedence": 5}},
            {"PriorityLevel": "p", "MatchingPrecedence": 5, "DistinguisherMethod": "<none>", "MissingPL": "?"},
        ),
        (
            "flowcontrol.apiserver.k8s.io/v1",
            "PriorityLevelConfiguration",
            {"spec": {"type": "Limited", "limited": {"limitResponse": {"queuing": {"queues": 8}}}}},
            {"Type": "Limited", "NominalConcurrencyShares": "<none>", "Queues": 8, "HandSize": "<none>"},
        ),
        ("networking.k8s.io/v1", "ServiceCIDR", {"spec": {"cidrs": ["10.96.0.0/16"]}}, {"CIDRs": "10.96.0.0/16"}),
        (
            "networking.k8s.io/v1",
            "IPAddress",
            {"spec": {"parentRef": {"resource": "services", "namespace": "default", "name": "a"}}},
            {"ParentRef": "services/default/a"},
        ),
        ("certificates.k8s.io/v1beta1", "ClusterTrustBundle", {"spec": {}}, {"SignerName": "<none>"}),
    ],
)
def test_rows_of_storage_and_other_cluster_kinds(api_version: str, kind: str, obj: Obj, expected: Obj) -> None:
    shown = cells(api_version, kind, obj)
    assert {column: shown[column] for column in expected} == expected


def test_volume_claim_shows_the_class_that_it_wants_and_no_capacity_as_zero() -> None:
    wanted = {"spec": {"volumeAttributesClassName": "fast", "volumeName": "v"}}
    shown = cells("v1", "PersistentVolumeClaim", wanted)
    assert (shown["VolumeAttributesClass"], shown["Capacity"]) == ("fast", "0")
    assert cells("v1", "PersistentVolumeClaim", {"spec": {}})["Capacity"] == ""


def test_slice_of_every_node_shows_no_node() -> None:
    spec = {"driver": "d", "allNodes": True, "pool": {"name": "p"}}
    assert cells("resource.k8s.io/v1", "ResourceSlice", {"spec": spec})["Node"] == ""


def test_average_of_a_resource_is_shown_without_saying_so() -> None:
    target = {"type": "AverageValue", "averageValue": "1Gi"}
    metrics: list[Obj] = [
        {"type": "Resource", "resource": {"name": "memory", "target": target}},
        {"type": "Pods", "pods": {"metric": {"name": "m"}, "target": target}},
    ]
    shown = cells("autoscaling/v2", "HorizontalPodAutoscaler", {"spec": {"metrics": metrics}})
    assert shown["Targets"] == "memory: <unknown>/1Gi, <unknown>/1Gi (avg)"
