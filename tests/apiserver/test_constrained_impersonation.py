"""Who may speak for whom, and about what (KEP 5284)."""

from __future__ import annotations

from typing import Any

import pytest
from api_caller import MAPS, PODS, USER, Caller, Obj, config_map

RBAC = "/apis/rbac.authorization.k8s.io/v1"
WHO = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
AUTHENTICATION = "authentication.k8s.io"


def rule(verb: str, resource: str, group: str = AUTHENTICATION) -> Obj:
    return {"verbs": [verb], "apiGroups": [group], "resources": [resource]}


async def grant(api: Caller, *rules: Obj) -> None:
    """Jane has these rights, Joe may read configmaps."""
    for name, user, given in (("it", "jane", list(rules)), ("joe", "joe", [rule("get", "configmaps", "")])):
        await api.create(f"{RBAC}/clusterroles", {"metadata": {"name": name}, "rules": given})
        subject = {"kind": "User", "name": user, "apiGroup": "rbac.authorization.k8s.io"}
        reference = {"kind": "ClusterRole", "name": name, "apiGroup": "rbac.authorization.k8s.io"}
        binding = {"metadata": {"name": name}, "subjects": [subject], "roleRef": reference}
        await api.create(f"{RBAC}/clusterrolebindings", binding)


async def test_user_speaks_for_another_about_what_he_may_alone(api: Caller) -> None:
    await api.create(MAPS, config_map("a"))
    await grant(api, rule("impersonate:user-info", "users"), rule("impersonate-on:user-info:get", "configmaps", ""))
    jane = api.as_(USER)
    assert (await jane("GET", f"{MAPS}/a")).status == 403
    assert (await jane("GET", f"{MAPS}/a", impersonate_user="joe")).status == 200
    refused = await jane("GET", f"{PODS}/a", impersonate_user="joe")
    why = 'cannot impersonate-on:user-info:get resource "pods" in API group "" in the namespace "default"'
    assert refused.status == 403 and why in refused.json["message"]
    assert refused.json["details"] == {"name": "a", "kind": "pods"}


@pytest.mark.parametrize(
    ("path", "verb"),
    [
        (MAPS, "list"),
        (f"{MAPS}?watch=1", "watch"),
        (MAPS.replace("/v1/", "/v1/watch/"), "watch"),
        (MAPS.replace("/v1/", "/v1/watch/") + "/a", "watch"),
        (f"{MAPS}/a", "get"),
        ("/x", "get"),
    ],
)
async def test_right_is_asked_for_the_verb_of_the_request(api: Caller, path: str, verb: str) -> None:
    answer = await api.as_(USER)("GET", path, impersonate_user="joe")
    assert answer.status == 403 and f"cannot impersonate-on:user-info:{verb} " in answer.json["message"]


@pytest.mark.parametrize(
    ("whom", "verb", "resource", "groups"),
    [
        ("joe", "impersonate:user-info", "users", ["system:authenticated"]),
        ("system:node:n", "impersonate:arbitrary-node", "nodes", ["system:nodes", "system:authenticated"]),
        (
            "system:serviceaccount:a:b",
            "impersonate:serviceaccount",
            "serviceaccounts",
            ["system:serviceaccounts", "system:serviceaccounts:a", "system:authenticated"],
        ),
    ],
)
async def test_each_kind_of_user_has_a_right_of_its_own(
    api: Caller, whom: str, verb: str, resource: str, groups: list[str]
) -> None:
    on = f"impersonate-on:{verb.partition(':')[2]}:create"
    await grant(api, rule(verb, resource), rule(on, "selfsubjectreviews"))
    answer = await api.as_(USER)("POST", WHO, {}, impersonate_user=whom)
    assert answer.json["status"]["userInfo"]["groups"] == groups
    for other in {"joe", "system:node:n", "system:serviceaccount:a:b"} - {whom}:
        assert (await api.as_(USER)("POST", WHO, {}, impersonate_user=other)).status == 403


@pytest.mark.parametrize("headers", [{"impersonate_group": "system:masters"}, {"impersonate_group": ""}])
async def test_constrained_right_does_not_reach_to_masters(api: Caller, headers: dict[str, Any]) -> None:
    on = rule("impersonate-on:user-info:create", "selfsubjectreviews")
    await grant(api, rule("impersonate:user-info", "*"), on)
    answer = await api.as_(USER)("POST", WHO, {}, impersonate_user="joe", **headers)
    assert answer.status == 403 and "group is not allowed" in answer.json["message"]


@pytest.mark.parametrize(("key", "allowed"), [("a.io%2Fb", True), ("scopes", False), ("a..b%2Fc", False)])
async def test_constrained_right_reaches_to_extra_with_a_domain_alone(api: Caller, key: str, allowed: bool) -> None:
    on = rule("impersonate-on:user-info:create", "selfsubjectreviews")
    await grant(api, rule("impersonate:user-info", "*"), rule("impersonate:user-info", "userextras/*"), on)
    headers = {"impersonate_user": "joe", f"impersonate_extra_{key}": "v"}
    answer = await api.as_(USER)("POST", WHO, {}, **headers)
    assert (answer.status == 201) is allowed, answer.json


