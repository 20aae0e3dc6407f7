"""Find the victims for equal members by counts per node: remove units until enough members fit, then reprieve.

This is the rule of `reprieve` for the case that feasibility is a sum over nodes: when a unit is removed or put back,
only its nodes are recounted. So it costs little more than one or two counts per candidate, however many victims there
are.
Source: KEP-5710 (reprieve), docs/adr/0004; how it is counted is our own.
"""

from __future__ import annotations

from collections.abc import Sequence

from haru.engine.equivalence.node_device_classes import classified_nodes_of
from haru.engine.podgroup.member_capacity import MemberCapacity
from haru.engine.podgroup.single_class_capacity import SingleClassCapacity
from haru.engine.preemption.disruption_units import DisruptionUnit
from haru.engine.preemption.dry_run import EvictionDryRun
from haru.engine.preemption.node_occupancy import NodeOccupancies, NodeOccupancy
from haru.engine.state.cache import Snapshot
from haru.engine.state.pod_info import PodInfo


class _NodeCount:
    """Hold a node's count without its removed pods; `domain` is the number of its node set.

    `bounded`: fewer free devices of any kind than a member needs mean that the node takes none.
    """

    __slots__ = ("bounded", "count", "domain", "frees", "occupancy", "removed_pods", "taken")

    def __init__(self, occupancy: NodeOccupancy, count: int, domain: int) -> None:
        self.occupancy = occupancy
        self.taken = occupancy.taken
        self.frees = occupancy.frees
        self.bounded = occupancy.plain and not occupancy.shared
        self.removed_pods: dict[str, PodInfo] = {}
        self.count = count
        self.domain = domain


class NodeCounter:
    """Count the members that each node takes, with all units in place or without some pods.

    Counting raises AllocationError, and OutOfBudgetError where a negative answer would not be proven.
    """

    def __init__(
        self, base: Snapshot, occupancies: NodeOccupancies, counter: SingleClassCapacity, capacity: MemberCapacity
    ) -> None:
        self._base = base
        self._occupancies = occupancies
        self._counter = counter
        self._capacity = capacity
        self._dry_run: EvictionDryRun | None = None
        self._filtered_counts: dict[str, int] = {}  # counts, with all units in place, of nodes that must be filtered
        self._units: Sequence[DisruptionUnit] = ()
        self._removed = bytearray()

    @property
    def least(self) -> int:
        """Return how many devices each member needs at least."""
        return self._counter.least

    def begin(self, units: Sequence[DisruptionUnit], removed: bytearray) -> None:
        """Count for these units from now on; `removed` marks those that are removed."""
        self._dry_run, self._units, self._removed = None, units, removed
        self._filtered_counts = {}

    def with_frees(self, node: str) -> NodeOccupancy:
        """Return a node's occupancy, with the devices that each pod's removal frees."""
        return self._occupancies.with_frees(node)

    def initial_count(self, name: str) -> int:
        """Count the members that a node takes with all units in place."""
        occupancy = self._occupancies.occupancy(name)
        count = self._counter.current_count(occupancy)
        if count is not None:
            return count
        if name not in self._filtered_counts:
            self._filtered_counts[name] = self._filter_node(name)
        return self._filtered_counts[name]

    def initial_counts(self, names: Sequence[str]) -> list[int]:
        """Count the same for some nodes; most counts are cached."""
        known, occupancies = self._counter.counts_by_node, self._occupancies.known
        classified, least = self._base.all_classified_nodes, self._counter.least
        found = []
        for name in names:
            counted = known.get(name)
            if counted is not None and counted[0] is occupancies.get(name):
                found.append(counted[1])
                continue
            seen = classified_nodes_of(classified, name)
            too_few = seen is not None and seen.node_device_class.free < least
            found.append(0 if too_few else self.initial_count(name))
        return found

    def count(self, node: str, place: _NodeCount) -> int:
        """Count the members that a node takes in the current state."""
        occupancy, counter = place.occupancy, self._counter
        if not (occupancy.plain and counter.is_plain(occupancy)):
            return self._filter_node(node)
        free = counter.free_of(occupancy.info)
        for pod in place.removed_pods.values():
            counter.add(free, pod)
        return counter.count(occupancy, place.taken, free)

    def _filter_node(self, name: str) -> int:
        """Count the members of a node that must be filtered."""
        if self._dry_run is None:
            self._dry_run = EvictionDryRun(self._base, [unit.pods for unit in self._units])
            self._dry_run.removed = self._removed
            self._capacity.use_dry_run(self._dry_run)
        return self._capacity.count(name)


