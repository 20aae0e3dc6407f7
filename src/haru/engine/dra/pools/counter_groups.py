"""Devices that shared counters tie together: a card with all the partitions that it could be divided into.

Source: KEP-4815.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

Drawn = tuple[int, int]
"""A counter: the number of its view, and its own in there."""


def counter_groups(drawing: Iterable[tuple[int, Sequence[Drawn]]]) -> list[tuple[tuple[Drawn, ...], list[int]]]:
    """Sets of devices that draw on the same counters, directly or through others: their counters, and the devices.

    Devices are given with the counters that they draw on. Those of a set stay in the order in which they were given,
    sets are in the order of their first ones; a device that draws on nothing is in none.
    """
    leader: dict[Drawn, Drawn] = {}

    def find(counter: Drawn) -> Drawn:
        while leader.setdefault(counter, counter) != counter:
            leader[counter] = counter = leader[leader[counter]]
        return counter

    given = [(device, counters) for device, counters in drawing if counters]
    for _, (first, *others) in given:
        for other in others:
            leader[find(other)] = find(first)
    found: dict[Drawn, tuple[dict[Drawn, None], list[int]]] = {}
    for device, counters in given:
        together, devices = found.setdefault(find(counters[0]), ({}, []))
        together.update(dict.fromkeys(counters))
        devices.append(device)
    return [(tuple(sorted(together)), devices) for together, devices in found.values()]
