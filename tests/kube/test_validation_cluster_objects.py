"""Networking, storage, endpoints, flow control, autoscaling: one good object of each kind, a fault at a time."""

from __future__ import annotations

from typing import Any

import pytest
from kube_cases import REMOVE, Obj, problems, put, update_problems

from haru.kube.gates import FeatureGates
from haru.kube.kinds import by_kind
from haru.kube.strategy import prepare_for_create
from haru.kube.warnings import warnings_on_create

SELECTOR = {"matchLabels": {"a": "b"}}
TERMS = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "k", "operator": "In", "values": ["v"]}]}]}


def cluster(api_version: str, kind: str, **fields: Any) -> Obj:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": "one"}, **fields}


def spaced(api_version: str, kind: str, **fields: Any) -> Obj:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": "one", "namespace": "lab"}, **fields}


def volume(**source: Any) -> Obj:
    spec = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], **source}
    return cluster("v1", "PersistentVolume", spec=spec)


BACKEND = {"service": {"name": "s", "port": {"number": 80}}}
INGRESS = spaced(
    "networking.k8s.io/v1",
    "Ingress",
    spec={
        "ingressClassName": "c",
        "tls": [{"hosts": ["a.example.com", "*.example.com"], "secretName": "t"}],
        "rules": [
            {"host": "a.example.com", "http": {"paths": [{"path": "/x", "pathType": "Prefix", "backend": BACKEND}]}}
        ],
    },
)
INGRESS_PATH = "spec.rules.0.http.paths.0"
INGRESS_CLASS = cluster(
    "networking.k8s.io/v1",
    "IngressClass",
    spec={"controller": "example.com/c", "parameters": {"kind": "K", "name": "n", "scope": "Cluster"}},
)
POLICY = spaced(
    "networking.k8s.io/v1",
    "NetworkPolicy",
    spec={
        "podSelector": SELECTOR,
        "ingress": [
            {
                "from": [{"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"]}}],
                "ports": [{"port": 80, "endPort": 90}],
            }
        ],
    },
)
SLICE = {
    **spaced("discovery.k8s.io/v1", "EndpointSlice"),
    "addressType": "IPv4",
    "endpoints": [{"addresses": ["10.0.0.1"], "hints": {"forZones": [{"name": "z"}]}}],
    "ports": [{"name": "http", "port": 80, "protocol": "TCP"}],
}
ENDPOINTS = {
    **spaced("v1", "Endpoints"),
    "subsets": [{"addresses": [{"ip": "10.0.0.1"}], "ports": [{"port": 80}]}],
}
STORAGE_CLASS = {
    **cluster("storage.k8s.io/v1", "StorageClass"),
    "provisioner": "example.com/p",
    "allowedTopologies": [{"matchLabelExpressions": [{"key": "zone", "values": ["a"]}]}],
}
DRIVER = cluster("storage.k8s.io/v1", "CSIDriver", spec={"tokenRequests": [{"audience": "a"}]})
CSI_NODE = cluster("storage.k8s.io/v1", "CSINode", spec={"drivers": [{"name": "d.example.com", "nodeID": "x"}]})
ATTACHMENT = cluster(
    "storage.k8s.io/v1",
    "VolumeAttachment",
    spec={"attacher": "d.example.com", "nodeName": "n", "source": {"persistentVolumeName": "pv"}},
)
LOCAL = volume(local={"path": "/x"}, nodeAffinity={"required": TERMS})
CSI = volume(csi={"driver": "d.example.com", "volumeHandle": "h"})
SCALER = spaced(
    "autoscaling/v2",
    "HorizontalPodAutoscaler",
    spec={
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"},
        "maxReplicas": 3,
        "metrics": [
            {
                "type": "Resource",
                "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 5}},
            }
        ],
        "behavior": {"scaleUp": {"policies": [{"type": "Pods", "value": 4, "periodSeconds": 60}]}},
    },
)
METRIC = "spec.metrics.0.resource.target"
FLOW = cluster(
    "flowcontrol.apiserver.k8s.io/v1",
    "FlowSchema",
    spec={
        "priorityLevelConfiguration": {"name": "p"},
        "rules": [
            {
                "subjects": [{"kind": "User", "user": {"name": "u"}}],
                "nonResourceRules": [{"verbs": ["get"], "nonResourceURLs": ["/healthz"]}],
            }
        ],
    },
)
LEVEL = cluster(
    "flowcontrol.apiserver.k8s.io/v1",
    "PriorityLevelConfiguration",
    spec={
        "type": "Limited",
        "limited": {
            "limitResponse": {"type": "Queue", "queuing": {"queues": 64, "handSize": 6, "queueLengthLimit": 50}}
        },
    },
)
RUNTIME = {**cluster("node.k8s.io/v1", "RuntimeClass"), "handler": "h", "scheduling": {"nodeSelector": {"a": "b"}}}
GOOD = [
    *(INGRESS, INGRESS_CLASS, POLICY, SLICE, ENDPOINTS, STORAGE_CLASS, DRIVER, CSI_NODE, ATTACHMENT, LOCAL, CSI),
    *(SCALER, FLOW, LEVEL, RUNTIME),
]


