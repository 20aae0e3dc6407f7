"""Google's C++ engine as a second opinion: what an expression comes to there and here, in one form to be compared."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from cel_expr_python import cel
from cel_expr_python.ext import ext_bindings, ext_optional, ext_strings

from haru.cel.environment import Environment
from haru.cel.errors import CompileError, EvaluationError
from haru.cel.libraries.kubernetes import BINDINGS
from haru.cel.libraries.optionals import LIBRARY as OPTIONALS
from haru.cel.libraries.standard import STANDARD
from haru.cel.libraries.strings import LATEST_STRINGS
from haru.cel.program import Program, parse_and_check
from haru.cel.types import DYN, Type
from haru.cel.values import Duration, Timestamp, Uint, from_key

VARIABLES = ("a", "b")
ENVIRONMENT = Environment((STANDARD, OPTIONALS, LATEST_STRINGS, BINDINGS), dict.fromkeys(VARIABLES, DYN))
_extensions = [ext_strings.ExtStrings(), ext_optional.ExtOptional(), ext_bindings.ExtBindings()]
_cpp = cel.NewEnv(variables=dict.fromkeys(VARIABLES, cel.Type.DYN), extensions=_extensions)

COMPILE_ERROR, ERROR = ("compile error",), ("error",)
"""How texts that do not compile and evaluations that fail are compared: whether, not how it is worded."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NAMES = {"null": "null_type", "timestamp": "google.protobuf.Timestamp", "duration": "google.protobuf.Duration"}

Outcome = tuple[Any, ...]


class UntoldError(Exception):
    """The C++ engine's answer does not come over: an optional, a text that is not UTF-8, an end of all evaluation."""


def there(text: str, values: Mapping[str, Any]) -> tuple[Outcome, str]:
    """What the C++ engine makes of an expression, and its words for an error.

    Raises UntoldError where its answer has no form in Python.
    """
    try:
        program = _cpp.compile(text)
    except RuntimeError as error:
        return COMPILE_ERROR, str(error)
    try:
        found = program.eval(data=dict(values))
        return (ERROR, str(found.value())) if found.type() == cel.Type.ERROR else (_theirs(found), "")
    except (RuntimeError, TypeError, OverflowError) as error:
        raise UntoldError(text) from error


def here(text: str, values: Mapping[str, Any]) -> tuple[Outcome, str]:
    """What ours makes of it."""
    try:
        root = parse_and_check(text, ENVIRONMENT)
    except CompileError as error:
        return COMPILE_ERROR, str(error)
    try:
        return _ours(Program(root, ENVIRONMENT, VARIABLES).evaluate(*(values[name] for name in VARIABLES))), ""
    except EvaluationError as error:
        return ERROR, str(error)


def _theirs(found: Any) -> Outcome:
    kind = found.type().name().partition("<")[0].lower()
    if kind == "null":
        return "null", None  # asking for its value takes a reference to None that was never given
    plain = found.value()
    if kind == "list":
        return "list", tuple(_theirs(item) for item in plain)
    if kind == "map":
        return "map", frozenset((key, _theirs(item)) for key, item in plain.items())
    if kind == "double":
        return _double(plain)
    if kind == "bytes":
        return "bytes", bytes(plain)
    if kind == "type":
        name = plain.name().partition("<")[0].lower()
        return "type", _NAMES.get(name, name)
    if kind == "timestamp":
        return "timestamp", (plain - _EPOCH) // timedelta(microseconds=1)
    if kind == "duration":
        return "duration", plain // timedelta(microseconds=1)
    return kind, plain


def _ours(found: Any) -> Outcome:
    if found is None or isinstance(found, bool):
        return ("null", None) if found is None else ("bool", found)
    if isinstance(found, Uint | int):
        return "uint" if isinstance(found, Uint) else "int", int(found)
    if isinstance(found, float):
        return _double(found)
    if isinstance(found, list | tuple):
        return "list", tuple(_ours(item) for item in found)
    if isinstance(found, dict):
        return "map", frozenset((from_key(key), _ours(item)) for key, item in found.items())
    if isinstance(found, Timestamp | Duration):
        # Theirs come over in microseconds, durations cut off.
        cut = found.ns // 1000 if isinstance(found, Timestamp) or found.ns > 0 else -(-found.ns // 1000)
        return type(found).__name__.lower(), cut
    if isinstance(found, Type):
        return "type", found.name
    return "bytes" if isinstance(found, bytes) else "string", found


def _double(number: float) -> Outcome:
    return "double", "nan" if math.isnan(number) else (number, math.copysign(1, number))
