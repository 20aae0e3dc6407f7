"""Who has to go for members that are all alike: units go one after the other until enough fit, then they come back.

It is the rule of `sparing` for the case that a question is a sum over nodes: as the units of the end of the order go,
and as those that are not needed come back, only the nodes that they are on are counted anew. So it costs little more
than looking at every candidate once or twice, however many victims there are.
Source: KEP-5710 (reprieve), docs/adr/0004; how it is counted is our own.
"""

from __future__ import annotations

from collections.abc import Sequence

from haru.engine.clearing import Clearing
from haru.engine.cluster import Snapshot
from haru.engine.groups.counting import Shelf
from haru.engine.groups.stands import Stand, Stands
from haru.engine.groups.tally import Tally
from haru.engine.groups.units import Unit


class _Place:
    """A node as it is with some units gone. `domain` is the number of the set of nodes that it is in."""

    __slots__ = ("count", "domain", "free", "stand", "taken")

    def __init__(self, stand: Stand, free: list[int], count: int, domain: int) -> None:
        self.stand = stand
        self.taken = stand.taken
        self.free = free
        self.count = count
        self.domain = domain


class Peeling:
    """Candidates in the order in which they are spared, and the nodes that they are on.

    `places` are the sets of nodes to choose from; no node may be in two of them. Counting raises AllocationError, and
    OutOfBudgetError where a no would not be proven.
    """

    def __init__(
        self,
        base: Snapshot,
        units: Sequence[Unit],
        places: Sequence[Sequence[str]],
        stands: Stands,
        tally: Tally,
        shelf: Shelf,
    ) -> None:
        self._base = base
        self._units = units
        self._sets = places
        self._stands = stands
        self._tally = tally
        self._shelf = shelf
        self._domains = {name: number for number, nodes in enumerate(places) for name in nodes}
        self._places: dict[str, _Place] = {}
        self._gone = bytearray(len(units))
        self._clearing: Clearing | None = None
        self._looked: dict[str, int] = {}  # what nodes take with everybody in place that have to be looked at
        self._standing = list(map(self._sum, places))
        self._totals = list(self._standing)
        self._wanted = 0
        self._suitable = 0  # sets of nodes on which as many as are wanted fit

    def victims(self, enough: int, needed: int) -> tuple[list[int], int] | None:
        """The numbers of the units that have to go so that as many members fit as can, and how many: at most `enough`.

        None if fewer than `needed` fit without all of them.
        """
        begin = self._peel(enough)
        fit = min(enough, max(self._totals, default=0))
        if fit < needed:
            return None
        if fit < enough:
            # How many fit is known only now: back to where so many fitted first.
            self._gone[begin:] = bytes(len(self._units) - begin)
            self._places.clear()
            self._totals = list(self._standing)
            begin = self._peel(fit)
        if begin == len(self._units):
            return [], fit
        victims = [begin]
        for number in range(begin + 1, len(self._units)):
            if not self._spare(number):
                victims.append(number)
        return victims, fit

    def useful(self) -> list[tuple[str, ...]]:
        """Of each set of nodes those that take any member, as things are now."""
        return [tuple([name for name in nodes if self._count(name)]) for nodes in self._sets]

    def _peel(self, wanted: int) -> int:
        """Let units go from the end of the order until so many fit; the number of the last to go."""
        self._wanted = wanted
        self._suitable = sum(total >= wanted for total in self._totals)
        begin = len(self._units)
        while begin and not self._suitable:
            begin -= 1
            self._gone[begin] = 1
            self._move(begin, gone=True)
        return begin

    def _spare(self, number: int) -> bool:
        """Put a unit back if as many fit with it."""
        self._gone[number] = 0
        self._move(number, gone=False)
        if self._suitable:
            return True
        self._gone[number] = 1
        self._move(number, gone=True)
        return False

    def _move(self, number: int, *, gone: bool) -> None:
        """Count the nodes of a unit again that has just gone or come back."""
        for pod in self._units[number].pods:
            domain = self._domains.get(pod.node)
            if domain is None:
                continue
            place = self._places.get(pod.node) or self._visited(pod.node, domain)
            stand = place.stand
            if not stand.plain or self._tally.sorts(stand) is None:
                count = self._look(pod.node)
            else:
                usage, free = pod.usage, place.free
                sign = 1 if gone else -1
                for index, (name, _) in enumerate(self._tally.requests):
                    free[index] += sign * usage.get(name, 0)
                free[-1] += sign
                freed = stand.frees.get(pod.key.path, 0)
                place.taken = place.taken & ~freed if gone else place.taken | freed
                if not (gone or place.count):
                    continue
                count = self._tally.count(stand, place.taken, free)
            if count != place.count:
                self._add(domain, count - place.count)
                place.count = count

    def _add(self, domain: int, more: int) -> None:
        before = self._totals[domain]
        self._totals[domain] = before + more
        self._suitable += (before + more >= self._wanted) - (before >= self._wanted)

    def _visited(self, name: str, domain: int) -> _Place:
        stand = self._stands.stand(name)
        place = self._places[name] = _Place(stand, self._tally.free_of(stand.info), self._now(name), domain)
        return place

    def _now(self, name: str) -> int:
        """How many members a node takes with everybody in place."""
        stand = self._stands.stand(name)
        if stand.plain and self._tally.sorts(stand) is not None:
            return self._tally.now(stand)
        if name not in self._looked:
            self._looked[name] = self._look(name)
        return self._looked[name]

    def _sum(self, names: Sequence[str]) -> int:
        """The same for some nodes together; of most of them it is known."""
        known, stands = self._tally.standing, self._stands.known
        total = 0
        for name in names:
            counted = known.get(name)
            if counted is not None and counted[0] is stands.get(name):
                total += counted[1]
            else:
                total += self._now(name)
        return total

    def _count(self, name: str) -> int:
        place = self._places.get(name)
        return self._now(name) if place is None else place.count

    def _look(self, name: str) -> int:
        """How many members a node takes that has to be looked at itself."""
        if self._clearing is None:
            self._clearing = Clearing(self._base, [unit.pods for unit in self._units])
            self._clearing.gone = self._gone
            self._shelf.stand_on(self._clearing)
        return self._shelf.count(name)
