"""PATCH: four content types, their limits and their errors; server-side apply end to end."""

from __future__ import annotations

from typing import Any

import pytest
from api_caller import MAPS, PODS, Caller, config_map, pod

JSON = "application/json-patch+json"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"


@pytest.mark.parametrize(
    ("kind", "body", "expected"),
    [
        (JSON, [{"op": "replace", "path": "/data/k", "value": "2"}], {"k": "2"}),
        (JSON, [{"op": "replace", "path": "/data/x", "value": "2"}], {"k": "1", "x": "2"}),
        (MERGE, {"data": {"k": None, "n": "1"}}, {"n": "1"}),
        (STRATEGIC, {"data": {"n": "1"}}, {"k": "1", "n": "1"}),
        (f"{MERGE}; charset=utf-8", {"data": {"k": "3"}}, {"k": "3"}),
    ],
)
async def test_patch_types_give_expected_data(api: Caller, kind: str, body: Any, expected: dict[str, str]) -> None:
    await api.create(MAPS, config_map("a", k="1"))
    answer = await api("PATCH", f"{MAPS}/a", body, type=kind)
    assert (answer.status, answer.json["data"]) == (200, expected)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"kind": "Pod"}, "/v1, Kind=Pod"),
        ({"apiVersion": "apps/v1"}, "apps/v1, Kind=ConfigMap"),
        ({"apiVersion": None}, "/, Kind=ConfigMap"),
        ({"kind": 1}, "/v1, Kind="),
        ({"apiVersion": "a/b/c"}, "/, Kind="),
    ],
)
async def test_applied_configuration_of_another_type_is_refused(api: Caller, given: Any, told: str) -> None:
    answer = await api("PATCH", f"{MAPS}/a?fieldManager=m", config_map("a") | given, type=APPLY)
    assert (answer.status, answer.json["message"]) == (400, f"invalid object type: {told}")


