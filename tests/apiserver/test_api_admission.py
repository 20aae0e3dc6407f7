"""Admission: what is added to pods and groups, and what is refused."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from api_caller import ADMIN, PODS, USER, Caller, Clock, make_config, pod

from haru.apiserver.server import ApiServer
from haru.kube.gates import FeatureGates
from haru.storage import SqliteStore

MERGE = "application/merge-patch+json"
CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
GROUPS = "/apis/scheduling.k8s.io/v1alpha2/namespaces/default/podgroups"
WORKLOADS = "/apis/scheduling.k8s.io/v1alpha2/namespaces/default/workloads"
_RBAC = "/apis/rbac.authorization.k8s.io/v1"
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
TEMPLATES = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaimtemplates"


async def test_pod_gets_service_account_and_default_tolerations(api: Caller) -> None:
    spec = (await api.create(PODS, pod("a")))["spec"]
    assert (spec["serviceAccountName"], spec["serviceAccount"]) == ("default", "default")
    assert (spec["priority"], spec["preemptionPolicy"]) == (0, "PreemptLowerPriority")
    assert [(t["key"], t["effect"], t["tolerationSeconds"]) for t in spec["tolerations"]] == [
        ("node.kubernetes.io/not-ready", "NoExecute", 300),
        ("node.kubernetes.io/unreachable", "NoExecute", 300),
    ]


@pytest.mark.parametrize(
    ("toleration", "added"),
    [
        ({"operator": "Exists"}, 0),
        ({"operator": "Exists", "effect": "NoExecute"}, 0),
        ({"operator": "Exists", "effect": "NoSchedule"}, 2),
        ({"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"}, 1),
    ],
)
async def test_own_tolerations_of_pod_are_kept(api: Caller, toleration: Any, added: int) -> None:
    spec = (await api.create(PODS, pod("a", tolerations=[toleration])))["spec"]
    assert spec["tolerations"][0] == toleration and len(spec["tolerations"]) == 1 + added


async def test_scheduling_gates_set_condition_and_can_only_be_removed(api: Caller) -> None:
    created = await api.create(PODS, pod("a", schedulingGates=[{"name": "g.example/x"}]))
    (condition,) = created["status"]["conditions"]
    assert (condition["type"], condition["reason"]) == ("PodScheduled", "SchedulingGated")
    opened = await api("PATCH", f"{PODS}/a", {"spec": {"schedulingGates": None}}, type=MERGE)
    assert opened.status == 200, opened.body
    assert "schedulingGates" not in opened.json["spec"]


async def priority_class(api: Caller, name: str, value: int, **fields: Any) -> None:
    await api.create(CLASSES, {"metadata": {"name": name}, "value": value, **fields})


@pytest.mark.parametrize(
    ("spec", "outcome"),
    [
        ({}, ("fallback", 5, "PreemptLowerPriority")),
        ({"priorityClassName": "high"}, ("high", 1000, "Never")),
        ({"priorityClassName": "high", "priority": 1000}, ("high", 1000, "Never")),
        ({"priorityClassName": "high", "priority": 1}, 403),
        ({"priorityClassName": "none"}, 403),
        ({"priorityClassName": "high", "preemptionPolicy": "PreemptLowerPriority"}, 403),
        ({"priorityClassName": "system-node-critical"}, ("system-node-critical", 2000001000, "PreemptLowerPriority")),
    ],
)
async def test_priority_class_sets_pod_priority(api: Caller, spec: Any, outcome: Any) -> None:
    await priority_class(api, "high", 1000, preemptionPolicy="Never")
    await priority_class(api, "fallback", 5, globalDefault=True)
    answer = await api("POST", PODS, pod("a", **spec))
    if outcome == 403:
        assert answer.status == 403, answer.body
        return
    got = answer.json["spec"]
    assert (got.get("priorityClassName"), got["priority"], got["preemptionPolicy"]) == outcome


async def test_second_default_priority_class_is_refused(api: Caller) -> None:
    await priority_class(api, "one", 1, globalDefault=True)
    answer = await api("POST", CLASSES, {"metadata": {"name": "two"}, "value": 2, "globalDefault": True})
    assert answer.status == 403 and "Only one default can exist" in answer.json["message"]


def group(name: str, **spec: Any) -> Any:
    return {"metadata": {"name": name}, "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}, **spec}}


async def workload(api: Caller) -> None:
    template = {"name": "workers", "schedulingPolicy": {"gang": {"minCount": 2}}}
    await api.create(WORKLOADS, {"metadata": {"name": "w"}, "spec": {"podGroupTemplates": [template]}})


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        (None, ""),
        (("w", "workers"), ""),
        (("none", "workers"), 'PodGroup rejected: Workload "none" not found'),
        (("w", "none"), 'PodGroup rejected: PodGroupTemplate "none" not found in Workload "w"'),
    ],
)
async def test_pod_group_needs_its_workload_template(api: Caller, reference: Any, message: str) -> None:
    await workload(api)
    spec = {}
    if reference:
        names = {"workloadName": reference[0], "podGroupTemplateName": reference[1]}
        spec = {"podGroupTemplateRef": {"workload": names}}
    answer = await api("POST", GROUPS, group("g", **spec))
    assert answer.status == (403 if message else 201), answer.body
    if message:
        assert message in answer.json["message"]
    else:
        assert answer.json["metadata"]["finalizers"] == ["scheduling.k8s.io/podgroup-protection"]


@pytest.mark.parametrize(
    ("spec", "outcome"),
    [
        ({}, ("fallback", 5)),
        ({"priorityClassName": "high"}, ("high", 1000)),
        ({"priorityClassName": "high", "priority": 1000}, ("high", 1000)),
        ({"priorityClassName": "high", "priority": 7}, 403),
        ({"priorityClassName": "none"}, 403),
    ],
)
async def test_priority_class_sets_group_priority(api: Caller, spec: Any, outcome: Any) -> None:
    await priority_class(api, "high", 1000)
    await priority_class(api, "fallback", 5, globalDefault=True)
    answer = await api("POST", GROUPS, group("g", **spec))
    if outcome == 403:
        assert answer.status == 403
        return
    assert (answer.json["spec"]["priorityClassName"], answer.json["spec"]["priority"]) == outcome


@pytest.fixture
async def plain() -> AsyncIterator[Caller]:
    """A server with the gates and versions of 1.36 as they come."""
    store = SqliteStore(":memory:")
    clock = Clock()
    app = ApiServer(make_config(store, clock, gates=FeatureGates(), runtime_config={}))
    await app.start()
    yield Caller(app, clock)
    await app.stop()


async def test_disabled_gates_hide_resources_and_drop_fields(plain: Caller) -> None:
    assert (await plain("GET", GROUPS)).status == 404
    assert (await plain("GET", "/apis/resource.k8s.io/v1beta1/resourceslices")).status == 404
    created = await plain.create(PODS, pod("a", schedulingGroup={"podGroupName": "g"}))
    assert "schedulingGroup" not in created["spec"]


def claim(**request: Any) -> Any:
    exactly = {"deviceClassName": "gpu", **request}
    return {"metadata": {"name": "c"}, "spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}}


async def test_admin_access_requires_labelled_namespace(api: Caller) -> None:
    body = claim(adminAccess=True)
    answer = await api("POST", CLAIMS, body)
    assert answer.status in (403, 422)
    assert "admin access to devices requires" in answer.json["message"]
    assert "spec.devices.requests[0]" in answer.json["message"]
    answer = await api("POST", TEMPLATES, {"metadata": {"name": "t"}, "spec": {"spec": body["spec"]}})
    assert "admin access to devices requires" in answer.json["message"]
    labels = {"metadata": {"labels": {"resource.kubernetes.io/admin-access": "true"}}}
    await api("PATCH", "/api/v1/namespaces/default", labels, type=MERGE)
    assert (await api("POST", CLAIMS, body)).status == 201


async def test_cel_selectors_are_compiled_at_admission(api: Caller) -> None:
    def with_selector(expression: str) -> Any:
        return claim(selectors=[{"cel": {"expression": expression}}])

    good = await api("POST", CLAIMS, with_selector('device.driver == "gpu.example.com"'))
    assert good.status == 201, good.body
    bad = await api("POST", CLAIMS, with_selector("device.nope"))
    assert bad.status == 422
    assert "compilation failed" in bad.json["details"]["causes"][0]["message"]


def allocation(device: str = "d0") -> Any:
    result = {"request": "r", "driver": "gpu.example.com", "pool": "p", "device": device}
    return {"devices": {"results": [result]}}


async def test_claim_status_update_requires_driver_permission(api: Caller) -> None:
    await api.create(CLAIMS, claim())
    roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
    bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
    rule = {"apiGroups": ["resource.k8s.io"], "resources": ["resourceclaims/status"], "verbs": ["patch"]}
    await api.create(roles, {"metadata": {"name": "writer"}, "rules": [rule]})
    subject = {"kind": "User", "name": "jane", "apiGroup": "rbac.authorization.k8s.io"}
    reference = {"kind": "ClusterRole", "name": "writer", "apiGroup": "rbac.authorization.k8s.io"}
    await api.create(bindings, {"metadata": {"name": "writer"}, "subjects": [subject], "roleRef": reference})
    jane = api.as_(USER)

    async def write(status: Any) -> Any:
        return await jane("PATCH", f"{CLAIMS}/c/status", {"status": status}, type=MERGE)

    async def allow(resource: str, verb: str) -> None:
        role = await api.get(f"{roles}/writer")
        role["rules"].append({"apiGroups": ["resource.k8s.io"], "resources": [resource], "verbs": [verb]})
        assert (await api("PUT", f"{roles}/writer", role)).status == 200

    assert (await write({"allocation": {}})).status == 422, "an empty allocation is one"
    refused = await write({"allocation": allocation()})
    (cause,) = refused.json["details"]["causes"]
    assert (refused.status, cause["reason"], cause["field"]) == (422, "FieldValueForbidden", "status.allocation")
    assert 'resource="resourceclaims/binding", verb="patch"' in cause["message"]
    await allow("resourceclaims/binding", "patch")
    assert (await write({"allocation": allocation()})).status == 200
    devices = [{"driver": "gpu.example.com", "pool": "p", "device": "d0"}]
    refused = await write({"devices": devices})
    (cause,) = refused.json["details"]["causes"]
    assert (refused.status, cause["reason"], cause["field"]) == (422, "FieldValueForbidden", "status.devices")
    assert 'User "jane" cannot arbitrary-node:patch resource "resourceclaims/driver"' in cause["message"]
    await allow("resourceclaims/driver", "arbitrary-node:patch")
    assert (await write({"devices": devices})).status == 200
    freed = await write({"allocation": None})
    assert freed.status == 200, freed.body
    assert not freed.json["status"].get("devices"), "the driver's word goes with the device"


async def test_deallocation_drops_device_status_without_driver_permission(api: Caller) -> None:
    """As the claim controller does: the driver's word goes with the device, and nobody is asked for that."""
    await api.create(CLAIMS, claim())
    devices = [{"driver": "gpu.example.com", "pool": "p", "device": "d0"}]
    status = {"allocation": allocation(), "devices": devices}
    assert (await api("PATCH", f"{CLAIMS}/c/status", {"status": status}, type=MERGE)).status == 200
    verbs = ["patch", "update"]
    rule = {"apiGroups": ["resource.k8s.io"], "resources": ["resourceclaims/status", "resourceclaims/binding"]}
    await api.create(f"{_RBAC}/clusterroles", {"metadata": {"name": "scheduler"}, "rules": [{**rule, "verbs": verbs}]})
    subject = {"kind": "User", "name": "jane", "apiGroup": "rbac.authorization.k8s.io"}
    reference = {"kind": "ClusterRole", "name": "scheduler", "apiGroup": "rbac.authorization.k8s.io"}
    binding = {"metadata": {"name": "scheduler"}, "subjects": [subject], "roleRef": reference}
    await api.create(f"{_RBAC}/clusterrolebindings", binding)
    jane = api.as_(USER)
    kept = await api.get(f"{CLAIMS}/c")
    kept["status"]["devices"] = None
    refused = await jane("PUT", f"{CLAIMS}/c/status", kept)
    assert refused.status == 422 and "arbitrary-node:update" in refused.json["message"], "the device stays allocated"
    freed = await api.get(f"{CLAIMS}/c")
    del freed["status"]["allocation"], freed["status"]["devices"]
    answer = await jane("PUT", f"{CLAIMS}/c/status", freed)
    assert answer.status == 200, answer.body
    assert not answer.json["status"]