async def test_groups_without_a_user_are_a_bad_request(api: Caller) -> None:
    answer = await api("GET", MAPS, impersonate_group="x", impersonate_extra_a="b")
    shown = 'Groups:[]string{"x"}, Extra:map[string][]string{"a":[]string{"b"}}}'
    assert answer.status == 400 and shown in answer.json["message"]
    assert (await api("GET", MAPS, impersonate_user="")).status == 200


async def test_binding_counts_once_for_a_user_who_is_several_of_its_subjects(api: Caller) -> None:
    await grant(api, rule("get", "widgets", "x"))
    path = f"{RBAC}/clusterrolebindings/it"
    group = {"kind": "Group", "name": "system:authenticated", "apiGroup": "rbac.authorization.k8s.io"}
    body = [{"op": "add", "path": "/subjects/0", "value": group}]
    assert (await api("PATCH", path, body, type="application/json-patch+json")).status == 200
    body = {"spec": {"namespace": "default"}}
    answer = await api.as_(USER)("POST", "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", body)
    rules = answer.json["status"]["resourceRules"]
    assert len([one for one in rules if one["resources"] == ["widgets"]]) == 1
    spec = {"resourceAttributes": {"verb": "get", "group": "x", "resource": "widgets"}}
    answer = await api.as_(USER)("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", {"spec": spec})
    assert answer.json["status"]["reason"].endswith('to Group "system:authenticated"')


async def test_selector_that_an_authorizer_cannot_read_is_told(api: Caller) -> None:
    bad, good = {"key": "a", "operator": "x"}, {"key": "a", "operator": "In", "values": ["b"]}
    attributes = {"verb": "get", "resource": "pods", "labelSelector": {"requirements": [bad, good]}}
    attributes["fieldSelector"] = {"requirements": [{"key": "a", "operator": "Exists"}]}
    body = {"spec": {"user": "x", "resourceAttributes": attributes}}
    status = (await api("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", body)).json["status"]
    field, label = status["evaluationError"].split("; ")
    assert field.startswith("spec.resourceAttributes.fieldSelector ignored")
    assert label.startswith("spec.resourceAttributes.labelSelector partially ignored")


async def test_refused_list_of_one_name_is_told_with_it(api: Caller) -> None:
    answer = await api.as_(USER)("GET", f"{MAPS}?fieldSelector=metadata.name%3Da")
    assert (answer.status, answer.json["details"]) == (403, {"name": "a", "kind": "configmaps"})


async def test_right_to_a_path_is_told_with_its_binding(api: Caller) -> None:
    await grant(api, {"verbs": ["get"], "nonResourceURLs": ["/x"]})
    body = {"spec": {"user": "jane", "nonResourceAttributes": {"verb": "get", "path": "/x"}}}
    status = (await api("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", body)).json["status"]
    assert status["reason"].startswith('RBAC: allowed by ClusterRoleBinding "it"')


@pytest.mark.parametrize(("many", "status"), [(4, 201), (3, 403)])
@pytest.mark.parametrize("part", ["groups", "extra"])
async def test_one_right_to_all_does_for_many_groups_or_extras(api: Caller, many: int, status: int, part: str) -> None:
    every = {**rule("impersonate:user-info", "groups"), "resourceNames": ["*"]}
    if part == "extra":
        every = rule("impersonate:user-info", "userextras/*")
    on = rule("impersonate-on:user-info:create", "selfsubjectreviews")
    await grant(api, rule("impersonate:user-info", "users"), on, every)
    # Headers that differ in case alone are one header with several values.
    headers = dict.fromkeys(("Impersonate_group", "impersonate_Group", "IMPERSONATE_group", "impersonate_GROUP"), "x")
    if part == "extra":
        headers = {f"impersonate_extra_x.io%2f{number}": "v" for number in range(4)}
    given = dict(list(headers.items())[:many])
    answer = await api.as_(USER)("POST", WHO, {}, impersonate_user="joe", **given)
    assert answer.status == status, answer.json


async def test_metrics_count_attempts_and_checks_by_mode(api: Caller) -> None:
    await grant(api, rule("impersonate:user-info", "users"), rule("impersonate-on:user-info:get", "configmaps", ""))
    jane = api.as_(USER)
    await jane("GET", f"{MAPS}/a", impersonate_user="joe")
    await jane("GET", f"{PODS}/a", impersonate_user="joe")
    lines = (await api("GET", "/metrics")).body.decode().splitlines()
    name = "apiserver_impersonation"
    assert f'{name}_attempts_total{{decision="allowed",mode="user-info"}} 1' in lines
    assert f'{name}_attempts_total{{decision="denied",mode=""}} 1' in lines
    assert f'{name}_authorization_attempts_total{{decision="allowed",mode="user-info"}} 2' in lines
    assert f'{name}_authorization_attempts_total{{decision="denied",mode="legacy"}} 1' in lines
    assert f'{name}_attempts_duration_seconds_count{{decision="allowed",mode="user-info"}} 1' in lines


async def test_path_of_namespaces_is_one_in_a_namespace_in_any_group(api: Caller) -> None:
    answer = await api.as_(USER)("GET", "/apis/apps/v1/namespaces/default", impersonate_user="joe")
    assert answer.json["message"].endswith('in API group "apps" in the namespace "default"')
