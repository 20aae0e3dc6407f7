"""A cluster in partitions: each has nodes of its own and a scheduler of its own, and no work crosses a border.

Every partition gets its share of the nodes of each model. A route gives each pod to one partition when it comes, as an
admission policy writes a schedulerName: what does not fit there is dropped. The route `any` tries the others, too,
as if a controller created the pod anew for the next scheduler; it tells what borders cost apart from routes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from haru.simulate.draws import Draws
from haru.simulate.packing import CARD, Machine, Packer, Policy, Shape

ROUTES: Mapping[str, str] = {
    "random": "any partition that has cards of the pod's models, by chance",
    "least-requested": "of these, the one with the least share of its cards requested so far",
    "any": "as least-requested, and then each other one until the pod fits",
}
DEFAULT_ROUTE = "least-requested"


@dataclass(frozen=True, slots=True)
class Partitioning:
    """How many partitions there are, and how a pod gets to one."""

    count: int = 1
    route: str = DEFAULT_ROUTE


def split(machines: Sequence[Machine], count: int) -> list[list[Machine]]:
    """The machines in so many parts, each in their order: those of each model are dealt out one by one."""
    parts: list[list[Machine]] = [[] for _ in range(count)]
    dealt: Counter[str] = Counter()
    firsts = {model: first for first, model in enumerate(dict.fromkeys(machine.model for machine in machines))}
    for machine in machines:
        # Each model begins at another part, so that no part gets the odd node of all of them.
        parts[(firsts[machine.model] + dealt[machine.model]) % count].append(machine)
        dealt[machine.model] += 1
    return parts


class _Part:
    def __init__(self, machines: Sequence[Machine], policy: Policy) -> None:
        self.packer = Packer(machines, policy)
        self.models = frozenset(machine.model for machine in machines if machine.cards)
        self.cards = sum(machine.cards for machine in machines)
        self.requested = 0

    def serves(self, shape: Shape) -> bool:
        if not shape.cards:
            return bool(self.packer.nodes)
        return bool(self.models & shape.models if shape.models else self.models)

    @property
    def load(self) -> float:
        return self.requested / (self.cards * CARD or 1)


class PartitionedPacker:
    """Places work in one of several partitions."""

    def __init__(
        self,
        machines: Iterable[Sequence[Machine]],
        policy: Callable[[Sequence[Machine]], Policy],
        route: str,
        draws: Draws,
    ) -> None:
        """`policy` makes one for the machines of a partition. Raises ValueError for a route that there is not."""
        if route not in ROUTES:
            raise ValueError(f'no route "{route}": there are {", ".join(ROUTES)}')
        self._parts = [_Part(part, policy(part)) for part in machines]
        self._route = route
        self._draws = draws

    def place(self, shape: Shape) -> int | None:
        """The index of the partition that took the work; None if it was dropped."""
        for number in self._routed(shape):
            part = self._parts[number]
            # A route knows what was sent to a partition, not what became of it.
            part.requested += shape.amount
            if part.packer.place(shape) is not None:
                return number
        return None

    def _routed(self, shape: Shape) -> Iterator[int]:
        parts = self._parts
        serving = [number for number, part in enumerate(parts) if part.serves(shape)]
        if not serving:
            return
        if self._route == "random":
            yield self._draws.choice(serving)
            return
        ordered = sorted(serving, key=lambda number: (parts[number].load, number))
        yield from ordered if self._route == "any" else ordered[:1]
