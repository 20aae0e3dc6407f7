"""Who the parts of `haru up` are: each has its own identity, what it needs, and nothing more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from haru.apiserver.auth import Attributes
from haru.apiserver.bootstrap import role_objects
from haru.apiserver.config import AuthenticationOptions, ServerConfig, UserInfo
from haru.apiserver.server import ApiServer
from haru.client.api import ApiClient
from haru.controllers.accounts import AccountToken, account_of
from haru.controllers.manager import CONTROLLERS
from haru.controllers.objects import SERVICE_ACCOUNTS
from haru.embedded.cluster import EmbeddedCluster
from haru.embedded.identity import ADMIN, USERS, controller_user, node_user
from haru.embedded.options import UpOptions, parse_profiles
from haru.kube.kinds import Kind, known_kind
from haru.storage import SqliteStore
from waiting import until

Obj = dict[str, Any]


PODS, NODES, NAMESPACES = known_kind("v1", "Pod"), known_kind("v1", "Node"), known_kind("v1", "Namespace")
JOBS, CRON_JOBS = known_kind("batch/v1", "Job"), known_kind("batch/v1", "CronJob")
CLAIMS = known_kind("resource.k8s.io/v1", "ResourceClaim")


# --- who is who


def test_only_admin_user_is_in_system_masters_and_names_are_unique() -> None:
    privileged = [name for name, (_, groups) in USERS.items() if "system:masters" in groups]
    assert privileged == [ADMIN]
    others = [*map(controller_user, CONTROLLERS), node_user("n")]
    assert not any("system:masters" in groups for _, groups in others)
    names = [user for user, _ in USERS.values()] + [user for user, _ in others]
    shared = {name for name in names if names.count(name) > 1}
    # In 1.36 the three controllers of signing requests have one account, and those of nodes' health another.
    together = {f"system:serviceaccount:kube-system:{name}" for name in ("certificate-controller", "node-controller")}
    assert shared == together, "each other has its own"


BEYOND = {"haru:gang-jobs"}
"""Roles of what controllers do beyond 1.36, beside those that have the name of one of 1.36."""


def test_controllers_of_kubernetes_need_no_more_than_their_roles_of_1_36() -> None:
    """On a kube-apiserver nobody makes other roles for them."""
    beyond = {
        obj["metadata"]["name"]
        for obj in role_objects()
        if obj["kind"] == "ClusterRoleBinding" and obj["metadata"]["name"].startswith("haru:")
        for subject in obj["subjects"]
        if subject["kind"] == "ServiceAccount" or subject["name"] == "system:kube-controller-manager"
    }
    assert beyond == BEYOND | {"haru:stale-gang-controller"}


def test_every_controller_has_a_role_bound_to_its_account() -> None:
    roles = {obj["metadata"]["name"] for obj in role_objects() if obj["kind"] == "ClusterRole"}
    bound = [
        (obj["roleRef"]["name"], subject["namespace"], subject["name"])
        for obj in role_objects()
        if obj["kind"] == "ClusterRoleBinding"
        for subject in obj["subjects"]
        if subject["kind"] == "ServiceAccount"
    ]
    held = {account: role for role, _, account in bound if role.startswith("system:controller:")}
    own = {account: role for role, _, account in bound if role.startswith("haru:") and role not in BEYOND}
    for name in (account_of(name) for name, controller in CONTROLLERS.items() if controller.has_account):
        assert held.get(name, own.get(name)) in roles
    assert all(role == f"system:controller:{name}" for name, role in held.items())
    assert all(role == f"haru:{name}" for name, role in own.items())
    assert {namespace for _, namespace, _ in bound} == {"kube-system"}


def test_only_expected_roles_have_wildcard_access() -> None:
    wide = {
        obj["metadata"]["name"]
        for obj in role_objects()
        if obj["kind"] == "ClusterRole"
        for rule in obj.get("rules") or ()
        if "*" in (rule.get("resources") or ())
    }
    assert wide == {
        "cluster-admin",
        "system:controller:generic-garbage-collector",
        "system:controller:horizontal-pod-autoscaler",
        "system:controller:namespace-controller",
        "system:controller:resourcequota-controller",
        "system:kube-controller-manager",
    }


# --- what each may not do

SCHEDULER, MANAGER, FLEET = "scheduler", "controllers", "fleet"
DASHBOARD, ACCOUNTING, DRIVER = "dashboard", "accounting", "driver"

GRANTED = {(MANAGER, "secrets"), ("clusterrole-aggregation-controller", "clusterroles")}
"""What 1.36 grants all the same."""
ALL_MAY_NOT = [
    ("get", "", "secrets", "kube-system"),
    ("create", "", "secrets", "default"),
    ("update", "rbac.authorization.k8s.io", "clusterroles", ""),
    ("create", "rbac.authorization.k8s.io", "clusterrolebindings", ""),
    ("impersonate", "", "users", ""),
    ("create", "", "pods/exec", "default"),
    ("create", "apiextensions.k8s.io", "customresourcedefinitions", ""),
    ("create", "admissionregistration.k8s.io", "validatingwebhookconfigurations", ""),
]
MAY: dict[str, list[tuple[str, str, str, str]]] = {
    SCHEDULER: [
        ("create", "", "pods/binding", "default"),
        ("update", "resource.k8s.io", "resourceclaims/status", "default"),
        ("patch", "scheduling.k8s.io", "podgroups/status", "default"),
        ("delete", "", "pods", "default"),
    ],
    MANAGER: [("list", "", "pods", ""), ("create", "", "serviceaccounts/token", "kube-system")],
    FLEET: [("watch", "", "pods", ""), ("list", "resource.k8s.io", "resourceclaims", "")],
    DRIVER: [("update", "resource.k8s.io", "resourceslices", ""), ("create", "resource.k8s.io", "deviceclasses", "")],
    DASHBOARD: [("list", "", "pods", ""), ("watch", "resource.k8s.io", "resourceclaims", "")],
    ACCOUNTING: [("list", "", "pods", ""), ("watch", "resource.k8s.io", "resourceclaims", "")],
    "job-controller": [
        ("create", "", "pods", "default"),
        ("update", "batch", "jobs/status", "default"),
        ("delete", "scheduling.k8s.io", "podgroups", "default"),
    ],
    "node-lifecycle-controller": [("patch", "", "nodes", ""), ("patch", "", "pods/status", "default")],
    "garbage-collector-controller": [("delete", "apps", "replicasets", "default")],
    "stale-gang-controller": [("patch", "scheduling.k8s.io", "podgroups/status", "default")],
}
MAY_NOT: dict[str, list[tuple[str, str, str, str]]] = {
    SCHEDULER: [
        ("create", "", "pods", "default"),
        ("patch", "", "pods", "default"),
        ("update", "", "nodes", ""),
        ("delete", "scheduling.k8s.io", "podgroups", "default"),
        ("update", "resource.k8s.io", "resourceslices", ""),
        ("list", "", "secrets", ""),
    ],
    MANAGER: [
        ("delete", "", "pods", "default"),
        ("create", "", "pods", "default"),
        ("update", "", "nodes", ""),
        ("update", "batch", "jobs/status", "default"),
        ("delete", "", "namespaces", ""),
    ],
    FLEET: [
        ("patch", "", "nodes", ""),
        ("patch", "", "pods/status", "default"),
        ("delete", "", "pods", "default"),
        ("create", "", "nodes", ""),
        ("update", "coordination.k8s.io", "leases", "kube-node-lease"),
        ("list", "", "secrets", ""),
    ],
    DRIVER: [
        ("list", "", "pods", ""),
        ("update", "", "nodes", ""),
        ("update", "resource.k8s.io", "resourceclaims/status", "default"),
        ("delete", "resource.k8s.io", "deviceclasses", ""),
    ],
    DASHBOARD: [
        ("create", "", "pods", "default"),
        ("delete", "", "pods", "default"),
        ("create", "", "events", "default"),
        ("update", "resource.k8s.io", "resourceclaims", "default"),
        ("list", "", "secrets", ""),
        ("list", "", "configmaps", ""),
        ("get", "", "pods/log", "default"),
    ],
    ACCOUNTING: [("delete", "", "pods", "default"), ("list", "", "secrets", ""), ("create", "", "events", "default")],
    "job-controller": [
        ("create", "batch", "jobs", "default"),
        ("delete", "batch", "jobs", "default"),
        ("create", "", "pods/binding", "default"),
        ("update", "scheduling.k8s.io", "podgroups", "default"),
        ("list", "", "secrets", ""),
        ("update", "", "nodes", ""),
    ],
    "node-lifecycle-controller": [("create", "", "pods", "default"), ("create", "", "nodes", "")],
    "garbage-collector-controller": [("create", "", "pods", "default")],
    "stale-gang-controller": [("delete", "scheduling.k8s.io", "podgroups", "default"), ("create", "", "pods", "x")],
}
READS_ALL = {MANAGER, "garbage-collector-controller", "namespace-controller"}
"""Who watches everything can not but read it; who collects also updates it."""


def allowed(server: ApiServer, user: str, groups: tuple[str, ...], asked: tuple[str, str, str, str]) -> bool:
    verb, group, resource, namespace = asked
    resource, _, subresource = resource.partition("/")
    authorizer = server.authorizer
    who = UserInfo(user, (*groups, "system:authenticated"))
    return authorizer.allowed(who, Attributes(verb, group, resource, subresource, namespace))


@pytest.fixture
async def server() -> Any:
    store = SqliteStore(":memory:")
    await store.start()
    tokens = {"t": UserInfo("admin", ("system:masters",)), "m": UserInfo("system:kube-controller-manager")}
    app = ApiServer(
        ServerConfig(
            store,
            authentication=AuthenticationOptions(tokens=tokens, service_account_key_pem=_key()),
        )
    )
    await app.start()
    yield app
    await app.stop()
    await store.stop()


def _key() -> bytes:
    from haru.apiserver.auth import new_key

    return new_key()


async def test_each_identity_has_exactly_its_permissions(server: ApiServer) -> None:
    wrong: list[tuple[str, bool, tuple[str, str, str, str]]] = []
    for who in [*(name for name in USERS if name != ADMIN), *CONTROLLERS]:
        user, groups = USERS[who] if who in USERS else controller_user(who)
        common = [asked for asked in ALL_MAY_NOT if who not in READS_ALL or asked[0] not in ("get", "list", "update")]
        common = [asked for asked in common if (who, asked[2]) not in GRANTED]
        table = [(asked, True) for asked in MAY.get(who, [])]
        table += [(asked, False) for asked in [*common, *MAY_NOT.get(who, [])]]
        for asked, wanted in table:
            if allowed(server, user, groups, asked) != wanted:
                wrong.append((who, wanted, asked))
    assert wrong == []


async def test_controller_requests_its_own_service_account_token(server: ApiServer) -> None:
    manager = ApiClient.in_process(server, "m")
    token = AccountToken(manager, "job-controller")
    client = manager.with_token(token)
    me = await client._json("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", (), {"spec": {}})
    assert me["status"]["userInfo"]["username"] == "system:serviceaccount:kube-system:job-controller"
    assert await token.value() == await token.value()
    # Its account is made again: the old token is worth nothing, and another one is asked for.
    admin = ApiClient.in_process(server, "t")
    await admin.delete(SERVICE_ACCOUNTS, "job-controller", "kube-system")
    assert (await client.list(JOBS))["items"] == []


async def test_roles_of_older_state_are_completed(tmp_path: Path) -> None:
    path, tokens = tmp_path / "state.db", {"t": UserInfo("admin", ("system:masters",))}
    role, binding = (
        known_kind("rbac.authorization.k8s.io/v1", "ClusterRole"),
        known_kind("rbac.authorization.k8s.io/v1", "ClusterRoleBinding"),
    )
    for turn in (1, 2):
        store = SqliteStore(path)
        await store.start()
        app = ApiServer(ServerConfig(store, authentication=AuthenticationOptions(tokens=tokens)))
        await app.start()
        client = ApiClient.in_process(app, "t")
        found = await client.get(role, "haru:driver")
        own = await client.get(role, "haru:fleet")
        if turn == 1:
            wanted = found["rules"]
            extra = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}
            await client.update(role, {**found, "rules": [wanted[0], extra]})
            kept = {**own["metadata"], "annotations": {"rbac.authorization.kubernetes.io/autoupdate": "false"}}
            await client.update(role, {**own, "metadata": kept, "rules": []})
            bound = await client.get(binding, "haru:driver")
            await client.update(binding, {**bound, "subjects": []})
            # As it was written before there was a node authorizer.
            old = await client.get(binding, "system:node")
            everybody = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:nodes"}
            metadata = {**old["metadata"], "annotations": None}
            await client.update(binding, {**old, "metadata": metadata, "subjects": [everybody]})
        else:
            assert found["rules"] == [wanted[0], extra, *wanted[1:]], "what is missing is added, nothing is taken away"
            assert not own.get("rules"), "unless the administrator says that it is not to be"
            assert (await client.get(binding, "haru:driver"))["subjects"][0]["name"] == "system:haru-driver"
            assert not (await client.get(binding, "system:node")).get("subjects")
        await app.stop()
        await store.stop()


# --- the whole story


def pod(**spec: Any) -> Obj:
    return {"spec": {"containers": [{"name": "c", "image": "i"}], **spec}}


def labelled(app: str, seconds: str = "") -> Obj:
    annotations = {"simulated.haru.dev/run-seconds": seconds} if seconds else {}
    return {**pod(), "metadata": {"labels": {"app": app}, "annotations": annotations}}


def workloads() -> list[tuple[Kind, Obj]]:
    """Something for every controller."""
    made: list[tuple[Kind, Obj]] = []
    for name, api_version, of in (("d", "apps/v1", "Deployment"), ("s", "apps/v1", "StatefulSet")):
        spec = {"replicas": 2, "selector": {"matchLabels": {"app": name}}, "template": labelled(name)}
        made.append((known_kind(api_version, of), {"metadata": {"name": name}, "spec": spec}))
    spec = {"selector": {"matchLabels": {"app": "e"}}, "template": labelled("e")}
    made.append((known_kind("apps/v1", "DaemonSet"), {"metadata": {"name": "e"}, "spec": spec}))
    budget = {"minAvailable": 1, "selector": {"matchLabels": {"app": "d"}}}
    made.append((known_kind("policy/v1", "PodDisruptionBudget"), {"metadata": {"name": "d"}, "spec": budget}))
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}
    template = {"spec": {"devices": {"requests": [request]}}}
    made.append(
        (known_kind("resource.k8s.io/v1", "ResourceClaimTemplate"), {"metadata": {"name": "g"}, "spec": template})
    )
    gang = pod(restartPolicy="Never", resourceClaims=[{"name": "gpu", "resourceClaimTemplateName": "g"}])
    gang["metadata"] = {"annotations": {"simulated.haru.dev/run-seconds": "0.1"}}
    job = {
        "parallelism": 2,
        "completions": 2,
        "completionMode": "Indexed",
        "ttlSecondsAfterFinished": 0,
        "template": gang,
    }
    made.append((JOBS, {"metadata": {"name": "gang"}, "spec": job}))
    cron = {"schedule": "* * * * *", "jobTemplate": {"spec": {"template": pod(restartPolicy="Never")}}}
    made.append((CRON_JOBS, {"metadata": {"name": "c"}, "spec": cron}))
    return made


async def forbidden(client: ApiClient) -> int:
    _, _, text = await client.raw("GET", "/metrics")
    (line,) = [line for line in text.splitlines() if line.startswith(b'authorization_attempts_total{result="no-')]
    return int(line.split()[-1])


@pytest.mark.parametrize("thorough", [False, pytest.param(True, marks=pytest.mark.nightly)])
async def test_full_scenario_causes_no_forbidden_request(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, thorough: bool
) -> None:
    caplog.set_level("INFO", "haru.apiserver")
    cluster = EmbeddedCluster(UpOptions(profiles=parse_profiles("dgx-h100:1,cpu:2"), listen=("127.0.0.1", 0)), tmp_path)
    try:
        await cluster.start()
        client = cluster.client(ADMIN)
        await client.create(NAMESPACES, {"metadata": {"name": "story"}})
        await until(lambda: _there(client, SERVICE_ACCOUNTS, "default", "story"))
        for of, obj in workloads():
            await client.create(of, obj, "story")

        async def running() -> bool:
            pods = (await client.list(PODS, "story", label_selector="app"))["items"]
            return len([p for p in pods if p["status"].get("phase") == "Running"]) == 7

        await until(running)
        await until(lambda: _gone(client, JOBS, "gang", "story"))
        (first, *_) = (await client.list(PODS, "story", label_selector="app=d"))["items"]
        taint = [{"key": "k", "effect": "NoExecute"}]
        await client.patch(NODES, first["spec"]["nodeName"], {"spec": {"taints": taint}})
        await until(lambda: _gone(client, PODS, first["metadata"]["name"], "story"))
        if thorough:  # the pods of a node that is gone are collected once it has been gone for a while
            await client.delete(NODES, "cpu-1")
            await until(lambda: _empty(client, "cpu-1"), seconds=120)
        await client.delete(NAMESPACES, "story")
        await until(lambda: _gone(client, NAMESPACES, "story", ""))
        assert await forbidden(client) == 0
    finally:
        await cluster.stop()
    assert [record.message for record in caplog.records if record.message.startswith("forbidden:")] == []


async def _there(client: ApiClient, of: Kind, name: str, namespace: str) -> bool:
    return any(obj["metadata"]["name"] == name for obj in (await client.list(of, namespace))["items"])


async def _empty(client: ApiClient, node: str) -> bool:
    return not (await client.list(PODS, field_selector=f"spec.nodeName={node}"))["items"]


async def _gone(client: ApiClient, of: Kind, name: str, namespace: str) -> bool:
    return not await _there(client, of, name, namespace)
