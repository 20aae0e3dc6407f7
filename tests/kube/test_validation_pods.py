"""Pods: one good pod, a fault at a time, and what updates and status writes may say."""

from __future__ import annotations

from typing import Any

import pytest
from kube_cases import ALL, DEFAULT, NOW, REMOVE, Obj, pod, problems, put, status_problems, update_problems

from haru.kube.gates import FeatureGates

MAIN = "spec.containers.0"

RICH = pod(
    serviceAccountName="runner",
    nodeSelector={"zone": "a"},
    tolerations=[{"key": "gpu", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}],
    volumes=[
        {"name": "scratch", "emptyDir": {"sizeLimit": "1Gi"}},
        {"name": "config", "configMap": {"name": "c", "items": [{"key": "a", "path": "b"}]}},
        {"name": "token", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}},
        {
            "name": "info",
            "downwardAPI": {"items": [{"path": "l", "fieldRef": {"fieldPath": "metadata.labels['a/b']"}}]},
        },
    ],
    resourceClaims=[{"name": "gpu", "resourceClaimTemplateName": "gpus"}],
    schedulingGates=[{"name": "example.com/quota"}],
    schedulingGroup={"podGroupName": "gang"},
    topologySpreadConstraints=[{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}],
    affinity={
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]
            }
        },
        "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone"}]},
    },
    initContainers=[
        {"name": "sidecar", "image": "s:1", "restartPolicy": "Always", "readinessProbe": {"tcpSocket": {"port": 1}}}
    ],
    containers=[
        {
            "name": "main",
            "image": "i:1",
            "ports": [{"name": "http", "containerPort": 8080}],
            "env": [{"name": "N", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
            "envFrom": [{"configMapRef": {"name": "c"}}],
            "volumeMounts": [{"name": "scratch", "mountPath": "/tmp"}],
            "livenessProbe": {"httpGet": {"port": "http"}},
            "resources": {
                "limits": {"cpu": "2", "example.com/gpu": 1},
                "requests": {"cpu": "500m"},
                "claims": [{"name": "gpu", "request": "one"}],
            },
        }
    ],
)


def test_valid_pods_are_accepted() -> None:
    assert problems(pod()) == []
    assert problems(RICH) == []


FAULTS: list[tuple[str, Any, str]] = [
    ("metadata.name", "Trainer", 'metadata.name: Invalid value: "Trainer": a lowercase RFC 1123 subdomain'),
    ("metadata.name", REMOVE, "metadata.name: Required value: name or generateName is required"),
    ("metadata.namespace", REMOVE, "metadata.namespace: Required value"),
    ("metadata.labels", {"a b": "c"}, 'metadata.labels: Invalid value: "a b": name part must consist of'),
    ("metadata.labels", {"a": "b c"}, 'metadata.labels: Invalid value: "b c": a valid label must be'),
    (
        "metadata.annotations",
        {"a": "x" * (256 * 1024)},
        "metadata.annotations: Too long: may not be more than 262144 bytes",
    ),
    ("metadata.finalizers", ["a b"], "metadata.finalizers: Invalid value"),
    (
        "metadata.finalizers",
        ["orphan", "foregroundDeletion"],
        "finalizer orphan and foregroundDeletion cannot be both set",
    ),
    ("metadata.ownerReferences", [{}], 'metadata.ownerReferences.uid: Invalid value: "": must not be empty'),
    ("spec.containers", [], "spec.containers: Required value"),
    (f"{MAIN}.name", "", "spec.containers[0].name: Required value"),
    (f"{MAIN}.name", "Main", "spec.containers[0].name: Invalid value"),
    (f"{MAIN}.image", "", "spec.containers[0].image: Required value"),
    (f"{MAIN}.image", " i", 'image: Invalid value: " i": must not have leading or trailing whitespace'),
    (
        f"{MAIN}.imagePullPolicy",
        "Sometimes",
        'imagePullPolicy: Unsupported value: "Sometimes": supported values: "Always", "IfNotPresent", "Never"',
    ),
    (f"{MAIN}.restartPolicy", "Maybe", "spec.containers[0].restartPolicy: Unsupported value"),
    (
        f"{MAIN}.ports",
        [{"containerPort": 70000}],
        "ports[0].containerPort: Invalid value: 70000: must be between 1 and 65535, inclusive",
    ),
    (
        f"{MAIN}.ports",
        [{"name": "p", "containerPort": 1}, {"name": "p", "containerPort": 2}],
        'ports[1].name: Duplicate value: "p"',
    ),
    (
        f"{MAIN}.ports",
        [{"containerPort": 1, "hostPort": 5}, {"containerPort": 2, "hostPort": 5}],
        'hostPort: Duplicate value: "TCP//5"',
    ),
    (f"{MAIN}.env", [{"name": "a=b"}], 'env[0].name: Invalid value: "a=b": a valid environment variable name'),
    (f"{MAIN}.env", [{"name": "a", "valueFrom": {}}], 'env[0].valueFrom: Invalid value: "": must specify one of'),
    (
        f"{MAIN}.env",
        [{"name": "a", "valueFrom": {"fieldRef": {"fieldPath": "spec.schedulerName"}}}],
        'fieldPath: Unsupported value: "spec.schedulerName"',
    ),
    (f"{MAIN}.volumeMounts", [{"name": "nope", "mountPath": "/x"}], 'volumeMounts[0].name: Not found: "nope"'),
    (f"{MAIN}.resources.claims", [{"name": "nope"}], 'spec.containers[0].resources.claims[0]: Not found: "nope"'),
    (f"{MAIN}.resources.claims", [{"name": "gpu"}, {"name": "gpu"}], 'resources.claims[1]: Duplicate value: "gpu"'),
    (f"{MAIN}.resources.claims", [{"name": "gpu", "request": "A"}], "resources.claims[0].request: Invalid value"),
    (
        f"{MAIN}.resources.limits",
        {"gpu": 1},
        'limits[gpu]: Invalid value: "gpu": must be a standard resource for containers',
    ),
    (f"{MAIN}.resources.limits", {"cpu": "-1"}, 'limits[cpu]: Invalid value: "-1": must be greater than or equal to 0'),
    (f"{MAIN}.resources.limits", {"example.com/gpu": "500m"}, 'Invalid value: "500m": must be an integer'),
    (f"{MAIN}.resources", {"requests": {"example.com/gpu": 1}}, "Limit must be set for non overcommitable resources"),
    (
        f"{MAIN}.resources",
        {"limits": {"cpu": 1}, "requests": {"cpu": 2}},
        'requests: Invalid value: "2": must be less than or equal to cpu limit of 1',
    ),
    (
        f"{MAIN}.resources",
        {"limits": {"example.com/a": 2}, "requests": {"example.com/a": 1}},
        "must be equal to example.com/a limit of 2",
    ),
    (f"{MAIN}.livenessProbe", {}, "livenessProbe: Required value: must specify a handler type"),
    (
        f"{MAIN}.livenessProbe",
        {"exec": {"command": ["a"]}, "successThreshold": 2},
        "successThreshold: Invalid value: 2: must be 1",
    ),
    (
        f"{MAIN}.livenessProbe",
        {"exec": {"command": ["a"]}, "grpc": {"port": 1}},
        "grpc: Forbidden: may not specify more than 1 handler type",
    ),
    (
        f"{MAIN}.securityContext",
        {"privileged": True, "allowPrivilegeEscalation": False},
        "cannot set `allowPrivilegeEscalation` to false and `privileged` to true",
    ),
    ("spec.initContainers", [{"name": "main", "image": "i"}], 'spec.initContainers[0].name: Duplicate value: "main"'),
    (
        "spec.initContainers",
        [{"name": "i", "image": "i", "lifecycle": {}}],
        "may not be set for init containers without restartPolicy=Always",
    ),
    (
        "spec.ephemeralContainers",
        [{"name": "e", "image": "i"}],
        "spec.ephemeralContainers: Forbidden: cannot be set on create",
    ),
    ("spec.volumes", [{"name": "a"}, {"name": "a"}], 'spec.volumes[1].name: Duplicate value: "a"'),
    (
        "spec.volumes",
        [{"name": "a", "emptyDir": {}, "hostPath": {"path": "/"}}],
        "may not specify more than 1 volume type",
    ),
    ("spec.volumes", [{"name": "a", "secret": {}}], "spec.volumes[0].secret.secretName: Required value"),
    ("spec.volumes", [{"name": "a", "hostPath": {"path": "/a/../b"}}], "must not contain '..'"),
    (
        "spec.volumes",
        [{"name": "a", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}],
        "accessModes: Required value: at least 1 access mode is required",
    ),
    ("spec.resourceClaims", [{"name": "a"}], "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"),
    (
        "spec.resourceClaims",
        [{"name": "a", "resourceClaimName": "x", "resourceClaimTemplateName": "y"}],
        "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified",
    ),
    ("spec.resourceClaims", [{"name": "A", "resourceClaimName": "x"}], "spec.resourceClaims[0].name: Invalid value"),
    (
        "spec.resourceClaims",
        [{"name": "a", "resourceClaimName": "x"}] * 2,
        'spec.resourceClaims[1].name: Duplicate value: "a"',
    ),
    (
        "spec.schedulingGroup",
        {},
        "spec.schedulingGroup.podGroupName: Invalid value: null: must specify one of: `podGroupName`",
    ),
    ("spec.schedulingGroup", {"podGroupName": "A"}, "spec.schedulingGroup.podGroupName: Invalid value"),
    ("spec.restartPolicy", "Sometimes", "spec.restartPolicy: Unsupported value"),
    ("spec.dnsPolicy", "None", "spec.dnsConfig: Required value: must provide `dnsConfig`"),
    ("spec.nodeName", "n1", "spec.nodeName: Forbidden: cannot be set until all schedulingGates have been cleared"),
    ("spec.schedulingGates", [{"name": "a/b"}, {"name": "a/b"}], 'spec.schedulingGates[1]: Duplicate value: "a/b"'),
    ("spec.tolerations", [{}], "operator must be Exists when `key` is empty"),
    (
        "spec.tolerations",
        [{"key": "a", "tolerationSeconds": 1}],
        "effect must be 'NoExecute' when `tolerationSeconds` is set",
    ),
    ("spec.tolerations", [{"key": "a", "operator": "Like"}], "spec.tolerations[0].operator: Unsupported value"),
    (
        "spec.topologySpreadConstraints",
        [{"maxSkew": 0, "topologyKey": "a", "whenUnsatisfiable": "DoNotSchedule"}],
        "maxSkew: Invalid value: 0: must be greater than zero",
    ),
    (
        "spec.topologySpreadConstraints",
        [{"maxSkew": 1, "topologyKey": "a", "whenUnsatisfiable": "X"}],
        "whenUnsatisfiable: Unsupported value",
    ),
    (
        "spec.affinity",
        {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Near"}]}]
                }
            }
        },
        "not a valid selector operator",
    ),
    (
        "spec.topologySpreadConstraints",
        [{"maxSkew": 1, "topologyKey": "a", "whenUnsatisfiable": "DoNotSchedule", "matchLabelKeys": ["app"]}],
        "matchLabelKeys: Forbidden: must not be specified when labelSelector is not set",
    ),
    (
        "spec.affinity",
        {
            "podAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [
                    {
                        "topologyKey": "a",
                        "labelSelector": {
                            "matchLabels": {"app": "x"},
                            "matchExpressions": [{"key": "app", "operator": "In", "values": ["x"]}],
                        },
                        "matchLabelKeys": ["app"],
                        "mismatchLabelKeys": ["app"],
                    }
                ]
            }
        },
        'DuringExecution[0][0]: Invalid value: "app": exists in both matchLabelKeys and labelSelector',
    ),
    (
        "spec.affinity",
        {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{}]}},
        "topologyKey: Required value: can not be empty",
    ),
    (
        "spec.activeDeadlineSeconds",
        0,
        "spec.activeDeadlineSeconds: Invalid value: 0: must be between 1 and 2147483647, inclusive",
    ),
    ("spec.resources", {"limits": {"example.com/gpu": 1}}, "spec.resources.limits[example.com/gpu]: Unsupported value"),
    (
        "spec.resources",
        {"claims": [{"name": "gpu"}]},
        "spec.resources.claims: Forbidden: claims may not be set for Resources at pod-level",
    ),
    *(
        (
            "spec.volumes.2.projected.sources",
            [{"downwardAPI": {"items": [label]}}, {source: {**named, "items": [{"key": "k", "path": "p"}]}}],
            f'spec.volumes[2].projected: Invalid value: "{named.get("name", "")}": conflicting duplicate paths',
        )
        for label in [{"path": "p", "fieldRef": {"fieldPath": "metadata.name"}}]
        for source, named in (("secret", {"name": "s"}), ("configMap", {"name": "c"}), ("configMap", {}))
    ),
    (
        "spec.volumes.2.projected.sources",
        [{"downwardAPI": {"items": [{"path": "p", "fieldRef": {"fieldPath": "metadata.name"}}] * 2}}],
        'spec.volumes[2].projected: Invalid value: "p": conflicting duplicate paths',
    ),
]


