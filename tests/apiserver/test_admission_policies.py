"""Validating admission policies through the API: what they refuse, with which words, and what they are about."""

from __future__ import annotations

import json
from typing import Any

import pytest
from admission_objects import BINDINGS, POLICIES, binding, constraints, policy
from api_caller import MAPS, USER, Caller, config_map

from haru.apiserver.encoding.objects import encode
from haru.apiserver.server import ApiServer
from haru.storage import Put

Obj = dict[str, Any]


async def install(api: Caller, made: Obj, *bindings: Obj) -> None:
    await api.create(POLICIES, made)
    for each in bindings or (binding(),):
        await api.create(BINDINGS, each)


DENIED = "ValidatingAdmissionPolicy 'p.example.com' with binding 'b.example.com' denied request: "


async def test_denied_request_names_policy_binding_and_message(api: Caller) -> None:
    await install(api, policy({"expression": "object.data.size() < 2", "message": "at most one key"}))
    answer = await api("POST", MAPS, config_map("m", a="1", b="2"))
    assert answer.status == 422
    message = f'configmaps "m" is forbidden: {DENIED}at most one key'
    assert answer.json == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": "Invalid",
        "details": {"name": "m", "kind": "configmaps", "causes": [{"message": f"{DENIED}at most one key"}]},
        "code": 422,
    }
    assert (await api("POST", MAPS, config_map("m", a="1"))).status == 201
    wrong = await api("PATCH", f"{MAPS}/m", {"data": {"b": "2"}}, type="application/merge-patch+json")
    assert wrong.status == 422
    assert (await api.get(f"{MAPS}/m"))["data"] == {"a": "1"}
    assert (await api("DELETE", f"{MAPS}/m")).status == 200


@pytest.mark.parametrize("kind", ["ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"])
async def test_policies_are_about_configurations_of_webhooks_as_well(api: Caller, kind: str) -> None:
    rules = {"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": [f"{kind.lower()}s"]}
    made = policy({"expression": "object.metadata.name != 'w'", "message": "no"})
    made["spec"]["matchConstraints"] = {"resourceRules": [rules]}
    await install(api, made)
    path = f"/apis/admissionregistration.k8s.io/v1/{kind.lower()}s"
    for name, status in (("w", 422), ("v", 201)):
        assert (await api("POST", path, {"metadata": {"name": name}, "webhooks": []})).status == status


