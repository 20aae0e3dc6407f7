"""One object of most kinds, as a client would create it: the soil from which the fuzzer grows its requests."""

from __future__ import annotations

from typing import Any

from signing_request_objects import REQUEST

from haru.kube.kinds import by_kind

Obj = dict[str, Any]


def sample(api_version: str, kind: str, name: str, **rest: Any) -> Obj:
    """An object with something in its metadata; a finalizer keeps it through deletions."""
    metadata = {"name": name, "labels": {"a": "b"}, "annotations": {"k": "v"}, "finalizers": ["x.y/z"]}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **rest}


def path_of(obj: Obj) -> str:
    """The collection that an object belongs to."""
    kind = by_kind(obj["apiVersion"], obj["kind"])
    assert kind is not None
    root = f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"
    return f"{root}/namespaces/default/{kind.plural}" if kind.namespaced else f"{root}/{kind.plural}"


_TEMPLATE: Obj = {
    "metadata": {"labels": {"a": "b"}},
    "spec": {
        "containers": [
            {
                "name": "main",
                "image": "b:1",
                "env": [{"name": "E", "value": "1"}],
                "ports": [{"containerPort": 80, "protocol": "TCP"}],
                "resources": {"requests": {"cpu": "1", "memory": "1Gi"}},
            }
        ],
        "tolerations": [{"key": "a", "operator": "Exists"}],
        "volumes": [{"name": "v", "emptyDir": {}}],
        "nodeSelector": {"a": "b"},
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}]
                }
            }
        },
    },
}
_SELECTOR = {"matchLabels": {"a": "b"}}
_DEVICES = {
    "requests": [
        {
            "name": "r",
            "exactly": {
                "deviceClassName": "gpu",
                "count": 2,
                "selectors": [{"cel": {"expression": "device.driver == 'x'"}}],
                "tolerations": [{"key": "a", "operator": "Exists", "effect": "NoExecute"}],
                "capacity": {"requests": {"m": "1Gi"}},
            },
        }
    ],
    "constraints": [{"requests": ["r"], "matchAttribute": "x.y/z"}],
    "config": [{"requests": ["r"], "opaque": {"driver": "x.y", "parameters": {"a": {"b": 1}}}}],
}
SAMPLES: list[Obj] = [
    sample("v1", "Pod", "a", spec={**_TEMPLATE["spec"], "resourceClaims": [{"name": "c", "resourceClaimName": "a"}]}),
    sample("v1", "ConfigMap", "a", data={"k": "v"}, binaryData={"b": "eA=="}),
    sample("v1", "Secret", "a", data={"k": "eA=="}, stringData={"s": "x"}, type="Opaque"),
    sample(
        "v1",
        "Service",
        "a",
        spec={
            "selector": {"a": "b"},
            "ports": [{"port": 80, "name": "p", "protocol": "TCP", "targetPort": 80}],
            "type": "NodePort",
        },
    ),
    sample("v1", "Namespace", "ns1"),
    sample(
        "v1",
        "Node",
        "n1",
        spec={"taints": [{"key": "a", "effect": "NoSchedule"}]},
        status={"conditions": [{"type": "Ready", "status": "True"}], "capacity": {"cpu": "4"}},
    ),
    sample("v1", "ServiceAccount", "a", secrets=[{"name": "x"}]),
    sample(
        "v1",
        "Event",
        "a",
        involvedObject={"kind": "Pod", "name": "a", "namespace": "default"},
        reason="R",
        message="m",
        type="Normal",
        count=1,
        source={"component": "c"},
    ),
    sample(
        "events.k8s.io/v1",
        "Event",
        "e",
        regarding={"kind": "Pod", "name": "a", "namespace": "default"},
        reason="R",
        note="m",
        type="Normal",
        eventTime="2026-01-02T03:04:05.000000Z",
        reportingController="x.y/c",
        reportingInstance="i",
        action="A",
    ),
    sample("v1", "Endpoints", "a", subsets=[{"addresses": [{"ip": "10.0.0.1"}], "ports": [{"port": 80}]}]),
    sample(
        "v1",
        "PersistentVolumeClaim",
        "a",
        spec={"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    ),
    sample("v1", "ReplicationController", "a", spec={"replicas": 1, "selector": {"a": "b"}, "template": _TEMPLATE}),
    sample(
        "apps/v1",
        "Deployment",
        "a",
        spec={
            "replicas": 2,
            "selector": _SELECTOR,
            "template": _TEMPLATE,
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%"}},
        },
    ),
    sample(
        "apps/v1",
        "StatefulSet",
        "a",
        spec={"replicas": 2, "selector": _SELECTOR, "template": _TEMPLATE, "serviceName": "a"},
    ),
    sample("apps/v1", "DaemonSet", "a", spec={"selector": _SELECTOR, "template": _TEMPLATE}),
    sample(
        "batch/v1",
        "Job",
        "a",
        spec={
            "template": {**_TEMPLATE, "spec": {**_TEMPLATE["spec"], "restartPolicy": "Never"}},
            "parallelism": 2,
            "completions": 2,
            "completionMode": "Indexed",
        },
    ),
    sample(
        "batch/v1",
        "CronJob",
        "a",
        spec={
            "schedule": "* * * * *",
            "jobTemplate": {
                "spec": {"template": {**_TEMPLATE, "spec": {**_TEMPLATE["spec"], "restartPolicy": "Never"}}}
            },
        },
    ),
    sample("policy/v1", "PodDisruptionBudget", "a", spec={"minAvailable": 1, "selector": _SELECTOR}),
    sample(
        "autoscaling/v2",
        "HorizontalPodAutoscaler",
        "a",
        spec={
            "maxReplicas": 3,
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "a"},
            "metrics": [
                {
                    "type": "Resource",
                    "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}},
                }
            ],
        },
    ),
    sample(
        "autoscaling/v1",
        "HorizontalPodAutoscaler",
        "b",
        spec={"maxReplicas": 3, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "a"}},
    ),
    sample(
        "coordination.k8s.io/v1",
        "Lease",
        "a",
        spec={"holderIdentity": "x", "leaseDurationSeconds": 15, "renewTime": "2026-01-02T03:04:05.000000Z"},
    ),
    sample(
        "rbac.authorization.k8s.io/v1",
        "Role",
        "a",
        rules=[{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "resourceNames": ["a"]}],
    ),
    sample(
        "rbac.authorization.k8s.io/v1",
        "ClusterRole",
        "a",
        rules=[{"verbs": ["get"], "nonResourceURLs": ["/x"]}],
        aggregationRule={"clusterRoleSelectors": [{"matchLabels": {"zz": "b"}}]},
    ),
    sample(
        "rbac.authorization.k8s.io/v1",
        "RoleBinding",
        "a",
        roleRef={"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "a"},
        subjects=[{"kind": "User", "name": "jane", "apiGroup": "rbac.authorization.k8s.io"}],
    ),
    sample(
        "rbac.authorization.k8s.io/v1",
        "ClusterRoleBinding",
        "a",
        roleRef={"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
        subjects=[{"kind": "ServiceAccount", "name": "a", "namespace": "default"}],
    ),
    sample(
        "networking.k8s.io/v1",
        "Ingress",
        "a",
        spec={
            "rules": [
                {
                    "host": "a.b",
                    "http": {
                        "paths": [
                            {
                                "path": "/",
                                "pathType": "Prefix",
                                "backend": {"service": {"name": "s", "port": {"number": 80}}},
                            }
                        ]
                    },
                }
            ]
        },
    ),
    sample("networking.k8s.io/v1", "NetworkPolicy", "a", spec={"podSelector": _SELECTOR}),
    sample(
        "certificates.k8s.io/v1",
        "CertificateSigningRequest",
        "a",
        spec={"request": REQUEST, "signerName": "x.y/z", "usages": ["client auth"]},
    ),
    sample(
        "discovery.k8s.io/v1",
        "EndpointSlice",
        "a",
        addressType="IPv4",
        endpoints=[{"addresses": ["10.0.0.1"]}],
        ports=[{"port": 80}],
    ),
    sample("storage.k8s.io/v1", "StorageClass", "a", provisioner="x.y/z"),
    sample("scheduling.k8s.io/v1", "PriorityClass", "a", value=100),
    sample(
        "scheduling.k8s.io/v1alpha2",
        "Workload",
        "a",
        spec={"podGroupTemplates": [{"name": "t", "schedulingPolicy": {"gang": {"minCount": 2}}}]},
    ),
    sample(
        "scheduling.k8s.io/v1alpha2",
        "PodGroup",
        "a",
        spec={
            "schedulingPolicy": {"gang": {"minCount": 2}},
            "podGroupTemplateRef": {"workload": {"workloadName": "a", "podGroupTemplateName": "t"}},
        },
    ),
    sample(
        "resource.k8s.io/v1",
        "DeviceClass",
        "gpu",
        spec={
            "selectors": [{"cel": {"expression": "device.driver == 'x'"}}],
            "config": [{"opaque": {"driver": "x.y", "parameters": {"a": 1}}}],
        },
    ),
    sample(
        "resource.k8s.io/v1",
        "ResourceClaim",
        "a",
        spec={"devices": _DEVICES},
        status={
            "allocation": {"devices": {"results": [{"request": "r", "driver": "x.y", "pool": "p", "device": "d"}]}},
            "reservedFor": [{"resource": "pods", "name": "a", "uid": "u"}],
            "devices": [{"driver": "x.y", "pool": "p", "device": "d", "data": {"x": 1}}],
        },
    ),
    sample(
        "resource.k8s.io/v1beta1",
        "ResourceClaim",
        "b",
        spec={"devices": {"requests": [{"name": "r", "deviceClassName": "gpu", "count": 1}]}},
    ),
    sample("resource.k8s.io/v1beta2", "ResourceClaim", "b2", spec={"devices": _DEVICES}),
    sample("resource.k8s.io/v1", "ResourceClaimTemplate", "a", spec={"spec": {"devices": _DEVICES}}),
    sample(
        "resource.k8s.io/v1",
        "ResourceSlice",
        "a",
        spec={
            "driver": "x.y",
            "nodeName": "n1",
            "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1},
            "devices": [
                {
                    "name": "d",
                    "attributes": {"a": {"string": "x"}, "v": {"version": "1.2.3"}, "i": {"int": 1}},
                    "capacity": {"m": {"value": "1Gi"}},
                    "taints": [{"key": "a", "effect": "NoSchedule"}],
                }
            ],
        },
    ),
    sample(
        "resource.k8s.io/v1beta1",
        "ResourceSlice",
        "b",
        spec={
            "driver": "x.y",
            "nodeName": "n1",
            "pool": {"name": "q", "generation": 1, "resourceSliceCount": 1},
            "devices": [
                {"name": "d", "basic": {"attributes": {"a": {"string": "x"}}, "capacity": {"m": {"value": "1Gi"}}}}
            ],
        },
    ),
    sample(
        "resource.k8s.io/v1beta2",
        "DeviceTaintRule",
        "a",
        spec={"taint": {"key": "a", "effect": "NoExecute"}, "deviceSelector": {"driver": "x.y"}},
    ),
    sample(
        "authorization.k8s.io/v1",
        "SelfSubjectAccessReview",
        "a",
        spec={"resourceAttributes": {"verb": "get", "resource": "pods"}},
    ),
    sample(
        "authorization.k8s.io/v1",
        "SubjectAccessReview",
        "a",
        spec={"user": "jane", "nonResourceAttributes": {"verb": "get", "path": "/x"}},
    ),
    sample("authorization.k8s.io/v1", "SelfSubjectRulesReview", "a", spec={"namespace": "default"}),
    sample("authentication.k8s.io/v1", "TokenReview", "a", spec={"token": "x"}),
    sample(
        "admissionregistration.k8s.io/v1",
        "ValidatingAdmissionPolicy",
        "a",
        spec={
            "matchConstraints": {
                "resourceRules": [
                    {"operations": ["*"], "apiGroups": ["apps"], "apiVersions": ["v1"], "resources": ["deployments"]}
                ]
            },
            "validations": [{"expression": "true"}],
        },
    ),
    sample("flowcontrol.apiserver.k8s.io/v1", "FlowSchema", "a", spec={"priorityLevelConfiguration": {"name": "x"}}),
]
