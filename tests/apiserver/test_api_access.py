"""Authentication, RBAC, reviews, impersonation."""

from __future__ import annotations

from typing import Any

import pytest
from api_caller import ADMIN, MAPS, PODS, USER, Caller, config_map

RBAC = "/apis/rbac.authorization.k8s.io/v1"
AUTHORIZATION = "/apis/authorization.k8s.io/v1"
AUTHENTICATION = "/apis/authentication.k8s.io/v1"


async def test_wrong_token_is_unauthorized(api: Caller) -> None:
    answer = await api.as_("wrong")("GET", PODS)
    assert (answer.status, answer.json["reason"]) == (401, "Unauthorized")
    assert (await api.as_("wrong")("GET", "/version")).status == 401


@pytest.mark.parametrize("header", [{}, {"authorization": "Basic YTpi"}, {"authorization": "Bearer "}])
async def test_caller_without_token_is_anonymous_and_may_nothing_but_what_is_public(
    api: Caller, header: dict[str, str]
) -> None:
    answer = await api.as_("")("GET", PODS, **header)
    assert (answer.status, answer.json["reason"]) == (403, "Forbidden")
    assert 'User "system:anonymous" cannot list resource "pods"' in answer.json["message"]
    assert (await api.as_("")("GET", "/version", **header)).status == 200


async def test_role_bound_to_unauthenticated_callers_lets_them_in(api: Caller) -> None:
    group = {"kind": "Group", "name": "system:unauthenticated", "apiGroup": "rbac.authorization.k8s.io"}
    await grant(api, [rule("list", "pods")], subject=group)
    assert (await api.as_("")("GET", PODS)).status == 200
    assert (await api.as_("")("GET", MAPS)).status == 403


async def test_rights_are_checked_before_the_kind_is_looked_for(api: Caller) -> None:
    assert (await api.as_(USER)("GET", "/apis/nowhere.example.com/v1/things")).status == 403
    assert (await api("GET", "/apis/nowhere.example.com/v1/things")).status == 404


async def grant(api: Caller, rules: list[Any], namespace: str = "", subject: Any = None, kind: str = "Role") -> None:
    """Bind a role to jane (or another subject)."""
    subject = subject or {"kind": "User", "name": "jane", "apiGroup": "rbac.authorization.k8s.io"}
    inner = f"/namespaces/{namespace}" if namespace else ""
    role_kind = kind if namespace else "ClusterRole"
    roles = f"{RBAC}{inner}/roles" if role_kind == "Role" else f"{RBAC}/clusterroles"
    await api.create(roles, {"metadata": {"name": "it"}, "rules": rules})
    bindings = f"{RBAC}{inner}/rolebindings" if namespace else f"{RBAC}/clusterrolebindings"
    reference = {"kind": role_kind, "name": "it", "apiGroup": "rbac.authorization.k8s.io"}
    await api.create(bindings, {"metadata": {"name": "it"}, "subjects": [subject], "roleRef": reference})


async def test_refusal_names_roles_that_a_user_is_bound_to_and_that_are_not_there(api: Caller) -> None:
    subjects = [{"kind": "User", "name": "jane", "apiGroup": "rbac.authorization.k8s.io"}]
    for plural, kind, name in (("rolebindings", "Role", "nope"), ("rolebindings", "ClusterRole", "none")):
        reference = {"kind": kind, "name": name, "apiGroup": "rbac.authorization.k8s.io"}
        binding = {"metadata": {"name": name}, "subjects": subjects, "roleRef": reference}
        await api.create(f"{RBAC}/namespaces/default/{plural}", binding)
    lacks = 'role.rbac.authorization.k8s.io "nope" not found', 'clusterrole.rbac.authorization.k8s.io "none" not found'
    message = (await api.as_(USER)("GET", PODS)).json["message"]
    head, _, told = message.partition(": RBAC: ")
    assert head.endswith('in the namespace "default"') and all(one in told for one in lacks) and told[0] == "["
    assert (await api.as_(USER)("GET", "/api/v1/nodes")).json["message"].endswith("at the cluster scope")
    review = {"spec": {"namespace": "default"}}
    answer = await api.as_(USER)("POST", f"{AUTHORIZATION}/selfsubjectrulesreviews", review)
    assert answer.json["status"]["evaluationError"] == told
    reference = {"kind": "ClusterRole", "name": "none", "apiGroup": "rbac.authorization.k8s.io"}
    binding = {"metadata": {"name": "x"}, "subjects": subjects, "roleRef": reference}
    await api.create(f"{RBAC}/clusterrolebindings", binding)
    refused = (await api.as_(USER)("GET", "/metrics")).json["message"]
    assert refused == f'forbidden: User "jane" cannot get path "/metrics": RBAC: {lacks[1]}'