@pytest.mark.parametrize("obj", GOOD, ids=[obj["kind"] for obj in GOOD])
def test_good_object_is_accepted(obj: Obj) -> None:
    assert problems(obj) == []


FAULTS: list[tuple[Obj, str, Any, str]] = [
    (INGRESS, "spec.rules", REMOVE, "spec: Invalid value"),
    (INGRESS, "spec.rules.0.host", "1.2.3.4", "must be a DNS name, not an IP address"),
    (INGRESS, "spec.rules.0.host", "*.", "a wildcard DNS-1123 subdomain must start with '*.'"),
    (INGRESS, "spec.rules.0.http.paths", [], "spec.rules[0].http.paths: Required value"),
    (INGRESS, f"{INGRESS_PATH}.pathType", REMOVE, "pathType: Required value: pathType must be specified"),
    (INGRESS, f"{INGRESS_PATH}.pathType", "Regex", 'pathType: Unsupported value: "Regex"'),
    (INGRESS, f"{INGRESS_PATH}.path", "x", "must be an absolute path"),
    (INGRESS, f"{INGRESS_PATH}.path", "/a//b", "must not contain '//'"),
    (INGRESS, f"{INGRESS_PATH}.path", "/a/..", "cannot end with '/..'"),
    (INGRESS, f"{INGRESS_PATH}.backend", {}, 'backend: Invalid value: "": resource or service backend is required'),
    (INGRESS, f"{INGRESS_PATH}.backend.service.port", {}, "backend: Required value: port name or number is required"),
    (INGRESS, "spec.tls.0.secretName", "A_b", "spec.tls[0].secretName: Invalid value"),
    (INGRESS_CLASS, "spec.controller", "c", "must be a domain-prefixed path"),
    (INGRESS_CLASS, "spec.parameters.scope", "Namespace", "spec.parameters.namespace: Required value"),
    (INGRESS_CLASS, "spec.parameters.namespace", "lab", "spec.parameters.namespace: Forbidden"),
    (POLICY, "spec.ingress.0.from.0", {}, "spec.ingress[0].from[0]: Required value: must specify a peer"),
    (POLICY, "spec.ingress.0.from.0.podSelector", SELECTOR, "may not specify both ipBlock and another peer"),
    (POLICY, "spec.ingress.0.from.0.ipBlock.except", ["11.0.0.0/16"], "must be a strict subset of `cidr`"),
    (POLICY, "spec.ingress.0.from.0.ipBlock.cidr", "10", "spec.ingress[0].from[0].ipBlock.cidr: Invalid value"),
    (POLICY, "spec.ingress.0.ports.0.endPort", 1, "must be greater than or equal to `port`"),
    (POLICY, "spec.ingress.0.ports.0.port", "http", "may not be specified when `port` is non-numeric"),
    (POLICY, "spec.policyTypes", ["Both"], 'spec.policyTypes[0]: Unsupported value: "Both"'),
    (SLICE, "addressType", "IPv5", 'addressType: Unsupported value: "IPv5"'),
    (SLICE, "endpoints.0.addresses", [], "endpoints[0].addresses: Required value: must contain at least 1 address"),
    (SLICE, "endpoints.0.addresses", ["x"], "endpoints[0].addresses[0]: Invalid value"),
    (SLICE, "endpoints.0.addresses", ["169.254.0.1"], "may not be in the link-local range"),
    (SLICE, "endpoints.0.addresses", ["::1"], "must be an IPv4 address"),
    (SLICE, "endpoints.0.hints.forZones", [{"name": "-"}], "hints.forZones[0].name: Invalid value"),
    (SLICE, "ports.0.protocol", "ICMP", 'ports[0].protocol: Unsupported value: "ICMP"'),
    (ENDPOINTS, "subsets.0.addresses", [], "subsets[0]: Required value: must specify `addresses` or"),
    (ENDPOINTS, "subsets.0.addresses.0.ip", "0.0.0.0", "may not be unspecified (0.0.0.0)"),
    (ENDPOINTS, "subsets.0.ports", [{"port": 1}, {"port": 2}], "subsets[0].ports[1].name: Required value"),
    (STORAGE_CLASS, "provisioner", "a/b/c", "provisioner: Invalid value"),
    (STORAGE_CLASS, "allowedTopologies.0.matchLabelExpressions.0.values", [], "values: Required value"),
    (STORAGE_CLASS, "allowedTopologies.0", {}, "allowedTopologies[0].matchLabelExpressions: Duplicate value"),
    (DRIVER, "spec.tokenRequests.0.expirationSeconds", 5, "may not specify a duration less than 10 minutes"),
    (DRIVER, "spec.volumeLifecycleModes", ["Short"], 'spec.volumeLifecycleModes: Unsupported value: "Short"'),
    (CSI_NODE, "spec.drivers.0.nodeID", "", "spec.drivers[0].nodeID: Required value"),
    (CSI_NODE, "spec.drivers.0.topologyKeys", ["a", "a"], 'spec.drivers[0]: Duplicate value: "a"'),
    (ATTACHMENT, "spec.source", {}, "must specify exactly one of inlineVolumeSpec and persistentVolumeName"),
    (ATTACHMENT, "spec.nodeName", "", 'spec.nodeName: Invalid value: ""'),
    (LOCAL, "spec.nodeAffinity", REMOVE, "Local volume requires node affinity"),
    (LOCAL, "spec.capacity", {"cpu": "1"}, "spec.capacity: Unsupported value"),
    (LOCAL, "spec.hostPath", {"path": "/"}, "spec.local: Forbidden: may not specify more than 1 volume type"),
    (CSI, "spec.csi.volumeHandle", "", "spec.csi.volumeHandle: Required value"),
    (CSI, "spec.csi.nodePublishSecretRef", {"name": "s"}, "spec.csi.nodePublishSecretRef.namespace: Required value"),
    (CSI, "spec.accessModes", [], "spec.accessModes: Required value"),
    (SCALER, "spec.maxReplicas", 0, "spec.maxReplicas: Required value"),
    (SCALER, "spec.scaleTargetRef.apiVersion", "v1", "apiVersion must specify API group"),
    (SCALER, f"{METRIC}.averageUtilization", 0, "averageUtilization: Invalid value: 0: must be greater than 0"),
    (SCALER, f"{METRIC}.type", "Most", "must be either Utilization, Value, or AverageValue"),
    (SCALER, "spec.metrics.0.type", "Pods", "spec.metrics[0].pods: Required value"),
    (SCALER, "spec.behavior.scaleUp.policies", [], "spec.behavior.scaleUp.policies: Required value"),
    (FLOW, "spec.matchingPrecedence", 20000, "must not be greater than 10000"),
    (FLOW, "spec.rules.0.subjects.0.user", REMOVE, "spec.rules[0].subjects[0].user: Required value"),
    (FLOW, "spec.rules.0.nonResourceRules.0.nonResourceURLs", ["/a*"], "wildcard can only do suffix matching"),
    (FLOW, "spec.rules.0.nonResourceRules.0.verbs", ["*", "get"], "if '*' is present, must not specify other verbs"),
    (LEVEL, "spec.type", "Free", 'spec.type: Unsupported value: "Free"'),
    (LEVEL, "spec.limited.limitResponse.queuing.handSize", 65, "should not be greater than queues (64)"),
    (LEVEL, "spec.limited.limitResponse.queuing.handSize", 11, "required entropy bits of deckSize 64 and handSize 11"),
    (LEVEL, "spec.limited.lendablePercent", 101, "must be between 0 and 100, inclusive"),
    (RUNTIME, "handler", "A_b", "handler: Invalid value"),
    (RUNTIME, "scheduling.tolerations", [{"key": "k"}, {"key": "k"}], "scheduling.tolerations[1]: Duplicate value"),
]


