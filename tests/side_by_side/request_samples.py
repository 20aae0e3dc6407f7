"""A valid object of every kind that is compared, in addition to those of the fuzzer."""

from __future__ import annotations

from typing import Any

from custom_objects import NAME, definition, training
from sample_objects import SAMPLES, sample

Obj = dict[str, Any]

_HARMLESS = {"operations": ["CREATE"], "apiGroups": ["none.io"], "apiVersions": ["v1"], "resources": ["nones"]}
"""What no request is about: policies and webhooks must not reach into what is compared."""
_WEBHOOK = {
    "name": "w.side.io",
    "rules": [_HARMLESS],
    "sideEffects": "None",
    "admissionReviewVersions": ["v1"],
    "clientConfig": {"url": "https://127.0.0.1:9/x"},
    "failurePolicy": "Ignore",
}
_MUTATIONS = [
    {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": "Object{spec: Object.spec{replicas: 3}}"}}
]
_MUTATING = {"matchConstraints": {"resourceRules": [_HARMLESS]}, "mutations": _MUTATIONS, "reinvocationPolicy": "Never"}
_BINDING = {"policyName": "none.side.io", "matchResources": {"resourceRules": [_HARMLESS]}}
_POD = {"containers": [{"name": "main", "image": "b:1"}]}
_TEMPLATE = {"metadata": {"labels": {"a": "b"}}, "spec": _POD}
_SELECTOR = {"matchLabels": {"a": "b"}}
_REGISTRATIONS = "admissionregistration.k8s.io/v1"
_DEVICE = {"name": "d", "attributes": {"a": {"string": "x"}}, "capacity": {"m": {"value": "1Gi"}}}
_PLAIN_REQUESTS = {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}

EXTRA: list[Obj] = [
    sample("v1", "Pod", "p", spec=_POD),
    sample("v1", "LimitRange", "l", spec={"limits": [{"type": "Container", "default": {"cpu": "1"}}]}),
    sample("v1", "ResourceQuota", "q", spec={"hard": {"pods": "10", "requests.cpu": "4"}}),
    sample("v1", "PodTemplate", "t", template=_TEMPLATE),
    sample("v1", "Service", "c", spec={"selector": {"a": "b"}, "ports": [{"port": 80}]}),
    sample(
        "v1",
        "PersistentVolume",
        "pv",
        spec={
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "s",
            "csi": {"driver": "x.y", "volumeHandle": "h"},
        },
    ),
    sample(
        "apiregistration.k8s.io/v1",
        "APIService",
        "v1.none.io",
        spec={
            "group": "none.io",
            "version": "v1",
            "groupPriorityMinimum": 100,
            "versionPriority": 10,
            "insecureSkipTLSVerify": True,
            "service": {"name": "s", "namespace": "default", "port": 443},
        },
    ),
    sample("apps/v1", "ControllerRevision", "cr", revision=1, data={"spec": {"a": 1}}),
    sample("apps/v1", "ReplicaSet", "rs", spec={"replicas": 1, "selector": _SELECTOR, "template": _TEMPLATE}),
    sample("apps/v1", "Deployment", "dd", spec={"selector": _SELECTOR, "template": _TEMPLATE}),
    sample("authentication.k8s.io/v1", "SelfSubjectReview", "r"),
    sample(
        "authorization.k8s.io/v1",
        "LocalSubjectAccessReview",
        "r",
        spec={"user": "jane", "resourceAttributes": {"verb": "get", "resource": "pods", "namespace": "NAMESPACE"}},
    ),
    sample("certificates.k8s.io/v1beta1", "ClusterTrustBundle", "b", spec={"trustBundle": "x"}),
    sample("networking.k8s.io/v1", "IngressClass", "ic", spec={"controller": "x.y/z"}),
    sample("networking.k8s.io/v1", "ServiceCIDR", "sc", spec={"cidrs": ["10.9.0.0/24"]}),
    sample("storage.k8s.io/v1", "CSIDriver", "d.x.y", spec={"attachRequired": False, "podInfoOnMount": True}),
    sample(
        "storage.k8s.io/v1",
        "CSINode",
        "cn",
        spec={"drivers": [{"name": "x.y", "nodeID": "n", "topologyKeys": ["a"], "allocatable": {"count": 3}}]},
    ),
    sample("storage.k8s.io/v1", "CSIStorageCapacity", "sc", storageClassName="s", capacity="1Gi"),
    sample(
        "storage.k8s.io/v1",
        "VolumeAttachment",
        "va",
        spec={"attacher": "x.y", "nodeName": "n1", "source": {"persistentVolumeName": "pv"}},
    ),
    sample("storage.k8s.io/v1", "VolumeAttributesClass", "vac", driverName="x.y", parameters={"a": "b"}),
    sample(_REGISTRATIONS, "ValidatingWebhookConfiguration", "vw", webhooks=[_WEBHOOK]),
    sample(_REGISTRATIONS, "MutatingWebhookConfiguration", "mw", webhooks=[_WEBHOOK]),
    sample(_REGISTRATIONS, "ValidatingAdmissionPolicyBinding", "vb", spec=_BINDING | {"validationActions": ["Deny"]}),
    sample(_REGISTRATIONS, "MutatingAdmissionPolicyBinding", "mb", spec=_BINDING),
    sample(_REGISTRATIONS, "MutatingAdmissionPolicy", "mp", spec=_MUTATING | {"failurePolicy": "Fail"}),
    sample(
        _REGISTRATIONS,
        "ValidatingAdmissionPolicy",
        "vp",
        spec={
            "matchConstraints": {"resourceRules": [_HARMLESS]},
            "validations": [{"expression": "object.metadata.name != 'x'", "message": "no"}],
            "variables": [{"name": "v", "expression": "1 + 1"}],
        },
    ),
    sample("coordination.k8s.io/v1beta1", "LeaseCandidate", "lc", spec={
        "leaseName": "l", "binaryVersion": "1.36.0", "emulationVersion": "1.36.0", "strategy": "OldestEmulationVersion",
    }),
    sample("node.k8s.io/v1", "RuntimeClass", "rc", handler="h"),
    sample("flowcontrol.apiserver.k8s.io/v1", "PriorityLevelConfiguration", "pl", spec={
        "type": "Limited", "limited": {"nominalConcurrencyShares": 5, "limitResponse": {"type": "Reject"}},
    }),
    sample("resource.k8s.io/v1beta1", "DeviceClass", "dc1", spec={}),
    sample("resource.k8s.io/v1beta2", "DeviceClass", "dc2", spec={}),
    sample("resource.k8s.io/v1", "ResourceClaim", "rc", spec={"devices": _PLAIN_REQUESTS}),
    sample("resource.k8s.io/v1beta2", "ResourceClaimTemplate", "rct", spec={"spec": {"devices": _PLAIN_REQUESTS}}),
    sample("resource.k8s.io/v1beta1", "ResourceClaimTemplate", "rc1", spec={
        "spec": {"devices": {"requests": [{"name": "r", "deviceClassName": "gpu"}]}}
    }),
    sample("resource.k8s.io/v1", "ResourceSlice", "rs", spec={
        "driver": "x.y", "allNodes": True, "devices": [_DEVICE],
        "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1},
    }),
    sample("resource.k8s.io/v1alpha3", "ResourcePoolStatusRequest", "rp", spec={"driver": "x.y"}),
    sample("scheduling.k8s.io/v1alpha2", "PodGroup", "pg", spec={"schedulingPolicy": {"basic": {}}}),
    training("tr"),
    {**definition(), "metadata": {"name": "drills.ml.example.com"}, "spec": {
        **definition()["spec"], "names": {"plural": "drills", "singular": "drill", "kind": "Drill"}
    }},
]  # fmt: skip
ALL: list[Obj] = [*SAMPLES, *EXTRA]

__all__ = ["ALL", "NAME", "Obj"]
