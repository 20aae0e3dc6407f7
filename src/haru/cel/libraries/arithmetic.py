"""The operators on values: numbers that overflow as an error, times, strings, lists, and their order."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

from haru.cel.errors import EvaluationError
from haru.cel.overloads import Overload, function
from haru.cel.types import BOOL, BYTES, DOUBLE, DURATION, INT, STRING, TIMESTAMP, UINT, Type, list_of, param
from haru.cel.values import (
    INT_MAX,
    INT_MIN,
    NUMBERS,
    UINT_MAX,
    Duration,
    OwnList,
    Timestamp,
    Uint,
    Value,
    no_such_overload,
)

TIMESTAMP_MIN = -62_135_596_800 * 10**9
TIMESTAMP_MAX = 253_402_300_799 * 10**9 + 999_999_999


def checked_int(value: int) -> int:
    """An int64, or the overflow error."""
    if INT_MIN <= value <= INT_MAX:
        return value
    raise EvaluationError("integer overflow")


def checked_uint(value: int) -> Uint:
    """A uint64, or the overflow error."""
    if 0 <= value <= UINT_MAX:
        return Uint(value)
    raise EvaluationError("unsigned integer overflow")


def checked_timestamp(ns: int) -> Timestamp:
    """A moment between the years 1 and 9999, or the overflow error."""
    if TIMESTAMP_MIN <= ns <= TIMESTAMP_MAX:
        return Timestamp(ns)
    raise EvaluationError("timestamp overflow")


def checked_duration(ns: int) -> Duration:
    """A duration that fits int64 nanoseconds, or the overflow error."""
    if INT_MIN <= ns <= INT_MAX:
        return Duration(ns)
    raise EvaluationError("duration overflow")


def _add_time(left: Timestamp | Duration, right: Timestamp | Duration) -> Timestamp | Duration:
    if isinstance(left, Duration) and isinstance(right, Duration):
        return checked_duration(left.ns + right.ns)
    return checked_timestamp(left.ns + right.ns)


def _add_lists(left: Sequence[Value], right: Sequence[Value]) -> list[Value]:
    if isinstance(left, OwnList):
        return left.plus(right)
    return [*left, *right]


def add(left: Value, right: Value) -> Value:
    """`left + right` for operands of any type."""
    kind = left.__class__
    if kind is right.__class__:
        if kind is int:
            return checked_int(left + right)
        if kind is str or kind is float or kind is bytes:
            return left + right
        if kind is Uint:
            return checked_uint(int(left) + int(right))
        if kind is Duration:
            return checked_duration(left.ns + right.ns)
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        return _add_lists(left, right)
    if {kind, right.__class__} == {Timestamp, Duration}:
        return checked_timestamp(left.ns + right.ns)
    raise no_such_overload("_+_", left, right)


def _subtract_duration(left: Timestamp, right: Duration) -> Timestamp:
    return checked_timestamp(left.ns - right.ns)


def _difference(left: Timestamp | Duration, right: Timestamp | Duration) -> Duration:
    return checked_duration(left.ns - right.ns)


def divide_int(left: int, right: int) -> int:
    """Integer division that rounds towards zero."""
    if right == 0:
        raise EvaluationError("division by zero")
    quotient = abs(left) // abs(right)
    return checked_int(quotient if (left < 0) == (right < 0) else -quotient)


def modulo_int(left: int, right: int) -> int:
    """The remainder, with the sign of the dividend."""
    if right == 0:
        raise EvaluationError("modulus by zero")
    if left == INT_MIN and right == -1:
        raise EvaluationError("integer overflow")
    remainder = abs(left) % abs(right)
    return -remainder if left < 0 else remainder


def _divide_uint(left: int, right: int) -> Uint:
    if right == 0:
        raise EvaluationError("division by zero")
    return Uint(int(left) // int(right))


def _modulo_uint(left: int, right: int) -> Uint:
    if right == 0:
        raise EvaluationError("modulus by zero")
    return Uint(int(left) % int(right))


def divide_double(left: float, right: float) -> float:
    """IEEE division: by zero it gives an infinity or NaN."""
    try:
        return left / right
    except ZeroDivisionError:
        if left == 0 or math.isnan(left):
            return math.nan
        return math.copysign(math.inf, left) * math.copysign(1.0, right)


def _order(left: Value, right: Value) -> tuple[Value, Value]:
    """Two values in a form that Python can order."""
    kind, other = left.__class__, right.__class__
    if kind in NUMBERS and other in NUMBERS:
        # An integer meets a double as a double: near 2^63 several integers are equal to one double.
        return (left, right) if (kind is float) is (other is float) else (float(left), float(right))
    if kind is other:
        if kind is str or kind is bytes or kind is bool:
            return left, right
        if kind is Timestamp or kind is Duration:
            return left.ns, right.ns
    raise TypeError


def _comparison(symbol: str, compare: Callable[[Any, Any], Any]) -> Callable[[Value, Value], bool]:
    """A comparison for operands of any type."""

    def run(left: Value, right: Value) -> bool:
        try:
            one, other = _order(left, right)
        except TypeError:
            raise no_such_overload(symbol, left, right) from None
        return bool(compare(one, other))

    return run


less = _comparison("_<_", operator.lt)
less_equal = _comparison("_<=_", operator.le)
greater = _comparison("_>_", operator.gt)
greater_equal = _comparison("_>=_", operator.ge)

_NAMES: dict[Type, str] = {
    BOOL: "bool",
    INT: "int64",
    UINT: "uint64",
    DOUBLE: "double",
    STRING: "string",
    BYTES: "bytes",
    TIMESTAMP: "timestamp",
    DURATION: "duration",
}


def _relation(prefix: str, impl: Callable[[Any, Any], bool]) -> tuple[Overload, ...]:
    overloads = [function(f"{prefix}_{name}", (kind, kind), BOOL, impl) for kind, name in _NAMES.items()]
    numbers = (INT, UINT, DOUBLE)
    overloads += [
        function(f"{prefix}_{_NAMES[left]}_{_NAMES[right]}", (left, right), BOOL, impl)
        for left in numbers
        for right in numbers
        if left is not right
    ]
    return tuple(overloads)


_T = param("T")
_LIST = list_of(_T)

FUNCTIONS: dict[str, tuple[Overload, ...]] = {
    "_<_": _relation("less", less),
    "_<=_": _relation("less_equals", less_equal),
    "_>_": _relation("greater", greater),
    "_>=_": _relation("greater_equals", greater_equal),
    "_+_": (
        function("add_bytes", (BYTES, BYTES), BYTES, add),
        function("add_double", (DOUBLE, DOUBLE), DOUBLE, add),
        function("add_duration_duration", (DURATION, DURATION), DURATION, _add_time),
        function("add_duration_timestamp", (DURATION, TIMESTAMP), TIMESTAMP, _add_time),
        function("add_timestamp_duration", (TIMESTAMP, DURATION), TIMESTAMP, _add_time),
        function("add_int64", (INT, INT), INT, lambda left, right: checked_int(left + right)),
        function("add_list", (_LIST, _LIST), _LIST, _add_lists),
        function("add_string", (STRING, STRING), STRING, add),
        function("add_uint64", (UINT, UINT), UINT, add),
    ),
    "_-_": (
        function("subtract_double", (DOUBLE, DOUBLE), DOUBLE, lambda left, right: left - right),
        function("subtract_duration_duration", (DURATION, DURATION), DURATION, _difference),
        function("subtract_int64", (INT, INT), INT, lambda left, right: checked_int(left - right)),
        function("subtract_timestamp_duration", (TIMESTAMP, DURATION), TIMESTAMP, _subtract_duration),
        function("subtract_timestamp_timestamp", (TIMESTAMP, TIMESTAMP), DURATION, _difference),
        function("subtract_uint64", (UINT, UINT), UINT, lambda left, right: checked_uint(int(left) - int(right))),
    ),
    "_*_": (
        function("multiply_double", (DOUBLE, DOUBLE), DOUBLE, operator.mul),
        function("multiply_int64", (INT, INT), INT, lambda left, right: checked_int(left * right)),
        function("multiply_uint64", (UINT, UINT), UINT, lambda left, right: checked_uint(int(left) * int(right))),
    ),
    "_/_": (
        function("divide_double", (DOUBLE, DOUBLE), DOUBLE, divide_double),
        function("divide_int64", (INT, INT), INT, divide_int),
        function("divide_uint64", (UINT, UINT), UINT, _divide_uint),
    ),
    "_%_": (
        function("modulo_int64", (INT, INT), INT, modulo_int),
        function("modulo_uint64", (UINT, UINT), UINT, _modulo_uint),
    ),
    "-_": (
        function("negate_double", (DOUBLE,), DOUBLE, lambda value: -value),
        function("negate_int64", (INT,), INT, lambda value: checked_int(-value)),
    ),
}
