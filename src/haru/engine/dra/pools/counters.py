"""The counters of a pool, and what its devices take of them: worked out once for all pools that publish the same.

Source: KEP-4815.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import count
from operator import itemgetter
from typing import NamedTuple

from haru.engine.dra.model.model import Consumption, CounterSet, Device

Charge = tuple[tuple[int, int], ...]
"""What a device takes, as (number of the counter in its view, amount)."""


class Counters(NamedTuple):
    """Counters by number. `fault` says why the devices cannot be trusted with them, or nothing."""

    sets: tuple[CounterSet, ...]
    names: tuple[tuple[str, str], ...]
    totals: tuple[int, ...]
    charges: tuple[Charge, ...]
    fault: str

    @classmethod
    def of(cls, sets: tuple[CounterSet, ...], devices: Sequence[Device]) -> Counters:
        """The counters of these sets, and what each device takes of them."""
        names, totals = names_and_totals(sets)
        numbers = _numbers(sets)
        known: dict[int, Charge] = {id(()): ()}  # interned, as devices are
        charge_of = _Charges(numbers)
        charges: list[Charge] = []
        fault = ""
        for device in devices:
            charge = known.get(id(device.consumes))
            if charge is None:
                try:
                    charge = charge_of(device.consumes)
                except KeyError:
                    charge, fault = (), fault or _fault(device, numbers)
                known[id(device.consumes)] = charge
            charges.append(charge)
        return cls(sets, names, totals, tuple(charges), fault)


def names_and_totals(sets: Sequence[CounterSet]) -> tuple[tuple[tuple[str, str], ...], tuple[int, ...]]:
    """The counters of these sets by number, and how much there is of each."""
    counters = [((counter_set.name, name), value) for counter_set in sets for name, value in counter_set.counters]
    return (tuple([name for name, _ in counters]), tuple([value for _, value in counters]))


def _numbers(sets: Sequence[CounterSet]) -> dict[str, dict[str, int]]:
    """The number of each counter, by set and name."""
    number = count()
    return {counter_set.name: {name: next(number) for name, _ in counter_set.counters} for counter_set in sets}


class _Charges:
    """What consumption takes of counters. Most of it differs in the set only: how to take the numbers is found once."""

    def __init__(self, numbers: Mapping[str, Mapping[str, int]]) -> None:
        self._numbers = numbers
        self._takers: dict[int, tuple[Callable[[Mapping[str, int]], tuple[int, ...]], tuple[int, ...]]] = {}

    def __call__(self, consumes: Sequence[Consumption]) -> Charge:
        """What something takes of counters; KeyError if one of them is unknown."""
        numbers = self._numbers
        if len(consumes) > 1 or len(consumes[0].amounts) < 2:
            known = [(numbers[name], amounts) for name, amounts in consumes]
            return tuple([(own[counter], amount) for own, amounts in known for counter, amount in amounts])
        name, amounts = consumes[0]
        taker = self._takers.get(id(amounts))
        if taker is None:
            names, values = zip(*amounts, strict=True)
            taker = self._takers[id(amounts)] = (itemgetter(*names), values)
        take, values = taker
        return tuple(zip(take(numbers[name]), values, strict=True))


def _fault(device: Device, numbers: Mapping[str, Mapping[str, int]]) -> str:
    """Which counter a device consumes that there is not."""
    for name, amounts in device.consumes:
        if name not in numbers:
            return f"device {device.name} consumes from unknown counter set {name}"
        for counter, _ in amounts:
            if counter not in numbers[name]:
                return f"device {device.name} consumes unknown counter {name}/{counter}"
    return ""
