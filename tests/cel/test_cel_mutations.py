"""Patches as values, and evaluations with a limited cost."""

from __future__ import annotations

from typing import Any

import pytest

from haru.cel.admission import CONDITION, Composition, compile_expression
from haru.cel.admission_evaluation import Evaluation, Given, OutOfBudget
from haru.cel.libraries.authorization import Decision, Question
from haru.cel.libraries.patches import MisplacedError, PatchValueError, to_json

GIVEN = Given({"metadata": {"name": "n"}, "spec": {"n": 3}}, None, {"operation": "CREATE"})
TEN = "[0,1,2,3,4,5,6,7,8,9]"


def nested(depth: int, inner: str = "true") -> str:
    """An expression that takes ten times as long with every level."""
    return "".join(f"{TEN}.all(v{n}, " for n in range(depth)) + inner + ")" * depth


def value(text: str) -> Any:
    composition = Composition((), params=False)
    compiled = compile_expression(text, composition.patching)
    found = Evaluation(GIVEN).run(compiled)
    assert not found.error and not compiled.problem, (found.error, compiled.problem)
    return found.value


JSON: list[tuple[str, Any]] = [
    ("Object{a: 1, b: Object.b{c: [Object.b.c{d: 'x'}, Object.b.c{}]}}", {"a": 1, "b": {"c": [{"d": "x"}, {}]}}),
    ("Object{labels: {'a/b': 'c'}}", {"labels": {"a/b": "c"}}),
    ("[1u, 2u]", [1, 2]),
    ("1.0", 1),
    ("1.5", 1.5),
    ("9007199254740991", 9007199254740991),
    ("9007199254740992", "9007199254740992"),
    ("-9007199254740993", "-9007199254740993"),
    ("b'a'", "YQ=="),
    ("null", None),
    ("true", True),
    ("duration('90s')", "90s"),
    ("timestamp('2026-01-02T03:04:05Z')", "2026-01-02T03:04:05Z"),
]


@pytest.mark.parametrize(("text", "wanted"), JSON)
def test_cel_value_converts_to_json_value_of_same_type(text: str, wanted: Any) -> None:
    found = to_json(value(text))
    assert found == wanted and type(found) is type(wanted)


def test_cel_value_without_json_form_is_an_error() -> None:
    for text, why in (
        ("1.0 / 0.0", "a double that is"),
        ("{1: 'a'}", "map key 1 is of type int, not string"),
        ("quantity('1')", "a value of type kubernetes.Quantity is not JSON"),
    ):
        with pytest.raises(PatchValueError, match=why):
            to_json(value(text))
    with pytest.raises(MisplacedError) as caught:
        to_json(value("Object{a: Object.b{}, l: [Object.l{x: Object.l.y{}}]}"))
    assert str(caught.value).splitlines() == [
        'unexpected type name "Object.b", expected "Object.a", which matches field name path from root Object type',
        'unexpected type name "Object.l.y", expected "Object.l.x", which matches field name path from root Object type',
    ]


def test_abandoned_attempt_leaves_variables_and_budget_unchanged() -> None:
    variables = [{"name": "long", "expression": nested(4)}, {"name": "short", "expression": "1"}]
    composition = Composition(variables, params=False)
    evaluation = Evaluation(GIVEN, composition.variables)
    budget = evaluation.budget
    expression = compile_expression("variables.short == 1 && variables.long", composition.trusted, CONDITION)
    assert evaluation.attempt(expression, 10_000) is None
    assert evaluation.budget == budget
    assert evaluation.run(expression).value is True
    spent = budget - evaluation.budget
    fresh = Evaluation(GIVEN, composition.variables)
    fresh.run(expression)
    assert spent == budget - fresh.budget, "what was tried before is not charged twice"
    assert evaluation.attempt(compile_expression("1 == 1", composition.trusted), 10_000) is not None


def test_attempt_calls_authorizer_and_fails_over_cost_limit() -> None:
    asked: list[Question] = []

    def decide(question: Question) -> Decision:
        asked.append(question)
        return Decision(True)

    text = "authorizer.requestResource.check('get').allowed() && authorizer.requestResource.check('list').allowed()"
    composition = Composition((), params=False)
    evaluation = Evaluation(GIVEN._replace(asking=lambda: (decide, Question())))
    found = evaluation.attempt(compile_expression(text, composition.trusted), 1_000)
    assert found is not None and found.value is True and len(asked) == 2
    three = f"{text} && authorizer.requestResource.check('watch').allowed()"
    assert "actual cost limit exceeded" in evaluation.run(compile_expression(three, composition.trusted)).error


def test_attempt_over_budget_raises_out_of_budget() -> None:
    composition = Composition((), params=False)
    evaluation = Evaluation(GIVEN, budget=100)
    with pytest.raises(OutOfBudget):
        evaluation.attempt(compile_expression(nested(2), composition.trusted), 10_000)
