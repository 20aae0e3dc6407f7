"""Custom resources: served as their definition says, from the moment that it was written."""

from __future__ import annotations

from typing import Any

import pytest
from api_caller import Caller
from custom_objects import DEFINITIONS, NAME, TRAININGS, define, definition, training, version, with_schema

from haru.cel import definition_rules
from haru.kube.custom import schema_checks
from waiting import until

MERGE = "application/merge-patch+json"
APPLY = "application/apply-patch+yaml"


async def test_custom_resource_is_served_immediately_after_definition(api: Caller) -> None:
    assert (await api("GET", TRAININGS)).status == 404
    await define(api)
    assert (await api("GET", TRAININGS)).json["kind"] == "TrainingList"
    stored = (await api("GET", f"{DEFINITIONS}/{NAME}")).json
    assert {c["type"]: c["status"] for c in stored["status"]["conditions"]} == {
        "NamesAccepted": "True",
        "Established": "True",
    }
    assert stored["status"]["storedVersions"] == ["v1"]
    assert stored["spec"]["names"]["listKind"] == "TrainingList"
    assert stored["spec"]["names"]["singular"] == "training"
    assert stored["status"]["acceptedNames"] == stored["spec"]["names"]
    resources = (await api("GET", "/apis/ml.example.com/v1")).json["resources"]
    assert [r["name"] for r in resources] == ["trainings", "trainings/scale", "trainings/status"]
    assert resources[0]["shortNames"] == ["tr"]
    groups = [group["name"] for group in (await api("GET", "/apis")).json["groups"]]
    assert groups[-1] == "ml.example.com"


async def test_new_object_has_the_default_status_of_its_schema(api: Caller) -> None:
    conditions = {"type": "array", "items": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    status = {
        "type": "object",
        "default": {"conditions": [{"type": "Accepted", "status": "Unknown"}]},
        "properties": {"conditions": conditions, "observedGeneration": {"type": "integer", "default": -1}},
    }
    spec = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    with_status = with_schema(
        {"type": "object", "properties": {"spec": spec, "status": status}}, subresources={"status": {}}
    )
    await define(api, with_status)
    expected = {"conditions": [{"type": "Accepted", "status": "Unknown"}], "observedGeneration": -1}
    given = training() | {"status": {"observedGeneration": 7}}
    tried = await api("POST", f"{TRAININGS}?dryRun=All", given)
    made = await api("POST", TRAININGS, given)
    assert (tried.json["status"], made.json["status"]) == (expected, expected)
    assert (await api("GET", f"{TRAININGS}/t")).json == made.json
    changed = await api("PATCH", f"{TRAININGS}/t", {"spec": {"model": "other"}}, type=MERGE)
    assert changed.json["status"] == expected
    applied = await api("PATCH", f"{TRAININGS}/u?fieldManager=m", training("u"), type=APPLY)
    assert applied.json["status"] == expected


async def test_new_finalizers_without_a_domain_are_warned_of(api: Caller) -> None:
    await define(api)
    rest = "to avoid accidental conflicts with other finalizer writers"
    expected = {
        "orphan": None,
        "example.com/fine": None,
        "short": f"prefer a domain-qualified finalizer name {rest}",
        "b.example.com": f"prefer a domain-qualified finalizer name including a path (/) {rest}",
    }
    for number, (finalizer, message) in enumerate(expected.items()):
        given = training(f"t{number}")
        given["metadata"]["finalizers"] = [finalizer]
        made = await api("POST", TRAININGS, given)
        told = message and f'299 - "metadata.finalizers: \\"{finalizer}\\": {message}"'
        assert made.headers.get("warning") == told
        changes = {"metadata": {"finalizers": [finalizer, "example.com/more"]}}
        changed = await api("PATCH", f"{TRAININGS}/t{number}", changes, type=MERGE)
        assert "warning" not in changed.headers


async def test_custom_objects_are_pruned_and_defaulted(api: Caller) -> None:
    await define(api)
    given = training(stages=[{"name": "a"}], free={"any": {"thing": 1}}, note=None, unknown=1, labels={"a": "b"})
    given["other"] = {"x": 1}
    made = await api("POST", TRAININGS, given)
    assert made.status == 201, made.json
    assert made.json["spec"] == {
        "model": "llm",
        "replicas": 2,
        "strategy": "Safe",
        "stages": [{"name": "a", "steps": 10}],
        "free": {"any": {"thing": 1}},
        "note": None,
        "labels": {"a": "b"},
    }
    assert "other" not in made.json and "status" not in made.json
    assert "unknown field" in made.headers["warning"]
    assert made.json["metadata"]["generation"] == 1
    read = (await api("GET", f"{TRAININGS}/t")).json
    assert read == made.json
    strict = await api("POST", f"{TRAININGS}?fieldValidation=Strict", given | {"metadata": {"name": "u"}})
    assert strict.status == 400
    assert 'strict decoding error: unknown field "other", unknown field "spec.unknown"' in strict.json["message"]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"model": 5}, 'spec.model: Invalid value: "integer": spec.model in body must be of type string: "integer"'),
        ({"model": "x"}, 'spec.model: Invalid value: "x": spec.model in body should be at least 2 chars long'),
        ({"model": "abcdefghijk"}, "spec.model: Too long: may not be more than 10 bytes"),
        ({"model": "ab1"}, "spec.model: Invalid value: \"ab1\": spec.model in body should match '^[a-z]+$'"),
        ({"replicas": 9}, "spec.replicas: Invalid value: 9: spec.replicas in body should be less than or equal to 8"),
        (
            {"replicas": 0},
            "spec.replicas: Invalid value: 0: spec.replicas in body should be greater than or equal to 1",
        ),
        ({"rate": 0}, "spec.rate: Invalid value: 0: spec.rate in body should be greater than 0"),
        ({"rate": 0.7}, "spec.rate: Invalid value: 0.7: spec.rate in body should be a multiple of 0.5"),
        ({"strategy": "Slow"}, 'spec.strategy: Unsupported value: "Slow": supported values: "Fast", "Safe"'),
        ({"port": True}, 'spec.port in body must be of type integer,string: "boolean"'),
        ({"zones": ["a", "b", "c", "d"]}, "spec.zones: Too many: 4: must have at most 3 items"),
        ({"zones": ["a", "a"]}, 'spec.zones[1]: Duplicate value: "a"'),
        ({"stages": [{"name": "a"}, {"name": "a"}]}, 'spec.stages[1]: Duplicate value: {"name":"a"}'),
        ({"stages": [{}]}, "spec.stages[0].name: Required value"),
        (
            {"stages": [{"name": "a", "when": "now"}]},
            'spec.stages[0].when: Invalid value: "now": spec.stages[0].when in body must be of type date-time: "now"',
        ),
        ({"labels": {"a": "1", "b": "2", "c": "3"}}, "spec.labels: Too many: 3: must have at most 2 items"),
        ({"labels": {"a": 1}}, 'spec.labels.a in body must be of type string: "integer"'),
        (
            {"source": {"git": "a", "image": "b"}},
            '"spec.source" must validate one and only one schema (oneOf). Found 2 valid alternatives',
        ),
        ({"source": {}}, '"spec.source" must validate one and only one schema (oneOf). Found none valid'),
        (
            {"replicas": 1.5},
            '[spec.replicas: Invalid value: "number": spec.replicas in body must be of type integer: "number", <nil>: '
            'Invalid value: "": Checked value must be of type integer (default format) in spec.replicas, ',
        ),
    ],
)
async def test_schema_violations_are_refused(api: Caller, spec: dict[str, Any], message: str) -> None:
    await define(api)
    answer = await api("POST", TRAININGS, training(**spec))
    assert (answer.status, answer.json["reason"]) == (422, "Invalid")
    assert message in answer.json["message"]
    assert answer.json["message"].startswith('Training.ml.example.com "t" is invalid: ')


