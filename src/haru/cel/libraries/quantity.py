"""Kubernetes' quantities: `quantity("1Gi")`. They have no operators but `==`; they are compared by functions."""

from __future__ import annotations

import math

from haru.cel.environment import Library
from haru.cel.errors import EvaluationError
from haru.cel.overloads import accepted_by, function, member
from haru.cel.types import BOOL, DOUBLE, INT, STRING, struct
from haru.cel.values import INT_MAX, INT_MIN, register
from haru.kube.quantity import Quantity, parse_quantity

QUANTITY = struct("kubernetes.Quantity")
register(Quantity, QUANTITY)

_NANO = 10**9


def _parse(text: str) -> Quantity:
    try:
        return parse_quantity(text)
    except ValueError as error:
        raise EvaluationError(str(error)) from None


def _is_integer(value: Quantity) -> bool:
    # Kubernetes asks how the number is kept: what needs a big decimal, or was written in fractions, is no integer.
    return value.scale is not None and value.scale >= 0 and INT_MIN <= value.nano // _NANO <= INT_MAX


def _as_integer(value: Quantity) -> int:
    if not _is_integer(value):
        raise EvaluationError("cannot convert value to integer")
    return value.nano // _NANO


def _as_float(value: Quantity) -> float:
    try:
        return value.nano / _NANO
    except OverflowError:
        return math.inf if value.nano > 0 else -math.inf


def _units(value: int) -> Quantity:
    return Quantity(value * _NANO, "DecimalExponent", 0)


def _sign(value: Quantity) -> int:
    return (value.nano > 0) - (value.nano < 0)


_PAIR = (QUANTITY, QUANTITY)

QUANTITIES = Library(
    "kubernetes.quantity",
    {
        "quantity": (function("string_to_quantity", (STRING,), QUANTITY, _parse),),
        "isQuantity": (function("is_quantity_string", (STRING,), BOOL, accepted_by(parse_quantity)),),
        "sign": (function("quantity_sign", (QUANTITY,), INT, _sign),),
        "isGreaterThan": (member("quantity_is_greater_than", _PAIR, BOOL, lambda one, other: one.nano > other.nano),),
        "isLessThan": (member("quantity_is_less_than", _PAIR, BOOL, lambda one, other: one.nano < other.nano),),
        "compareTo": (member("quantity_compare_to", _PAIR, INT, Quantity.compare),),
        "asApproximateFloat": (member("quantity_get_float", (QUANTITY,), DOUBLE, _as_float),),
        "asInteger": (member("quantity_get_int", (QUANTITY,), INT, _as_integer),),
        "isInteger": (member("quantity_is_integer", (QUANTITY,), BOOL, _is_integer),),
        "add": (
            member("quantity_add", _PAIR, QUANTITY, lambda one, other: one + other),
            member("quantity_add_int", (QUANTITY, INT), QUANTITY, lambda one, other: one + _units(other)),
        ),
        "sub": (
            member("quantity_sub", _PAIR, QUANTITY, lambda one, other: one - other),
            member("quantity_sub_int", (QUANTITY, INT), QUANTITY, lambda one, other: one - _units(other)),
        ),
    },
    types=(QUANTITY,),
)
