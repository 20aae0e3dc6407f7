"""An API server whose tokens a signer outside signs, and what tests of that ask of it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

from api_caller import PODS, Caller, Clock, make_config
from fake_signer import FakeSigner

from haru.apiserver.auth.token_options import TokenOptions
from haru.apiserver.server import ApiServer
from haru.storage import SqliteStore

Obj = dict[str, Any]
ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"
JWKS = "/openid/v1/jwks"
CONFIGURATION = "/.well-known/openid-configuration"
ISSUER = "https://issuer.example"


@asynccontextmanager
async def server(endpoint: str, **settings: Any) -> AsyncIterator[Caller]:
    """An API server that has its tokens signed there; its clock starts now, and stands still."""
    store, clock = SqliteStore(":memory:"), Clock()
    clock.now = datetime.now(UTC)
    await store.start()
    options = TokenOptions(endpoint, issuers=settings.pop("issuers", (ISSUER,)), **settings)
    app = ApiServer(make_config(store, clock, service_account_key_pem=b"", account_tokens=options))
    try:
        await app.start()
        yield Caller(app, clock)
    finally:
        await app.stop()
        await store.stop()


@asynccontextmanager
async def signed_by(signer: FakeSigner, **settings: Any) -> AsyncIterator[Caller]:
    """The same, with an account `robot`."""
    await signer.start()
    try:
        async with server(signer.endpoint, **settings) as api:
            await api.create(ACCOUNTS, {"metadata": {"name": "robot"}})
            yield api
    finally:
        await signer.stop()


async def ask(api: Caller, **spec: Any) -> Any:
    return await api("POST", f"{ACCOUNTS}/robot/token", {"spec": spec})


async def token_of(api: Caller, **spec: Any) -> str:
    answer = await ask(api, **spec)
    assert answer.status == 201, answer.body
    token: str = answer.json["status"]["token"]
    return token


async def is_good(api: Caller, token: str) -> bool:
    """Whether the server takes it: 403 means it knows who that is."""
    status = (await api.as_(token)("GET", PODS)).status
    assert status in (401, 403), status
    return status == 403


async def metric(api: Caller, line: str) -> float:
    """The value of a metric, 0 if it is not there."""
    text = (await api("GET", "/metrics")).body.decode()
    return next((float(each.rpartition(" ")[2]) for each in text.splitlines() if each.startswith(f"{line} ")), 0.0)
