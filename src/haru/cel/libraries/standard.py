"""CEL's standard library: operators, conversions, strings, sizes, and the parts of times."""

from __future__ import annotations

import operator

from haru.cel.environment import Library
from haru.cel.errors import EvaluationError
from haru.cel.libraries import arithmetic, conversions, timestamps
from haru.cel.libraries.regex import matches
from haru.cel.overloads import Overload, function, member
from haru.cel.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    INT,
    LIST,
    MAP,
    NULL,
    STRING,
    TIMESTAMP,
    TYPE,
    UINT,
    Type,
    list_of,
    map_of,
    param,
)
from haru.cel.values import Value, contains, equals, index, size

_A, _B = param("A"), param("B")
_LIST, _MAP = list_of(_A), map_of(_A, _B)


def _unreachable(*_operands: Value) -> Value:
    # Logical operators, the conditional and optional selections are compiled to code of their own.
    raise EvaluationError("no such overload")


def _differs(left: Value, right: Value) -> bool:
    return not equals(left, right)


def _sizes() -> tuple[Overload, ...]:
    kinds: tuple[tuple[str, Type], ...] = (("bytes", BYTES), ("list", _LIST), ("map", _MAP), ("string", STRING))
    return (
        *(function(f"size_{name}", (kind,), INT, size) for name, kind in kinds),
        *(member(f"{name}_size", (kind,), INT, size) for name, kind in kinds),
    )


_OPERATORS: dict[str, tuple[Overload, ...]] = {
    "_?_:_": (function("conditional", (BOOL, _A, _A), _A, _unreachable),),
    "_&&_": (function("logical_and", (BOOL, BOOL), BOOL, _unreachable),),
    "_||_": (function("logical_or", (BOOL, BOOL), BOOL, _unreachable),),
    "!_": (function("logical_not", (BOOL,), BOOL, operator.not_),),
    "@not_strictly_false": (function("not_strictly_false", (BOOL,), BOOL, _unreachable),),
    "_==_": (function("equals", (_A, _A), BOOL, equals),),
    "_!=_": (function("not_equals", (_A, _A), BOOL, _differs),),
    "_[_]": (
        function("index_list", (_LIST, INT), _A, index),
        function("index_map", (_MAP, _A), _B, index),
    ),
    "@in": (
        function("in_list", (_A, _LIST), BOOL, contains),
        function("in_map", (_A, _MAP), BOOL, contains),
    ),
}

_STRINGS: dict[str, tuple[Overload, ...]] = {
    "size": _sizes(),
    "contains": (member("contains_string", (STRING, STRING), BOOL, operator.contains),),
    "endsWith": (member("ends_with_string", (STRING, STRING), BOOL, str.endswith),),
    "startsWith": (member("starts_with_string", (STRING, STRING), BOOL, str.startswith),),
    "matches": (
        function("matches", (STRING, STRING), BOOL, matches),
        member("matches_string", (STRING, STRING), BOOL, matches),
    ),
}

STANDARD = Library(
    "standard",
    {**_OPERATORS, **_STRINGS, **arithmetic.FUNCTIONS, **conversions.FUNCTIONS, **timestamps.FUNCTIONS},
    types=(BOOL, BYTES, DOUBLE, DURATION, INT, LIST, MAP, NULL, STRING, TIMESTAMP, TYPE, UINT),
)
