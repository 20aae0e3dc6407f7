"""Conversions between types: `int('3')`, `string(1.5)`, `type(x)` and the rest."""

from __future__ import annotations

import math
from collections.abc import Callable

from haru.cel.errors import EvaluationError
from haru.cel.libraries.arithmetic import TIMESTAMP_MAX, TIMESTAMP_MIN
from haru.cel.libraries.timestamps import format_duration, format_timestamp, parse_duration, parse_timestamp
from haru.cel.overloads import Overload, function
from haru.cel.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    DYN,
    INT,
    STRING,
    TIMESTAMP,
    UINT,
    param,
    type_of_type,
)
from haru.cel.values import INT_MAX, INT_MIN, UINT_MAX, Duration, Timestamp, Uint, Value, type_of
from haru.kube.go_values import format_double

_TRUE = frozenset(("1", "t", "T", "true", "TRUE", "True"))
_FALSE = frozenset(("0", "f", "F", "false", "FALSE", "False"))


def _same(value: Value) -> Value:
    return value


def _string_to_bool(text: str) -> bool:
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise EvaluationError("type conversion error from 'string' to 'bool'")


def _decimal(text: str, signed: bool) -> int | None:
    digits = text[1:] if signed and text[:1] in ("+", "-") else text
    if not digits or len(digits) > 40 or not (digits.isascii() and digits.isdigit()):
        return None
    return int(text)


def _string_to_int(text: str) -> int:
    value = _decimal(text, signed=True)
    if value is None or not INT_MIN <= value <= INT_MAX:
        raise EvaluationError("type conversion error from 'string' to 'int'")
    return value


def _string_to_uint(text: str) -> Uint:
    value = _decimal(text, signed=False)
    if value is None or value > UINT_MAX:
        raise EvaluationError("type conversion error from 'string' to 'uint'")
    return Uint(value)


def _string_to_double(text: str) -> float:
    # Python reads more spellings than Go ("1_0", surrounding space); Go reads more than CEL's literals.
    if text.strip() != text or "_" in text:
        raise EvaluationError("type conversion error from 'string' to 'double'")
    try:
        return float(text)
    except ValueError:
        raise EvaluationError("type conversion error from 'string' to 'double'") from None


def _parsed(parse: Callable[[str], Value], kind: str) -> Callable[[str], Value]:
    def convert(text: str) -> Value:
        try:
            return parse(text)
        except EvaluationError:
            raise EvaluationError(f"type conversion error from 'string' to 'google.protobuf.{kind}'") from None

    return convert


def _uint_to_int(value: int) -> int:
    if value > INT_MAX:
        raise EvaluationError("integer overflow")
    return int(value)


def _double_to_int(value: float) -> int:
    if not math.isfinite(value) or not -(2.0**63) < value < 2.0**63:
        raise EvaluationError("integer overflow")
    return int(value)


def _double_to_uint(value: float) -> Uint:
    if not math.isfinite(value) or not 0 <= value < 2.0**64:
        raise EvaluationError("unsigned integer overflow")
    return Uint(int(value))


def _int_to_uint(value: int) -> Uint:
    if value < 0:
        raise EvaluationError("unsigned integer overflow")
    return Uint(value)


def _bytes_to_string(value: bytes) -> str:
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        raise EvaluationError("invalid UTF-8 in bytes, cannot convert to string") from None


def int_to_timestamp(seconds: int) -> Timestamp:
    """The moment so many seconds after 1970. Raises EvaluationError outside of the years 1 to 9999."""
    if not TIMESTAMP_MIN <= seconds * 10**9 <= TIMESTAMP_MAX:
        raise EvaluationError("timestamp overflow")
    return Timestamp(seconds * 10**9)


def _int_to_duration(value: int) -> Duration:
    # Declared, and always refused: as in cel-go.
    raise EvaluationError("type conversion error from 'int' to 'google.protobuf.Duration'")


_T = param("T")

FUNCTIONS: dict[str, tuple[Overload, ...]] = {
    "bool": (
        function("bool_to_bool", (BOOL,), BOOL, _same),
        function("string_to_bool", (STRING,), BOOL, _string_to_bool),
    ),
    "bytes": (
        function("bytes_to_bytes", (BYTES,), BYTES, _same),
        function("string_to_bytes", (STRING,), BYTES, lambda text: text.encode("utf-8", "replace")),
    ),
    "double": (
        function("double_to_double", (DOUBLE,), DOUBLE, _same),
        function("int64_to_double", (INT,), DOUBLE, float),
        function("string_to_double", (STRING,), DOUBLE, _string_to_double),
        function("uint64_to_double", (UINT,), DOUBLE, float),
    ),
    "duration": (
        function("duration_to_duration", (DURATION,), DURATION, _same),
        function("int64_to_duration", (INT,), DURATION, _int_to_duration),
        function("string_to_duration", (STRING,), DURATION, _parsed(parse_duration, "Duration")),
    ),
    "dyn": (function("to_dyn", (_T,), DYN, _same),),
    "int": (
        function("int64_to_int64", (INT,), INT, _same),
        function("double_to_int64", (DOUBLE,), INT, _double_to_int),
        function("duration_to_int64", (DURATION,), INT, lambda value: value.ns),
        function("string_to_int64", (STRING,), INT, _string_to_int),
        function("timestamp_to_int64", (TIMESTAMP,), INT, lambda value: value.ns // 10**9),
        function("uint64_to_int64", (UINT,), INT, _uint_to_int),
    ),
    "string": (
        function("string_to_string", (STRING,), STRING, _same),
        function("bool_to_string", (BOOL,), STRING, lambda value: "true" if value else "false"),
        function("bytes_to_string", (BYTES,), STRING, _bytes_to_string),
        function("double_to_string", (DOUBLE,), STRING, format_double),
        function("duration_to_string", (DURATION,), STRING, format_duration),
        function("int64_to_string", (INT,), STRING, str),
        function("timestamp_to_string", (TIMESTAMP,), STRING, format_timestamp),
        function("uint64_to_string", (UINT,), STRING, lambda value: str(int(value))),
    ),
    "timestamp": (
        function("timestamp_to_timestamp", (TIMESTAMP,), TIMESTAMP, _same),
        function("int64_to_timestamp", (INT,), TIMESTAMP, int_to_timestamp),
        function("string_to_timestamp", (STRING,), TIMESTAMP, _parsed(parse_timestamp, "Timestamp")),
    ),
    "type": (function("type", (_T,), type_of_type(_T), type_of),),
    "uint": (
        function("uint64_to_uint64", (UINT,), UINT, _same),
        function("double_to_uint64", (DOUBLE,), UINT, _double_to_uint),
        function("int64_to_uint64", (INT,), UINT, _int_to_uint),
        function("string_to_uint64", (STRING,), UINT, _string_to_uint),
    ),
}
