"""Device selectors: what users write, what they are told, and why a device is not selected."""

from __future__ import annotations

from typing import Any

import pytest

from haru.cel.device import (
    CompileError,
    DeviceView,
    EvaluationError,
    compile_device_selector,
    explain_mismatch,
)

H100 = DeviceView(
    "gpu.example.com",
    {
        "type": {"string": "gpu"},
        "architecture": {"string": "Hopper"},
        "index": {"int": 3},
        "ecc": {"bool": True},
        "driverVersion": {"version": "570.86.15"},
        "other.example.com/type": {"string": "elsewhere"},
        "model": {"strings": ["H100", "H200"]},
    },
    {"memory": {"value": "80Gi"}},
)
PLAIN = DeviceView("gpu.example.com", {"index": {"int": 1}}, {})
D = 'device.attributes["gpu.example.com"]'


def matches(expression: str, device: DeviceView = H100, **options: Any) -> bool:
    return compile_device_selector(expression, list_attributes=True, **options).matches(device)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ('device.driver == "gpu.example.com"', True),
        (f'{D}.type == "gpu" && {D}.index > 2 && {D}.ecc', True),
        (f'{D}.type in ["gpu", "mig"]', True),
        (f'{D}.index in ["3", "4"]', False),
        (f"{D}.index in [3, 4]", True),
        (f"{D}.ecc in [1]", False),
        (f"{D}.ecc == 1", False),
        (f"{D}.index == 3.0 && {D}.index == 3u && {D}.index < 3.5", True),
        ('device.attributes["other.example.com"].type == "elsewhere"', True),
        ('device.attributes["none.example.com"].size() == 0', True),
        ('"none.example.com" in device.attributes', False),
        ('has(device.attributes["none.example.com"].x)', False),
        (f"has({D}.nothing) || {D}.ecc", True),
        (f"{D}.nothing == 1 || {D}.ecc", True),
        (f"{D}.nothing == 1 && !{D}.ecc", False),
        (f"{D}.?nothing.orValue(7) == 7", True),
        (f"{D}[?'index'].orValue(7) == 3", True),
        (f'{D}.driverVersion.compareTo(semver("550.0.0")) > 0', True),
        (f'{D}.driverVersion == semver("570.86.15+build.7")', True),
        ('device.capacity["gpu.example.com"].memory.compareTo(quantity("40Gi")) >= 0', True),
        ('device.capacity["gpu.example.com"].memory == quantity("81920Mi")', True),
        (f"cel.bind(dra, {D}, dra.index == 3 && dra.ecc)", True),
        (f'{D}.model.includes("H200") && {D}.type.includes("gpu")', True),
        (f'{D}.model.exists(m, m.startsWith("H2"))', True),
        ("device.allowMultipleAllocations", False),
        (f"{D}.all(name, name.size() > 2)", True),
        (f"{D}.exists(name, value, name == 'index' && value == 3)", True),
    ],
)
def test_selector_matches_expected_devices(expression: str, expected: bool) -> None:
    assert matches(expression) is expected


@pytest.mark.parametrize(
    ("expression", "message", "column"),
    [
        (
            'device.capacity["gpu.example.com"].memory >= quantity("1Gi")',
            "compilation failed: ERROR: <input>:1:43: found no matching overload for '_>=_' applied to "
            "'(kubernetes.Quantity, kubernetes.Quantity)'\n"
            ' | device.capacity["gpu.example.com"].memory >= quantity("1Gi")\n'
            " | ..........................................^",
            42,
        ),
        (
            "device.nothing",
            "compilation failed: ERROR: <input>:1:7: undefined field 'nothing'\n | device.nothing\n | ......^",
            6,
        ),
        ("device.driver", "must evaluate to bool or the unknown type, not string", 0),
        ("int('x') == 1", "program instantiation failed: type conversion error from 'string' to 'int'", 0),
    ],
)
def test_compile_error_has_message_and_column(expression: str, message: str, column: int) -> None:
    with pytest.raises(CompileError) as caught:
        compile_device_selector(expression)
    assert str(caught.value) == message
    assert caught.value.column == column


