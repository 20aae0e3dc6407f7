"""Values of custom resources, judged as kube-apiserver 1.36.2 judges them: the findings were read from it."""

from __future__ import annotations

from typing import Any

import pytest

from haru.kube.custom.shaping import pruned
from haru.kube.custom.structural import parse
from haru.kube.custom.value_validation import judge
from haru.kube.go_values import go_duration, rpc_error

NUMBER = 'x: Invalid value: "number": x in body must be of type integer: "number"'
CHECKED = '<nil>: Invalid value: "": Checked value must be of type integer (default format) in x'
CHECKED_32 = '<nil>: Invalid value: "": Checked value must be of type integer with format int32 in x'
INT: dict[str, Any] = {"type": "integer"}
INT_32 = {**INT, "format": "int32"}
DATE = {"type": "string", "format": "date"}
TEXT = {"type": "string", "maxLength": 1, "pattern": "^b", "enum": ["b"], "format": "date"}
BOUNDS = {**INT, "minimum": 2, "maximum": 1, "multipleOf": 3}


def is_of(form: str, found: str) -> str:
    return f'x: Invalid value: "{found}": x in body must be of type {form}: "{found}"'


CASES: list[tuple[dict[str, Any], Any, list[str]]] = [
    (INT, 1.5, [NUMBER, CHECKED]),
    (INT, 1e30, [NUMBER, CHECKED]),
    (INT, 2**63, [NUMBER, CHECKED]),
    (INT, 1e17, [NUMBER]),
    (INT, 2**63 - 1, []),
    (INT, 1e15, []),
    (INT_32, 2.5, [is_of("int32", "float64"), CHECKED_32]),
    (INT_32, 3_000_000_000, [CHECKED_32]),
    (INT_32, True, [is_of("int32", "")]),
    (INT_32, {}, [is_of("int32", "")]),
    (INT_32, [], [is_of("integer", "array")]),
    (INT_32, "1", [is_of("integer", "string")]),
    ({**INT, "format": "foo"}, 1.5, [NUMBER, CHECKED]),
    (
        {"type": "number", "format": "float"},
        1e300,
        ['<nil>: Invalid value: "": Checked value must be of type number with format float in x'],
    ),
    ({"type": "number"}, 1e300, []),
    ({"format": "ipv4"}, "256.1.1.1", ['x: Invalid value: "256.1.1.1": x in body must be of type ipv4: "256.1.1.1"']),
    ({"format": "ipv4"}, "10.1.1.1", []),
    ({"format": "ipv4"}, 7, [is_of("ipv4", "int64")]),
    ({"format": "ipv4"}, [], []),
    ({"x-kubernetes-int-or-string": True}, 1.0, []),
    ({"x-kubernetes-int-or-string": True}, 1.5, [is_of("integer,string", "number")]),
    (
        BOUNDS,
        1,
        [
            "x: Invalid value: 1: x in body should be a multiple of 3",
            "x: Invalid value: 1: x in body should be greater than or equal to 2",
        ],
    ),
    (
        {**INT_32, "minimum": 1.5},
        1,
        [
            '<nil>: Invalid value: "": Minimum boundary value must be of type integer with format int32 in x',
            "x: Invalid value: 1: x in body should be greater than or equal to 1.5",
        ],
    ),
    (
        TEXT,
        "aaa",
        [
            "x: Too long: may not be more than 1 byte",
            'x: Invalid value: "aaa": x in body must be of type date: "aaa"',
            'x: Unsupported value: "aaa": supported values: "b"',
        ],
    ),
    (TEXT, 1.0, [is_of("date", "float64"), 'x: Unsupported value: 1: supported values: "b"']),
    (DATE, 1, [is_of("date", "int64")]),
    (DATE, {}, [is_of("date", "")]),
    (DATE, ["a"], []),
    ({"type": "boolean"}, 1.0, [is_of("boolean", "number")]),
    (
        {"type": "array", "minItems": 3, "items": {"type": "boolean"}},
        [1],
        [
            'x[0]: Invalid value: "integer": x[0] in body must be of type boolean: "integer"',
            "x: Invalid value: 1: x in body should have at least 3 items",
        ],
    ),
]


@pytest.mark.parametrize(("schema", "value", "expected"), CASES)
def test_value_has_findings_of_kube_apiserver(schema: dict[str, Any], value: Any, expected: list[str]) -> None:
    assert [str(error) for error in judge(value, parse(schema), "x")] == expected


@pytest.mark.parametrize(
    ("form", "good", "bad"),
    [
        ("k8s-long-name", "a.b-c", "A"),
        ("k8s-short-name", "a-b", "a.b"),
        ("byte", "YWI=", "YWI"),
        ("byte", "YWJj", ""),
        ("hexcolor", "#fff", "#ggg"),
        ("rgbcolor", "rgb(1,2,255)", "rgb(1,2,300)"),
        ("ssn", "111-22-3333", "1"),
        ("bsonobjectid", "507f1f77bcf86cd799439011", "x"),
    ],
)
def test_format_takes_and_refuses(form: str, good: str, bad: str) -> None:
    schema = parse({"type": "string", "format": form})
    assert judge(good, schema, "x") == []
    assert [error.detail for error in judge(bad, schema, "x")] == [f'x in body must be of type {form}: "{bad}"']


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "0s"),
        (1, "1ns"),
        (-1_500, "-1.5µs"),
        (2_000_000, "2ms"),
        (90 * 10**9, "1m30s"),
        (-(10**9), "-1s"),
        (3_600_500_000_000, "1h0m0.5s"),
    ],
)
def test_duration_is_printed_as_by_go(ns: int, text: str) -> None:
    assert go_duration(ns) == text


def test_socket_without_a_server_is_told_as_by_a_client_in_go() -> None:
    place, why = "unix:/run/d.sock", "No such file or directory"
    failed = f"UNKNOWN: {place}: connect failed: addr: {place} error: {why}"
    details = f"failed to connect to all addresses; last error: {failed}"
    dialed = f'"transport: Error while dialing: dial unix /run/d.sock: connect: {why.lower()}"'
    assert (
        rpc_error("UNAVAILABLE", details) == f"rpc error: code = Unavailable desc = connection error: desc = {dialed}"
    )
    assert rpc_error("UNAVAILABLE", "gone") == "rpc error: code = Unavailable desc = gone"


def test_items_of_a_list_where_the_schema_has_none_are_pruned() -> None:
    properties = {"text": {"type": "string"}, "any": {"x-kubernetes-preserve-unknown-fields": True}}
    value = {"text": [{"k": "a"}, "b"], "any": [{"k": "a"}]}
    found = pruned(value, parse({"type": "object", "properties": properties}))
    assert found == ({"text": [{}, "b"], "any": [{"k": "a"}]}, ["text[0].k"])
