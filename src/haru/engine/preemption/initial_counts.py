"""Keep how many equal members each node takes with all pods in place; count again only the nodes that changed.

Source: our own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import compress, count, repeat

from haru.engine.preemption.node_occupancy import NodeOccupancies

NodeSets = tuple[tuple[str, ...], ...]


class InitialCounts:
    """Hold the counts of the nodes of some disjoint sets, in their order, and the total of each set.

    `location` has the number of a node's set and the node's index in it.
    """

    __slots__ = ("_filtered", "_position", "_taking", "counts", "location", "sets", "totals")

    def __init__(self, sets: NodeSets) -> None:
        self.sets = sets
        self.location: dict[str, tuple[int, int]] = {}
        for number, nodes in enumerate(sets):
            self.location.update(zip(nodes, zip(repeat(number), count()), strict=False))
        self.counts: list[list[int]] = [[0] * len(nodes) for nodes in sets]
        self.totals: list[int] = [0] * len(sets)
        self._filtered: set[str] = set()
        """Nodes that arithmetic does not count: they are counted again each time."""
        self._taking: set[str] = set()
        """Nodes that take members."""
        self._position = -1

    @classmethod
    def of_node(cls, name: str, members: int) -> InitialCounts:
        """Return the count of a single node."""
        made = cls(((name,),))
        made.counts[0][0] = made.totals[0] = members
        return made

    def catch_up(
        self,
        occupancies: NodeOccupancies,
        arithmetic: Callable[[str], int | None],
        filtering: Callable[[str], int],
        candidates: Callable[[Collection[str] | None], Iterable[str]],
    ) -> None:
        """Count the nodes that changed, by `arithmetic`, or by `filtering` where that returns None.

        All but the `candidates` (among some nodes, or all) take none. An error leaves nodes uncounted; the next call
        counts them.
        """
        changed = occupancies.changes.since(self._position)
        counted = self._filtered | self._taking
        counted = {*candidates(changed), *(counted if changed is None else counted & changed)}
        for name in counted & self.location.keys():
            members = arithmetic(name)
            if members is None:
                self._filtered.add(name)
            else:
                self._filtered.discard(name)
                self._put(name, members)
        for name in self._filtered:
            self._put(name, filtering(name))
        self._position = occupancies.changes.position

    def usable(self, number: int, exceptions: Sequence[tuple[str, int]]) -> tuple[str, ...]:
        """Return the nodes of a set that take a member; `exceptions` are other counts of some nodes."""
        counts = self.counts[number]
        if exceptions:
            counts = counts.copy()
            for name, members in exceptions:
                counts[self.location[name][1]] = members
        return tuple(compress(self.sets[number], counts))

    def _put(self, name: str, members: int) -> None:
        number, index = self.location[name]
        before = self.counts[number][index]
        if members != before:
            if members:
                self._taking.add(name)
            else:
                self._taking.discard(name)
            self.totals[number] += members - before
            self.counts[number][index] = members
