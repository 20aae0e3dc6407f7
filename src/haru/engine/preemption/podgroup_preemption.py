"""Preempt for whole workloads: find the victims that let a group fit, devices included.

Runs once per group over the whole cluster, and only if the group does not fit without evictions. A dry run first
removes all units of a lower priority: if the quorum does not fit even then, no pod is evicted. Otherwise units are
reprieved in order of importance as long as as many members fit; the rest are the victims, and the members are nominated
to places and devices that are free after the evictions. Victims' devices count as free throughout (`EvictionDryRun`).
Source: KEP-5710, KEP-268, docs/adr/0004; 1.36 sees neither devices nor topology here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter

from haru.engine.dra.errors import AllocationError
from haru.engine.equivalence.decision_cache import cached_property
from haru.engine.podgroup.decision_builder import DecisionBuilder, with_message
from haru.engine.podgroup.decision_builder import nominated as nominated_decision
from haru.engine.podgroup.gang_pre_enqueue import TOO_FEW
from haru.engine.podgroup.member_capacity import MemberCapacity, member_capacity_for
from haru.engine.podgroup.podgroup_info import has_quorum, lacks_members
from haru.engine.podgroup.search_budget import OutOfBudgetError, UnansweredError
from haru.engine.podgroup.single_class_capacity import SingleClassCapacity, single_class_capacity_for
from haru.engine.preemption.disruption_units import (
    Cost,
    DisruptionUnit,
    ReprieveOrder,
    cost_of,
    reprieve_order,
    units_below,
)
from haru.engine.preemption.dry_run import EvictionDryRun, keep_group_reservations, without_orphans, without_pods
from haru.engine.preemption.eligibility import evictable_pods
from haru.engine.preemption.fast_reprieve import FastReprieve
from haru.engine.preemption.feasibility_oracle import FeasibilityOracle, Preemptor
from haru.engine.preemption.kept_by_node import KeptByNode
from haru.engine.preemption.node_counter import NodeCounter, UnitsByNode
from haru.engine.preemption.node_occupancy import NodeOccupancies
from haru.engine.preemption.nominated_placements import own_nominated_placements, terminating_pods
from haru.engine.preemption.reprieve import reprieve, reprieve_one_by_one
from haru.engine.preemption.victim_index import VictimIndex
from haru.engine.state.cache import Snapshot
from haru.engine.state.cow_map import values_of
from haru.engine.state.decision import Decision, Reason
from haru.engine.state.pending_reservations import evicted_pods

NEVER = "not eligible due to preemptionPolicy=Never."
NO_VICTIMS = "No preemption victims found for incoming preemptor"
WAITING_FOR_ROOM = "pod group is waiting for preemption to complete"


@dataclass(frozen=True)
class Victims:
    """Hold the victims, most important first, that let `fit` members have places on nodes of `places`.

    `violations` of the units violate a disruption budget.
    """

    units: tuple[DisruptionUnit, ...]
    fit: int
    places: Sequence[Sequence[str]]
    violations: int = 0

    @cached_property
    def cost(self) -> Cost:
        """Return what the victims cost."""
        return cost_of(self.units, self.violations)

    @cached_property
    def started(self) -> str:
        """Return when the first of the most important victims started: the later, the better."""
        return min([unit.started for unit in self.units if unit.priority == self.units[0].priority], default="")


def preempt_for_group(snapshot: Snapshot, refused: Decision, preemptor: Preemptor) -> Decision:
    """Preempt for a group that does not fit: nominate it with evictions, or add the reason to the refusal."""
    if preemptor.info.key is None or quorum_is_met(snapshot, preemptor):
        # Members beyond the quorum never preempt.
        return refused
    if _never(snapshot, preemptor):
        return with_message(refused, NEVER)
    base = after_pending_evictions(snapshot)
    try:
        if has_pending_evictions(snapshot) and own_nominated_placements(snapshot, preemptor.info.members):
            # The group is nominated already: while its pending evictions suffice, no more pods are evicted.
            kept = nominated(base, refused, preemptor, Victims((), preemptor.info.needed, preemptor.places))
            if kept is not None:
                return kept
        if _lacks_members(base, preemptor):
            return with_message(refused, TOO_FEW)
        units = evictable_pods(base, preemptor)
        if not units and not waits_for_pending_evictions(snapshot, preemptor):
            return with_message(refused, NO_VICTIMS)
        return _preempt(base, refused, preemptor, units, all_refused=base is snapshot)
    except UnansweredError as error:
        return DecisionBuilder(preemptor.info.key, preemptor.info.members, snapshot.version).failed(error.reason)


def _preempt(
    base: Snapshot,
    refused: Decision,
    preemptor: Preemptor,
    units: Sequence[DisruptionUnit],
    *,
    all_refused: bool,
    counts: bool = True,
) -> Decision:
    """Nominate the group with the evictions that it needs, or refuse it. Raises UnansweredError."""
    try:
        victims = Search(base, preemptor, counts=counts).victims(units, refused=all_refused)
        return (nominated(base, refused, preemptor, victims) if victims is not None else None) or refused
    except UnansweredError as error:
        if not counts or error.reason.type != "SelectorError":
            raise
    # Counts do not tell with which units in place the group comes upon the selector; placing it anew does.
    return _preempt(base, refused, preemptor, units, all_refused=all_refused, counts=False)


def after_pending_evictions(snapshot: Snapshot) -> Snapshot:
    """Return the base of preemption: terminating pods are gone, nominated placements are assumed."""
    base = snapshot if snapshot.next_pass is None else replace(snapshot.next_pass, next_pass=None)
    units = list(base.pod_index.terminating.values())
    if units:
        base = without_pods(keep_group_reservations(base, units), units)
    return without_orphans(base, snapshot.claim_index.orphaned)


def has_pending_evictions(snapshot: Snapshot) -> bool:
    """Tell whether pods are terminating, for whatever reason, or orphaned claims are not yet deallocated."""
    return bool(terminating_pods(snapshot) or snapshot.pod_index.terminating or snapshot.claim_index.orphaned)


def waits_for_pending_evictions(snapshot: Snapshot, preemptor: Preemptor) -> bool:
    """Tell whether a less important pod terminates already, so that the preemptor may wait instead of evicting."""
    units = [*terminating_pods(snapshot), *snapshot.pod_index.terminating.values()]
    return bool(units_below(snapshot, preemptor.priority, units, groups=preemptor.info.options.gates.groups))


def _lacks_members(base: Snapshot, preemptor: Preemptor) -> bool:
    """Tell whether the gang lacks members once terminating ones are gone: no eviction could let it start."""
    key, gangs = preemptor.info.key, preemptor.info.options.gates.gang_scheduling
    return gangs and key is not None and lacks_members(base, key, preemptor.info.group)


def quorum_is_met(snapshot: Snapshot, preemptor: Preemptor) -> bool:
    """Tell whether the group's quorum is already placed."""
    key, gangs = preemptor.info.key, preemptor.info.options.gates.gang_scheduling
    return key is not None and has_quorum(snapshot, key, preemptor.info.group, gang_scheduling=gangs)


