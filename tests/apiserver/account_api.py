"""An API server with keys of its own for tokens of accounts, and what tests of those ask of it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import jwt
import pytest
from api_caller import KEY, PODS, Caller, Clock, make_config
from fake_signer import TestKey

from begun_store import begun
from haru.apiserver.audit_options import AuditOptions
from haru.apiserver.auth.token_options import TokenOptions
from haru.apiserver.auth.tokens.keys import load_signing_key
from haru.apiserver.server import ApiServer
from haru.storage import SqliteStore

Obj = dict[str, Any]
ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
SECRETS = "/api/v1/namespaces/default/secrets"
NODES = "/api/v1/nodes"
REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"
SELF = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
JWKS = "/openid/v1/jwks"
CONFIGURATION = "/.well-known/openid-configuration"
DEFAULT = "https://kubernetes.default.svc.cluster.local"


@asynccontextmanager
async def server(
    key: bytes = KEY, *, store: SqliteStore | None = None, audit: AuditOptions | None = None, **settings: Any
) -> AsyncIterator[Caller]:
    """A server with this key; the settings are those of its tokens."""
    own = store or SqliteStore(":memory:")
    if store is None:
        await own.start()
    clock = Clock()
    options = TokenOptions(**settings)
    config = make_config(own, clock, service_account_key_pem=key, account_tokens=options, audit=audit)
    if store is None and audit is None:
        app = await begun(config, own)
    else:
        app = ApiServer(config)
        await app.start()
    yield Caller(app, clock)
    await app.stop()
    if store is None:
        await own.stop()


@pytest.fixture
async def robot(api: Caller) -> Caller:
    await api.create(ACCOUNTS, {"metadata": {"name": "robot"}})
    return api


async def ask(api: Caller, metadata: Obj | None = None, **spec: Any) -> Any:
    return await api("POST", f"{ACCOUNTS}/robot/token", {"metadata": metadata or {}, "spec": spec})


async def token_of(api: Caller, **spec: Any) -> str:
    answer = await ask(api, **spec)
    assert answer.status == 201, answer.body
    token: str = answer.json["status"]["token"]
    return token


def said(token: str) -> Obj:
    claims: Obj = jwt.decode(token, options={"verify_signature": False})
    return claims


async def review(api: Caller, token: str, *audiences: str) -> Obj:
    spec = {"token": token, **({"audiences": list(audiences)} if audiences else {})}
    answer = await api("POST", REVIEWS, {"spec": spec})
    assert answer.status == 201, answer.body
    status: Obj = answer.json["status"]
    return status


async def why_not(api: Caller, token: str, *audiences: str) -> str:
    """Why a token is refused; and it is refused as a bearer's, too."""
    status = await review(api, token, *audiences)
    assert "authenticated" not in status and status["user"] == {}, status
    if not audiences:
        assert (await api.as_(token)("GET", PODS)).status == 401
    error: str = status["error"]
    return error


def own_key() -> TestKey:
    """The server's own key, for tokens that it would never make."""
    signing = load_signing_key(KEY)
    return TestKey(signing.public.key_id, signing.private)
