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
from typing import Protocol, TypeVar

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
    stops = [i for i in range(1, len(order)) if level(order[i]) != level(order[i - 1])]
    victims: list[T] = []
    begin = _first_refused(order, trial, stops, refused=refused)
    trial.keep(order[:begin])
    while begin < len(order):
        victims.append(order[begin])
        begin += 1
        next_victim = _next_refused(order, begin, trial)
        trial.keep(order[begin:next_victim])
        begin = next_victim
    return victims


def reprieve_one_by_one(order: Sequence[T], trial: VictimTrial[T]) -> list[T]:
    """Return the victims where removing more may hurt (required affinity, hard spreading): check every unit."""
    victims: list[T] = []
    for unit in order:
        if trial.fits_with([unit]):
            trial.keep([unit])
        else:
            victims.append(unit)
    return victims


def _first_refused(order: Sequence[T], trial: VictimTrial[T], stops: Sequence[int], *, refused: bool) -> int:
    """Return the index of the first victim; usually most units are kept, so the first check covers all."""
    if not order or (not refused and trial.fits_with(order)):
        return len(order)
    return _between(order, 0, 0, len(order), trial, stops)


def _next_refused(order: Sequence[T], begin: int, trial: VictimTrial[T]) -> int:
    """Return the index of the next victim from `begin` on; victims are usually close to each other."""
    fitting, step = begin, 1
    while fitting < len(order):
        end = min(fitting + step, len(order))
        if not trial.fits_with(order[begin:end]):
            return _between(order, begin, fitting, end, trial, ())
        fitting, step = end, step * 2
    return fitting


def _between(
    order: Sequence[T], begin: int, fitting: int, refused: int, trial: VictimTrial[T], stops: Sequence[int]
) -> int:
    """Bisect to the first refused unit: units from `begin` up to `fitting` fit, up to `refused` they do not."""
    while refused - fitting > 1:
        middle = _middle(fitting, refused, stops)
        if trial.fits_with(order[begin:middle]):
            fitting = middle
        else:
            refused = middle
    return fitting


def _middle(low: int, high: int, stops: Sequence[int]) -> int:
    """Return an index between two others: where a priority level begins, if one does, else half-way."""
    inner = stops[bisect_left(stops, low + 1) : bisect_left(stops, high)]
    return inner[len(inner) // 2] if inner else (low + high) // 2
