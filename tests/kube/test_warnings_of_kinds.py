"""Warnings about nodes, networks, storage, quotas and accounts: the words were read from kube-apiserver 1.36.2."""

from __future__ import annotations

from typing import Any

import pytest

from haru.kube.kinds import known_kind
from haru.kube.warnings import warnings_on_create, warnings_on_update

Obj = dict[str, Any]
MOUNTABLE = "kubernetes.io/enforce-mountable-secrets"
BETA_OS = 'deprecated since v1.14; use "kubernetes.io/os" instead'


def not_canonical(what: str, text: str, canonical: str) -> str:
    return f'IPv6 {what} "{text}" should be in RFC 5952 canonical format ("{canonical}")'


def block(text: str, *excepted: str) -> Obj:
    return {"ipBlock": {"cidr": text, "except": list(excepted)}}


CASES: list[tuple[str, str, Obj, list[str]]] = [
    (
        "networking.k8s.io/v1",
        "Ingress",
        {"metadata": {"annotations": {"kubernetes.io/ingress.class": "a"}}, "spec": {}},
        ["annotation \"kubernetes.io/ingress.class\" is deprecated, please use 'spec.ingressClassName' instead"],
    ),
    (
        "networking.k8s.io/v1",
        "Ingress",
        {"metadata": {"annotations": {"kubernetes.io/ingress.class": "a"}}, "spec": {"ingressClassName": "a"}},
        [],
    ),
    (
        "networking.k8s.io/v1",
        "NetworkPolicy",
        {
            "metadata": {},
            "spec": {
                "ingress": [{"from": [block("10.0.0.0/8"), block("fd00:0::/64", "fd00:0::/96", "fd00::/97")]}],
                "egress": [{"to": [{"podSelector": {}}, block("FD00::/64")]}],
            },
        },
        [
            f"spec.ingress[0].from[1].ipBlock.cidr: {not_canonical('CIDR value', 'fd00:0::/64', 'fd00::/64')}",
            f"spec.ingress[0].from[1].ipBlock.except[0]: {not_canonical('CIDR value', 'fd00:0::/96', 'fd00::/96')}",
            f"spec.egress[0].to[1].ipBlock.cidr: {not_canonical('CIDR value', 'FD00::/64', 'fd00::/64')}",
        ],
    ),
    (
        "storage.k8s.io/v1",
        "StorageClass",
        {
            "metadata": {},
            "allowedTopologies": [{"matchLabelExpressions": [{"key": "zone"}, {"key": "beta.kubernetes.io/os"}]}],
        },
        [f"allowedTopologies[0].matchLabelExpressions[1].key: {BETA_OS}"],
    ),
    (
        "storage.k8s.io/v1",
        "CSIStorageCapacity",
        {
            "metadata": {},
            "nodeTopology": {
                "matchLabels": {"beta.kubernetes.io/os": "a", "zone": "b"},
                "matchExpressions": [{"key": "beta.kubernetes.io/os", "operator": "Exists"}],
            },
        },
        [
            f"nodeTopology.matchExpressions[0].key: beta.kubernetes.io/os is {BETA_OS}",
            f"nodeTopology.matchLabels.beta.kubernetes.io/os: {BETA_OS}",
        ],
    ),
    (
        "v1",
        "Node",
        {"metadata": {}, "spec": {"podCIDRs": ["10.0.0.0/24", "fd00:0::/64"], "externalID": "x", "configSource": {}}},
        [
            "spec.configSource: the feature is removed",
            "spec.externalID: this field is deprecated, and is unused by Kubernetes",
            f"spec.podCIDRs[1]: {not_canonical('CIDR value', 'fd00:0::/64', 'fd00::/64')}",
        ],
    ),
    (
        "v1",
        "ResourceQuota",
        {
            "metadata": {},
            "spec": {
                "hard": {
                    "cpu": "2",
                    "limits.cpu": "1000m",
                    "requests.storage": "1",
                    "requests.memory": "2Gi",
                    "limits.memory": "1Gi",
                }
            },
        },
        [
            "ResourceQuota cpu (2) should be less than limits.cpu (1)",
            "ResourceQuota requests.memory (2Gi) should be less than limits.memory (1Gi)",
        ],
    ),
    (
        "v1",
        "ServiceAccount",
        {"metadata": {"annotations": {MOUNTABLE: "true"}}},
        [
            f"metadata.annotations[{MOUNTABLE}]: deprecated in v1.32+; prefer separate namespaces to isolate access to "
            "mounted secrets"
        ],
    ),
    (
        "v1",
        "Service",
        {
            "metadata": {},
            "spec": {
                "type": "LoadBalancer",
                "externalIPs": ["FD00::1"],
                "loadBalancerIP": "FD00::2",
                "loadBalancerSourceRanges": ["FD00::/64", "10.0.0.0/8"],
                "clusterIPs": ["10.0.0.1", "None"],
            },
        },
        [
            f"spec.externalIPs[0]: {not_canonical('address', 'FD00::1', 'fd00::1')}",
            "spec.externalIPs is deprecated and may no longer be implemented in some clusters",
            f"spec.loadBalancerIP: {not_canonical('address', 'FD00::2', 'fd00::2')}",
            f"spec.loadBalancerSourceRanges[0]: {not_canonical('CIDR value', 'FD00::/64', 'fd00::/64')}",
        ],
    ),
]


@pytest.mark.parametrize(("version", "kind", "obj", "expected"), CASES)
def test_new_object_has_warnings_of_kube_apiserver(version: str, kind: str, obj: Obj, expected: list[str]) -> None:
    assert warnings_on_create(obj, known_kind(version, kind)) == expected


@pytest.mark.parametrize(
    ("version", "kind", "repeated"),
    [
        ("v1", "Node", True),
        ("v1", "ServiceAccount", False),
        ("v1", "ResourceQuota", False),
        ("networking.k8s.io/v1", "Ingress", False),
        ("networking.k8s.io/v1", "NetworkPolicy", True),
        ("storage.k8s.io/v1", "StorageClass", True),
        ("storage.k8s.io/v1", "CSIStorageCapacity", True),
    ],
)
def test_which_warnings_an_update_repeats(version: str, kind: str, repeated: bool) -> None:
    obj, expected = next((obj, expected) for v, k, obj, expected in CASES if (v, k) == (version, kind))
    assert warnings_on_update(obj, obj, known_kind(version, kind)) == (expected if repeated else [])
