"""Find which nodes a single pod could take by evictions, and what that costs at least, before any victims are known.

The first unit whose removal makes the pod fit on a node is evicted in any case, and is the most important victim there.
Most nodes are dearer by it alone than the cheapest node so far, so that their other victims are never looked for; many
by any unit on them, so that it is enough to know that the pod fits once the node is empty.
Source: KEP-268 (how nodes compare); the bound is our own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import takewhile
from typing import NamedTuple

from haru.engine.dra.errors import AllocationError
from haru.engine.podgroup.search_budget import OutOfBudgetError
from haru.engine.preemption.disruption_units import Cost, DisruptionUnit, ReprieveOrder, reprieve_order
from haru.engine.preemption.eligibility import evictable_pods
from haru.engine.preemption.feasibility_oracle import Preemptor
from haru.engine.preemption.node_counter import NodeCounter
from haru.engine.preemption.podgroup_preemption import Search, Victims
from haru.engine.preemption.removal_steps import RemovalSteps
from haru.engine.preemption.victim_index import VictimIndex
from haru.engine.state.cache import Snapshot
from haru.engine.state.decision import Reason

_FEW = 8
"""Fewer units than nodes by this factor are looked for by themselves, not node by node."""


class NodeCandidate(NamedTuple):
    """A node on which the pod fits after evictions. `victims` finds them; they cost `least_cost` or more."""

    least_cost: Cost
    violations: int
    victims: Callable[[], Victims]


class NodeCandidates:
    """Answer for one node after the other whether a pod could take it."""

    def __init__(self, base: Snapshot, preemptor: Preemptor, search: Search, errors: dict[str, Reason]) -> None:
        self.errors = errors
        """Why the dry run of a node proves nothing, by node."""
        self._base = base
        self._preemptor = preemptor
        self._priority = preemptor.priority
        self._search = search
        self._index = VictimIndex.of(base, groups=preemptor.info.options.gates.groups)
        self._units_on: dict[str, tuple[DisruptionUnit, ...]] = {}
        """By node that may have units to evict: what the index tells of it."""
        self._filters_units = bool(preemptor.info.options.preemption.minimum_run_time)
        self._reorders = bool(search.evicted or base.objects("PodDisruptionBudget"))
        # Steps are those of all units on a node, in the order of their importance.
        self._counter = None if self._filters_units or search.evicted else search.node_counter(self._index)

    def nodes_with_units(self, names: Sequence[str]) -> Sequence[str]:
        """Return those of some nodes on which the pod may evict something, if these are few; else all of them."""
        if self._index.has_more_below(self._priority, len(names) // _FEW):
            return names
        known = {node for unit in self._index.below(self._priority) for node in unit.nodes}
        return [name for name in names if name in known] if known else ()

    def has_units(self, node: str) -> bool:
        """Tell whether the pod may evict something on a node."""
        if self._filters_units:
            return bool(self.units(node))
        units = self._units_on[node] = self._index.units_on(node)
        return bool(units) and units[-1].priority < self._priority

    def look_at(self, nodes: Sequence[str]) -> None:
        """Look together at what the other methods have to know of nodes of which `has_units` is true."""
        if self._counter is not None and not self._reorders:
            self._counter.look_at({node: self._units_on[node] for node in nodes})

    def is_no_better(self, node: str, best: Victims) -> bool:
        """Tell whether a node is known to be a candidate, but not the best, by its least important units alone.

        It is where the pod fits without all that it may evict there, as far as counts tell: no step is looked for.
        """
        if self._counter is None or self._reorders:
            return False
        units = self._units_on[node]
        try:
            if _may_be_better(units, best):
                return False
            if units[0].priority < self._priority:
                return self._counter.fits_when_empty(node, units)
            return self._counter.fits_below(node, units, self._priority) is True
        except (AllocationError, OutOfBudgetError):
            return False

    def candidate(self, node: str) -> NodeCandidate | None:
        """Return a node as a candidate; None if evictions do not make the pod fit. Raises UnansweredError."""
        order = reprieve_order(self._base, self.units(node), self._search.evicted) if self._reorders else None
        if self._counter is not None and (order is None or not order.guarded):
            units = self._units_on[node]
            some_stay = units[0].priority >= self._priority
            if some_stay and self._counter.fits_below(node, units, self._priority) is False:
                return None
            try:
                steps = self._counter.steps_of_full(node)
                if steps is not None:
                    return self._by_steps(self._counter, node, steps)
            except (AllocationError, OutOfBudgetError):
                pass  # The general search may still decide it.
        victims = self._search.victims_in(order or ReprieveOrder(tuple(self.units(node))), node)
        return None if victims is None else NodeCandidate(victims.cost, victims.violations, lambda: victims)

    def units(self, node: str) -> list[DisruptionUnit]:
        """Return the units on a node that the pod may evict, most important first."""
        return evictable_pods(self._base, self._preemptor, node)

    def _by_steps(self, counter: NodeCounter, node: str, steps: RemovalSteps) -> NodeCandidate | None:
        step = counter.step(steps, 0)
        if step is None or step.unit.priority >= self._priority:
            return None
        return NodeCandidate(step.unit.cost, 0, lambda: self._victims_from(step.unit, node, steps.units))

    def _victims_from(self, first: DisruptionUnit, node: str, units: Sequence[DisruptionUnit]) -> Victims:
        """Return the victims on a node of which the first is known."""
        # More important units stay, whatever the pod's priority: so what is kept for the node serves every pod.
        rest = ReprieveOrder(tuple(units[units.index(first) :]))
        if len(rest.units) == 1:
            return Victims(rest.units, 1, ((node,),))
        victims = self._search.victims_in(rest, node)
        assert victims is not None, "the pod fits without the first unit and all less important ones"
        return victims


def _may_be_better(units: Sequence[DisruptionUnit], best: Victims) -> bool:
    """Tell whether victims among the units on a node may cost less than these, or have started later if they do not."""
    least = units[-1].cost
    if least != best.cost:
        return least < best.cost
    # One unit alone costs as little, for several have more pods. Those that do are next to each other.
    return any(unit.started > best.started for unit in takewhile(lambda unit: unit.cost == least, reversed(units)))
