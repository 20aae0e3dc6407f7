"""Count the equal members that each node takes, with all disruption units in place or without some pods.

Source: our own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from haru.engine.equivalence.node_device_classes import classified_nodes_of
from haru.engine.podgroup.member_capacity import MemberCapacity
from haru.engine.podgroup.single_class_capacity import SingleClassCapacity
from haru.engine.preemption.disruption_units import DisruptionUnit
from haru.engine.preemption.dry_run import EvictionDryRun
from haru.engine.preemption.initial_counts import InitialCounts
from haru.engine.preemption.node_occupancy import NodeOccupancies, NodeOccupancy
from haru.engine.preemption.removal_steps import RemovalSteps, Step
from haru.engine.state.cache import Snapshot
from haru.engine.state.pod_info import PodInfo

_MAX_NODE_SETS = 8

UnitsOn = Callable[[str], Sequence[DisruptionUnit]]
"""The units with pods on a node, the most important first."""


class NodeState:
    """Hold a node's count without its removed pods; `domain` is the number of its node set."""

    __slots__ = ("count", "domain", "occupancy", "removed_pods", "taken")

    def __init__(self, occupancy: NodeOccupancy, count: int, domain: int) -> None:
        self.occupancy = occupancy
        self.taken = occupancy.taken
        self.removed_pods: dict[str, PodInfo] = {}
        self.count = count
        self.domain = domain

    def remove(self, path: str, pod: PodInfo) -> None:
        """Remove a pod; the count stays what it was."""
        self.removed_pods[path] = pod
        self.taken &= ~self.occupancy.frees.get(path, 0)

    def put_back(self, path: str) -> None:
        """Put a removed pod back; the count stays what it was."""
        del self.removed_pods[path]
        self.taken |= self.occupancy.frees.get(path, 0)


class NodeCounter:
    """Count members on nodes. `units_on` says which units are on a node.

    `keeps_steps`: these are all units below some priority, so that the next preemptor meets the same.
    Counting raises AllocationError, and OutOfBudgetError where a negative answer would not be proven.
    """

    def __init__(
        self,
        base: Snapshot,
        occupancies: NodeOccupancies,
        counter: SingleClassCapacity,
        capacity: MemberCapacity,
        units_on: UnitsOn,
        *,
        keeps_steps: bool,
    ) -> None:
        self._base = base
        self._occupancies = occupancies
        self._counter = counter
        self._capacity = capacity
        self._units_on = units_on
        self._keeps_steps = keeps_steps
        self._steps: dict[str, RemovalSteps] = counter.kept.get_or_compute("removal steps", None, dict)
        self._dry_run: EvictionDryRun | None = None
        self._units: Sequence[DisruptionUnit] = ()
        self._removed = bytearray()

    def begin(self, units: Sequence[DisruptionUnit], removed: bytearray) -> None:
        """Count for these units from now on; `removed` marks those that are removed."""
        self._dry_run, self._units, self._removed = None, units, removed

    def units_on(self, node: str) -> Sequence[DisruptionUnit]:
        """Return the units with pods on a node, the most important first."""
        return self._units_on(node)

    def initial_counts(self, places: Sequence[Sequence[str]]) -> InitialCounts:
        """Count the members that each node of some sets takes with all units in place."""
        sets = tuple(map(tuple, places))
        if len(sets) == 1 and len(sets[0]) == 1:
            (name,) = sets[0]
            count = self.count_by_arithmetic(name)
            return InitialCounts.of_node(name, self.count_by_filtering(name) if count is None else count)
        found = self._counter.kept.get_or_compute("initial counts", sets, lambda: InitialCounts(sets), _MAX_NODE_SETS)
        found.catch_up(self._occupancies, self.count_by_arithmetic, self.count_by_filtering)
        return found

    def count_by_arithmetic(self, name: str) -> int | None:
        """Count the members that a node takes with all units in place; None if it has to be filtered."""
        classified = classified_nodes_of(self._base.classified_nodes, name)
        if classified is not None and classified.node_device_class.free < self._counter.least:
            return 0
        return self._counter.current_count(self._occupancies.occupancy(name))

    def removal_steps(self, node: str, count: int) -> RemovalSteps | None:
        """Return the steps of a node that takes `count` members without removals; None if it must be filtered."""
        occupancy, units = self._occupancies.with_frees(node), self._units_on(node)
        if not self._counter.is_plain(occupancy):
            return None
        known = self._steps.get(node)
        if known is None or known.occupancy is not occupancy or known.units is not units:
            known = RemovalSteps(occupancy, units, count)
            if self._keeps_steps:
                self._steps[node] = known
        return known

    def step(self, steps: RemovalSteps, index: int) -> Step | None:
        """Return a step of a node by its index; None if there are not as many."""
        return steps.step(index, self._counter)

    def state(self, node: str, count: int, domain: int) -> NodeState:
        """Return the state of a node with all units in place, but with another count."""
        return NodeState(self._occupancies.with_frees(node), count, domain)

    def count(self, node: str, state: NodeState) -> int:
        """Count the members that a node takes in a state."""
        occupancy, counter = state.occupancy, self._counter
        if not counter.is_plain(occupancy):
            return self.count_by_filtering(node)
        if counter.lacks_devices(occupancy, state.taken):
            return 0
        free = counter.free_of(occupancy.info)
        for pod in state.removed_pods.values():
            counter.add(free, pod)
        return counter.count(occupancy, state.taken, free)

    def count_by_filtering(self, name: str) -> int:
        """Count the members of a node that must be filtered, with the units in place that are not removed."""
        if self._dry_run is None:
            self._dry_run = EvictionDryRun(self._base, [unit.pods for unit in self._units])
            self._dry_run.removed = self._removed
            self._capacity.use_dry_run(self._dry_run)
        return self._capacity.count(name)
