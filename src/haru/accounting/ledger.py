"""Add up time exactly: the state at one moment counts until the next.

Amounts are integers, thousandths of cards times milliseconds: the sum over all keys is the number of cards times the
time, to the last digit, however often the state changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from haru.accounting.device_states import WHOLE, UsageKey

PER_DEVICE_SECOND = WHOLE * 1000
"""The amount of one card for one second."""


@dataclass(frozen=True, slots=True)
class Interval:
    """Amounts from `began` to `ended` (milliseconds since 1970), of which `observed` milliseconds were observed."""

    began: int
    ended: int
    observed: int
    amounts: Mapping[UsageKey, int]

    def clipped(self, since: int, until: int) -> Interval | None:
        """Cut it to the time between two moments, in proportion; None if nothing is left."""
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
    """Amounts between two moments, and how much of the time was observed, in milliseconds."""

    since: int
    until: int
    observed: int
    amounts: Mapping[UsageKey, int]


def total(intervals: Iterable[Interval], since: int, until: int) -> Total:
    """Add up intervals between two moments."""
    amounts: Counter[UsageKey] = Counter()
    observed = 0
    for interval in intervals:
        part = interval.clipped(since, until)
        if part is not None:
            observed += part.observed
            amounts.update(part.amounts)
    return Total(since, until, observed, amounts)


def merged(intervals: Iterable[Interval]) -> Interval:
    """Merge intervals, which are in order, into one."""
    parts = list(intervals)
    amounts: Counter[UsageKey] = Counter()
    for part in parts:
        amounts.update(part.amounts)
    return Interval(parts[0].began, parts[-1].ended, sum(part.observed for part in parts), amounts)


class Meter:
    """Turns moments into intervals. A clock that goes back stands still."""

    def __init__(self) -> None:
        self._units: Mapping[UsageKey, int] | None = None
        self._began = self._until = 0

    @property
    def until(self) -> int | None:
        """The end of what is counted; None before the first observation."""
        return None if self._units is None else self._until

    def observe(self, units: Mapping[UsageKey, int], now: int) -> Interval | None:
        """Take the state from now on; return the interval that ends. Equal states continue an interval."""
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
        """Count until now without a change; return the interval so far."""
        self._until = max(self._until, now)
        return self.current()

    def cut(self) -> Interval | None:
        """End the interval and start another with the same state; return the ended one."""
        ended = self.current()
        self._began = self._until
        return ended

    def stop(self) -> Interval | None:
        """Stop counting until the next observation; return the last interval."""
        ended, self._units = self.current(), None
        return ended

    def current(self) -> Interval | None:
        """Return the interval so far."""
        if self._units is None:
            return None
        length = self._until - self._began
        return Interval(self._began, self._until, length, {k: units * length for k, units in self._units.items()})
