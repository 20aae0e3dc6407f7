"""Count the equal members that each node takes, with all disruption units in place or without some pods.

Source: our own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import chain
from operator import attrgetter
from typing import NamedTuple

from haru.engine.dra.allocated_state import PoolUse
from haru.engine.dra.errors import AllocationError
from haru.engine.equivalence.node_device_classes import all_of, classified_nodes_of
from haru.engine.podgroup.member_capacity import MemberCapacity
from haru.engine.podgroup.search_budget import OutOfBudgetError
from haru.engine.podgroup.single_class_capacity import NodeKind, SingleClassCapacity
from haru.engine.preemption.disruption_units import DisruptionUnit, Rank
from haru.engine.preemption.dry_run import EvictionDryRun
from haru.engine.preemption.initial_counts import InitialCounts
from haru.engine.preemption.kept_by_node import KeptByNode
from haru.engine.preemption.node_occupancy import NodeOccupancies, NodeOccupancy
from haru.engine.preemption.removal_steps import RemovalSteps, Step
from haru.engine.preemption.removal_timeline import Removal, RemovalTimeline
from haru.engine.preemption.victim_index import VictimIndex
from haru.engine.state.cache import Snapshot
from haru.engine.state.node_info import NodeInfo
from haru.engine.state.pod_info import PodInfo

_UID = attrgetter("key.uid")
_MAX_NODE_SETS = 8
_MAX_TIMELINES = 16
"""Of all classes: each keeps the pods that were on its nodes, until it is asked for again."""

PodOnNode = tuple[str, PodInfo]
"""A pod with its path."""
UnitsByNode = Mapping[str, Sequence[DisruptionUnit]]
"""The units with pods on each node, the most important first."""


class NodeState(NamedTuple):
    """A node without some pods: how many members it takes, the number of its node set, and what is taken and free.

    `free` is None where the node has to be filtered.
    """

    occupancy: NodeOccupancy
    members: int
    domain: int
    taken: int
    free: list[int] | None


class _Seen(NamedTuple):
    """A node with its units, on which each device is free without the pods, all of which are of these units.

    Of any other node nothing but the units is known.
    """

    units: Sequence[DisruptionUnit]
    info: NodeInfo | None = None
    uses: tuple[PoolUse, ...] = ()
    kind: NodeKind | None = None


class NodeCounter:
    """Count members on nodes with these units.

    Steps are kept for the next preemptor if the units are those of an index, of which all below some priority may go.
    Counting raises AllocationError, and OutOfBudgetError where a negative answer would not be proven.
    """

    def __init__(
        self,
        base: Snapshot,
        occupancies: NodeOccupancies,
        counter: SingleClassCapacity,
        capacity: MemberCapacity,
        units: VictimIndex | UnitsByNode,
    ) -> None:
        self._base = base
        self._occupancies = occupancies
        self._counter = counter
        self._capacity = capacity
        self._index = units if isinstance(units, VictimIndex) else None
        self.units_on = units.units_on if isinstance(units, VictimIndex) else units.__getitem__
        """The units with pods on a node, the most important first."""
        self._steps: dict[str, RemovalSteps] = KeptByNode.of(base, occupancies, ("steps", counter.kept))
        self._emptied: dict[str, tuple[Sequence[DisruptionUnit], bool]]
        self._emptied = KeptByNode.of(base, occupancies, ("emptied", counter.kept))
        self._seen: dict[str, _Seen] = KeptByNode.of(base, occupancies, "seen")
        self._fits_below: dict[str, tuple[Sequence[DisruptionUnit], int, bool | None]]
        self._fits_below = KeptByNode.of(base, occupancies, ("fits below", counter.kept))
        self._dry_run: EvictionDryRun | None = None
        self._units: Sequence[DisruptionUnit] = ()
        self._removed = bytearray()

    def least_rank_on(self, node: str) -> Rank | None:
        """Return the rank of the least important unit of the index with a pod on a node; None without any."""
        return self._index.least_rank_on(node) if self._index is not None else None

    def begin(self, units: Sequence[DisruptionUnit], removed: bytearray) -> None:
        """Count for these units from now on; `removed` marks those that are removed."""
        self._dry_run, self._units, self._removed = None, units, removed

    def initial_counts(self, places: Sequence[Sequence[str]]) -> InitialCounts:
        """Count the members that each node of some sets takes with all units in place."""
        sets = tuple(map(tuple, places))
        if len(sets) == 1 and len(sets[0]) == 1:
            (name,) = sets[0]
            count = self.count_by_arithmetic(name)
            return InitialCounts.of_node(name, self.count_by_filtering(name) if count is None else count)
        found = self._counter.kept.get_or_compute("initial counts", sets, lambda: InitialCounts(sets), _MAX_NODE_SETS)
        found.catch_up(self._occupancies, self.count_by_arithmetic, self.count_by_filtering, self._candidates)
        return found

    def _candidates(self, names: Collection[str] | None) -> Iterator[str]:
        """Yield the nodes that may take members with all units in place: those with enough free devices.

        `names` are the nodes to choose from, None for all.
        """
        least = self._counter.least
        if names is None:
            for one in self._base.node_classes:
                if one.node_device_class is None or one.node_device_class.free >= least:
                    yield from one.names
            return
        known = self._base.classified_nodes
        found = (None,) * len(names) if known is None else all_of(known, tuple(names))
        for name, classified in zip(names, found, strict=True):
            if classified is None or classified.node_device_class.free >= least:
                yield name

    def count_by_arithmetic(self, name: str) -> int | None:
        """Count the members that a node takes with all units in place; None if it has to be filtered."""
        classified = classified_nodes_of(self._base.classified_nodes, name)
        if classified is not None and classified.node_device_class.free < self._counter.least:
            return 0
        return self._counter.current_count(self._occupancies.occupancy(self._base, name))

    def removal_steps(self, node: str, count: int) -> RemovalSteps | None:
        """Return the steps of a node that takes `count` members without removals; None if it must be filtered."""
        return self._kept_steps(node) or self._new_steps(node, count)

    def _new_steps(self, node: str, count: int) -> RemovalSteps | None:
        occupancy = self._occupancies.with_frees(self._base, node)
        if not self._counter.is_plain(occupancy):
            return None
        made = RemovalSteps(occupancy, self.units_on(node), count)
        if self._index is not None:
            self._steps[node] = made
        return made

    def steps_of_full(self, node: str) -> RemovalSteps | None:
        """Return the steps of a node that takes no member without removals; None for any that does or may."""
        known = self._kept_steps(node)
        if known is None:
            return self._new_steps(node, 0) if self.count_by_arithmetic(node) == 0 else None
        return None if known.initial_count else known

    def look_at(self, nodes: Mapping[str, Sequence[DisruptionUnit]]) -> None:
        """Note what `fits_when_empty` tells of nodes with these units; of many it is told for fewer steps."""
        if not self._counter.least:
            return  # full nodes are those that lack devices
        seen = self._seen
        unknown = {name: units for name, units in nodes.items() if name not in seen or seen[name].units is not units}
        if not unknown:
            return
        for name, info, classified in self._occupancies.free_without_pods(self._base, list(unknown)):
            if _have_all_pods(unknown[name], info):
                kind = info.spec.kind, classified.node_device_class
                seen[name] = _Seen(unknown.pop(name), info, classified.uses, kind)
        for name, units in unknown.items():
            seen[name] = _Seen(units)

    def fits_when_empty(self, node: str, units: Sequence[DisruptionUnit]) -> bool:
        """Tell whether a full node is known to take a member once all `units` of the index on it are removed."""
        seen = self._seen.get(node)
        if seen is not None and seen.units is units and (kind := seen.kind) is not None:
            if kind not in self._counter.full_kinds:
                self._counter.find_full_kind(kind, self._occupancies.occupancy(self._base, node))
            if (found := self._counter.full_kinds[kind]) is not None:
                return found
        known = self._emptied.get(node)
        if known is None or known[0] is not units:
            known = self._emptied[node] = units, self._fits_without(units, node)
        return known[1]

    def fits_below(self, node: str, units: Sequence[DisruptionUnit], priority: int) -> bool | None:
        """Tell whether a full node takes a member once its units below a priority are removed; None if steps tell."""
        seen = self._seen.get(node)
        if node in self._steps or seen is None or seen.units is not units or seen.info is None or seen.kind is None:
            return None
        below = [unit for unit in units if unit.priority < priority]
        known = self._fits_below.get(node)
        if known is None or known[0] is not units or known[1] != len(below):
            uids = set(map(_UID, chain.from_iterable([unit.pods for unit in below])))
            freed = self._occupancies.freed_devices(seen.uses, uids)
            fits = self._counter.fits_without(
                seen.kind, seen.info, freed, lambda: [pod for unit in below for _, pod in unit.on(node)]
            )
            known = self._fits_below[node] = units, len(below), fits
        return known[2]

    def _fits_without(self, units: Sequence[DisruptionUnit], node: str) -> bool:
        """Tell whether these are all that is on a full node, and a member is known to fit without them."""
        if self.count_by_arithmetic(node) != 0:
            return False
        occupancy = self._occupancies.occupancy(self._base, node)
        if not _have_all_pods(units, occupancy.info):
            return False
        return self._occupancies.frees_all(self._base, occupancy) and self._counter.count_when_empty(occupancy) > 0

    def _kept_steps(self, node: str) -> RemovalSteps | None:
        """Return the steps that are kept of a node, unless it or its units have changed."""
        known = self._steps.get(node)
        if known is None or known.units is not self.units_on(node):
            return None
        return known if known.occupancy is self._occupancies.known.get(node) else None

    def step(self, steps: RemovalSteps, index: int) -> Step | None:
        """Return a step of a node by its index; None if there are not as many."""
        return steps.step(index, self._counter)

    def removal(self, initial: InitialCounts, units: Sequence[DisruptionUnit], enough: int) -> Removal | None:
        """Return the first removal of units after which enough members fit, or as many as can.

        None where only removing one unit after the other tells.
        """
        if self._index is None:
            return None
        timeline = self._base.decision_cache.get_or_compute(
            "removal timelines", initial, lambda: RemovalTimeline(initial, self._counter.most), _MAX_TIMELINES
        )
        logs = self._occupancies.changes, self._index.changes
        changed = [log.since(position) for log, position in zip(logs, timeline.positions, strict=True)]
        try:
            occupied, others = changed
            timeline.catch_up(None if occupied is None or others is None else occupied | others, self)
            timeline.positions = logs[0].position, logs[1].position
            return timeline.removal(units, enough, self)
        except (AllocationError, OutOfBudgetError):
            # The timeline may look at more nodes than this preemptor needs.
            timeline.clear()
            return None

    def state(self, node: str, count: int, domain: int, removed: Sequence[PodOnNode]) -> NodeState:
        """Return the state of a node that takes so many members without these of its pods."""
        occupancy, counter = self._occupancies.with_frees(self._base, node), self._counter
        taken, free = occupancy.taken, None
        for path, _ in removed:
            taken &= ~occupancy.frees.get(path, 0)
        if counter.is_plain(occupancy):
            free = counter.free_of(occupancy.info)
            counter.add(free, [pod for _, pod in removed])
        return NodeState(occupancy, count, domain, taken, free)

    def most_with_pods(self, state: NodeState, pods: Sequence[PodOnNode]) -> int:
        """Return how many members a node takes at most with some removed pods back, as far as its devices tell."""
        occupancy, least, taken = state.occupancy, self._counter.least, state.taken
        if state.free is None or occupancy.shared or not least:
            return state.members
        for path, _ in pods:
            taken |= occupancy.frees.get(path, 0)
        return min(state.members, (occupancy.devices & ~taken).bit_count() // least)

    def with_pods(self, node: str, state: NodeState, pods: Sequence[PodOnNode]) -> NodeState:
        """Return the state of a node with some removed pods back."""
        occupancy, members, domain, taken, free = state
        for path, _ in pods:
            taken |= occupancy.frees.get(path, 0)
        if not members:
            return state
        if free is None:
            return NodeState(occupancy, self.count_by_filtering(node), domain, taken, None)
        if self._counter.lacks_devices(occupancy, taken):
            return NodeState(occupancy, 0, domain, taken, free)
        free = free.copy()
        self._counter.subtract(free, [pod for _, pod in pods])
        return NodeState(occupancy, self._counter.count(occupancy, taken, free), domain, taken, free)

    def count_by_filtering(self, name: str) -> int:
        """Count the members of a node that must be filtered, with the units in place that are not removed."""
        if self._dry_run is None:
            self._dry_run = EvictionDryRun(self._base, [unit.leaving for unit in self._units])
            self._dry_run.removed = self._removed
            self._capacity.use_dry_run(self._dry_run)
        return self._capacity.count(name)


def _have_all_pods(units: Sequence[DisruptionUnit], info: NodeInfo) -> bool:
    """Tell whether all pods on a node are of these units, each of which has some there."""
    return len(units) >= len(info.pods) or sum([len(unit.on(info.name)) for unit in units]) >= len(info.pods)
