"""Functions on lists: Kubernetes' own (`sum`, `min`, `isSorted`, …), the list extensions version 3, and sets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cmp_to_key, reduce
from itertools import pairwise
from typing import Any

from haru.cel.environment import Library
from haru.cel.errors import CostLimitError, EvaluationError
from haru.cel.libraries.arithmetic import add, greater, less
from haru.cel.macros import SORT_BY_KEYS, SORTING
from haru.cel.overloads import Overload, function, member
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
    Type,
    list_of,
    param,
)
from haru.cel.values import Duration, Uint, Value, equals_quietly, type_of

_COMPARABLE: tuple[tuple[str, Type], ...] = (
    ("int", INT),
    ("uint", UINT),
    ("double", DOUBLE),
    ("bool", BOOL),
    ("duration", DURATION),
    ("timestamp", TIMESTAMP),
    ("string", STRING),
    ("bytes", BYTES),
)
_ZEROS: tuple[tuple[str, Type, Value], ...] = (
    ("int", INT, 0),
    ("uint", UINT, Uint(0)),
    ("double", DOUBLE, 0.0),
    ("duration", DURATION, Duration(0)),
)
_MAX_RANGE = 1_000_000
"""The longest list that `lists.range` makes: no cost limit of Kubernetes allows a longer one."""

Values = Sequence[Value]


def _is_sorted(values: Values) -> bool:
    return not any(greater(one, other) for one, other in pairwise(values))


def _sum_from(zero: Value) -> Callable[[Values], Value]:
    return lambda values: reduce(add, values, zero)


def _extreme(name: str, better: Callable[[Value, Value], bool]) -> Callable[[Values], Value]:
    def find(values: Values) -> Value:
        if not values:
            raise EvaluationError(f"{name} called on empty list")
        best = values[0]
        for value in values[1:]:
            if better(value, best):
                best = value
        return best

    return find


def _index_of(values: Values, wanted: Value) -> int:
    return next((position for position, value in enumerate(values) if equals_quietly(value, wanted)), -1)


def _last_index_of(values: Values, wanted: Value) -> int:
    return next(
        (position for position in range(len(values) - 1, -1, -1) if equals_quietly(values[position], wanted)), -1
    )


def _slice(values: Values, start: int, end: int) -> Values:
    if start < 0 or end < 0:
        raise EvaluationError(f"cannot slice({start}, {end}), negative indexes not supported")
    if start > end:
        raise EvaluationError(f"cannot slice({start}, {end}), start index must be less than or equal to end index")
    if len(values) < end:
        raise EvaluationError(f"cannot slice({start}, {end}), list is length {len(values)}")
    return values[start:end]


def _flatten(values: Values, depth: int = 1) -> list[Value]:
    if depth < 0:
        raise EvaluationError("level must be non-negative")
    current = list(values)
    while depth > 0 and any(isinstance(value, list | tuple) for value in current):
        depth -= 1
        flat: list[Value] = []
        for value in current:
            if isinstance(value, list | tuple):
                flat.extend(value)
            else:
                flat.append(value)
        current = flat
    return current


def _three_way(left: Value, right: Value) -> int:
    return -1 if less(left, right) else int(greater(left, right))


def _sort_by_keys(values: Values, keys: Values) -> Values:
    if len(values) != len(keys):
        raise EvaluationError(
            "@sortByAssociatedKeys() expected a list of the same size as the associated keys list, but got "
            f"{len(values)} and {len(keys)} elements respectively"
        )
    if any(type_of(key) != type_of(keys[0]) for key in keys):
        raise EvaluationError("list elements must have the same type")
    comparison: Any = cmp_to_key(lambda one, other: _three_way(one[0], other[0]))
    ordered = sorted(zip(keys, values, strict=True), key=comparison)
    return [value for _, value in ordered]


def _sort(values: Values) -> Values:
    return _sort_by_keys(values, values)


def _range(count: int) -> list[int]:
    if count > _MAX_RANGE:
        raise CostLimitError
    return list(range(count))


def _distinct(values: Values) -> list[Value]:
    found: list[Value] = []
    for value in values:
        if not any(equals_quietly(value, known) for known in found):
            found.append(value)
    return found


def _contains_all(values: Values, wanted: Values) -> bool:
    return all(any(equals_quietly(item, value) for value in values) for item in wanted)


def _equivalent(left: Values, right: Values) -> bool:
    return _contains_all(left, right) and _contains_all(right, left)


def _intersects(left: Values, right: Values) -> bool:
    return any(equals_quietly(item, value) for item in left for value in right)


_T = param("T")
_LIST = list_of(_T)


def _each(
    template: str, impl: Callable[..., Value], result: Callable[[Type], Type], *more: Type
) -> tuple[Overload, ...]:
    return tuple(
        member(template.format(name), (list_of(kind), *more), result(kind), impl) for name, kind in _COMPARABLE
    )


def _keyed() -> tuple[Overload, ...]:
    return tuple(
        member(f"list_{kind.name}_sortByAssociatedKeys", (_LIST, list_of(kind)), _LIST, _sort_by_keys)
        for _, kind in _COMPARABLE
    )


KUBERNETES_LISTS = Library(
    "kubernetes.lists",
    {
        "isSorted": _each("list_{}_is_sorted_bool", _is_sorted, lambda _: BOOL),
        "sum": tuple(
            member(f"list_{name}_sum_{name}", (list_of(kind),), kind, _sum_from(zero)) for name, kind, zero in _ZEROS
        ),
        "max": _each("list_{0}_max_{0}", _extreme("max", greater), lambda kind: kind),
        "min": _each("list_{0}_min_{0}", _extreme("min", less), lambda kind: kind),
        "indexOf": (member("list_a_index_of_int", (_LIST, _T), INT, _index_of),),
        "lastIndexOf": (member("list_a_last_index_of_int", (_LIST, _T), INT, _last_index_of),),
    },
)

LISTS = Library(
    "cel.lib.ext.lists",
    {
        "slice": (member("list_slice", (_LIST, INT, INT), _LIST, _slice),),
        "flatten": (
            member("list_flatten", (list_of(_LIST),), _LIST, _flatten),
            member("list_flatten_int", (list_of(DYN), INT), list_of(DYN), _flatten),
        ),
        "sort": tuple(
            member(f"list_{kind.name}_sort", (list_of(kind),), list_of(kind), _sort) for _, kind in _COMPARABLE
        ),
        SORT_BY_KEYS: _keyed(),
        "lists.range": (function("lists_range", (INT,), list_of(INT), _range),),
        "reverse": (member("list_reverse", (_LIST,), _LIST, lambda values: values[::-1]),),
        "distinct": (member("list_distinct", (_LIST,), _LIST, _distinct),),
    },
    SORTING,
)

SETS = Library(
    "cel.lib.ext.sets",
    {
        "sets.contains": (function("list_sets_contains_list", (_LIST, _LIST), BOOL, _contains_all),),
        "sets.equivalent": (function("list_sets_equivalent_list", (_LIST, _LIST), BOOL, _equivalent),),
        "sets.intersects": (function("list_sets_intersects_list", (_LIST, _LIST), BOOL, _intersects),),
    },
)