class Search:
    """Search victims for one preemptor, among one set of candidates after the other."""

    def __init__(self, base: Snapshot, preemptor: Preemptor, *, counts: bool = True) -> None:
        """`counts`: members are counted by node where that can be, not placed anew for each question."""
        self._base = base
        self._preemptor = preemptor
        options = preemptor.info.options
        # `base` lacks the victims of nominations that the preemptor must respect; these belong to overridable ones.
        self.evicted = evicted_pods(base.pod_index.nominations.values())
        self._occupancies = NodeOccupancies.of(base, partitionable=options.features.PartitionableDevices)
        self._capacity = member_capacity_for(base, preemptor.info, base.node_names) if counts else None
        self._counter = (
            single_class_capacity_for(base, options, self._capacity.classes) if self._capacity is not None else None
        )

    def victims(self, units: Sequence[DisruptionUnit], *, refused: bool) -> Victims | None:
        """Return the victims among candidates sorted by importance; None if evicting all of them is not enough.

        Raises UnansweredError.
        `refused` says that the preemptor is known not to fit with all candidates in place.
        """
        order = reprieve_order(self._base, units, self.evicted)
        if self._is_complete(order):
            order = ReprieveOrder(order.units, order.guarded, complete=True)
        return self.least(order, attrgetter("priority"), refused=refused)

    def victims_in(self, order: ReprieveOrder, node: str) -> Victims | None:
        """Return the victims of a pod that is to take one node, on which it does not fit with all units in place."""
        return self.least(order, attrgetter("priority"), refused=True, places=((node,),))

    def node_counter(self, units: VictimIndex | UnitsByNode) -> NodeCounter | None:
        """Return a counter of members on nodes; None where nodes cannot be counted independently."""
        if self._capacity is None or self._counter is None:
            return None
        return NodeCounter(self._base, self._occupancies, self._counter, self._capacity, units)

    def _is_complete(self, order: ReprieveOrder) -> bool:
        """Tell whether candidates of the whole cluster are all of a priority, and those of one lasting victim index."""
        filtered = self._preemptor.info.options.preemption.minimum_run_time
        return self._base.decision_cache.shares_results and not (order.guarded or self.evicted or filtered)

    def least(
        self,
        order: ReprieveOrder,
        level: Callable[[DisruptionUnit], Hashable],
        *,
        refused: bool,
        places: Sequence[Sequence[str]] | None = None,
        enough: int | None = None,
    ) -> Victims | None:
        """Return the victims for a reprieve order; `enough` limits the members to fit, by default as many as can.

        `level` groups neighbours in the order, such as a priority.
        """
        capacity = self._capacity
        try:
            if self._capacity is not None and self._counter is not None:
                if places is not None and len(places) == len(places[0]) == 1:
                    return self._victims_on_node(order, self._counter, places, enough)
                return self._fast_reprieve(order, places, enough)
        except OutOfBudgetError:
            pass  # The general search may still decide it.
        except AllocationError as error:
            if self._preemptor.info.key is not None or places is None:
                raise UnansweredError(Reason("SelectorError", str(error))) from error
            capacity = None  # No device beyond those that suit the pod is asked then.
        preemptor = self._preemptor if places is None else Preemptor(self._preemptor.info, places)
        trial = _EvictionTrial(self._base, preemptor, order.units, capacity, enough)
        if trial.fit < preemptor.info.needed:
            return None
        numbers = range(len(order.units))
        if preemptor.needs_other_pods:
            victims = reprieve_one_by_one(numbers, trial)
        else:
            victims = reprieve(numbers, trial, lambda number: level(order.units[number]), refused=refused)
        return _victims(order, victims, trial.fit, places or trial.places())

    def _victims_on_node(
        self,
        order: ReprieveOrder,
        counter: SingleClassCapacity,
        places: Sequence[Sequence[str]],
        enough: int | None,
    ) -> Victims | None:
        """Return the victims on one node; kept for later preemptors, until the node or its units change."""
        occupancy = self._occupancies.with_frees(self._base, places[0][0])
        if not counter.is_plain(occupancy):
            return self._fast_reprieve(order, places, enough)
        kept: dict[str, tuple[tuple[object, ...], Victims | None]]
        kept = KeptByNode.of(self._base, self._occupancies, ("victims", counter.kept))
        members = len(self._preemptor.info.members) if enough is None else enough
        key = (occupancy, order.units, order.guarded, members, self._preemptor.info.needed)
        known = kept.get(places[0][0])
        if known is None or known[0] != key:
            known = kept[places[0][0]] = key, self._fast_reprieve(order, places, enough)
        return known[1]

    def _fast_reprieve(
        self, order: ReprieveOrder, places: Sequence[Sequence[str]] | None, enough: int | None
    ) -> Victims | None:
        """Return the victims for equal members, where nodes can be counted independently."""
        preemptor = self._preemptor
        index = VictimIndex.of(self._base, groups=preemptor.info.options.gates.groups) if order.complete else None
        nodes = self.node_counter(order.by_node() if index is None else index)
        assert nodes is not None
        fast = FastReprieve(order.units, places or preemptor.places, nodes)
        found = fast.victims(len(preemptor.info.members) if enough is None else enough, preemptor.info.needed)
        return _victims(order, *found, places or fast.usable_nodes()) if found is not None else None


