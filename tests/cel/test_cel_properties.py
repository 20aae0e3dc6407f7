"""Invariants: nothing but the declared errors comes out, whatever goes in."""

from __future__ import annotations

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from haru.cel.device import CompileError, DeviceView, EvaluationError, compile_device_selector
from haru.cel.environment import Environment
from haru.cel.libraries.kubernetes import BASE, BINDINGS
from haru.cel.libraries.timestamps import civil, days_from_civil, format_timestamp, parse_timestamp
from haru.cel.program import MeteredProgram, Program, parse_and_check, parse_only
from haru.cel.types import DYN
from haru.cel.values import Timestamp, equals, type_of
from haru.kube.go_values import format_double, plain_double

ENVIRONMENT = Environment((*BASE, BINDINGS), {"a": DYN, "b": DYN})

WORDS = (
    *("a", "b", "x", "true", "false", "null", "1", "0", "-1", "2u", "1.5", "'x'", '""', "b'y'", "r'\\d'", "`x`"),
    *("[]", "{}", "(", ")", "[", "]", "{", "}", ".", ",", ":", "?", "?.", "[?", "//", "'", '"', "\\", "@", "\n", " "),
    *("+", "-", "*", "/", "%", "!", "&&", "||", "==", "!=", "<", "<=", ">", ">=", " in "),
    *("has(", "exists(", ".size()", ".exists(", ".all(", ".filter(x,", ".map(x, x)", "cel.bind(", ".orValue("),
    *("int(", "string(", "type(", "dyn(", "optional.of(", "duration('1s')", "timestamp(0)", "quantity('1')"),
)
SOUP = st.lists(st.sampled_from(WORDS), max_size=14).map("".join) | st.text(max_size=20)

LEAVES = st.sampled_from(
    (
        *("a", "b", "1", "0", "-9223372036854775808", "2u", "1.5", "'x'", "''", "true", "false", "null", "[1, 2]"),
        *("{'k': 1}", "b'y'", "duration('1h')", "timestamp(0)", "quantity('1Gi')", "semver('1.2.3')"),
        *("optional.none()", "double('NaN')"),
    )
)


def _grow(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    binary = st.sampled_from(("+", "-", "*", "/", "%", "==", "!=", "<", "<=", ">", ">=", "&&", "||", "in"))
    functions = (
        "size(dyn({}))",
        "string(dyn({}))",
        "int(dyn({}))",
        "type({})",
        "!dyn({})",
        "-dyn({})",
        "dyn({}).x",
        "dyn({})[0]",
    )
    macros = (
        "[{}].exists(v, dyn(v) == {})",
        "[{}].map(v, dyn({}))",
        "dyn({}).all(v, dyn({}))",
        "cel.bind(v, {}, [v, dyn({})])",
    )
    return (
        st.tuples(inner, binary, inner).map(lambda parts: f"(dyn({parts[0]}) {parts[1]} dyn({parts[2]}))")
        | st.tuples(st.sampled_from(functions), inner).map(lambda parts: parts[0].format(parts[1]))
        | st.tuples(st.sampled_from(macros), inner, inner).map(lambda parts: parts[0].format(parts[1], parts[2]))
        | st.tuples(inner, inner, inner).map(lambda parts: f"(dyn({parts[0]}) ? dyn({parts[1]}) : dyn({parts[2]}))")
    )


EXPRESSIONS = st.recursive(LEAVES, _grow, max_leaves=8)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 63) - 1)
    | st.floats()
    | st.text(max_size=4)
    | st.binary(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
    max_leaves=6,
)


@given(SOUP)
@settings(max_examples=400, deadline=None)
def test_any_text_compiles_or_raises_compile_error(text: str) -> None:
    try:
        selector = compile_device_selector(text)
    except CompileError as error:
        assert str(error)
    else:
        assert selector.max_cost >= 0


@given(EXPRESSIONS, VALUES, VALUES)
@settings(max_examples=400, deadline=None)
def test_any_expression_evaluates_or_raises_evaluation_error_and_metering_agrees(
    text: str, a: object, b: object
) -> None:
    for compile_it in (parse_and_check, parse_only):
        try:
            root = compile_it(text, ENVIRONMENT)
        except CompileError:
            continue
        metered = MeteredProgram(root, ENVIRONMENT, ("a", "b")).measure(math.inf, a, b)
        try:
            value = Program(root, ENVIRONMENT, ("a", "b")).evaluate(a, b)
        except EvaluationError:
            assert metered.error is not None
        else:
            assert metered.error is None, metered.error
            assert type_of(metered.value) == type_of(value)


@given(
    st.dictionaries(
        st.sampled_from(("x", "y", "d/z")),
        st.one_of(
            st.builds(lambda value: {"int": value}, st.integers(-5, 5)),
            st.builds(lambda value: {"string": value}, st.text(max_size=3)),
            st.builds(lambda value: {"bool": value}, st.booleans()),
            st.builds(lambda value: {"version": value}, st.sampled_from(("1.0.0", "2.0.0-rc.1", "broken"))),
        ),
    ),
    st.sampled_from(
        (
            'device.attributes["d"].x == 1 || device.attributes["d"].y',
            'device.attributes["d"].all(k, device.attributes["d"][k] != 1)',
            'device.attributes["d"].x < device.attributes["d"].y',
            'device.attributes["d"].?x.orValue("") == "a"',
            'has(device.attributes["d"].z)',
        )
    ),
)
@settings(max_examples=200, deadline=None)
def test_selector_and_metered_selector_agree_within_max_cost(
    attributes: dict[str, dict[str, object]], expression: str
) -> None:
    device = DeviceView("d", attributes, {})
    selector = compile_device_selector(expression)
    try:
        outcome = selector.measure(device)
    except EvaluationError:
        assert any(attribute.get("version") == "broken" for attribute in attributes.values())
        return
    assert outcome.cost <= selector.max_cost
    try:
        assert selector.matches(device) is outcome.value
    except EvaluationError as error:
        assert str(error) == str(outcome.error)


@given(VALUES)
def test_equality_is_reflexive_except_for_nan(value: object) -> None:
    assert equals(value, value) or "nan" in repr(value)


@given(st.integers(-719_162, 2_932_896))
def test_dates_and_timestamps_survive_round_trip(days: int) -> None:
    assert days_from_civil(*civil(days)) == days
    moment = Timestamp(days * 86_400 * 10**9 + 123_000)
    assert parse_timestamp(format_timestamp(moment)) == moment


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_formatted_double_parses_to_same_value(value: float) -> None:
    assert float(format_double(value)) == float(plain_double(value)) == value
    assert "e" not in plain_double(value)
