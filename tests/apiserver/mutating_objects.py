"""Mutating admission policies and bindings, short to write."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from admission_objects import constraints
from api_caller import ADMIN, Answer, Caller, Clock, make_config

from begun_store import begun
from haru.apiserver.server import ApiServer
from haru.apiserver.serving import HttpServer
from haru.storage import SqliteStore

Obj = dict[str, Any]

GROUP = "/apis/admissionregistration.k8s.io/v1"
MUTATORS = f"{GROUP}/mutatingadmissionpolicies"
MUTATOR_BINDINGS = f"{GROUP}/mutatingadmissionpolicybindings"
PODS = "/api/v1/namespaces/default/pods"


def applying(expression: str) -> Obj:
    """A mutation that lays an `Object{}` over the object."""
    return {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}


def json_patch(expression: str) -> Obj:
    """A mutation by a list of `JSONPatch{}`."""
    return {"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}


def labelled(key: str, value: str) -> Obj:
    """A mutation that sets a label; `value` is an expression."""
    return applying(f'Object{{metadata: Object.metadata{{labels: {{"{key}": {value}}}}}}}')


def mutator(*mutations: Obj, name: str = "m.example.com", **changes: Any) -> Obj:
    """A policy about ConfigMaps, unless told otherwise."""
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingAdmissionPolicy",
        "metadata": {"name": name},
        "spec": {
            "matchConstraints": constraints(),
            "mutations": list(mutations),
            "reinvocationPolicy": "Never",
            **changes,
        },
    }


def mutator_binding(name: str = "", of: str = "m.example.com", **changes: Any) -> Obj:
    """A binding, named as its policy unless told otherwise."""
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingAdmissionPolicyBinding",
        "metadata": {"name": name or of},
        "spec": {"policyName": of, **changes},
    }


async def install(api: Caller, made: Obj, *bindings: Obj) -> None:
    """Create a policy with its bindings, or with one that says nothing."""
    await api.create(MUTATORS, made)
    for each in bindings or (mutator_binding(of=made["metadata"]["name"]),):
        await api.create(MUTATOR_BINDINGS, each)


def pods(*operations: str, **changes: Any) -> Obj:
    """matchConstraints about pods."""
    return constraints(*operations, resources="pods", **changes)


def pod(name: str = "p", **spec: Any) -> Obj:
    """A pod with one container `main`."""
    containers = spec.pop("containers", [{"name": "main", "image": "busybox"}])
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": containers, **spec}}


class WireCaller(Caller):
    """As Caller, over HTTP on a real socket."""

    def __init__(self, app: ApiServer, clock: Clock, session: aiohttp.ClientSession, url: str, token: str) -> None:
        super().__init__(app, clock, token)
        self.session = session
        self.url = url

    def as_(self, token: str) -> Caller:
        return WireCaller(self.app, self.clock, self.session, self.url, token)

    async def __call__(
        self, method: str, url: str, body: Any = None, *, type: str = "application/json", **headers: str
    ) -> Answer:
        data = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
        named = {"authorization": f"Bearer {self.token}", "user-agent": "tests/1.0"}
        named.update({name.replace("_", "-"): value for name, value in headers.items()})
        if data is not None:
            named["content-type"] = type
        async with self.session.request(method, self.url + url, data=data, headers=named) as response:
            got = {name.lower(): value for name, value in response.headers.items()}
            return Answer(response.status, got, await response.read())


@pytest.fixture
async def wire() -> AsyncIterator[WireCaller]:
    """A server on a real socket, and its administrator."""
    store, clock = SqliteStore(":memory:"), Clock()
    await store.start()
    app = await begun(make_config(store, clock), store)
    server = HttpServer(app)
    await server.start()
    async with aiohttp.ClientSession() as session:
        yield WireCaller(app, clock, session, server.url, ADMIN)
    await server.stop()
    await app.stop()
    await store.stop()
