"""Workloads and PodGroups on the API: what is filled in, what never changes, what nulls mean."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from api_caller import PODS, Caller, Clock, make_config, pod

from haru.apiserver.server import ApiServer
from haru.kube.gates import FeatureGates
from haru.storage import SqliteStore

MERGE = "application/merge-patch+json"
BASE = "/apis/scheduling.k8s.io/v1alpha2/namespaces/default"
GROUPS, WORKLOADS = f"{BASE}/podgroups", f"{BASE}/workloads"
CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
GANG = {"gang": {"minCount": 2}}
TEMPLATE = {"name": "workers", "schedulingPolicy": GANG}
FULL = {
    "podGroupTemplateRef": {"workload": {"workloadName": "w", "podGroupTemplateName": "workers"}},
    "schedulingPolicy": GANG,
    "schedulingConstraints": {"topology": [{"key": "rack"}]},
    "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "t"}],
    "disruptionMode": "PodGroup",
    "priorityClassName": "high",
    "priority": 1000,
}


async def furnish(api: Caller) -> None:
    await api.create(CLASSES, {"metadata": {"name": "high"}, "value": 1000})
    await api.create(WORKLOADS, {"metadata": {"name": "w"}, "spec": {"podGroupTemplates": [TEMPLATE]}})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("podGroupTemplateRef", None),
        ("schedulingPolicy", {"basic": {}, "gang": None}),
        ("schedulingPolicy", {"gang": {"minCount": 1}}),
        ("schedulingConstraints", None),
        ("schedulingConstraints", {"topology": [{"key": "zone"}]}),
        ("resourceClaims", None),
        ("resourceClaims", [{"name": "gpu", "resourceClaimTemplateName": "other"}]),
        ("disruptionMode", "Pod"),
        ("priorityClassName", None),
        ("priority", 5),
    ],
)
async def test_spec_of_pod_group_is_immutable(api: Caller, field: str, value: Any) -> None:
    await furnish(api)
    created = await api.create(GROUPS, {"metadata": {"name": "g"}, "spec": FULL})
    answer = await api("PATCH", f"{GROUPS}/g", {"spec": {field: value}}, type=MERGE)
    assert answer.status == 422, answer.body
    assert f"spec.{field}" in answer.json["message"]
    assert await api.get(f"{GROUPS}/g") == created


async def test_metadata_of_pod_group_changes_after_class_is_deleted(api: Caller) -> None:
    await furnish(api)
    created = await api.create(GROUPS, {"metadata": {"name": "g"}, "spec": FULL})
    assert (await api("DELETE", f"{CLASSES}/high")).status == 200
    assert (await api("DELETE", f"{WORKLOADS}/w")).status == 200
    patch = {"metadata": {"labels": {"team": "a"}, "annotations": {"b": "c"}, "finalizers": ["example.com/x"]}}
    changed = await api("PATCH", f"{GROUPS}/g", patch, type=MERGE)
    assert changed.status == 200, changed.body
    assert changed.json["metadata"]["labels"] == {"team": "a"}
    assert changed.json["spec"] == created["spec"]


@pytest.mark.parametrize(("count", "status"), [(0, 422), (1, 201), (8, 201), (9, 422)])
async def test_workload_needs_one_to_eight_templates(api: Caller, count: int, status: int) -> None:
    templates = [{**TEMPLATE, "name": f"t{number}"} for number in range(count)]
    answer = await api("POST", WORKLOADS, {"metadata": {"name": "w"}, "spec": {"podGroupTemplates": templates}})
    assert answer.status == status, answer.body
    assert status == 201 or "spec.podGroupTemplates" in answer.json["message"]


@pytest.mark.parametrize(
    ("policy", "field"),
    [
        ({}, "schedulingPolicy"),
        ({"basic": {}, "gang": {"minCount": 1}}, "schedulingPolicy"),
        ({"gang": {"minCount": 0}}, "schedulingPolicy.gang.minCount"),
        ({"gang": {"minCount": -1}}, "schedulingPolicy.gang.minCount"),
        ({"gang": {}}, "schedulingPolicy.gang.minCount"),
    ],
)
async def test_scheduling_policy_must_be_exactly_one(api: Caller, policy: Any, field: str) -> None:
    """In a PodGroup and in the template that it may be made from."""
    group = await api("POST", GROUPS, {"metadata": {"name": "g"}, "spec": {"schedulingPolicy": policy}})
    templates = {"podGroupTemplates": [{"name": "t", "schedulingPolicy": policy}]}
    workload = await api("POST", WORKLOADS, {"metadata": {"name": "w"}, "spec": templates})
    assert (group.status, workload.status) == (422, 422)
    assert f"spec.{field}" in group.json["message"]
    assert f"spec.podGroupTemplates[0].{field}" in workload.json["message"]


@pytest.mark.parametrize("topology", [[{"key": "no label/key!"}], [{"key": ""}], [{"key": "a"}, {"key": "b"}]])
async def test_topology_constraint_must_be_one_valid_label(api: Caller, topology: Any) -> None:
    spec = {"schedulingPolicy": GANG, "schedulingConstraints": {"topology": topology}}
    answer = await api("POST", GROUPS, {"metadata": {"name": "g"}, "spec": spec})
    assert answer.status == 422
    assert "spec.schedulingConstraints.topology" in answer.json["message"]


async def test_created_pod_group_has_defaults_and_finalizer(api: Caller) -> None:
    created = await api.create(GROUPS, {"metadata": {"name": "g"}, "spec": {"schedulingPolicy": GANG}})
    assert await api.get(f"{GROUPS}/g") == created
    assert created["metadata"]["finalizers"] == ["scheduling.k8s.io/podgroup-protection"]
    assert (created["spec"]["disruptionMode"], created["spec"]["priority"]) == ("Pod", 0)
    assert not created["spec"].get("priorityClassName")


async def test_priority_without_class_must_be_zero(api: Caller) -> None:
    """Nothing resolves to 0, and 0 is a priority like others."""
    for name, priority, expected in (("a", 0, 201), ("b", 7, 403)):
        body = {"metadata": {"name": name}, "spec": {"schedulingPolicy": GANG, "priority": priority}}
        assert (await api("POST", GROUPS, body)).status == expected


async def test_null_fields_of_pod_group_are_unset(api: Caller) -> None:
    """As Go servers and clients write unset pointers."""
    spec = {"schedulingPolicy": GANG, "schedulingConstraints": None, "podGroupTemplateRef": None}
    created = await api.create(GROUPS, {"metadata": {"name": "g"}, "spec": spec})
    assert not created["spec"].get("podGroupTemplateRef")
    again = {**created, "spec": {**created["spec"], "podGroupTemplateRef": None, "schedulingConstraints": None}}
    assert (await api("PUT", f"{GROUPS}/g", again)).status == 200
    templates = [{**TEMPLATE, "schedulingConstraints": None}]
    await api.create(WORKLOADS, {"metadata": {"name": "w"}, "spec": {"podGroupTemplates": templates}})
    empty = {"metadata": {"name": "h"}, "spec": {"schedulingPolicy": GANG, "podGroupTemplateRef": {"workload": None}}}
    assert (await api("POST", GROUPS, empty)).status == 422
    basic = await api.create(GROUPS, {"metadata": {"name": "b"}, "spec": {"schedulingPolicy": {"basic": {}}}})
    assert basic["spec"]["schedulingPolicy"] == {"basic": {}}


async def test_pod_group_with_terminating_workload_is_rejected(api: Caller) -> None:
    await furnish(api)
    held = {"metadata": {"finalizers": ["example.com/hold"]}}
    assert (await api("PATCH", f"{WORKLOADS}/w", held, type=MERGE)).status == 200
    assert (await api("DELETE", f"{WORKLOADS}/w")).status == 200
    answer = await api("POST", GROUPS, {"metadata": {"name": "g"}, "spec": FULL})
    assert answer.status == 403
    assert 'PodGroup rejected: Workload "w" not found' in answer.json["message"]


async def test_status_and_spec_of_pod_group_are_updated_separately(api: Caller) -> None:
    created = await api.create(GROUPS, {"metadata": {"name": "g"}, "spec": {"schedulingPolicy": GANG}})
    condition = {"type": "PodGroupScheduled", "status": "True", "reason": "Scheduled", "message": ""}
    condition["lastTransitionTime"] = "2026-01-01T00:00:00Z"
    wanted = {**created, "spec": {"schedulingPolicy": {"basic": {}}}, "status": {"conditions": [condition]}}
    written = await api("PUT", f"{GROUPS}/g/status", wanted)
    assert written.status == 200, written.body
    assert written.json["spec"] == created["spec"]
    assert written.json["status"]["conditions"][0]["type"] == "PodGroupScheduled"
    cleared = await api("PUT", f"{GROUPS}/g", {**written.json, "status": {}})
    assert cleared.json["status"] == written.json["status"]
    claims = {"status": {"resourceClaimStatuses": [{"name": "other", "resourceClaimName": "c"}]}}
    refused = await api("PATCH", f"{GROUPS}/g/status", claims, type=MERGE)
    assert refused.status == 422
    assert "status.resourceClaimStatuses[0].name" in refused.json["message"]


@pytest.fixture
async def late() -> AsyncIterator[tuple[Caller, Caller]]:
    """One store under a server with the gate off, and under one with it on."""
    store = SqliteStore(":memory:")
    clock = Clock()
    off = ApiServer(make_config(store, clock, gates=FeatureGates()))
    on = ApiServer(make_config(store, clock, gates=FeatureGates.accelerator_defaults()))
    await off.start()
    await on.start()
    yield Caller(off, clock), Caller(on, clock)
    await on.stop()


async def test_scheduling_group_is_dropped_while_gate_is_off_and_kept_in_use(late: Any) -> None:
    off, on = late
    grouped = {"schedulingGroup": {"podGroupName": "g"}}
    early = await off.create(PODS, pod("early", **grouped))
    assert "schedulingGroup" not in early["spec"]
    assert "schedulingGroup" not in (await on.get(f"{PODS}/early"))["spec"]
    later = await on.create(PODS, pod("later", **grouped))
    changed = await off("PUT", f"{PODS}/later", {**later, "metadata": {**later["metadata"], "labels": {"a": "b"}}})
    assert changed.status == 200, changed.body
    assert changed.json["spec"]["schedulingGroup"] == {"podGroupName": "g"}


@pytest.mark.parametrize(
    ("gate", "fields"),
    [
        ("TopologyAwareWorkloadScheduling", ["schedulingConstraints"]),
        ("DRAWorkloadResourceClaims", ["resourceClaims"]),
        ("WorkloadAwarePreemption", ["disruptionMode", "priorityClassName", "priority"]),
    ],
)
async def test_gated_pod_group_fields_are_not_stored(gate: str, fields: list[str]) -> None:
    """Dropped before they are judged, as 1.36 does with the fields of features that are off."""
    server = ApiServer(
        make_config(SqliteStore(":memory:"), Clock(), gates=FeatureGates.accelerator_defaults({gate: False}))
    )
    await server.start()
    api = Caller(server, Clock())
    await furnish(api)
    stored = (await api.create(GROUPS, {"metadata": {"name": "g"}, "spec": FULL}))["spec"]
    await server.stop()
    assert set(FULL) - set(stored) == set(fields)


async def test_scheduling_group_of_pod_is_immutable(api: Caller) -> None:
    """It need not be there when the pod is created."""
    created = await api.create(PODS, pod("a", schedulingGroup={"podGroupName": "g"}))
    for group in ({"podGroupName": "h"}, None):
        wanted = {**created, "spec": {**created["spec"], "schedulingGroup": group}}
        assert (await api("PUT", f"{PODS}/a", wanted)).status == 422
    for group in ({}, {"podGroupName": "No Name"}):
        answer = await api("POST", PODS, pod("b", schedulingGroup=group))
        assert answer.status == 422
        assert "spec.schedulingGroup" in answer.json["message"]