async def test_missing_required_fields_and_invalid_metadata_are_refused(api: Caller) -> None:
    await define(api)
    answer = await api("POST", TRAININGS, {**training(), "spec": {}})
    assert answer.json["message"] == 'Training.ml.example.com "t" is invalid: spec.model: Required value'
    assert answer.json["details"]["causes"] == [
        {"reason": "FieldValueRequired", "message": "Required value", "field": "spec.model"}
    ]
    assert (await api("POST", TRAININGS, {**training(), "kind": "Other"})).status == 422
    assert (await api("POST", TRAININGS, {**training(), "metadata": {"name": "Bad_Name"}})).status == 422
    assert (await api("POST", TRAININGS, {**training(), "metadata": {"name": "a", "labels": 5}})).status == 400


async def test_status_subresource_and_generation_are_separate(api: Caller) -> None:
    await define(api)
    made = (await api("POST", TRAININGS, training())).json
    ignored = await api("PATCH", f"{TRAININGS}/t", {"status": {"phase": "Running"}}, type=MERGE)
    assert "status" not in ignored.json
    changed = await api(
        "PATCH", f"{TRAININGS}/t/status", {"status": {"phase": "Up"}, "spec": {"replicas": 5}}, type=MERGE
    )
    assert (changed.json["status"], changed.json["spec"]["replicas"]) == ({"phase": "Up"}, 2)
    assert changed.json["metadata"]["generation"] == 1
    spec = await api("PATCH", f"{TRAININGS}/t", {"spec": {"replicas": 5}}, type=MERGE)
    assert (spec.json["metadata"]["generation"], spec.json["status"]) == (2, {"phase": "Up"})
    wrong = await api("PATCH", f"{TRAININGS}/t/status", {"status": {"replicas": "x"}}, type=MERGE)
    mistake = 'status.replicas: Invalid value: "string": replicas in body must be of type integer: "string"'
    assert mistake in wrong.json["message"]
    body = {**made, "metadata": {"name": "t"}}
    without = await api("PUT", f"{TRAININGS}/t", body)
    assert without.status == 422
    assert "metadata.resourceVersion: Invalid value: 0: must be specified for an update" in without.json["message"]
    assert (await api("PUT", f"{TRAININGS}/t", made)).status == 409


async def test_scale_subresource_follows_its_paths(api: Caller) -> None:
    await define(api)
    await api("POST", TRAININGS, training(replicas=3))
    await api("PATCH", f"{TRAININGS}/t/status", {"status": {"replicas": 1, "selector": "a=b"}}, type=MERGE)
    scale = (await api("GET", f"{TRAININGS}/t/scale")).json
    assert (scale["kind"], scale["spec"], scale["status"]) == (
        "Scale",
        {"replicas": 3},
        {"replicas": 1, "selector": "a=b"},
    )
    patched = await api("PATCH", f"{TRAININGS}/t/scale", {"spec": {"replicas": 7}}, type=MERGE)
    assert patched.json["spec"] == {"replicas": 7}
    assert (await api("GET", f"{TRAININGS}/t")).json["spec"]["replicas"] == 7
    refused = await api("PATCH", f"{TRAININGS}/t/scale", {"spec": {"replicas": 70}}, type=MERGE)
    assert refused.status == 422


@pytest.mark.parametrize("spec", [{}, None])
async def test_custom_resource_without_a_count_has_no_scale_until_one_is_written(api: Caller, spec: Any) -> None:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    await define(api, definition(version(schema={"openAPIV3Schema": schema}, selectableFields=[])))
    assert (await api("POST", TRAININGS, training() | {"spec": spec})).status == 201
    missing = await api("GET", f"{TRAININGS}/t/scale")
    assert (missing.status, missing.json["reason"]) == (500, "InternalError")
    assert missing.json["message"].endswith('the spec replicas field ".spec.replicas" does not exist')
    applied = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "t"}}
    for body, type in (({"metadata": {}}, MERGE), (applied, APPLY)):
        empty = await api("PATCH", f"{TRAININGS}/t/scale?fieldManager=m", body, type=type)
        assert (empty.status, empty.json["message"]) == (
            400,
            'the spec replicas field ".spec.replicas" cannot be empty',
        )
    written = await api("PATCH", f"{TRAININGS}/t/scale", {"spec": {"replicas": 2}}, type=MERGE)
    assert (await api("GET", f"{TRAININGS}/t/scale")).json["spec"] == written.json["spec"] == {"replicas": 2}


async def test_count_of_another_type_has_no_scale(api: Caller) -> None:
    paths = {"specReplicasPath": ".spec.items", "statusReplicasPath": ".status.replicas"}
    made = with_schema({"type": "object", PRESERVES: True})
    other = {**made["spec"]["versions"][0], "name": "v2", "storage": False, "subresources": {"scale": paths}}
    made["spec"]["versions"].append(other)
    await define(api, made)
    await api.create(TRAININGS, training() | {"spec": {"items": [1, "a"]}})
    answer = await api("GET", f"{TRAININGS.replace('/v1/', '/v2/')}/t/scale")
    assert (answer.status, answer.json["message"]) == (500, "Internal error occurred: .spec.items is no whole number")


async def test_apply_of_a_status_owns_no_metadata(api: Caller) -> None:
    await define(api)
    made = await api.create(TRAININGS, training())
    body = training() | {"metadata": {"name": "t", "labels": {"a": "b"}, "finalizers": ["a.b/c"]}}
    nothing = await api("PATCH", f"{TRAININGS}/t/status?fieldManager=a", body, type=APPLY)
    assert (nothing.status, nothing.json) == (200, made)
    body["status"] = {"phase": "Up"}
    for manager in ("a", "b"):
        answer = await api("PATCH", f"{TRAININGS}/t/status?fieldManager={manager}", body, type=APPLY)
        (owned,) = [one for one in answer.json["metadata"]["managedFields"] if one["manager"] == manager]
        assert owned["fieldsV1"] == {"f:status": {"f:phase": {}}} and "labels" not in answer.json["metadata"]


async def test_apply_that_changes_nothing_is_no_new_generation_in_another_version(api: Caller) -> None:
    numbers = {name: {"type": "integer"} for name in "ab"}
    spec: dict[str, Any] = {"type": "object", "properties": {**numbers, "c": {"type": "integer", "default": 2}}}
    status = {"type": "object", "properties": {"phase": {"type": "string"}}}
    first, second = (
        {"openAPIV3Schema": {"type": "object", "properties": {"spec": one, "status": status}}}
        for one in ({"type": "object", "properties": numbers}, spec)
    )
    versions = version(schema=first), version("v2", schema=second, storage=False)
    await define(api, definition(*({**one, "selectableFields": []} for one in versions)))
    body = training() | {"spec": {"a": 1}}
    await api.create(TRAININGS, body)
    path, body["apiVersion"] = TRAININGS.replace("/v1/", "/v2/"), body["apiVersion"].replace("v1", "v2")
    for _ in range(2):
        answer = await api("PATCH", f"{path}/t?fieldManager=m", body, type=APPLY)
        assert (answer.status, answer.json["metadata"]["generation"]) == (200, 1)
    ignored = await api("PATCH", f"{path}/t?fieldManager=m", {**body, "status": {"phase": "x"}}, type=APPLY)
    assert ignored.json["metadata"]["generation"] == 2
    body["spec"] = {"a": 2}
    answer = await api("PATCH", f"{path}/t?fieldManager=m&force=1", body, type=APPLY)
    assert (answer.json["spec"], answer.json["metadata"]["generation"]) == ({"a": 2}, 3)


async def test_update_that_changes_nothing_is_none_to_a_rule_about_the_whole_object(api: Caller) -> None:
    rule = {"rule": "self == oldSelf", "message": "no"}
    await define(api, with_schema({"type": "object", PRESERVES: True, "x-kubernetes-validations": [rule]}))
    made = await api.create(TRAININGS, training() | {"spec": {"a": 1}})
    metadata = {**made["metadata"], "managedFields": None}
    assert (await api("PUT", f"{TRAININGS}/t", {**made, "metadata": metadata})).status == 200
    metadata["labels"] = {"a": "b"}
    assert (await api("PUT", f"{TRAININGS}/t", {**made, "metadata": metadata})).status == 422