async def test_strategic_merge_patch_merges_lists_by_key(api: Caller) -> None:
    path = "/apis/apps/v1/namespaces/default/deployments"
    template = {"metadata": {"labels": {"a": "b"}}, "spec": pod("x")["spec"]}
    await api.create(
        path, {"metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template}}
    )
    body = {"spec": {"template": {"spec": {"containers": [{"name": "side", "image": "s"}]}}}}
    patched = (await api("PATCH", f"{path}/d", body, type=STRATEGIC)).json
    assert [c["name"] for c in patched["spec"]["template"]["spec"]["containers"]] == ["side", "main"]


@pytest.mark.parametrize(
    ("kind", "body", "query", "code"),
    [
        ("application/json", {}, "", 415),
        (JSON, b"{", "", 400),
        (JSON, {}, "", 400),
        (MERGE, [], "", 400),
        (JSON, [{"op": "test", "path": "/data/k", "value": "9"}], "", 422),
        (JSON, [{"op": "remove", "path": "/data/none"}], "", 422),
        (JSON, [{"op": "add", "path": "/data/x", "value": "1"}] * 10001, "", 413),
        (MERGE, {"metadata": {"name": "b"}}, "", 400),
        (MERGE, {"metadata": {"resourceVersion": "1"}}, "", 409),
        (MERGE, {"metadata": {"uid": "x"}}, "", 422),
        (MERGE, {"kind": "Secret"}, "", 422),
        (MERGE, {"apiVersion": "v2"}, "", 422),
        (MERGE, {"metadata": None}, "", 400),
        (MERGE, {"data": {"k": 1}}, "", 422),
        (MERGE, {"nope": 1}, "?fieldValidation=Strict", 422),
        (APPLY, {**config_map("a"), "nope": 1}, "?fieldManager=m&fieldValidation=Ignore", 500),
        (MERGE, {}, "?force=true", 422),
        (APPLY, config_map("a"), "", 422),
        (APPLY, {"metadata": {"name": "a"}}, "?fieldManager=m", 400),
        (APPLY, config_map("b"), "?fieldManager=m", 400),
        (APPLY, b"a: [", "?fieldManager=m", 400),
    ],
)
async def test_invalid_patch_is_refused(api: Caller, kind: str, body: Any, query: str, code: int) -> None:
    await api.create(MAPS, config_map("a", k="1"))
    answer = await api("PATCH", f"{MAPS}/a{query}", body, type=kind)
    assert (answer.status, answer.json["code"]) == (code, code), answer.body
    if code == 415:
        assert STRATEGIC in answer.json["message"]


async def test_whole_number_with_a_point_is_an_integer_in_a_strategic_patch(api: Caller) -> None:
    await api.create(PODS, pod("p"))
    body = {"spec": {"activeDeadlineSeconds": 30.0}, "metadata": {"annotations": {"a": "1.0,"}}}
    answer = await api("PATCH", f"{PODS}/p", body, type=STRATEGIC)
    assert (answer.status, answer.json["spec"].get("activeDeadlineSeconds")) == (200, 30), answer.body
    assert (await api("PATCH", f"{PODS}/p", body, type=MERGE)).status == 422


@pytest.mark.parametrize("body", [{"kind": "Secret"}, {"kind": None}, {"apiVersion": "v2"}])
async def test_strategic_patch_says_nothing_of_the_kind_of_its_result(api: Caller, body: Any) -> None:
    await api.create(MAPS, config_map("a", k="1"))
    answer = await api("PATCH", f"{MAPS}/a", {**body, "data": {"k": "2"}}, type=STRATEGIC)
    assert (answer.status, answer.json["kind"], answer.json["data"]) == (200, "ConfigMap", {"k": "2"}), answer.body


async def test_patch_without_kind_leaves_it(api: Caller) -> None:
    await api.create(MAPS, config_map("a"))
    answer = await api("PATCH", f"{MAPS}/a", [{"op": "remove", "path": "/kind"}], type=JSON)
    assert (answer.status, answer.json["kind"]) == (200, "ConfigMap"), answer.body


async def test_patch_with_unknown_strictness_names_its_own_options(api: Caller) -> None:
    await api.create(MAPS, config_map("a"))
    answer = await api("PATCH", f"{MAPS}/a?fieldValidation=Foo", {}, type=MERGE)
    details = answer.json["details"]
    assert (details["kind"], "name" in details) == ("PatchOptions", False)


async def test_dry_run_may_be_asked_for_twice(api: Caller) -> None:
    await api.create(MAPS, config_map("a", k="1"))
    answer = await api("PATCH", f"{MAPS}/a?dryRun=All&dryRun=All", {"data": {"k": "2"}}, type=MERGE)
    assert (answer.status, answer.json["data"], (await api.get(f"{MAPS}/a"))["data"]) == (200, {"k": "2"}, {"k": "1"})


async def test_patch_of_missing_object_is_not_found(api: Caller) -> None:
    assert (await api("PATCH", f"{MAPS}/a", {}, type=MERGE)).status == 404


async def apply(api: Caller, obj: Any, manager: str = "one", query: str = "") -> Any:
    path = f"{MAPS}/{obj['metadata']['name']}?fieldManager={manager}{query}"
    return await api("PATCH", path, obj, type=APPLY)


async def test_apply_creates_object_and_managed_fields(api: Caller) -> None:
    answer = await apply(api, config_map("a", k="1"))
    assert answer.status == 201
    (entry,) = answer.json["metadata"]["managedFields"]
    assert (entry["manager"], entry["operation"], entry["fieldsV1"]) == ("one", "Apply", {"f:data": {"f:k": {}}})
    again = await apply(api, config_map("a", k="1"))
    assert (again.status, again.json) == (200, answer.json)


async def test_apply_accepts_yaml(api: Caller) -> None:
    body = b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {k: v}\n"
    assert (await api("PATCH", f"{MAPS}/a?fieldManager=m", body, type=APPLY)).status == 201


async def test_apply_conflict_is_reported_until_forced(api: Caller) -> None:
    await apply(api, config_map("a", k="1"), "one")
    answer = await apply(api, config_map("a", k="2"), "two")
    assert (answer.status, answer.json["reason"]) == (409, "Conflict")
    assert answer.json["message"] == 'Apply failed with 1 conflict: conflict with "one": .data.k'
    (cause,) = answer.json["details"]["causes"]
    assert (cause["reason"], cause["field"]) == ("FieldManagerConflict", ".data.k")
    forced = await apply(api, config_map("a", k="2"), "two", "&force=true")
    assert forced.json["data"] == {"k": "2"}
    assert [e["manager"] for e in forced.json["metadata"]["managedFields"]] == ["two"]


async def test_apply_removes_fields_no_longer_applied(api: Caller) -> None:
    await apply(api, config_map("a", k="1", n="1"))
    assert (await apply(api, config_map("a", n="1"))).json["data"] == {"n": "1"}


async def test_apply_to_status_changes_only_status(api: Caller) -> None:
    await api.create(PODS, pod("a"))
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "status": {"message": "hello"}}
    answer = await api("PATCH", f"{PODS}/a/status?fieldManager=m", body, type=APPLY)
    assert (answer.status, answer.json["status"]["message"]) == (200, "hello")
    entry = next(e for e in answer.json["metadata"]["managedFields"] if e["manager"] == "m")
    assert entry["subresource"] == "status"
    assert (await api("PATCH", f"{PODS}/none/status?fieldManager=m", body, type=APPLY)).status in (400, 404)