@pytest.mark.parametrize(("path", "value", "expected"), FAULTS)
def test_invalid_pod_field_is_refused(path: str, value: Any, expected: str) -> None:
    assert any(expected in text for text in problems(put(RICH, path, value)))


def test_user_namespace_excludes_host_namespaces() -> None:
    assert problems(put(RICH, "spec.hostUsers", False)) == []
    assert "spec.HostPID: Forbidden: when `hostUsers` is false" in problems(pod(hostUsers=False, hostPID=True))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (f"{MAIN}.image", "i:2"),
        ("spec.activeDeadlineSeconds", 60),
        ("spec.schedulingGates", []),
        ("metadata.labels", {"a": "b"}),
        ("spec.tolerations.0.tolerationSeconds", 7),
        ("spec.nodeSelector.rack", "r1"),
    ],
)
def test_allowed_pod_update_is_accepted(path: str, value: Any) -> None:
    assert update_problems(put(RICH, path, value), RICH) == []


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        (
            f"{MAIN}.command",
            ["x"],
            "spec: Forbidden: pod updates may not change fields other than `spec.containers[*].image`",
        ),
        ("spec.schedulingGroup.podGroupName", "other", "spec: Forbidden: pod updates may not change fields"),
        ("spec.resourceClaims.0.resourceClaimTemplateName", "other", "changed: spec.resourceClaims"),
        ("spec.containers", [], "spec.containers: Required value"),
        (
            "spec.containers",
            [{"name": "a", "image": "i"}, {"name": "b", "image": "i"}],
            "spec.containers: Forbidden: pod updates may not add or remove containers",
        ),
        (
            "spec.schedulingGates",
            [{"name": "example.com/other"}],
            "only deletion is allowed, but found new scheduling gate 'example.com/other'",
        ),
        ("spec.tolerations", [], "existing toleration can not be modified except its tolerationSeconds"),
        ("spec.nodeSelector.zone", "b", "only additions to spec.nodeSelector are allowed"),
        (
            "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms",
            [{}, {}],
            "no additions/deletions to non-empty NodeSelectorTerms list are allowed",
        ),
        ("metadata.uid", "2", 'metadata.uid: Invalid value: "2": field is immutable'),
        ("metadata.name", "other", 'metadata.name: Invalid value: "other": field is immutable'),
        ("metadata.creationTimestamp", NOW, "metadata.creationTimestamp: Invalid value"),
    ],
)
def test_forbidden_pod_update_is_refused(path: str, value: Any, expected: str) -> None:
    old = put(RICH, "metadata.uid", "1")
    assert any(expected in text for text in update_problems(put(old, path, value), old))


