"""The exact question of preemption: how many members of a group have places at once, in the best domain.

Every answer is proven. Where the search for places gives up, or an attempt goes wrong, the question has no answer, and
nobody is evicted on a guess.
Source: KEP-4671, KEP-5732; our own in that it is exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from haru.engine.cluster import Snapshot
from haru.engine.decision import GroupKey, Obj, Reason
from haru.engine.groups.aggregates import Aggregates
from haru.engine.groups.attempt import Attempt, attempt_on, greedily
from haru.engine.groups.errors import UnansweredError, gave_up
from haru.engine.groups.options import Options
from haru.engine.groups.placing import Refused
from haru.engine.groups.search import search
from haru.engine.groups.topology import topology_key
from haru.engine.pods import PodInfo


@dataclass(frozen=True, slots=True)
class Preemptor:
    """Pods that want room together. `needed` of them must find a place; `places` are the sets of nodes to choose from.

    `key` and `group` are None for a single pod.
    """

    members: Sequence[PodInfo]
    key: GroupKey | None
    group: Obj | None
    needed: int
    options: Options
    places: Sequence[Sequence[str]]

    @property
    def priority(self) -> int:
        """What decides whom it may evict: the PodGroup's own priority, or the single pod's."""
        if self.group is None:
            return self.members[0].priority
        return int((self.group.get("spec") or {}).get("priority") or 0)

    @property
    def needs_company(self) -> bool:
        """Whether removing other pods may hurt it."""
        return any(_needs_company(pod) for pod in self.members)


def places(snapshot: Snapshot, key: GroupKey | None, group: Obj | None, options: Options) -> Sequence[Sequence[str]]:
    """Where a group may go: all nodes, or the nodes of one domain of its topology, by name of the domain."""
    label = topology_key(group) if options.topology else None
    if key is None or label is None:
        return (snapshot.node_names,)
    domains = Aggregates.of(snapshot, label).domains
    running = [snapshot.nodes.get(snapshot.pods[path].node) for path in snapshot.group_state(key).scheduled]
    settled = {node.labels.get(label) if node is not None else None for node in running}
    return [tuple(sorted(domains[value].nodes)) for value in sorted(domains) if not settled or settled == {value}]


class Fitting:
    """The question, put to one snapshot after the other. Every answer raises UnansweredError if it is not proven."""

    def __init__(self, preemptor: Preemptor) -> None:
        self._preemptor = preemptor
        self._places = list(preemptor.places)

    def most(self, snapshot: Snapshot) -> int:
        """How many members have places at once."""
        everybody = len(self._preemptor.members)
        best = 0
        unanswered: UnansweredError | None = None
        for nodes in self._places:
            try:
                best = max(best, self._most_on(snapshot, nodes, everybody, self._preemptor.options))
            except UnansweredError as error:
                unanswered = error
            if best == everybody:
                return best
        if unanswered is not None:
            raise unanswered
        return best

    def fits(self, snapshot: Snapshot, count: int) -> bool:
        """Whether so many members have places at once."""
        # What is found beyond the count does not matter.
        hurried = replace(self._preemptor.options, extras_budget=0)
        unanswered: UnansweredError | None = None
        for nodes in list(self._places):
            try:
                if self._most_on(snapshot, nodes, count, hurried) >= count:
                    # Where it fits it often fits again.
                    self._places.remove(nodes)
                    self._places.insert(0, nodes)
                    return True
            except UnansweredError as error:
                unanswered = error
        if unanswered is not None:
            raise unanswered
        return False

    def place(self, snapshot: Snapshot, count: int) -> Attempt | None:
        """Places for so many members, the earlier ones first; None if there are none."""
        preemptor, unanswered = self._preemptor, None
        for nodes in self._places:
            attempt = attempt_on(snapshot, preemptor.members, preemptor.group, count, preemptor.options, nodes)
            if attempt.fit >= count and not attempt.broken:
                return attempt
            if attempt.unanswered:
                unanswered = UnansweredError(_why(attempt))
        if unanswered is not None:
            raise unanswered
        return None

    def _most_on(self, snapshot: Snapshot, nodes: Sequence[str], enough: int, options: Options) -> int:
        """How many members have places on some nodes; any number from `enough` on is as good as the greatest."""
        members, group = self._preemptor.members, self._preemptor.group
        greedy = greedily(snapshot, members, group, options, nodes)
        if greedy.broken:
            raise UnansweredError(_why(greedy))
        if len(members) == 1 or greedy.fit >= enough or not (greedy.fit and nodes):
            return greedy.fit
        questions = options.placement_budget
        found = search(snapshot, members, group, enough, options, nodes, questions)
        if len(found.placed) < enough and found.problem:
            raise UnansweredError(Reason("SelectorError", found.problem))
        if len(found.placed) < enough and not found.complete:
            raise UnansweredError(gave_up(questions, enough))
        return max(greedy.fit, len(found.placed))


def _why(attempt: Attempt) -> Reason:
    if attempt.gave_up is not None:
        return attempt.gave_up
    broken = next(o for o in attempt.outcomes if isinstance(o, Refused) and o.failed)
    return broken.reasons[0]


def _needs_company(pod: PodInfo) -> bool:
    required = pod.affinity("podAffinity").get("requiredDuringSchedulingIgnoredDuringExecution")
    rules = pod.spec.get("topologySpreadConstraints") or ()
    return bool(required) or any(rule.get("whenUnsatisfiable") == "DoNotSchedule" for rule in rules)