def rule(verbs: str, resources: str, group: str = "", names: str = "") -> Any:
    found: Any = {"verbs": verbs.split(), "resources": resources.split(), "apiGroups": [group]}
    if names:
        found["resourceNames"] = names.split()
    return found


@pytest.mark.parametrize(
    ("rules", "namespace", "method", "path", "allowed"),
    [
        ([rule("get list", "configmaps")], "default", "GET", MAPS, True),
        ([rule("get list", "configmaps")], "default", "GET", f"{MAPS}/a", True),
        ([rule("get", "configmaps")], "default", "GET", MAPS, False),
        ([rule("get list", "configmaps")], "default", "GET", "/api/v1/namespaces/kube-system/configmaps", False),
        ([rule("get list", "configmaps")], "default", "GET", "/api/v1/configmaps", False),
        ([rule("get list", "configmaps")], "", "GET", "/api/v1/configmaps", True),
        ([rule("*", "*")], "", "DELETE", f"{MAPS}/a", True),
        ([rule("*", "*", "apps")], "", "GET", MAPS, False),
        ([rule("get", "configmaps", names="a")], "default", "GET", f"{MAPS}/a", True),
        ([rule("get", "configmaps", names="b")], "default", "GET", f"{MAPS}/a", False),
        ([rule("list", "configmaps", names="a")], "default", "GET", MAPS, False),
        ([rule("list", "configmaps", names="a")], "default", "GET", f"{MAPS}?fieldSelector=metadata.name%3Da", True),
        ([rule("get", "pods")], "default", "GET", f"{PODS}/a/log", False),
        ([rule("get", "pods/log")], "default", "GET", f"{PODS}/a/log", True),
        ([rule("get", "*/log")], "default", "GET", f"{PODS}/a/log", True),
        ([rule("get", "namespaces")], "default", "GET", "/api/v1/namespaces/default", True),
        ([rule("watch", "configmaps")], "default", "GET", f"{MAPS}?limit=1", False),
    ],
)
async def test_rbac_rule_allows_matching_request(
    api: Caller, rules: Any, namespace: str, method: str, path: str, allowed: bool
) -> None:
    await api.create(MAPS, config_map("a"))
    jane = api.as_(USER)
    assert (await jane(method, path)).status == 403
    await grant(api, rules, namespace)
    assert ((await jane(method, path)).status != 403) == allowed


async def test_forbidden_message_names_user_verb_and_resource(api: Caller) -> None:
    jane = api.as_(USER)
    answer = await jane("GET", "/apis/apps/v1/namespaces/default/deployments/web")
    assert answer.json["message"] == (
        'deployments.apps "web" is forbidden: User "jane" cannot get resource "deployments" in API group "apps" '
        'in the namespace "default"'
    )
    answer = await jane("GET", "/api/v1/nodes")
    assert answer.json["message"].endswith("at the cluster scope")
    answer = await jane("GET", "/metrics")
    assert answer.json["message"] == 'forbidden: User "jane" cannot get path "/metrics"'


async def test_role_binding_takes_effect_and_ends_immediately(api: Caller) -> None:
    jane = api.as_(USER)
    await grant(api, [rule("list", "configmaps")], "default", {"kind": "Group", "name": "devs"})
    assert (await jane("GET", MAPS)).status == 200
    await api("DELETE", f"{RBAC}/namespaces/default/rolebindings/it")
    assert (await jane("GET", MAPS)).status == 403


async def test_role_bindings_survive_compaction(api: Caller) -> None:
    jane = api.as_(USER)
    await grant(api, [rule("list", "configmaps")], "default")
    await api.app.objects.store.compact(api.app.objects.store.revision)
    assert (await jane("GET", MAPS)).status == 200


