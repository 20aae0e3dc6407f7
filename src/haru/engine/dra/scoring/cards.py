"""Cards as preference sees them: how large their devices are, and what is lost for others when one of them is taken.

A card is a device by itself, or all devices that draw on the same counters: the whole card and the partitions that it
could be divided into, which exclude each other. Sizes are in millionths: the mean, over the capacities that a device
publishes, of its part of the largest that the node has of that driver; for devices without capacities the mean part of
the card's counters that they take.
Source: KEP-4815 (partitionable devices); the sizes are our own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

from haru.engine.dra.model.model import Shape
from haru.engine.dra.pools.counter_groups import counter_groups
from haru.engine.dra.pools.counters import Charge
from haru.engine.dra.pools.pools import PoolView

WHOLE = 1_000_000
_MAX_STATES = 1024
_MAX_LAYOUTS = 16
_MAX_MODELS = 256

Maxima = Mapping[str, int]
"""The largest capacity of each name that a node has of a driver."""

Losses = tuple[tuple[int, ...] | None, ...]
"""For each device of a card the sizes of the others that could be had before it is taken and not after, descending.

None: there is not enough left for the device itself.
"""


class Model:
    """Equal cards: what their devices take of their counters, by number in the card, and how large they are."""

    __slots__ = ("_known", "charges", "sizes")

    def __init__(self, charges: tuple[Charge, ...], sizes: tuple[int, ...]) -> None:
        self.charges = charges
        self.sizes = sizes
        self._known: dict[tuple[tuple[int, ...], int], Losses] = {}

    def losses(self, left: tuple[int, ...], taken: int) -> Losses:
        """What each device costs the others. `left` is what the counters have left, `taken` the devices in use as bits.

        A device in use has been charged: to take it, or a share of it, costs nothing more.
        """
        key = (left, taken)
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= _MAX_STATES:
                self._known.clear()
            found = self._known[key] = self._compute(left, taken)
        return found

    def _compute(self, left: tuple[int, ...], taken: int) -> Losses:
        free = [
            place
            for place, charge in enumerate(self.charges)
            if not taken >> place & 1 and all(left[counter] >= amount for counter, amount in charge)
        ]
        losses: list[tuple[int, ...] | None] = [() if taken >> n & 1 else None for n in range(len(self.charges))]
        for place in free:
            after = list(left)
            for counter, amount in self.charges[place]:
                after[counter] -= amount
            gone = [
                self.sizes[other]
                for other in free
                if other != place and any(after[counter] < amount for counter, amount in self.charges[other])
            ]
            losses[place] = tuple(sorted(gone, reverse=True))
        return tuple(losses)


class Card(NamedTuple):
    """One card of a view: its devices and counters by their numbers there."""

    model: Model
    places: tuple[int, ...]
    counters: tuple[int, ...]


class Cards:
    """The cards of a view that have counters, and the sizes of all of its devices."""

    def __init__(self, view: PoolView, maxima: Maxima) -> None:
        self.sizes = [size_of(device.shape, maxima) for device in view.devices]
        self.cards: list[Card] = []
        self.card_of: dict[int, tuple[Card, int]] = {}
        """By place in the view: the card, and the place in the card."""
        cache = view.table.tables.cache
        drawing = ((place, [(0, counter) for counter, _ in charge]) for place, charge in enumerate(view.charges))
        for drawn, places in counter_groups(drawing):
            counters = tuple(counter for _, counter in drawn)
            numbers = {counter: number for number, counter in enumerate(counters)}
            charges = tuple(tuple((numbers[counter], n) for counter, n in view.charges[place]) for place in places)
            totals = [view.totals[counter] for counter in counters]
            for place, charge in zip(places, charges, strict=True):
                if not view.devices[place].shape.capacity:
                    self.sizes[place] = _mean([n * WHOLE // totals[c] for c, n in charge if totals[c]], len(totals))
            sizes = tuple(self.sizes[place] for place in places)
            model = cache.get_or_compute("card models", (charges, sizes), partial(Model, charges, sizes), _MAX_MODELS)
            card = Card(model, tuple(places), counters)
            self.cards.append(card)
            self.card_of.update((place, (card, number)) for number, place in enumerate(places))


def cards_of(view: PoolView, maxima: Maxima) -> Cards:
    """The cards of a view; views of equal devices share them."""
    key = (view.counter_names, view.totals, tuple(sorted(maxima.items())))
    return view.table.cache.get_or_compute("cards", key, lambda: Cards(view, maxima), _MAX_LAYOUTS)


def size_of(shape: Shape, maxima: Maxima, used: Sequence[int] | None = None) -> int:
    """How much a device has, less what shares have `used` of its capacities, as part of the largest."""
    used = used or (0,) * len(shape.capacity)
    shares = [
        (capacity.value - taken) * WHOLE // maxima[name]
        for (name, capacity), taken in zip(shape.capacity, used, strict=True)
        if maxima[name]
    ]
    return _mean(shares, len(shares))


def _mean(parts: Sequence[int], count: int) -> int:
    return sum(parts) // count if count else 0
