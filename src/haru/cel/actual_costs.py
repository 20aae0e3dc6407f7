"""What calls of single functions did cost, as Kubernetes 1.36 and cel-go's extensions count. Used by `metering`.

What is in neither table follows the general rules there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from haru.cel.libraries.authorization import Decision
from haru.cel.libraries.formats import Format
from haru.cel.libraries.network import Cidr, Ip
from haru.cel.libraries.semver import Semver
from haru.cel.libraries.urls import Url
from haru.cel.ranges import LIST_COST, REGEX_LENGTH, TRAVERSAL
from haru.cel.values import Optional, Value, from_key
from haru.kube.quantity import Quantity

Actual = Callable[[str, Sequence[Value], Value], int]
"""Given the overload (empty if several were possible), the operands' values and the result."""

CHECK_COST = 350_000


def actual_size(value: Value) -> int:
    """The size of a value: its length, or 1 for what has none."""
    if isinstance(value, str | bytes | list | tuple | dict):
        return len(value)
    if isinstance(value, Ip):
        return value.width // 8
    if isinstance(value, Cidr):
        return (value.bits + 7) // 8
    if isinstance(value, Optional) and value.present:
        return actual_size(value.value)
    return 1


def traversed(size: float, factor: float = TRAVERSAL) -> int:
    """The cost of looking at so many characters, rounded up."""
    return math.ceil(size * factor)


def _walk(value: Value) -> int:
    """The cost of looking at everything in a value."""
    if isinstance(value, str):
        return int(len(value.encode("utf-8", "replace")) * TRAVERSAL)
    if isinstance(value, bytes):
        return int(len(value) * TRAVERSAL)
    if isinstance(value, list | tuple):
        return sum(_walk(item) for item in value)
    if isinstance(value, dict):
        return sum(_walk(from_key(key)) + _walk(item) for key, item in value.items())
    return 1


# Actual costs


def _one(_overload: str, _values: Sequence[Value], _result: Value) -> int:
    return 1


def _first(factor: float) -> Actual:
    return lambda _overload, values, _result: traversed(actual_size(values[0]), factor)


def _joined(_overload: str, _values: Sequence[Value], result: Value) -> int:
    return traversed(actual_size(result), 2 * TRAVERSAL)


def regex_cost(text: Value, pattern: Value) -> int:
    """The cost of matching: it grows with the text and with the pattern."""
    return traversed(1.0 + actual_size(text)) * traversed(actual_size(pattern), REGEX_LENGTH)


def _find(_overload: str, values: Sequence[Value], _result: Value) -> int:
    return regex_cost(values[0], values[1])


def _ip(overload: str, values: Sequence[Value], _result: Value) -> int:
    return 1 if overload == "cidr_ip" else traversed(actual_size(values[0]))


def _contains_ip(overload: str, values: Sequence[Value], _result: Value) -> int:
    cost = traversed(2 * actual_size(values[0]))
    return cost + (traversed(actual_size(values[1])) if overload == "cidr_contains_ip_string" else 0)


def _contains_cidr(overload: str, values: Sequence[Value], _result: Value) -> int:
    size = actual_size(values[0])
    cost = traversed(2 * size) + traversed(size) + 1
    return cost + (traversed(actual_size(values[1])) if overload == "cidr_contains_cidr_string" else 0)


def _validate(_overload: str, values: Sequence[Value], _result: Value) -> int:
    if not isinstance(values[0], Format):
        return 1
    return traversed(1.0 + actual_size(values[1])) * traversed(values[0].regex_size, REGEX_LENGTH)


def _check(_overload: str, _values: Sequence[Value], _result: Value) -> int:
    return CHECK_COST


def _walk_first(_overload: str, values: Sequence[Value], _result: Value) -> int:
    return _walk(values[0])


_UNIT_EQUALITY = (Quantity, Ip, Cidr, Format, Url, Semver, Decision)


def equality_cost(left: Value, right: Value) -> int:
    """The cost of comparing two values: as far as the smaller one reaches."""
    if isinstance(left, _UNIT_EQUALITY):
        return 1
    return traversed(min(actual_size(left), actual_size(right)))


def _equality(_overload: str, values: Sequence[Value], _result: Value) -> int:
    return equality_cost(values[0], values[1])


def _named(names: str, actual: Actual) -> dict[str, Actual]:
    return dict.fromkeys(names.split(), actual)


ACTUAL: dict[str, Actual] = {
    "check": _check,
    **_named("serviceAccount path group resource subresource namespace name allowed reason error errored", _one),
    **_named("isSorted sum max min indexOf lastIndexOf", _walk_first),
    **_named("url lowerAscii upperAscii substring trim", _first(TRAVERSAL)),
    **_named("replace split", _first(2 * TRAVERSAL)),
    "join": _joined,
    **_named("find findAll", _find),
    "jsonpatch.escapeKey": _first(2 * TRAVERSAL),
    **_named("cidr isIP isCIDR quantity isQuantity semver isSemver", _first(TRAVERSAL)),
    "ip": _ip,
    "ip.isCanonical": _first(2 * TRAVERSAL),
    "containsIP": _contains_ip,
    "containsCIDR": _contains_cidr,
    "validate": _validate,
    "_==_": _equality,
}


def _output_list(_overload: str, _values: Sequence[Value], result: Value) -> int:
    return _list_call(1, actual_size(result))


def _list_call(factor: float, size: int) -> int:
    return int(size * factor) + 1 + LIST_COST


def _flattened(_overload: str, values: Sequence[Value], _result: Value) -> int:
    return _list_call(float(values[1]) if len(values) == 2 else 1.0, actual_size(values[0]))


def _self_compared(position: int) -> Actual:
    def cost(_overload: str, values: Sequence[Value], _result: Value) -> int:
        items = values[position]
        size = actual_size(items)
        factor = 2.0
        if size and isinstance(items, list | tuple) and isinstance(items[0], str | bytes):
            factor += TRAVERSAL
        return _list_call(factor, size * size)

    return cost


def _sets(factor: float) -> Actual:
    return lambda _overload, values, _result: 1 + int(actual_size(values[0]) * actual_size(values[1]) * factor)


SORTED = ("int", "uint", "double", "bool", "google.protobuf.Duration", "google.protobuf.Timestamp", "string", "bytes")

OVERLOAD_ACTUAL: dict[str, Actual] = {
    "list_slice": _output_list,
    "list_flatten": _flattened,
    "list_flatten_int": _flattened,
    "lists_range": _output_list,
    "list_reverse": _output_list,
    "list_distinct": _self_compared(0),
    **{f"list_{name}_sort": _self_compared(0) for name in SORTED},
    **{f"list_{name}_sortByAssociatedKeys": _self_compared(1) for name in SORTED},
    "list_sets_contains_list": _sets(1),
    "list_sets_intersects_list": _sets(1),
    "list_sets_equivalent_list": _sets(2),
}
