"""Reprieve victims: find the lexicographically largest set of units to keep, with few feasibility checks.

In reprieve order, a unit is kept if the preemptor still fits with it and all units kept so far in place and all others
removed. As long as removing more units never hurts, one check covers a run of units: a run that fits is kept whole,
and doubling and halving find the first unit that does not fit. At first the halving cuts between priority levels. The
number of checks is about victims x log(units).
Source: KEP-5710 (reprieve; bisection over priorities); our own in how it checks.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Hashable, Sequence
from typing import Generic, Protocol, TypeVar

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)


class VictimTrial(Protocol[T_contra]):
    """Put units back on trial; at first all of them are removed, and the preemptor fits."""

    def fits_with(self, units: Sequence[T_contra]) -> bool:
        """Tell whether the preemptor fits with these units in place too; remove them again."""

    def keep(self, units: Sequence[T_contra]) -> None:
        """Put units back for good."""


def reprieve(
    order: Sequence[T], trial: VictimTrial[T], level: Callable[[T], Hashable], *, refused: bool = False
) -> list[T]:
    """Return the victims. `level` is a unit's priority; `refused`: it is known that not all units can be kept."""
    return _Reprieve(order, trial, level).victims(refused=refused)


def reprieve_one_by_one(order: Sequence[T], trial: VictimTrial[T]) -> list[T]:
    """Return the victims where removing more may hurt (required affinity, hard spreading): check every unit."""
    victims: list[T] = []
    for unit in order:
        if trial.fits_with([unit]):
            trial.keep([unit])
        else:
            victims.append(unit)
    return victims


class _Reprieve(Generic[T]):
    """Reprieve units in one order on one trial."""

    def __init__(self, order: Sequence[T], trial: VictimTrial[T], level: Callable[[T], Hashable]) -> None:
        self._order = order
        self._trial = trial
        self._levels = [i for i in range(1, len(order)) if level(order[i]) != level(order[i - 1])]

    def victims(self, *, refused: bool) -> list[T]:
        order, trial = self._order, self._trial
        victims: list[T] = []
        begin = self._first_refused(refused=refused)
        trial.keep(order[:begin])
        while begin < len(order):
            victims.append(order[begin])
            begin += 1
            next_victim = self._next_refused(begin)
            trial.keep(order[begin:next_victim])
            begin = next_victim
        return victims

    def _first_refused(self, *, refused: bool) -> int:
        """Return the index of the first victim; usually most units are kept, so the first check covers all."""
        order = self._order
        if not order or (not refused and self._trial.fits_with(order)):
            return len(order)
        return self._bisect(0, 0, len(order), self._levels)

    def _next_refused(self, begin: int) -> int:
        """Return the index of the next victim from `begin` on; victims are usually close to each other."""
        order = self._order
        fitting, step = begin, 1
        while fitting < len(order):
            end = min(fitting + step, len(order))
            if not self._trial.fits_with(order[begin:end]):
                return self._bisect(begin, fitting, end, ())
            fitting, step = end, step * 2
        return fitting

    def _bisect(self, begin: int, fitting: int, refused: int, stops: Sequence[int]) -> int:
        """Bisect to the first refused unit: units from `begin` up to `fitting` fit, up to `refused` they do not."""
        while refused - fitting > 1:
            middle = _middle(fitting, refused, stops)
            if self._trial.fits_with(self._order[begin:middle]):
                fitting = middle
            else:
                refused = middle
        return fitting


def _middle(low: int, high: int, stops: Sequence[int]) -> int:
    """Return an index between two others: where a priority level begins, if one does, else half-way."""
    inner = stops[bisect_left(stops, low + 1) : bisect_left(stops, high)]
    return inner[len(inner) // 2] if inner else (low + high) // 2
