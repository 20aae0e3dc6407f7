"""What several requests ask for together: values under one constraint, counters of one card, devices that match."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

Value = tuple[str, object]
Allowed = dict[int, tuple[set[Value], int]]
"""By constraint: the values that a plan can have, and how many different ones it needs (0: one for all devices)."""


class Option(NamedTuple):
    """What one plan asks for: the least of each counter, and values of attributes."""

    least: dict[str, int]
    allowed: Allowed


class ConstraintDomain:
    """What the requests under one constraint allow together: values to agree on, or enough of them to differ."""

    def __init__(self) -> None:
        self._agree: dict[tuple[int, int], set[Value]] = {}
        self._differ: dict[tuple[int, int], set[Value]] = {}
        self._wanted: Counter[tuple[int, int]] = Counter()

    def add(self, claim: int, options: Sequence[Allowed]) -> None:
        """A request takes one of these options, so constraints count that all of them have."""
        for index in set.intersection(*(set(option) for option in options)):
            values = set().union(*(option[index][0] for option in options))
            need = min(option[index][1] for option in options)
            key = (claim, index)
            if need:
                self._differ.setdefault(key, set()).update(values)
                self._wanted[key] += need
            else:
                self._agree[key] = self._agree[key] & values if key in self._agree else values

    def contradictory(self) -> bool:
        """Whether some constraint cannot hold for all of its requests together."""
        return any(not values for values in self._agree.values()) or any(
            len(values) < self._wanted[key] for key, values in self._differ.items()
        )


class CounterGroups:
    """The devices of one view by what they have in common: those of two cards draw on no counter together.

    `of` gives the number of a device's card, by position; `counters` those of each card.
    """

    def __init__(self, charges: Mapping[int, Sequence[tuple[int, int]]]) -> None:
        joined: dict[int, int] = {}

        def root(counter: int) -> int:
            while (above := joined.setdefault(counter, counter)) != counter:
                counter = above
            return counter

        for charge in charges.values():
            for counter, _ in charge[1:]:
                joined[root(counter)] = root(charge[0][0])
        self.of = {position: root(charge[0][0]) for position, charge in charges.items() if charge}
        self.counters: dict[int, list[int]] = {}
        for counter in sorted(joined):
            self.counters.setdefault(root(counter), []).append(counter)


class ConflictingMatches:
    """Constraints of which each wants its devices with one value of an attribute, and the devices that would do."""

    def __init__(self) -> None:
        self._needs: dict[str, Counter[tuple[int, int]]] = {}
        self._free: dict[str, set[int]] = {}

    def want(self, claim: int, constraint: int, attribute: str, need: int, free: Iterable[int]) -> None:
        """A request wants so many of these devices, of one value with all others under the constraint."""
        self._needs.setdefault(attribute, Counter())[claim, constraint] += need
        self._free.setdefault(attribute, set()).update(free)

    def crowded(self) -> Iterator[tuple[str, int, int, list[int]]]:
        """Attributes that several constraints are about: how many, what each needs at least, and the devices."""
        for attribute, needs in self._needs.items():
            if len(needs) > 1:
                yield attribute, len(needs), min(needs.values()), sorted(self._free[attribute])