async def test_aggregated_cluster_role_grants_what_its_controller_has_written(api: Caller) -> None:
    reference = {"kind": "ClusterRole", "name": "view", "apiGroup": "rbac.authorization.k8s.io"}
    subject = {"kind": "User", "name": "jane", "apiGroup": "rbac.authorization.k8s.io"}
    body = {"metadata": {"name": "v"}, "roleRef": reference, "subjects": [subject]}
    await api.create(f"{RBAC}/namespaces/default/rolebindings", body)
    jane = api.as_(USER)
    assert (await jane("GET", PODS)).status == 403
    patch = {"rules": [rule("list", "pods")]}
    await api("PATCH", f"{RBAC}/clusterroles/view", patch, type="application/merge-patch+json")
    assert (await jane("GET", PODS)).status == 200
    assert (await jane("GET", "/api/v1/namespaces/default/secrets")).status == 403


async def may(caller: Caller, **attributes: str) -> bool:
    body = {"spec": {"resourceAttributes": attributes}}
    answer = await caller("POST", f"{AUTHORIZATION}/selfsubjectaccessreviews", body)
    assert answer.status == 201, answer.body
    return bool(answer.json["status"]["allowed"])


async def test_access_reviews_answer_by_rbac(api: Caller) -> None:
    jane = api.as_(USER)
    assert await may(api, verb="delete", resource="nodes")
    assert not await may(jane, verb="delete", resource="nodes")
    await grant(api, [rule("delete", "nodes")])
    assert await may(jane, verb="delete", resource="nodes")
    attributes = {"verb": "delete", "resource": "nodes"}
    body = {"spec": {"user": "jane", "resourceAttributes": attributes}}
    status = (await api("POST", f"{AUTHORIZATION}/subjectaccessreviews", body)).json["status"]
    why = 'RBAC: allowed by ClusterRoleBinding "it" of ClusterRole "it" to User "jane"'
    assert status == {"allowed": True, "reason": why}
    body["spec"]["user"] = "joe"
    assert (await api("POST", f"{AUTHORIZATION}/subjectaccessreviews", body)).json["status"] == {"allowed": False}
    path = {"spec": {"nonResourceAttributes": {"verb": "get", "path": "/healthz"}}}
    assert (await jane("POST", f"{AUTHORIZATION}/selfsubjectaccessreviews", path)).json["status"]["allowed"]
    local = f"{AUTHORIZATION}/namespaces/default/localsubjectaccessreviews"
    body = {"spec": {"user": "jane", "resourceAttributes": {**attributes, "namespace": "default"}}}
    assert (await api("POST", local, body)).status == 201
    body["spec"]["resourceAttributes"] = attributes
    assert (await api("POST", local, body)).status == 422
    assert (await api("POST", f"{AUTHORIZATION}/selfsubjectaccessreviews", {"spec": {}})).status == 422
    assert (await api("GET", f"{AUTHORIZATION}/selfsubjectaccessreviews")).status == 405


