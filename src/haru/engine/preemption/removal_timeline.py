"""Keep after which removals nodes take more members, as units are removed from the least important on.

It grows only as far as some preemptor needed. From one decision to the next only the nodes that changed are looked at
again, and only once an answer depends on them: as long as all nodes of a set that have not been looked at could not
bring it to enough members, they are left alone. Then the first moment at which a set of nodes takes enough members is
read off the steps of the set.
Source: our own.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from operator import attrgetter
from typing import NamedTuple, Protocol

from haru.engine.preemption.disruption_units import DisruptionUnit, Rank
from haru.engine.preemption.initial_counts import InitialCounts
from haru.engine.preemption.removal_steps import RemovalSteps, Step

_RANK = attrgetter("rank")


class Event(NamedTuple):
    """When the unit of this rank is removed, a node takes so many members, `gain` more than before."""

    rank: Rank
    node: str
    members: int
    gain: int


class Removal(NamedTuple):
    """The state in which `fit` members fit first: the units from number `begin` on are removed.

    `totals` are right for the sets that take as many, and too low for others at most. `counts` are those that differ
    from the initial ones, in the sets that take as many. `nodes` are all those in such sets with removed units, and
    others.
    """

    begin: int
    fit: int
    totals: list[int]
    counts: dict[str, int]
    nodes: set[str]


class StepSource(Protocol):
    """Give the steps of nodes, and what is removed there first."""

    def least_rank_on(self, node: str) -> Rank | None:
        """Return the rank of the least important unit with a pod on a node; None without any."""

    def removal_steps(self, node: str, count: int) -> RemovalSteps | None:
        """Return the steps of a node that takes `count` members without removals; None if it must be filtered."""

    def step(self, steps: RemovalSteps, index: int) -> Step | None:
        """Return a step of a node by its index; None if there are not as many."""


class RemovalTimeline:
    """Hold the events of some sets of nodes, from the least important unit up to the rank `_until`.

    No node takes more than `most` members. It names nodes and units, and holds none: what is gone need not wait in
    memory until somebody asks again.
    """

    def __init__(self, initial: InitialCounts, most: int) -> None:
        self._initial = initial
        self._most = most
        self.positions: tuple[int, int] = -1, -1
        """Up to where whoever reads the changes has told them."""
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        self._until: Rank | None = None
        self._events: list[list[Event]] = [[] for _ in self._initial.sets]  # the least important last
        self._events_of: dict[str, list[Event]] = {}  # by node that has been looked at
        self._due: dict[Rank, list[str]] = {}  # by unit: the nodes whose next step is its removal
        self._next: dict[str, Rank] = {}  # by node: that unit
        self._filtered: set[str] = set()
        self._answers: dict[int, Rank | None] = {}  # by the number of members that were to fit
        self._unmet: list[dict[str, Rank]] = [{} for _ in self._initial.sets]
        """By set: the nodes to look at, with the rank of their least important unit."""

    def catch_up(self, changed: set[str] | None, source: StepSource) -> None:
        """Note the nodes that changed, all of them for None."""
        if changed is None:
            self.clear()
            return
        self._filtered -= changed
        for node in changed & self._events_of.keys():
            self._forget(node)
        until, location = self._until, self._initial.location
        for node in changed & location.keys() if until is not None else ():
            least, unmet = source.least_rank_on(node), self._unmet[location[node][0]]
            if least is not None and until is not None and least >= until:
                unmet[node] = least
            else:
                unmet.pop(node, None)

    def removal(self, units: Sequence[DisruptionUnit], enough: int, source: StepSource) -> Removal | None:
        """Return the state in which as many members fit as can, at most `enough`, after the least removals.

        None if some node has to be filtered on the way. `units` are all units below some priority.
        """
        most = max(self._initial.totals, default=0)
        if most >= enough or not units or not self._events:
            return self._nothing_removed(len(units), min(enough, most))
        limit = units[0].rank
        if enough in self._answers:
            # The answer is likely to be the last one again.
            self._meet_by(self._answers[enough] or limit, enough, source)
        rank = self._first_time(enough, limit)
        while self._meet_by(rank or limit, enough, source):
            rank = self._first_time(enough, limit)
        if rank is None:
            self._extend(units, enough, source)
            rank = self._first_time(enough, limit)
        self._answers[enough] = rank
        if rank is None:
            self._meet_by(limit, 0, source)
        if self._filtered:
            return None
        fit = enough
        if rank is None:
            fit = max(self._totals(limit))
            if most >= fit:
                return self._nothing_removed(len(units), fit)
            rank = self._first_time(fit, limit)
        assert rank is not None
        totals = self._totals(rank)
        counts: dict[str, int] = {}
        for number, total in enumerate(totals):
            if total >= fit:
                counts.update([(event.node, event.members) for event in self._since(number, rank)])
        return Removal(bisect_left(units, rank, key=_RANK), fit, totals, counts, set(self._events_of))

    def _nothing_removed(self, begin: int, fit: int) -> Removal:
        return Removal(begin, fit, list(self._initial.totals), {}, set())

    def _first_time(self, target: int, limit: Rank) -> Rank | None:
        """Return the rank at whose removal a set takes so many members first; None if none does by the limit."""
        found: Rank | None = None
        for total, events in zip(self._initial.totals, self._events, strict=True):
            for event in reversed(events):
                if event.rank < limit:
                    break
                total += event.gain
                if total >= target:
                    found = limit = event.rank
                    break
        return found

    def _since(self, number: int, rank: Rank) -> list[Event]:
        """Return the events of a set up to the removal of a rank, those of a node in their order."""
        events = self._events[number]
        return events[: bisect_left(events, rank, key=_RANK) - len(events) - 1 : -1]

    def _totals(self, rank: Rank) -> list[int]:
        """Return how many members each set takes after the removal of a rank."""
        return [
            total + sum([event.gain for event in self._since(number, rank)])
            for number, total in enumerate(self._initial.totals)
        ]

    def _extend(self, units: Sequence[DisruptionUnit], target: int, source: StepSource) -> None:
        """Go on until a set takes so many members, a node has to be filtered, or there are no more units."""
        number = len(units) if self._until is None else bisect_left(units, self._until, key=_RANK)
        location, events_of, all_unmet = self._initial.location, self._events_of, self._unmet
        totals = self._totals(units[0].rank if self._until is None else self._until)
        while number and not self._filtered:
            number -= 1
            unit = units[number]
            rank = self._until = unit.rank
            sets: set[int] = set()
            for node in unit.nodes:
                if node not in events_of and node in location:
                    one = location[node][0]
                    all_unmet[one].setdefault(node, rank)
                    sets.add(one)
            for node in self._due.pop(rank, ()):
                totals[location[node][0]] += self._meet(node, source)
                sets.add(location[node][0])
            for one in sets:
                unmet, total = all_unmet[one], totals[one]
                if total + self._most * len(unmet) >= target:
                    totals[one] = self._meet_while_needed(one, list(unmet), total, target, source)
            if sets and max(totals) >= target:
                return

    def _meet_by(self, rank: Rank, target: int, source: StepSource) -> bool:
        """Look at the nodes of the sets that may take so many members by then; tell whether there were any."""
        totals = self._totals(rank) if len(self._events) > 1 else [target]  # every answer depends on an only set
        met = False
        for number, (unmet, total) in enumerate(zip(self._unmet, totals, strict=True)):
            if unmet and total + self._most * len(unmet) >= target:
                left = len(unmet)
                nodes = [node for node, least in unmet.items() if least >= rank]
                self._meet_while_needed(number, nodes, total, target, source, rank)
                met = met or len(unmet) < left
        return met

    def _meet_while_needed(
        self, number: int, nodes: list[str], total: int, target: int, source: StepSource, rank: Rank | None = None
    ) -> int:
        """Look at nodes of a set until the others could not bring its total to so many members; return the total.

        It is that after the removal of a rank, `_until` if none is given.
        """
        # The last ones have lost the fewest units: mostly they take no member yet, and so lower what is possible.
        while nodes and total + self._most * len(nodes) >= target:
            node = nodes.pop()
            del self._unmet[number][node]
            gain = self._meet(node, source)
            if rank is not None and rank != self._until:
                gain = sum([event.gain for event in self._events_of.get(node, ()) if event.rank >= rank])
            total += gain
        return total

    def _meet(self, node: str, source: StepSource) -> int:
        """Take a node's steps so far as units are removed; return how many more members it takes."""
        number, index = self._initial.location[node]
        count = self._initial.counts[number][index]
        steps = source.removal_steps(node, count)
        if steps is None:
            self._filtered.add(node)
            return 0
        events = self._events_of.setdefault(node, [])
        before = members = events[-1].members if events else count
        self._next.pop(node, None)
        while (step := source.step(steps, len(events))) is not None:
            rank = step.unit.rank
            assert self._until is not None
            if rank < self._until:
                self._due.setdefault(rank, []).append(node)
                self._next[node] = rank
                break
            event = Event(rank, node, step.members, step.members - members)
            events.append(event)
            insort(self._events[number], event)
            members = step.members
        return members - before

    def _forget(self, node: str) -> None:
        own = self._events[self._initial.location[node][0]]
        for event in self._events_of.pop(node):
            del own[bisect_left(own, event)]
        rank = self._next.pop(node, None)
        if rank is not None:
            waiting = self._due[rank]
            waiting.remove(node)
            if not waiting:
                del self._due[rank]
