"""Apply configurations with only string values: the fast merge equals the general one."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_mutating_merge import expression, lay_over

from haru.apiserver.admission.dynamic.texts import Texts, texts_of
from haru.apiserver.admission.reinvocation import nothing_new
from haru.apiserver.config import UserInfo
from haru.cel.admission import CONFIGURATION, Composition, Expression, compile_expression
from haru.cel.admission_evaluation import Evaluation, Given
from haru.cel.libraries import to_json
from haru.kube.defaulting import apply_defaults
from haru.kube.gates import FeatureGates
from haru.kube.kinds import Kind, known_kind

Obj = dict[str, Any]

POD, DEPLOYMENT = known_kind("v1", "Pod"), known_kind("apps/v1", "Deployment")
WORDS = st.dictionaries(st.sampled_from(("x", "y.io/z")), st.sampled_from(("1", "2")), max_size=2)
METADATA = st.fixed_dictionaries(
    {}, optional={"labels": WORDS, "annotations": WORDS, "name": st.just("n"), "generateName": st.just("g-")}
)
SPEC = st.fixed_dictionaries(
    {},
    optional={
        "hostname": st.sampled_from(("h", "i")),
        "schedulerName": st.sampled_from(("haru", "")),
        "dnsPolicy": st.just("Default"),
        "os": st.fixed_dictionaries({}, optional={"name": st.just("linux")}),
        "securityContext": st.fixed_dictionaries(
            {}, optional={"seccompProfile": st.just({"type": "Localhost", "localhostProfile": "p"})}
        ),
    },
)
PODS = st.fixed_dictionaries({}, optional={"metadata": METADATA, "spec": SPEC})
DEPLOYMENTS = st.fixed_dictionaries(
    {},
    optional={
        "metadata": METADATA,
        "spec": st.fixed_dictionaries({}, optional={"template": PODS, "strategy": st.just({"type": "Recreate"})}),
    },
)
CASES = st.one_of(st.tuples(st.just(POD), PODS, PODS), st.tuples(st.just(DEPLOYMENT), DEPLOYMENTS, DEPLOYMENTS))


def created(kind: Kind) -> Any:
    """The call of somebody who is no node."""
    return SimpleNamespace(resource=SimpleNamespace(kind=kind), request=SimpleNamespace(user=UserInfo("me")))


def compiled(text: str) -> tuple[Expression, Composition]:
    composition = Composition([{"name": "word", "expression": "'w'"}], params=False)
    found = compile_expression(text, composition.patching, CONFIGURATION)
    assert not found.problem, found.problem
    return found, composition


def value_of(found: Expression, composition: Composition, obj: Obj) -> Any:
    result = Evaluation(Given(obj, None, {}), composition.variables).attempt(found, 10_000)
    assert result is not None and not result.error
    return result.value


def told(text: str, kind: Kind) -> Texts | None:
    found, composition = compiled(text)
    return texts_of(found, composition.patching, kind)


@settings(max_examples=150, deadline=None)
@given(CASES)
def test_compiled_overlay_equals_evaluated_overlay(case: tuple[Kind, Obj, Obj]) -> None:
    kind, live, partial = case
    gates = FeatureGates()
    live = apply_defaults({"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {}, **live}, kind, gates)
    found, composition = compiled(expression(partial))
    texts = texts_of(found, composition.patching, kind)
    assert texts is not None
    before = json.dumps(live)
    put = texts.put(live, value_of(texts.expression, composition, live))
    general = {**to_json(value_of(found, composition, live)), "apiVersion": kind.api_version, "kind": kind.kind}
    assert put == lay_over(live, general, kind.message_type)
    assert json.dumps(live) == before
    assert (put is live) == (put == live)
    if texts.is_complete:
        assert apply_defaults(put, kind, gates) == put
    if texts.is_unread:
        assert nothing_new(created(kind), {"spec": {}, **live}, {"spec": {}, **put})


def test_compiled_overlay_contains_expressions() -> None:
    text = 'Object{metadata: Object.metadata{labels: {"a": object.metadata.name + "-x", "b": variables.word}}}'
    found, composition = compiled(text.replace("object.metadata.name", "string(object.metadata.name)"))
    assert texts_of(found, composition.patching, POD) is None, "what it costs depends on the object"
    found, composition = compiled(text.replace("object.metadata.name + ", ""))
    texts = texts_of(found, composition.patching, POD)
    assert texts is not None and texts.is_complete and texts.is_unread
    pod = {"apiVersion": POD.api_version, "kind": POD.kind, "metadata": {"name": "p", "labels": {"c": "d"}}, "spec": {}}
    put = texts.put(pod, value_of(texts.expression, composition, pod))
    assert nothing_new(created(POD), pod, put)
    assert put["metadata"] == {"name": "p", "labels": {"c": "d", "a": "-x", "b": "w"}}


@pytest.mark.parametrize(
    "text",
    [
        "Object{spec: Object.spec{hostname: 1}}",
        "Object{spec: Object.spec{hostname: object.metadata.name}}",
        'Object{spec: Object.spec{hostnamex: "h"}}',
        'Object{spec: Object.specx{hostname: "h"}}',
        'Object{spec: Object.spec{?hostname: optional.of("h")}}',
        'Object{spec: Object.spec{nodeSelector: {"a": "b"}}}',
        'Object{metadata: Object.metadata{labels: {variables.word: "b"}}}',
        'Object{metadata: Object.metadata{labels: {"a": "b", "a": "c"}}}',
        'Object{metadata: Object.metadata{creationTimestamp: "2026-01-01T00:00:00Z"}}',
        'Object{metadata: Object.metadata{finalizers: ["a"]}}',
        'Object{kind: "Pod"}',
        "Object{spec: Object.spec{terminationGracePeriodSeconds: 3}}",
        'true ? Object{} : Object{spec: Object.spec{hostname: "h"}}',
    ],
)
def test_unsupported_expression_is_not_compiled(text: str) -> None:
    assert told(text, POD) is None


@pytest.mark.parametrize(
    ("text", "is_unread"),
    [
        ('Object{spec: Object.spec{hostname: "h"}}', True),
        ('Object{spec: Object.spec{priorityClassName: "high"}}', False),
        ('Object{spec: Object.spec{os: Object.spec.os{name: "linux"}}}', False),
        ('Object{metadata: Object.metadata{labels: {"a": "b"}}}', True),
        ('Object{metadata: Object.metadata{annotations: {"kubernetes.io/config.mirror": "b"}}}', False),
        ('Object{metadata: Object.metadata{name: "b"}}', False),
        ('Object{status: Object.status{message: "b"}}', False),
    ],
)
def test_overlay_knows_whether_plugins_read_its_fields(text: str, is_unread: bool) -> None:
    texts = told(text, POD)
    assert texts is not None and texts.is_unread == is_unread
    assert told('Object{metadata: Object.metadata{labels: {"a": "b"}}}', DEPLOYMENT).is_unread is False  # type: ignore[union-attr]
