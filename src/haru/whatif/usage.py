"""How full a cluster is: devices by driver, cpu and memory, as sums over the nodes that exist.

A device counts as one unit. Where devices draw on shared counters (MIG) a set of counters is one unit, the card, and of
it as much is in use as of the counter that is used most; of a device that claims share likewise the capacity.
Source: KEP-4815 (counters), KEP-5075 (consumable capacity); the sums are Haru's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from haru.engine.cluster import Snapshot
from haru.engine.devices.model import Slice
from haru.engine.devices.pools import PoolView
from haru.engine.devices.state import PoolUse


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
        current = [item for item in pool.slices if item.generation == newest]
        if any(_is_somewhere(item, snapshot) for item in current):
            name = f"devices {pool.key.driver}"
            units = _units(PoolView(pool.key, current, (), True, True), snapshot.allocated.use(pool.key))
            found[name] = sum(units, found.get(name, Amount()))
    return found


def _is_somewhere(item: Slice, snapshot: Snapshot) -> bool:
    node = item.placement.node_name
    return not node or ((info := snapshot.nodes.get(node)) is not None and info.present)


def _units(view: PoolView, use: PoolUse) -> Iterable[Amount]:
    if view.status != "ok":
        return
    sets: dict[str, float] = {}
    left = view.counters_left(use)
    for (counter_set, _), total, rest in zip(view.counter_names, view.totals, left, strict=True):
        sets[counter_set] = max(sets.get(counter_set, 0.0), (total - rest) / total if total else 0.0)
    yield from (Amount(1.0, used) for used in sets.values())
    for device, charge in zip(view.devices, view.charges or ((),) * len(view.devices), strict=True):
        if not charge:
            yield Amount(1.0, _used(device.name, dict(device.shape.amounts), use))


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
