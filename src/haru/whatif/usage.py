"""How full a cluster is: cpu and memory summed over the nodes that exist, cards by driver as `haru top` counts them."""

from __future__ import annotations

from dataclasses import dataclass

from haru.engine import Snapshot
from haru.explain.card_counts import WHOLE, CardCounts, card_counts_by_driver


@dataclass(frozen=True, slots=True)
class Amount:
    """What there is of something and what is in use. cpu in thousandths of a core, memory in bytes.

    Of devices `used` is what claims hold, in cards, and `cards` all the words that `haru top` has for them.
    """

    total: float = 0.0
    used: float = 0.0
    cards: CardCounts | None = None

    @property
    def share(self) -> float:
        """The part in use, from 0 to 1."""
        return self.used / self.total if self.total else 0.0


def usage_of(snapshot: Snapshot) -> dict[str, Amount]:
    """What is in use, by `cpu`, `memory`, and `devices DRIVER` for each driver that publishes devices."""
    nodes = [snapshot.nodes[name] for name in snapshot.node_names]
    found: dict[str, Amount] = {}
    for resource in ("cpu", "memory") if nodes else ():
        total = sum(info.allocatable.get(resource, 0) for info in nodes)
        found[resource] = Amount(total, sum(info.requested.get(resource, 0) for info in nodes))
    for driver, cards in card_counts_by_driver(snapshot).items():
        found[f"devices {driver}"] = Amount(cards.total / WHOLE, cards.held / WHOLE, cards)
    return found