@pytest.mark.parametrize(("obj", "path", "value", "expected"), FAULTS)
def test_faulty_field_is_refused(obj: Obj, path: str, value: Any, expected: str) -> None:
    found = problems(put(obj, path, value))
    assert any(expected in text for text in found), found


@pytest.mark.parametrize(
    ("old", "path", "value", "expected"),
    [
        (INGRESS_CLASS, "spec.controller", "example.com/d", "spec.controller: Invalid value"),
        (SLICE, "addressType", "IPv6", "addressType: Invalid value"),
        (STORAGE_CLASS, "provisioner", "example.com/q", "provisioner: Invalid value"),
        (CSI_NODE, "spec.drivers.0.nodeID", "y", "spec.drivers: Invalid value"),
        (ATTACHMENT, "spec.nodeName", "m", "spec: Invalid value"),
        (CSI, "spec.csi.volumeHandle", "i", "spec.persistentvolumesource: Forbidden"),
        (RUNTIME, "handler", "i", "handler: Invalid value"),
    ],
)
def test_what_stays_as_it_was_is_refused_when_it_changes(old: Obj, path: str, value: Any, expected: str) -> None:
    found = update_problems(put(old, path, value), old)
    assert any(expected in text for text in found), found


def test_a_secret_for_growth_may_be_added_to_a_volume() -> None:
    secret = {"name": "s", "namespace": "n"}
    assert update_problems(put(CSI, "spec.csi.controllerExpandSecretRef", secret), CSI) == []


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ({"dataSource": {"kind": "PersistentVolumeClaim", "name": "x"}}, {"dataSource", "dataSourceRef"}),
        ({"dataSourceRef": {"kind": "PersistentVolumeClaim", "name": "x"}}, {"dataSource", "dataSourceRef"}),
        ({"dataSourceRef": {"kind": "K", "name": "x", "namespace": "n"}}, set()),
        ({"dataSource": {"kind": "Other", "name": "x"}}, set()),
    ],
)
def test_the_two_sources_of_a_claim_say_the_same(given: Obj, kept: set[str]) -> None:
    kind = by_kind("v1", "PersistentVolumeClaim")
    assert kind is not None
    claim = prepare_for_create(spaced("v1", "PersistentVolumeClaim", spec=given), kind, FeatureGates(), "")
    assert claim["spec"].keys() == kept
    assert all(source["name"] == "x" for source in claim["spec"].values())


@pytest.mark.parametrize(
    ("obj", "expected"),
    [
        (put(SLICE, "addressType", "FQDN"), "FQDN endpoints are deprecated"),
        (DRIVER, "spec.serviceAccountTokenInSecrets is unset"),
        (volume(rbd={"monitors": ["m"], "image": "i"}), "spec.rbd: deprecated in v1.28"),
        (
            spaced("v1", "Service", spec={"type": "ClusterIP", "externalIPs": ["1.2.3.4"]}),
            "spec.externalIPs is deprecated",
        ),
        (spaced("v1", "Service", spec={"clusterIP": "None", "sessionAffinity": "ClientIP"}), "is ignored for headless"),
    ],
)
def test_odd_object_has_a_warning(obj: Obj, expected: str) -> None:
    kind = by_kind(obj["apiVersion"], obj["kind"])
    assert kind is not None
    assert any(expected in text for text in warnings_on_create(obj, kind))
