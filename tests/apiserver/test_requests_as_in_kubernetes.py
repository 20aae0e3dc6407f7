"""Answers of kube-apiserver 1.36.2 to requests that were drawn at random, where those of Haru were others."""

from __future__ import annotations

from typing import Any

import pytest
from api_caller import MAPS, PODS, Caller, config_map, pod
from custom_objects import TRAININGS, define

from haru.kube import yaml

APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"
PARTIAL = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
REVIEWS = "/apis/authorization.k8s.io/v1"
CLASSES = "/apis/node.k8s.io/v1/runtimeclasses"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
NAMED = {"metadata": {"name": "a", "labels": {"a": "b"}}}


@pytest.mark.parametrize(
    ("part", "field"),
    [
        ({"overhead": {"podFixed": {"a": "1Gi"}}}, "overhead.limits[a]"),
        ({"scheduling": {"nodeSelector": {"a b": "c"}}}, "scheduling.nodeSelector"),
    ],
)
async def test_all_of_a_runtime_class_is_validated_when_it_changes(api: Caller, part: Any, field: str) -> None:
    await api.create(CLASSES, {"metadata": {"name": "a"}, "handler": "h"})
    answer = await api("PATCH", f"{CLASSES}/a", part, type=MERGE)
    assert answer.status == 422
    assert {cause["field"] for cause in answer.json["details"]["causes"]} == {field}


@pytest.mark.parametrize("version", ["", "apps/", "v1/x/y"])
async def test_version_of_an_owner_is_a_version(api: Caller, version: str) -> None:
    owner = {"apiVersion": version, "kind": "ConfigMap", "name": "a", "uid": "u"}
    answer = await api("POST", MAPS, {"metadata": {"name": "a", "ownerReferences": [owner]}})
    (cause,) = answer.json["details"]["causes"]
    assert cause["message"] == f'Invalid value: "{version}": version must not be empty'


async def test_grace_period_of_a_deletion_cannot_be_written_with_a_status(api: Caller) -> None:
    await api.create(PODS, pod("p"))
    answer = await api("PATCH", f"{PODS}/p/status", {"metadata": {"deletionGracePeriodSeconds": 5}}, type=MERGE)
    (cause,) = answer.json["details"]["causes"]
    assert cause["field"] == "metadata.deletionGracePeriodSeconds"


async def test_review_of_rules_answers_with_the_rules_alone(api: Caller) -> None:
    answer = await api("POST", f"{REVIEWS}/selfsubjectrulesreviews", {**NAMED, "spec": {"namespace": "default"}})
    assert answer.json.keys() == {"kind", "apiVersion", "metadata", "spec", "status"}
    assert (answer.json["metadata"], answer.json["spec"]) == ({}, {})


async def test_review_of_oneself_answers_with_the_user_alone(api: Caller) -> None:
    answer = await api("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", NAMED)
    assert answer.json["metadata"].keys() == {"creationTimestamp"}


async def test_review_forgets_what_only_a_server_sets(api: Caller) -> None:
    body = {"metadata": {"creationTimestamp": "2026-01-02T03:04:05Z", "uid": "u"}, "spec": {"token": "x"}}
    answer = await api("POST", "/apis/authentication.k8s.io/v1/tokenreviews", body)
    assert not {"creationTimestamp", "uid"} & answer.json["metadata"].keys()


@pytest.mark.parametrize(
    ("accept", "code", "kind"),
    [
        (PARTIAL, 201, "PartialObjectMetadata"),
        (TABLE, 406, "Status"),
        (f"{TABLE},application/json", 201, "SelfSubjectRulesReview"),
    ],
)
async def test_review_has_metadata_and_no_table(api: Caller, accept: str, code: int, kind: str) -> None:
    body = {"spec": {"namespace": "default"}}
    answer = await api("POST", f"{REVIEWS}/selfsubjectrulesreviews", body, accept=accept)
    assert (answer.status, answer.json["kind"]) == (code, kind)


async def test_selector_of_a_role_that_is_none_is_told_twice(api: Caller) -> None:
    rule = {"clusterRoleSelectors": [{"matchExpressions": [{"key": "a", "operator": "In"}]}]}
    answer = await api("POST", f"{RBAC}/clusterroles", {"metadata": {"name": "a"}, "aggregationRule": rule})
    first, second = answer.json["details"]["causes"]
    assert first["field"] == "aggregationRule.clusterRoleSelectors[0].matchExpressions[0].values"
    assert second["message"].endswith(": invalid label selector.")