async def test_what_is_refused_by_a_policy_has_been_warned_of(api: Caller) -> None:
    rules = {"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["services"]}
    made = policy({"expression": "false", "message": "no"})
    made["spec"]["matchConstraints"] = {"resourceRules": [rules]}
    await install(api, made)
    service = {"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}], "externalIPs": ["1.2.3.4"]}}
    answer = await api("POST", "/api/v1/namespaces/default/services", service)
    assert answer.status == 422 and "externalIPs is deprecated" in answer.headers["warning"]


WORDS: list[tuple[Obj, int, str, str]] = [
    ({"expression": "object.data.a == 'x'"}, 422, "Invalid", "failed expression: object.data.a == 'x'"),
    ({"expression": "false", "message": "no", "reason": "Forbidden"}, 403, "Forbidden", "no"),
    (
        {"expression": "false", "reason": "RequestEntityTooLarge"},
        413,
        "RequestEntityTooLarge",
        "failed expression: false",
    ),
    ({"expression": "false", "messageExpression": "'a is ' + object.data.a"}, 422, "Invalid", "a is 1"),
    ({"expression": "false", "messageExpression": "object.nothing", "message": "plain"}, 0, "", ""),
    (
        {"expression": "false", "messageExpression": "string(object.nothing)", "message": "plain"},
        422,
        "Invalid",
        "plain",
    ),
    ({"expression": "false", "messageExpression": "'two\\nlines'", "message": "one"}, 422, "Invalid", "one"),
    (
        {"expression": "object.spec.x == 1"},
        422,
        "Invalid",
        "expression 'object.spec.x == 1' resulted in error: no such key: spec",
    ),
]


@pytest.mark.parametrize(("validation", "code", "reason", "words"), WORDS)
async def test_denial_has_expected_code_reason_and_message(
    api: Caller, validation: Obj, code: int, reason: str, words: str
) -> None:
    made = await api("POST", POLICIES, policy(validation))
    if not code:
        assert made.status == 422
        assert "must evaluate to string but got dyn" in made.json["message"]
        return
    assert made.status == 201, made.json
    await api.create(BINDINGS, binding())
    answer = await api("POST", MAPS, config_map("m", a="1"))
    assert (answer.status, answer.json["reason"]) == (code, reason)
    assert answer.json["message"].removeprefix('configmaps "m" is forbidden: ') == DENIED + words


SEEN = [
    "request.operation == 'CREATE' && request.name == 'm' && request.namespace == 'default' && !request.dryRun",
    "request.kind.group == '' && request.kind.version == 'v1' && request.kind.kind == 'ConfigMap'",
    "request.resource.resource == 'configmaps' && request.requestResource.version == 'v1'",
    "!has(request.subResource) && request.options.kind == 'CreateOptions'",
    "request.userInfo.username == 'admin' && 'system:masters' in request.userInfo.groups",
    "oldObject == null && object.metadata.name == 'm' && object.apiVersion == 'v1'",
    "namespaceObject.metadata.name == 'default' && namespaceObject.status.phase == 'Active'",
    "namespaceObject.metadata.creationTimestamp < timestamp('2100-01-01T00:00:00Z')",
    "authorizer.group('').resource('secrets').namespace('default').check('get').allowed()",
    "!authorizer.serviceAccount('default', 'default').group('').resource('secrets').check('get').allowed()",
    "!authorizer.serviceAccount('a', 'b').group('').resource('pods').fieldSelector('x=y').check('list').allowed()",
    "authorizer.requestResource.check('create').allowed() && authorizer.path('/healthz').check('get').allowed()",
    "quantity(object.data.size).isLessThan(quantity('2Gi')) && object.data.?none.orValue('d') == 'd'",
    "variables.first == 'm' && variables.both.size() == 2 && variables.both.all(x, x.startsWith('m'))",
]


@pytest.mark.parametrize("expression", SEEN)
async def test_expression_sees_request_object_and_variables(api: Caller, expression: str) -> None:
    variables = [
        {"name": "first", "expression": "object.metadata.name"},
        {"name": "both", "expression": "[string(variables.first), 'm2']"},
        {"name": "broken", "expression": "object.nothing.at.all"},
    ]
    await install(api, policy(expression, variables=variables))
    await api.create(MAPS, config_map("m", size="1Gi"))


async def test_variable_is_evaluated_only_when_used(api: Caller) -> None:
    variables = [{"name": "broken", "expression": "object.data.missing"}, {"name": "fine", "expression": "1 + 1"}]
    await install(api, policy("variables.fine == 2", "variables.broken == 'x'", variables=variables))
    answer = await api("POST", MAPS, config_map("m", a="1"))
    assert answer.json["message"].endswith(
        "expression 'variables.broken == 'x'' resulted in error: "
        'composited variable "broken" fails to evaluate: no such key: missing'
    )


MATCHES: list[tuple[Obj, Obj, bool]] = [
    ({}, {}, True),
    ({"objectSelector": {"matchLabels": {"guarded": "yes"}}}, {}, False),
    ({"objectSelector": {"matchLabels": {"team": "a"}}}, {}, True),
    ({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "elsewhere"}}}, {}, False),
    ({"namespaceSelector": {"matchExpressions": [{"key": "none", "operator": "DoesNotExist"}]}}, {}, True),
    ({"rule": {"resourceNames": ["other"]}}, {}, False),
    ({"rule": {"resourceNames": ["m", "other"]}}, {}, True),
    ({"rule": {"scope": "Cluster"}}, {}, False),
    ({"rule": {"scope": "Namespaced"}}, {}, True),
    ({"rule": {"resources": ["*"]}}, {}, True),
    ({"rule": {"resources": ["*/*"], "apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"]}}, {}, True),
    ({"rule": {"resources": ["configmaps/status"]}}, {}, False),
    ({"rule": {"apiVersions": ["v2"]}}, {}, False),
    ({"excludeResourceRules": [constraints("CREATE")["resourceRules"][0]]}, {}, False),
    ({}, {"matchResources": {"objectSelector": {"matchLabels": {"team": "b"}}}}, False),
    ({}, {"matchResources": constraints("CREATE", resources="secrets")}, False),
    ({}, {"matchResources": constraints("CREATE")}, True),
]


@pytest.mark.parametrize(("about", "bound", "concerned"), MATCHES)
async def test_match_constraints_select_requests(api: Caller, about: Obj, bound: Obj, concerned: bool) -> None:
    made = policy("false")
    made["spec"]["matchConstraints"] = constraints(**about)
    await install(api, made, binding(**bound))
    answer = await api("POST", MAPS, config_map("m", {"team": "a"}, a="1"))
    assert answer.status == (422 if concerned else 201), answer.json