def _victims(order: ReprieveOrder, numbers: Sequence[int], fit: int, places: Sequence[Sequence[str]]) -> Victims:
    units = sorted([order.units[number] for number in numbers], key=attrgetter("rank"))
    violations = sum(number < order.guarded for number in numbers) if order.guarded else 0
    return Victims(tuple(units), fit, places, violations)


class _EvictionTrial:
    """Hold the dry run in which candidates are put back as long as the preemptor still fits."""

    def __init__(
        self,
        base: Snapshot,
        preemptor: Preemptor,
        units: Sequence[DisruptionUnit],
        capacity: MemberCapacity | None,
        enough: int | None,
    ) -> None:
        self._dry_run = EvictionDryRun(base, [unit.leaving for unit in units])
        self._places = preemptor.places
        self._is_single = preemptor.info.key is None
        self._capacity = capacity
        self._oracle = FeasibilityOracle(preemptor)
        self._limit = self._questions = preemptor.info.options.budgets.preemption_budget
        if capacity is not None:
            capacity.use_dry_run(self._dry_run)
        self.fit = self._max_members(len(preemptor.info.members) if enough is None else enough)

    def places(self) -> Sequence[Sequence[str]]:
        """Return the node sets that the preemptor may use now, nodes without capacity left out."""
        if self._capacity is None:
            return self._places
        return [self._capacity.usable_nodes(nodes) for nodes in self._places]

    def fits_with(self, units: Sequence[int]) -> bool:
        """Tell whether as many members as at first fit with these units in place; remove the units again."""
        if self._questions <= 0:
            raise UnansweredError(_too_many_questions(self._limit))
        self._questions -= 1
        self._dry_run.put_back(units)
        try:
            if self._capacity is None:
                return self._oracle.fits(self._dry_run.snapshot(), self.fit)
            return self._max_members(self.fit, self._dry_run.nodes_of(units)) >= self.fit
        except UnansweredError as error:
            if error.reason.type == "SelectorError" and (self._is_single or self._capacity is None):
                return False  # as 1.36: in a reprieve an error is a no
            raise
        finally:
            self._dry_run.take(units)

    def keep(self, units: Sequence[int]) -> None:
        """Put units back for good."""
        self._dry_run.put_back(units)
        if self._capacity is not None:
            self._capacity.keep(self._dry_run.nodes_of(units))

    def _max_members(self, enough: int, tentative: Collection[str] = ()) -> int:
        if self._capacity is None:
            return min(enough, self._oracle.max_members(self._dry_run.snapshot()))
        best = 0
        for nodes in self._places:
            best = max(best, self._capacity.max_members(nodes, enough, tentative))
            if best >= enough:
                break
        return min(best, enough)


