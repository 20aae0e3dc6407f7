"""Mutating admission policies over real sockets: merging, patches, parameters, order, failures, limits."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from admission_objects import BINDINGS, POLICIES, binding, constraints, policy
from api_caller import MAPS, USER, config_map
from mutating_objects import (
    MUTATOR_BINDINGS,
    MUTATORS,
    PODS,
    WireCaller,
    applying,
    install,
    json_patch,
    labelled,
    mutator,
    mutator_binding,
    pod,
    pods,
    wire,
)
from webhook_server import WebhookServer, hook, hooks, label, mutating, patch

from haru.apiserver.admission.dynamic import expression_runner

__all__ = ["hooks", "wire"]

Obj = dict[str, Any]

BY = "policy 'm.example.com' with binding 'm.example.com' denied request: "


MERGE = "application/merge-patch+json"
POLICY = f"{MUTATORS}/m.example.com"
BINDING = f"{MUTATOR_BINDINGS}/m.example.com"


async def rewrite(wire: WireCaller, *mutations: Obj) -> None:
    """Give the policy other mutations."""
    answer = await wire("PATCH", POLICY, {"spec": {"mutations": list(mutations)}}, type=MERGE)
    assert answer.status == 200, answer.json


def about_pods(*mutations: Obj, **changes: Any) -> Obj:
    return mutator(*mutations, matchConstraints=pods(), **changes)


# --- ApplyConfiguration

CONTAINER = "Object.spec.containers"
MERGED: list[tuple[str, Obj, Any]] = [
    (
        f'Object{{spec: Object.spec{{containers: [{CONTAINER}{{name: "side", image: "proxy"}}]}}}}',
        {},
        lambda p: [c["name"] for c in p["spec"]["containers"]] == ["main", "side"],
    ),
    (
        f'Object{{spec: Object.spec{{containers: [{CONTAINER}{{name: "main", image: "newer"}}]}}}}',
        {},
        lambda p: [(c["name"], c["image"]) for c in p["spec"]["containers"]] == [("main", "newer")],
    ),
    (
        'Object{metadata: Object.metadata{labels: {"a": "1", "b": "2"}}}',
        {"labels": {"a": "0", "c": "3"}},
        lambda p: p["metadata"]["labels"] == {"a": "1", "b": "2", "c": "3"},
    ),
    (
        f"Object{{spec: Object.spec{{containers: object.spec.containers.map(c, {CONTAINER}{{name: c.name, "
        f'env: [{CONTAINER}.env{{name: "X", value: c.name}}]}})}}}}',
        {},
        lambda p: p["spec"]["containers"][0]["env"] == [{"name": "X", "value": "main"}],
    ),
    (
        f'Object{{spec: Object.spec{{containers: [{CONTAINER}{{name: "main", resources: '
        f'{CONTAINER}.resources{{limits: {{"cpu": "1000m"}}}}}}]}}}}',
        {},
        lambda p: p["spec"]["containers"][0]["resources"] == {"limits": {"cpu": "1"}, "requests": {"cpu": "1"}},
    ),
    (
        'Object{?spec: has(object.spec.hostname) ? optional.of(Object.spec{subdomain: "s"}) : optional.none()}',
        {},
        lambda p: "subdomain" not in p["spec"],
    ),
    ("Object{}", {"labels": {"a": "0"}}, lambda p: p["metadata"]["labels"] == {"a": "0"}),
]


async def test_apply_configuration_merges_objects(wire: WireCaller) -> None:
    await install(wire, about_pods(applying("Object{}")))
    for number, (expression, metadata, expected) in enumerate(MERGED):
        await rewrite(wire, applying(expression))
        made = pod(f"p{number}")
        made["metadata"].update(metadata)
        stored = await wire.create(PODS, made)
        assert expected(stored), (expression, stored)


REFUSED: list[tuple[str, str]] = [
    (
        f'Object{{spec: Object.spec{{containers: [{CONTAINER}{{name: "main", command: ["sh"]}}]}}}}',
        "error applying patch: invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: "
        ".spec.containers[0].command",
    ),
    (
        'Object{spec: Object.spec{nodeSelector: {"a": "b"}, tolerations: [Object.spec.tolerations{key: "x"}]}}',
        "error applying patch: invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: "
        ".spec.nodeSelector, .spec.tolerations",
    ),
    (
        'Object{spec: Object.spec{hostnamex: "h"}}',
        "error applying patch: failed to convert patch object to typed object: .spec.hostnamex: field not declared in "
        "schema",
    ),
    (
        "Object{spec: Object.spec{hostname: 1}}",
        "error applying patch: failed to convert patch object to typed object: .spec.hostname: expected string, "
        "got &value.valueUnstructured{Value:1}",
    ),
    (
        'Object{spec: Object.spec{hostNetwork: null, activeDeadlineSeconds: "x"}}',
        "error applying patch: failed to convert patch object to typed object: errors:\n"
        "  .spec.activeDeadlineSeconds: expected numeric (int or float), got string\n"
        "  .spec.hostNetwork: expected boolean, got &{NULL_VALUE}",
    ),
    (
        'Object{spec: Object.spec{hostname: timestamp("2024-01-02T03:04:05.5Z"), hostNetwork: duration("90s")}}',
        "error applying patch: failed to convert patch object to typed object: errors:\n"
        "  .spec.hostNetwork: expected boolean, got &{1m30s}\n"
        "  .spec.hostname: expected string, got &value.valueUnstructured{Value:time.Date(2024, time.January, 2, 3, 4, "
        "5, 500000000, time.UTC)}",
    ),
    (
        'Object{metadata: Object.metadata{labels: {"a": b"ab"}, creationTimestamp: timestamp("2024-01-02T03:04:05Z")}}',
        "error applying patch: failed to convert patch object to typed object: errors:\n"
        "  .metadata.creationTimestamp: expected any scalar, got &{2024-01-02 03:04:05 +0000 UTC}\n"
        "  .metadata.labels.a: expected string, got &value.valueUnstructured{Value:[]uint8{0x61, 0x62}}",
    ),
    (
        'Object{spec: Object.spec{activeDeadlineSeconds: duration("1s")}}',
        "error applying patch: failed to convert patch object to typed object: .spec.activeDeadlineSeconds: expected "
        "numeric (int or float), got time.Duration",
    ),
    (
        'Object{metadata: Object.metadata{creationTimestamp: "x"}}',
        'unable to convert unstructured object to /v1, Kind=Pod: parsing time "x" as "2006-01-02T15:04:05Z07:00": '
        'cannot parse "x" as "2006"',
    ),
    (
        "Object{spec: Object.specx{}}",
        'type mismatch: unexpected type name "Object.specx", expected "Object.spec", which matches field name path '
        "from root Object type",
    ),
    (
        "Object{spec: Object.spec{hostname: string(object.spec.absent)}}",
        "expression 'Object{spec: Object.spec{hostname: string(object.spec.absent)}}' resulted in error: no such key: "
        "absent",
    ),
]


async def test_invalid_apply_configuration_is_refused(wire: WireCaller) -> None:
    await install(wire, about_pods(applying("Object{}")))
    for expression, why in REFUSED:
        await rewrite(wire, applying(expression))
        answer = await wire("POST", PODS, pod("p"))
        assert answer.json == {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": BY + why,
            "reason": "Invalid",
            "details": {"name": "p", "kind": "pods", "causes": [{"message": BY + why}]},
            "code": 403,
        }
    await wire("PATCH", POLICY, {"spec": {"failurePolicy": "Ignore"}}, type=MERGE)
    for number, (expression, _) in enumerate(REFUSED):
        await rewrite(wire, applying(expression))
        assert (await wire("POST", PODS, pod(f"p{number}"))).status == 201


# --- JSONPatch

START = {"a": "1", "b.c": "2"}
PATCHED: list[tuple[str, Obj]] = [
    ('[JSONPatch{op: "add", path: "/data/n", value: "3"}]', {**START, "n": "3"}),
    ('[JSONPatch{op: "remove", path: "/data/a"}]', {"b.c": "2"}),
    ('[JSONPatch{op: "replace", path: "/data/a", value: "9"}]', {**START, "a": "9"}),
    ('[JSONPatch{op: "replace", path: "/data/new", value: "9"}]', {**START, "new": "9"}),
    ('[JSONPatch{op: "move", from: "/data/a", path: "/data/z"}]', {"b.c": "2", "z": "1"}),
    ('[JSONPatch{op: "copy", from: "/data/a", path: "/data/z"}]', {**START, "z": "1"}),
    (
        '[JSONPatch{op: "test", path: "/data/a", value: "1"}, JSONPatch{op: "replace", path: "/data/a", value: "t"}]',
        {**START, "a": "t"},
    ),
    (
        '[JSONPatch{op: "replace", path: "/data/a", value: "t"}, JSONPatch{op: "test", path: "/data/a", value: "x"}]',
        START,
    ),
    ('[JSONPatch{op: "test", path: "/data/absent", value: "x"}, JSONPatch{op: "remove", path: "/data"}]', START),
    ('[JSONPatch{op: "add", path: "/data", value: {"only": object.metadata.namespace}}]', {"only": "default"}),
    ('object.data.a == "0" ? [JSONPatch{op: "remove", path: "/data"}] : []', START),
]


async def test_every_json_patch_operation_works(wire: WireCaller) -> None:
    await install(wire, mutator(labelled("x", "'y'")))
    for number, (expression, expected) in enumerate(PATCHED):
        await rewrite(wire, json_patch(expression))
        stored = await wire.create(MAPS, {**config_map(f"m{number}"), "data": START})
        assert stored["data"] == expected, expression


async def test_json_patch_keys_are_escaped_and_values_typed(wire: WireCaller) -> None:
    escaped = '"/metadata/annotations/" + jsonpatch.escapeKey("x.io/a")'
    toleration = 'Object.spec.tolerations{key: "k", operator: "Exists"}'
    await install(
        wire,
        about_pods(
            json_patch(
                '[JSONPatch{op: "add", path: "/metadata/annotations", value: {}}, '
                f'JSONPatch{{op: "add", path: {escaped}, value: "1"}}, '
                f'JSONPatch{{op: "add", path: "/spec/tolerations/-", value: {toleration}}}]'
            ),
        ),
    )
    found = await wire.create(PODS, pod("p"))
    assert found["metadata"]["annotations"] == {"x.io/a": "1"}
    assert found["spec"]["tolerations"][-1] == {"key": "k", "operator": "Exists"}
    assert len(found["spec"]["tolerations"]) == 3


async def test_empty_map_of_one_mutation_is_none_to_the_next(wire: WireCaller) -> None:
    empty, filled = (
        json_patch(f'[JSONPatch{{op: "add", path: "/metadata/annotations{under}", value: {value}}}]')
        for under, value in (("", "{}"), ("/x", '"y"'))
    )
    await install(wire, about_pods(empty, filled))
    refused = await wire("POST", PODS, pod("p"))
    assert refused.status == 403 and 'doc is missing path: "/metadata/annotations/x"' in refused.json["message"]


FAILED_PATCHES: list[tuple[str, int, str]] = [
    (
        '[JSONPatch{op: "add", path: "/metadata/annotations/x", value: "y"}]',
        403,
        f'{BY}JSON Patch: add operation does not apply: doc is missing path: "/metadata/annotations/x": missing value',
    ),
    (
        '[JSONPatch{op: "remove", path: "/data/none"}]',
        403,
        f"{BY}JSON Patch: error in remove for path: '/data/none': Unable to remove nonexistent key: none: ",
    ),
    ('[JSONPatch{op: "grow", path: "/data/none"}]', 403, f"{BY}JSON Patch: "),
    (
        '[JSONPatch{op: "add", path: "/datax", value: {"a": "b"}}]',
        500,
        'Internal error occurred: strict decoding error: unknown field "datax"',
    ),
    ('[JSONPatch{op: "add", path: "/data", value: [1]}]', 500, "Internal error occurred: "),
    ('[JSONPatch{op: "replace", path: "/kind", value: "Secret"}]', 500, "Internal error occurred: "),
    (
        '[JSONPatch{op: "add", path: "/data", value: Object.data{x: Object.datum{}}}]',
        403,
        f'{BY}type mismatch: unexpected type name "Object.datum", expected "Object.data.x", which matches field name '
        "path from root Object type",
    ),
    ('[JSONPatch{op: "add", path: "/data/a", value: 1.0 / 0.0}]', 403, f"{BY}JSONPath valueExpression evaluated to"),
]


async def test_failing_json_patch_is_reported(wire: WireCaller) -> None:
    await install(wire, mutator(labelled("x", "'y'")))
    for expression, code, message in FAILED_PATCHES:
        await rewrite(wire, json_patch(expression))
        answer = await wire("POST", MAPS, config_map("m", a="1"))
        assert answer.status == code, answer.json
        assert answer.json["message"].startswith(message), answer.json["message"]


async def test_mutated_object_is_validated(wire: WireCaller) -> None:
    await install(wire, about_pods(applying('Object{spec: Object.spec{restartPolicy: "Sometimes"}}')))
    answer = await wire("POST", PODS, pod("p"))
    assert answer.status == 422
    assert 'spec.restartPolicy: Unsupported value: "Sometimes"' in answer.json["message"]


async def test_failing_mutation_is_skipped_and_later_ones_run(wire: WireCaller) -> None:
    await install(
        wire,
        mutator(
            labelled("one", "'1'"),
            labelled("two", "string(object.none)"),
            labelled("three", "object.metadata.labels.one"),
            failurePolicy="Ignore",
        ),
    )
    stored = await wire.create(MAPS, config_map("m"))
    assert stored["metadata"]["labels"] == {"one": "1", "three": "1"}


async def test_every_mutation_failure_is_reported(wire: WireCaller) -> None:
    await install(wire, mutator(labelled("x", "string(object.a)"), labelled("x", "string(object.b)")))
    await install(wire, mutator(labelled("x", "string(object.c)"), name="n.example.com"))
    answer = await wire("POST", MAPS, config_map("m"))
    causes = [cause["message"] for cause in answer.json["details"]["causes"]]
    assert answer.json["message"] == causes[0]
    assert [cause.rpartition(": ")[2] for cause in causes] == ["a", "b", "c"]
    assert causes[2].startswith("policy 'n.example.com' with binding 'n.example.com' denied request: ")


# --- whom it concerns, what it sees


async def test_mutations_use_variables_conditions_and_authorizer(wire: WireCaller) -> None:
    await install(
        wire,
        mutator(
            labelled("who", "variables.who"),
            labelled("may", "string(authorizer.requestResource.check('create').allowed())"),
            labelled("space", "namespaceObject.metadata.name"),
            labelled("again", "variables.labels.who + '-' + variables.who"),
            variables=[
                {"name": "labels", "expression": "object.metadata.?labels.orValue({})"},
                {"name": "who", "expression": "request.userInfo.username"},
            ],
            matchConditions=[{"name": "named", "expression": "object.metadata.name.startsWith('m')"}],
        ),
    )
    stored = await wire.create(MAPS, config_map("m"))
    assert stored["metadata"]["labels"] == {"who": "admin", "may": "true", "space": "default", "again": "admin-admin"}
    assert "labels" not in (await wire.create(MAPS, config_map("other")))["metadata"]


async def test_mutations_see_old_object_on_update_and_ignore_delete(wire: WireCaller) -> None:
    await install(
        wire,
        mutator(
            labelled("was", "oldObject == null ? 'none' : string(oldObject.data.n)"),
            matchConstraints=constraints("*"),
        ),
    )
    assert (await wire.create(MAPS, config_map("m", n="1")))["metadata"]["labels"] == {"was": "none"}
    changed = await wire("PATCH", f"{MAPS}/m", {"data": {"n": "2"}}, type=MERGE)
    assert changed.json["metadata"]["labels"] == {"was": "1"}
    assert (await wire("PUT", f"{MAPS}/m", config_map("m", n="3"))).json["metadata"]["labels"] == {"was": "2"}
    assert (await wire("DELETE", f"{MAPS}/m")).status == 200


async def test_dry_run_is_mutated(wire: WireCaller) -> None:
    await install(wire, mutator(labelled("dry", "string(request.dryRun)")))
    answer = await wire("POST", f"{MAPS}?dryRun=All", config_map("m"))
    assert answer.json["metadata"]["labels"] == {"dry": "true"}
    assert (await wire("GET", f"{MAPS}/m")).status == 404


async def test_generated_name_is_not_visible_to_mutations(wire: WireCaller) -> None:
    seen = "string(has(object.metadata.name)) + '-' + string(has(request.name))"
    await install(wire, mutator(labelled("named", seen)))
    made = config_map("x")
    made["metadata"] = {"generateName": "m-"}
    stored = await wire.create(MAPS, made)
    assert stored["metadata"]["labels"] == {"named": "false-false"}
    assert stored["metadata"]["name"].startswith("m-")


DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"


async def test_equivalent_version_is_mutated_in_version_of_rule(wire: WireCaller) -> None:
    claims = "/apis/resource.k8s.io/{}/namespaces/default/resourceclaims"
    rule = {"apiGroups": ["resource.k8s.io"], "apiVersions": ["v1beta1"], "resources": ["resourceclaims"]}
    made = mutator(
        labelled("seen", "object.apiVersion.replace('/', '_')"),
        labelled("asked", "request.requestResource.version"),
        labelled("flat", "string(has(object.spec.devices.requests[0].deviceClassName))"),
        matchConstraints=constraints("CREATE", rule=rule),
    )
    await install(wire, made)
    request = {"name": "r", "exactly": {"deviceClassName": "gpu"}}
    claim = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "c"},
        "spec": {"devices": {"requests": [request]}},
    }
    stored = await wire.create(claims.format("v1"), claim)
    assert stored["metadata"]["labels"] == {"seen": "resource.k8s.io_v1beta1", "asked": "v1", "flat": "true"}
    assert stored["spec"]["devices"]["requests"][0]["exactly"]["deviceClassName"] == "gpu"
    await wire("PATCH", POLICY, {"spec": {"matchConstraints": {"matchPolicy": "Exact"}}}, type=MERGE)
    claim["metadata"] = {"name": "d"}
    assert "labels" not in (await wire.create(claims.format("v1"), claim))["metadata"]


async def test_policies_and_reviews_are_not_mutated(wire: WireCaller) -> None:
    everything = {"resources": ["*/*"], "apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"]}
    await install(wire, mutator(labelled("x", "'y'"), matchConstraints=constraints(rule=everything)))
    assert (await wire.create(MAPS, config_map("m")))["metadata"]["labels"] == {"x": "y"}
    assert (
        "labels" not in (await wire.create(MUTATORS, mutator(labelled("a", "'b'"), name="n.example.com")))["metadata"]
    )
    assert "labels" not in (await wire.create(MUTATOR_BINDINGS, mutator_binding("other", "none")))["metadata"]
    assert "labels" not in (await wire.create(POLICIES, policy("true")))["metadata"]
    assert "labels" not in (await wire.create(BINDINGS, binding()))["metadata"]
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": "x"}}
    assert "labels" not in (await wire.create("/apis/authentication.k8s.io/v1/tokenreviews", review))["metadata"]


async def test_subresource_bodies_are_mutated(wire: WireCaller) -> None:
    made = mutator(
        applying("Object{spec: Object.spec{replicas: object.spec.replicas > 3 ? 3 : object.spec.replicas}}"),
        matchConstraints=constraints("UPDATE", resources="deployments/scale", rule={"apiGroups": ["apps"]}),
    )
    await install(wire, made)
    template = {"metadata": {"labels": {"a": "b"}}, "spec": pod()["spec"]}
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "d"},
        "spec": {"replicas": 5, "selector": {"matchLabels": {"a": "b"}}, "template": template},
    }
    assert (await wire.create(DEPLOYMENTS, deployment))["spec"]["replicas"] == 5
    scaled = await wire("PATCH", f"{DEPLOYMENTS}/d/scale", {"spec": {"replicas": 9}}, type=MERGE)
    assert scaled.json["spec"]["replicas"] == 3
    assert (await wire.get(f"{DEPLOYMENTS}/d"))["spec"]["replicas"] == 3


# --- parameters


def with_params(*mutations: Obj, action: str = "Deny", **reference: Any) -> tuple[Obj, Obj]:
    made = mutator(*mutations, paramKind={"apiVersion": "v1", "kind": "ConfigMap"})
    made["spec"]["matchConstraints"] = constraints(resources="secrets")
    return made, mutator_binding(paramRef={"parameterNotFoundAction": action, **reference})


def secret(name: str) -> Obj:
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}}


SECRETS = "/api/v1/namespaces/default/secrets"


async def test_param_ref_by_name_selects_parameters(wire: WireCaller) -> None:
    await install(wire, *with_params(labelled("team", "params.data.team"), name="rules"))
    missing = await wire("POST", SECRETS, secret("s"))
    assert (missing.status, missing.json["reason"]) == (403, "Forbidden")
    assert missing.json["message"] == (
        f"{BY}failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction"
    )
    await wire(
        "PATCH",
        f"{MUTATOR_BINDINGS}/m.example.com",
        {"spec": {"paramRef": {"parameterNotFoundAction": "Allow"}}},
        type=MERGE,
    )
    assert "labels" not in (await wire.create(SECRETS, secret("s")))["metadata"]
    await wire.create(MAPS, config_map("rules", team="red"))
    assert (await wire.create(SECRETS, secret("t")))["metadata"]["labels"] == {"team": "red"}


async def test_param_ref_by_selector_applies_parameters_in_name_order(wire: WireCaller) -> None:
    expression = "object.metadata.?labels.?order.orValue('') + params.data.n"
    await install(wire, *with_params(labelled("order", expression), selector={"matchLabels": {"r": "1"}}))
    for name, number in (("c", "3"), ("a", "1"), ("b", "2")):
        await wire.create(MAPS, config_map(name, {"r": "1"}, n=number))
    await wire.create(MAPS, config_map("d", {"r": "2"}, n="4"))
    assert (await wire.create(SECRETS, secret("s")))["metadata"]["labels"] == {"order": "123"}


async def test_cluster_scoped_object_needs_parameter_namespace(wire: WireCaller) -> None:
    made, bound = with_params(labelled("x", "params.data.x"), name="rules")
    made["spec"]["matchConstraints"] = constraints(resources="nodes")
    await install(wire, made, bound)
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}
    refused = await wire("POST", "/api/v1/nodes", node)
    assert refused.json["message"] == (
        f"{BY}failed to configure binding: cannot use namespaced paramRef in policy binding that matches "
        "cluster-scoped resources"
    )
    await wire.create(MAPS, config_map("rules", x="y"))
    reference = {"spec": {"paramRef": {"namespace": "default"}}}
    assert (await wire("PATCH", f"{MUTATOR_BINDINGS}/m.example.com", reference, type=MERGE)).status == 200
    assert (await wire.create("/api/v1/nodes", node))["metadata"]["labels"]["x"] == "y"


async def test_unserved_param_kind_denies_request(wire: WireCaller) -> None:
    made = mutator(labelled("x", "params.y"), paramKind={"apiVersion": "x.example.com/v1", "kind": "Rule"})
    await install(wire, made, mutator_binding(paramRef={"name": "r", "parameterNotFoundAction": "Allow"}))
    refused = await wire("POST", MAPS, config_map("m"))
    assert refused.json["message"] == (
        'policy "m.example.com" denied request: failed to configure policy: failed to find resource referenced by '
        "paramKind: 'x.example.com/v1, Kind=Rule'"
    )


async def test_params_is_null_without_param_ref(wire: WireCaller) -> None:
    made, _ = with_params(labelled("null", "string(params == null)"))
    await install(wire, made)
    assert (await wire.create(SECRETS, secret("s")))["metadata"]["labels"] == {"null": "true"}


# --- order and once more


def counting(name: str, reinvocation: str, key: str) -> Obj:
    """Adds one to the label `n`, and notes that it ran."""
    count = "string(int(object.metadata.?labels.?n.orValue('0')) + 1)"
    return mutator(labelled("n", count), labelled(key, "'yes'"), name=name, reinvocationPolicy=reinvocation)


async def test_reinvocation_if_needed_runs_once_more(wire: WireCaller) -> None:
    # 1, 2, 3; then the first again (4); the second again, since the third came after it (5).
    await install(wire, counting("a.example.com", "IfNeeded", "first"))
    await install(wire, counting("b.example.com", "IfNeeded", "second"))
    await install(wire, counting("c.example.com", "Never", "third"))
    stored = await wire.create(MAPS, config_map("m"))
    assert stored["metadata"]["labels"] == {"n": "5", "first": "yes", "second": "yes", "third": "yes"}


async def test_no_reinvocation_without_later_changes(wire: WireCaller) -> None:
    await install(wire, counting("a.example.com", "IfNeeded", "first"))
    assert (await wire.create(MAPS, config_map("m")))["metadata"]["labels"]["n"] == "1"


async def test_two_interdependent_policies_converge(wire: WireCaller) -> None:
    first = mutator(
        labelled("b", "has(object.metadata.labels) && 'a' in object.metadata.labels ? 'done' : 'wait'"),
        name="a.example.com",
        reinvocationPolicy="IfNeeded",
    )
    second = mutator(labelled("a", "'set'"), name="b.example.com", reinvocationPolicy="IfNeeded")
    await install(wire, first)
    await install(wire, second)
    assert (await wire.create(MAPS, config_map("m")))["metadata"]["labels"] == {"a": "set", "b": "done"}


async def test_policies_run_in_name_order_and_see_earlier_changes(wire: WireCaller) -> None:
    await install(wire, mutator(labelled("b", "object.metadata.labels.a + '2'"), name="b.example.com"))
    await install(wire, mutator(labelled("a", "'1'"), name="a.example.com"))
    assert (await wire.create(MAPS, config_map("m")))["metadata"]["labels"] == {"a": "1", "b": "12"}


async def test_policies_are_reinvoked_after_webhooks(wire: WireCaller, hooks: WebhookServer) -> None:
    seen = "has(object.metadata.labels) && 'hook' in object.metadata.labels"
    await install(wire, mutator(labelled("policy", f"{seen} ? 'after' : 'before'"), reinvocationPolicy="IfNeeded"))
    asked: list[Obj] = []

    def answer(request: Obj) -> Obj:
        asked.append(request["object"]["metadata"].get("labels") or {})
        return patch(label("hook", "yes"))(request)

    hooks.answers["/m"] = answer
    await mutating(wire, hook(hooks.client("/m"), reinvocationPolicy="IfNeeded"))
    stored = await wire.create(MAPS, config_map("m", {}))
    assert stored["metadata"]["labels"] == {"policy": "after", "hook": "yes"}
    assert asked == [{"policy": "before"}, {"policy": "after", "hook": "yes"}]


async def test_built_in_plugins_run_again_after_mutations(wire: WireCaller) -> None:
    await wire.create(
        "/apis/scheduling.k8s.io/v1/priorityclasses",
        {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 1000},
    )
    await install(
        wire,
        about_pods(
            json_patch(
                '[JSONPatch{op: "remove", path: "/spec/priority"}, '
                'JSONPatch{op: "add", path: "/spec/priorityClassName", value: "high"}]'
            )
        ),
    )
    stored = await wire.create(PODS, pod("p"))
    assert (stored["spec"]["priorityClassName"], stored["spec"]["priority"]) == ("high", 1000)


async def test_validating_policies_see_mutated_object(wire: WireCaller) -> None:
    await wire.create(POLICIES, policy("object.metadata.labels.x == 'y'"))
    await wire.create(BINDINGS, binding())
    assert (await wire("POST", MAPS, config_map("m"))).status == 422
    await install(wire, mutator(labelled("x", "'y'")))
    assert (await wire("POST", MAPS, config_map("m"))).status == 201


# --- owners of fields


async def test_mutated_fields_have_no_field_manager(wire: WireCaller, hooks: WebhookServer) -> None:
    await install(wire, mutator(labelled("policy", "'x'")))
    hooks.answers["/m"] = patch(label("hook", "yes"))
    await mutating(wire, hook(hooks.client("/m")))
    stored = await wire.create(MAPS, config_map("m", {"own": "1"}, k="1"))
    (entry,) = stored["metadata"]["managedFields"]
    assert entry["fieldsV1"] == {"f:data": {".": {}, "f:k": {}}, "f:metadata": {"f:labels": {".": {}, "f:own": {}}}}
    stored = (await wire("PATCH", f"{MAPS}/m", {"data": {"l": "2"}}, type=MERGE)).json
    (entry,) = stored["metadata"]["managedFields"]
    assert entry["fieldsV1"]["f:data"] == {".": {}, "f:k": {}, "f:l": {}}
    assert entry["fieldsV1"]["f:metadata"] == {"f:labels": {".": {}, "f:own": {}}}
    applied = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": {"z": "1"}}
    answer = await wire("PATCH", f"{MAPS}/m?fieldManager=me", applied, type="application/apply-patch+yaml")
    assert answer.status == 200
    assert answer.json["metadata"]["labels"] == {"own": "1", "policy": "x", "hook": "yes"}
    (mine,) = (e for e in answer.json["metadata"]["managedFields"] if e["manager"] == "me")
    assert mine["fieldsV1"] == {"f:data": {"f:z": {}}}


async def test_invalid_managed_fields_from_mutation_are_reset(wire: WireCaller) -> None:
    owners = '[JSONPatch{op: "add", path: "/metadata/managedFields", value: [{"operation": "Nonsense"}]}]'
    await install(wire, mutator(json_patch(owners), labelled("x", "'y'"), matchConstraints=constraints("UPDATE")))
    before = await wire.create(MAPS, config_map("m", k="1"))
    after = (await wire("PATCH", f"{MAPS}/m", {"data": {"k": "2"}}, type=MERGE)).json
    assert after["metadata"]["managedFields"] == before["metadata"]["managedFields"]
    assert after["metadata"]["labels"] == {"x": "y"}


async def test_patch_removing_the_name_is_refused_before_mutations(wire: WireCaller) -> None:
    classes = "/apis/scheduling.k8s.io/v1/priorityclasses"
    await install(wire, mutator(labelled("x", "'y'"), matchConstraints=constraints("UPDATE")))
    await wire.create(classes, {"metadata": {"name": "a"}, "value": 1})
    answer = await wire("PATCH", f"{classes}/a", {"metadata": {"name": None}, "globalDefault": True}, type=MERGE)
    assert answer.status == 400
    assert "was undeterminable: name must be provided" in answer.json["message"]


async def test_mutation_cannot_rename_an_object(wire: WireCaller) -> None:
    renamed = applying("Object{metadata: Object.metadata{name: 'other'}}")
    await install(wire, mutator(renamed, matchConstraints=constraints("UPDATE")))
    await wire.create(MAPS, config_map("m", k="1"))
    answer = await wire("PATCH", f"{MAPS}/m", {"immutable": True}, type=MERGE)
    assert (answer.status, answer.json["details"]["name"]) == (422, "other")
    cause = {"reason": "FieldValueInvalid", "message": 'Invalid value: "other": field is immutable'}
    assert answer.json["details"]["causes"] == [cause | {"field": "metadata.name"}]


async def test_mutation_cannot_remove_name_of_new_object(wire: WireCaller) -> None:
    await install(wire, mutator(json_patch('[JSONPatch{op: "remove", path: "/metadata"}]')))
    refused = await wire("POST", MAPS, config_map("n", {"a": "b"}, k="1"))
    assert refused.status == 422 and "metadata.name: Required value" in refused.json["message"]


NAMELESS = [
    'ConfigMap "" is invalid: [metadata.name: Required value: name or generateName is required',
    'metadata.name: Invalid value: "": field is immutable]',
]


@pytest.mark.parametrize(
    ("operation", "code", "message"),
    [
        ('op: "remove", path: "/metadata"', 422, ", ".join(NAMELESS)),
        ('op: "remove", path: "/metadata/name"', 422, ", ".join(NAMELESS)),
        ('op: "add", path: "/metadata/uid", value: "z"', 422, 'metadata.uid: Invalid value: "z": field is immutable'),
        ('op: "add", path: "/metadata/resourceVersion", value: "1"', 409, "the object has been modified"),
        ('op: "remove", path: "/metadata/namespace"', 200, ""),
    ],
)
async def test_mutation_cannot_make_an_update_mean_another_object(
    wire: WireCaller, operation: str, code: int, message: str
) -> None:
    await wire.create(MAPS, config_map("m", {"a": "b"}, k="1"))
    await install(wire, mutator(json_patch(f"[JSONPatch{{{operation}}}]"), matchConstraints=constraints("UPDATE")))
    for answer in (
        await wire("PATCH", f"{MAPS}/m", {"data": {"k": "2"}}, type=MERGE),
        await wire("PUT", f"{MAPS}/m", config_map("m", k="3")),
    ):
        assert answer.status == code and message in answer.json.get("message", "")


async def test_mutation_cannot_give_a_new_object_a_version(wire: WireCaller) -> None:
    versioned = '[JSONPatch{op: "add", path: "/metadata/resourceVersion", value: "1"}]'
    await install(wire, mutator(json_patch(versioned), matchConstraints=constraints("CREATE")))
    refused = await wire("POST", MAPS, config_map("n", k="1"))
    assert (refused.status, refused.json["message"]) == (
        400, "resourceVersion should not be set on objects to be created"
    )  # fmt: skip


# --- limits

TEN = "[0,1,2,3,4,5,6,7,8,9]"
BOMB = "".join(f"{TEN}.all(v{n}, " for n in range(8)) + "v0 + v7 >= 0" + ")" * 8


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What an expression costs ends it, however slow the machine is."""
    monkeypatch.setattr(expression_runner, "SECONDS", 600.0)


