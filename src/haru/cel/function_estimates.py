"""What calls of single functions can cost, as Kubernetes 1.36 and cel-go's extensions estimate. Used by `estimate`.

What is in neither table follows the general rules there.
"""

from __future__ import annotations

import math

from haru.cel.actual_costs import CHECK_COST, SORTED
from haru.cel.ast import Literal
from haru.cel.libraries.authorization import AUTHORIZER, DECISION, GROUP_CHECK, PATH_CHECK, RESOURCE_CHECK
from haru.cel.libraries.formats import FORMAT_TYPE
from haru.cel.libraries.network import CIDR_TYPE, IP_TYPE
from haru.cel.libraries.quantity import QUANTITY
from haru.cel.libraries.semver import SEMVER
from haru.cel.libraries.urls import URL_TYPE
from haru.cel.ranges import (
    LIST_COST,
    ONE,
    REGEX_LENGTH,
    TRAVERSAL,
    UNBOUNDED,
    Estimate,
    Estimator,
    Operand,
    Range,
    exactly,
)

_MAX_NAME_FORMAT_REGEX = 128
_MAX_FORMAT_SIZE = 64


def _always(cost: int) -> Estimator:
    return lambda _overload, _target, _args: Estimate(exactly(cost))


def _argument(factor: float, sized: bool = False) -> Estimator:
    def find(_overload: str, _target: Operand | None, args: list[Operand]) -> Estimate | None:
        if not args:
            return None
        size = args[0].size_or_unknown()
        return Estimate(size.scaled(factor), size if sized else None)

    return find


def _target_text(_overload: str, target: Operand | None, _args: list[Operand]) -> Estimate | None:
    if target is None:
        return None
    size = target.size_or_unknown()
    return Estimate(size.scaled(TRAVERSAL), size)


def _target_list(_overload: str, target: Operand | None, _args: list[Operand]) -> Estimate | None:
    if target is None:
        return None
    element = target.element()
    if element is None:
        return Estimate(target.size_or_unknown().scaled(TRAVERSAL))
    cost = ONE
    if element.type.kind in ("string", "bytes"):
        cost = cost.plus(element.size_or_unknown().scaled(TRAVERSAL))
    return Estimate(target.size_or_unknown().times(cost))


def _replaced(_overload: str, target: Operand | None, args: list[Operand]) -> Estimate | None:
    if target is None or len(args) < 2:
        return None
    size, old, new = target.size_or_unknown(), args[0].size_or_unknown(), args[1].size_or_unknown()
    most_count, most_kept = _most_replaced(size.high, old.low, new.high)
    least_count, least_kept = _least_replaced(size.low, old.high, new.low)
    result = Range(least_count, most_count).times(new).plus(Range(least_kept, most_kept))
    return Estimate(size.scaled(2 * TRAVERSAL), result)


def _most_replaced(size: int, old: int, new: int) -> tuple[int, int]:
    """How often the longest result has the replacement, and how much of the original it keeps."""
    if old == 0:
        return min(size + 1, UNBOUNDED), size
    if new <= old:
        return 0, size
    return math.ceil(float(size) / float(old)), 0


def _least_replaced(size: int, old: int, new: int) -> tuple[int, int]:
    if old == 0:
        return min(size + 1, UNBOUNDED), size
    if old <= new:
        return 0, size
    return math.ceil(float(size) / float(old)), 0


def _split(_overload: str, target: Operand | None, args: list[Operand]) -> Estimate | None:
    if target is None:
        return None
    size = target.size_or_unknown()
    most = size.high
    if len(args) > 1 and isinstance(args[1].node, Literal) and isinstance(args[1].node.value, int):
        most = int(args[1].node.value) & UNBOUNDED
    return Estimate(size.scaled(2 * TRAVERSAL), Range(0, most))


def _join(_overload: str, target: Operand | None, args: list[Operand]) -> Estimate | None:
    if target is None:
        return None
    count = target.size_or_unknown()
    element = target.element()
    size = exactly(0) if element is None else count.times(element.size_or_unknown())
    if args:
        separators = Range(max(count.low - 1, 0), max(count.high - 1, 0))
        size = size.plus(args[0].size_or_unknown().times(separators))
    return Estimate(size.scaled(TRAVERSAL), size)


def _found(_overload: str, target: Operand | None, args: list[Operand]) -> Estimate | None:
    if target is None or not args:
        return None
    size = target.size_or_unknown()
    text = size.plus(ONE).scaled(TRAVERSAL)
    return Estimate(text.times(args[0].size_or_unknown().scaled(REGEX_LENGTH)), Range(0, size.high))


def _ip_estimate(overload: str, target: Operand | None, args: list[Operand]) -> Estimate | None:
    return Estimate(ONE) if overload == "cidr_ip" else _argument(TRAVERSAL)(overload, target, args)


_ADDRESS = Range(4, 16)


def _contains_ip_estimate(overload: str, _target: Operand | None, args: list[Operand]) -> Estimate | None:
    if not args:
        return None
    cost = _ADDRESS.plus(_ADDRESS).scaled(TRAVERSAL)
    if overload == "cidr_contains_ip_string":
        cost = cost.plus(args[0].size_or_unknown().scaled(TRAVERSAL))
    return Estimate(cost)