async def test_rules_review_lists_rules_of_user(api: Caller) -> None:
    await grant(api, [rule("get", "pods")], "default")
    answer = await api.as_(USER)("POST", f"{AUTHORIZATION}/selfsubjectrulesreviews", {"spec": {"namespace": "default"}})
    assert {"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]} in answer.json["status"]["resourceRules"]
    assert answer.json["status"]["incomplete"] is False


async def test_token_review_identifies_user(api: Caller) -> None:
    good = await api("POST", f"{AUTHENTICATION}/tokenreviews", {"spec": {"token": USER}})
    assert good.json["status"]["authenticated"] and good.json["status"]["user"]["username"] == "jane"
    bad = await api("POST", f"{AUTHENTICATION}/tokenreviews", {"spec": {"token": "x"}})
    assert "authenticated" not in bad.json["status"]


async def test_impersonation_requires_permission(api: Caller) -> None:
    headers = {"impersonate_user": "joe", "impersonate_group": "devs"}
    answer = await api("POST", f"{AUTHENTICATION}/selfsubjectreviews", {}, **headers)
    assert answer.json["status"]["userInfo"]["username"] == "joe"
    assert answer.json["metadata"].keys() == {"creationTimestamp"}
    assert (await api.as_(USER)("GET", PODS, **headers)).status == 403
    await grant(api, [rule("impersonate", "users groups")])
    answer = await api.as_(USER)("POST", f"{AUTHENTICATION}/selfsubjectreviews", {}, **headers)
    assert answer.json["status"]["userInfo"]["groups"] == ["devs", "system:authenticated"]


async def test_who_is_turned_away_is_told_so_in_a_form_that_no_browser_guesses_at(api: Caller) -> None:
    """As in 1.36: for what a filter refuses alone, not for what admission or a resource does."""
    jane, header = api.as_(USER), "x-content-type-options"
    refused = [
        await jane("GET", PODS),
        await jane("GET", "/metrics"),
        await jane("GET", PODS, accept="application/yaml"),
        await jane("GET", "/apis/nowhere.example.com/v1/things"),
        await jane("POST", f"{PODS}/p/exec?command=ls"),
        await jane("GET", PODS, impersonate_user="joe"),
    ]
    assert [(answer.status, answer.headers.get(header)) for answer in refused] == [(403, "nosniff")] * len(refused)
    nameless = await api("GET", PODS, impersonate_group="devs")
    assert (nameless.status, nameless.headers.get(header)) == (400, "nosniff")
    await grant(api, [rule("create get", "roles", "rbac.authorization.k8s.io"), rule("get", "pods")])
    roles = f"{RBAC}/namespaces/default/roles"
    others = [
        (403, await jane("POST", roles, {"metadata": {"name": "no"}, "rules": [rule("get", "secrets")]})),
        (404, await jane("GET", f"{PODS}/none")),
        (401, await api.as_("wrong")("GET", PODS)),
        (201, await api("POST", f"{AUTHENTICATION}/selfsubjectreviews", {}, impersonate_user="joe")),
    ]
    for status, answer in others:
        assert answer.status == status and header not in answer.headers, answer.body


async def test_user_cannot_grant_permissions_it_does_not_have(api: Caller) -> None:
    jane = api.as_(USER)
    await grant(api, [rule("create update", "roles rolebindings", "rbac.authorization.k8s.io"), rule("get", "pods")])
    roles = f"{RBAC}/namespaces/default/roles"
    assert (await jane("POST", roles, {"metadata": {"name": "ok"}, "rules": [rule("get", "pods")]})).status == 201
    answer = await jane("POST", roles, {"metadata": {"name": "no"}, "rules": [rule("get", "secrets")]})
    assert answer.status == 403 and "attempting to grant RBAC permissions not currently held" in answer.json["message"]
    subject = {"kind": "User", "name": "jane", "apiGroup": "rbac.authorization.k8s.io"}
    for name, status in (("it", 403), ("cluster-admin", 403)):
        reference = {"kind": "ClusterRole", "name": name, "apiGroup": "rbac.authorization.k8s.io"}
        body = {"metadata": {"name": "b"}, "roleRef": reference, "subjects": [subject]}
        answer = await jane("POST", f"{RBAC}/namespaces/default/rolebindings", body)
        assert answer.status == (201 if name == "it" else status), answer.body


async def test_role_beyond_own_permissions_is_not_relabelled_but_let_go(api: Caller) -> None:
    jane = api.as_(USER)
    await grant(api, [rule("update", "roles", "rbac.authorization.k8s.io")])
    roles = f"{RBAC}/namespaces/default/roles"
    role = await api.create(roles, {"metadata": {"name": "r", "finalizers": ["a.b/c"]}, "rules": [rule("get", "pods")]})
    labelled = {**role, "metadata": {**role["metadata"], "labels": {"a": "b"}}}
    answer = await jane("PUT", f"{roles}/r", labelled)
    assert answer.status == 403 and "not currently held" in answer.json["message"]
    unversioned = {**role, "metadata": {**role["metadata"], "resourceVersion": ""}}
    assert (await jane("PUT", f"{roles}/r", unversioned)).status == 403
    free = {**role, "metadata": {**role["metadata"], "finalizers": []}}
    assert (await jane("PUT", f"{roles}/r", free)).status == 200


async def test_right_to_escalate_some_roles_is_none_to_create_them(api: Caller) -> None:
    jane = api.as_(USER)
    named = rule("escalate", "roles", "rbac.authorization.k8s.io", "r")
    await grant(api, [rule("create update", "roles", "rbac.authorization.k8s.io"), named])
    roles = f"{RBAC}/namespaces/default/roles"
    role = {"metadata": {"name": "r"}, "rules": [rule("get", "pods")]}
    assert (await jane("POST", roles, role)).status == 403
    await api.create(roles, {"metadata": {"name": "r"}})
    assert (await jane("PUT", f"{roles}/r", role)).status == 200


async def test_binding_of_more_than_own_permissions_is_not_relabelled_but_let_go(api: Caller) -> None:
    jane = api.as_(USER)
    await grant(api, [rule("update", "rolebindings", "rbac.authorization.k8s.io")])
    space = f"{RBAC}/namespaces/default"
    await api.create(f"{space}/roles", {"metadata": {"name": "r"}, "rules": [rule("get", "pods")]})
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"}
    bindings = f"{space}/rolebindings"
    binding = await api.create(bindings, {"metadata": {"name": "b", "finalizers": ["a.b/c"]}, "roleRef": reference})
    labelled = {**binding, "metadata": {**binding["metadata"], "labels": {"a": "b"}}}
    answer = await jane("PUT", f"{bindings}/b", labelled)
    assert answer.status == 403 and "not currently held" in answer.json["message"]
    unversioned = {**binding, "metadata": {**binding["metadata"], "resourceVersion": ""}}
    assert (await jane("PUT", f"{bindings}/b", unversioned)).status == 403
    free = {**binding, "metadata": {**binding["metadata"], "finalizers": []}}
    assert (await jane("PUT", f"{bindings}/b", free)).status == 200


async def test_refused_grant_tells_what_is_missing_alone(api: Caller) -> None:
    jane = api.as_(USER)
    rights = "rbac.authorization.k8s.io"
    await grant(api, [rule("create", "roles", rights), rule("get list", "pods")])
    wanted = [rule("get delete list watch", "pods"), {**rule("get list", "secrets"), "resourceNames": ["b", "a"]}]
    wanted.append({"apiGroups": ["", "apps"], "resources": ["pods"], "verbs": ["get"]})
    answer = await jane("POST", f"{RBAC}/namespaces/default/roles", {"metadata": {"name": "more"}, "rules": wanted})
    assert answer.status == 403 and answer.json["message"].partition("held:\n")[2].splitlines() == [
        '{APIGroups:[""], Resources:["pods"], Verbs:["delete" "watch"]}',
        '{APIGroups:[""], Resources:["secrets"], ResourceNames:["a"], Verbs:["get" "list"]}',
        '{APIGroups:[""], Resources:["secrets"], ResourceNames:["b"], Verbs:["get" "list"]}',
        '{APIGroups:["apps"], Resources:["pods"], Verbs:["get"]}',
    ]


async def test_aggregated_role_needs_all_permissions(api: Caller) -> None:
    jane = api.as_(USER)
    await grant(api, [rule("create update", "clusterroles", "rbac.authorization.k8s.io")])
    roles, aggregation = f"{RBAC}/clusterroles", {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]}
    summed = {"metadata": {"name": "sum"}, "aggregationRule": aggregation}
    refused = [await jane("POST", roles, summed)]
    await api.create(roles, summed)
    refused += [await jane("PUT", f"{roles}/sum", {"metadata": {"name": "sum"}})]  # it cannot be taken away, either
    for answer in refused:
        assert answer.status == 403, answer.body
        assert answer.json["message"].endswith("must have cluster-admin privileges to use the aggregationRule")
    answer = await jane("POST", roles, {**summed, "rules": [rule("get", "secrets")]})
    assert "not currently held:\n{APIGroups" in answer.json["message"]


async def test_cluster_starts_with_default_roles_and_namespaces(api: Caller) -> None:
    names = {i["metadata"]["name"] for i in (await api.get(f"{RBAC}/clusterroles"))["items"]}
    assert {"cluster-admin", "admin", "edit", "view", "system:kube-scheduler", "system:node"} <= names
    namespaces = {i["metadata"]["name"] for i in (await api.get("/api/v1/namespaces"))["items"]}
    assert namespaces == {"default", "kube-system", "kube-public", "kube-node-lease"}
    assert ADMIN


async def test_right_to_certain_names_is_no_right_to_others_asked_later(api: Caller) -> None:
    await grant(api, [rule("get", "configmaps", names="mine"), rule("list", "configmaps")], "default")
    for name, status in (("mine", 404), ("other", 403), ("mine", 404), ("other", 403)):
        assert (await api.as_(USER)("GET", f"{MAPS}/{name}")).status == status
    for _ in range(2):
        assert (await api.as_(USER)("GET", MAPS)).status == 200
        assert (await api.as_(USER)("GET", PODS)).status == 403
    await api("DELETE", f"{RBAC}/namespaces/default/rolebindings/it")
    assert (await api.as_(USER)("GET", MAPS)).status == 403