def test_active_deadline_may_only_shrink() -> None:
    old = pod(activeDeadlineSeconds=60)
    assert update_problems(pod(activeDeadlineSeconds=50), old) == []
    assert any("less than or equal to previous value" in t for t in update_problems(pod(activeDeadlineSeconds=70), old))
    assert any("to nil value" in t for t in update_problems(pod(), old))


def test_deleted_object_takes_no_new_finalizers() -> None:
    old = put(pod(), "metadata.deletionTimestamp", NOW)
    found = update_problems(put(old, "metadata.finalizers", ["a/b"]), old)
    assert found == [
        "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, "
        'found new finalizers []string{"a/b"}'
    ]


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ({"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "c"}]}, ""),
        ({"resourceClaimStatuses": [{"name": "gpu"}]}, ""),
        ({"resourceClaimStatuses": [{"name": "x"}]}, "must match the name of an entry in `spec.resourceClaims`"),
        (
            {"resourceClaimStatuses": [{"name": "gpu"}, {"name": "gpu"}]},
            "status.resourceClaimStatuses[1].name: Duplicate value",
        ),
        ({"qosClass": "Guaranteed"}, 'status.qosClass: Invalid value: "Guaranteed": field is immutable'),
        ({"nominatedNodeName": "A"}, "status.nominatedNodeName: Invalid value"),
        ({"podIPs": [{"ip": "x"}]}, "status.podIPs[0]: Invalid value"),
        ({"conditions": [{"type": "a b", "status": "True"}]}, "Type: Invalid value"),
    ],
)
def test_pod_status_update_is_validated(status: Obj, expected: str) -> None:
    old = {**RICH, "status": {"qosClass": "Burstable"}}
    found = status_problems({**RICH, "status": {"qosClass": "Burstable", **status}}, old)
    assert [expected in text for text in found] == ([True] if expected else [])


