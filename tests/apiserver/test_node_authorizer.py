"""Nodes: each reaches what its own pods refer to, its own objects, and nothing else."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from typing import Any

import pytest
from api_caller import ADMIN, KEY, PODS, Caller, Clock, config_map, make_config, pod
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from haru.apiserver.auth.node_graph import NodeGraph, Reference
from haru.apiserver.config import UserInfo
from haru.apiserver.server import ApiServer
from haru.storage import SqliteStore

Obj = dict[str, Any]
SPACE = "/api/v1/namespaces/default"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
SLICES = "/apis/resource.k8s.io/v1/resourceslices"
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
SIGNING = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


def node(name: str, **metadata: Any) -> Obj:
    return {"metadata": {"name": name, **metadata}, "spec": {}}


def slice_of(owner: str) -> Obj:
    pool = {"name": owner, "generation": 1, "resourceSliceCount": 1}
    return {
        "metadata": {"name": f"{owner}-slice"},
        "spec": {"driver": "gpu.example.com", "nodeName": owner, "pool": pool, "devices": [{"name": "gpu-0"}]},
    }


def claim(name: str) -> Obj:
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com"}}
    return {"metadata": {"name": name}, "spec": {"devices": {"requests": [request]}}}


def rich_pod(name: str, of: str) -> Obj:
    """A pod that refers to an object of its own in every way there is; their names begin with `of`."""
    made = pod(name, serviceAccountName=f"{of}-account", imagePullSecrets=[{"name": f"{of}-pull"}])
    spec = made["spec"]
    container = spec["containers"][0]
    container["env"] = [{"name": "A", "valueFrom": {"secretKeyRef": {"name": f"{of}-env", "key": "k"}}}]
    container["envFrom"] = [{"configMapRef": {"name": f"{of}-env"}}, {"secretRef": {"name": f"{of}-from"}}]
    spec["volumes"] = [
        {"name": "a", "secret": {"secretName": f"{of}-volume"}},
        {"name": "b", "configMap": {"name": f"{of}-volume"}},
        {"name": "c", "persistentVolumeClaim": {"claimName": f"{of}-claim"}},
        {"name": "d", "projected": {"sources": [{"secret": {"name": f"{of}-projected"}}]}},
        {"name": "e", "ephemeral": {"volumeClaimTemplate": {"spec": _volume_claim()["spec"]}}},
    ]
    spec["resourceClaims"] = [{"name": "gpu", "resourceClaimName": f"{of}-gpu"}]
    return made


def _volume_claim() -> Obj:
    return {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}


async def prepare(api: Caller) -> None:
    """Nodes a and b, each with a pod of its own."""
    for of in ("a", "b"):
        await api.create("/api/v1/nodes", node(of))
        await api.create(f"{SPACE}/serviceaccounts", {"metadata": {"name": f"{of}-account"}})
        await api.create(CLAIMS, claim(f"{of}-gpu"))
        await api.create(SLICES, slice_of(of))
        await api.create(LEASES, {"metadata": {"name": of}, "spec": {"holderIdentity": of}})
        volume = {
            "metadata": {"name": f"{of}-volume"},
            "spec": {
                "capacity": {"storage": "1Gi"},
                "accessModes": ["ReadWriteOnce"],
                "claimRef": {"namespace": "default", "name": f"{of}-claim"},
                "csi": {
                    "driver": "d",
                    "volumeHandle": "h",
                    "nodePublishSecretRef": {"name": f"{of}-csi", "namespace": "default"},
                },
            },
        }
        await api.create("/api/v1/persistentvolumes", volume)
        await api.create(PODS, rich_pod(f"{of}-pod", of))
        await bind(api, f"{of}-pod", of)


async def bind(api: Caller, name: str, to: str) -> None:
    binding = {"metadata": {"name": name}, "target": {"kind": "Node", "name": to}}
    answer = await api("POST", f"{PODS}/{name}/binding", binding)
    assert answer.status == 201, answer.body


@pytest.fixture
async def nodes() -> AsyncIterator[Caller]:
    """The caller of an administrator; `as_("node-a")` is node a."""
    store = SqliteStore(":memory:")
    await store.start()
    users = {ADMIN: UserInfo("admin", ("system:masters",))}
    users |= {f"node-{name}": UserInfo(f"system:node:{name}", ("system:nodes",)) for name in ("a", "b", "new")}
    users |= {"no-node": UserInfo("system:node:a", ()), "nobody": UserInfo("kubelet", ("system:nodes",))}
    clock = Clock()
    app = ApiServer(make_config(store, clock, tokens=users))
    await app.start()
    caller = Caller(app, clock)
    await prepare(caller)
    yield caller
    await app.stop()
    await store.stop()


async def code(caller: Caller, method: str, path: str, body: Any = None, **headers: str) -> int:
    return (await caller(method, path, body, **headers)).status


# --- reading


READS = [
    *[(f"{SPACE}/secrets/{{}}-{name}", 404) for name in ("pull", "env", "from", "volume", "projected", "csi")],
    *[(f"{SPACE}/configmaps/{{}}-{name}", 404) for name in ("env", "volume")],
    (f"{SPACE}/persistentvolumeclaims/{{}}-claim", 404),
    (f"{SPACE}/persistentvolumeclaims/{{}}-pod-e", 404),
    ("/api/v1/persistentvolumes/{}-volume", 200),
    (f"{CLAIMS}/{{}}-gpu", 200),
    (f"{SLICES}/{{}}-slice", 200),
    (f"{SPACE}/serviceaccounts/{{}}-account", 200),
    (f"{PODS}/{{}}-pod", 200),
    ("/api/v1/nodes/{}", 200),
    (f"{LEASES}/{{}}", 200),
    (f"{PODS}?fieldSelector=spec.nodeName%3D{{}}", 200),
    (f"{SLICES}?fieldSelector=spec.nodeName%3D{{}}", 200),
    ("/api/v1/nodes?fieldSelector=metadata.name%3D{}", 200),
    (f"{SPACE}/secrets?fieldSelector=metadata.name%3D{{}}-env", 200),
]
"""What a node may read if it is its own, and the answer: 404 when it may look, and there is nothing."""


async def test_node_reads_its_own_objects_and_not_those_of_others(nodes: Caller) -> None:
    found = {}
    for name, foreign in (("a", "b"), ("b", "a")):
        kubelet = nodes.as_(f"node-{name}")
        for path, _ in READS:
            own, other = path.format(name), path.format(foreign)
            found[name, path] = (await code(kubelet, "GET", own), await code(kubelet, "GET", other))
    assert found == {(name, path): (status, 403) for name in ("a", "b") for path, status in READS}


ALL_MAY = ["/api/v1/services", "/apis/node.k8s.io/v1/runtimeclasses", "/apis"]
NONE_MAY = [
    ("GET", f"{SPACE}/secrets"),
    ("GET", "/api/v1/secrets"),
    ("GET", PODS),
    ("GET", "/api/v1/nodes"),
    ("GET", CLAIMS),
    ("GET", SLICES),
    ("DELETE", SLICES),
    ("GET", LEASES),
    ("GET", "/api/v1/namespaces"),
    ("GET", "/apis/apps/v1/deployments"),
    ("GET", "/apis/rbac.authorization.k8s.io/v1/clusterroles"),
    ("DELETE", f"{SPACE}/secrets/a-env"),
    ("DELETE", "/api/v1/nodes/a"),
    ("DELETE", f"{CLAIMS}/a-gpu"),
]


async def test_node_reads_what_all_nodes_may_read(nodes: Caller) -> None:
    kubelet = nodes.as_("node-a")
    assert [await code(kubelet, "GET", path) for path in ALL_MAY] == [200] * len(ALL_MAY)
    assert [(method, path, await code(kubelet, method, path)) for method, path in NONE_MAY] == [
        (method, path, 403) for method, path in NONE_MAY
    ]


async def test_denied_node_request_names_missing_relationship(nodes: Caller) -> None:
    answer = await nodes.as_("node-a")("GET", f"{SPACE}/secrets/b-env")
    assert answer.json["message"].endswith(
        'cannot get resource "secrets" in API group "" in the namespace "default": '
        "no relationship found between node 'a' and this object"
    )


async def test_node_needs_both_user_name_and_group(nodes: Caller) -> None:
    for token in ("no-node", "nobody"):
        assert await code(nodes.as_(token), "GET", "/api/v1/nodes/a") == 403
        assert await code(nodes.as_(token), "GET", f"{SPACE}/secrets/a-env") == 403


async def test_node_graph_follows_pods(nodes: Caller) -> None:
    kubelet, path = nodes.as_("node-a"), f"{SPACE}/secrets/late"
    assert await code(kubelet, "GET", path) == 403
    late = pod("late", volumes=[{"name": "s", "secret": {"secretName": "late"}}])
    await nodes.create(PODS, late)
    assert await code(kubelet, "GET", path) == 403
    await bind(nodes, "late", "a")
    assert await code(kubelet, "GET", path) == 404
    second = {**late, "metadata": {"name": "second"}}
    await nodes.create(PODS, second)
    await bind(nodes, "second", "a")
    await nodes("DELETE", f"{PODS}/late?gracePeriodSeconds=0")
    assert await code(kubelet, "GET", path) == 404, "another pod of the node uses it"
    await nodes.app.objects.store.compact(nodes.app.objects.store.revision)
    await nodes("DELETE", f"{PODS}/second?gracePeriodSeconds=0")
    assert await code(kubelet, "GET", path) == 403


async def test_claim_from_template_is_reachable_through_pod_status(nodes: Caller) -> None:
    await nodes.create(CLAIMS, claim("made"))
    entry = {"name": "gpu", "resourceClaimTemplateName": "t"}
    await nodes.create(PODS, pod("templated", resourceClaims=[entry]))
    await bind(nodes, "templated", "a")
    kubelet = nodes.as_("node-a")
    assert await code(kubelet, "GET", f"{CLAIMS}/made") == 403
    statuses = {"status": {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "made"}]}}
    patch = await nodes("PATCH", f"{PODS}/templated/status", statuses, type="application/strategic-merge-patch+json")
    assert patch.status == 200, patch.body
    assert await code(kubelet, "GET", f"{CLAIMS}/made") == 200


async def test_mirror_pod_grants_no_access(nodes: Caller) -> None:
    mirror = pod("mirror", nodeName="a", volumes=[{"name": "s", "configMap": {"name": "wanted"}}])
    mirror["metadata"]["annotations"] = {"kubernetes.io/config.mirror": "x"}
    await nodes.create(PODS, mirror)
    assert await code(nodes.as_("node-a"), "GET", f"{SPACE}/configmaps/wanted") == 403


# --- reviews


REVIEWED: list[tuple[Obj, bool]] = [
    ({"verb": "get", "resource": "secrets", "namespace": "default", "name": "a-env"}, True),
    ({"verb": "get", "resource": "secrets", "namespace": "default", "name": "b-env"}, False),
    ({"verb": "list", "resource": "pods"}, False),
    ({"verb": "list", "resource": "pods", "fieldSelector": {"rawSelector": "spec.nodeName=a"}}, True),
    (
        {
            "verb": "list",
            "resource": "pods",
            "fieldSelector": {"requirements": [{"key": "spec.nodeName", "operator": "In", "values": ["a"]}]},
        },
        True,
    ),
    ({"verb": "delete", "resource": "nodes", "name": "a"}, False),
]


async def test_access_reviews_include_node_authorizer(nodes: Caller) -> None:
    kubelet, own_access = nodes.as_("node-a"), "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    for attributes, allowed in REVIEWED:
        spec = {"user": "system:node:a", "groups": ["system:nodes"], "resourceAttributes": attributes}
        status = (await nodes("POST", REVIEWS, {"spec": spec})).json["status"]
        assert status["allowed"] == allowed, attributes
        own = await kubelet("POST", own_access, {"spec": {"resourceAttributes": attributes}})
        assert own.json["status"] == status


async def test_rules_review_of_node_is_incomplete(nodes: Caller) -> None:
    path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
    status = (await nodes.as_("node-a")("POST", path, {"spec": {"namespace": "default"}})).json["status"]
    assert status["incomplete"] and "node authorizer" in status["evaluationError"]


# --- what may be written: NodeRestriction

MERGE = "application/merge-patch+json"


def mirror_pod(uid: str, **spec: Any) -> Obj:
    made = pod("static", nodeName="a", **spec)
    owner = {"apiVersion": "v1", "kind": "Node", "name": "a", "uid": uid, "controller": True}
    made["metadata"] |= {"annotations": {"kubernetes.io/config.mirror": "x"}, "ownerReferences": [owner]}
    return made


CREATED: list[tuple[str, Obj, str]] = [
    ("/api/v1/nodes", node("new"), ""),
    ("/api/v1/nodes", node("else"), 'node "new" is not allowed to modify node "else"'),
    ("/api/v1/nodes", node("new", labels={"kubernetes.io/os": "linux", "example.com/x": "y"}), ""),
    (
        "/api/v1/nodes",
        node("new", labels={"node-restriction.kubernetes.io/trusted": "yes", "k8s.io/x": "y"}),
        "not allowed to set the following labels: k8s.io/x, node-restriction.kubernetes.io/trusted",
    ),
    (LEASES, {"metadata": {"name": "new"}}, ""),
    (LEASES, {"metadata": {"name": "b-lease"}}, "with the same name as the requesting node"),
    ("/apis/coordination.k8s.io/v1/namespaces/default/leases", {"metadata": {"name": "new"}}, "can only"),
    (SLICES, slice_of("new"), ""),
    (SLICES, {**slice_of("c"), "metadata": {"name": "x"}}, "same NodeName as the requesting node"),
    (PODS, pod("p", nodeName="new"), "can only create mirror pods"),
]


async def test_node_creates_only_allowed_objects(nodes: Caller) -> None:
    kubelet = nodes.as_("node-new")
    for path, body, refusal in CREATED:
        answer = await kubelet("POST", path, body)
        assert answer.status == (403 if refusal else 201), (body, answer.body)
        assert refusal in answer.json.get("message", "")
        if not refusal:
            assert (await nodes("DELETE", f"{path}/{body['metadata']['name']}")).status == 200


CHANGED: list[tuple[str, Obj, str]] = [
    ("/api/v1/nodes/a/status", {"status": {"capacity": {"cpu": "8"}}}, ""),
    ("/api/v1/nodes/a", {"metadata": {"labels": {"topology.kubernetes.io/zone": "z"}}}, ""),
    ("/api/v1/nodes/b", {"metadata": {"labels": {"x": "y"}}}, 'node "a" is not allowed to modify node "b"'),
    ("/api/v1/nodes/b/status", {"status": {"capacity": {"cpu": "8"}}}, 'not allowed to modify node "b"'),
    ("/api/v1/nodes/a", {"spec": {"taints": None}}, 'node "a" is not allowed to modify taints'),
    (
        "/api/v1/nodes/a",
        {"metadata": {"labels": {"node-role.kubernetes.io/master": ""}}},
        "is not allowed to modify labels: node-role.kubernetes.io/master",
    ),
    (f"{PODS}/a-pod/status", {"status": {"phase": "Running"}}, ""),
    (f"{PODS}/b-pod/status", {"status": {"phase": "Running"}}, "for pods with spec.nodeName set to itself"),
    (
        f"{PODS}/a-pod/status",
        {"status": {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "b-gpu"}]}},
        "cannot update resource claim statues",
    ),
    (f"{LEASES}/a", {"spec": {"holderIdentity": "a"}}, ""),
    (f"{LEASES}/b", {"spec": {"holderIdentity": "a"}}, "with the same name as the requesting node"),
    (f"{SLICES}/b-slice", {"metadata": {"labels": {"x": "y"}}}, "no relationship found"),
    (f"{SLICES}/a-slice", {"metadata": {"labels": {"x": "y"}}}, ""),
    (f"{PODS}/a-pod", {"metadata": {"labels": {"x": "y"}}}, "cannot patch resource"),
    (f"{CLAIMS}/a-gpu", {"metadata": {"labels": {"x": "y"}}}, "can only get individual resources"),
]


async def test_node_changes_only_allowed_fields(nodes: Caller) -> None:
    kubelet = nodes.as_("node-a")
    for path, patch, refusal in CHANGED:
        answer = await kubelet("PATCH", path, patch, type=MERGE)
        assert answer.status == (403 if refusal else 200), (path, answer.body)
        assert refusal in answer.json.get("message", "")


async def test_node_deletes_and_evicts_only_its_own_pods(nodes: Caller) -> None:
    kubelet = nodes.as_("node-a")
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "b-pod"}}
    assert await code(kubelet, "POST", f"{PODS}/b-pod/eviction", eviction) == 403
    assert await code(kubelet, "DELETE", f"{PODS}/b-pod") == 403
    eviction["metadata"] = {"name": "a-pod"}
    assert await code(kubelet, "POST", f"{PODS}/a-pod/eviction", eviction) == 201
    assert await code(kubelet, "DELETE", f"{PODS}/a-pod?gracePeriodSeconds=0") == 200


async def test_mirror_pod_may_not_reference_api_objects(nodes: Caller) -> None:
    uid = (await nodes.get("/api/v1/nodes/a"))["metadata"]["uid"]
    kubelet = nodes.as_("node-a")
    refused = await kubelet("POST", PODS, mirror_pod(uid, volumes=[{"name": "s", "secret": {"secretName": "x"}}]))
    assert (refused.status, "can not create pods that reference secrets" in refused.json["message"]) == (403, True)
    other = await kubelet("POST", PODS, mirror_pod("another"))
    assert (other.status, "UID mismatch" in other.json["message"]) == (403, True)
    assert await code(kubelet, "POST", PODS, mirror_pod(uid)) == 201


@pytest.mark.parametrize(
    ("reference", "refusal"),
    [
        ({"kind": "Pod", "apiVersion": "v1", "name": "a-pod", "uid": True}, ""),
        ({"kind": "Pod", "apiVersion": "v1", "name": "a-pod"}, "pod binding without a uid"),
        ({"kind": "Pod", "apiVersion": "v1", "name": "b-pod", "uid": True}, "scheduled on a different node"),
        (None, "not bound to a pod"),
    ],
)
async def test_node_requests_tokens_only_for_its_pods(nodes: Caller, reference: Obj | None, refusal: str) -> None:
    assert KEY
    if reference and reference.get("uid"):
        stored = await nodes.get(f"{PODS}/{reference['name']}")
        reference = {**reference, "uid": stored["metadata"]["uid"]}
    body = {"spec": {"boundObjectRef": reference} if reference else {}}
    kubelet = nodes.as_("node-a")
    answer = await kubelet("POST", f"{SPACE}/serviceaccounts/a-account/token", body)
    assert answer.status == (403 if refusal else 201), answer.body
    assert refusal in answer.json.get("message", "")
    assert await code(kubelet, "POST", f"{SPACE}/serviceaccounts/b-account/token", body) == 403


TOKENS = f"{SPACE}/serviceaccounts/a-account/token"


async def asked_token(nodes: Caller, *audiences: str, **reference: str) -> Any:
    """The answer to node a that asks for a token bound to its pod."""
    stored = await nodes.get(f"{PODS}/a-pod")
    bound = {"kind": "Pod", "apiVersion": "v1", "name": "a-pod", "uid": stored["metadata"]["uid"], **reference}
    return await nodes.as_("node-a")("POST", TOKENS, {"spec": {"audiences": list(audiences), "boundObjectRef": bound}})


async def test_node_gets_tokens_for_the_audiences_of_the_pods_volumes_alone(nodes: Caller) -> None:
    refused = await asked_token(nodes, "vault")
    assert refused.status == 403
    why = "system:node:a is not authorized to request tokens for this audience"
    assert refused.json["message"].endswith(f'audience "vault" not found in pod spec volume, {why}')
    assert (await asked_token(nodes, "vault", "x")).json["message"].endswith("node may only request 0 or 1 audiences")
    assert (await asked_token(nodes)).status == 201  # every pod has a volume with a token for the API server
    driver = {"metadata": {"name": "d"}, "spec": {"tokenRequests": [{"audience": "vault"}]}}
    await nodes.create("/apis/storage.k8s.io/v1/csidrivers", driver)
    spec = {**_volume_claim()["spec"], "volumeName": "a-volume"}
    await nodes.create(f"{SPACE}/persistentvolumeclaims", {"metadata": {"name": "a-claim"}, "spec": spec})
    assert (await asked_token(nodes, "vault")).status == 201


async def test_node_gets_tokens_for_other_audiences_with_a_right_to_them(nodes: Caller) -> None:
    named, rbac = {"metadata": {"name": "audiences"}}, "/apis/rbac.authorization.k8s.io/v1"
    rule = {"verbs": ["request-serviceaccounts-token-audience"], "apiGroups": [""], "resources": ["vault"]}
    subjects = [{"kind": "Group", "name": "system:nodes", "apiGroup": "rbac.authorization.k8s.io"}]
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "audiences"}
    await nodes.create(f"{rbac}/clusterroles", {**named, "rules": [rule]})
    await nodes.create(f"{rbac}/clusterrolebindings", {**named, "roleRef": reference, "subjects": subjects})
    assert [(await asked_token(nodes, one)).status for one in ("vault", "other")] == [201, 403]


async def test_node_gets_no_token_for_a_pod_of_another_uid_or_none(nodes: Caller) -> None:
    refused = await asked_token(nodes, uid="x")
    assert (refused.status, "(x) does not match the UID in record" in refused.json["message"]) == (403, True)
    gone = await asked_token(nodes, name="none")
    assert (gone.status, gone.json["message"]) == (404, 'pod "none" not found')


async def test_node_may_not_send_other_taints_with_its_status(nodes: Caller) -> None:
    body = {"spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}}
    refused = await nodes.as_("node-a")("PATCH", "/api/v1/nodes/a/status", body, type="application/merge-patch+json")
    assert (refused.status, "not allowed to modify taints" in refused.json["message"]) == (403, True)


@pytest.mark.parametrize(("name", "code"), [("system:node:a", 201), ("system:node:b", 403), ("jane", 403)])
async def test_node_asks_for_certificates_of_its_own_alone(nodes: Caller, name: str, code: int) -> None:
    subject = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "system:nodes"),
            x509.NameAttribute(NameOID.COMMON_NAME, name),
        ]
    )
    made = x509.CertificateSigningRequestBuilder().subject_name(subject)
    signed = made.sign(ec.generate_private_key(ec.SECP256R1()), hashes.SHA256()).public_bytes(Encoding.PEM)
    signer = "kubernetes.io/kube-apiserver-client-kubelet"
    spec = {"request": base64.b64encode(signed).decode(), "signerName": signer, "usages": ["client auth"]}
    answer = await nodes.as_("node-a")("POST", SIGNING, {"metadata": {"name": "c"}, "spec": spec})
    assert answer.status == code, answer.body


async def test_node_restriction_does_not_apply_to_other_users(nodes: Caller) -> None:
    await nodes.create("/api/v1/nodes", node("c", labels={"node-restriction.kubernetes.io/trusted": "yes"}))
    await nodes.create(f"{SPACE}/configmaps", config_map("c"))


async def test_graph_whose_reading_was_cancelled_is_read_anew(nodes: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("haru.apiserver.auth.node_graph._CHUNK", 1)
    graph = NodeGraph(nodes.app.objects)
    reading = asyncio.create_task(graph.refresh("secrets"))
    await asyncio.sleep(0)
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)
    await graph.refresh("secrets")
    for node_name in ("a", "b"):
        assert graph.reaches(node_name, Reference("secrets", "default", f"{node_name}-env"))
