"""How full a cluster is: devices by driver, cpu and memory, as sums over the nodes that exist.

What a unit is, and how much of it is in use, `haru.engine.dra.utilization` says; partitions that name one parent are
parts of one card, so that a card counts as one however it is cut. The sums are Haru's.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from haru.engine import Snapshot
from haru.engine.dra import Device, Pool, PoolUse, Slice, units_in_use, whole_view
from haru.explain.cards import layout_of, share_consumed, share_of_card


@dataclass(frozen=True, slots=True)
class Amount:
    """What there is of something and what is in use. cpu in thousandths of a core, memory in bytes."""

    total: float = 0.0
    used: float = 0.0

    def __add__(self, other: Amount) -> Amount:
        return Amount(self.total + other.total, self.used + other.used)

    @property
    def share(self) -> float:
        """The part in use, from 0 to 1."""
        return self.used / self.total if self.total else 0.0


def usage_of(snapshot: Snapshot) -> dict[str, Amount]:
    """What is in use, by `cpu`, `memory`, and `devices DRIVER` for each driver that publishes devices."""
    found: dict[str, Amount] = {}
    for name in snapshot.node_names:
        info = snapshot.nodes[name]
        for resource in ("cpu", "memory"):
            amount = Amount(info.allocatable.get(resource, 0), info.requested.get(resource, 0))
            found[resource] = found.get(resource, Amount()) + amount
    for pool in snapshot.devices.pools.values():
        newest = max((item.generation for item in pool.slices), default=0)
        if any(item.generation == newest and _is_somewhere(item, snapshot) for item in pool.slices):
            name = f"devices {pool.key.driver}"
            units = _cards_in_use(pool, snapshot.allocated.use(pool.key))
            found[name] = sum((Amount(1.0, used) for used in units), found.get(name, Amount()))
    return found


def _cards_in_use(pool: Pool, use: PoolUse) -> Iterator[float]:
    """The part of each card that is in use: what its partitions are of it, where they are devices of their own."""
    cards = layout_of(pool).cards
    if all(len(card.devices) == 1 or card.totals for card in cards):
        yield from units_in_use(whole_view(pool), use)
        return
    for card in cards:
        held = sum(share_of_card(card, d) * _share_in_use(d, use) for d in card.devices)
        yield min(1.0, held)


def _share_in_use(device: Device, use: PoolUse) -> float:
    if use.devices.get(device.name):
        return 1.0
    return min(1.0, share_consumed(device, use.consumed(device.name))) if use.shares.get(device.name) else 0.0


def _is_somewhere(item: Slice, snapshot: Snapshot) -> bool:
    node = item.placement.node_name
    return not node or ((info := snapshot.nodes.get(node)) is not None and info.present)