def test_terminated_container_cannot_run_again_without_restart() -> None:
    ended = {"containerStatuses": [{"name": "main", "state": {"terminated": {"exitCode": 1}}}]}
    again = {"containerStatuses": [{"name": "main", "state": {"running": {}}}]}
    for policy, allowed in (("Always", True), ("OnFailure", True), ("Never", False)):
        base = pod(restartPolicy=policy)
        found = status_problems({**base, "status": again}, {**base, "status": ended})
        assert (found == []) == allowed


def test_pod_level_resources_follow_their_gate() -> None:
    assert problems(pod(resources={"limits": {"cpu": "1"}}), DEFAULT) == []
    assert problems(pod(resources={"limits": {"cpu": "1"}}), ALL) == []


def test_pod_of_a_spec_that_was_right_before_is_judged_by_its_own_host_name() -> None:
    for hostname, wrong in (("job-0", 0), ("job-1", 0), ("Job_1", 1), ("job-1", 0), ("Job_1", 1)):
        assert len(problems(pod(hostname=hostname))) == wrong


VOLUME_CLAIM = {
    "accessModes": ["ReadWriteOnce"],
    "volumeMode": "Filesystem",
    "resources": {"requests": {"storage": "1Gi"}},
}


def test_volume_made_for_a_pod_is_judged_by_the_pods_own_name() -> None:
    volume = {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": VOLUME_CLAIM}}}
    for name, wrong in (("short", False), ("x" * 250, True), ("short", False)):
        named = pod(volumes=[volume])
        named["metadata"]["name"] = name
        assert any("PVC name" in problem for problem in problems(named)) is wrong


# -- gates ------------------------------------------------------------------------------------------------------------


def test_rule_that_restarts_all_containers_needs_its_gate_unless_it_was_stored_before() -> None:
    off = FeatureGates.parse("RestartAllContainersOnContainerExits=false")
    rules = {"restartPolicyRules": [{"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [1]}}]}
    asking = put(pod(), MAIN, {**pod()["spec"]["containers"][0], "restartPolicy": "Never", **rules})
    assert problems(asking) == []
    action = f"{MAIN}.restartPolicyRules[0].action".replace("containers.0", "containers[0]")
    assert problems(asking, off) == [
        f'{action}: Unsupported value: "RestartAllContainers": supported values: "Restart"'
    ]
    assert update_problems(put(asking, f"{MAIN}.image", "i:2"), asking, off) == []
    sidecar = {"name": "s", "image": "i", "restartPolicy": "Always", **rules}
    assert problems(pod(initContainers=[sidecar])) == []
    (refused,) = problems(pod(initContainers=[sidecar]), off)
    assert refused.startswith(
        "spec.initContainers[0].restartPolicyRules: Forbidden: restartPolicyRules are not allowed"
    )