async def test_claim_spec_is_immutable(api: Caller) -> None:
    created = await api.create(CLAIMS, claim() | {"status": {"allocation": allocation()}})
    assert "allocation" not in created["status"]
    answer = await api("PATCH", f"{CLAIMS}/c", {"spec": {"devices": {"requests": None}}}, type=MERGE)
    assert answer.status == 422 and "field is immutable" in answer.json["message"]
    assert ADMIN


ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"


async def test_service_account_of_pod_must_exist(api: Caller) -> None:
    refused = await api("POST", PODS, pod("a", serviceAccountName="robot"))
    assert refused.status == 403
    why = 'error looking up service account default/robot: serviceaccount "robot" not found'
    assert refused.json["message"] == f'pods "a" is forbidden: {why}'
    secret = {"imagePullSecrets": [{"name": "registry"}]}
    await api.create(ACCOUNTS, {"metadata": {"name": "robot"}, **secret})
    spec = (await api.create(PODS, pod("a", serviceAccount="robot")))["spec"]
    assert (spec["serviceAccountName"], spec["imagePullSecrets"]) == ("robot", [{"name": "registry"}])
    other = await api.create(PODS, pod("b", serviceAccountName="robot", imagePullSecrets=[{"name": "mine"}]))
    assert other["spec"]["imagePullSecrets"] == [{"name": "mine"}]