CONDITIONS: list[tuple[list[str], str, int]] = [
    (["object.metadata.name == 'm'"], "Fail", 422),
    (["object.metadata.name == 'other'"], "Fail", 201),
    (["object.data.missing == '1'", "object.metadata.name == 'other'"], "Fail", 201),
    (["object.data.missing == '1'"], "Fail", 422),
    (["object.data.missing == '1'"], "Ignore", 201),
    (["namespaceObject == null"], "Fail", 422),
]


@pytest.mark.parametrize(("expressions", "failing", "status"), CONDITIONS)
async def test_match_conditions_select_requests(api: Caller, expressions: list[str], failing: str, status: int) -> None:
    conditions = [{"name": f"c{n}", "expression": text} for n, text in enumerate(expressions)]
    await install(api, policy("false", matchConditions=conditions, failurePolicy=failing))
    assert (await api("POST", MAPS, config_map("m", a="1"))).status == status


async def test_failure_policy_decides_about_errors(api: Caller) -> None:
    await install(api, policy("object.data.missing == '1'", failurePolicy="Ignore"))
    assert (await api("POST", MAPS, config_map("m", a="1"))).status == 201
    await api(
        "PATCH", f"{POLICIES}/p.example.com", {"spec": {"failurePolicy": "Fail"}}, type="application/merge-patch+json"
    )
    assert (await api("POST", MAPS, config_map("n", a="1"))).status == 422


async def test_validation_actions_deny_warn_or_audit(api: Caller) -> None:
    await install(
        api,
        policy({"expression": "object.data.size() > 1", "message": "too few"}),
        binding(validationActions=["Warn", "Audit"]),
    )
    answer = await api("POST", MAPS, config_map("m", a="1"))
    assert answer.status == 201
    words = "Validation failed for ValidatingAdmissionPolicy 'p.example.com' with binding 'b.example.com': too few"
    assert answer.headers["warning"] == f'299 - "{words}"'
    await api.create(BINDINGS, binding("c.example.com"))
    assert (await api("POST", MAPS, config_map("n", a="1"))).status == 422
    for name in ("b.example.com", "c.example.com"):
        assert (await api("DELETE", f"{BINDINGS}/{name}")).status == 200
    answer = await api("POST", MAPS, config_map("n", a="1"))
    assert answer.status == 201
    assert "warning" not in answer.headers


async def test_policy_and_binding_have_effect_only_together(api: Caller) -> None:
    await api.create(BINDINGS, binding())
    await api.create(MAPS, config_map("a"))
    await api.create(POLICIES, policy("false", name="other.example.com"))
    await api.create(MAPS, config_map("b"))
    await api.create(POLICIES, policy("false"))
    assert (await api("POST", MAPS, config_map("c"))).status == 422


def with_params(*validations: str, action: str = "Deny", **reference: Any) -> tuple[Obj, Obj]:
    made = policy(*validations, paramKind={"apiVersion": "v1", "kind": "ConfigMap"})
    made["spec"]["matchConstraints"] = constraints(resources="secrets")
    return made, binding(paramRef={"parameterNotFoundAction": action, **reference})


def secret(name: str) -> Obj:
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}}


SECRETS = "/api/v1/namespaces/default/secrets"


async def test_param_ref_by_name_selects_parameters(api: Caller) -> None:
    await install(api, *with_params("object.metadata.name.startsWith(params.data.prefix)", name="rules"))
    missing = await api("POST", SECRETS, secret("a-1"))
    assert missing.status == 422
    assert missing.json["message"].endswith(
        DENIED + "failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction"
    )
    await api.create(MAPS, config_map("rules", prefix="a-"))
    assert (await api("POST", SECRETS, secret("a-1"))).status == 201
    assert (await api("POST", SECRETS, secret("b-1"))).status == 422


async def test_param_ref_by_selector_applies_all_parameters(api: Caller) -> None:
    made = with_params(
        "object.metadata.name != params.data.taken", selector={"matchLabels": {"r": "1"}}, action="Allow"
    )
    await install(api, *made)
    assert (await api("POST", SECRETS, secret("x"))).status == 201
    for name in ("y", "z"):
        await api.create(MAPS, config_map(f"not-{name}", {"r": "1"}, taken=name))
        assert (await api("POST", SECRETS, secret(name))).status == 422
    assert (await api("POST", SECRETS, secret("w"))).status == 201


