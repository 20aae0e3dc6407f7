"""How full a cluster is: devices by driver, cpu and memory, as sums over the nodes that exist.

What a unit is, and how much of it is in use, `haru.engine.dra.utilization` says. The sums are Haru's.
"""

from __future__ import annotations

from dataclasses import dataclass

from haru.engine import Snapshot
from haru.engine.dra import Slice, units_in_use, whole_view


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
            units = units_in_use(whole_view(pool), snapshot.allocated.use(pool.key))
            found[name] = sum((Amount(1.0, used) for used in units), found.get(name, Amount()))
    return found


def _is_somewhere(item: Slice, snapshot: Snapshot) -> bool:
    node = item.placement.node_name
    return not node or ((info := snapshot.nodes.get(node)) is not None and info.present)