async def test_new_namespace_accepts_pods_immediately(api: Caller) -> None:
    await api.create("/api/v1/namespaces", {"metadata": {"name": "young"}})
    pods = "/api/v1/namespaces/young/pods"
    assert (await api("POST", f"{pods}?dryRun=All", pod("x"))).status == 201
    assert (await api.get("/api/v1/namespaces/young/serviceaccounts"))["items"] == []
    answers = [await api("POST", pods, pod(f"p{i}")) for i in range(3)]
    assert [answer.status for answer in answers] == [201] * 3
    assert (await api.get("/api/v1/namespaces/young/serviceaccounts/default"))["metadata"]["uid"]


READY = {"conditions": [{"type": "Ready", "status": "True"}]}
TAINT = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("node", "taints"),
    [
        ({}, [TAINT]),
        ({"status": {"conditions": [{"type": "Ready", "status": "False"}]}}, [TAINT]),
        ({"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}}, [{"key": "a", "effect": "NoSchedule"}, TAINT]),
        ({"spec": {"taints": [TAINT]}}, [TAINT]),
        ({"status": READY}, [TAINT]),
    ],
)
async def test_node_is_tainted_until_ready(api: Caller, node: Any, taints: Any) -> None:
    created = await api.create("/api/v1/nodes", {"metadata": {"name": "n"}, **node})
    assert created.get("spec", {}).get("taints") == taints


async def test_cluster_ips_are_unique_and_in_range(api: Caller) -> None:
    def service(name: str, address: str) -> Any:
        return {"metadata": {"name": name}, "spec": {"clusterIP": address, "ports": [{"port": 80}]}}

    services = "/api/v1/namespaces/default/services"
    await api.create(services, service("a", "10.96.0.10"))
    taken = await api("POST", services, service("b", "10.96.0.10"))
    assert (
        taken.status == 422
        and "failed to allocate IP 10.96.0.10: provided IP is already allocated" in taken.json["message"]
    )
    outside = await api("POST", services, service("b", "10.1.0.10"))
    assert outside.status == 422 and "the provided network does not match the current range" in outside.json["message"]
    await api.create(services, service("c", "None"))
    await api.create(services, service("d", "None"))