async def test_apply_with_uid_does_not_create(api: Caller) -> None:
    obj = config_map("a")
    obj["metadata"]["uid"] = "x"
    answer = await apply(api, obj)
    assert (answer.status, answer.json["message"]) == (
        409,
        'Operation cannot be fulfilled on configmaps "a": '
        "uid mismatch: the provided object specified uid x, and no existing object was found",
    )
    del obj["metadata"]["uid"]
    obj["metadata"]["resourceVersion"] = "5"
    assert (await apply(api, obj)).status == 201


NAMELESS = "the name of the object (a based on URL) was undeterminable: name must be provided"
OTHER_NAME = "the name of the object (b) does not match the name on the URL (a)"
OTHER_NAMESPACE = "the namespace of the provided object does not match the namespace sent on the request"


@pytest.mark.parametrize("exists", [False, True])
@pytest.mark.parametrize(
    ("metadata", "code", "message"),
    [
        ({"name": None}, 400, NAMELESS),
        ({"name": ""}, 400, NAMELESS),
        ({"name": "b"}, 400, OTHER_NAME),
        ({"name": "b", "resourceVersion": "1"}, 400, OTHER_NAME),
        ({"name": "b", "namespace": "c"}, 400, OTHER_NAMESPACE),
        ({"name": "a", "namespace": ""}, 200, None),
        (
            {"name": 5},
            500,
            "failed to create typed patch object (/; /v1, Kind=ConfigMap): .metadata.name: expected string, "
            "got &value.valueUnstructured{Value:5}",
        ),
        ("x", 500, "failed to create typed patch object (/; /v1, Kind=ConfigMap): .metadata: expected map, got &{x}"),
    ],
)
async def test_applied_name_and_namespace_are_those_of_the_path(
    api: Caller, metadata: Any, code: int, message: str | None, exists: bool
) -> None:
    if exists:
        await api.create(MAPS, config_map("a"))
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
    answer = await api("PATCH", f"{MAPS}/a?fieldManager=m", body, type=APPLY)
    assert (answer.status, answer.json.get("message")) == (code if code != 200 or exists else 201, message)


async def test_apply_without_a_name_changes_what_is_there_and_creates_nothing(api: Caller) -> None:
    body: dict[str, Any] = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"k": "1"}}
    answer = await api("PATCH", f"{MAPS}/a?fieldManager=m", body, type=APPLY)
    assert (answer.status, answer.json["message"]) == (400, NAMELESS)
    await api.create(MAPS, config_map("a"))
    answer = await api("PATCH", f"{MAPS}/a?fieldManager=m", body, type=APPLY)
    assert (answer.status, answer.json["data"]) == (200, {"k": "1"})


@pytest.mark.parametrize("version", [None, ""])
async def test_object_that_lost_its_version_by_a_patch_has_no_name(api: Caller, version: str | None) -> None:
    await api.create(MAPS, config_map("a"))
    answer = await api("PATCH", f"{MAPS}/a", {"apiVersion": version}, type=MERGE)
    assert (answer.status, answer.json["message"]) == (400, NAMELESS)


async def test_merge_patch_takes_name_and_namespace_as_they_are(api: Caller) -> None:
    await api.create(MAPS, config_map("a"))
    for metadata, message in (
        ({"name": ""}, NAMELESS),
        ({"name": "b", "resourceVersion": "1"}, OTHER_NAME),
        ({"name": "b", "namespace": "c"}, OTHER_NAMESPACE),
    ):
        answer = await api("PATCH", f"{MAPS}/a", {"metadata": metadata}, type=MERGE)
        assert (answer.status, answer.json["message"]) == (400, message)


@pytest.mark.parametrize("entries", [[{}], []])
async def test_managed_fields_can_be_reset(api: Caller, entries: list[Any]) -> None:
    await apply(api, config_map("a", k="1"))
    body: dict[str, Any] = {"metadata": {"managedFields": entries}}
    patched = await api("PATCH", f"{MAPS}/a", body, type=MERGE)
    assert not patched.json["metadata"].get("managedFields")


async def test_empty_list_with_keys_is_nobodys_when_it_is_applied(api: Caller) -> None:
    given = {"name": "main", "image": "b:1", "env": [], "args": []}
    obj = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [given]}}
    answer = await api("PATCH", f"{PODS}/p?fieldManager=one", obj, type=APPLY)
    (entry,) = answer.json["metadata"]["managedFields"]
    (container,) = entry["fieldsV1"]["f:spec"]["f:containers"].values()
    assert sorted(container) == [".", "f:args", "f:image", "f:name"]


TEMPLATES = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaimtemplates"


