"""Devices as units that fill up: how much of each card of a pool is in use.

A device counts as one unit. Where devices draw on shared counters (MIG) a set of counters is one unit, the card, and of
it as much is in use as of the counter that is used most; of a device that claims share likewise the capacity.
Source: KEP-4815 (counters), KEP-5075 (consumable capacity); the units are Haru's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from haru.engine.dra.allocated_state import PoolUse
from haru.engine.dra.pools.pools import Pool, PoolView


def whole_view(pool: Pool) -> PoolView:
    """All devices of a pool's newest generation, wherever they are."""
    newest = max((item.generation for item in pool.slices), default=0)
    return PoolView(pool.key, [item for item in pool.slices if item.generation == newest], (), True, True, pool.tables)


def units_in_use(view: PoolView, use: PoolUse) -> Iterator[float]:
    """The part of each unit that is in use, from 0 to 1; nothing of a pool that cannot be used."""
    if view.status != "ok":
        return
    sets: dict[str, float] = {}
    left = view.counters_left(use)
    for (counter_set, _), total, rest in zip(view.counter_names, view.totals, left, strict=True):
        sets[counter_set] = max(sets.get(counter_set, 0.0), (total - rest) / total if total else 0.0)
    yield from sets.values()
    for device, charge in zip(view.devices, view.charges or ((),) * len(view.devices), strict=True):
        if not charge:
            yield _used(device.name, dict(device.shape.amounts), use)


def _used(device: str, amounts: Mapping[str, object], use: PoolUse) -> float:
    if use.devices.get(device):
        return 1.0
    if not use.shares.get(device):
        return 0.0
    shares = [
        taken / value
        for name, taken in use.consumed(device).items()
        if (value := getattr(amounts.get(name), "value", 0)) > 0
    ]
    return min(1.0, max(shares, default=1.0))