async def test_rule_that_unchanged_values_break_is_a_warning(api: Caller) -> None:
    rule = {"rule": "self > 1", "message": "tiny"}
    number = {"type": "integer"}
    spec = {"properties": {"n": number, "list": {"type": "array", "items": number}, "other": number}, "type": "object"}
    whole = {"type": "object", "properties": {"spec": spec}}
    await define(api, with_schema(whole))
    made = await api.create(TRAININGS, training() | {"spec": {"n": 1, "list": [0], "other": 5}})
    live = await api.get(f"{DEFINITIONS}/{NAME}")
    schema = live["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    ruled_spec = schema["properties"]["spec"]["properties"]
    ruled_spec["n"]["x-kubernetes-validations"] = ruled_spec["list"]["items"]["x-kubernetes-validations"] = [rule]
    assert (await api("PUT", f"{DEFINITIONS}/{NAME}", live)).status == 200
    path = f"{TRAININGS}/{made['metadata']['name']}"
    changed = await api("PATCH", path, {"spec": {"other": 6}}, type=MERGE)
    assert changed.status == 200, changed.json
    assert changed.headers["warning"] == '299 - "spec.list[0]: Invalid value: 0: tiny"'  # the last header
    refused = await api("PATCH", path, {"spec": {"list": [0, 3]}}, type=MERGE)
    assert refused.status == 422 and "spec.list[0]: Invalid value: 0: tiny" in refused.json["message"]
    assert "spec.n" not in refused.json["message"]
    mended = await api("PATCH", path, {"spec": {"list": [2]}}, type=MERGE)
    assert mended.headers["warning"] == '299 - "spec.n: Invalid value: 1: tiny"'


async def test_count_that_the_schema_does_not_know_is_not_kept(api: Caller) -> None:
    paths = {"specReplicasPath": ".spec.unknown", "statusReplicasPath": ".status.replicas"}
    await define(api, definition(version(subresources={"scale": paths})))
    made = await api.create(TRAININGS, training())
    answer = await api("PATCH", f"{TRAININGS}/t/scale", {"spec": {"replicas": 1}}, type=MERGE)
    assert (answer.status, answer.json["spec"]) == (200, {})
    assert (await api("GET", f"{TRAININGS}/t/scale")).status == 500
    kept = (await api("GET", f"{TRAININGS}/t")).json
    assert (kept["spec"], kept["metadata"]["managedFields"]) == (made["spec"], made["metadata"]["managedFields"])


async def test_apply_that_creates_does_not_look_at_the_status(api: Caller) -> None:
    await define(api)
    body = training() | {"status": {"phase": None, "replicas": None}}
    missing = await api("PATCH", f"{TRAININGS}/t/status?fieldManager=a", {**body, "status": []}, type=APPLY)
    assert missing.status == 404
    made = await api("PATCH", f"{TRAININGS}/t?fieldManager=a", body, type=APPLY)
    assert (made.status, "status" in made.json) == (201, False)


async def test_server_side_apply_merges_by_schema(api: Caller) -> None:
    await define(api)

    async def applied(manager: str, **spec: Any) -> Any:
        body = training(**spec)
        return await api("PATCH", f"{TRAININGS}/t?fieldManager={manager}", body, type=APPLY)

    assert (await applied("one", stages=[{"name": "a", "steps": 1}], zones=["x"])).status == 201
    both = await applied("two", stages=[{"name": "b", "steps": 2}], zones=["y"])
    assert both.status == 200, both.json
    assert both.json["spec"]["zones"] == ["x", "y"]
    assert both.json["spec"]["stages"] == [{"name": "a", "steps": 1}, {"name": "b", "steps": 2}]
    conflict = await applied("two", stages=[{"name": "a", "steps": 9}])
    assert conflict.status == 409
    assert '.spec.stages[name="a"].steps' in conflict.json["message"]
    strategic = await api("PATCH", f"{TRAININGS}/t", {}, type="application/strategic-merge-patch+json")
    assert strategic.status == 415
    wrong = await applied("two", replicas="x", zones=["y", "y"])
    assert (wrong.status, wrong.json["message"]) == (
        500,
        "failed to create typed patch object (/t; ml.example.com/v1, Kind=Training): errors:\n"
        "  .spec.replicas: expected numeric (int or float), got string\n"
        '  .spec.zones: duplicate entries for key [="y"]',
    )


async def test_managed_fields_escape_what_go_escapes_in_keys_and_values(api: Caller) -> None:
    await define(api)
    body = training(stages=[{"name": "a>b", "steps": 1}], zones=["<&>"])
    made = await api("PATCH", f"{TRAININGS}/t?fieldManager=one", body, type=APPLY)
    (entry,) = made.json["metadata"]["managedFields"]
    owned = entry["fieldsV1"]["f:spec"]
    assert set(owned["f:zones"]) == {'v:"\\u003c\\u0026\\u003e"'}
    assert set(owned["f:stages"]) == {'k:{"name":"a\\u003eb"}'}
    body["spec"]["stages"][0]["steps"] = 2
    clash = await api("PATCH", f"{TRAININGS}/t?fieldManager=two", body, type=APPLY)
    assert '.spec.stages[name="a>b"].steps' in clash.json["message"]


NULLS: list[tuple[dict[str, Any], str]] = [
    ({"model": "ab", "rate": None}, "rate: number"),
    ({"model": "ab", "port": None}, "port: integer,string"),
    ({"model": "ab", "labels": {"a": None}}, "labels.a: string"),
    ({"model": "ab", "stages": [{"name": "a", "when": None}]}, "stages[0].when: string"),
    ({"model": "ab", "stages": [{"name": None}]}, "stages[0].name: string"),
    ({"model": "ab", "source": {"git": None}}, "source.git: string"),
]


@pytest.mark.parametrize("is_there", [False, True])
@pytest.mark.parametrize(("spec", "where"), NULLS)
async def test_applied_null_that_means_nothing_is_refused(
    api: Caller, spec: dict[str, Any], where: str, is_there: bool
) -> None:
    await define(api)
    if is_there:
        await api.create(TRAININGS, training(labels={"a": "x"}, source={"git": "x"}))
    path, _, type_ = f"spec.{where}".partition(": ")
    answer = await api("PATCH", f"{TRAININGS}/t?fieldManager=m&force=true", training(**spec), type=APPLY)
    assert answer.status == 422, answer.json
    assert answer.json["details"]["causes"] == [
        {
            "reason": "FieldValueTypeInvalid",
            "message": f'Invalid value: "null": {path} in body must be of type {type_}: "null"',
            "field": path,
        }
    ]


async def test_applied_null_may_stand_for_a_default_and_created_nulls_are_left_out(api: Caller) -> None:
    await define(api)
    wanted = training(model="ab", replicas=None, note=None)
    applied = await api("PATCH", f"{TRAININGS}/t?fieldManager=m", wanted, type=APPLY)
    assert (applied.status, applied.json["spec"]) == (
        201,
        {"model": "ab", "replicas": 2, "note": None, "strategy": "Safe"},
    )
    status = {**wanted, "spec": {"model": "ab"}, "status": {"phase": None}}
    answer = await api("PATCH", f"{TRAININGS}/t/status?fieldManager=m", status, type=APPLY)
    assert (answer.status, answer.json["details"]["causes"][0]["field"]) == (422, "status.phase")
    named = {**training(model="ab", rate=None), "metadata": {"name": "u"}}
    assert "rate" not in (await api.create(TRAININGS, named))["spec"]


async def test_embedded_metadata_of_a_wrong_type_are_refused(api: Caller) -> None:
    embedded = {"type": "object", "x-kubernetes-embedded-resource": True, "x-kubernetes-preserve-unknown-fields": True}
    await define(api, with_schema({"type": "object", "properties": {"object": embedded}}))
    inner = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": 5}}
    answer = await api("POST", TRAININGS, {**training(), "spec": None, "object": inner})
    assert (answer.status, answer.json["message"]) == (
        400,
        'Training in version "v1" cannot be handled as a Training: object.metadata: Invalid value: {"name":5}: '
        "json: cannot unmarshal number into Go struct field ObjectMeta.name of type string",
    )


async def test_list_of_custom_objects_is_of_the_kind_that_the_definition_names(api: Caller) -> None:
    made = definition()
    made["spec"]["names"]["listKind"] = "TrainingSet"
    await define(api, made)
    assert (await api.get(TRAININGS))["kind"] == "TrainingSet"
    schemas = (await api.get("/openapi/v3/apis/ml.example.com/v1"))["components"]["schemas"]
    assert "com.example.ml.v1.TrainingSet" in schemas


async def test_names_of_custom_objects_are_judged_by_the_schema(api: Caller) -> None:
    name = {"type": "string", "pattern": "^a"}
    schema = {"type": "object", "properties": {"metadata": {"type": "object", "properties": {"name": name}}}}
    await define(api, with_schema(schema))
    answer = await api("POST", TRAININGS, training("b"))
    assert answer.json["details"]["causes"] == [
        {
            "field": "metadata.name",
            "reason": "FieldValueInvalid",
            "message": "Invalid value: \"b\": metadata.name in body should match '^a'",
        }
    ]
    assert (await api("POST", TRAININGS, training("a"))).status == 201


async def test_openapi_tells_what_a_definition_leaves_unsaid(api: Caller) -> None:
    either, numbers = [{"type": "integer"}, {"type": "string"}], [{"minimum": 1}]
    int_or_string = {"x-kubernetes-int-or-string": True}
    members = {
        "plain": int_or_string,
        "more": int_or_string | {"anyOf": numbers},
        "said": int_or_string | {"allOf": [{"anyOf": either}]},
        "inner": {"type": "object", "x-kubernetes-embedded-resource": True, "properties": {"x": {"type": "string"}}},
    }
    schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": members}}}
    await define(api, with_schema(schema, selectableFields=[{"jsonPath": ".spec.inner.x"}]))
    told = (await api.get("/openapi/v3/apis/ml.example.com/v1"))["components"]["schemas"]
    training, listed = (told[f"com.example.ml.v1.Training{suffix}"] for suffix in ("", "List"))
    spec = training["properties"]["spec"]["properties"]
    assert spec["plain"]["anyOf"] == either and spec["said"] == members["said"]
    assert spec["more"]["anyOf"] == numbers and spec["more"]["allOf"] == [{"anyOf": either}]
    assert spec["inner"]["required"] == ["kind", "apiVersion"]
    assert list(spec["inner"]["properties"]) == ["x", "apiVersion", "kind", "metadata"]
    fields = [{"fieldPath": "spec.inner.x"}]
    assert training["x-kubernetes-selectable-fields"] == listed["x-kubernetes-selectable-fields"] == fields


async def test_embedded_object_in_a_map_is_placed_by_its_key(api: Caller) -> None:
    inner = {"type": "object", "x-kubernetes-embedded-resource": True, PRESERVES: True}
    members = {"a": {"type": "object", "additionalProperties": inner}}
    await define(api, with_schema({"type": "object", "properties": members}))
    answer = await api("POST", TRAININGS, {**training(), "a": {"c/d": {"kind": "Pod"}}})
    assert answer.json["details"]["causes"][0]["field"] == "a[c/d].apiVersion"


async def test_whole_numbers_of_custom_objects_have_no_fraction(api: Caller) -> None:
    await define(api, with_schema({"type": "object", PRESERVES: True}))
    made = {**training(), "a": 1000.0, "b": [{"c": 1e3, "d": 0.5}]}
    assert '"a":1000,"b":[{"c":1000,"d":0.5}]' in (await api("POST", TRAININGS, made)).body.decode()
    patched = await api("PATCH", f"{TRAININGS}/t", b'{"a":2.0}', type=MERGE)
    assert '"a":2,' in patched.body.decode()


async def test_unnamed_custom_object_is_told_that_rules_were_not_checked(api: Caller) -> None:
    await define(api, with_schema({"type": "object", "properties": {"spec": ruled("true", "object")}}))
    answer = await api("POST", TRAININGS, {**training(), "metadata": {}})
    told = [cause["message"] for cause in answer.json["details"]["causes"]]
    assert len(told) == 2 and any("some validation rules were not checked" in one for one in told)


async def test_items_that_occur_twice_in_a_map_are_placed_by_its_key(api: Caller) -> None:
    members = {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"}
    await define(
        api, with_schema({"type": "object", "properties": {"a": {"additionalProperties": members, "type": "object"}}})
    )
    answer = await api("POST", TRAININGS, {**training(), "a": {"c/d": ["x", "x"]}})
    assert answer.json["details"]["causes"][0]["field"] == "a[c/d][1]"


async def test_value_that_fits_none_of_all_schemas_is_told_so_once(api: Caller) -> None:
    every = [{"required": ["x"]}, {"required": ["y"]}]
    await define(
        api, with_schema({"type": "object", "properties": {"a": {"type": "object", PRESERVES: True, "allOf": every}}})
    )
    for given, more in (({}, ". None validated"), ({"x": 1}, "")):
        answer = await api("POST", TRAININGS, {**training(), "a": given})
        told = [one["message"] for one in answer.json["details"]["causes"] if "allOf" in one["message"]]
        assert told == [f'Invalid value: "": "a" must validate all the schemas (allOf){more}']


async def test_printer_columns_and_selectable_fields_work(api: Caller) -> None:
    await define(api)
    await api("POST", TRAININGS, training("a", model="bert"))
    await api("POST", TRAININGS, training("b", model="gpt"))
    ready = {"status": {"conditions": [{"type": "Other", "status": "Unknown"}, {"type": "Ready", "status": "True"}]}}
    await api("PATCH", f"{TRAININGS}/a/status", ready, type=MERGE)
    table = (await api("GET", TRAININGS, accept="application/json;as=Table;v=v1;g=meta.k8s.io")).json
    assert [column["name"] for column in table["columnDefinitions"]] == ["Name", "Model", "Replicas", "Ready", "Age"]
    assert [row["cells"] for row in table["rows"]] == [["a", "bert", 2, "True", "0s"], ["b", "gpt", 2, None, "0s"]]
    chosen = (await api("GET", f"{TRAININGS}?fieldSelector=spec.model=gpt")).json["items"]
    assert [item["metadata"]["name"] for item in chosen] == ["b"]
    assert (await api("GET", f"{TRAININGS}?fieldSelector=spec.replicas=2")).status == 400


async def test_watch_delivers_custom_objects(api: Caller) -> None:
    await define(api)
    stream = await api.stream(f"{TRAININGS}?watch=true")
    await api("POST", TRAININGS, training("a"))
    await api("DELETE", f"{TRAININGS}/a")
    assert await stream.take(2) == [("ADDED", "a"), ("DELETED", "a")]
    await stream.close()


async def test_versions_share_stored_objects(api: Caller) -> None:
    old = version("v1beta1", storage=False, deprecated=True)
    await define(api, definition(version(), old))
    await api("POST", TRAININGS, training("a"))
    path = TRAININGS.replace("/v1/", "/v1beta1/")
    read = await api("GET", f"{path}/a")
    assert (read.json["apiVersion"], read.json["spec"]["model"]) == ("ml.example.com/v1beta1", "llm")
    assert "ml.example.com/v1beta1 Training is deprecated" in read.headers["warning"]
    # Another version is stored from now on; what lies there is served as before.
    live = (await api("GET", f"{DEFINITIONS}/{NAME}")).json
    for item in live["spec"]["versions"]:
        item["storage"] = not item["storage"]
    assert (await api("PUT", f"{DEFINITIONS}/{NAME}", live)).status == 200
    assert (await api("GET", f"{DEFINITIONS}/{NAME}")).json["status"]["storedVersions"] == ["v1", "v1beta1"]
    await api("POST", TRAININGS, training("b"))
    for url, api_version in ((TRAININGS, "ml.example.com/v1"), (path, "ml.example.com/v1beta1")):
        listed = (await api("GET", url)).json["items"]
        assert [(item["metadata"]["name"], item["apiVersion"]) for item in listed] == [
            ("a", api_version),
            ("b", api_version),
        ]
        assert (await api("GET", f"{url}/a")).json["apiVersion"] == api_version
    partial = await api("GET", f"{TRAININGS}/a", accept="application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io")
    assert partial.json["metadata"]["name"] == "a"
    gone = await api("PATCH", f"{DEFINITIONS}/{NAME}", {"spec": {"versions": live["spec"]["versions"][1:]}}, type=MERGE)
    assert gone.status == 422
    assert "status.storedVersions[0]" in gone.json["message"]


async def test_definition_goes_though_its_status_names_a_version_that_it_has_not(api: Caller) -> None:
    await define(api)
    status = {"status": {"storedVersions": ["v9"]}}
    assert (await api("PATCH", f"{DEFINITIONS}/{NAME}/status", status, type=MERGE)).status == 200
    await api("DELETE", f"{DEFINITIONS}/{NAME}")
    await _until(api, f"{DEFINITIONS}/{NAME}", 404)


async def test_kind_that_occurs_twice_is_told_before_what_it_says(api: Caller) -> None:
    await define(api)
    text = b'{"apiVersion": "ml.example.com/v1", "kind": "Training", "kind": "b", "metadata": {"name": "a"}}'
    answer = await api("POST", f"{TRAININGS}?fieldValidation=Strict", text)
    why = 'b in version "v1" cannot be handled as a b: strict decoding error: duplicate field "kind"'
    assert (answer.status, answer.json["message"]) == (400, why)
    warned = await api("POST", f"{TRAININGS}?fieldValidation=Warn", text)
    assert (warned.status, warned.headers["warning"]) == (422, '299 - "duplicate field \\"kind\\""')
    text = b'{"apiVersion": "ml.example.com/v1", "apiVersion": "x/v2", "kind": "Training", "metadata": {"name": "a"}}'
    answer = await api("POST", f"{TRAININGS}?fieldValidation=Strict", text)
    assert 'Training in version "v2" cannot be handled' in answer.json["message"]


async def test_subresource_that_a_definition_has_not_is_told_of_as_the_object(api: Caller) -> None:
    await define(api, with_schema({"type": "object", "properties": {"spec": {"type": "object"}}}))
    await api("POST", TRAININGS, {**training("llm"), "spec": {}})
    for method, under in (("PATCH", "status"), ("GET", "scale"), ("DELETE", "nothing")):
        answer = await api(method, f"{TRAININGS}/llm/{under}", {} if method == "PATCH" else None, type=MERGE)
        assert (answer.status, answer.json["message"]) == (404, 'trainings.ml.example.com "llm" not found')


async def test_value_that_fits_no_alternative_is_judged_by_the_first_that_says_most(api: Caller) -> None:
    inner = [{"properties": {"b": {"minimum": 1}}}, {"properties": {"a": {"maxLength": 1}, "b": {"minimum": 9}}}]
    either = {"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}, {"type": "string"}]}
    declared = {"a": {"type": "string"}, "b": {"type": "integer"}}
    members = {"x": either, "y": {"type": "object", "properties": declared, "oneOf": inner}}
    await define(api, with_schema({"type": "object", "properties": members}))
    answer = await api("POST", TRAININGS, {**training("a"), "x": 1.5, "y": {"a": "long", "b": 0}})
    told = {cause["message"] for cause in answer.json["details"]["causes"]}
    assert 'Invalid value: "number": x in body must be of type integer: "number"' in told
    assert not any("of type string:" in one or "equal to 1" in one for one in told)
    assert any("y.b in body should be greater than or equal to 9" in one for one in told)


async def test_deleting_definition_deletes_its_objects(api: Caller) -> None:
    await define(api)
    await api("POST", TRAININGS, training("a"))
    held = training("b")
    held["metadata"]["finalizers"] = ["example.com/wait"]
    await api("POST", TRAININGS, held)
    answer = await api("DELETE", f"{DEFINITIONS}/{NAME}")
    assert answer.json["metadata"]["deletionTimestamp"]
    refused = await api("POST", TRAININGS, training("c"))
    assert (refused.status, refused.json["message"]) == (
        405,
        "create not allowed while custom resource definition is terminating",
    )
    await _until(api, f"{TRAININGS}/a", 404)
    assert (await api("GET", f"{TRAININGS}/b")).json["metadata"]["deletionTimestamp"]
    verbs = (await api.get("/apis/ml.example.com/v1"))["resources"][0]["verbs"]
    assert verbs == ["delete", "deletecollection", "get", "list", "watch"]
    await api("PATCH", f"{TRAININGS}/b", {"metadata": {"finalizers": None}}, type=MERGE)
    await _until(api, f"{DEFINITIONS}/{NAME}", 404)
    assert (await api("GET", TRAININGS)).status == 404
    await define(api)
    assert (await api("GET", TRAININGS)).json["items"] == []


@pytest.mark.parametrize(
    ("is_served", "ended"),
    [
        (True, ["False", "InstanceDeletionCompleted", "removed all instances"]),
        (False, ["False", "NeverEstablished", "resource was never established"]),
    ],
)
async def test_deleted_definition_that_is_held_says_that_its_objects_are_gone(
    api: Caller, is_served: bool, ended: list[str]
) -> None:
    made = definition()
    if not is_served:  # another one has the kind
        names = {**made["spec"]["names"], "plural": "others"}
        spec = {**made["spec"], "names": names}
        await api.create(DEFINITIONS, {**made, "metadata": {"name": "others.ml.example.com"}, "spec": spec})
    made["metadata"] = {"name": NAME, "finalizers": ["example.com/wait"]}
    await api.create(DEFINITIONS, made)
    await api("DELETE", f"{DEFINITIONS}/{NAME}")

    async def is_let_go() -> bool:
        return bool((await api.get(f"{DEFINITIONS}/{NAME}"))["metadata"]["finalizers"] == ["example.com/wait"])

    await until(is_let_go)
    conditions = (await api.get(f"{DEFINITIONS}/{NAME}"))["status"]["conditions"]
    assert [[c["status"], c["reason"], c["message"]] for c in conditions if c["type"] == "Terminating"] == [ended]


async def _until(api: Caller, url: str, status: int) -> None:
    async def has_become() -> bool:
        return (await api("GET", url)).status == status

    await until(has_become, f"{url} becomes {status}")


async def test_conflicting_names_are_not_accepted(api: Caller) -> None:
    await define(api)
    second = definition(names={"plural": "others", "singular": "other", "kind": "Training", "shortNames": ["tr"]})
    second["metadata"]["name"] = "others.ml.example.com"
    await define(api, second)
    stored = (await api("GET", f"{DEFINITIONS}/others.ml.example.com")).json
    told = {c["type"]: (c["status"], c["reason"], c["message"]) for c in stored["status"]["conditions"]}
    assert told["NamesAccepted"] == ("False", "KindConflict", '"Training" is already in use')
    assert told["Established"] == ("False", "NotAccepted", "not all names are accepted")
    assert (await api("GET", "/apis/ml.example.com/v1/others")).status == 404
    await api("DELETE", f"{DEFINITIONS}/{NAME}")
    await _until(api, "/apis/ml.example.com/v1/others", 200)


async def test_freed_short_name_is_served(api: Caller) -> None:
    await define(api)
    other = definition(names={"plural": "others", "singular": "other", "kind": "Other"})
    other["metadata"]["name"] = "others.ml.example.com"
    await define(api, other)
    short = (await api("GET", f"{DEFINITIONS}/{NAME}")).json["spec"]["names"]["shortNames"]
    patch = {"spec": {"names": {"shortNames": short}}}
    assert (await api("PATCH", f"{DEFINITIONS}/others.ml.example.com", patch, type=MERGE)).status == 200

    async def served() -> list[str]:
        found = (await api("GET", "/apis/ml.example.com/v1")).json["resources"]
        return next(each.get("shortNames", []) for each in found if each["name"] == "others")

    assert await served() == []
    await api("DELETE", f"{DEFINITIONS}/{NAME}")
    await _until(api, f"{DEFINITIONS}/{NAME}", 404)
    assert await served() == short


PRESERVES = "x-kubernetes-preserve-unknown-fields"
RULED = {
    "type": "object",
    "default": {},
    "properties": {"a": {"type": "integer", "default": 3}},
    "x-kubernetes-validations": [{"rule": "self.a < 10", "message": "m"}],
}


@pytest.mark.parametrize(
    ("obj", "message"),
    [
        (
            {**definition(), "metadata": {"name": "x.y"}},
            'metadata.name: Invalid value: "x.y": must be spec.names.plural',
        ),
        (definition(group="example"), "should be a domain with at least one dot"),
        (definition(scope="Here"), 'spec.scope: Unsupported value: "Here": supported values: "Cluster", "Namespaced"'),
        (definition(version(storage=False)), "must have exactly one version marked as storage version"),
        (definition(version(), version(storage=False)), "must contain unique version names"),
        (definition(version(schema=None)), "spec.versions[0].schema.openAPIV3Schema: Required value"),
        (with_schema({"type": "string"}), 'openAPIV3Schema.type: Invalid value: "string": must be object at the root'),
        (
            with_schema({"type": "object", "properties": {"a": {}}}),
            "spec.validation.openAPIV3Schema.properties[a].type: Required value: must not be empty for specified",
        ),
        (
            with_schema({"type": "object", "properties": {"a": {"type": "array"}}}),
            "properties[a].items: Required value: must be specified",
        ),
        (
            with_schema({"type": "object", "properties": {"a": {"type": "string", "pattern": "("}}}),
            'properties[a].pattern: Invalid value: "(": must be a valid regular expression, but isn\'t: error parsing',
        ),
        (
            with_schema({"type": "object", "properties": {"a": {"type": "integer", "default": "x"}}}),
            'properties[a].default: Invalid value: "string":  in body must be of type integer: "string"',
        ),
        (
            with_schema({"type": "object", "properties": {"a": {"type": "object", "anyOf": [{"type": "object"}]}}}),
            "properties[a].anyOf[0].type: Forbidden: must be empty to be structural",
        ),
        (
            with_schema({"type": "object", "anyOf": [{"properties": {"b": {"minimum": 1}}}]}),
            "properties[b]: Required value: because it is defined in spec.validation.openAPIV3Schema.anyOf[0].prop",
        ),
        (
            with_schema({"type": "object", "properties": {"metadata": {"type": "object", "required": ["labels"]}}}),
            "properties[metadata]: Forbidden: must not specify anything other than name and generateName",
        ),
        (
            with_schema(
                {
                    "type": "object",
                    "properties": {
                        "a": {"type": "array", "items": {"type": "object"}, "x-kubernetes-list-type": "map"}
                    },
                }
            ),
            "x-kubernetes-list-map-keys: Required value: must not be empty if x-kubernetes-list-type is map",
        ),
        (with_schema({"type": "object", "nullable": True}), "nullable: Forbidden: nullable cannot be true at the root"),
        (
            definition(version(subresources={"scale": {"specReplicasPath": ".x", "statusReplicasPath": ".status.y"}})),
            'specReplicasPath: Invalid value: ".x": should be a json path under .spec',
        ),
        (
            definition(version(additionalPrinterColumns=[{"name": "A", "type": "text", "jsonPath": ".a"}])),
            'type: Invalid value: "text": must be one of boolean,date,integer,number,string',
        ),
        (
            definition(version(selectableFields=[{"jsonPath": ".spec.labels"}])),
            "must point to a field of type string, boolean or integer",
        ),
        (
            definition(conversion={"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1"]}}),
            "spec.conversion.webhookClientConfig: Required value: required when strategy is set to Webhook",
        ),
        (
            definition(conversion={"strategy": "None", "webhook": {"conversionReviewVersions": ["v1"]}}),
            "conversion.conversionReviewVersions: Forbidden: should not be set when strategy is not set to Webhook",
        ),
        (
            definition(
                conversion={
                    "strategy": "Webhook",
                    "webhook": {"clientConfig": {"url": "http://h"}, "conversionReviewVersions": ["v3"]},
                }
            ),
            "spec.conversion.webhookClientConfig.url: Invalid value: \"http\": 'https' is the only allowed URL scheme",
        ),
        (
            definition(conversion={"strategy": "Magic"}),
            'Unsupported value: "Magic": supported values: "None", "Webhook"',
        ),
        (definition(group="ml.k8s.io"), "protected groups must have approval annotation"),
        (definition(conversion={"strategy": ""}), "spec.conversion.strategy: Required value"),
        (
            with_schema({"type": "object", "maxProperties": 0}, subresources={"status": {}}),
            "fields are allowed at the root if the status subresource is enabled",
        ),
        (
            with_schema({"type": "object", "properties": {"a": {"type": "integer", "maximum": 2**63, "default": 3}}}),
            'properties[a].default: Invalid value: "": Maximum boundary value must be of type integer (default format)',
        ),
        (
            with_schema({"type": "object", "properties": {"spec": RULED}}),
            'properties[spec].default: Invalid value: "object": no such key: a evaluating rule: m',
        ),
        (
            with_schema(
                {"type": "object", "properties": {"a": {"type": "string", "patternProperties": {"x": {}}}}},
                selectableFields=[{"jsonPath": ".a"}],
            ),
            "OpenAPIV3Schema 'patternProperties' is not supported",
        ),
    ],
)
async def test_invalid_definition_is_refused(api: Caller, obj: dict[str, Any], message: str) -> None:
    answer = await api("POST", DEFINITIONS, obj)
    assert answer.status == 422, answer.json
    assert message in answer.json["message"]


def ruled(rule: str, kind: str = "integer", **more: Any) -> dict[str, Any]:
    return {"type": kind, "x-kubernetes-validations": [{"rule": rule}], **more}


NOT_DECLARED = "rule compiler initialization error: failed to convert to declType for CEL validation rules"


@pytest.mark.parametrize(
    ("members", "more", "told"),
    [
        # What defaults break is told before any rule is compiled.
        ({"a": ruled("self > 1", default=0), "b": ruled("self.c")}, {}, ["a].default: Invalid value: 0: failed rule"]),
        ({"a": {**ruled("true", default={}), "type": "", PRESERVES: True}}, {}, [NOT_DECLARED]),
        ({"a": {"type": "array", "items": ruled("self > 1"), "default": [1]}}, {}, ["a].default[0]: Invalid"]),
        ({"a": {"type": "object", "properties": {"b": ruled("self > 1")}, "default": {"b": 1, "c": 1}}}, {},
         ["a].default: Invalid value: {", "a].default.b: Invalid value: 1: failed rule"]),
        ({"a": {"type": "object", "additionalProperties": ruled("self > 1"), "default": {"b": 1}}}, {},
         ["a].default[b]"]),
        ({"a": {"type": "object", "additionalProperties": {"type": "string"}, "default": {}, "x-kubernetes-validations":
                [{"rule": "'b' in self", "fieldPath": ".b"}]}}, {}, ["a].default.[b]: Invalid"]),
        # Rules are compiled beside what else is wrong, but for those above or at what is wrong in the schema.
        ({"a": ruled("self.c"), "b": {"type": "x"}}, {}, ["a].x-kubernetes-validations[0].rule", "b].type"]),
        ({"a": ruled("self.c", pattern="["), "b": {"type": "x"}}, {}, ["a].pattern", "b].type: Unsupported"]),
        ({"a": ruled("self.c")}, {"group": "ml.k8s.io"}, ["a].x-kubernetes-validations[0].rule", "protected groups"]),
        ({"a": {**ruled("self.c"), "x-kubernetes-validations": [{"rule": "oldSelf.c", "optionalOldSelf": True}]}}, {},
         ["validations[0].rule", "optionalOldSelf: Invalid value: true: may not be set if oldSelf is not used"]),
        ({"a": {"type": "integer", "default": 1}}, {"preserveUnknownFields": True},
         ["must be false in order to use defaults in the schema", "cannot set to true"]),
    ],
)  # fmt: skip
async def test_rules_of_a_definition_are_judged_after_defaults_and_beside_other_faults(
    api: Caller, members: dict[str, Any], more: dict[str, Any], told: list[str]
) -> None:
    made = with_schema({"type": "object", "properties": members})
    answer = await api("POST", DEFINITIONS, {**made, "spec": {**made["spec"], **more}})
    causes = [f"{one['field']}: {one['message']}" for one in answer.json["details"]["causes"]]
    assert all(any(one in cause for cause in causes) for one in told), causes
    assert len([cause for cause in causes if "metadata.name" not in cause]) == len(told), causes


async def test_validation_rules_of_schema_are_checked(api: Caller) -> None:
    live = definition()
    spec = live["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    rules = [
        {"rule": "self.model != 'none'", "message": "a model is needed", "fieldPath": ".model"},
        {"rule": "self.model == oldSelf.model", "message": "the model stays"},
    ]
    live["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"] = {
        **spec,
        "x-kubernetes-validations": rules,
    }
    await define(api, live)
    refused = await api("POST", TRAININGS, training(model="none"))
    assert refused.status == 422
    assert "spec.model: Invalid value: a model is needed" in refused.json["message"]
    await api("POST", TRAININGS, training())
    changed = await api("PATCH", f"{TRAININGS}/t", {"spec": {"model": "other"}}, type=MERGE)
    assert "spec: Invalid value: the model stays" in changed.json["message"]
    assert (await api("PATCH", f"{TRAININGS}/t", {"spec": {"replicas": 3}}, type=MERGE)).status == 200
    wrong = {**spec, "x-kubernetes-validations": [{"rule": "self.nothing"}]}
    path = f"{DEFINITIONS}/{NAME}"
    version_ = {
        **live["spec"]["versions"][0],
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": wrong}}},
    }
    answer = await api("PATCH", path, {"spec": {"versions": [version_]}}, type=MERGE)
    assert answer.status == 422
    assert "x-kubernetes-validations[0].rule: Invalid value" in answer.json["message"]


def costly(pattern: str, **limits: int) -> dict[str, Any]:
    """A definition with one rule on every item of a list."""
    items = {"type": "string", "x-kubernetes-validations": [{"rule": f"self.matches('{pattern}')"}]}
    spec = {"type": "object", "properties": {"lines": {"type": "array", "items": items, **limits}}}
    return with_schema({"type": "object", "properties": {"spec": spec}})


async def test_too_expensive_rule_is_refused_with_its_definition(api: Caller) -> None:
    answer = await api("POST", DEFINITIONS, costly("^[a-z]+$"))
    assert answer.status == 422
    schema = "spec.validation.openAPIV3Schema"
    rule = f"{schema}.properties[spec].properties[lines].items.x-kubernetes-validations[0].rule"
    hint = (
        "(try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings "
        "are declared)"
    )
    causes = answer.json["details"]["causes"]
    assert [(cause["reason"], cause["field"], cause["message"]) for cause in causes] == [
        (
            "FieldValueForbidden",
            rule,
            f"Forbidden: estimated rule cost exceeds budget by factor of more than 100x {hint}",
        ),
        (
            "FieldValueForbidden",
            rule,
            "Forbidden: contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema",
        ),
        (
            "FieldValueForbidden",
            schema,
            "Forbidden: x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema exceeds budget "
            f"by factor of more than 100x {hint}",
        ),
    ]
    await define(api, costly("^[a-z]+$", maxItems=10))


async def test_rule_cost_is_checked_only_when_schema_changes(api: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(definition_rules, "EXPRESSION_LIMIT", 1 << 64)
        patch.setattr(definition_rules, "DEFINITION_LIMIT", 1 << 64)
        await define(api, costly("^[a-z]+$"))
    path = f"{DEFINITIONS}/{NAME}"
    labelled = await api(
        "PATCH", path, {"metadata": {"labels": {"a": "b"}}, "spec": {"names": {"shortNames": ["x"]}}}, type=MERGE
    )
    assert labelled.status == 200, labelled.json
    changed = await api("PATCH", path, {"spec": costly("^[a-y]+$")["spec"]}, type=MERGE)
    assert changed.status == 422
    assert "estimated rule cost exceeds budget" in changed.json["message"]
    assert (await api("PATCH", path, {"spec": costly("^[a-y]+$", maxItems=10)["spec"]}, type=MERGE)).status == 200
    assert (await api("DELETE", path)).status == 200


async def test_stored_invalid_definition_can_be_deleted(api: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    rule = {"rule": "true", "fieldPath": ".nowhere"}
    lost = with_schema({"type": "object", "x-kubernetes-validations": [rule]})
    with monkeypatch.context() as patch:
        patch.setattr(schema_checks, "is_field_path", lambda path, schema: True)
        await define(api, lost)
    path = f"{DEFINITIONS}/{NAME}"
    labelled = await api("PATCH", path, {"metadata": {"labels": {"a": "b"}}}, type=MERGE)
    assert labelled.status == 200, labelled.json
    rule["message"] = "other"
    changed = await api("PATCH", path, {"spec": lost["spec"]}, type=MERGE)
    assert "fieldPath: Invalid value" in changed.json["message"]
    assert (await api("DELETE", path)).status == 200
    await _until(api, path, 404)


async def test_unchanged_invalid_fields_are_not_validated_again(api: Caller) -> None:
    await define(api)
    await api("POST", TRAININGS, training(replicas=7))
    live = (await api("GET", f"{DEFINITIONS}/{NAME}")).json
    properties = live["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    properties["replicas"]["maximum"] = 4
    assert (await api("PUT", f"{DEFINITIONS}/{NAME}", live)).status == 200
    assert (await api("PATCH", f"{TRAININGS}/t", {"spec": {"note": "n"}}, type=MERGE)).status == 200
    assert (await api("PATCH", f"{TRAININGS}/t", {"spec": {"replicas": 6}}, type=MERGE)).status == 422
    assert (await api("PATCH", f"{TRAININGS}/t", {"spec": {"replicas": 1}}, type=MERGE)).status == 200
    wrong = await api("PATCH", f"{TRAININGS}/t", {"spec": {"replicas": True}}, type=MERGE)
    assert wrong.status == 422, "true is not the 1 that was there, whatever Python says"


async def test_immutable_definition_fields_cannot_change(api: Caller) -> None:
    await define(api)
    for change, path in (({"scope": "Cluster"}, "spec.scope"), ({"names": {"kind": "Other"}}, "spec.names.kind")):
        answer = await api("PATCH", f"{DEFINITIONS}/{NAME}", {"spec": change}, type=MERGE)
        assert answer.status == 422
        assert f"{path}: Invalid value" in answer.json["message"]


async def test_changed_schema_takes_effect_immediately(api: Caller) -> None:
    await define(api)
    live = (await api("GET", f"{DEFINITIONS}/{NAME}")).json
    live["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["extra"] = {
        "type": "string"
    }
    assert (await api("PUT", f"{DEFINITIONS}/{NAME}", live)).status == 200
    made = await api("POST", TRAININGS, training(extra="here"))
    assert made.json["spec"]["extra"] == "here"
    document = (await api("GET", "/openapi/v3/apis/ml.example.com/v1")).json
    schema = document["components"]["schemas"]["com.example.ml.v1.Training"]
    assert schema["x-kubernetes-group-version-kind"] == [
        {"group": "ml.example.com", "version": "v1", "kind": "Training"}
    ]
    assert schema["properties"]["spec"]["properties"]["extra"] == {"type": "string"}
    assert schema["properties"]["metadata"]["allOf"][0]["$ref"].endswith("ObjectMeta")


@pytest.mark.parametrize(
    ("approval", "status", "reason", "message"),
    [
        ("https://example.org/kep/1", "True", "ApprovedAnnotation", "approved in https://example.org/kep/1"),
        ("unapproved, for tests", "False", "UnapprovedAnnotation", 'not approved: "unapproved, for tests"'),
    ],
)
async def test_definition_of_a_protected_group_says_whether_it_is_approved(
    api: Caller, approval: str, status: str, reason: str, message: str
) -> None:
    made = definition(group="ml.k8s.io")
    made["metadata"] = {"name": "trainings.ml.k8s.io", "annotations": {"api-approved.kubernetes.io": "https://"}}
    refused = await api("POST", DEFINITIONS, made)
    assert (
        refused.status == 422 and 'with either a URL or a reason starting with "unapproved"' in refused.json["message"]
    )
    made["metadata"]["annotations"] = {"api-approved.kubernetes.io": approval}
    await api.create(DEFINITIONS, made)
    await api.get("/apis/ml.k8s.io/v1")
    [told] = [
        one
        for one in (await api.get(f"{DEFINITIONS}/trainings.ml.k8s.io"))["status"]["conditions"]
        if one["type"] == "KubernetesAPIApprovalPolicyConformant"
    ]
    assert (told["status"], told["reason"], told["message"]) == (status, reason, message)
    annotations = {"annotations": {"api-approved.kubernetes.io": "http://changed"}}
    await api("PATCH", f"{DEFINITIONS}/trainings.ml.k8s.io", {"metadata": annotations}, type=MERGE)
    await api.get("/apis/ml.k8s.io/v1")
    changed = (await api.get(f"{DEFINITIONS}/trainings.ml.k8s.io"))["status"]["conditions"]
    assert "approved in http://changed" in {one["message"] for one in changed}


async def test_conditions_of_accepted_names_are_not_restored(api: Caller) -> None:
    await api.create(DEFINITIONS, definition())
    patch = {"status": {"conditions": [{"type": "Established", "status": "True"}]}}
    await api("PATCH", f"{DEFINITIONS}/{NAME}/status", patch, type="application/merge-patch+json")
    conditions = (await api.get(f"{DEFINITIONS}/{NAME}"))["status"]["conditions"]
    assert [(each["type"], each.get("reason")) for each in conditions] == [("Established", None)]


async def test_definition_without_status_keeps_its_stored_version(api: Caller) -> None:
    await api.create(DEFINITIONS, definition())
    live = await api.get(f"{DEFINITIONS}/{NAME}")
    answer = await api("PUT", f"{DEFINITIONS}/{NAME}/status?dryRun=All", {**live, "status": None})
    assert answer.json["status"] == {**answer.json["status"], "storedVersions": ["v1"]}


async def test_watch_shows_a_definition_go_without_another_request(api: Caller) -> None:
    await define(api)
    stream = await api.stream(f"{DEFINITIONS}?watch=1&fieldSelector=metadata.name%3D{NAME}")
    await api("DELETE", f"{DEFINITIONS}/{NAME}")
    seen = []
    while "DELETED" not in seen:
        seen.append((await stream.next(10))["type"])
    await stream.close()


async def test_watch_ends_soon_after_its_definition_with_all_that_came_before(api: Caller) -> None:
    await define(api)
    await api.create(TRAININGS, training())
    stream = await api.stream(f"{TRAININGS}?watch=1")
    assert (await stream.next())["type"] == "ADDED"
    await api("DELETE", f"{DEFINITIONS}/{NAME}")
    assert (await stream.next(10))["type"] == "DELETED"
    assert await stream.next(10) is None


@pytest.mark.parametrize(
    ("method", "name"), [("DELETE", ""), ("POST", ""), ("GET", "/t"), ("PUT", "/t"), ("PATCH", "/t"), ("DELETE", "/t")]
)
async def test_path_without_a_namespace_is_for_lists_and_watches_alone(api: Caller, method: str, name: str) -> None:
    """Crossplane deletes all objects of a kind so, and goes on where nothing is found there."""
    await define(api)
    await api.create(TRAININGS, training())
    body = training() if method in ("POST", "PUT") else {} if method == "PATCH" else None
    answer = await api(method, f"/apis/ml.example.com/v1/trainings{name}", body)
    assert (answer.status, answer.body.strip()) == (404, b"404 page not found")
    assert len((await api.get("/apis/ml.example.com/v1/trainings"))["items"]) == 1


async def test_watch_of_a_version_ends_when_it_is_served_no_longer(api: Caller) -> None:
    body = definition()
    (version,) = body["spec"]["versions"]
    body["spec"]["versions"] = [{**version, "name": "v1alpha1", "storage": False}, version]
    await define(api, body)
    older = await api.stream(f"{TRAININGS.replace('/v1/', '/v1alpha1/')}?watch=1")
    stream = await api.stream(f"{TRAININGS}?watch=1")
    patch = [{"op": "replace", "path": "/spec/versions/0/served", "value": False}]
    assert (await api("PATCH", f"{DEFINITIONS}/{NAME}", patch, type="application/json-patch+json")).status == 200
    assert await older.next(10) is None
    await api.create(TRAININGS, training())
    assert (await stream.next())["type"] == "ADDED"
    await stream.close()


ANY_SPEC = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"


@pytest.mark.parametrize(
    ("value", "cells"),
    [
        ("1", ["1", None, None, None, "<invalid>"]),
        (1.5, ["1.5", 1, 1.5, None, None]),
        (2, ["2", 2, 2, None, None]),
        (1e20, ["1e+20", 1e20, 1e20, None, None]),
        (True, ["true", None, None, True, None]),
        ("2026-01-01", ["2026-01-01", None, None, None, "<invalid>"]),
        ("", ["", None, None, None, "<unknown>"]),
        ({"b": "é", "a": "<"}, ['{"a":"\\u003c","b":"é"}', None, None, None, None]),
        (None, ["<no value>", None, None, None, None]),
    ],
)
async def test_cell_of_a_value_of_another_type_than_its_column_is_empty(api: Caller, value: Any, cells: Any) -> None:
    types = ("string", "integer", "number", "boolean", "date")
    columns = [{"name": kind, "type": kind, "jsonPath": ".spec.v"} for kind in types]
    columns.append({"name": "First", "type": "string", "jsonPath": ".spec.l[*]"})
    schema = {"type": "object", "properties": {"spec": ANY_SPEC}}
    one = version(additionalPrinterColumns=columns, schema={"openAPIV3Schema": schema}, selectableFields=[])
    await define(api, definition(one | {"subresources": {}}))
    made: Any = {"apiVersion": "ml.example.com/v1", "kind": "Training", "metadata": {"name": "a"}}
    made["spec"] = {"v": value, "l": [value, "z"]}
    await api.create(TRAININGS, made)
    assert (await api("GET", TRAININGS, accept=TABLE)).json["rows"][0]["cells"][1:] == [*cells, cells[0]]


@pytest.mark.parametrize("number", ["1e20", "18446744073709551616", "-1e19", "1e300"])
@pytest.mark.parametrize("type", ["application/json", "application/yaml"])
async def test_number_beyond_64_bits_is_kept(api: Caller, number: str, type: str) -> None:
    schema = {"type": "object", "properties": {"spec": ANY_SPEC}}
    await define(api, definition(version(schema={"openAPIV3Schema": schema}, selectableFields=[])))
    text = '{"apiVersion": "ml.example.com/v1", "kind": "Training", "metadata": {"name": "a"}, "spec": {"v": %s}}'
    if type == "application/yaml":
        text = "apiVersion: ml.example.com/v1\nkind: Training\nmetadata: {name: a}\nspec: {v: %s}\n"
    made = await api("POST", TRAININGS, (text % number).encode(), type=type)
    assert (made.status, made.json.get("spec")) == (201, {"v": float(number)})
    if type == "application/json":
        merged = await api("PATCH", f"{TRAININGS}/a", b'{"spec": {"w": %s}}' % number.encode(), type=MERGE)
        assert (merged.status, merged.json.get("spec")) == (200, {"v": float(number), "w": float(number)})
