"""Time added up exactly: what there was at a moment counts until the next moment.

Everything is whole numbers, thousandths of cards times milliseconds, so that the sum over all keys is the number of
cards times the time, to the last digit, however often things changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from haru.accounting.device_states import WHOLE, Key

PER_DEVICE_SECOND = WHOLE * 1000
"""Of what amounts are in, one card for one second."""


@dataclass(frozen=True, slots=True)
class Interval:
    """From `began` to `ended` (milliseconds since 1970), of which `observed` milliseconds were seen."""

    began: int
    ended: int
    observed: int
    amounts: Mapping[Key, int]

    def clipped(self, since: int, until: int) -> Interval | None:
        """The part of it between two moments, in proportion; None if there is none."""
        began, ended = max(self.began, since), min(self.ended, until)
        if ended <= began:
            return None
        if (began, ended) == (self.began, self.ended):
            return self
        length = self.ended - self.began
        part = {key: amount * (ended - began) // length for key, amount in self.amounts.items()}
        return Interval(began, ended, self.observed * (ended - began) // length, part)


@dataclass(frozen=True, slots=True)
class Total:
    """What there was within a time: its length and how much of it was observed, in milliseconds, and the amounts."""

    since: int
    until: int
    observed: int
    amounts: Mapping[Key, int]


def total(intervals: Iterable[Interval], since: int, until: int) -> Total:
    """Everything between two moments."""
    amounts: Counter[Key] = Counter()
    observed = 0
    for interval in intervals:
        part = interval.clipped(since, until)
        if part is not None:
            observed += part.observed
            amounts.update(part.amounts)
    return Total(since, until, observed, amounts)


def merged(intervals: Iterable[Interval]) -> Interval:
    """Several intervals, in order, as one."""
    parts = list(intervals)
    amounts: Counter[Key] = Counter()
    for part in parts:
        amounts.update(part.amounts)
    return Interval(parts[0].began, parts[-1].ended, sum(part.observed for part in parts), amounts)


class Meter:
    """Turns moments into intervals. A clock that goes back stands still."""

    def __init__(self) -> None:
        self._units: Mapping[Key, int] | None = None
        self._began = self._until = 0

    @property
    def until(self) -> int | None:
        """Up to when is counted; None while nothing is."""
        return None if self._units is None else self._until

    def observe(self, units: Mapping[Key, int], now: int) -> Interval | None:
        """What there is from now on; the interval that ends, if one does. Equal moments are one interval."""
        if self._units is None:
            self._units, self._began, self._until = dict(units), now, now
            return None
        self.extend(now)
        if units == self._units:
            return None
        ended = self.current()
        self._units, self._began = dict(units), self._until
        return ended if ended is not None and ended.ended > ended.began else None

    def extend(self, now: int) -> Interval | None:
        """Nothing has changed until now; the interval so far."""
        self._until = max(self._until, now)
        return self.current()

    def cut(self) -> Interval | None:
        """End the interval here and go on with a new one of the same."""
        ended = self.current()
        self._began = self._until
        return ended

    def stop(self) -> Interval | None:
        """Nothing is known from now on, until something is observed again; the last interval."""
        ended, self._units = self.current(), None
        return ended

    def current(self) -> Interval | None:
        """The interval so far."""
        if self._units is None:
            return None
        length = self._until - self._began
        return Interval(self._began, self._until, length, {k: units * length for k, units in self._units.items()})
