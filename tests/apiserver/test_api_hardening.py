"""What a hostile or careless client tries: nothing is shown that is not its own, nothing fails, nothing grows."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from api_caller import ADMIN, MAPS, USER, Caller, config_map

from haru.apiserver.auth.authentication import StaticTokens
from haru.apiserver.config import UserInfo

JSON_PATCH = "application/json-patch+json"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"


def token_at(revision: Any, key: Any) -> str:
    token = json.dumps({"v": "meta.k8s.io/v1", "rv": revision, "start": key})
    return base64.urlsafe_b64encode(token.encode()).decode().rstrip("=")


async def grant(api: Caller, *rules: dict[str, Any], user: str = "jane", namespace: str = "default") -> None:
    base = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}"
    role = {"kind": "Role", "apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": "r"}, "rules": rules}
    await api.create(f"{base}/roles", role)
    binding = {
        "kind": "RoleBinding",
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "metadata": {"name": "r"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"},
        "subjects": [{"kind": "User", "name": user, "apiGroup": "rbac.authorization.k8s.io"}],
    }
    await api.create(f"{base}/rolebindings", binding)


# --- other people's objects


async def test_continue_token_cannot_leave_the_namespace(api: Caller) -> None:
    await grant(api, {"verbs": ["list"], "apiGroups": [""], "resources": ["configmaps"]}, namespace="kube-public")
    await api.create(MAPS, config_map("secret-plan"))
    listed = "/api/v1/namespaces/kube-public/configmaps"
    jane = api.as_(USER)
    assert (await jane("GET", listed)).json["items"] == []
    for start in ("configmaps/", "", "a", "configmaps/default/", "configmaps/kube-publi"):
        for rest in ("", "&limit=1", "&labelSelector=!x"):
            answer = await jane("GET", f"{listed}?continue={token_at(-1, start)}{rest}")
            assert answer.status == 400, (start, answer.body)
            assert "continue key is not valid" in answer.json["message"]


@pytest.mark.parametrize("revision", [10**12, 10**30, -2, 1.5, "1", None])
async def test_invalid_continue_token_is_refused(api: Caller, revision: Any) -> None:
    answer = await api("GET", f"{MAPS}?continue={token_at(revision, 'configmaps/default/a')}")
    assert answer.status in (400, 410), answer.body


async def test_resource_names_in_rules_limit_lists_and_watches(api: Caller) -> None:
    rule = {"verbs": ["*"], "apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["mine"]}
    await grant(api, rule)
    jane = api.as_(USER)
    await api.create(MAPS, config_map("mine"))
    selected = f"{MAPS}?fieldSelector=metadata.name%3Dmine"
    assert (await jane("GET", selected)).status == 200
    assert (await jane("GET", MAPS)).status == 403
    for method, body in (("POST", config_map("other")), ("DELETE", None)):
        answer = await jane(method, selected, body)
        assert answer.status == 403, f"{method} of a collection is not the matter of one name"


IMPERSONATE = {"verbs": ["impersonate"], "apiGroups": [""], "resources": ["serviceaccounts", "groups", "users"]}


@pytest.mark.parametrize(
    "headers",
    [
        {"impersonate_group": "system:masters"},
        {"impersonate_uid": "1"},
        {"impersonate_extra_scopes": "all"},
    ],
)
async def test_impersonated_service_account_gets_only_its_groups(api: Caller, headers: dict[str, str]) -> None:
    await grant(api, IMPERSONATE)
    jane, account = api.as_(USER), "system:serviceaccount:default:robot"
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    answer = await jane("POST", path, review, impersonate_user=account)
    assert answer.json["status"]["userInfo"]["username"] == account
    refused = await jane("POST", path, review, impersonate_user=account, **headers)
    assert refused.status == 403, refused.body
    alone = await jane("POST", path, review, **headers)
    assert alone.status == 400 and "without impersonating a user" in alone.json["message"]


async def test_tokens_are_never_disclosed(api: Caller, caplog: pytest.LogCaptureFixture) -> None:
    for path in (MAPS, "/nothing", "/api"):
        answer = await api.as_("guessed-secret")("GET", path)
        assert answer.status == 401 and b"guessed-secret" not in answer.body + str(answer.headers).encode()
    answer = await api("GET", "/nothing")
    assert ADMIN.encode() not in answer.body + str(answer.headers).encode()
    assert "guessed-secret" not in caplog.text and ADMIN not in caplog.text


def test_static_token_must_match_completely() -> None:
    tokens = StaticTokens({"abc": UserInfo("a"), "ü": UserInfo("u")})
    assert tokens.find("abc") == UserInfo("a", ("system:authenticated",))
    assert [tokens.find(text) for text in ("", "ab", "abcd", "ABC", "\ud800")] == [None] * 5
    assert tokens.find("ü") is not None and "abc" not in repr(vars(tokens)["_users"].keys())


@pytest.mark.parametrize("path", ["/versions", "/healthzz", "/livezpods", "/readyz.", "/api", "/", "/metrics"])
async def test_anonymous_user_sees_only_health_and_version(api: Caller, path: str) -> None:
    assert (await api.as_("")("GET", path)).status == 403
    for open_path in ("/version", "/healthz", "/livez", "/readyz/"):
        assert (await api.as_("")("GET", open_path)).status == 200


# --- bodies that grow


def nested(depth: int) -> Any:
    value: Any = {}
    for _ in range(depth):
        value = {"a": value}
    return value


CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"


def claim(name: str, parameters: Any) -> dict[str, Any]:
    request = {"name": "r", "exactly": {"deviceClassName": "gpu"}}
    config = {"opaque": {"driver": "x.y", "parameters": parameters}}
    devices = {"requests": [request], "config": [config]}
    metadata = {"name": name}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": metadata,
        "spec": {"devices": devices},
    }


async def test_patch_depth_and_growth_are_limited(api: Caller) -> None:
    await api.create(CLAIMS, claim("deep", {"a": {}}))
    path = "/spec/devices/config/0/opaque/parameters/a"
    operations = []
    for _ in range(5):
        operations.append({"op": "add", "path": path, "value": nested(150)})
        path += "/a" * 150
    answer = await api("PATCH", f"{CLAIMS}/deep", operations, type=JSON_PATCH)
    assert answer.status == 422 and "nested deeper" in answer.json["message"]
    doubling = [{"op": "add", "path": "/data", "value": {"a": "x"}}]
    doubling += [{"op": "copy", "from": "/data", "path": f"/data/b{i}"} for i in range(60)]
    await api.create(MAPS, config_map("double"))
    answer = await api("PATCH", f"{MAPS}/double", doubling, type=JSON_PATCH)
    assert answer.status == 422 and "exceeding the limit" in answer.json["message"]


@pytest.mark.parametrize(
    ("body", "type"),
    [
        ('apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\ndata: {a: "\\ud800"}\n', "application/yaml"),
        (
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x, generation: 99999999999999999999999}\n",
            "application/yaml",
        ),
        ('{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"},"x":' + "9" * 400 + "}", "application/yaml"),
        ("{" * 5000, "application/yaml"),
        ("[" * 5000, "application/json"),
        ("- a\n- b\n", "application/yaml"),
        ("a: &a [*a]\n", "application/yaml"),
    ],
)
async def test_body_that_cannot_be_stored_is_a_bad_request(api: Caller, body: str, type: str) -> None:
    answer = await api("POST", MAPS, body.encode(), type=type)
    assert answer.status == 400 and answer.json["reason"] == "BadRequest", answer.body


@pytest.mark.parametrize(("metadata", "shown"), [("[]", "[]"), ("false", "false"), ('"x"', "x"), ("1", "1")])
async def test_applied_metadata_must_be_an_object(api: Caller, metadata: str, shown: str) -> None:
    body = f'{{"apiVersion":"v1","kind":"ConfigMap","metadata":{metadata}}}'.encode()
    answer = await api("PATCH", f"{MAPS}/x?fieldManager=m", body, type=APPLY)
    assert (answer.status, answer.json["message"]) == (
        500,
        f"failed to create typed patch object (/; /v1, Kind=ConfigMap): .metadata: expected map, got &{{{shown}}}",
    )


async def test_non_string_list_items_are_refused_after_patch(api: Caller) -> None:
    await api.create(MAPS, config_map("x"))
    body = {"metadata": {"finalizers": [["a"], [{}]]}}
    answer = await api("PATCH", f"{MAPS}/x", body, type=STRATEGIC)
    assert answer.status == 422 and "cannot unmarshal array" in answer.json["message"]


@pytest.mark.parametrize(
    "query",
    [
        "limit=1_0",
        "limit=%D9%A3",
        "limit=" + "9" * 30,
        "resourceVersion=" + "9" * 5000,
        "resourceVersion=%C2%B2",
        "resourceVersion=18446744073709551616",
        "watch=1&timeoutSeconds=" + "9" * 400,
    ],
)
async def test_numeric_query_parameters_are_parsed_strictly(api: Caller, query: str) -> None:
    answer = await api("GET", f"{MAPS}?{query}")
    assert answer.status in (400, 422), answer.body
    assert len(answer.body) < 1000


# --- warnings are headers


async def test_warning_header_is_escaped_and_limited(api: Caller) -> None:
    body = config_map("x")
    body['evil"\r\nSet-Cookie: a=b'] = 1
    answer = await api("POST", MAPS, body)
    assert answer.status == 201
    assert answer.headers["warning"] == r'299 - "unknown field \"evil\\\"\\r\\nSet-Cookie: a=b\""'
    body = config_map("y")
    body.update({f"field{i}": 1 for i in range(5000)})
    answer = await api("POST", MAPS, body)
    assert answer.status == 201 and len(answer.headers["warning"]) < 300


async def test_doubtful_fields_are_accepted_with_warning(api: Caller) -> None:
    """Pods when they are made, workloads when their spec changes; dry runs too."""
    said = '299 - "spec.template.spec.nodeSelector[beta.kubernetes.io/os]: deprecated since v1.14; '
    container = {"name": "a", "image": "x"}
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [container]}}
    deployment = {"metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template}}
    path = "/apis/apps/v1/namespaces/default/deployments"
    assert "warning" not in (await api("POST", path, deployment)).headers
    odd = {"spec": {"template": {"spec": {"nodeSelector": {"beta.kubernetes.io/os": "linux"}}}}}
    for query in ("?dryRun=All", ""):
        changed = await api("PATCH", f"{path}/d{query}", odd, type="application/merge-patch+json")
        assert changed.status == 200 and changed.headers["warning"].startswith(said)
    labelled = {"metadata": {"labels": {"x": "y"}}}
    changed = await api("PATCH", f"{path}/d", labelled, type="application/merge-patch+json")
    assert changed.status == 200 and "warning" not in changed.headers
    refused = await api("POST", path, {**deployment, "metadata": {"name": "a.b"}, "spec": {"replicas": -1}})
    assert refused.status == 422 and "warning" not in refused.headers
    pod = {"metadata": {"name": "a.b"}, "spec": {"containers": [container]}}
    made = await api("POST", "/api/v1/namespaces/default/pods", pod)
    assert made.headers["warning"].startswith("299 - \"metadata.name: this is used in the Pod's hostname")


# --- names that occur twice

TWICE = b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"},"data":{"a":"1","a":"2"}}'
TWICE_YAML = b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\ndata:\n  a: '1'\n  a: '2'\n"


@pytest.mark.parametrize(
    ("method", "path", "body", "type", "text"),
    [
        ("POST", MAPS, TWICE, "application/json", 'duplicate field "data.a"'),
        ("POST", MAPS, TWICE_YAML, "application/yaml", 'line 6: key "a" already set in map'),
        ("POST", MAPS, TWICE, "application/yaml", 'duplicate field "data.a"'),
        ("PATCH", f"{MAPS}/x", TWICE, APPLY, 'line 1: key "a" already set in map'),
        ("PATCH", f"{MAPS}/x", TWICE_YAML, APPLY, 'line 6: key "a" already set in map'),
        ("PATCH", f"{MAPS}/there", b'{"data":{"a":"1","a":"2"}}', MERGE, 'duplicate field "data.a"'),
        ("PATCH", f"{MAPS}/there", b'{"data":{"a":"1","a":"2"}}', STRATEGIC, 'duplicate field "data.a"'),
    ],
)
async def test_duplicate_fields_follow_field_validation(
    api: Caller, method: str, path: str, body: bytes, type: str, text: str
) -> None:
    await api.create(MAPS, config_map("there"))
    query = "?fieldManager=m&dryRun=All&fieldValidation="
    strict = await api(method, f"{path}{query}Strict", body, type=type)
    assert strict.status == (422 if type in (MERGE, STRATEGIC) else 400) and text in strict.json["message"]
    warned = await api(method, f"{path}{query}Warn", body, type=type)
    assert warned.status in (200, 201) and text.replace('"', '\\"') in warned.headers["warning"]
    assert warned.json["data"] == {"a": "2"}
    ignored = await api(method, f"{path}{query}Ignore", body, type=type)
    assert ignored.status in (200, 201) and "warning" not in ignored.headers


@pytest.mark.parametrize("half", [b"\\ud800", b"\xed\xa0\x80"])
async def test_repeated_field_with_half_a_character_in_its_name_is_told(api: Caller, half: bytes) -> None:
    body = b'{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a"},"x%b":1,"data":{"x%b":"1","x%b":"2"}}'
    warned = await api("POST", f"{MAPS}?fieldValidation=Warn", body % (half, half, half), type="application/json")
    assert warned.status == 422 and "a valid config key must consist of" in warned.json["message"]
    assert warned.headers["warning"].encode("latin-1").decode() == '299 - "duplicate field \\"data.x\ufffd\\""'
    strict = await api("POST", f"{MAPS}?fieldValidation=Strict", body % (half, half, half), type="application/json")
    assert strict.status == 400 and 'unknown field "x\ufffd", duplicate field "data.x\ufffd"' in strict.json["message"]


async def test_number_of_warning_headers_is_limited(api: Caller) -> None:
    unknown = {f"x{number}": 1 for number in range(150)}
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": json.dumps(config_map("a") | unknown).encode(), "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    named = [(b"authorization", f"Bearer {ADMIN}".encode()), (b"content-type", b"application/json")]
    await api.app(
        {"type": "http", "method": "POST", "path": MAPS, "query_string": b"", "headers": named}, receive, send
    )
    told = [value.decode() for name, value in sent[0]["headers"] if name == b"warning"]
    assert sent[0]["status"] == 201 and len(told) == 50
    assert told[0] == '299 - "unknown field \\"x0\\""' and told[-1] == '299 - "and 51 more warnings"'