async def test_kinds_of_roles_are_told_in_their_order(api: Caller) -> None:
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Pod", "name": "a"}
    answer = await api(
        "POST", f"{RBAC}/namespaces/default/rolebindings", {"metadata": {"name": "a"}, "roleRef": reference}
    )
    (cause,) = answer.json["details"]["causes"]
    assert cause["message"] == 'Unsupported value: "Pod": supported values: "Role", "ClusterRole"'


async def test_object_that_goes_at_once_is_not_changed_before(api: Caller) -> None:
    made = await api.create(MAPS, config_map("a"))
    finalizers = {"metadata": {"finalizers": ["orphan"]}}
    await api("PATCH", f"{MAPS}/a", finalizers, type=MERGE)
    stream = await api.stream(f"{MAPS}?watch=1&resourceVersion={made['metadata']['resourceVersion']}")
    await api("DELETE", f"{MAPS}/a?propagationPolicy=Background")
    assert [type_ for type_, _ in await stream.take(2)] == ["MODIFIED", "DELETED"]
    await stream.close()


async def test_deletion_is_answered_in_yaml_to_who_wants_that(api: Caller) -> None:
    await api.create(MAPS, config_map("a"))
    answer = await api("DELETE", f"{MAPS}/a", accept="application/yaml")
    assert answer.headers["content-type"] == "application/yaml"
    assert yaml.load(answer.body.decode())["status"] == "Success"


async def test_failure_is_answered_in_json_to_who_wants_a_table_in_yaml(api: Caller) -> None:
    answer = await api("GET", f"{MAPS}/none", accept="application/yaml;as=Table;v=v1;g=meta.k8s.io")
    assert (answer.status, answer.json["reason"]) == (404, "NotFound")


async def test_other_uid_is_a_conflict_in_the_words_of_the_store(api: Caller) -> None:
    await api.create(MAPS, config_map("a"))
    answer = await api("PUT", f"{MAPS}/a", {"metadata": {"name": "a", "uid": "x"}})
    assert answer.status == 409
    assert "StorageError: invalid object, Code: 4, Key: /registry/configmaps/default/a, " in answer.json["message"]


async def test_custom_resource_without_a_form_is_told_all_media_types(api: Caller) -> None:
    await define(api)
    answer = await api("POST", TRAININGS, {}, accept="application/vnd.kubernetes.protobuf")
    assert answer.status == 406 and b"application/json, application/yaml, application/vnd.kubernetes.protobuf" in (
        answer.body
    )


async def test_apply_of_what_it_cannot_set_has_a_time(api: Caller) -> None:
    nodes = "/api/v1/nodes"
    await api.create(nodes, {"metadata": {"name": "a", "labels": {"a": "b"}}})
    applied = {"apiVersion": "v1", "kind": "Node", **NAMED, "status": {"capacity": {"cpu": "4"}}}
    answer = await api("PATCH", f"{nodes}/a?fieldManager=m", applied, type=APPLY)
    assert answer.json["metadata"]["managedFields"][0]["time"]
    del applied["status"]
    answer = await api("PATCH", f"{nodes}/a?fieldManager=n", applied, type=APPLY)
    assert "time" not in answer.json["metadata"]["managedFields"][0]


@pytest.mark.parametrize("code", [422, 200])
async def test_phase_of_a_namespace_says_whether_it_is_being_deleted(api: Caller, code: int) -> None:
    path = "/api/v1/namespaces/n"
    await api.create("/api/v1/namespaces", {"metadata": {"name": "n"}})
    if code == 200:
        await api("DELETE", path)
    answer = await api("PATCH", f"{path}/status", {"status": {"phase": "Terminating"}}, type=MERGE)
    assert answer.status == code
    if code == 422:
        why = "Invalid value: \"Terminating\": may only be 'Active' if `deletionTimestamp` is empty"
        assert answer.json["details"]["causes"] == [
            {"reason": "FieldValueInvalid", "message": why, "field": "status.Phase"}
        ]


