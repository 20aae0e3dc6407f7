"""Quantities as exact integers, in billionths, which is the finest step that Kubernetes' Quantity keeps.

The search adds and compares amounts in its innermost loop, so they are parsed once and are plain integers from then
on; the text is kept where it has to be written into a result.
"""

from __future__ import annotations

from functools import lru_cache

from haru.kube.quantity import Quantity, parse_quantity

UNIT = 1_000_000_000


@lru_cache(maxsize=16384, typed=True)
def amount(value: str | int | float) -> int:
    """A quantity, as JSON carries it, in billionths; ValueError if it is none."""
    return parse_quantity(value).nano


def whole(billionths: int) -> int:
    """The quantity as an integer, rounded away from zero, as `Quantity.Value()` does."""
    return Quantity(billionths).value()


def binary_text(number: int) -> str:
    """The canonical text of an integer with binary suffixes: 2147483648 is `2Gi`, 1000 stays `1000`."""
    return str(Quantity(number * UNIT, "BinarySI"))


def canonical(value: str | int | float) -> str:
    """The text in which the API returns a quantity."""
    return str(parse_quantity(value))
