"""The policies by name, and Haru's own: the place where what the cluster can still take falls least."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from haru.engine.packing_value import ExpectedRequest, PackingValue, Tuning
from haru.simulate.baselines import BestFit, FirstFit, FragmentationGradient, MostAllocated
from haru.simulate.packing import CARD, Machine, Node, Policy, Shape, after

POLICIES: Mapping[str, str] = {
    "first-fit": "the first node that fits, its first card",
    "best-fit": "the node with the least cpu and cards left",
    "most-allocated": "kube-scheduler's MostAllocated over cpu, memory and cards",
    "fgd": "Fragmentation Gradient Descent (USENIX ATC'23), scores cut to integers",
    "haru": "Haru's: where what the node can still take for the expected mix falls least",
}


def make_policy(name: str, demand: Mapping[Shape, int], machines: Sequence[Machine]) -> Policy:
    """The policy of a name; `demand` is the mix it may expect. Raises ValueError for a name that there is not."""
    if name == "first-fit":
        return FirstFit()
    if name == "best-fit":
        return BestFit()
    if name == "most-allocated":
        return MostAllocated()
    if name == "fgd":
        return FragmentationGradient(demand)
    if name == "haru":
        return HaruPacking(demand, machines)
    raise ValueError(f'no policy "{name}": there are {", ".join(POLICIES)}')


class HaruPacking:
    """The node and card whose packing value falls least (`haru.engine.packing_value`); ties by order of nodes."""

    def __init__(self, demand: Mapping[Shape, int], machines: Sequence[Machine], tuning: Tuning | None = None) -> None:
        asks: Counter[ExpectedRequest] = Counter()
        for shape, count in demand.items():
            asks[ExpectedRequest(shape.cpu, shape.cards, shape.part, shape.models)] += count
        supply: Counter[str] = Counter()
        for machine in machines:
            supply[machine.model] += machine.cards
        self._potential = PackingValue(asks, supply, tuning)
        self._taken: dict[tuple[tuple[int, ...], int, int], tuple[tuple[int, ...], float]] = {}

    def start(self, nodes: Sequence[Node]) -> None:
        """Nothing to prepare: what is known of one cluster holds for another."""

    def rate(self, node: Node, shape: Shape) -> tuple[float, tuple[int, ...]]:
        """How much less the node is worth afterwards, in cards, and more where its model is asked for by name."""
        potential = self._potential
        rooms, cpu = node.rooms, node.cpu
        cards = potential.cards(rooms)
        now = potential.worth(cards, cpu)
        if not shape.cards:
            return now - potential.worth(cards, cpu - shape.cpu), rooms
        left, kept = self._after(rooms, shape)
        loss = now - potential.worth(kept, cpu - shape.cpu)
        return loss + potential.scarcity(node.machine.model) * (cards - kept), left

    def _after(self, rooms: tuple[int, ...], shape: Shape) -> tuple[tuple[int, ...], float]:
        """The rooms afterwards, and what those cards are worth."""
        key = (rooms, shape.cards, shape.part)
        found = self._taken.get(key)
        if found is None:
            index = self._potential.taken(rooms, shape.part) if shape.part < CARD else 0
            left = tuple(sorted(after(rooms, shape, index or 0)))
            found = self._taken[key] = (left, self._potential.cards(left))
        return found