async def test_invalid_binding_denies_with_configuration_error(api: Caller) -> None:
    made, bound = with_params("true", name="rules")
    made["spec"]["matchConstraints"] = constraints(resources="namespaces")
    await install(api, made, bound)
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}}
    assert (await api("POST", "/api/v1/namespaces", space)).status == 422  # its own namespace has no such map
    nowhere = policy("true", name="q.example.com", paramKind={"apiVersion": "x.example.com/v1", "kind": "Rule"})
    await api.create(POLICIES, nowhere)
    await api.create(BINDINGS, binding("q", "q.example.com", paramRef={"name": "r", "parameterNotFoundAction": "Deny"}))
    answer = await api("POST", MAPS, config_map("m"))
    assert answer.json["message"].endswith(
        "ValidatingAdmissionPolicy 'q.example.com' denied request: failed to configure policy: failed to find resource "
        "referenced by paramKind: 'x.example.com/v1, Kind=Rule'"
    )


async def test_creating_binding_requires_read_access_to_parameters(api: Caller) -> None:
    jane = api.as_(USER)
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "policies"},
        "rules": [{"verbs": ["*"], "apiGroups": ["admissionregistration.k8s.io"], "resources": ["*"]}],
    }
    await api.create("/apis/rbac.authorization.k8s.io/v1/clusterroles", role)
    grant = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "policies"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "policies"},
        "subjects": [{"kind": "User", "name": "jane", "apiGroup": "rbac.authorization.k8s.io"}],
    }
    await api.create("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", grant)
    made, bound = with_params("true", name="rules")
    refused = await jane("POST", POLICIES, made)
    assert refused.status == 422
    assert 'must have "get" permission on all objects of the referenced paramKind' in refused.json["message"]
    await api.create(POLICIES, made)
    refused = await jane("POST", BINDINGS, bound)
    assert refused.status == 422
    assert 'does not have "get" permission on the object referenced by paramRef' in refused.json["message"]
    assert (await jane("POST", POLICIES, policy("true", name="plain.example.com"))).status == 201


async def test_failing_audit_annotation_denies_request(api: Caller) -> None:
    notes = [{"key": "kind", "valueExpression": "'is ' + object.data.a"}]
    await install(api, policy(auditAnnotations=notes))
    assert (await api("POST", MAPS, config_map("m", a="1"))).status == 201
    answer = await api("POST", MAPS, config_map("n"))
    assert answer.status == 422
    assert "resulted in error: no such key: data" in answer.json["message"]


async def test_update_and_delete_policies_see_old_object(api: Caller) -> None:
    made = policy("oldObject.data.locked != 'yes'")
    made["spec"]["matchConstraints"] = constraints("UPDATE", "DELETE")
    await install(api, made)
    await api.create(MAPS, config_map("m", locked="yes"))
    assert (await api("PUT", f"{MAPS}/m", config_map("m", locked="no"))).status == 422
    assert (await api("DELETE", f"{MAPS}/m")).status == 422
    assert (await api("DELETE", MAPS)).status == 422
    await api.create(MAPS, config_map("n", locked="no"))
    assert (await api("DELETE", f"{MAPS}/n?dryRun=All")).status == 200
    assert (await api("DELETE", f"{MAPS}/n")).status == 200


async def test_expression_over_cost_limit_denies_request(api: Caller) -> None:
    numbers = "[0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29]"
    dear = f"{numbers}.all(a, {numbers}.all(b, {numbers}.all(c, {numbers}.all(d, a + b + c + d >= 0))))"
    await install(api, policy(dear))
    answer = await api("POST", MAPS, config_map("m"))
    assert answer.status == 422
    assert answer.json["message"].endswith("resulted in error: operation cancelled: actual cost limit exceeded")


async def test_policies_do_not_apply_to_policies_and_reviews(api: Caller) -> None:
    made = policy("false")
    everything = {"resources": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"]}
    made["spec"]["matchConstraints"] = constraints(rule=everything)
    await install(api, made)
    assert (await api("POST", MAPS, config_map("m"))).status == 422
    assert (await api("POST", POLICIES, policy("true", name="another.example.com"))).status == 201
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    assert (await api("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", review)).status == 201
    assert (await api("DELETE", f"{POLICIES}/p.example.com")).status == 200
    assert (await api("POST", MAPS, config_map("m"))).status == 201


async def test_match_policy_equivalent_covers_other_versions(api: Caller) -> None:
    rule = {"apiGroups": ["events.k8s.io"], "resources": ["events"]}
    for match, status in (("Exact", 201), ("Equivalent", 422)):
        made = policy(
            "request.kind.group == 'events.k8s.io' && object.regarding.name != 'x'", name=f"{match.lower()}.example.com"
        )
        made["spec"]["matchConstraints"] = constraints(rule=rule, matchPolicy=match)
        await install(api, made, binding(match.lower(), f"{match.lower()}.example.com"))
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"e.{match.lower()}", "namespace": "default"},
            "involvedObject": {"kind": "Pod", "name": "x", "namespace": "default"},
        }
        assert (await api("POST", "/api/v1/namespaces/default/events", event)).status == status