async def test_too_expensive_mutation_ends_without_blocking_others(wire: WireCaller, patient: None) -> None:
    await install(wire, mutator(labelled("x", f"string({BOMB})")))
    bomb = asyncio.create_task(wire("POST", MAPS, config_map("m")))
    answered = 0
    while not bomb.done():
        assert (await wire("GET", "/api/v1/namespaces/default")).status == 200
        answered += 1
    refused = await bomb
    assert refused.status == 403
    assert refused.json["message"].endswith("resulted in error: operation cancelled: actual cost limit exceeded")
    assert answered > 1, "reads are answered while the expression runs"


@pytest.mark.nightly
async def test_total_cost_of_variables_is_limited(wire: WireCaller, patient: None) -> None:
    nearly = "".join(f"{TEN}.all(v{n}, " for n in range(5)) + "v0 >= 0" + ")" * 5
    variables = [{"name": f"v{n}", "expression": nearly} for n in range(30)]
    both = " && ".join(f"variables.v{n}" for n in range(30))
    await install(wire, mutator(labelled("x", f"string({both})"), variables=variables))
    refused = await wire("POST", MAPS, config_map("m"))
    assert refused.status == 403
    assert refused.json["message"] == (
        f"{BY}validation failed due to running out of cost budget, no further validation rules will be run"
    )