@pytest.mark.parametrize(
    "expression", ["", "1 +", "a b", "'open", "[1, ", "f(", "(true", "true)", "@", "for", "a.?", "\\"]
)
def test_syntax_error_has_line_and_column(expression: str) -> None:
    with pytest.raises(CompileError, match="compilation failed: ERROR: <input>:1:"):
        compile_device_selector(expression)


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        (f"{D}.nothing == 1", "no such key: nothing"),
        (f"{D}.type > 1", "no such overload: _>_(string, int)"),
        (f"{D}.index / 0 == 1", "division by zero"),
        (f"{D}.index + 9223372036854775807 > 0", "integer overflow"),
        (f'{D}.driverVersion == "570.86.15"', "no such overload"),
        (f"{D}.index.exists(x, x > 0)", "got 'types.Int', expected iterable type"),
        (f"{D}.type", "CEL result of type string could not be converted to bool: "),
    ],
)
def test_evaluation_error_has_message(expression: str, message: str) -> None:
    with pytest.raises(EvaluationError) as caught:
        matches(expression)
    assert str(caught.value).startswith(message)


def test_device_with_invalid_attribute_fails_every_selector() -> None:
    device = DeviceView("d", {"list": {"ints": [1]}}, {})
    assert compile_device_selector("true", list_attributes=True).matches(device)
    selector = compile_device_selector("true")
    for _ in range(2):
        with pytest.raises(EvaluationError, match="attribute list: unsupported attribute value"):
            selector.matches(device)
    with pytest.raises(EvaluationError, match="attribute v: parse semantic version: No Major"):
        selector.matches(DeviceView("d", {"v": {"version": "1"}}, {}))


def test_new_selector_fields_need_their_feature_gate() -> None:
    expression = "device.allowMultipleAllocations"
    assert not compile_device_selector(expression, consumable_capacity=False, new=False).matches(PLAIN)
    with pytest.raises(CompileError, match="undefined field"):
        compile_device_selector(expression, consumable_capacity=False)


def test_selector_over_cost_limit_fails() -> None:
    digits = str(list(range(10)))
    expression = "true"
    for depth in range(7):
        expression = f"{digits}.all(x{depth}, {expression})"
    selector = compile_device_selector(expression)
    assert selector.max_cost > 1_000_000
    outcome = selector.measure(PLAIN)
    assert outcome.cost == 1_000_001
    with pytest.raises(EvaluationError, match="operation cancelled: actual cost limit exceeded"):
        selector.matches(PLAIN)


def test_equal_selectors_are_compiled_once() -> None:
    assert compile_device_selector("true") is compile_device_selector("true")


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (
            f'{D}.index == 1 && ({D}.type == "gpu" && {D}.ecc)',
            [
                f"{D}.index == 1: left value 1, right value 1",
                f'{D}.type == "gpu": no such key: type',
                f"{D}.ecc: no such key: ecc",
            ],
        ),
        (f"{D}.index == 2 || false && true", [f"{D}.index == 2 || false && true: {D}.index is 1"]),
        (
            f"{D}.index + 1 == 5 && has({D}.type)",
            [
                f"{D}.index + 1 == 5: left value 2, right value 5 ({D}.index is 1)",
                f'has({D}.type): {D} is {{"index": 1}}',
            ],
        ),
        ("[1].exists(x, x == 2 && true)", ["[1].exists(x, x == 2 && true): false"]),
        ("(true) && (false)", ["true: true", "false: false"]),
    ],
)
def test_mismatch_explanation_names_failed_conditions(expression: str, expected: list[str]) -> None:
    assert [str(atom) for atom in explain_mismatch(compile_device_selector(expression), PLAIN)] == expected


def test_mismatch_explanation_has_values_of_both_operands() -> None:
    selector = compile_device_selector(f'{D}.architecture == "Ampere" && {D}.ecc', list_attributes=True)
    first, second = explain_mismatch(selector, H100)
    assert (first.matched, first.left, first.right) == (False, '"Hopper"', '"Ampere"')
    assert first.reads == ((f"{D}.architecture", '"Hopper"'),)
    assert (second.matched, second.left) == (True, None)
