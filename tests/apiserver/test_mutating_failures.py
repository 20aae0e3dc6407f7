"""Every kind of failure of a mutating policy, under both failure policies."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
from admission_objects import constraints
from api_caller import MAPS, config_map
from mutating_objects import (
    MUTATORS,
    WireCaller,
    applying,
    install,
    json_patch,
    labelled,
    mutator,
    mutator_binding,
    wire,
)

from haru.apiserver.encoding.objects import decode, encode
from haru.cel import admission_evaluation as expressions
from haru.storage import Put

__all__ = ["wire"]

Obj = dict[str, Any]

BY = "policy 'm.example.com' with binding 'm.example.com' denied request: "
BY_POLICY = 'policy "m.example.com" denied request: '
COSTLY = "lists.range(100).all(a, lists.range(100).all(b, a + b >= 0))"
GOOD = labelled("x", "'y'")


class Failure(NamedTuple):
    """A policy that fails, and how that is told."""

    mutation: Obj
    message: str
    policy: Obj = {}
    binding: Obj = {}
    reason: str = "Invalid"
    broken: str = ""
    """An expression that is put into the store, where nobody compiles it."""


CONFIGURED: Obj = {"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}}
DENY = {"name": "none", "namespace": "default", "parameterNotFoundAction": "Deny"}
FAILURES: dict[str, Failure] = {
    "an expression that is not compiled": Failure(
        GOOD, f"{BY}compilation failed: ERROR: <input>:1:1: undeclared reference to 'nonsense'", broken="nonsense"
    ),
    "an error in an expression": Failure(
        labelled("x", "string(object.absent)"), f"{BY}expression 'Object{{metadata: Object.metadata{{labels: "
    ),
    "an expression that costs too much": Failure(
        labelled("x", f"string({COSTLY})"), f"{BY}expression 'Object{{metadata: Object.metadata{{labels: "
    ),
    "types that stand where they do not belong": Failure(
        applying("Object{data: Object.datum{}}"), f"{BY}type mismatch: unexpected type name "
    ),
    "a configuration that does not fit": Failure(
        applying('Object{nothing: "x"}'),
        f"{BY}error applying patch: failed to convert patch object to typed object: .nothing: field not declared",
    ),
    "a JSON patch that does not apply": Failure(
        json_patch('[JSONPatch{op: "remove", path: "/data/none"}]'),
        f"{BY}JSON Patch: remove operation does not apply: ",
    ),
    "an error in a condition": Failure(
        GOOD,
        f"{BY}expression 'object.absent == 1' resulted in error: no such key: absent",
        {"matchConditions": [{"name": "c", "expression": "object.absent == 1"}]},
    ),
    "a condition that costs too much": Failure(
        GOOD, f"{BY}expression '", {"matchConditions": [{"name": "c", "expression": COSTLY}]}
    ),
    "parameters of a kind that is not served": Failure(
        GOOD,
        f"{BY_POLICY}failed to configure policy: failed to find resource referenced by paramKind: ",
        {"paramKind": {"apiVersion": "x.example.com/v1", "kind": "Rule"}},
        {"paramRef": {"name": "r", "parameterNotFoundAction": "Allow"}},
        "Forbidden",
    ),
    "parameters that are not there": Failure(
        GOOD,
        f"{BY}failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction",
        CONFIGURED,
        {"paramRef": DENY},
        "Forbidden",
    ),
}


@pytest.fixture
def cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    """Expressions end early, so that nobody waits for those that cost too much."""
    monkeypatch.setattr(expressions, "CALL_LIMIT", 15_000)


async def break_policy(wire: WireCaller, expression: str) -> None:
    """As if the policy had been stored by a server that knew more functions."""
    key, store = "mutatingadmissionpolicies.admissionregistration.k8s.io/m.example.com", wire.app.objects.store
    record = await store.get(key)
    assert record is not None
    stored = decode(record)
    stored["spec"]["mutations"][0]["applyConfiguration"]["expression"] = expression
    value, place = encode(stored)
    await store.transact(Put(key, value, record.revision, place))


@pytest.mark.parametrize("kind", FAILURES)
async def test_mutation_failure_follows_failure_policy(wire: WireCaller, cheap: None, kind: str) -> None:
    failure = FAILURES[kind]
    about = constraints(resources="services")
    made = mutator(failure.mutation, matchConstraints=about, **failure.policy)
    await install(wire, made, mutator_binding(**failure.binding))
    if failure.broken:
        await break_policy(wire, failure.broken)
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}}
    services = MAPS.replace("configmaps", "services")
    refused = await wire("POST", services, service)
    assert (refused.status, refused.json["reason"]) == (403, failure.reason), refused.json
    assert refused.json["message"].startswith(failure.message), refused.json["message"]
    assert refused.json["details"]["causes"] == [{"message": refused.json["message"]}]
    assert (await wire("GET", f"{services}/s")).status == 404, "nothing was stored"
    body = {"spec": {"failurePolicy": "Ignore"}}
    answer = await wire("PATCH", f"{MUTATORS}/m.example.com", body, type="application/merge-patch+json")
    assert answer.status == 200, answer.json
    stored = await wire.create(services, service)
    assert "labels" not in stored["metadata"], "what fails contributes nothing"
    await wire.create(MAPS, config_map("beside"))
