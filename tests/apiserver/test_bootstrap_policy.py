"""The roles that a server makes at its first start are those of kube-apiserver 1.36, and Haru's own beside them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator

import pytest
from api_caller import Caller

from haru.apiserver.bootstrap import role_objects
from haru.kube.gates import FeatureGates
from haru.kube.meta import Obj

# The rules of each role of a kube-apiserver v1.36.2 with default gates: the first digits of the SHA-256 of the sorted
# lines `verb group/resource name` or `verb path`.
RECORDED = """
cluster-admin d59e12b69f4b
system:aggregate-to-admin 7a1e99698688
system:aggregate-to-edit 6f8b94f43217
system:aggregate-to-view 40abf062923a
system:auth-delegator 1fc0c5f76e9a
system:basic-user b05ff602d88e
system:certificates.k8s.io:certificatesigningrequests:nodeclient 3cf1c9b875dc
system:certificates.k8s.io:certificatesigningrequests:selfnodeclient ed29d6fe8af4
system:certificates.k8s.io:kube-apiserver-client-approver de1b06a943f5
system:certificates.k8s.io:kube-apiserver-client-kubelet-approver 39e24ff9254b
system:certificates.k8s.io:kubelet-serving-approver 861c5eec74d3
system:certificates.k8s.io:legacy-unknown-approver 981d5d5b4a81
system:controller:attachdetach-controller e4005c295f64
system:controller:certificate-controller 9465452fe14f
system:controller:clusterrole-aggregation-controller d0a8b545eda2
system:controller:cronjob-controller e17b13173725
system:controller:daemon-set-controller 06c19c87cc0e
system:controller:deployment-controller b23021404521
system:controller:device-taint-eviction-controller b1b477b7ea12
system:controller:disruption-controller 397627ba7fb5
system:controller:endpoint-controller 84c71ed653ee
system:controller:endpointslice-controller 30a7e6cd9b70
system:controller:endpointslicemirroring-controller e7d84b946a99
system:controller:ephemeral-volume-controller dc88c5138a92
system:controller:expand-controller 184a6d288a66
system:controller:generic-garbage-collector 546c7d605f86
system:controller:horizontal-pod-autoscaler b8ba81555be9
system:controller:job-controller f3d2c4de1623
system:controller:legacy-service-account-token-cleaner 49861c2ca9bc
system:controller:namespace-controller bafc2630a382
system:controller:node-controller 3a36a5b2aba5
system:controller:persistent-volume-binder fa260c392f86
system:controller:pod-garbage-collector 48c8fe36577c
system:controller:pv-protection-controller d493f1b2a92a
system:controller:pvc-protection-controller c4ccece03765
system:controller:replicaset-controller f6f20f4449b1
system:controller:replication-controller ac595a857b1d
system:controller:resource-claim-controller 3579aad98788
system:controller:resourcequota-controller c41c81e6687c
system:controller:root-ca-cert-publisher 7c143e48d19c
system:controller:route-controller 3a7bbb9bbcae
system:controller:selinux-warning-controller b0fffdbd9603
system:controller:service-account-controller b7f79485e0e7
system:controller:service-cidrs-controller 34e0563be15f
system:controller:service-controller 2d1d58c8f9d5
system:controller:statefulset-controller 963aeb7d8e94
system:controller:ttl-after-finished-controller 998f94a55b6a
system:controller:ttl-controller 88956c13ea86
system:controller:validatingadmissionpolicy-status-controller 4ae93ff572d9
system:controller:volumeattributesclass-protection-controller fd4942eef3d7
system:discovery 321859d07589
system:heapster 047cfc4890ce
system:kube-aggregator fbccde36baf6
system:kube-controller-manager fc4e3f0de7c1
system:kube-dns b10dd7df60e1
system:kube-scheduler 2e3782e22e02
system:kubelet-api-admin b88ab0424b1c
system:monitoring 9913763584e4
system:node 4a875f67683e
system:node-bootstrapper 0ea3018fd318
system:node-problem-detector abc589037bb2
system:node-proxier 916c7d1b41d0
system:persistent-volume-provisioner c8c356a3600c
system:public-info-viewer a2b6ebd39085
system:service-account-issuer-discovery 500c08d32b88
system:volume-scheduler 8403cdf7e61f
kube-public/system:controller:bootstrap-signer c1881a91cb71
kube-system/extension-apiserver-authentication-reader ded266facf7a
kube-system/system::leader-locking-kube-controller-manager c89b5ac439dc
kube-system/system::leader-locking-kube-scheduler c89b5ac439dc
kube-system/system:controller:bootstrap-signer f26d22a1e774
kube-system/system:controller:cloud-provider bd9b094b52e6
kube-system/system:controller:token-cleaner 2c481adfc4e1
"""
AGGREGATED = {"admin": "", "edit": "aggregate-to-admin", "view": "aggregate-to-edit"}


def _grants(rules: list[Obj]) -> Iterator[str]:
    for rule in rules:
        for verb in rule["verbs"]:
            yield from (f"{verb} {path}" for path in rule.get("nonResourceURLs", ()))
            for group in rule.get("apiGroups", ()):
                for resource in rule["resources"]:
                    yield from (f"{verb} {group}/{resource} {name}" for name in rule.get("resourceNames", [""]))


def _path(obj: Obj) -> str:
    namespace = obj["metadata"].get("namespace")
    return f"{namespace}/{obj['metadata']['name']}" if namespace else str(obj["metadata"]["name"])


def _defaults() -> list[Obj]:
    gates = FeatureGates()
    return role_objects(lambda gate: gates.all().get(gate, False))


def test_every_role_of_kubernetes_has_the_recorded_rules() -> None:
    ours = {
        _path(obj): hashlib.sha256("\n".join(sorted(set(_grants(obj["rules"])))).encode()).hexdigest()[:12]
        for obj in _defaults()
        if obj["kind"] in ("Role", "ClusterRole") and "aggregationRule" not in obj
    }
    recorded = dict(line.split() for line in RECORDED.split("\n") if line)
    assert len(recorded) == 73
    assert {name: ours.get(name) for name in recorded} == recorded
    assert all(name.startswith("haru:") for name in ours.keys() - recorded.keys())


def test_people_have_aggregated_roles() -> None:
    found = {obj["metadata"]["name"]: obj for obj in _defaults() if "aggregationRule" in obj}
    assert set(found) == set(AGGREGATED)
    for name, onto in AGGREGATED.items():
        labels = found[name]["metadata"]["labels"]
        assert {key.partition("/")[2] for key in labels if "aggregate" in key} == ({onto} if onto else set())


def test_parts_of_edit_and_view_carry_their_labels() -> None:
    labels = {_path(obj): obj["metadata"]["labels"] for obj in _defaults() if obj["kind"] == "ClusterRole"}
    for name in AGGREGATED:
        assert labels[f"system:aggregate-to-{name}"][f"rbac.authorization.k8s.io/aggregate-to-{name}"] == "true"


@pytest.mark.parametrize(
    ("role", "kind"),
    [
        ("system:node", []),
        ("system:volume-scheduler", ["system:kube-scheduler"]),
        ("system:node-proxier", ["system:kube-proxy"]),
        ("system:controller:persistent-volume-binder", ["persistent-volume-binder"]),
    ],
)
def test_binding_has_the_subjects_of_kubernetes(role: str, kind: list[str]) -> None:
    bound = [obj for obj in _defaults() if obj["kind"] == "ClusterRoleBinding" and obj["metadata"]["name"] == role]
    assert [[subject["name"] for subject in obj["subjects"]] for obj in bound] == [kind]


def test_roles_of_features_come_with_their_gate() -> None:
    role = "system:controller:podgroup-protection-controller"
    assert not any(_path(obj) == role for obj in _defaults())
    assert [obj["kind"] for obj in role_objects() if _path(obj) == role] == ["ClusterRole", "ClusterRoleBinding"]


def test_what_the_scheduler_needs_beyond_is_in_a_role_of_its_own() -> None:
    own = next(obj for obj in role_objects() if obj["kind"] == "ClusterRole" and _path(obj) == "haru:kube-scheduler")
    reads = ["get", "list", "watch"]
    assert {"apiGroups": ["storage.k8s.io"], "resources": ["storageclasses"], "verbs": reads} in own["rules"]
    bound = next(obj for obj in role_objects() if "subjects" in obj and _path(obj) == "haru:kube-scheduler")
    assert bound["roleRef"]["name"] == "haru:kube-scheduler"
    assert [subject["name"] for subject in bound["subjects"]] == ["system:kube-scheduler"]


async def test_first_start_says_since_when_uses_of_old_tokens_are_known(api: Caller) -> None:
    name = "kube-apiserver-legacy-service-account-token-tracking"
    found = (await api("GET", f"/api/v1/namespaces/kube-system/configmaps/{name}")).json
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", found["data"]["since"])