async def test_events_of_both_groups_are_refused_as_those_of_the_core(api: Caller) -> None:
    answer = await api("POST", "/apis/events.k8s.io/v1/namespaces/default/events", {"metadata": {"name": "a"}})
    assert answer.json["message"].startswith('Event "a" is invalid: ')
    assert "group" not in answer.json["details"]
    event = {"metadata": {"name": "a"}, "involvedObject": {"kind": "Pod", "namespace": "default"}}
    await api.create("/api/v1/namespaces/default/events", event)
    path = "/apis/events.k8s.io/v1/namespaces/default/events/a"
    answer = await api("DELETE", path, {"preconditions": {"uid": "x"}})
    assert (answer.status, answer.json["details"]["kind"]) == (409, "Event") and "group" not in answer.json["details"]


async def test_account_names_its_secrets_and_says_nothing_else_of_them(api: Caller) -> None:
    accounts = "/api/v1/namespaces/default/serviceaccounts"
    body = {"metadata": {"name": "a"}, "secrets": [{"name": "s", "namespace": "x", "resourceVersion": "1"}]}
    assert (await api.create(accounts, body))["secrets"] == [{"name": "s"}]
    answer = await api("PATCH", f"{accounts}/a", {"secrets": [{"name": "t", "uid": "u"}]}, type=MERGE)
    assert answer.json["secrets"] == [{"name": "t"}]


async def test_nulls_in_lists_of_a_merge_patch_are_no_members(api: Caller) -> None:
    await api.create(PODS, pod("p"))
    spec = {"containers": [{"name": "main", "image": "c:2", "none": None, "env": [{"name": "E", "x": None}]}]}
    answer = await api("PATCH", f"{PODS}/p?dryRun=All", {"spec": spec}, type=MERGE)
    assert "warning" not in answer.headers


async def test_quantities_of_resources_are_rounded_up_to_thousandths(api: Caller) -> None:
    limits = {"spec": {"limits": [{"type": "Container", "max": {"cpu": "0.5m", "memory": "1500n"}}]}}
    made = await api.create("/api/v1/namespaces/default/limitranges", {"metadata": {"name": "l"}, **limits})
    assert made["spec"]["limits"][0]["max"] == {"cpu": "1m", "memory": "1m"}


async def test_table_of_what_was_not_stored_has_no_version(api: Caller) -> None:
    answer = await api("POST", f"{MAPS}?dryRun=All", config_map("a"), accept=TABLE)
    assert answer.json["metadata"] == {}


async def test_name_that_is_taken_is_told_to_who_gave_a_base_too(api: Caller) -> None:
    await api.create(MAPS, config_map("a"))
    answer = await api("POST", MAPS, {"metadata": {"name": "a", "generateName": "b-"}})
    assert answer.json["details"]["retryAfterSeconds"] == 1
    assert answer.json["message"].endswith(", the server was not able to generate a unique name for the object")


async def test_owner_that_is_patched_in_twice_is_told_so(api: Caller) -> None:
    await api.create(MAPS, config_map("a"))
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "b", "uid": "u"}
    answer = await api("PATCH", f"{MAPS}/a", {"metadata": {"ownerReferences": [owner, owner]}}, type=MERGE)
    assert "contains duplicate entries after mutating admission happens; " in answer.headers["warning"]


async def test_review_of_a_name_is_at_no_path(api: Caller) -> None:
    assert (await api("POST", f"{REVIEWS}/selfsubjectrulesreviews/a", {})).status == 404


async def test_what_an_update_writes_is_owned_though_the_server_takes_it_back(api: Caller) -> None:
    leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
    made = await api.create(leases, {"metadata": {"name": "a"}, "spec": {"holderIdentity": "h"}})
    answer = await api("PATCH", f"{leases}/a?fieldManager=m", {"spec": {"preferredHolder": "a"}}, type=MERGE)
    (fields,) = [one["fieldsV1"] for one in answer.json["metadata"]["managedFields"] if one["manager"] == "m"]
    assert fields == {"f:spec": {"f:preferredHolder": {}}}
    assert "preferredHolder" not in answer.json["spec"]
    assert answer.json["metadata"]["resourceVersion"] != made["metadata"]["resourceVersion"]


