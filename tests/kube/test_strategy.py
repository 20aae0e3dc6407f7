"""What happens to an object between decoding and validation."""

from __future__ import annotations

from typing import Any

import pytest
from kube_cases import ALL, NOW, Obj, claim, controller, device, group, kind_of, pod, problems, put, resource, slice_of

from haru.kube.json_form import json_form
from haru.kube.kinds import Kind, all_kinds, known_kind
from haru.kube.schema import message_type, type_of
from haru.kube.strategy import (
    begins_generation,
    next_generation,
    prepare_for_create,
    prepare_for_status_update,
    prepare_for_update,
    qos_class,
)

LATER = "2026-03-02T00:00:00Z"
RESULT = {"request": "gpu", "driver": "d", "pool": "p", "device": "a"}


def created(obj: Obj) -> Obj:
    return prepare_for_create(obj, kind_of(obj), ALL, NOW)


def test_created_pod_is_pending_whatever_status_was_given() -> None:
    made = created({**pod(), "status": {"phase": "Running"}})
    assert made["status"] == {"phase": "Pending", "qosClass": "BestEffort"}


def test_label_keys_are_merged_into_selectors_of_created_pod() -> None:
    def term(**more: Any) -> Obj:
        return {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "a"}}, **more}

    anti = {
        "requiredDuringSchedulingIgnoredDuringExecution": [term(matchLabelKeys=["hash", "missing"])],
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 1, "podAffinityTerm": term(mismatchLabelKeys=["tenant"])}
        ],
    }
    spread = {"maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", **term(matchLabelKeys=["hash"])}
    given = pod(affinity={"podAntiAffinity": anti}, topologySpreadConstraints=[spread])
    given["metadata"]["labels"] = {"hash": "1", "tenant": "t"}
    spec = created(given)["spec"]
    required, preferred = spec["affinity"]["podAntiAffinity"].values()
    same = {"key": "hash", "operator": "In", "values": ["1"]}
    other = {"key": "tenant", "operator": "NotIn", "values": ["t"]}
    assert required[0]["labelSelector"] == {"matchLabels": {"app": "a"}, "matchExpressions": [same]}
    assert preferred[0]["podAffinityTerm"]["labelSelector"]["matchExpressions"] == [other]
    assert spec["topologySpreadConstraints"][0]["labelSelector"]["matchExpressions"] == [same]


def test_gated_pod_has_scheduling_gated_condition() -> None:
    (condition,) = created(pod(schedulingGates=[{"name": "a/b"}]))["status"]["conditions"]
    assert (condition["type"], condition["status"], condition["reason"]) == ("PodScheduled", "False", "SchedulingGated")


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        ([{}], "BestEffort"),
        ([{"limits": {"example.com/gpu": 1}}], "BestEffort"),
        ([{"requests": {"cpu": "1"}}], "Burstable"),
        ([{"limits": {"cpu": "1", "memory": "1Gi"}}], "Guaranteed"),
        ([{"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "1000m", "memory": "1024Mi"}}], "Guaranteed"),
        ([{"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "500m", "memory": "1Gi"}}], "Burstable"),
        ([{"limits": {"cpu": "1", "memory": "1Gi"}}, {}], "Burstable"),
        ([{"requests": {"cpu": "0"}}], "BestEffort"),
    ],
)
def test_qos_class_follows_resources(resources: list[Obj], expected: str) -> None:
    spec = {"containers": [{"name": f"c{i}", "resources": one} for i, one in enumerate(resources)]}
    assert qos_class(spec) == expected


def test_pod_level_resources_determine_qos_class() -> None:
    level = {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "1", "memory": "1Gi"}}
    assert qos_class({"containers": [{"name": "c"}], "resources": level}) == "Guaranteed"


@pytest.mark.parametrize("obj", [claim(), group(), controller("Deployment"), controller("Job")])
def test_status_is_dropped_on_create(obj: Obj) -> None:
    assert "status" not in created({**obj, "status": {"replicas": 3}})


def test_created_node_keeps_its_status() -> None:
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "status": {"capacity": {"cpu": "1"}}}
    assert created(node) == node


def test_created_namespace_gets_kubernetes_finalizer() -> None:
    made = created({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}})
    assert made["spec"] == {"finalizers": ["kubernetes"]}
    assert made["status"] == {"phase": "Active"}
    update = prepare_for_update({**made, "spec": {}}, made, kind_of(made), ALL)
    assert update["spec"] == {"finalizers": ["kubernetes"]}


def test_job_gets_selector_and_labels_from_its_uid() -> None:
    job = controller("Job")
    del job["spec"]["manualSelector"], job["spec"]["selector"]
    job["metadata"]["uid"] = "u-1"
    made = created(job)
    assert made["spec"]["selector"] == {"matchLabels": {"batch.kubernetes.io/controller-uid": "u-1"}}
    assert made["spec"]["template"]["metadata"]["labels"] == {
        "app": "trainer",
        "batch.kubernetes.io/controller-uid": "u-1",
        "batch.kubernetes.io/job-name": "trainer",
        "controller-uid": "u-1",
        "job-name": "trainer",
    }
    assert job["spec"]["template"]["metadata"]["labels"] == {"app": "trainer"}
    assert created(controller("Job"))["spec"] == controller("Job")["spec"]


def test_main_resource_update_keeps_status_and_status_update_keeps_spec() -> None:
    old = {**claim(), "status": {"allocation": {}}}
    new = put({**claim(), "status": {}}, "metadata.labels", {"a": "b"})
    updated = prepare_for_update(new, old, kind_of(old), ALL)
    assert updated["status"] == old["status"]
    assert updated["metadata"]["labels"] == {"a": "b"}
    written = put(put({**claim(), "status": {"reservedFor": []}}, "spec.devices", {}), "metadata.finalizers", ["x/y"])
    status = prepare_for_status_update(written, old, kind_of(old), ALL)
    assert status == {**old, "status": {"reservedFor": []}}


def test_status_update_of_node_changes_labels() -> None:
    node: Obj = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "spec": {"podCIDR": "x"}}
    written = put({**node, "spec": {}, "status": {"phase": "x"}}, "metadata.labels", {"a": "b"})
    made = prepare_for_status_update(written, node, kind_of(node), ALL)
    assert made["metadata"]["labels"] == {"a": "b"}
    assert made["spec"] == {"podCIDR": "x"}