@pytest.mark.nightly
async def test_match_conditions_have_their_own_cost_limit(wire: WireCaller, patient: None) -> None:
    await install(wire, mutator(labelled("x", "'y'"), matchConditions=[{"name": "bomb", "expression": BOMB}]))
    assert "actual cost limit exceeded" in (await wire("POST", MAPS, config_map("m"))).json["message"]
    await wire("PATCH", POLICY, {"spec": {"failurePolicy": "Ignore"}}, type=MERGE)
    assert "labels" not in (await wire.create(MAPS, config_map("m")))["metadata"]


# --- what is told


async def test_mutation_metrics_are_counted(wire: WireCaller, hooks: WebhookServer) -> None:
    conditions = [{"name": "c", "expression": "object.metadata.name != 'left'"}]
    await install(
        wire,
        mutator(
            labelled("x", "'y'"), labelled("x", "string(object.z)"), failurePolicy="Ignore", matchConditions=conditions
        ),
    )
    hooks.answers["/m"] = patch(label("a", "b"))
    await mutating(wire, hook(hooks.client("/m")))
    await wire.create(MAPS, config_map("m", {"a": "b"}))
    await wire.create(MAPS, config_map("left", {"a": "b"}))
    told = (await wire("GET", "/metrics")).body.decode().splitlines()
    name, group = "apiserver_mutating_admission_policy_check", "apiserver_admission"
    who = 'policy="m.example.com",policy_binding="m.example.com"'
    about = 'kind="policy",name="m.example.com",operation="CREATE",type="validate"'
    created = 'operation="CREATE",rejected="false",type="admit"'
    for line in (
        f'{name}_total{{error_type="no_error",{who}}} 1',
        f'{name}_total{{error_type="invalid_error",{who}}} 1',
        f'{name}_duration_seconds_count{{error_type="no_error",{who}}} 1',
        f'{name}_duration_seconds_bucket{{error_type="no_error",{who},le="+Inf"}} 1',
        f"{group}_match_condition_exclusions_total{{{about}}} 1",
        f"{group}_match_condition_evaluation_seconds_count{{{about}}} 2",
        f'{group}_webhook_admission_duration_seconds_count{{name="hook.example.com",{created}}} 2',
        f'{group}_controller_admission_duration_seconds_count{{name="MutatingAdmissionPolicy",{created}}} 4',
        f"{group}_step_admission_duration_seconds_count{{{created}}} 3",
    ):
        assert line in told, line
    assert any(line.startswith("apiserver_cel_compilation_duration_seconds_count ") for line in told)
    assert any(line.startswith("apiserver_cel_evaluation_duration_seconds_count ") for line in told)


