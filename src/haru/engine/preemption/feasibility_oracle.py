"""Compute exactly how many members of a group have places at once, in the best domain, for preemption.

Every result is proven. Where the placement search gives up or an attempt fails, the oracle raises UnansweredError, and
preemption evicts no pod on an unproven result.
Source: KEP-4671, KEP-5732; our own in that it is exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from haru.engine.podgroup.domain_totals import DomainTotals
from haru.engine.podgroup.placement_attempt import PlacementAttempt, attempt_placement, place_greedily
from haru.engine.podgroup.placement_search import search_placements
from haru.engine.podgroup.podgroup_info import PodGroupInfo
from haru.engine.podgroup.schedule_one import Unschedulable
from haru.engine.podgroup.search_budget import UnansweredError, gave_up
from haru.engine.state.cache import Snapshot
from haru.engine.state.decision import Reason
from haru.engine.state.pod_info import PodInfo


@dataclass(frozen=True, slots=True)
class Preemptor:
    """Hold pods that preempt together, and the disjoint sets of nodes of which one must take them."""

    info: PodGroupInfo
    places: Sequence[Sequence[str]]

    @property
    def priority(self) -> int:
        """Return the preemptor's priority: the PodGroup's own, or the single pod's."""
        if self.info.group is None:
            return self.info.members[0].priority
        return int((self.info.group.get("spec") or {}).get("priority") or 0)

    @property
    def needs_other_pods(self) -> bool:
        """Tell whether removing other pods may make it infeasible (required affinity, hard spreading)."""
        return any(_needs_other_pods(pod) for pod in self.info.members)


def node_sets(snapshot: Snapshot, info: PodGroupInfo) -> Sequence[Sequence[str]]:
    """Return the node sets that a group may use: all nodes, or one set per topology domain, sorted by domain."""
    label = info.topology_key
    if info.key is None or label is None:
        return (snapshot.node_names,)
    totals = DomainTotals.of(snapshot, label)
    running = [snapshot.nodes.get(snapshot.pods[path].node) for path in snapshot.group_state(info.key).scheduled]
    settled = {node.labels.get(label) if node is not None else None for node in running}
    return [totals.nodes_of(value) for value in totals.values if not settled or settled == {value}]


class FeasibilityOracle:
    """Test the preemptor's feasibility on snapshots. Raises UnansweredError for an unproven result."""

    def __init__(self, preemptor: Preemptor) -> None:
        self._preemptor = preemptor
        self._places = list(preemptor.places)

    def max_members(self, snapshot: Snapshot) -> int:
        """Count the members that have places at once."""
        info = self._preemptor.info
        total = len(info.members)
        best = 0
        unanswered: Reason | None = None
        for nodes in self._places:
            try:
                best = max(best, self._max_members_on(snapshot, nodes, replace(info, needed=total)))
            except UnansweredError as error:
                unanswered = error.reason
            if best == total:
                return best
        if unanswered is not None:
            raise UnansweredError(unanswered)
        return best

    def fits(self, snapshot: Snapshot, count: int) -> bool:
        """Tell whether so many members have places at once."""
        # Placing more than `count` members does not matter.
        options = self._preemptor.info.options
        options = replace(options, budgets=replace(options.budgets, extras_budget=0))
        info = replace(self._preemptor.info, needed=count, options=options)
        unanswered: Reason | None = None
        for nodes in list(self._places):
            try:
                if self._max_members_on(snapshot, nodes, info) >= count:
                    # The same node set often fits again, so try it first next time.
                    self._places.remove(nodes)
                    self._places.insert(0, nodes)
                    return True
            except UnansweredError as error:
                unanswered = error.reason
        if unanswered is not None:
            raise UnansweredError(unanswered)
        return False

    def place(self, snapshot: Snapshot, count: int) -> PlacementAttempt | None:
        """Place so many members, the earlier ones first; None if they do not fit."""
        info = replace(self._preemptor.info, needed=count)
        unanswered: Reason | None = None
        for nodes in self._places:
            attempt = attempt_placement(snapshot, info, nodes)
            if attempt.fit >= count and not attempt.broken:
                return attempt
            if attempt.unanswered:
                unanswered = _why(attempt)
        if unanswered is not None:
            raise UnansweredError(unanswered)
        return None

    def _max_members_on(self, snapshot: Snapshot, nodes: Sequence[str], info: PodGroupInfo) -> int:
        """Count the members placed on some nodes; any number from `info.needed` on is as good as the maximum."""
        enough = info.needed
        greedy = place_greedily(snapshot, info, nodes)
        if greedy.broken:
            raise UnansweredError(_why(greedy))
        if len(info.members) == 1 or greedy.fit >= enough or not (greedy.fit and nodes):
            return greedy.fit
        questions = info.options.budgets.placement_budget
        found = search_placements(snapshot, info, nodes, questions, beat=greedy.fit)
        if len(found.placed) < enough and found.problem:
            raise UnansweredError(Reason("SelectorError", found.problem))
        if len(found.placed) < enough and not found.complete:
            raise UnansweredError(gave_up(questions, enough))
        return max(greedy.fit, len(found.placed))


def _why(attempt: PlacementAttempt) -> Reason:
    if attempt.gave_up is not None:
        return attempt.gave_up
    broken = next(o for o in attempt.outcomes if isinstance(o, Unschedulable) and o.failed)
    return broken.reasons[0]


def _needs_other_pods(pod: PodInfo) -> bool:
    required = pod.affinity("podAffinity").get("requiredDuringSchedulingIgnoredDuringExecution")
    rules = pod.spec.get("topologySpreadConstraints") or ()
    return bool(required) or any(rule.get("whenUnsatisfiable") == "DoNotSchedule" for rule in rules)
