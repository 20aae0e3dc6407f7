"""Cards and their held parts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from haru.dashboard.views.workloads import Owners, Workload
from haru.engine.dra import Device, PoolUse
from haru.explain.card_counts import WHOLE, CardCounts
from haru.explain.cards import Layout, share_consumed, share_of_card, something_fits

ONE_FREE = CardCounts(free=WHOLE)


@dataclass(frozen=True, slots=True)
class Part:
    """A held part of a card: a device, or a share of one. `share` is its fraction of the card, about."""

    device: str
    owners: tuple[Workload, ...]
    share: float


@dataclass(frozen=True, slots=True)
class Card:
    """A card at one moment. `free` is the fraction that can still be allocated, about; 0 if nothing fits.

    `counts` are its parts by the words of `haru top`.
    """

    name: str
    product: str
    parts: tuple[Part, ...]
    free: float
    taints: tuple[str, ...] = ()
    counts: CardCounts = ONE_FREE

    @property
    def look(self) -> tuple[object, ...]:
        """What a page shows of it, without names: cards of equal looks share a row."""
        return self.product, self.taints, self.free, tuple((part.owners, part.share) for part in self.parts)


def card_at(layout: Layout, use: PoolUse, owners: Owners) -> Card:
    """Make a card with its held parts."""
    if not use.devices and not use.shares:
        return Card(layout.name, layout.product, (), 1.0, layout.taints)
    parts = [part for device in layout.devices for part in _parts(layout, device, use, owners)]
    taken = sum(part.share for part in parts)
    left = round(max(0.0, 1.0 - taken), 3) if something_fits(layout, use) else 0.0
    return Card(layout.name, layout.product, tuple(parts), left, layout.taints)


def _parts(layout: Layout, device: Device, use: PoolUse, owners: Owners) -> Iterable[Part]:
    size = share_of_card(layout, device)
    if device.name in use.devices:
        yield Part(device.name, owners.of_claims(use.devices[device.name]), size)
    for share in use.shares.get(device.name, ()):
        yield Part(
            device.name, owners.of_claim(share.holder), round(size * share_consumed(device, dict(share.consumed)), 3)
        )