def test_deallocation_removes_device_statuses() -> None:
    other = {**RESULT, "device": "b"}
    devices = [{"driver": "d", "pool": "p", "device": name} for name in ("a", "b")]
    old = {**claim(), "status": {"allocation": {"devices": {"results": [RESULT, other]}}, "devices": devices}}
    cleared = prepare_for_status_update({**claim(), "status": {"devices": devices}}, old, kind_of(old), ALL)
    assert cleared["status"] == {}
    kept = {**claim(), "status": {**old["status"], "devices": devices}}
    assert prepare_for_status_update(kept, old, kind_of(old), ALL)["status"] == old["status"]
    unknown = [{"driver": "d", "pool": "p", "device": "never"}]
    stays = prepare_for_status_update({**claim(), "status": {"devices": unknown}}, old, kind_of(old), ALL)
    assert stays["status"]["devices"] == unknown


def test_device_status_of_removed_share_is_removed() -> None:
    shares = [{**RESULT, "shareID": share} for share in ("one", "two")]
    devices = [{name: share[name] for name in ("driver", "pool", "device", "shareID")} for share in shares]
    old = {**claim(), "status": {"allocation": {"devices": {"results": shares}}, "devices": devices}}
    fewer = {**claim(), "status": {"allocation": {"devices": {"results": shares[:1]}}, "devices": devices}}
    assert prepare_for_status_update(fewer, old, kind_of(old), ALL)["status"]["devices"] == devices[:1]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, NOW),
        ({"value": "x"}, NOW),
        ({"effect": "NoSchedule"}, LATER),
        ({"effect": "NoSchedule", "timeAdded": None}, LATER),
        ({"effect": "NoSchedule", "timeAdded": "2020-01-01T00:00:00Z"}, "2020-01-01T00:00:00Z"),
    ],
)
def test_taint_rule_with_changed_effect_gets_new_time_added(changes: Obj, expected: str) -> None:
    taint: Obj = {"key": "k", "effect": "NoExecute", "timeAdded": NOW}
    old = resource("DeviceTaintRule", {"taint": taint}, "v1beta2")
    new = resource("DeviceTaintRule", {"taint": {**taint, **changes}}, "v1beta2")
    made = prepare_for_update(new, old, kind_of(old), ALL, LATER)
    assert made["spec"]["taint"]["timeAdded"] == expected


