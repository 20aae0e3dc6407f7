"""The counters of a pool, and what its devices take of them: worked out once for all pools that publish the same.

Source: KEP-4815.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from haru.engine.devices.model import Consumption, CounterSet, Device

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
        counters = [((counter_set.name, name), value) for counter_set in sets for name, value in counter_set.counters]
        if not counters:
            return cls(sets, (), (), ((),) * len(devices), fault(devices, sets))
        numbers = {name: number for number, (name, _) in enumerate(counters)}
        known: dict[tuple[Consumption, ...], Charge] = {}
        charges = []
        for device in devices:
            consumes = device.consumes
            charge = known.get(consumes)
            if charge is None:
                charge = known[consumes] = charge_of(consumes, numbers)
            charges.append(charge)
        names, totals = zip(*counters, strict=True)
        return cls(sets, names, totals, tuple(charges), fault(devices, sets))


def charge_of(consumes: Sequence[Consumption], numbers: Mapping[tuple[str, str], int]) -> Charge:
    """Unknown counters (those of a feature that is off) take nothing."""
    return tuple(
        [
            (numbers[(counter_set, name)], amount)
            for counter_set, amounts in consumes
            for name, amount in amounts
            if (counter_set, name) in numbers
        ]
    )


def fault(devices: Sequence[Device], sets: Sequence[CounterSet]) -> str:
    """Why these devices cannot be trusted: they consume what there is not."""
    known = {counter_set.name: dict(counter_set.counters) for counter_set in sets}
    for device in devices:
        for name, amounts in device.consumes:
            counters = known.get(name)
            if counters is None:
                return f"device {device.name} consumes from unknown counter set {name}"
            for counter, _ in amounts:
                if counter not in counters:
                    return f"device {device.name} consumes unknown counter {name}/{counter}"
    return ""