def _too_many_questions(limit: int) -> Reason:
    return Reason("GaveUp", f"gave up after {limit} questions whether less has to be evicted", {"budget": limit})


def _never(snapshot: Snapshot, preemptor: Preemptor) -> bool:
    """Tell whether any pending member has preemptionPolicy Never."""
    pods = set(preemptor.info.members)
    if preemptor.info.key is not None:
        waiting = set(values_of(snapshot.pods, snapshot.group_state(preemptor.info.key).unscheduled))
        pods.update([pod for pod in waiting - pods if pod is not None and not pod.deleting])
    return "Never" in [pod.spec.get("preemptionPolicy") for pod in pods]


def nominated(base: Snapshot, refused: Decision, preemptor: Preemptor, victims: Victims) -> Decision | None:
    """Nominate the members to places free after the evictions; None if there are none. Raises UnansweredError."""
    after_evictions = without_pods(base, [pod for unit in victims.units for pod in unit.leaving])
    attempt = FeasibilityOracle(Preemptor(preemptor.info, victims.places)).place(after_evictions, victims.fit)
    if attempt is None:
        return None
    evictions = tuple(eviction for unit in victims.units for eviction in unit.evictions())
    message = WAITING_FOR_ROOM if preemptor.info.key is not None else refused.message
    return nominated_decision(refused, attempt.outcomes, evictions, message)