class FastReprieve:
    """Hold candidates in reprieve order and the member counts of their nodes.

    `places` are the disjoint sets of nodes to choose from.
    """

    def __init__(self, units: Sequence[DisruptionUnit], places: Sequence[Sequence[str]], counter: NodeCounter) -> None:
        self._units = units
        self._sets = places
        self._counter = counter
        self._domains = {name: number for number, nodes in enumerate(places) for name in nodes}
        self._places: dict[str, _NodeCount] = {}
        self._removed = bytearray(len(units))
        counter.begin(units, self._removed)
        self._initial_counts = [counter.initial_counts(nodes) for nodes in places]
        self._initial_totals = [sum(counts) for counts in self._initial_counts]
        self._totals = list(self._initial_totals)
        self._target = 0
        self._sets_at_target = 0  # the number of node sets with at least the target count

    def victims(self, enough: int, needed: int) -> tuple[list[int], int] | None:
        """Return the numbers of the victims and how many members fit: as many as can, at most `enough`.

        Return None if fewer than `needed` fit without all units.
        """
        begin = self._remove_until(enough)
        fit = min(enough, max(self._totals, default=0))
        if fit < needed:
            return None
        if fit < enough:
            # The target is known only now: start over and stop where that many members fit first.
            self._removed[begin:] = bytes(len(self._units) - begin)
            self._places.clear()
            self._totals = list(self._initial_totals)
            begin = self._remove_until(fit)
        if begin == len(self._units):
            return [], fit
        victims = [begin]
        for number in range(begin + 1, len(self._units)):
            if not self._reprieve(number):
                victims.append(number)
        return victims, fit

    def usable_nodes(self) -> list[tuple[str, ...]]:
        """Return, of each node set with enough members, the nodes that take any in the current state."""
        found = []
        for nodes, counts, total in zip(self._sets, self._initial_counts, self._totals, strict=True):
            if total >= self._target:
                pairs = zip(nodes, counts, strict=True)
                now = ((name, self._places[name].count if name in self._places else count) for name, count in pairs)
                found.append(tuple([name for name, count in now if count]))
        return found

    def _remove_until(self, target: int) -> int:
        """Remove units from the end of the order until so many members fit; return the number of the last removed."""
        self._target = target
        self._sets_at_target = sum(total >= target for total in self._totals)
        begin = len(self._units)
        while begin and not self._sets_at_target:
            begin -= 1
            self._removed[begin] = 1
            self._recount(begin, removed=True)
        return begin

    def _reprieve(self, number: int) -> bool:
        """Put a unit back if as many members still fit."""
        self._removed[number] = 0
        self._recount(number, removed=False)
        if self._sets_at_target:
            return True
        self._removed[number] = 1
        self._recount(number, removed=True)
        return False

    def _recount(self, number: int, *, removed: bool) -> None:
        """Recount the nodes of a unit that was removed or put back."""
        places, least = self._places, self._counter.least
        for node, path, pod in self._units[number].pods_by_node:
            place = places.get(node)
            if place is None:
                domain = self._domains.get(node)
                if domain is None:
                    continue
                place = places[node] = _NodeCount(
                    self._counter.with_frees(node), self._counter.initial_count(node), domain
                )
            if removed:
                place.removed_pods[path] = pod
                place.taken &= ~place.frees.get(path, 0)
            else:
                del place.removed_pods[path]
                place.taken |= place.frees.get(path, 0)
                if not place.count:
                    continue
            # Usually too few devices are free, of any kind, which is cheap to see.
            if place.bounded and (place.occupancy.devices & ~place.taken).bit_count() < least:
                count = 0
            else:
                count = self._counter.count(node, place)
            if count != place.count:
                self._add(place.domain, count - place.count)
                place.count = count

    def _add(self, domain: int, more: int) -> None:
        before = self._totals[domain]
        self._totals[domain] = before + more
        self._sets_at_target += (before + more >= self._target) - (before >= self._target)
