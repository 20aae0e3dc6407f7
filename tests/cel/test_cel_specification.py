"""The conformance cases of the CEL specification, for the libraries that Kubernetes has."""

from __future__ import annotations

import base64
import math
from typing import Any

from cel_reference import reference_cases

from haru.cel.environment import Dialect, Environment
from haru.cel.errors import CompileError, EvaluationError
from haru.cel.libraries.kubernetes import BINDINGS, TWO_VARIABLE_COMPREHENSIONS
from haru.cel.libraries.lists import LISTS, SETS
from haru.cel.libraries.optionals import LIBRARY as OPTIONALS
from haru.cel.libraries.standard import STANDARD
from haru.cel.libraries.strings import LATEST_STRINGS
from haru.cel.program import Program, parse_and_check, parse_only
from haru.cel.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    DYN,
    INT,
    NULL,
    STRING,
    TIMESTAMP,
    TYPE,
    UINT,
    Type,
    list_of,
    map_of,
    optional_of,
)
from haru.cel.values import Duration, Timestamp, Uint, equals, from_key, map_key

LIBRARIES = (STANDARD, OPTIONALS, LATEST_STRINGS, LISTS, SETS, TWO_VARIABLE_COMPREHENSIONS, BINDINGS)

FOREIGN = ("encoders_ext/", "math_ext/", "network_ext/")
"""Libraries that Kubernetes does not have (its own IP and CIDR differ from the generic one)."""

_TYPO = "the expected bytes have a backslash that the expression does not have; the same case for strings is right"
KNOWN_DIFFERENCES: dict[str, str] = {
    "dynamic/value_null/literal": "builds a protobuf message",
    "parse/bytes_literals/triple_double_quoted_unescaped_punctuation": _TYPO,
    "parse/bytes_literals/triple_single_quoted_unescaped_punctuation": _TYPO,
}
"""Cases that fail, and why that is right."""

NAMES = {
    "bool": BOOL,
    "int": INT,
    "uint": UINT,
    "double": DOUBLE,
    "string": STRING,
    "bytes": BYTES,
    "null": NULL,
    "null_type": NULL,
    "dyn": DYN,
    "type": TYPE,
    "timestamp": TIMESTAMP,
    "duration": DURATION,
    "google.protobuf.Timestamp": TIMESTAMP,
    "google.protobuf.Duration": DURATION,
}


def read_type(spelled: Any) -> Type:
    if isinstance(spelled, str):
        return NAMES[spelled]
    if "list" in spelled:
        return list_of(read_type(spelled["list"]))
    if "map" in spelled:
        key, value = spelled["map"]
        return map_of(read_type(key), read_type(value))
    if "type" in spelled:
        return TYPE
    parameters = [read_type(item) for item in spelled.get("parameters", [])]
    if spelled.get("abstract") == "optional_type":
        return optional_of(parameters[0])
    raise AssertionError(f"unknown type {spelled}")


def read_value(spelled: dict[str, Any]) -> Any:
    ((kind, value),) = spelled.items()
    if kind == "uint":
        return Uint(value)
    if kind == "double":
        return float(value)
    if kind == "bytes":
        return base64.b64decode(value)
    if kind == "list":
        return [read_value(item) for item in value]
    if kind == "map":
        return {map_key(read_value(key)): read_value(item) for key, item in value}
    if kind == "timestamp_ns":
        return Timestamp(int(value))
    if kind == "duration_ns":
        return Duration(int(value))
    return value


def same(actual: Any, spelled: dict[str, Any]) -> bool:
    """Equal values of equal types."""
    ((kind, value),) = spelled.items()
    if kind == "type":
        return isinstance(actual, Type) and actual.name in (value, f"google.protobuf.{value}")
    if kind == "list":
        return len(actual) == len(value) and all(same(one, other) for one, other in zip(actual, value, strict=True))
    if kind == "map":
        return len(actual) == len(value) and all(_has_entry(actual, key, item) for key, item in value)
    wanted = read_value(spelled)
    if isinstance(wanted, float) and math.isnan(wanted):
        return isinstance(actual, float) and math.isnan(actual)
    return actual.__class__ is wanted.__class__ and equals(actual, wanted)


def _has_entry(actual: Any, key: dict[str, Any], value: dict[str, Any]) -> bool:
    return any(same(from_key(known), key) and same(item, value) for known, item in actual.items())


def environment_of(case: dict[str, Any]) -> Environment:
    return Environment(
        LIBRARIES,
        {name: read_type(spelled) for name, spelled in case.get("variables", {}).items()},
        dialect=Dialect(case.get("container", ""), quoted_fields=True, use_macros=not case.get("disableMacros")),
    )


def run(case: dict[str, Any]) -> str:
    """What is wrong with the outcome; empty if nothing is."""
    environment, expect = environment_of(case), case["expect"]
    try:
        compile_it = parse_only if case.get("disableCheck") else parse_and_check
        root = compile_it(case["expression"], environment)
        if "type" in expect and root.type != read_type(expect["type"]):
            return f"type {root.type}, not {expect['type']}"
        if case.get("checkOnly"):
            return ""
        bound = {name: read_value(spelled) for name, spelled in case.get("bindings", {}).items()}
        value = Program(root, environment, tuple(bound)).evaluate(*bound.values())
    except (CompileError, EvaluationError) as error:
        return "" if expect.get("error") else str(error)
    if expect.get("error"):
        return f"no error, but {value!r}"
    return "" if "value" not in expect or same(value, expect["value"]) else f"{value!r}, not {expect['value']}"


def test_cel_spec_conformance_cases_pass_except_known_differences() -> None:
    cases = [case for case in reference_cases("cel-spec/cases.jsonl") if not case["name"].startswith(FOREIGN)]
    failures = {case["name"]: problem for case in cases if (problem := run(case))}
    assert failures.keys() == KNOWN_DIFFERENCES.keys(), "\n".join(
        f"{name}: {problem}" for name, problem in failures.items() if name not in KNOWN_DIFFERENCES
    )
    assert len(cases) > 1000