@pytest.mark.parametrize(
    ("path", "value", "changed"),
    [
        ("metadata.labels", {"a": "b"}, False),
        ("status", {"x": 1}, False),
        ("spec.sharedCounters", [], False),
        ("spec.devices.0.name", "other", True),
        ("spec.pool.generation", 2, True),
    ],
)
def test_generation_counts_spec_changes(path: str, value: Any, changed: bool) -> None:
    old = slice_of(device())
    assert (next_generation(put(old, path, value), old, kind_of(old)) is not None) is changed
    assert begins_generation(kind_of(old))
    assert not begins_generation(kind_of(claim()))


@pytest.mark.parametrize(
    ("api_version", "kind", "member", "expected"),
    [
        ("apps/v1", "Deployment", "annotations", 4),
        ("apps/v1", "Deployment", "labels", None),
        ("discovery.k8s.io/v1", "EndpointSlice", "labels", 4),
        ("apps/v1", "ReplicaSet", "annotations", None),
    ],
)
def test_generation_of_some_kinds_counts_changes_of_metadata(
    api_version: str, kind: str, member: str, expected: int | None
) -> None:
    old = {"apiVersion": api_version, "kind": kind, "metadata": {"name": "a", "generation": 3}}
    assert next_generation(put(old, f"metadata.{member}", {"a": "b"}), old, known_kind(api_version, kind)) == expected


def test_generation_of_csi_driver_begins_with_its_first_change() -> None:
    old: Obj = {"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": "a"}, "spec": {}}
    kind = known_kind("storage.k8s.io/v1", "CSIDriver")
    assert not begins_generation(kind)
    assert next_generation(put(old, "spec", {"podInfoOnMount": True}), old, kind) == 1


def test_volume_says_since_when_it_is_in_its_phase() -> None:
    kind = known_kind("v1", "PersistentVolume")
    volume: Obj = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "a"}, "spec": {}}
    old = prepare_for_create(volume, kind, ALL, NOW)
    assert old["status"] == {"phase": "Pending", "lastPhaseTransitionTime": NOW}
    bound = prepare_for_status_update(put(old, "status", {"phase": "Bound"}), old, kind, ALL, LATER)
    assert bound["status"]["lastPhaseTransitionTime"] == LATER
    told = prepare_for_status_update(put(bound, "status", {"phase": "Bound", "message": "m"}), bound, kind, ALL, NOW)
    assert told["status"]["lastPhaseTransitionTime"] == LATER


WITH_STATUS = [kind for kind in all_kinds() if not kind.virtual and "status" in type_of(kind).fields]


@pytest.mark.parametrize("kind", WITH_STATUS, ids=lambda kind: f"{kind.api_version}/{kind.plural}")
def test_initial_status_has_all_required_fields(kind: Kind) -> None:
    new = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": "a"}, "spec": {}}
    made = json_form(prepare_for_create(new, kind, ALL, NOW), kind)
    status = made.get("status")
    if kind.plural != "resourcepoolstatusrequests":
        fields = message_type(type_of(kind).fields["status"].type).fields
        assert {name for name, field in fields.items() if field.required} <= (status or {}).keys()


@pytest.mark.parametrize(
    ("version", "kind", "kept"),
    [
        ("flowcontrol.apiserver.k8s.io/v1", "FlowSchema", {"labels"}),
        ("apiregistration.k8s.io/v1", "APIService", {"labels", "generateName", "deletionTimestamp"}),
        ("networking.k8s.io/v1", "ServiceCIDR", {"labels", "generateName"}),
    ],
)
def test_write_to_a_status_leaves_metadata_as_the_kind_does(version: str, kind: str, kept: set[str]) -> None:
    old = {"apiVersion": version, "kind": kind, "metadata": {"name": "a", "labels": {"a": "b"}}}
    more = {"labels": {"x": "y"}, "generateName": "g", "deletionTimestamp": NOW, "managedFields": [{}]}
    new = put(old, "metadata", {"name": "a", **more})
    made = prepare_for_status_update(new, old, kind_of(old), ALL)["metadata"]
    assert made.keys() == {"name", "managedFields", *kept} and made["labels"] == {"a": "b"}


def test_labels_that_the_template_of_a_job_has_already_stay_to_be_refused() -> None:
    job = controller("Job")
    del job["spec"]["manualSelector"]
    job["metadata"]["uid"] = "u-1"
    job["spec"]["selector"] = {"matchLabels": {"batch.kubernetes.io/controller-uid": "other"}}
    job["spec"]["template"]["metadata"]["labels"] = {"controller-uid": "other"}
    made = created(job)
    assert made["spec"]["template"]["metadata"]["labels"]["controller-uid"] == "other"
    told = "\n".join(problems(made))
    assert "must be 'u-1'" in told and "`selector` not auto-generated" in told