# --- writing policies


async def test_creating_binding_requires_read_access_to_parameters(wire: WireCaller) -> None:
    jane = wire.as_(USER)
    group = "/apis/rbac.authorization.k8s.io/v1"
    rules = [{"verbs": ["*"], "apiGroups": ["admissionregistration.k8s.io"], "resources": ["*"]}]
    kind = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": "policies"}}
    await wire.create(f"{group}/clusterroles", {**kind, "kind": "ClusterRole", "rules": rules})
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "policies"}
    subjects = [{"kind": "User", "name": "jane", "apiGroup": "rbac.authorization.k8s.io"}]
    grant = {**kind, "kind": "ClusterRoleBinding", "roleRef": reference, "subjects": subjects}
    await wire.create(f"{group}/clusterrolebindings", grant)
    made, bound = with_params(labelled("x", "params.data.x"), name="rules")
    refused = await jane("POST", MUTATORS, made)
    assert 'must have "get" permission on all objects of the referenced paramKind' in refused.json["message"]
    await wire.create(MUTATORS, made)
    refused = await jane("POST", MUTATOR_BINDINGS, bound)
    assert 'does not have "get" permission on the object referenced by paramRef' in refused.json["message"]
    assert (await jane("POST", MUTATORS, mutator(labelled("a", "'b'"), name="plain.example.com"))).status == 201