async def test_repeated_apply_with_defaulted_list_changes_nothing(api: Caller) -> None:
    requests = [{"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com"}}]
    template: dict[str, Any] = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "t"},
        "spec": {"spec": {"devices": {"requests": requests}}},
    }
    path = f"{TEMPLATES}/t?fieldManager=m"
    first = await api("PATCH", path, template, type=APPLY)
    assert first.status == 201, first.body
    assert first.json["spec"]["spec"]["devices"]["requests"][0]["exactly"]["count"] == 1
    api.clock.advance(minutes=1)
    again = await api("PATCH", path, template, type=APPLY)
    assert (again.status, again.json) == (200, first.json)
    template["metadata"]["annotations"] = {"a": "b"}
    changed = await api("PATCH", path, template, type=APPLY)
    (entry,) = changed.json["metadata"]["managedFields"]
    assert entry["time"] > first.json["metadata"]["managedFields"][0]["time"]


JOBS = "/apis/batch/v1/namespaces/default/jobs"


async def test_fields_added_by_server_are_not_owned_by_creator(api: Caller) -> None:
    """kubectl gives an applier all that the creator held: it must not lose what it never knew of."""
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "j"},
        "spec": {"template": {"spec": {**pod("x")["spec"], "restartPolicy": "Never"}}},
    }
    created = await api("POST", f"{JOBS}?fieldManager=kubectl-client-side-apply", job)
    assert created.json["spec"]["selector"]["matchLabels"]
    (entry,) = created.json["metadata"]["managedFields"]
    assert "f:selector" not in entry["fieldsV1"]["f:spec"]
    assert "f:metadata" not in entry["fieldsV1"]["f:spec"]["f:template"]
    migrated = [{**entry, "manager": "kubectl", "operation": "Apply"}]
    move = [{"op": "replace", "path": "/metadata/managedFields", "value": migrated}]
    assert (await api("PATCH", f"{JOBS}/j", move, type="application/json-patch+json")).status == 200
    applied = await api("PATCH", f"{JOBS}/j?fieldManager=kubectl", job, type=APPLY)
    assert applied.status == 200, applied.body
    assert applied.json["spec"]["selector"] == created.json["spec"]["selector"]
    made = await api("POST", f"{PODS}?fieldManager=m", pod("p"))
    (entry,) = made.json["metadata"]["managedFields"]
    assert not entry["fieldsV1"]["f:spec"].keys() & {"f:tolerations", "f:priority", "f:serviceAccountName"}


async def test_patch_may_change_to_another_version(api: Caller) -> None:
    """And where it does not say which, or what it writes is none, it is refused."""
    path = "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers"
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "a"}
    spec = {"scaleTargetRef": target, "maxReplicas": 3, "targetCPUUtilizationPercentage": 50}
    await api.create(path, {"metadata": {"name": "b"}, "spec": spec})
    metric = {
        "type": "Resource",
        "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 70}},
    }
    newer = {"apiVersion": "autoscaling/v2", "spec": {"metrics": [metric], "targetCPUUtilizationPercentage": None}}
    changed = await api("PATCH", f"{path}/b", newer, type="application/merge-patch+json")
    assert (changed.status, changed.json["spec"]["targetCPUUtilizationPercentage"]) == (200, 70)
    assert changed.json["apiVersion"] == "autoscaling/v1"
    for odd, status in (
        ({"apiVersion": ["v1"]}, 422),
        ({"apiVersion": "autoscaling/v9"}, 422),
        ({**newer, "metadata": {"annotations": "1Gi"}}, 422),
    ):
        refused = await api("PATCH", f"{path}/b", odd, type="application/merge-patch+json")
        assert refused.status == status, refused.body


@pytest.mark.parametrize(
    ("replicas", "cpu", "conflict"),
    [
        (2, "1", ""),
        (None, "1", ".spec.replicas"),
        (2, "1000m", '.spec.template.spec.containers[name="main"].resources.limits.cpu'),
        (2, "none", '.spec.template.spec.containers[name="main"].resources.limits.cpu'),
        (2, None, '.spec.template.spec.containers[name="main"].resources.limits.cpu'),
    ],
)
async def test_configuration_conflicts_as_it_was_sent(
    api: Caller, replicas: int | None, cpu: str | None, conflict: str
) -> None:
    def body(replicas: int | None, cpu: str | None) -> Any:
        container = {"name": "main", "image": "x", "resources": {"limits": {"cpu": cpu}}}
        template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [container]}}
        spec = {"replicas": replicas, "selector": {"matchLabels": {"a": "b"}}, "template": template}
        return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": spec}

    path = "/apis/apps/v1/namespaces/default/deployments/d"
    assert (await api("PATCH", f"{path}?fieldManager=one", body(2, "1000m"), type=APPLY)).status == 201
    answer = await api("PATCH", f"{path}?fieldManager=two", body(replicas, cpu), type=APPLY)
    if not conflict:
        assert answer.status == 200, answer.body
        return
    assert answer.status == 409
    assert [cause["field"] for cause in answer.json["details"]["causes"]] == [conflict]
