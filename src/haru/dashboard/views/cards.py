"""Cards and their held parts."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from haru.dashboard.views.workloads import Owners, Workload
from haru.engine.dra import Device, PoolUse
from haru.explain.card_counts import WHOLE, CardCounts, Word, held_word
from haru.explain.cards import Layout, share_consumed, share_of_card, something_fits

ONE_FREE = CardCounts(free=WHOLE)
_SLICE = re.compile(r"memory-slice-?(\d+)$")
_LEVELS = 10
Percent = Callable[[str, Device], float | None]
"""The utilization of a claim's device, if it is known."""


@dataclass(frozen=True, slots=True)
class Part:
    """A held part of a card: a device, or a share of one. `share` is its fraction of the card, about.

    `start` is where on the card it lies, as a fraction, where its counters tell; `percent` its utilization.
    """

    device: str
    owners: tuple[Workload, ...]
    share: float
    start: float | None = None
    percent: float | None = None

    @property
    def word(self) -> Word:
        """The word for it: idle, in use or unmeasured."""
        return held_word(self.percent)

    @property
    def look(self) -> tuple[object, ...]:
        """What a page shows of it, utilization in tenths."""
        level = None if self.percent is None else round(self.percent / 100 * _LEVELS)
        return self.owners, self.share, self.start, level, self.word


@dataclass(frozen=True, slots=True)
class Card:
    """A card at one moment. `free` is the fraction that can still be allocated, about; 0 if nothing fits.

    `counts` are its parts by the words of `haru top`. `driver` and `pool` are empty for devices of device plugins.
    """

    name: str
    product: str
    parts: tuple[Part, ...]
    free: float
    taints: tuple[str, ...] = ()
    counts: CardCounts = ONE_FREE
    driver: str = ""
    pool: str = ""

    @property
    def look(self) -> tuple[object, ...]:
        """What a page shows of it, without names: cards of equal looks share a row."""
        words = tuple(word for word, amount in self.counts.words().items() if amount)
        return self.product, self.taints, self.free, words, tuple(part.look for part in self.parts)


def card_at(layout: Layout, use: PoolUse, owners: Owners, percent: Percent = lambda claim, device: None) -> Card:
    """Make a card with its held parts."""
    if not use.devices and not use.shares:
        return Card(layout.name, layout.product, (), 1.0, layout.taints)
    parts = [part for device in layout.devices for part in _parts(layout, device, use, owners, percent)]
    taken = sum(part.share for part in parts)
    left = round(max(0.0, 1.0 - taken), 3) if something_fits(layout, use) else 0.0
    return Card(layout.name, layout.product, tuple(parts), left, layout.taints)


def _parts(layout: Layout, device: Device, use: PoolUse, owners: Owners, percent: Percent) -> Iterable[Part]:
    size, start = share_of_card(layout, device), None
    if device.name in use.devices:
        claims = use.devices[device.name]
        start = _start(layout, device)
        known = [found for claim in claims if (found := percent(claim, device)) is not None]
        yield Part(device.name, owners.of_claims(claims), size, start, max(known, default=None))
    for share in use.shares.get(device.name, ()):
        part = round(size * share_consumed(device, dict(share.consumed)), 3)
        yield Part(device.name, owners.of_claim(share.holder), part, None, percent(share.holder, device))


def _start(layout: Layout, device: Device) -> float | None:
    """Where a partition begins, as a fraction of the card: by the first of the memory slices that it takes."""
    slices = sum(bool(_SLICE.search(name)) for _, name in layout.totals)
    taken = [
        int(found[1]) for entry in device.consumes for name, value in entry.amounts
        if value and (found := _SLICE.search(name))
    ]  # fmt: skip
    return round(min(taken) / slices, 4) if taken and slices else None
