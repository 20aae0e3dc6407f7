"""Defaults: what 1.36 fills in, once and for all, without touching the object that it was given."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kube_cases import ALL, DEFAULT, NOW, Obj, claim, controller, device, group, kind_of, pod, resource, slice_of

from haru.kube.defaulting import apply_defaults
from haru.kube.defaulting.images import image_pull_policy


def filled(obj: Obj, **changes: Any) -> Obj:
    before = copy.deepcopy(obj)
    result = apply_defaults(obj, kind_of(obj), changes.get("gates", ALL), NOW)
    assert obj == before, "the given object was changed"
    assert apply_defaults(result, kind_of(obj), changes.get("gates", ALL), "2030-01-01T00:00:00Z") == result
    return result


def thing(api_version: str, kind: str, **fields: Any) -> Obj:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": "one"}, **fields}


def test_pod_gets_all_defaults() -> None:
    spec = filled(pod())["spec"]
    assert spec == {
        "containers": [
            {
                "name": "main",
                "image": "registry.example.com/trainer:1",
                "imagePullPolicy": "IfNotPresent",
                "terminationMessagePath": "/dev/termination-log",
                "terminationMessagePolicy": "File",
                "resources": {},
            }
        ],
        "dnsPolicy": "ClusterFirst",
        "restartPolicy": "Always",
        "schedulerName": "default-scheduler",
        "securityContext": {},
        "terminationGracePeriodSeconds": 30,
        "enableServiceLinks": True,
    }


@pytest.mark.parametrize(
    ("image", "policy"),
    [
        ("app", "Always"),
        ("app:latest", "Always"),
        ("app:1", "IfNotPresent"),
        ("localhost:5000/app", "Always"),
        ("localhost:5000/app:2", "IfNotPresent"),
        ("app@sha256:" + "0" * 64, "IfNotPresent"),
        ("app:latest@sha256:" + "0" * 64, "Always"),
        ("Not/An/Image", "IfNotPresent"),
        ("../x", "IfNotPresent"),
        ("x" * 247, "Always"),
        ("x" * 248, "IfNotPresent"),
        ("f" * 64, "IfNotPresent"),
        ("example.com/" + "f" * 64, "Always"),
        ("[::1]:5000/app", "Always"),
        ("-x.example.com/app", "IfNotPresent"),
        ("app:latest@sha256:" + "0" * 32, "IfNotPresent"),
        ("", "IfNotPresent"),
    ],
)
def test_image_tag_determines_pull_policy(image: str, policy: str) -> None:
    assert image_pull_policy(image) == policy


def test_requests_default_to_limits_in_pods_but_not_in_templates() -> None:
    container = {
        "name": "c",
        "image": "i:1",
        "resources": {"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": "1"}},
    }
    own = filled(pod(containers=[container]))["spec"]["containers"][0]["resources"]
    assert own["requests"] == {"cpu": "1", "memory": "1Gi"}
    inner = filled(controller("Deployment"))["spec"]["template"]["spec"]
    assert "enableServiceLinks" not in inner
    deployment = controller("Deployment")
    deployment["spec"]["template"]["spec"] = {"containers": [container]}
    kept = filled(deployment)["spec"]["template"]["spec"]["containers"][0]["resources"]
    assert kept["requests"] == {"cpu": "1"}


def test_negative_grace_period_becomes_one_second_in_pods_but_not_in_templates() -> None:
    odd = {"terminationGracePeriodSeconds": -5}
    assert filled(pod(**odd))["spec"]["terminationGracePeriodSeconds"] == 1
    deployment = controller("Deployment")
    deployment["spec"]["template"]["spec"] = dict(odd)
    assert filled(deployment)["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] == -5


def test_pod_level_requests_default_from_containers_then_limits() -> None:
    container = {"name": "c", "image": "i:1", "resources": {"requests": {"cpu": "500m"}}}
    spec = filled(pod(containers=[container], resources={"limits": {"cpu": "2", "memory": "1Gi"}}))["spec"]
    assert spec["resources"]["requests"] == {"cpu": "500m", "memory": "1Gi"}


def test_nested_pod_fields_get_defaults() -> None:
    container = {
        "name": "c",
        "image": "i",
        "ports": [{"containerPort": 80}],
        "env": [{"name": "N", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
        "livenessProbe": {"httpGet": {"port": 80}},
        "readinessProbe": {"grpc": {"port": 1}},
        "lifecycle": {"preStop": {"httpGet": {"port": 80}}},
    }
    volumes = [
        {"name": "a"},
        {"name": "b", "secret": {"secretName": "s"}},
        {"name": "c", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}},
        {"name": "d", "hostPath": {"path": "/"}},
        {"name": "e", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}},
    ]
    spec = filled(pod(containers=[container], volumes=volumes, hostNetwork=True, serviceAccount="sa"))["spec"]
    made = spec["containers"][0]
    assert made["ports"] == [{"containerPort": 80, "protocol": "TCP", "hostPort": 80}]
    assert made["env"][0]["valueFrom"]["fieldRef"]["apiVersion"] == "v1"
    assert made["livenessProbe"] == {
        "httpGet": {"port": 80, "path": "/", "scheme": "HTTP"},
        "timeoutSeconds": 1,
        "periodSeconds": 10,
        "successThreshold": 1,
        "failureThreshold": 3,
    }
    assert made["readinessProbe"]["grpc"] == {"port": 1, "service": ""}
    assert made["lifecycle"]["preStop"]["httpGet"]["scheme"] == "HTTP"
    assert spec["serviceAccountName"] == "sa"
    assert spec["volumes"][0]["emptyDir"] == {}
    assert spec["volumes"][1]["secret"]["defaultMode"] == 0o644
    assert spec["volumes"][2]["projected"]["sources"][0]["serviceAccountToken"]["expirationSeconds"] == 3600
    assert spec["volumes"][3]["hostPath"]["type"] == ""
    assert spec["volumes"][4]["ephemeral"]["volumeClaimTemplate"]["spec"]["volumeMode"] == "Filesystem"


@pytest.mark.parametrize(
    ("obj", "expected"),
    [
        (claim(), {"allocationMode": "ExactCount", "count": 1}),
        (claim(allocationMode="All"), {"allocationMode": "All"}),
        (claim(count=0), {"allocationMode": "ExactCount", "count": 1}),
        (claim(count=3), {"allocationMode": "ExactCount", "count": 3}),
        (claim(tolerations=[{"key": "k"}]), {"tolerations": [{"key": "k", "operator": "Equal"}]}),
    ],
)
def test_device_requests_get_defaults(obj: Obj, expected: Obj) -> None:
    request = filled(obj)["spec"]["devices"]["requests"][0]["exactly"]
    assert expected.items() <= request.items()
    assert ("count" in request) == ("count" in expected or "tolerations" in expected)


def test_v1beta1_request_with_alternatives_gets_no_defaults() -> None:
    request = {"name": "r", "firstAvailable": [{"name": "s", "deviceClassName": "c"}]}
    obj = resource("ResourceClaim", {"devices": {"requests": [request]}}, "v1beta1")
    made = filled(obj)["spec"]["devices"]["requests"][0]
    assert made.keys() == {"name", "firstAvailable"}
    assert made["firstAvailable"][0]["count"] == 1
    inline = filled(claim("v1beta1"))["spec"]["devices"]["requests"][0]
    assert inline["allocationMode"] == "ExactCount"


@pytest.mark.parametrize("version", ["v1", "v1beta1", "v1beta2"])
@pytest.mark.parametrize(
    ("kind", "spec"), [("DeviceClass", {}), ("ResourceClaim", {}), ("ResourceClaimTemplate", {"spec": {}})]
)
def test_missing_spec_is_created(kind: str, spec: Obj, version: str) -> None:
    """Found by random requests: the documented schema requires it."""
    for without in ({}, {"spec": None}):
        obj = {"apiVersion": f"resource.k8s.io/{version}", "kind": kind, "metadata": {"name": "a"}, **without}
        assert filled(obj)["spec"] == spec


def test_time_added_of_taint_is_set_unless_given() -> None:
    dated = {"key": "b", "effect": "None", "timeAdded": "2020-01-01T00:00:00Z"}
    obj = slice_of(device(taints=[{"key": "a", "effect": "None"}, dated]), device("gpu-1"))
    made = filled(obj)["spec"]["devices"]
    assert made[0]["taints"][0]["timeAdded"] == NOW
    assert made[0]["taints"][1] == dated
    assert made[1] is obj["spec"]["devices"][1]
    assert apply_defaults(slice_of(device()), kind_of(obj), ALL, NOW) == slice_of(device())


def test_disruption_mode_defaults_only_with_its_gate() -> None:
    assert filled(group())["spec"]["disruptionMode"] == "Pod"
    assert "disruptionMode" not in filled(group(), gates=DEFAULT)["spec"]


@pytest.mark.parametrize(
    ("obj", "path", "expected"),
    [
        (
            controller("Deployment"),
            "spec.strategy",
            {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"}},
        ),
        (controller("Deployment", strategy={"type": "Recreate"}), "spec.strategy", {"type": "Recreate"}),
        (controller("Deployment", replicas=0), "spec.replicas", 0),
        (controller("Deployment"), "spec.progressDeadlineSeconds", 600),
        (controller("ReplicaSet"), "spec.replicas", 1),
        (
            controller("StatefulSet"),
            "spec.updateStrategy",
            {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}},
        ),
        (controller("StatefulSet"), "spec.podManagementPolicy", "OrderedReady"),
        (
            controller("StatefulSet"),
            "spec.persistentVolumeClaimRetentionPolicy",
            {"whenDeleted": "Retain", "whenScaled": "Retain"},
        ),
        (controller("DaemonSet"), "spec.updateStrategy.rollingUpdate", {"maxUnavailable": 1, "maxSurge": 0}),
        (controller("Job"), "spec.completions", 1),
        (controller("Job"), "spec.backoffLimit", 6),
        (controller("Job", backoffLimitPerIndex=1), "spec.backoffLimit", 2147483647),
        (controller("Job", parallelism=2), "spec.parallelism", 2),
        (controller("Job"), "metadata.labels", {"app": "trainer"}),
        (controller("Job"), "spec.podReplacementPolicy", "TerminatingOrFailed"),
        (controller("Job", podFailurePolicy={"rules": []}), "spec.podReplacementPolicy", "Failed"),
        (thing("batch/v1", "CronJob", spec={"schedule": "* * * * *"}), "spec.concurrencyPolicy", "Allow"),
        (
            thing("v1", "Service", spec={"ports": [{"port": 80}]}),
            "spec.ports",
            [{"port": 80, "protocol": "TCP", "targetPort": 80}],
        ),
        (thing("v1", "Service", spec={}), "spec.type", "ClusterIP"),
        (thing("v1", "Service", spec={"type": "LoadBalancer"}), "spec.allocateLoadBalancerNodePorts", True),
        (
            thing("v1", "Service", spec={"sessionAffinity": "ClientIP"}),
            "spec.sessionAffinityConfig",
            {"clientIP": {"timeoutSeconds": 10800}},
        ),
        (thing("v1", "Namespace"), "metadata.labels", {"kubernetes.io/metadata.name": "one"}),
        (thing("v1", "Secret"), "type", "Opaque"),
        (thing("v1", "Node", status={"capacity": {"cpu": "4"}}), "status.allocatable", {"cpu": "4"}),
        (thing("v1", "PersistentVolumeClaim", spec={}), "spec.volumeMode", "Filesystem"),
        (thing("v1", "PersistentVolume", spec={"azureDisk": {}}), "spec.azureDisk.kind", "Shared"),
        (thing("v1", "PersistentVolume", spec={"rbd": {"pool": ""}}), "spec.rbd.pool", "rbd"),
        (
            pod(volumes=[{"name": "v", "iscsi": {"iscsiInterface": ""}}]),
            "spec.volumes.0.iscsi.iscsiInterface",
            "default",
        ),
        (
            thing("storage.k8s.io/v1", "VolumeAttachment", spec={"source": {"inlineVolumeSpec": {"scaleIO": {}}}}),
            "spec.source.inlineVolumeSpec.scaleIO.fsType",
            "xfs",
        ),
        (
            thing("v1", "LimitRange", spec={"limits": [{"type": "Container", "max": {"cpu": "1"}}]}),
            "spec.limits",
            [{"type": "Container", "max": {"cpu": "1"}, "default": {"cpu": "1"}, "defaultRequest": {"cpu": "1"}}],
        ),
        (
            thing(
                "rbac.authorization.k8s.io/v1",
                "RoleBinding",
                roleRef={"kind": "Role", "name": "r"},
                subjects=[{"kind": "User", "name": "u"}],
            ),
            "subjects",
            [{"kind": "User", "name": "u", "apiGroup": "rbac.authorization.k8s.io"}],
        ),
        (
            thing("autoscaling/v1", "HorizontalPodAutoscaler", spec={}),
            "spec",
            {"minReplicas": 1, "targetCPUUtilizationPercentage": 80},
        ),
        (thing("autoscaling/v2", "HorizontalPodAutoscaler", spec={}), "spec.metrics.0.type", "Resource"),
        (thing("storage.k8s.io/v1", "StorageClass", provisioner="p"), "volumeBindingMode", "Immediate"),
        (
            thing("networking.k8s.io/v1", "NetworkPolicy", spec={"egress": [{}]}),
            "spec.policyTypes",
            ["Ingress", "Egress"],
        ),
        (thing("scheduling.k8s.io/v1", "PriorityClass", value=1), "preemptionPolicy", "PreemptLowerPriority"),
        (thing("scheduling.k8s.io/v1", "PriorityClass"), "value", 0),
        (thing("admissionregistration.k8s.io/v1", "MutatingAdmissionPolicy", spec={}), "spec.failurePolicy", "Fail"),
        (resource("ResourcePoolStatusRequest", {"driver": "d"}, "v1alpha3"), "spec.limit", 100),
    ],
)
def test_fields_of_other_kinds_get_defaults(obj: Obj, path: str, expected: Any) -> None:
    value: Any = filled(obj)
    for step in path.split("."):
        value = value[int(step)] if isinstance(value, list) else value[step]
    assert value == expected


@given(
    st.fixed_dictionaries(
        {"name": st.sampled_from(["a", "b"])},
        optional={
            "image": st.sampled_from(["i", "i:1", "", "i@sha256:0"]),
            "imagePullPolicy": st.sampled_from(["", "Never"]),
            "resources": st.sampled_from([{}, {"limits": {"cpu": "1"}}, {"limits": {"cpu": "1"}, "requests": None}]),
            "ports": st.lists(
                st.sampled_from([{"containerPort": 1}, {"containerPort": 2, "protocol": "UDP"}]), max_size=2
            ),
            "livenessProbe": st.sampled_from([{"exec": {"command": ["x"]}}, {"periodSeconds": 0}, {"httpGet": {}}]),
        },
    ),
    st.booleans(),
)
def test_defaulting_is_idempotent(container: Obj, host: bool) -> None:
    filled(pod(containers=[container], hostNetwork=host))
