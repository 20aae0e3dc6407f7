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
from haru.engine.devices import dressed_of
from haru.engine.groups.counting import Shelf
from haru.engine.groups.stands import Stand, Stands
from haru.engine.groups.tally import Tally
from haru.engine.groups.units import Unit
from haru.engine.pods import PodInfo


class _Place:
    """A node without the pods that are `away`. `domain` is the number of the set of nodes that it is in."""

    __slots__ = ("away", "count", "domain", "stand", "taken")

    def __init__(self, stand: Stand, count: int, domain: int) -> None:
        self.stand = stand
        self.taken = stand.taken
        self.away: dict[str, PodInfo] = {}
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
        self._counted = [self._counts(nodes) for nodes in places]
        self._standing = [sum(counts) for counts in self._counted]
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
        """Of each set of nodes on which enough members fit those that take any, as things are now."""
        found = []
        for nodes, counts, total in zip(self._sets, self._counted, self._totals, strict=True):
            if total >= self._wanted:
                pairs = zip(nodes, counts, strict=True)
                now = ((name, self._places[name].count if name in self._places else count) for name, count in pairs)
                found.append(tuple([name for name, count in now if count]))
        return found

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
        places, least = self._places, self._tally.least
        for node, path, pod in self._units[number].spots:
            place = places.get(node)
            if place is None:
                domain = self._domains.get(node)
                if domain is None:
                    continue
                place = places[node] = _Place(self._stands.settled(node), self._now(node), domain)
            stand = place.stand
            if gone:
                place.away[path] = pod
                place.taken &= ~stand.frees.get(path, 0)
            else:
                del place.away[path]
                place.taken |= stand.frees.get(path, 0)
                if not place.count:
                    continue
            # Mostly it is clear that too few devices are free, whatever they are.
            few = stand.plain and not stand.shared and (stand.devices & ~place.taken).bit_count() < least
            count = 0 if few else self._count(node, place)
            if count != place.count:
                self._add(place.domain, count - place.count)
                place.count = count

    def _count(self, node: str, place: _Place) -> int:
        """How many members a node takes now."""
        stand, tally = place.stand, self._tally
        if not (stand.plain and tally.is_plain(stand)):
            return self._look(node)
        free = tally.free_of(stand.info)
        for pod in place.away.values():
            tally.add(free, pod)
        return tally.count(stand, place.taken, free)

    def _add(self, domain: int, more: int) -> None:
        before = self._totals[domain]
        self._totals[domain] = before + more
        self._suitable += (before + more >= self._wanted) - (before >= self._wanted)

    def _now(self, name: str) -> int:
        """How many members a node takes with everybody in place."""
        stand = self._stands.stand(name)
        count = self._tally.now(stand)
        if count is not None:
            return count
        if name not in self._looked:
            self._looked[name] = self._look(name)
        return self._looked[name]

    def _counts(self, names: Sequence[str]) -> list[int]:
        """The same for some nodes; of most of them it is known."""
        known, stands = self._tally.standing, self._stands.known
        dressed, least = self._base.all_dressed, self._tally.least
        found = []
        for name in names:
            counted = known.get(name)
            if counted is not None and counted[0] is stands.get(name):
                found.append(counted[1])
                continue
            seen = dressed_of(dressed, name)
            few = seen is not None and seen.outfit.free < least
            found.append(0 if few else self._now(name))
        return found

    def _look(self, name: str) -> int:
        """How many members a node takes that has to be looked at itself."""
        if self._clearing is None:
            self._clearing = Clearing(self._base, [unit.pods for unit in self._units])
            self._clearing.gone = self._gone
            self._shelf.stand_on(self._clearing)
        return self._shelf.count(name)
