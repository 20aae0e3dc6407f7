"""Scheduling, controllers, configuration, access: one good object of each kind, a fault at a time."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from kube_cases import (
    ALL,
    DEFAULT,
    REMOVE,
    Obj,
    controller,
    group,
    problems,
    put,
    status_problems,
    template,
    update_problems,
    workload,
)


def thing(api_version: str, kind: str, namespace: str = "", **fields: Any) -> Obj:
    metadata = {"name": "one", **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **fields}


RULE = {"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}
ROLE_REF = {"kind": "ClusterRole", "name": "view"}
DATA = base64.b64encode(b"{}").decode()
CLAIM_SPEC = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
CRON = {
    "schedule": "*/5 9-17 * * MON-FRI",
    "jobTemplate": {"spec": {"template": controller("Job")["spec"]["template"]}},
}

PRIORITY = thing("scheduling.k8s.io/v1", "PriorityClass", value=1000)
NAMESPACE = thing("v1", "Namespace", spec={"finalizers": ["kubernetes"]})
NODE = thing("v1", "Node", spec={"taints": [{"key": "gpu", "effect": "NoSchedule"}]}, status={"capacity": {"cpu": "4"}})
CONFIG = thing("v1", "ConfigMap", "team", data={"a": "b"})
SECRET = thing("v1", "Secret", "team", data={"a": DATA})
SERVICE = thing("v1", "Service", "team", spec={"ports": [{"port": 80, "name": "http"}], "selector": {"a": "b"}})
LIMITS = thing("v1", "LimitRange", "sizes", spec={"limits": [{"type": "Container", "max": {"cpu": "1"}}]})
QUOTA = thing("v1", "ResourceQuota", "team", spec={"hard": {"count/resourceclaims.resource.k8s.io": "4"}})
VOLUME_CLAIM = thing("v1", "PersistentVolumeClaim", "team", spec=CLAIM_SPEC)
ROLE = thing("rbac.authorization.k8s.io/v1", "Role", "team", rules=[RULE])
CLUSTER_ROLE = thing(
    "rbac.authorization.k8s.io/v1", "ClusterRole", rules=[RULE, {"verbs": ["get"], "nonResourceURLs": ["/x"]}]
)
BINDING = thing(
    "rbac.authorization.k8s.io/v1", "RoleBinding", "team", roleRef=ROLE_REF, subjects=[{"kind": "User", "name": "u"}]
)
BUDGET = thing("policy/v1", "PodDisruptionBudget", "team", spec={"minAvailable": "50%", "selector": {}})
LEASE = thing("coordination.k8s.io/v1", "Lease", "team", spec={"holderIdentity": "a", "leaseDurationSeconds": 15})
SCALER = thing(
    "autoscaling/v2",
    "HorizontalPodAutoscaler",
    "team",
    spec={"maxReplicas": 3, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}},
)
EVENT = thing("v1", "Event", "team", involvedObject={"kind": "Pod", "name": "p", "namespace": "team"})
NEW_EVENT = thing(
    "events.k8s.io/v1",
    "Event",
    "team",
    eventTime="2026-01-01T00:00:00.000000Z",
    reportingController="example.com/haru",
    reportingInstance="haru-0",
    action="Binding",
    reason="Scheduled",
    type="Normal",
    regarding={"kind": "Pod", "name": "p", "namespace": "team"},
)
CRON_JOB = thing("batch/v1", "CronJob", "team", spec=CRON)
STORAGE = thing("storage.k8s.io/v1", "StorageClass", provisioner="example.com/disk")
CONTROLLERS = [controller(kind) for kind in ("Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "Job")]
DEPLOYMENT, _, STATEFUL, _, JOB = CONTROLLERS
INDEXED = controller("Job", completionMode="Indexed", completions=4, parallelism=4)
GOOD = [
    group(),
    group(schedulingPolicy={"basic": {}}),
    group(priorityClassName="high", priority=5),
    group(schedulingPolicy={"basic": {}}, disruptionMode="PodGroup"),
    put(group(), "metadata.finalizers", ["orphan", "example.com/a"]),
    group(resourceClaims=[{"name": "a", "resourceClaimTemplateName": "t"}]),
    group(podGroupTemplateRef={"workload": {"workloadName": "w", "podGroupTemplateName": "t"}}),
    group(schedulingConstraints={"topology": [{"key": "topology.example.com/rack"}]}),
    workload(template()),
    workload(*[template(f"t{i}") for i in range(8)]),
    PRIORITY,
    NAMESPACE,
    NODE,
    CONFIG,
    SECRET,
    SERVICE,
    QUOTA,
    LIMITS,
    VOLUME_CLAIM,
    ROLE,
    CLUSTER_ROLE,
    BINDING,
    BUDGET,
    LEASE,
    # What a leader writes as it leaves: nobody holds the Lease.
    thing("coordination.k8s.io/v1", "Lease", "free", spec={"holderIdentity": "", "leaseDurationSeconds": 1}),
    SCALER,
    EVENT,
    NEW_EVENT,
    CRON_JOB,
    STORAGE,
    *CONTROLLERS,
    INDEXED,
]


@pytest.mark.parametrize("obj", GOOD, ids=lambda o: o["kind"])
def test_valid_object_is_accepted(obj: Obj) -> None:
    assert problems(obj) == []
    assert update_problems(put(obj, "metadata.labels", {"new": "label"}), obj) == []


LABELS = "spec.template.metadata.labels"
RESTART = "spec.template.spec.restartPolicy"
FAULTS: list[tuple[Obj, str, Any, str]] = [
    (workload(), "spec", {}, "spec.podGroupTemplates: Required value"),
    (
        workload(*[template(f"t{i}") for i in range(9)]),
        "spec.x",
        REMOVE,
        "spec.podGroupTemplates: Too many: 9: must have at most 8 items",
    ),
    (
        workload(template(), template()),
        "spec.x",
        REMOVE,
        'spec.podGroupTemplates[1]: Duplicate value: {"name":"workers",',
    ),
    (workload(template()), "spec.podGroupTemplates.0.name", "A", "spec.podGroupTemplates[0].name: Invalid value"),
    (
        workload(template()),
        "spec.controllerRef",
        {"kind": "Job", "name": "a/b"},
        "spec.controllerRef.name: Invalid value: \"a/b\": may not contain '/'",
    ),
    (
        group(),
        "spec.schedulingPolicy",
        {},
        'spec.schedulingPolicy: Invalid value: "": must specify one of: `basic`, `gang`',
    ),
    (
        group(),
        "spec.schedulingPolicy.basic",
        {},
        'spec.schedulingPolicy: Invalid value: "{basic, gang}": must specify exactly one of: `basic`, `gang`',
    ),
    (
        group(),
        "spec.schedulingPolicy.gang.minCount",
        0,
        "spec.schedulingPolicy.gang.minCount: Required value: must be greater than or equal to 1",
    ),
    (group(), "spec.schedulingPolicy.gang.minCount", -1, "minCount: Invalid value: -1"),
    (
        group(),
        "spec.schedulingConstraints",
        {"topology": [{"key": "a"}, {"key": "b"}]},
        "topology: Too many: 2: must have at most 1 item",
    ),
    (
        group(),
        "spec.resourceClaims",
        [{"name": f"c{i}", "resourceClaimName": "x"} for i in range(5)],
        "spec.resourceClaims: Too many: 5",
    ),
    (
        group(),
        "spec.resourceClaims",
        [{"name": "c"}],
        "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`",
    ),
    (
        group(),
        "spec.podGroupTemplateRef",
        {},
        'spec.podGroupTemplateRef: Invalid value: "": must specify one of: `workload`',
    ),
    (
        group(),
        "spec.priority",
        1_000_000_001,
        "spec.priority: Invalid value: 1000000001: must be less than or equal to 1000000000",
    ),
    (
        group(),
        "spec.disruptionMode",
        "All",
        'spec.disruptionMode: Unsupported value: "All": supported values: "Pod", "PodGroup"',
    ),
    (group(), "spec.disruptionMode", "", 'spec.disruptionMode: Unsupported value: ""'),
    (PRIORITY, "preemptionPolicy", "", "preemptionPolicy: Required value"),
    (group(), "metadata.finalizers", ["a"], 'metadata.finalizers[0]: Invalid value: "a": name is neither a standard'),
    (
        PRIORITY,
        "value",
        2_000_000_000,
        "value: Forbidden: maximum allowed value of a user defined priority is 1000000000",
    ),
    (
        PRIORITY,
        "metadata.name",
        "system-own",
        "metadata.name: Forbidden: priority class names with 'system-' prefix are reserved",
    ),
    (PRIORITY, "metadata.namespace", "team", "metadata.namespace: Forbidden: not allowed on this type"),
    (NAMESPACE, "metadata.name", "a.b", 'metadata.name: Invalid value: "a.b": must not contain dots'),
    (NODE, "spec.taints.0.effect", "Never", "metadata.taints[0].effect: Unsupported value"),
    (NODE, "status.capacity.cpu", "-1", "status.capacity.cpu: Invalid value"),
    (CONFIG, "data", {"a b": "c"}, 'data[a b]: Invalid value: "a b": a valid config key must consist of'),
    (CONFIG, "data", {"a": "x" * (1024 * 1024 + 1)}, "Too long: may not be more than 1048576 bytes"),
    (CONFIG, "binaryData", {"a": DATA}, "duplicate of key present in binaryData"),
    (SECRET, "type", "kubernetes.io/tls", "data[tls.crt]: Required value"),
    (SECRET, "data", {"..": DATA}, "must not be '..'"),
    (SERVICE, "metadata.name", "a.b", "must not contain dots"),
    (SERVICE, "spec.trafficDistribution", "X", "spec.trafficDistribution: Unsupported value"),
    (SERVICE, "spec.externalIPs", ["127.0.0.1"], "may not be in the loopback range"),
    (SERVICE, "spec.externalTrafficPolicy", "Local", "may only be set for externally-accessible services"),
    (SERVICE, "spec.loadBalancerClass", "a.b/c", "may only be used when `type` is 'LoadBalancer'"),
    (SERVICE, "spec.clusterIPs", ["None", "10.0.0.1"], "'None' must be the first and only value"),
    (SERVICE, "spec.ipFamilies", ["IPv4", "IPv4"], "spec.ipFamilies[1]: Duplicate value"),
    (SERVICE, "spec.ports", [{"port": 80, "nodePort": 30000}], "may not be used when `type` is 'ClusterIP'"),
    (SERVICE, "spec.ports", [], "spec.ports: Required value"),
    (
        SERVICE,
        "spec.ports",
        [{"port": 0}],
        "spec.ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive",
    ),
    (SERVICE, "spec.ports", [{"port": 1}, {"port": 2}], "spec.ports[0].name: Required value"),
    (SERVICE, "spec.type", "Global", "spec.type: Unsupported value"),
    (SERVICE, "spec", {"type": "ExternalName"}, "spec.externalName: Required value"),
    (QUOTA, "spec.hard", {"pods": "x"}, "spec.hard[pods]: Invalid value"),
    (QUOTA, "spec.hard", {"pods": "1500m"}, 'spec.hard[pods]: Invalid value: "1500m": must be an integer'),
    (
        QUOTA,
        "spec.hard",
        {"cards": "1"},
        'spec.hard[cards]: Invalid value: "cards": must be a standard resource for quota',
    ),
    (QUOTA, "spec.scopes", ["Sometimes"], "unsupported scope"),
    (QUOTA, "spec.scopes", ["BestEffort", "NotBestEffort"], "conflicting scopes"),
    (QUOTA, "spec", {"hard": {"cpu": "1"}, "scopes": ["BestEffort"]}, "unsupported scope applied to resource"),
    (
        QUOTA,
        "spec.scopeSelector",
        {"matchExpressions": [{"scopeName": "BestEffort", "operator": "In", "values": ["x"]}]},
        "spec.scopeSelector.matchExpressions.operator: Invalid value: \"In\": must be 'Exists' when scope is any of",
    ),
    (
        QUOTA,
        "spec.scopeSelector",
        {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "In"}]},
        "spec.scopeSelector.matchExpressions.values: Required value: must be at least one value",
    ),
    (
        LIMITS,
        "spec.limits",
        [{"type": "Container"}, {"type": "Container"}],
        'spec.limits[1].type: Duplicate value: "Container"',
    ),
    (LIMITS, "spec.limits", [{"type": "Pod", "default": {"cpu": "1"}}], "may not be specified when `type` is 'Pod'"),
    (LIMITS, "spec.limits", [{"type": "PersistentVolumeClaim"}], "either minimum or maximum storage value is required"),
    (
        LIMITS,
        "spec.limits",
        [{"type": "Container", "min": {"cpu": "2"}, "max": {"cpu": "1"}}],
        'spec.limits[0].min[cpu]: Invalid value: "2": min value 2 is greater than max value 1',
    ),
    (
        LIMITS,
        "spec.limits",
        [{"type": "Container", "default": {"cpu": "1"}, "defaultRequest": {"cpu": "2"}}],
        "default request value 2 is greater than default limit value 1",
    ),
    (
        LIMITS,
        "spec.limits",
        [{"type": "Container", "maxLimitRequestRatio": {"cpu": "500m"}}],
        "ratio 500m is less than 1",
    ),
    (VOLUME_CLAIM, "spec.accessModes", [], "spec.accessModes: Required value: at least 1 access mode is required"),
    (VOLUME_CLAIM, "spec.resources", {}, "spec.resources[storage]: Required value"),
    (ROLE, "rules.0.verbs", [], "rules[0].verbs: Required value: verbs must contain at least one value"),
    (
        ROLE,
        "rules",
        [{"verbs": ["get"], "nonResourceURLs": ["/x"]}],
        "namespaced rules cannot apply to non-resource URLs",
    ),
    (
        ROLE,
        "rules.0.apiGroups",
        [],
        "rules[0].apiGroups: Required value: resource rules must supply at least one api group",
    ),
    (BINDING, "roleRef.name", "", "roleRef.name: Required value"),
    (
        BINDING,
        "roleRef.kind",
        "Group",
        'roleRef.kind: Unsupported value: "Group": supported values: "Role", "ClusterRole"',
    ),
    (BINDING, "subjects.0.kind", "Robot", "subjects[0].kind: Unsupported value"),
    (BUDGET, "spec.maxUnavailable", 1, "minAvailable and maxUnavailable cannot be both set"),
    (BUDGET, "spec.minAvailable", "half", "a valid percent string must be a numeric string"),
    (LEASE, "spec.leaseDurationSeconds", 0, "spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0"),
    (LEASE, "spec.preferredHolder", "b", "spec.preferredHolder: Forbidden: may only be specified if `strategy`"),
    (
        LEASE,
        "spec.strategy",
        "Newest",
        'spec.strategy.strategy: Unsupported value: "Newest": supported values: "OldestEmulationVersion"',
    ),
    (LEASE, "spec.strategy", "lab.example.com/-", 'spec.strategy.strategy: Invalid value: "lab.example.com/-"'),
    (SCALER, "spec.maxReplicas", 0, "spec.maxReplicas: Invalid value: 0"),
    (SCALER, "spec.scaleTargetRef.kind", "", "spec.scaleTargetRef.kind: Required value"),
    (
        EVENT,
        "involvedObject.namespace",
        "other",
        'involvedObject.namespace: Invalid value: "other": does not match event.namespace',
    ),
    (EVENT, "involvedObject.namespace", "", 'involvedObject.namespace: Invalid value: "": does not match'),
    (EVENT, "eventTime", "2026-01-01T00:00:00.000000Z", "reportingComponent: Required value"),
    (NEW_EVENT, "eventTime", REMOVE, "eventTime: Required value"),
    (NEW_EVENT, "action", "x" * 129, 'action: Invalid value: "": can have at most 128 characters'),
    (NEW_EVENT, "type", "Odd", "type: Invalid value"),
    (NEW_EVENT, "note", "x" * 1025, 'message: Invalid value: "": can have at most 1024 characters'),
    (CRON_JOB, "spec.schedule", "often", "spec.schedule: Invalid value"),
    (CRON_JOB, "metadata.name", "x" * 53, "must be no more than 52 characters"),
    (STORAGE, "provisioner", "", "provisioner: Required value"),
    (
        STORAGE,
        "reclaimPolicy",
        "Keep",
        'reclaimPolicy: Unsupported value: "Keep": supported values: "Delete", "Retain"',
    ),
    (DEPLOYMENT, "spec.selector", REMOVE, "spec.selector: Required value"),
    (DEPLOYMENT, "spec.selector", {}, "empty selector is invalid for deployment"),
    (
        DEPLOYMENT,
        LABELS,
        {"app": "other"},
        f'{LABELS}: Invalid value: {{"app":"other"}}: `selector` does not match template `labels`',
    ),
    (DEPLOYMENT, "spec.replicas", -1, "spec.replicas: Invalid value: -1: must be greater than or equal to 0"),
    (DEPLOYMENT, RESTART, "Never", f'{RESTART}: Unsupported value: "Never": supported values: "Always"'),
    (
        DEPLOYMENT,
        "spec.strategy",
        {"rollingUpdate": {"maxUnavailable": 0, "maxSurge": 0}},
        "maxUnavailable: Invalid value: 0: may not be 0 when `maxSurge` is 0",
    ),
    (
        DEPLOYMENT,
        "spec.strategy",
        {"type": "Recreate", "rollingUpdate": {}},
        "may not be specified when strategy `type` is 'Recreate'",
    ),
    (DEPLOYMENT, "spec.template.spec.containers.0.image", "", "spec.template.spec.containers[0].image: Required value"),
    (STATEFUL, "spec.podManagementPolicy", "Chaos", "spec.podManagementPolicy: Invalid value"),
    (JOB, RESTART, "Always", f'{RESTART}: Required value: valid values: "OnFailure", "Never"'),
    (JOB, "spec.parallelism", -1, "spec.parallelism: Invalid value: -1"),
    (JOB, "spec.backoffLimitPerIndex", 1, "requires indexed completion mode"),
    (INDEXED, "spec.completions", REMOVE, "spec.completions: Required value: when completion mode is Indexed"),
    (INDEXED, "metadata.name", "x" * 62, "will not able to create pod with invalid DNS label"),
]


@pytest.mark.parametrize(("obj", "path", "value", "expected"), FAULTS)
def test_invalid_field_is_refused(obj: Obj, path: str, value: Any, expected: str) -> None:
    wrong = put(obj, path, value) if path != "spec.x" else obj
    assert any(expected in text for text in problems(wrong))


@pytest.mark.parametrize(
    ("old", "path", "value", "expected"),
    [
        (group(), "spec.schedulingPolicy.gang.minCount", 3, "spec.schedulingPolicy: Invalid value"),
        (group(), "spec.priority", 3, "spec.priority: Invalid value: 3: field is immutable"),
        (workload(template()), "spec.podGroupTemplates.0.name", "b", "spec.podGroupTemplates: Invalid value"),
        (workload(template()), "spec.controllerRef", {"kind": "Job", "name": "j"}, "spec.controllerRef: Invalid value"),
        (PRIORITY, "value", 5, "value: Forbidden: may not be changed in an update."),
        (DEPLOYMENT, "spec.selector.matchLabels.more", "x", "spec.selector: Invalid value"),
        (STATEFUL, "spec.serviceName", "other", "updates to statefulset spec for fields other than"),
        (JOB, "spec.completions", 5, "spec.completions: Invalid value: 5: field is immutable"),
        (JOB, "spec.template.spec.containers.0.image", "i:2", "spec.template: Invalid value"),
        (
            {**CONFIG, "immutable": True},
            "data",
            {"a": "c"},
            "data: Forbidden: field is immutable when `immutable` is set",
        ),
        (SECRET, "type", "other", 'type: Invalid value: "other": field is immutable'),
        (BINDING, "roleRef.name", "edit", "cannot change roleRef"),
        (NEW_EVENT, "note", "other", 'message: Invalid value: "other": field is immutable'),
        (VOLUME_CLAIM, "spec.accessModes", ["ReadWriteMany"], "spec is immutable after creation except"),
        (put(SERVICE, "spec.clusterIPs", ["10.0.0.1"]), "spec.clusterIPs", ["10.0.0.2"], "may not change once set"),
    ],
)
def test_immutable_fields_cannot_be_updated(old: Obj, path: str, value: Any, expected: str) -> None:
    assert any(expected in text for text in update_problems(put(old, path, value), old))


def test_changed_lists_of_groups_and_workloads_are_counted_too() -> None:
    claims = [{"name": f"c{i}", "resourceClaimName": "x"} for i in range(5)]
    found = update_problems(put(group(), "spec.resourceClaims", claims), group())
    assert [text.split(": ")[:2] for text in found] == [
        ["spec.resourceClaims", "Invalid value"],
        ["spec.resourceClaims", "Too many"],
    ]
    found = update_problems(put(workload(template()), "spec.podGroupTemplates", []), workload(template()))
    assert [text.split(": ")[1] for text in found] == ["Invalid value", "Required value"]


def test_group_status_reports_each_unknown_claim_beside_their_number() -> None:
    claims = [{"name": f"c{i}"} for i in range(5)]
    found = status_problems({**group(), "status": {"resourceClaimStatuses": claims}}, group())
    assert [text.split(": ")[0] for text in found] == [
        *(f"status.resourceClaimStatuses[{i}].name" for i in range(5)),
        "status.resourceClaimStatuses",
    ]


def test_gated_group_fields_are_forbidden() -> None:
    found = problems(
        group(priority=1, disruptionMode="Pod", schedulingConstraints={"topology": [{"key": "a"}]}), DEFAULT
    )
    assert {text.split(": Forbidden")[0] for text in found} == {
        "spec.priority",
        "spec.disruptionMode",
        "spec.schedulingConstraints",
    }
    assert problems(group(), ALL) == []
