"""When the greedy walk leaves members without a place: other placements of the whole group.

Claims that several members share come first: every way to allocate them opens a smaller problem, in which members are
tied to where the claim can be used. Each of those is packed exactly, or walked through where packing does not apply.
Source: our own; 1.36 has no search across members.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from haru.engine.cluster import Snapshot
from haru.engine.decision import Obj, Reason
from haru.engine.devices import AllocationError
from haru.engine.devices.mapped import counts_against_node
from haru.engine.groups.alternatives import alternatives
from haru.engine.groups.asking import decoded_claims, lasting_plan
from haru.engine.groups.budget import Budget, OutOfBudgetError
from haru.engine.groups.claims import ClaimUse
from haru.engine.groups.demand import Demand, counts_devices, demand_of
from haru.engine.groups.options import Options
from haru.engine.groups.packing import MemberClass, Packing
from haru.engine.groups.placing import Placed
from haru.engine.groups.reach import within_reach
from haru.engine.groups.walk import Walk
from haru.engine.nodes.disks import sole_claims
from haru.engine.nodes.interpod import inter_pod_rules
from haru.engine.overlay import Overlay
from haru.engine.pods import PodInfo


@dataclass(frozen=True, slots=True)
class Found:
    """The best that a search found, by member number, and whether nothing better exists.

    `problem` is what made an allocation fail for good on the way (a selector that cannot be evaluated on a device).
    """

    placed: tuple[tuple[int, Placed], ...]
    complete: bool
    problem: str = ""
    ceiling: int | None = None
    """No more members than this can have places, if the search asked."""


def search(
    snapshot: Snapshot,
    members: Sequence[PodInfo],
    group: Obj | None,
    needed: int,
    options: Options,
    nodes: Sequence[str],
    questions: int,
    quorum: int = 0,
) -> Found:
    """Look for places for as many members as possible. Ends early when all have one; never says no without proof.

    With a `quorum` it also ends once it is known that fewer members can have places.
    """
    reach = partial(within_reach, snapshot, members, group, needed, options, nodes)
    budget = Budget(questions, reach, quorum)
    attempt = _Search(Overlay(snapshot), list(enumerate(members)), group, needed, options, nodes, budget)
    try:
        attempt.run()
        complete = not budget.missed
    except OutOfBudgetError:
        complete = False
    except AllocationError as error:
        return Found(tuple(attempt.best), False, str(error), budget.ceiling)
    if budget.ceiling is not None and len(attempt.best) >= budget.ceiling:
        complete = True
    return Found(tuple(attempt.best), complete, "", budget.ceiling)


class _Search:
    def __init__(
        self,
        overlay: Overlay,
        members: list[tuple[int, PodInfo]],
        group: Obj | None,
        needed: int,
        options: Options,
        nodes: Sequence[str],
        budget: Budget,
    ) -> None:
        self._overlay = overlay
        self._members = members
        self._group = group
        self._needed = needed
        self._options = options
        self._nodes = nodes
        self.budget = budget
        self.best: list[tuple[int, Placed]] = []

    def run(self) -> None:
        pods = [pod for _, pod in self._members]
        if any(depends_on_others(self._overlay, pod) for pod in pods):
            self._walk(self._members, ordered=True)
        else:
            self._branch(list(_shared_claims(self._uses())), self._members)

    @property
    def _done(self) -> bool:
        return len(self.best) == len(self._members)

    def _uses(self) -> Iterator[ClaimUse]:
        for _, pod in self._members:
            demand = demand_of(self._overlay, pod, self._group, self._options)
            if not isinstance(demand, Reason):
                yield from demand.pending

    def _branch(self, shared: Sequence[ClaimUse], members: list[tuple[int, PodInfo]]) -> None:
        """Allocate the first of the shared claims in every way that differs, then the others, then pack."""
        if not shared:
            self._pack(members)
            return
        first, rest = shared[0], shared[1:]
        claims = decoded_claims(self._overlay, self._options, [first])
        tried: set[Hashable] = set()
        for name in self._nodes:
            for results in alternatives(self._overlay, self._options, self.budget, self._overlay.node(name), claims):
                key = _devices(results[0])
                if key in tried:
                    continue
                tried.add(key)
                mark = self._overlay.mark()
                self._overlay.allocate(first.path, results[0])
                self._branch(rest, members)
                self._overlay.rollback(mark)
                if self._done:
                    return
        without = [entry for entry in members if not self._wants(entry[1], first.path)]
        if len(without) >= len(self.best):
            self._branch([use for use in rest if any(self._wants(p, use.path) for _, p in without)], without)

    def _wants(self, pod: PodInfo, path: str) -> bool:
        demand = demand_of(self._overlay, pod, self._group, self._options)
        return not isinstance(demand, Reason) and any(use.path == path for use in demand.uses)

    def _pack(self, members: list[tuple[int, PodInfo]]) -> None:
        packing = Packing(self._overlay, self._options, self.budget, self._classes(members), self._nodes)
        if not packing.confined() or self._contested(members):
            self._walk(members, ordered=False)
            return
        chosen = packing.best(len(members))
        if sum(chosen.vector) >= len(self.best):
            mark = self._overlay.mark()
            self._keep(packing.realise(chosen))
            self._overlay.rollback(mark)

    def _contested(self, members: list[tuple[int, PodInfo]]) -> bool:
        """Whether members want one allocated claim that only one of them may use (KEP-5517)."""
        if not counts_devices(self._overlay.snapshot, self._options):
            return False
        demands = (demand_of(self._overlay, pod, self._group, self._options) for _, pod in members)
        fixed = [pair for demand in demands if not isinstance(demand, Reason) for pair in demand.fixed]
        counts = Counter(path for path, _ in fixed)
        devices = self._overlay.snapshot.devices
        return any(counts[path] > 1 and counts_against_node(devices, allocation) for path, allocation in fixed)

    def _walk(self, members: list[tuple[int, PodInfo]], *, ordered: bool) -> None:
        walk = Walk(self._overlay, self._group, self._options, self.budget, self._nodes, ordered=ordered)
        try:
            walk.run(members, self._needed)
        finally:
            self._keep(walk.best)

    def _classes(self, members: Sequence[tuple[int, PodInfo]]) -> list[MemberClass]:
        demands = ((number, pod, demand_of(self._overlay, pod, self._group, self._options)) for number, pod in members)
        known = [(number, pod, demand) for number, pod, demand in demands if not isinstance(demand, Reason)]
        return member_classes(self._overlay, known, self._options)

    def _keep(self, placed: Sequence[tuple[int, Placed]]) -> None:
        """Remember an answer if it is better. Claims that were allocated ahead of their users go to the first user."""
        if rank(number for number, _ in placed) >= rank(number for number, _ in self.best):
            return
        given: set[str] = {use.path for _, outcome in placed for use, _ in outcome.allocations}
        kept: list[tuple[int, Placed]] = []
        for number, outcome in placed:
            ahead = [u for u in outcome.joined if u.path not in given and self._overlay.allocation(u.path)]
            if ahead:
                given |= {use.path for use in ahead}
                added = tuple((use, self._overlay.allocation(use.path) or {}) for use in ahead)
                joined = tuple(use for use in outcome.joined if use not in ahead)
                outcome = replace(outcome, allocations=(*outcome.allocations, *added), joined=joined)
            kept.append((number, outcome))
        self.best = kept
        if len(kept) >= self._needed:
            # The quorum is found: what is left to find is worth less.
            self.budget.left = min(self.budget.left, self._options.extras_budget)


def depends_on_others(overlay: Overlay, pod: PodInfo) -> bool:
    """Whether what a node says to a pod depends on pods on other nodes."""
    if pod.inter_pod or sole_claims(overlay.snapshot, pod):
        return True
    return any(inter_pod_rules(moment, pod) is not None for moment in overlay.moments)


def member_classes(
    overlay: Overlay, members: Iterable[tuple[int, PodInfo, Demand]], options: Options
) -> list[MemberClass]:
    """Members by class; those that are rejected everywhere are left out."""
    classes: dict[Hashable, MemberClass | None] = {}
    before: tuple[str, Sequence[Obj], MemberClass | None] | None = None
    for number, pod, demand in members:
        specs = [use.claim.get("spec") or {} for use in demand.pending]
        plain = not (demand.fixed or demand.extended)
        if before is not None and plain and before[0] == pod.shape and before[1] == specs:
            # Like the one before, which is the common case: there is no need to write down what it asks for.
            chosen = before[2]
        else:
            key = (pod.shape, demand.shape)
            chosen = classes.get(key)
            if chosen is None:
                plan = lasting_plan(overlay, pod, demand, options)
                chosen = classes[key] = MemberClass(plan, demand) if plan.rejection is None else None
            before = (pod.shape, specs, chosen) if plain else None
        if chosen is not None:
            chosen.members.append((number, pod, demand))
    return [chosen for chosen in classes.values() if chosen is not None]


def rank(numbers: Iterable[int]) -> tuple[int, list[int]]:
    """Smaller is better: more members, and among as many the earlier ones."""
    placed = sorted(numbers)
    return -len(placed), placed


def _shared_claims(uses: Iterator[ClaimUse]) -> Iterator[ClaimUse]:
    found = list(uses)
    counts = Counter(use.path for use in found)
    seen: set[str] = set()
    for use in found:
        if counts[use.path] > 1 and use.path not in seen:
            seen.add(use.path)
            yield use


def _devices(allocation: Obj) -> Hashable:
    results = (allocation.get("devices") or {}).get("results") or ()
    chosen = tuple((r["request"], r["driver"], r["pool"], r["device"]) for r in results)
    return chosen, repr(allocation.get("nodeSelector"))