async def test_port_that_an_update_is_given_is_nobodys(api: Caller) -> None:
    services = "/api/v1/namespaces/default/services"
    await api.create(services, {"metadata": {"name": "s"}, "spec": {"type": "NodePort", "ports": [{"port": 80}]}})
    stored = await api.get(f"{services}/s")
    stored["spec"]["ports"] = [{"port": 81}]
    answer = await api("PUT", f"{services}/s?fieldManager=m", stored)
    (fields,) = [one["fieldsV1"] for one in answer.json["metadata"]["managedFields"] if one["manager"] == "m"]
    (port,) = [value for name, value in fields["f:spec"]["f:ports"].items() if name.startswith("k:")]
    assert answer.json["spec"]["ports"][0]["nodePort"] and "f:nodePort" not in port


async def test_data_of_another_namespace_is_none_for_a_claim(api: Caller) -> None:
    claims = "/api/v1/namespaces/default/persistentvolumeclaims"
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    source = {"apiGroup": "x.y", "kind": "K", "name": "a", "namespace": "n"}
    made = await api.create(claims, {"metadata": {"name": "c"}, "spec": {**spec, "dataSourceRef": source}})
    assert "dataSourceRef" not in made["spec"] and "dataSource" not in made["spec"]


async def test_managers_in_a_configuration_are_refused_before_its_types(api: Caller) -> None:
    applied = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "managedFields": []}, "data": 1}
    answer = await api("PATCH", f"{MAPS}/a?fieldManager=m", applied, type=APPLY)
    assert (answer.status, answer.json["message"]) == (400, "metadata.managedFields must be nil")


async def test_review_of_labels_is_about_labels(api: Caller) -> None:
    labels = {"requirements": [{"key": "x/y/z", "operator": "In", "values": ["a b"]}]}
    attributes = {"verb": "list", "resource": "pods", "labelSelector": labels}
    answer = await api("POST", f"{REVIEWS}/selfsubjectaccessreviews", {"spec": {"resourceAttributes": attributes}})
    place = "spec.resourceAttributes.labelSelector.requirements[0]"
    fields = {cause["field"] for cause in answer.json["details"]["causes"]}
    assert fields == {f"{place}.key", f"{place}.values[0]"}


@pytest.mark.parametrize(
    ("path", "kind", "spec"),
    [
        ("/apis/apps/v1/namespaces/default/daemonsets", "DaemonSet", {}),
        ("/apis/apps/v1/namespaces/default/statefulsets", "StatefulSet", {"serviceName": "s"}),
        ("/apis/apps/v1/namespaces/default/deployments", "ReplicaSet", {}),
    ],
)
async def test_deadline_of_pods_that_never_end_is_refused_for_their_kind(
    api: Caller, path: str, kind: str, spec: Any
) -> None:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {**pod("x")["spec"], "activeDeadlineSeconds": 5}}
    spec = {**spec, "selector": {"matchLabels": {"a": "b"}}, "template": template}
    answer = await api("POST", path, {"metadata": {"name": "a"}, "spec": spec})
    (cause,) = answer.json["details"]["causes"]
    assert cause["message"] == f"Forbidden: activeDeadlineSeconds in {kind} is not Supported"


async def test_field_behind_a_gate_that_is_off_is_dropped_from_a_driver(api: Caller) -> None:
    body = {"metadata": {"name": "x.y"}, "spec": {"preventPodSchedulingIfMissing": True}}
    assert "preventPodSchedulingIfMissing" not in (await api.create("/apis/storage.k8s.io/v1/csidrivers", body))["spec"]


async def test_scale_of_none_has_no_count(api: Caller) -> None:
    path = "/apis/apps/v1/namespaces/default/deployments"
    template = {"metadata": {"labels": {"a": "b"}}, "spec": pod("x")["spec"]}
    spec = {"replicas": 0, "selector": {"matchLabels": {"a": "b"}}, "template": template}
    await api.create(path, {"metadata": {"name": "a"}, "spec": spec})
    assert (await api.get(f"{path}/a/scale"))["spec"] == {}