async def test_older_policy_versions_are_served(wire: WireCaller) -> None:
    for version in ("v1alpha1", "v1beta1"):
        base = f"/apis/admissionregistration.k8s.io/{version}"
        made = {**mutator(labelled(version, "'yes'"), name=f"{version}.example.com")}
        made["apiVersion"] = f"admissionregistration.k8s.io/{version}"
        bound = {**mutator_binding(of=f"{version}.example.com"), "apiVersion": made["apiVersion"]}
        await wire.create(f"{base}/mutatingadmissionpolicies", made)
        await wire.create(f"{base}/mutatingadmissionpolicybindings", bound)
        assert (await wire.get(f"{MUTATORS}/{version}.example.com"))["spec"]["failurePolicy"] == "Fail"
    stored = await wire.create(MAPS, config_map("m"))
    assert stored["metadata"]["labels"] == {"v1alpha1": "yes", "v1beta1": "yes"}


async def test_custom_resources_are_merged_by_schema(wire: WireCaller) -> None:
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "trainings.example.com"},
        "spec": {
            "group": "example.com",
            "names": {"plural": "trainings", "kind": "Training"},
            "scope": "Namespaced",
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": SCHEMA}}],
        },
    }
    await wire.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
    rule = {"apiGroups": ["example.com"], "apiVersions": ["v1"], "resources": ["trainings"]}
    steps = 'steps: [Object.spec.steps{name: "b", seconds: 2}, Object.spec.steps{name: "c"}]'
    made = mutator(applying(f"Object{{spec: Object.spec{{{steps}}}}}"), matchConstraints=constraints(rule=rule))
    await install(wire, made)
    training = {
        "apiVersion": "example.com/v1",
        "kind": "Training",
        "metadata": {"name": "t"},
        "spec": {"steps": [{"name": "a", "seconds": 1}, {"name": "b", "seconds": 1}], "words": ["x"]},
    }
    path = "/apis/example.com/v1/namespaces/default/trainings"
    stored = await wire.create(path, training)
    assert stored["spec"]["steps"] == [
        {"name": "a", "seconds": 1},
        {"name": "b", "seconds": 2},
        {"name": "c", "seconds": 7},
    ]
    changed = made["spec"]["mutations"][0]
    changed["applyConfiguration"]["expression"] = 'Object{spec: Object.spec{words: ["y"], other: 1}}'
    await wire("PATCH", POLICY, {"spec": {"mutations": [changed]}}, type=MERGE)
    training["metadata"] = {"name": "u"}
    refused = await wire("POST", path, training)
    assert ".spec.other: field not declared in schema" in refused.json["message"]


STEP = {
    "type": "object",
    "required": ["name"],
    "properties": {"name": {"type": "string"}, "seconds": {"type": "integer", "default": 7}},
}
SCHEMA = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "properties": {
                "steps": {
                    "type": "array",
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["name"],
                    "items": STEP,
                },
                "words": {"type": "array", "items": {"type": "string"}},
            },
        }
    },
}