async def test_policy_applies_to_subresource(api: Caller) -> None:
    made = policy("object.spec.replicas < 4")
    made["spec"]["matchConstraints"] = constraints(
        "UPDATE", rule={"apiGroups": ["apps"], "resources": ["deployments/scale", "deployments/status"]}
    )
    made["spec"]["matchConditions"] = [{"name": "scale", "expression": "request.subResource == 'scale'"}]
    await install(api, made)
    labels = {"app": "w"}
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "w"},
        "spec": {
            "replicas": 9,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
        },
    }
    path = "/apis/apps/v1/namespaces/default/deployments"
    await api.create(path, deployment)
    change = {"spec": {"replicas": 5}}
    merge = "application/merge-patch+json"
    refused = await api("PATCH", f"{path}/w/scale", change, type=merge)
    assert refused.status == 422
    assert refused.json["message"].startswith('deployments.apps "w" is forbidden: ')
    assert (await api("PATCH", f"{path}/w/scale", {"spec": {"replicas": 3}}, type=merge)).status == 200
    assert (await api.get(f"{path}/w"))["spec"]["replicas"] == 3
    assert (await api("PATCH", f"{path}/w/status", {"status": {"replicas": 8}}, type=merge)).status == 200


async def test_type_checking_reports_unknown_fields(api: Caller) -> None:
    made = policy(
        "object.data.size() > 0",
        {"expression": "object.dta.size() > 0 && variables.n > 1", "messageExpression": "object.metadata.nme"},
        "object.metadata.labels['a'] == 'b' && params.x == 1",
        variables=[{"name": "n", "expression": "object.metadata.generation"}],
        paramKind={"apiVersion": "v1", "kind": "Secret"},
    )
    made["spec"]["validations"][1]["messageExpression"] = "string(object.metadata.nme)"
    await api.create(POLICIES, made)
    status = (await api.get(f"{POLICIES}/p.example.com"))["status"]
    assert status["observedGeneration"] == 1
    warnings = status["typeChecking"]["expressionWarnings"]
    assert [each["fieldRef"] for each in warnings] == [
        "spec.validations[1].expression",
        "spec.validations[1].messageExpression",
        "spec.validations[2].expression",
    ]
    assert warnings[0]["warning"] == (
        "/v1, Kind=ConfigMap: ERROR: <input>:1:7: undefined field 'dta'\n"
        " | object.dta.size() > 0 && variables.n > 1\n | ......^\n"
    )
    change = [{"op": "remove", "path": "/spec/validations/2"}, {"op": "remove", "path": "/spec/validations/1"}]
    assert (await api("PATCH", f"{POLICIES}/p.example.com", change, type="application/json-patch+json")).status == 200
    assert (await api.get(f"{POLICIES}/p.example.com"))["status"] == {"observedGeneration": 2, "typeChecking": {}}


async def test_invalid_stored_policies_do_not_prevent_start(api: Caller) -> None:
    """A server that is newer than its store starts, and serves."""
    old = policy("true", name="old")
    old["spec"] = {"validations": [{}], "matchConstraints": {"namespaceSelector": {"matchExpressions": [{}]}}}
    hooks = {"apiVersion": old["apiVersion"], "kind": "ValidatingWebhookConfiguration", "webhooks": [{"name": "x"}, {}]}
    made = (
        ("validatingadmissionpolicies", old),
        ("validatingadmissionpolicybindings", {**binding("old", "old"), "spec": {"policyName": "old"}}),
        ("validatingwebhookconfigurations", {**hooks, "metadata": {"name": "old"}}),
    )
    for plural, obj in made:
        value, place = encode(obj)
        await api.app.objects.store.transact(Put(f"{plural}.admissionregistration.k8s.io/old", value, 0, place))
    await api.create(MAPS, config_map("m"))
    assert (await api.get(f"{POLICIES}/old"))["metadata"]["name"] == "old"
    restarted = ApiServer(api.app.config)
    await restarted.start()
    await Caller(restarted, api.clock).create(MAPS, config_map("n"))
    await restarted.stop()


async def test_generated_name_is_visible_to_policies(api: Caller) -> None:
    await install(api, policy("request.name == object.metadata.name && request.name != 'named'"))
    generated = config_map("x")
    generated["metadata"] = {"generateName": "x-"}
    assert (await api("POST", MAPS, generated)).status == 201
    answer = await api("POST", MAPS, config_map("named"))
    assert json.loads(answer.body)["details"]["name"] == "named"
