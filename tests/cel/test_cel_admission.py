"""Expressions of admission: what they may be, what variables cost, and where a budget ends."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest

from haru.cel.admission import (
    ANNOTATION,
    CONDITION,
    MESSAGE,
    Composition,
    compile_expression,
    environment,
    plain_environment,
    variable_type,
)
from haru.cel.admission_evaluation import OUT_OF_BUDGET, Evaluation, Given, OutOfBudget, Result, namespace_value
from haru.cel.kinds import declare_kind
from haru.cel.libraries.authorization import Decision, Question
from haru.cel.types import BOOL, DYN, INT, STRING, Type, list_of, map_of, struct
from haru.kube.kinds import known_kind

Obj = dict[str, Any]
PLAIN = plain_environment(params=False, authorizer=False)
TRUSTED = plain_environment(params=True, authorizer=True)
POD: Obj = {"metadata": {"name": "p", "labels": {"a-b": "1"}}, "spec": {"n": 3}}


def given(**changes: Any) -> Given:
    return Given(POD, None, {"operation": "CREATE"})._replace(**changes)


def value(text: str, values: Given | None = None) -> Any:
    found = Evaluation(values or given()).run(compile_expression(text, TRUSTED))
    assert not found.error, found.error
    return found.value


PROBLEMS: list[tuple[str, tuple[Type, ...], str]] = [
    ("1 +", CONDITION, "compilation failed: ERROR: <input>:1:4: Syntax error"),
    ("'a'", CONDITION, "must evaluate to bool but got string"),
    ("object.a", CONDITION, "must evaluate to bool but got dyn"),
    ("1", ANNOTATION, "must evaluate to one of [string null_type] but got int"),
    ("[1]", MESSAGE, "must evaluate to string but got list(int)"),
    ("params.x == 1", CONDITION, "compilation failed: ERROR: <input>:1:1: undeclared reference to 'params'"),
    ("authorizer.path('/x').check('get').allowed()", CONDITION, "compilation failed: ERROR: <input>:1:1: undeclared"),
    ("request.nothing == 1", CONDITION, "compilation failed: ERROR: <input>:1:8: undefined field 'nothing'"),
    ("'x'.matches('(')", CONDITION, "compilation failed: ERROR: <input>:1:13: invalid matches argument"),
    ("'x'.find('(') == ''", CONDITION, "program instantiation failed: "),
]


@pytest.mark.parametrize(("text", "wanted", "problem"), PROBLEMS)
def test_invalid_expression_is_a_compile_problem(text: str, wanted: tuple[Type, ...], problem: str) -> None:
    assert compile_expression(text, PLAIN, wanted).problem.startswith(problem)


VALUES: list[tuple[str, Any]] = [
    ("object.metadata.labels['a-b']", "1"),
    ("has(object.spec.n) && !has(object.spec.m)", True),
    ("object.spec.n + 1 == 4 && oldObject == null && params == null", True),
    ("object.metadata.labels.exists(k, k == 'a-b')", True),
    ("request.?name.orValue('none')", "none"),
    ("namespaceObject == null", True),
    ("object.?status.?phase.hasValue()", False),
]


@pytest.mark.parametrize(("text", "wanted"), VALUES)
def test_expression_evaluates_to_expected_value(text: str, wanted: Any) -> None:
    assert value(text) == wanted


def test_namespace_object_exposes_only_declared_fields() -> None:
    namespace = {
        "metadata": {
            "name": "n",
            "uid": "u",
            "labels": {"a": "b"},
            "creationTimestamp": "2026-01-02T03:04:05Z",
            "managedFields": [],
        },
        "spec": {"finalizers": ["kubernetes"]},
        "status": {"phase": "Active", "conditions": [{"type": "T", "lastTransitionTime": "2026-01-02T03:04:05Z"}]},
    }
    values = given(namespace=namespace_value(namespace))
    for text in (
        "namespaceObject.metadata.creationTimestamp.getFullYear() == 2026 && namespaceObject.metadata.UID == 'u'",
        "namespaceObject.spec.finalizers.size() == 1 && namespaceObject.metadata.labels.a == 'b'",
        "namespaceObject.status.conditions[0].lastTransitionTime.getHours() == 3",
    ):
        assert value(text, values) is True
    hidden = compile_expression("namespaceObject.metadata.managedFields", PLAIN)
    assert "undefined field 'managedFields'" in hidden.problem


def test_authorizer_decides_for_user_of_the_request() -> None:
    asked: list[Question] = []

    def decide(question: Question) -> Decision:
        asked.append(question)
        return Decision(True)

    own = Question(group="apps", resource="deployments", namespace="n", name="d")
    values = given(asking=lambda: (decide, own))
    assert value("authorizer.requestResource.check('get').allowed()", values)
    selected = "authorizer.group('').resource('pods').fieldSelector('spec.nodeName=n').labelSelector('a=b')"
    assert value(f"{selected}.check('list').allowed()", values)
    assert asked[0] == own._replace(verb="get")
    assert (asked[1].field_selector, asked[1].label_selector) == ("spec.nodeName=n", "a=b")
    for text, why in (
        ("authorizer.path('').check('get').allowed()", "path must not be empty"),
        ("authorizer.group('').resource('').check('get').allowed()", "resource must not be empty"),
        ("authorizer.serviceAccount('n', 'A').path('/').check('get').allowed()", "Invalid service account name"),
        ("authorizer.serviceAccount('N', 'a').path('/').check('get').allowed()", "Invalid service account namespace"),
    ):
        error = Evaluation(values).run(compile_expression(text, TRUSTED)).error
        assert error == f"expression '{text}' resulted in error: {why}"


def test_evaluation_is_freed_without_garbage_collection() -> None:
    """An evaluation has the whole request: garbage collection, which comes late, is not to be waited for."""
    made = Composition([{"name": "one", "expression": "object.spec.n"}], params=False)
    evaluation = Evaluation(given(), made.variables)
    assert evaluation.run(compile_expression("variables.one == 3", made.trusted, CONDITION)).value is True
    gc.disable()
    try:
        left = weakref.ref(evaluation)
        del evaluation
        assert left() is None
    finally:
        gc.enable()


def test_variable_may_use_earlier_ones_and_is_computed_once() -> None:
    made = Composition(
        [
            {"name": "one", "expression": "object.spec.n"},
            {"name": "two", "expression": "variables.one + 1"},
            {"name": "bad", "expression": "object.none"},
            {"name": "wrong", "expression": "variables.later"},
            {"name": "later", "expression": "1"},
        ],
        params=False,
    )
    assert "undefined field 'later'" in made.variables["wrong"].problem
    evaluation = Evaluation(given(), made.variables)
    expression = compile_expression("variables.two == 4 && variables.one == 3", made.trusted, CONDITION)
    before = evaluation.budget
    assert evaluation.run(expression).value is True
    first = before - evaluation.budget
    assert evaluation.run(expression).value is True
    assert before - evaluation.budget - first < first  # the second time the variables cost nothing
    for name, why in (("bad", "fails to evaluate: no such key: none"), ("wrong", "fails to compile: ")):
        text = f"variables.{name} == 1"
        for _ in range(2):
            error = evaluation.run(compile_expression(text, made.trusted)).error
            assert error.startswith(f"expression '{text}' resulted in error: composited variable \"{name}\" {why}")


TYPES: list[tuple[Type, Type]] = [
    (BOOL, BOOL),
    (list_of(INT), list_of(INT)),
    (map_of(STRING, struct("kubernetes.UserInfo")), map_of(STRING, DYN)),
    (struct("kubernetes.AdmissionRequest"), DYN),
]


@pytest.mark.parametrize(("found", "known"), TYPES)
def test_variable_type_is_inferred_from_expression(found: Type, known: Type) -> None:
    assert variable_type(found) == known


def test_evaluation_over_budget_raises_out_of_budget() -> None:
    counting = compile_expression("[1, 2, 3, 4].all(x, x > 0)", PLAIN)
    evaluation = Evaluation(given(), budget=100)
    assert evaluation.run(counting).value is True
    with pytest.raises(OutOfBudget, match=OUT_OF_BUDGET):
        for _ in range(10):
            evaluation.run(counting)
    made = Composition([{"name": "dear", "expression": "[1, 2, 3, 4].map(x, x * 2)"}], params=False)
    asking = compile_expression("variables.dear.size() == 4", made.trusted)
    assert Evaluation(given(), made.variables, 100).run(asking).value is True
    with pytest.raises(OutOfBudget):
        Evaluation(given(), made.variables, 20).run(asking)


def test_expressions_are_checked_against_types_of_the_kind() -> None:
    structs: dict[str, Any] = {}
    about = declare_kind(known_kind("apps/v1", "Deployment"), structs)
    within = environment(params=False, authorizer=True, objects=(about, DYN), structs=structs)
    for text in (
        "object.spec.replicas + 1 > oldObject.spec.replicas",
        "object.metadata.labels['a'] == 'b' && object.metadata.creationTimestamp < timestamp('2030-01-01T00:00:00Z')",
        "object.spec.template.spec.containers.all(c, c.image.contains(':') && c.ports.all(p, p.containerPort > 0))",
        "object.spec.strategy.rollingUpdate.maxSurge == '25%' || object.metadata.__namespace__ == 'x'",
        "object.spec.template.spec.containers[0].resources.limits['cpu'] == '1'",
    ):
        assert compile_expression(text, within, CONDITION).problem == ""
    for text, why in (("object.spec.replica > 1", "undefined field 'replica'"), ("object.spec.replicas == 'a'", "int")):
        assert why in compile_expression(text, within, CONDITION).problem


CHEAP = """
namespaceObject.metadata.name == 'x'
has(namespaceObject.metadata)
has(namespaceObject.metadata.name)
namespaceObject.metadata.labels['x'] == 'y'
namespaceObject.?metadata.?name.orValue('a') == 'a'
namespaceObject == null
oldObject.metadata.name == 'x'
has(oldObject.metadata)
params.x == 'y'
request.operation == 'CREATE' && request.name == 'x'
request.userInfo.groups[0] == 'b'
request.userInfo.extra['a'][0] == 'b'
object.metadata.labels['a-b'] == '1'
object.metadata.labels['x'] == 'y'
object.metadata.labels[1] == 'y'
object.a.b.c == 1
object.spec[0] == 1
object.spec.n.x == 1
object.l.x == 1
object.?l.x == optional.of(1)
object.l[0] == 1 && object.l[7] == 1
-object.spec.n == -3
object.spec.n < 'a' || object.spec.n >= 3
!object.spec.n
object.spec.n ? true : false
object.spec.n && true
int(object.metadata.name) == 3
object.spec.n in [1, 3]
variables.known == 'p' || variables.unknown == 1
variables.broken == 1
""".strip().splitlines()


CHEAP_IF_SMALL = """
string(object.metadata.name) == 'n'
string(object.metadata.?labels.?x.orValue('none')) == 'y'
object.metadata.?labels[?'x'].orValue('') + '-' == 'y-'
(has(object.metadata.labels) ? object.metadata.labels['a-b'] : 'z').matches('^1')
object.metadata.name.matches('^n+$')
object.metadata.name.replace('n', 'm') == 'm'
size(object.l.join('-')) == 3
string(object.spec) == ''
""".strip().splitlines()


@pytest.mark.parametrize("text", [*CHEAP, *CHEAP_IF_SMALL])
def test_cheap_expression_gives_same_result_and_charge_without_cost_counting(text: str) -> None:
    given_variables = [{"name": "known", "expression": "string(object.metadata.name)"}]
    given_variables += [{"name": "broken", "expression": "object.nothing"}, {"name": "unknown", "expression": "params"}]
    composition = Composition(given_variables, params=True)
    expression = compile_expression(text, composition.trusted)
    assert not expression.problem
    assert (expression.cheap is None) == (text in CHEAP_IF_SMALL)
    assert (expression.cheap_if_small is None) == (text in CHEAP)
    namespace = namespace_value({"metadata": {"name": "x", "labels": {"x": "y"}}})
    whole = {"operation": "CREATE", "name": "x", "userInfo": {"username": "u", "groups": ["b"]}}
    listed = {**POD, "l": ["1", "2"]}
    for values in (given(), given(object=None, old_object=listed), given(object=listed, request=whole, params={})):
        for one in (values, values._replace(namespace=namespace)):
            one = one._replace(is_small=True)
            quick, counting = (Evaluation(one, composition.variables) for _ in range(2))
            assert quick.attempt(expression, 10_000) == counting.run(expression)
            assert quick.budget <= counting.budget, "what is charged is the most that it can cost"


@pytest.mark.parametrize(
    "text",
    [
        "object.spec.containers.all(c, c.name != 'x')",
        "string(oldObject.metadata.name) == ''",
        "string(params.x) == ''",
        "object.a.contains(object.b)",
        "(object.a + object.b + object.c + object.d) == ''",
        "variables.known + object.metadata.name == ''",
        "authorizer.group('').resource('pods').check('get').allowed()",
    ],
)
def test_expression_over_unbounded_list_is_never_cheap(text: str) -> None:
    composition = Composition([{"name": "known", "expression": "string(object.metadata.name)"}], params=True)
    expression = compile_expression(text, composition.trusted)
    assert not expression.problem and expression.cheap is None and expression.cheap_if_small is None


def test_cheap_expressions_are_counted_once_half_of_the_budget_is_charged() -> None:
    """The most that expressions can cost is not what they cost: with half of the budget gone they are counted."""
    composition = Composition((), params=False)
    expression = compile_expression("string(object.metadata.name) == 'p'", composition.trusted)
    evaluation = Evaluation(given(is_small=True), composition.variables, budget=1_300_000)
    for _ in range(5_000):
        assert evaluation.attempt(expression, 10_000) == Result(True)
