"""Configurations that policies apply merge as server-side apply merges them: random ones, both ways, one server."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from admission_objects import constraints
from api_caller import Caller
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mutating_objects import MUTATORS, applying, install, mutator

from haru.kube.patch.apply import ManagedWrite, server_side_apply
from haru.kube.patch.declared import declared_by
from haru.kube.patch.overlay import OverlayError, check_overlay
from haru.kube.patch.shapes import Shape, shape_of
from haru.kube.patch.typed import merge
from haru.kube.schema import SCALARS, Field, MessageType, message_type

Obj = dict[str, Any]

TYPES = ("core.v1.Pod", "apps.v1.Deployment", "core.v1.Service", "resource.v1.ResourceClaim", "batch.v1.CronJob")
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "string": st.sampled_from(("a", "b", "c")),
    "bool": st.booleans(),
    "int32": st.integers(1, 3),
    "int64": st.integers(1, 3),
    "double": st.integers(1, 3),
    "quantity": st.sampled_from(("1", "2Gi")),
    "intOrString": st.sampled_from((80, "http")),
    "bytes": st.just("YQ=="),
    "time": st.just("2026-01-02T03:04:05Z"),
    "microTime": st.just("2026-01-02T03:04:05.000000Z"),
    "json": st.just("x"),
    "stringList": st.just(["x"]),
}


@st.composite
def objects(draw: st.DrawFn, message: MessageType, *, whole: bool, depth: int = 5) -> Obj:
    """A random object of a type; one that is not `whole` has nothing in it that is replaced as a whole."""
    shape = shape_of(message)
    fields = [f for f in message.fields.values() if usable(f, shape, whole, depth)]
    if not fields:
        return {}
    chosen = draw(st.lists(st.sampled_from(fields), max_size=4, unique_by=lambda field: field.name))
    return {field.name: draw(values(field, shape.field(field.name), whole, depth - 1)) for field in chosen}


def lay_over(live: Obj, partial: Obj, message: MessageType) -> Obj:
    """The live object with the partial one laid over it, as a mutating policy does."""
    check_overlay(partial, shape_of(message), declared_by(message))
    laid: Obj = merge(live, partial, shape_of(message))
    return laid


def usable(field: Field, shape: Shape, whole: bool, depth: int) -> bool:
    if field.name in ("apiVersion", "kind", "managedFields", "status") or field.type == "fieldsV1":
        return False
    if (field.is_message or field.container != "one") and depth <= 0:
        return False
    inner = shape.field(field.name)
    simple = field.container == "one" and field.type in SCALARS and field.type != "json"
    parts = inner.style in ("object", "map", "keyed", "set")
    in_parts = inner.element is None or inner.element.message is None or inner.element.style != "leaf"
    return whole or simple or (parts and in_parts)


def one(field: Field, whole: bool, depth: int) -> st.SearchStrategy[Any]:
    if field.is_message:
        return objects(message_type(field.type), whole=whole, depth=depth)
    return VALUES[field.type]


@st.composite
def values(draw: st.DrawFn, field: Field, shape: Shape, whole: bool, depth: int) -> Any:
    if field.container == "map":
        return draw(st.dictionaries(st.sampled_from(("k", "l")), one(field, whole, depth), max_size=2))
    if field.container == "one":
        return draw(one(field, whole, depth))
    if shape.style != "keyed":
        unique = shape.style == "set"
        return draw(st.lists(one(field, whole, depth), max_size=2, unique_by=json.dumps if unique else None))
    made: dict[str, Obj] = {}
    for item in draw(st.lists(one(field, whole, depth), max_size=3)):
        for key in field.list_map_keys:
            declared = message_type(field.type).fields[key]
            item[key] = draw(VALUES[declared.type])
        made[json.dumps([item[key] for key in field.list_map_keys])] = item
    return list(made.values())


def agree(data: st.DataObject) -> None:
    """A random partial object laid over a random whole one, and the same applied."""
    message = message_type(f"io.k8s.api.{data.draw(st.sampled_from(TYPES))}")
    live = data.draw(objects(message, whole=True))
    partial = data.draw(objects(message, whole=False))
    laid = lay_over(live, partial, message)
    write = ManagedWrite("me", "v1", message, "", "2026-01-02T03:04:05Z")
    applied = server_side_apply(live, partial, write, force=True)
    applied["metadata"].pop("managedFields", None)
    assert {**laid, "metadata": laid.get("metadata") or {}} == applied
    assert lay_over(laid, partial, message) == laid, "once more changes nothing"


@settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_apply_configuration_equals_server_side_apply(data: st.DataObject) -> None:
    agree(data)


@pytest.mark.nightly
@settings(max_examples=4_000, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_apply_configuration_equals_server_side_apply_in_many_cases(data: st.DataObject) -> None:
    agree(data)


ATOMIC_OR_NOT: dict[str, Any] = {
    "tolerations": [{"key": "a"}],
    "nodeSelector": {"a": "b"},
    "readinessGates": [{"conditionType": "c"}],
    "resourceClaims": [{"name": "a"}],
}


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_apply_configuration_of_atomic_field_is_refused(data: st.DataObject) -> None:
    message = message_type("io.k8s.api.core.v1.PodSpec")
    partial = data.draw(objects(message, whole=False))
    name = data.draw(st.sampled_from(sorted(ATOMIC_OR_NOT)))
    partial[name] = ATOMIC_OR_NOT[name]
    if shape_of(message).field(name).style != "leaf":
        lay_over({}, partial, message)
        return
    with pytest.raises(OverlayError, match=rf"may not mutate atomic arrays, maps or structs: .*\.{name}"):
        lay_over({}, partial, message)


# --- through the server

NAMES = st.sampled_from(("main", "a", "b"))
WORDS = st.dictionaries(st.sampled_from(("x", "y.io/z")), st.sampled_from(("1", "2")), max_size=2)


def named(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Obj]]:
    """Items of a list with the key `name`, each with some of the fields."""
    item = st.fixed_dictionaries({"name": NAMES}, optional=fields)
    return st.lists(item, max_size=2, unique_by=lambda found: found["name"])


CONTAINER = {
    "image": st.sampled_from(("i:1", "i:2")),
    "env": named(value=st.sampled_from(("1", "2"))),
    "workingDir": st.just("/w"),
    "resources": st.fixed_dictionaries({"limits": st.just({"cpu": "2"})}),
    "ports": st.lists(
        st.sampled_from(({"containerPort": 80, "protocol": "TCP"}, {"containerPort": 81, "protocol": "UDP"})),
        max_size=2,
        unique_by=str,
    ),
}
POD = st.fixed_dictionaries(
    {},
    optional={
        "containers": named(**CONTAINER),
        "volumes": named(emptyDir=st.just({})),
        "hostname": st.sampled_from(("h", "i")),
        "terminationGracePeriodSeconds": st.integers(1, 9),
        "securityContext": st.fixed_dictionaries({"runAsUser": st.integers(1, 3)}),
    },
)
CONFIGURATIONS = st.fixed_dictionaries(
    {},
    optional={
        "metadata": st.fixed_dictionaries({}, optional={"labels": WORDS, "annotations": WORDS}),
        "spec": st.fixed_dictionaries(
            {},
            optional={
                "replicas": st.integers(0, 3),
                "template": st.fixed_dictionaries(
                    {"spec": POD},
                    optional={"metadata": st.fixed_dictionaries({}, optional={"annotations": WORDS})},
                ),
            },
        ),
    },
)
MAPS = frozenset(("labels", "annotations", "limits"))
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"


def expression(value: Any, path: str = "Object", name: str = "") -> str:
    """The CEL expression that builds a configuration."""
    if isinstance(value, dict):
        inner = ", ".join(
            f"{json.dumps(key) if name in MAPS else key}: {expression(item, f'{path}.{key}', key)}"
            for key, item in value.items()
        )
        return f"{{{inner}}}" if name in MAPS else f"{path}{{{inner}}}"
    if isinstance(value, list):
        return f"[{', '.join(expression(item, path) for item in value)}]"
    return json.dumps(value)


def deployment(name: str) -> Obj:
    container = {"name": "main", "image": "i:0", "env": [{"name": "a", "value": "0"}, {"name": "z", "value": "0"}]}
    template = {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [container]}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "labels": {"x": "0"}},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "x"}}, "template": template},
    }


def complete(partial: Obj) -> Obj:
    """With an image in containers that are new."""
    for container in partial.get("spec", {}).get("template", {}).get("spec", {}).get("containers", ()):
        if container["name"] != "main":
            container.setdefault("image", "i:3")
    return partial


@pytest.fixture
async def changing(api: Caller) -> AsyncIterator[Caller]:
    rule = {"apiGroups": ["apps"], "resources": ["deployments"]}
    about = constraints("CREATE", rule=rule, objectSelector={"matchLabels": {"changed": "yes"}})
    await install(api, mutator(applying("Object{}"), matchConstraints=about))
    yield api


async def test_policy_and_server_side_apply_give_equal_objects(changing: Caller) -> None:
    drawn: list[Obj] = []

    @settings(max_examples=25, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(CONFIGURATIONS)
    def draw(partial: Obj) -> None:
        drawn.append(complete(partial))

    draw()
    for number, partial in enumerate(drawn):
        text = expression(partial)
        body = {"spec": {"mutations": [applying(text)]}}
        answer = await changing("PATCH", f"{MUTATORS}/m.example.com", body, type="application/merge-patch+json")
        assert answer.status == 200, answer.json
        made = deployment(f"a{number}")
        made["metadata"]["labels"]["changed"] = "yes"
        by_policy = await changing("POST", DEPLOYMENTS, made)
        plain = deployment(f"b{number}")
        plain["metadata"]["labels"]["changed"] = "no"
        await changing.create(DEPLOYMENTS, plain)
        configuration = {**partial, "apiVersion": "apps/v1", "kind": "Deployment"}
        configuration["metadata"] = {**partial.get("metadata", {}), "name": f"b{number}"}
        by_apply = await changing(
            "PATCH",
            f"{DEPLOYMENTS}/b{number}?fieldManager=me&force=true",
            configuration,
            type="application/apply-patch+yaml",
        )
        assert (by_policy.status, by_apply.status) in ((201, 200), (422, 422)), (text, by_policy.json, by_apply.json)
        if by_policy.status == 201:
            assert by_policy.json["spec"] == by_apply.json["spec"], text
            for name in ("labels", "annotations"):
                one_way, other = (dict(found["metadata"].get(name) or {}) for found in (by_policy.json, by_apply.json))
                one_way.pop("changed", None), other.pop("changed", None)
                assert one_way == other, text
