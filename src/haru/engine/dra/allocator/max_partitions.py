"""How many of some devices counters can give out at once: the most partitions that a card has room for.

Devices are tried in an order in which counters are done with early (a card's memory slices, one after the other), and
of what was taken so far only that counts which a later device looks at. So there are few states, though many sets.
Source: our own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

Charge = Sequence[tuple[int, int]]
"""What a device takes: counters with amounts, in the order of the counters."""

_MOST_STATES = 2_000
"""Where there are more, nothing is said."""


def max_partitions(charges: Sequence[Charge], left: Mapping[int, int] | Sequence[int]) -> int | None:
    """The size of the largest set of these devices that what is left of the counters suffices for; None: too hard."""
    fitting = [charge for charge in charges if all(left[counter] >= amount for counter, amount in charge)]
    counters = sorted({counter for charge in fitting for counter, _ in charge})
    number = {counter: place for place, counter in enumerate(counters)}
    renamed = sorted(tuple([(number[counter], amount) for counter, amount in charge]) for charge in fitting)
    return _most(tuple(renamed), tuple([left[counter] for counter in counters]))


@lru_cache(maxsize=16_384)
def _most(charges: tuple[tuple[tuple[int, int], ...], ...], left: tuple[int, ...]) -> int | None:
    # Counters that few devices draw on are the slices: those that are done with first come first.
    drawn: dict[int, int] = {}
    for charge in charges:
        for counter, _ in charge:
            drawn[counter] = drawn.get(counter, 0) + 1
    own = [counter for counter in range(len(left)) if drawn[counter] < len(charges)]
    places = {counter: place for place, counter in enumerate(own)}
    last = len(own)
    order = sorted(charges, key=lambda charge: min((places.get(counter, last) for counter, _ in charge), default=last))
    needed: list[tuple[int, ...]] = []
    seen: set[int] = set()
    for charge in reversed(order):
        needed.append(tuple(sorted(seen)))
        seen.update(counter for counter, _ in charge)
    needed.reverse()
    states: dict[tuple[int, ...], int] = {left: 0}
    for charge, later in zip(order, needed, strict=True):
        after: dict[tuple[int, ...], int] = {}
        for state, count in states.items():
            kept = _project(state, later)
            if after.get(kept, -1) < count:
                after[kept] = count
            if all(state[counter] >= amount for counter, amount in charge):
                rest = list(state)
                for counter, amount in charge:
                    rest[counter] -= amount
                taken = _project(rest, later)
                if after.get(taken, -1) <= count:
                    after[taken] = count + 1
        if len(after) > _MOST_STATES:
            return None
        states = after
    return max(states.values(), default=0)


def _project(state: Sequence[int], later: Sequence[int]) -> tuple[int, ...]:
    """A state with nothing but the counters that later devices draw on; the others are as good as empty."""
    found = [0] * len(state)
    for counter in later:
        found[counter] = state[counter]
    return tuple(found)
