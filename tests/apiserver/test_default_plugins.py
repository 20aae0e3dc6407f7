"""What else admission does by default: runtime classes, default classes, topology labels, signing requests, limits."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from api_caller import PODS, USER, Caller, pod
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

Obj = dict[str, Any]
SPACE = "/api/v1/namespaces/default"
RUNTIMES = "/apis/node.k8s.io/v1/runtimeclasses"
REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
MERGE = "application/merge-patch+json"


async def runtime_class(api: Caller, **more: Any) -> None:
    await api.create(RUNTIMES, {"metadata": {"name": "kata"}, "handler": "kata", **more})


async def test_runtime_class_sets_overhead_and_scheduling(api: Caller) -> None:
    toleration = {"key": "vm", "operator": "Exists"}
    await runtime_class(
        api,
        overhead={"podFixed": {"memory": "128Mi"}},
        scheduling={"nodeSelector": {"vm": "yes"}, "tolerations": [toleration]},
    )
    made = await api.create(PODS, pod("a", runtimeClassName="kata", nodeSelector={"x": "y"}))
    assert made["spec"]["overhead"] == {"memory": "128Mi"}
    assert made["spec"]["nodeSelector"] == {"x": "y", "vm": "yes"}
    assert toleration in made["spec"]["tolerations"]


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ({"runtimeClassName": "none"}, 'pod rejected: RuntimeClass "none" not found'),
        (
            {"runtimeClassName": "kata", "overhead": {"memory": "1Mi"}},
            "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead",
        ),
        (
            {"overhead": {"memory": "1Mi"}},
            "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead",
        ),
        (
            {"runtimeClassName": "kata", "nodeSelector": {"vm": "no"}},
            "conflict: runtimeClass.scheduling.nodeSelector[vm] = yes; pod.spec.nodeSelector[vm] = no",
        ),
    ],
)
async def test_pod_conflicting_with_runtime_class_is_refused(api: Caller, spec: Obj, told: str) -> None:
    await runtime_class(api, overhead={"podFixed": {"memory": "128Mi"}}, scheduling={"nodeSelector": {"vm": "yes"}})
    answer = await api("POST", PODS, pod("a", **spec))
    assert (answer.status, answer.json["message"]) == (403, f'pods "a" is forbidden: {told}')


async def test_volume_claims_and_ingresses_get_default_class(api: Caller) -> None:
    for name, default in (("slow", "false"), ("b-fast", "true"), ("a-fast", "true")):
        mark = {"storageclass.kubernetes.io/is-default-class": default}
        body = {"metadata": {"name": name, "annotations": mark}, "provisioner": "p"}
        await api.create("/apis/storage.k8s.io/v1/storageclasses", body)
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    made = await api.create(f"{SPACE}/persistentvolumeclaims", {"metadata": {"name": "c"}, "spec": spec})
    assert made["spec"]["storageClassName"] == "a-fast"
    none = {"metadata": {"name": "d"}, "spec": {**spec, "storageClassName": ""}}
    assert (await api.create(f"{SPACE}/persistentvolumeclaims", none))["spec"]["storageClassName"] == ""
    mark = {"ingressclass.kubernetes.io/is-default-class": "true"}
    body = {"metadata": {"name": "web", "annotations": mark}, "spec": {"controller": "x.y/z"}}
    await api.create("/apis/networking.k8s.io/v1/ingressclasses", body)
    backend = {"service": {"name": "s", "port": {"number": 80}}}
    ingress = {"metadata": {"name": "i"}, "spec": {"defaultBackend": backend}}
    made = await api.create("/apis/networking.k8s.io/v1/namespaces/default/ingresses", ingress)
    assert made["spec"]["ingressClassName"] == "web"


async def test_bound_pod_gets_zone_and_region_labels_of_node(api: Caller) -> None:
    labels = {"topology.kubernetes.io/zone": "z", "topology.kubernetes.io/region": "r", "other": "o"}
    await api.create("/api/v1/nodes", {"metadata": {"name": "n", "labels": labels}})
    given = pod("a")
    given["metadata"]["labels"] = {"app": "x"}
    await api.create(PODS, given)
    binding = {"metadata": {"name": "a"}, "target": {"kind": "Node", "name": "n"}}
    assert (await api("POST", f"{PODS}/a/binding", binding)).status == 201
    found = (await api.get(f"{PODS}/a"))["metadata"]["labels"]
    assert found == {"app": "x", "topology.kubernetes.io/zone": "z", "topology.kubernetes.io/region": "r"}


def signing_request(name: str, signer: str, group: str = "devs") -> Obj:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name(
        [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group), x509.NameAttribute(NameOID.COMMON_NAME, "jane")]
    )
    pem = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, hashes.SHA256())
    text = base64.b64encode(pem.public_bytes(Encoding.PEM)).decode()
    return {"metadata": {"name": name}, "spec": {"request": text, "signerName": signer, "usages": ["client auth"]}}


async def test_client_certificate_for_system_masters_is_refused(api: Caller) -> None:
    signer = "kubernetes.io/kube-apiserver-client"
    answer = await api("POST", REQUESTS, signing_request("a", signer, "system:masters"))
    assert answer.status == 403
    assert answer.json["message"].endswith(f"use of {signer} signer with system:masters group is not allowed")
    await api.create(REQUESTS, signing_request("b", signer))


async def test_approving_and_signing_require_signer_permission(api: Caller) -> None:
    await api.create(REQUESTS, signing_request("a", "example.com/robots"))
    rules = [
        {"apiGroups": ["certificates.k8s.io"], "resources": ["*"], "verbs": ["get", "update", "patch"]},
        {
            "apiGroups": ["certificates.k8s.io"],
            "resources": ["signers"],
            "verbs": ["approve"],
            "resourceNames": ["example.com/*"],
        },
    ]
    rules[0]["resources"] = [f"certificatesigningrequests{part}" for part in ("", "/approval", "/status")]
    subject = {"kind": "User", "name": "jane", "apiGroup": "rbac.authorization.k8s.io"}
    reference = {"kind": "ClusterRole", "name": "half", "apiGroup": "rbac.authorization.k8s.io"}
    await api.create(f"{RBAC}/clusterroles", {"metadata": {"name": "half"}, "rules": rules[:1]})
    await api.create(
        f"{RBAC}/clusterrolebindings", {"metadata": {"name": "half"}, "subjects": [subject], "roleRef": reference}
    )
    jane = api.as_(USER)
    approved = {"status": {"conditions": [{"type": "Approved", "status": "True", "reason": "r", "message": "m"}]}}
    answer = await jane("PATCH", f"{REQUESTS}/a/approval", approved, type=MERGE)
    assert answer.status == 403
    assert answer.json["message"].endswith(
        'user not permitted to approve requests with signerName "example.com/robots"'
    )
    await api("PATCH", f"{RBAC}/clusterroles/half", {"rules": rules}, type=MERGE)
    assert (await jane("PATCH", f"{REQUESTS}/a/approval", approved, type=MERGE)).status == 200
    signed = {"status": {"certificate": base64.b64encode(b"x").decode()}}
    answer = await jane("PATCH", f"{REQUESTS}/a/status", signed, type=MERGE)
    assert answer.status == 403
    assert answer.json["message"].endswith('user not permitted to sign requests with signerName "example.com/robots"')


async def test_limit_range_sets_defaults_and_maximum_for_pods(api: Caller) -> None:
    limits = [{"type": "Container", "default": {"cpu": "2"}, "max": {"cpu": "4", "nvidia.com/gpu": "2"}}]
    await api.create(f"{SPACE}/limitranges", {"metadata": {"name": "r"}, "spec": {"limits": limits}})
    made = await api.create(PODS, pod("a"))
    resources = made["spec"]["containers"][0]["resources"]
    assert resources["limits"] == {"cpu": "2", "nvidia.com/gpu": "2"}
    assert resources["requests"] == {"cpu": "2", "nvidia.com/gpu": "2"}
    assert "LimitRanger plugin set" in made["metadata"]["annotations"]["kubernetes.io/limit-ranger"]
    assert made["status"]["qosClass"] == "Burstable"
    large = pod("b")
    large["spec"]["containers"][0]["resources"] = {"limits": {"cpu": "5", "nvidia.com/gpu": "1"}}
    answer = await api("POST", PODS, large)
    assert (answer.status, answer.json["message"]) == (
        403,
        'pods "b" is forbidden: maximum cpu usage per Container is 4, but limit is 5',
    )


async def test_limit_range_limits_volume_claims(api: Caller) -> None:
    limits = [{"type": "PersistentVolumeClaim", "max": {"storage": "1Gi"}}]
    await api.create(f"{SPACE}/limitranges", {"metadata": {"name": "r"}, "spec": {"limits": limits}})
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "2Gi"}}}
    answer = await api("POST", f"{SPACE}/persistentvolumeclaims", {"metadata": {"name": "c"}, "spec": spec})
    assert (answer.status, answer.json["message"]) == (
        403,
        'persistentvolumeclaims "c" is forbidden: maximum storage usage per PersistentVolumeClaim is 1Gi, but '
        "request is 2Gi",
    )


@pytest.mark.parametrize(
    ("path", "obj", "finalizer"),
    [
        (
            f"{SPACE}/persistentvolumeclaims",
            {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}},
            "kubernetes.io/pvc-protection",
        ),
        (
            "/api/v1/persistentvolumes",
            {
                "spec": {
                    "capacity": {"storage": "1Gi"},
                    "accessModes": ["ReadWriteOnce"],
                    "hostPath": {"path": "/data"},
                }
            },
            "kubernetes.io/pv-protection",
        ),
        (
            "/apis/storage.k8s.io/v1/volumeattributesclasses",
            {"driverName": "volumes.example.com", "parameters": {"a": "b"}},
            "kubernetes.io/vac-protection",
        ),
    ],
)
async def test_new_storage_objects_are_protected_while_in_use(api: Caller, path: str, obj: Obj, finalizer: str) -> None:
    made = await api.create(path, {"metadata": {"name": "a"}, **obj})
    assert made["metadata"]["finalizers"] == [finalizer]
    own = {"metadata": {"name": "b", "finalizers": [finalizer, "example.com/own"]}, **obj}
    assert (await api.create(path, own))["metadata"]["finalizers"] == [finalizer, "example.com/own"]
    without = await api("PATCH", f"{path}/a", {"metadata": {"finalizers": None}}, type=MERGE)
    assert without.status == 200 and "finalizers" not in without.json["metadata"]