def _contains_cidr_estimate(overload: str, _target: Operand | None, args: list[Operand]) -> Estimate | None:
    if not args:
        return None
    cost = _ADDRESS.plus(_ADDRESS).scaled(TRAVERSAL).plus(_ADDRESS.scaled(TRAVERSAL)).plus(ONE)
    if overload == "cidr_contains_cidr_string":
        cost = cost.plus(args[0].size_or_unknown().scaled(TRAVERSAL))
    return Estimate(cost)


def _validated(_overload: str, _target: Operand | None, args: list[Operand]) -> Estimate | None:
    if not args:
        return None
    return Estimate(args[0].size_or_unknown().scaled(TRAVERSAL).scaled(_MAX_NAME_FORMAT_REGEX * REGEX_LENGTH))


_UNIT_TYPES = frozenset(
    (IP_TYPE, CIDR_TYPE, QUANTITY, SEMVER, AUTHORIZER, PATH_CHECK, GROUP_CHECK, RESOURCE_CHECK, DECISION)
)


def _equal(_overload: str, _target: Operand | None, args: list[Operand]) -> Estimate | None:
    if len(args) != 2 or args[0].type != args[1].type:
        return None
    kind = args[0].type
    if kind in _UNIT_TYPES:
        return Estimate(ONE)
    if kind == FORMAT_TYPE:
        return Estimate(Range(1, _MAX_FORMAT_SIZE).scaled(TRAVERSAL))
    if kind == URL_TYPE:
        size = args[1].size
        return Estimate(Range(1, 1 if size is None else size.high).scaled(TRAVERSAL))
    return None


def _estimators(names: str, estimator: Estimator) -> dict[str, Estimator]:
    return dict.fromkeys(names.split(), estimator)


ESTIMATES: dict[str, Estimator] = {
    "check": _always(CHECK_COST),
    **_estimators(
        "serviceAccount path group resource subresource namespace name allowed reason error errored", _always(1)
    ),
    **_estimators("isSorted sum max min indexOf lastIndexOf", _target_list),
    "url": _argument(TRAVERSAL, sized=True),
    **_estimators("lowerAscii upperAscii substring trim", _target_text),
    "replace": _replaced,
    "split": _split,
    "join": _join,
    **_estimators("find findAll", _found),
    **_estimators("cidr isIP isCIDR quantity isQuantity semver isSemver", _argument(TRAVERSAL)),
    "ip": _ip_estimate,
    "ip.isCanonical": _argument(2 * TRAVERSAL),
    "containsIP": _contains_ip_estimate,
    "containsCIDR": _contains_cidr_estimate,
    "validate": _validated,
    "_==_": _equal,
}


def _list_estimate(factor: float, size: Range) -> Estimate:
    return Estimate(size.scaled(factor).plus(exactly(1 + LIST_COST)), size)


def _literal_int(operand: Operand, default: int) -> int:
    node = operand.node
    if isinstance(node, Literal) and node.value.__class__ is int:
        return max(int(node.value), 0)
    return default


def _slice_estimate(_overload: str, target: Operand | None, args: list[Operand]) -> Estimate | None:
    if target is None or len(args) != 2:
        return None
    start = _literal_int(args[0], 0)
    end = _literal_int(args[1], target.size_or_unknown().high)
    return _list_estimate(1, exactly(end - start & UNBOUNDED))


def _range_estimate(_overload: str, _target: Operand | None, args: list[Operand]) -> Estimate | None:
    return _list_estimate(1, exactly(_literal_int(args[0], UNBOUNDED)))


def _reverse_estimate(_overload: str, target: Operand | None, _args: list[Operand]) -> Estimate | None:
    return None if target is None else _list_estimate(1, target.size_or_unknown())


def _flatten_estimate(_overload: str, target: Operand | None, args: list[Operand]) -> Estimate | None:
    if target is None:
        return None
    depth = _literal_int(args[0], UNBOUNDED) if args else 1
    return _list_estimate(float(depth), target.size_or_unknown())


def _squared(factor: float, argument: bool = False) -> Estimator:
    def find(_overload: str, target: Operand | None, args: list[Operand]) -> Estimate | None:
        operand = args[0] if argument and args else target
        if operand is None:
            return None
        size = operand.size_or_unknown()
        return _list_estimate(factor, size.times(size))

    return find


def _sets_estimate(factor: float) -> Estimator:
    def find(_overload: str, _target: Operand | None, args: list[Operand]) -> Estimate | None:
        return Estimate(args[0].size_or_unknown().times(args[1].size_or_unknown()).scaled(factor).plus(ONE))

    return find


def _sort_factor(name: str) -> float:
    return 2.0 + TRAVERSAL if name in ("string", "bytes") else 2.0


OVERLOAD_ESTIMATES: dict[str, Estimator] = {
    "list_slice": _slice_estimate,
    "list_flatten": _flatten_estimate,
    "list_flatten_int": _flatten_estimate,
    "lists_range": _range_estimate,
    "list_reverse": _reverse_estimate,
    "list_distinct": _squared(2.0),
    **{f"list_{name}_sort": _squared(_sort_factor(name)) for name in SORTED},
    **{f"list_{name}_sortByAssociatedKeys": _squared(_sort_factor(name), argument=True) for name in SORTED},
    "list_sets_contains_list": _sets_estimate(1),
    "list_sets_intersects_list": _sets_estimate(1),
    "list_sets_equivalent_list": _sets_estimate(2),
}