async def test_update_that_ends_an_object_is_answered_with_the_version_that_it_had(api: Caller) -> None:
    await api.create(MAPS, {"metadata": {"name": "a", "finalizers": ["x.y/z"]}})
    await api("DELETE", f"{MAPS}/a")
    last = (await api.get(f"{MAPS}/a"))["metadata"]["resourceVersion"]
    answer = await api("PATCH", f"{MAPS}/a", {"metadata": {"finalizers": None}}, type=MERGE)
    assert answer.json["metadata"]["resourceVersion"] == last
    assert (await api("GET", f"{MAPS}/a")).status == 404


@pytest.mark.parametrize("what", ["uid", "resourceVersion"])
async def test_deletion_of_another_namespace_is_a_conflict_of_namespaces(api: Caller, what: str) -> None:
    await api.create("/api/v1/namespaces", {"metadata": {"name": "n"}})
    answer = await api("DELETE", "/api/v1/namespaces/n", {"preconditions": {what: "1"}})
    assert (answer.status, answer.json["details"]["kind"]) == (409, "namespaces")
    assert " in precondition: 1, " in answer.json["message"]


async def test_count_of_a_workload_that_was_scaled_to_none_is_held_by_nobody(api: Caller) -> None:
    path = "/apis/apps/v1/namespaces/default/deployments"
    template = {"metadata": {"labels": {"a": "b"}}, "spec": pod("x")["spec"]}
    spec = {"replicas": 2, "selector": {"matchLabels": {"a": "b"}}, "template": template}
    await api.create(path, {"metadata": {"name": "a"}, "spec": spec})
    await api("PATCH", f"{path}/a/scale", {"spec": {"replicas": 0}}, type=MERGE)
    entries = (await api.get(f"{path}/a"))["metadata"]["managedFields"]
    assert not any("f:replicas" in one["fieldsV1"]["f:spec"] for one in entries)
    await api("PATCH", f"{path}/a/scale", {"spec": {"replicas": 3}}, type=MERGE)
    entries = (await api.get(f"{path}/a"))["metadata"]["managedFields"]
    assert not any("f:replicas" in one["fieldsV1"]["f:spec"] for one in entries), (
        "who scales takes over, but begins nothing"
    )


async def test_status_in_a_configuration_is_read_though_it_is_not_set(api: Caller) -> None:
    nodes = "/api/v1/nodes"
    await api.create(nodes, {"metadata": {"name": "a"}})
    applied = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"}, "status": {"capacity": {"cpu": "x"}}}
    answer = await api("PATCH", f"{nodes}/a?fieldManager=m", applied, type=APPLY)
    assert answer.status == 400 and "quantities must match the regular expression" in answer.json["message"]


async def test_leading_zeros_of_an_endpoint_are_told_once(api: Caller) -> None:
    subsets = [{"addresses": [{"ip": "010.1.1.1"}], "ports": [{"port": 80}]}]
    answer = await api("POST", "/api/v1/namespaces/default/endpoints", {"metadata": {"name": "a"}, "subsets": subsets})
    (cause,) = answer.json["details"]["causes"]
    assert cause["message"] == 'Invalid value: "010.1.1.1": must not have leading 0s'


async def test_finalizers_of_a_namespace_are_validated_when_it_is_finalized(api: Caller) -> None:
    await api.create("/api/v1/namespaces", {"metadata": {"name": "n"}})
    body = {"metadata": {"name": "n", "finalizers": ["orphan", "foregroundDeletion"]}}
    answer = await api("PUT", "/api/v1/namespaces/n/finalize", body)
    assert answer.status == 422 and answer.json["details"]["causes"][0]["field"] == "metadata.finalizers"


async def test_patch_takes_over_tolerations_though_admission_adds_what_it_takes_away(api: Caller) -> None:
    body = {"apiVersion": "v1", "kind": "Pod", **pod("p", tolerations=[{"key": "a", "operator": "Exists"}])}
    applied = (await api("PATCH", f"{PODS}/p?fieldManager=m", body, type=APPLY)).json
    answer = await api("PATCH", f"{PODS}/p?fieldManager=n", body, type="application/strategic-merge-patch+json")
    assert answer.json["spec"] == applied["spec"]
    (fields,) = [one["fieldsV1"] for one in answer.json["metadata"]["managedFields"] if one["manager"] == "n"]
    assert fields == {"f:spec": {"f:tolerations": {}}}
