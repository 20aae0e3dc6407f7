"""The largest set of units that can be spared: lexicographically, in their order, with as few questions as possible.

Walking along the order, a unit is spared if the preemptor still fits with it and all units spared so far in place and
all others gone. As long as removing more never hurts, runs of units can be asked about together: a run that fits is
spared whole, and the first unit that does not fit is found by doubling and halving. At first the run is halved between
levels of priority. The number of questions is about victims x log(units).
Source: KEP-5710 (reprieve; bisection over priorities); our own in how it asks.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Hashable, Sequence
from typing import Protocol, TypeVar

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)


class Ground(Protocol[T_contra]):
    """Where units are put back. At the beginning all of them are gone, and the preemptor fits."""

    def fits_with(self, units: Sequence[T_contra]) -> bool:
        """Whether the preemptor fits with these units in place too; they are gone again afterwards."""

    def keep(self, units: Sequence[T_contra]) -> None:
        """Put units back for good."""


def spare(order: Sequence[T], ground: Ground[T], level: Callable[[T], Hashable], *, refused: bool = False) -> list[T]:
    """The units that have to go. `level` is a unit's priority; `refused`: not all can stay, that is known already."""
    stops = [i for i in range(1, len(order)) if level(order[i]) != level(order[i - 1])]
    victims: list[T] = []
    begin = _first_refused(order, ground, stops, refused=refused)
    ground.keep(order[:begin])
    while begin < len(order):
        victims.append(order[begin])
        begin += 1
        spared = _next_refused(order, begin, ground)
        ground.keep(order[begin:spared])
        begin = spared
    return victims


def spare_one_by_one(order: Sequence[T], ground: Ground[T]) -> list[T]:
    """The same where removing more may hurt (a pod's company, an even spread): every unit is asked about."""
    victims: list[T] = []
    for unit in order:
        if ground.fits_with([unit]):
            ground.keep([unit])
        else:
            victims.append(unit)
    return victims


def _first_refused(order: Sequence[T], ground: Ground[T], stops: Sequence[int], *, refused: bool) -> int:
    """The number of the first victim; most can stay as a rule, so the search begins with all of them."""
    if not order or (not refused and ground.fits_with(order)):
        return len(order)
    return _between(order, 0, 0, len(order), ground, stops)


def _next_refused(order: Sequence[T], begin: int, ground: Ground[T]) -> int:
    """The number of the next victim from `begin` on; victims are near each other as a rule."""
    fitting, step = begin, 1
    while fitting < len(order):
        end = min(fitting + step, len(order))
        if not ground.fits_with(order[begin:end]):
            return _between(order, begin, fitting, end, ground, ())
        fitting, step = end, step * 2
    return fitting


def _between(
    order: Sequence[T], begin: int, fitting: int, refused: int, ground: Ground[T], stops: Sequence[int]
) -> int:
    """The number of the first refused unit, where units from `begin` up to `fitting` fit and up to `refused` do not."""
    while refused - fitting > 1:
        middle = _middle(fitting, refused, stops)
        if ground.fits_with(order[begin:middle]):
            fitting = middle
        else:
            refused = middle
    return fitting


def _middle(low: int, high: int, stops: Sequence[int]) -> int:
    """A number between two others: where a level of priority begins, if one does, else half-way."""
    inner = stops[bisect_left(stops, low + 1) : bisect_left(stops, high)]
    return inner[len(inner) // 2] if inner else (low + high) // 2
