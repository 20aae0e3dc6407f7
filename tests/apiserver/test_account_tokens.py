"""ServiceAccount tokens by keys in files: what is asked for, what is in them, and where others find the keys."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jwt
import pytest
from account_api import (
    ACCOUNTS,
    CONFIGURATION,
    DEFAULT,
    JWKS,
    NODES,
    SECRETS,
    SELF,
    Obj,
    ask,
    review,
    said,
    server,
    token_of,
    why_not,
)
from admission_objects import BINDINGS, POLICIES, binding, constraints, policy
from api_caller import ADMIN, KEY, PODS, Caller, Clock, pod, service_account_key
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)

from haru.apiserver.audit import load_policy
from haru.apiserver.audit_options import AuditOptions
from haru.apiserver.auth.certificates import new_authority
from haru.apiserver.auth.tokens.keys import KeyFileError, key_id_of, load_signing_key, load_verification_keys
from haru.storage import SqliteStore

POLICY = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [{"level": "RequestResponse"}]}

# --- what is asked for


async def test_service_account_token_has_expected_claims(robot: Caller) -> None:
    claims = said(await token_of(robot))
    now = int(robot.clock.now.timestamp())
    account = await robot.get(f"{ACCOUNTS}/robot")
    assert claims.pop("jti").count("-") == 4
    assert claims == {
        "aud": [DEFAULT],
        "exp": now + 3600,
        "iat": now,
        "nbf": now,
        "iss": DEFAULT,
        "sub": "system:serviceaccount:default:robot",
        "kubernetes.io": {
            "namespace": "default",
            "serviceaccount": {"name": "robot", "uid": account["metadata"]["uid"]},
        },
    }


@pytest.mark.parametrize(
    ("seconds", "code"), [(599, 422), (600, 201), (1 << 32, 201), ((1 << 32) + 1, 422), (0, 422), (-1, 422)]
)
async def test_token_lifetime_is_validated(robot: Caller, seconds: int, code: int) -> None:
    answer = await ask(robot, expirationSeconds=seconds)
    assert answer.status == code, answer.body
    if code == 201:
        claims = said(answer.json["status"]["token"])
        assert claims["exp"] - claims["iat"] == seconds and "warning" not in answer.headers
    else:
        assert answer.json["details"]["causes"][0]["field"] == "spec.expirationSeconds"


async def test_lifetime_above_maximum_is_shortened_with_warning() -> None:
    async with server(max_seconds=7200) as api:
        await api.create(ACCOUNTS, {"metadata": {"name": "robot"}})
        answer = await ask(api, expirationSeconds=7201)
        assert answer.headers["warning"] == '299 - "requested expiration of 7201 seconds shortened to 7200 seconds"'
        assert answer.json["spec"]["expirationSeconds"] == 7200
        assert answer.json["status"]["expirationTimestamp"] == "2026-03-04T07:06:07Z"
        assert said(answer.json["status"]["token"])["exp"] == int(api.clock.now.timestamp()) + 7200


@pytest.mark.parametrize(
    ("metadata", "code", "text"),
    [
        ({"name": "robot", "namespace": "default"}, 201, ""),
        ({"name": "other"}, 422, "must match the service account name if specified"),
        ({"namespace": "other"}, 400, "does not match the namespace sent on the request"),
        (
            {"uid": "x"},
            409,
            'fulfilled on TokenRequest.authentication.k8s.io "robot": the UID in the token request (x)',
        ),
    ],
)
async def test_token_request_metadata_must_match_account(robot: Caller, metadata: Obj, code: int, text: str) -> None:
    answer = await ask(robot, metadata)
    assert answer.status == code and text in answer.json.get("message", ""), answer.body


async def test_token_request_may_name_uid_of_account(robot: Caller) -> None:
    uid = (await robot.get(f"{ACCOUNTS}/robot"))["metadata"]["uid"]
    assert (await ask(robot, {"uid": uid})).status == 201
    assert (await ask(robot)).json["metadata"]["uid"] == uid


async def test_token_request_tells_whose_its_labels_and_status_are(robot: Caller) -> None:
    body = {"metadata": {"name": "robot", "labels": {"a": "b"}}, "status": {"token": "x"}}
    entries = (await robot("POST", f"{ACCOUNTS}/robot/token", body)).json["metadata"]["managedFields"]
    labels, seconds = {"f:labels": {".": {}, "f:a": {}}}, {"f:expirationSeconds": {}}
    expected = {"f:metadata": labels, "f:spec": seconds, "f:status": {"f:token": {}}}
    assert [entry["fieldsV1"] for entry in entries] == [expected]


async def test_policies_see_what_a_token_request_leaves_out(robot: Caller) -> None:
    told = ["object.metadata.name == 'robot'", "has(object.metadata.uid)", "object.spec.expirationSeconds == 3600"]
    rules = constraints("CREATE", resources="serviceaccounts/token")
    await robot.create(POLICIES, policy(*told, "object.spec.audiences.size() == 9", matchConstraints=rules))
    await robot.create(BINDINGS, binding())
    assert (await ask(robot)).json["message"].endswith("failed expression: object.spec.audiences.size() == 9")


async def test_invalid_bound_object_is_refused(robot: Caller) -> None:
    await robot.create(PODS, pod("theirs"))
    await robot.create(PODS, pod("own", serviceAccountName="robot"))
    for reference, code, text in (
        ({"kind": "Pod", "name": "none"}, 404, '"none" not found'),
        ({"kind": "Pod", "name": "theirs"}, 400, "running with different serviceaccount name"),
        ({"kind": "Pod", "name": "own", "uid": "x"}, 409, 'fulfilled on Pod "own": the UID in the bound object refer'),
        ({"kind": "Node", "name": "none"}, 404, '"none" not found'),
        ({"kind": "Secret", "name": "none"}, 404, '"none" not found'),
        ({"kind": "ConfigMap", "name": "x"}, 400, "cannot bind token"),
        ({"kind": "Pod", "name": "own", "apiVersion": "apps/v1"}, 400, "to object of type apps/v1, Kind=Pod"),
        ({}, 400, "cannot bind token to object of type /, Kind="),
        ({"kind": "Pod", "apiVersion": "v1"}, 400, "Name parameter required."),
    ):
        answer = await ask(robot, boundObjectRef=reference)
        assert answer.status == code and text in answer.json["message"], (reference, answer.body)


# --- what it is bound to


async def test_token_bound_to_pod_names_its_node(robot: Caller) -> None:
    node = await robot.create(NODES, {"metadata": {"name": "n1"}})
    made = await robot.create(PODS, pod("a", serviceAccountName="robot", nodeName="n1"))
    token = await token_of(robot, boundObjectRef={"kind": "Pod", "apiVersion": "v1", "name": "a"})
    private = said(token)["kubernetes.io"]
    assert private["pod"] == {"name": "a", "uid": made["metadata"]["uid"]}
    assert private["node"] == {"name": "n1", "uid": node["metadata"]["uid"]}
    info = (await robot.as_(token)("POST", SELF, {})).json["status"]["userInfo"]
    assert info["extra"] == {
        "authentication.kubernetes.io/credential-id": [f"JTI={said(token)['jti']}"],
        "authentication.kubernetes.io/pod-name": ["a"],
        "authentication.kubernetes.io/pod-uid": [made["metadata"]["uid"]],
        "authentication.kubernetes.io/node-name": ["n1"],
        "authentication.kubernetes.io/node-uid": [node["metadata"]["uid"]],
    }
    await robot("DELETE", f"{NODES}/n1")
    assert (await review(robot, token))["authenticated"], "it is the pod that counts"
    await robot("DELETE", f"{PODS}/a?gracePeriodSeconds=0")
    assert "one of its pods is gone" in await why_not(robot, token)


@pytest.mark.parametrize(("kind", "path"), [("Secret", SECRETS), ("Node", NODES), ("Pod", PODS)])
async def test_token_is_invalid_after_bound_object_is_deleted(robot: Caller, kind: str, path: str) -> None:
    obj = pod("x", serviceAccountName="robot") if kind == "Pod" else {"metadata": {"name": "x"}}
    await robot.create(path, obj)
    token = await token_of(robot, boundObjectRef={"kind": kind, "apiVersion": "v1", "name": "x"})
    assert (await review(robot, token))["authenticated"]
    await robot("DELETE", f"{path}/x?gracePeriodSeconds=0")
    assert "service account token has been invalidated" in await why_not(robot, token)
    await robot.create(path, obj)
    assert "has been made anew" in await why_not(robot, token), "another one of this name does not help"


async def test_token_of_terminating_pod_is_valid_for_a_minute(robot: Caller) -> None:
    await robot.create(PODS, pod("a", serviceAccountName="robot", nodeName="n1"))
    token = await token_of(robot, boundObjectRef={"kind": "Pod", "apiVersion": "v1", "name": "a"})
    await robot("DELETE", f"{PODS}/a?gracePeriodSeconds=30")
    robot.clock.advance(seconds=90)
    assert (await review(robot, token))["authenticated"]
    robot.clock.advance(seconds=1)
    assert "one of its pods has been deleted" in await why_not(robot, token)


async def test_token_is_invalid_after_account_is_deleted(robot: Caller) -> None:
    token = await token_of(robot)
    await robot("DELETE", f"{ACCOUNTS}/robot")
    assert "one of its serviceaccounts is gone" in await why_not(robot, token)
    await robot.create(ACCOUNTS, {"metadata": {"name": "robot"}})
    assert "one of its serviceaccounts has been made anew" in await why_not(robot, token)


async def test_token_without_lookup_is_valid_until_it_expires() -> None:
    async with server(lookup=False) as api:
        await api.create(ACCOUNTS, {"metadata": {"name": "robot"}})
        await api.create(PODS, pod("a", serviceAccountName="robot"))
        token = await token_of(api, boundObjectRef={"kind": "Pod", "apiVersion": "v1", "name": "a"})
        await api("DELETE", f"{PODS}/a?gracePeriodSeconds=0")
        await api("DELETE", f"{ACCOUNTS}/robot")
        assert (await review(api, token))["user"]["username"] == "system:serviceaccount:default:robot"
        api.clock.advance(seconds=3661)
        assert "expired" in await why_not(api, token)


# --- extended lives


async def test_token_of_projected_volume_gets_extended_expiration() -> None:
    async with server() as api:
        await api.create(ACCOUNTS, {"metadata": {"name": "robot"}})
        await api.create(PODS, pod("a", serviceAccountName="robot"))
        reference = {"kind": "Pod", "apiVersion": "v1", "name": "a"}
        answer = await ask(api, expirationSeconds=3607, boundObjectRef=reference)
        token, now = answer.json["status"]["token"], int(api.clock.now.timestamp())
        assert answer.json["status"]["expirationTimestamp"] == "2026-03-04T06:06:14Z", "what is told is short"
        assert said(token)["exp"] == now + 365 * 86400
        assert said(token)["kubernetes.io"]["warnafter"] == now + 3607
        assert (await api.as_(token)("GET", PODS)).status == 403
        api.clock.advance(seconds=3608)
        assert (await api.as_(token)("GET", PODS)).status == 403
        text = (await api("GET", "/metrics")).body.decode()
        assert "\nserviceaccount_valid_tokens_total 1\n" in text
        assert "\nserviceaccount_stale_tokens_total 1\n" in text
        api.clock.advance(days=365)
        assert "expired" in await why_not(api, token)


@pytest.mark.parametrize(
    ("settings", "spec"),
    [
        ({"extend": False}, {"expirationSeconds": 3607, "bound": True}),
        ({}, {"expirationSeconds": 3606, "bound": True}),
        ({}, {"expirationSeconds": 3607}),
        ({}, {"expirationSeconds": 3607, "bound": True, "audiences": ["vault"]}),
        ({}, {"expirationSeconds": 3607, "bound": True, "audiences": [DEFAULT, "vault"]}),
    ],
)
async def test_other_tokens_get_no_extended_expiration(settings: Obj, spec: Obj) -> None:
    async with server(**settings) as api:
        await api.create(ACCOUNTS, {"metadata": {"name": "robot"}})
        await api.create(PODS, pod("a", serviceAccountName="robot"))
        bound = {"boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "a"}} if spec.pop("bound", 0) else {}
        claims = said(await token_of(api, **spec, **bound))
        assert claims["exp"] - claims["iat"] == spec["expirationSeconds"]
        assert "warnafter" not in claims["kubernetes.io"]


async def test_audit_log_marks_stale_tokens_and_hides_tokens(tmp_path: Path) -> None:
    (tmp_path / "policy").write_text(json.dumps(POLICY))
    audit = AuditOptions(load_policy(tmp_path / "policy"), str(tmp_path / "log"))
    async with server(audit=audit) as api:
        await api.create(ACCOUNTS, {"metadata": {"name": "robot"}})
        await api.create(PODS, pod("a", serviceAccountName="robot"))
        reference = {"kind": "Pod", "apiVersion": "v1", "name": "a"}
        token = await token_of(api, expirationSeconds=3607, boundObjectRef=reference)
        api.clock.advance(seconds=3617)
        assert (await api.as_(token)("GET", PODS)).status == 403
    text = (tmp_path / "log").read_text()
    events = [event for line in text.splitlines() if (event := json.loads(line))["stage"] == "ResponseComplete"]
    [made] = [event for event in events if event["objectRef"].get("subresource") == "token"]
    assert made["annotations"]["authentication.kubernetes.io/issued-credential-id"] == f"JTI={said(token)['jti']}"
    stale = "subject: system:serviceaccount:default:robot, seconds after warning threshold: 10"
    assert events[-1]["annotations"]["authentication.k8s.io/stale-token"] == stale
    assert token.split(".")[1] not in text and token.split(".")[2] not in text


# --- audiences and issuers


async def test_token_review_matches_audiences(robot: Caller) -> None:
    token = await token_of(robot, audiences=["vault", "db", "x"])
    status = await review(robot, token, "db", "cache", "vault")
    assert status["authenticated"] and status["audiences"] == ["db", "vault"]
    assert "is invalid for the target audiences" in await why_not(robot, token, "cache")
    assert "is invalid for the target audiences" in await why_not(robot, token), "it is not for this server"
    assert (await review(robot, await token_of(robot)))["audiences"] == [DEFAULT]
    # A token that a server was started with is for that server alone.
    assert (await review(robot, ADMIN, DEFAULT, "x"))["audiences"] == [DEFAULT]
    assert await why_not(robot, ADMIN, "x") == "invalid bearer token"


async def test_configured_audiences_are_used() -> None:
    async with server(audiences=("a", "b")) as api:
        await api.create(ACCOUNTS, {"metadata": {"name": "robot"}})
        assert said(await token_of(api))["aud"] == ["a", "b"]
        token = await token_of(api, audiences=["b", "c"])
        assert (await review(api, token))["audiences"] == ["b"]
        assert "invalid for the target" in await why_not(api, await token_of(api, audiences=[DEFAULT]))


async def test_tokens_of_several_issuers_are_accepted() -> None:
    store = SqliteStore(":memory:")
    await store.start()
    async with server(store=store, issuers=("https://old",)) as api:
        await api.create(ACCOUNTS, {"metadata": {"name": "robot"}})
        old = await token_of(api)
    async with server(store=store, issuers=("https://new", "https://old")) as api:
        new = await token_of(api)
        assert said(new)["iss"] == "https://new" and said(new)["aud"] == ["https://new", "https://old"]
        assert (await review(api, new))["authenticated"] and (await review(api, old))["authenticated"]
        assert (await api.get(CONFIGURATION))["issuer"] == "https://new"
    async with server(store=store, issuers=("https://new",)) as api:
        assert await why_not(api, old) == "invalid bearer token"
    await store.stop()


# --- keys


def pem_of(key: Any) -> bytes:
    pem: bytes = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return pem


def public_of(pem: bytes) -> bytes:
    public = load_pem_private_key(pem, None).public_key()
    return public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


async def test_signing_key_is_rotated_with_both_keys_trusted() -> None:
    old_key, new_key = service_account_key(), pem_of(rsa.generate_private_key(65537, 2048))
    store = SqliteStore(":memory:")
    await store.start()
    async with server(old_key, store=store) as api:
        await api.create(ACCOUNTS, {"metadata": {"name": "robot"}})
        old = await token_of(api)
    async with server(new_key, store=store, verification_pems=(public_of(old_key) + public_of(new_key),)) as api:
        new = await token_of(api)
        assert jwt.get_unverified_header(new)["alg"] == "RS256"
        assert (await review(api, old))["authenticated"] and (await review(api, new))["authenticated"]
        found = (await api.get(JWKS))["keys"]
        assert [key["alg"] for key in found] == ["RS256", "ES256"], "each once"
        for token in (old, new):
            [key] = [k for k in jwt.PyJWKSet(found).keys if k.key_id == jwt.get_unverified_header(token)["kid"]]
            jwt.decode(token, key, audience=DEFAULT, options={"verify_exp": False})
    async with server(new_key, store=store) as api:
        assert "no key of this server has signed" in await why_not(api, old)
        assert (await review(api, new))["authenticated"]
    await store.stop()


async def test_server_without_signing_key_only_verifies() -> None:
    store = SqliteStore(":memory:")
    await store.start()
    async with server(store=store) as api:
        await api.create(ACCOUNTS, {"metadata": {"name": "robot"}})
        token = await token_of(api)
    async with server(b"", store=store, verification_pems=(public_of(KEY),)) as api:
        assert (await review(api, token))["authenticated"]
        assert (await ask(api)).status == 400
    await store.stop()


def test_key_files_are_loaded_or_refused() -> None:
    private, other = service_account_key(), pem_of(ec.generate_private_key(ec.SECP521R1()))
    certificate = new_authority(Clock().now).certificate
    found = load_verification_keys(b"# ours\n" + private + b"\n" + public_of(other) + certificate)
    assert [key.algorithm for key in found] == ["ES256", "ES512", "ES256"]
    assert all(key.key_id == key_id_of(key.der) and len(key.key_id) == 43 for key in found)
    assert load_signing_key(private).public.key_id == found[0].key_id
    short = pem_of(rsa.generate_private_key(65537, 1024))
    for pem, text in (
        (b"", "no key in PEM"),
        (b"-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----", "a block PUBLIC KEY that is no key"),
        (b"-----BEGIN RSA THING-----\nAAAA\n-----END RSA THING-----", "a block RSA THING that is no key"),
        (short, "1024 bits"),
    ):
        with pytest.raises(KeyFileError, match=text):
            load_verification_keys(pem)
    with pytest.raises(KeyFileError, match="not a private key in PEM"):
        load_signing_key(public_of(private))


# --- discovery


async def test_discovery_documents_list_public_keys(api: Caller) -> None:
    answer = await api("GET", CONFIGURATION)
    assert answer.headers["cache-control"] == "public, max-age=3600"
    assert answer.json["jwks_uri"] == "https://127.0.0.1:6443/openid/v1/jwks"
    [key] = (await api.get(JWKS))["keys"]
    assert set(key) == {"use", "kty", "kid", "alg", "crv", "x", "y"}
    assert {CONFIGURATION, JWKS} <= set((await api.get("/"))["paths"])
    assert (await api("POST", JWKS, {})).status == 405


@pytest.mark.parametrize("issuer", ["http://issuer", "issuer", "https://issuer?x=1", "https://issuer#x", "https://"])
async def test_issuer_without_https_url_has_no_documents(issuer: str) -> None:
    async with server(issuers=(issuer,)) as api:
        assert [(await api("GET", path)).status for path in (CONFIGURATION, JWKS)] == [404, 404]
        assert not {CONFIGURATION, JWKS} & set((await api.get("/"))["paths"])
        await api.create(ACCOUNTS, {"metadata": {"name": "robot"}})
        assert (await review(api, await token_of(api)))["authenticated"]


async def test_discovery_documents_need_permission(robot: Caller) -> None:
    nobody, account = robot.as_(""), robot.as_(await token_of(robot))
    for path in (CONFIGURATION, JWKS, f"{JWKS}/"):
        assert (await account("GET", path)).status == 200
        assert (await nobody("GET", path)).status == 403
        assert (await robot.as_("user-token")("GET", path)).status == 403
    binding = {
        "metadata": {"name": "public"},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": "system:service-account-issuer-discovery",
        },
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:unauthenticated"}],
    }
    await robot.create("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding)
    for path in (CONFIGURATION, JWKS):
        assert (await nobody("GET", path)).status == 200
    assert (await nobody("GET", "/metrics")).status == 403
