"""Search other placements of the whole group when the greedy pass leaves members unplaced.

The search first branches over shared claims: every way to allocate them leaves a smaller problem in which members must
go where the claim is usable. It packs each of those exactly, or backtracks where packing does not apply.
Source: our own; 1.36 has no search across members.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from haru.engine.dra.errors import AllocationError
from haru.engine.dra.node_mappings import counts_against_node
from haru.engine.framework.options import Options
from haru.engine.plugins.dynamicresources.pod_claims import ClaimUse
from haru.engine.plugins.dynamicresources.prefilter import (
    DeviceDemand,
    can_be_reserved,
    counts_devices,
    device_demand_of,
)
from haru.engine.plugins.helper.topology_domains import HOSTNAME
from haru.engine.plugins.interpodaffinity.filter import inter_pod_rules
from haru.engine.plugins.volumebinding.volume_matcher import late_claims
from haru.engine.plugins.volumerestrictions.plugin import sole_claims
from haru.engine.podgroup.allocation_alternatives import allocation_alternatives
from haru.engine.podgroup.backtracking_search import BacktrackingSearch
from haru.engine.podgroup.domain_prefilter import capacity_bounds_of
from haru.engine.podgroup.domain_totals import DeviceTotals, DomainTotals, free_on
from haru.engine.podgroup.filter_node import decoded_claims, lasting_filters
from haru.engine.podgroup.multi_class_packing import MemberClass, MultiClassPacking
from haru.engine.podgroup.placed import Placed
from haru.engine.podgroup.podgroup_info import PodGroupInfo
from haru.engine.podgroup.podgroup_request import podgroup_request_of
from haru.engine.podgroup.search_budget import OutOfBudgetError, SearchBudget
from haru.engine.state.cache import Snapshot
from haru.engine.state.decision import Reason
from haru.engine.state.overlay import Overlay
from haru.engine.state.pod_info import PodInfo
from haru.kube.meta import Obj


def capacity_upper_bound(snapshot: Snapshot, info: PodGroupInfo, nodes: Sequence[str]) -> int:
    """Return an upper bound on how many members fit on the nodes together."""
    request, _, _ = podgroup_request_of(snapshot, info)
    free = [free_on(snapshot.nodes[name]) for name in nodes]
    resources, devices = capacity_bounds_of(request)
    max_members = request.total
    for name, bound in resources.items():
        max_members = min(max_members, bound.max_members(sum(amounts.get(name, 0) for amounts in free)))
    domain_totals = DomainTotals.of(snapshot, HOSTNAME)
    for key, bound in devices.items():
        there = DeviceTotals.of(snapshot, domain_totals, request.asks[key], info.options.features).on_any(nodes)
        max_members = min(max_members, bound.max_members(there))
        if bound.max_members(there - request.shared[key]) < info.needed:
            max_members = min(max_members, info.needed - 1)  # fewer than needed may do without the shared claims
    return max_members


@dataclass(frozen=True, slots=True)
class FoundPlacements:
    """Hold the best placements found, by member number; `complete`: whether nothing better exists.

    `problem` is the permanent error of an allocation on the way (a selector that cannot be evaluated on a device).
    """

    placed: tuple[tuple[int, Placed], ...]
    complete: bool
    problem: str = ""
    ceiling: int | None = None
    """Upper bound on the number of placed members, if the search computed it."""


def search_placements(
    snapshot: Snapshot, info: PodGroupInfo, nodes: Sequence[str], questions: int, quorum: int = 0, beat: int = 0
) -> FoundPlacements:
    """Search placements for as many members as possible, if more than `beat`; report infeasibility only with proof.

    The search ends early when all members are placed, or when fewer than `quorum` members can have places.
    """
    capacity_bound = partial(capacity_upper_bound, snapshot, info, nodes)
    budget = SearchBudget(questions, capacity_bound, quorum)
    attempt = _Search(Overlay(snapshot), info, nodes, budget, beat)
    try:
        attempt.run()
        complete = not budget.unproven
    except OutOfBudgetError:
        complete = False
    except AllocationError as error:
        return FoundPlacements(tuple(attempt.best), False, str(error), budget.ceiling)
    if budget.ceiling is not None and len(attempt.best) >= budget.ceiling:
        complete = True
    return FoundPlacements(tuple(attempt.best), complete, "", budget.ceiling)


_Member = tuple[int, PodInfo, DeviceDemand]


class _Search:
    def __init__(
        self,
        overlay: Overlay,
        info: PodGroupInfo,
        nodes: Sequence[str],
        budget: SearchBudget,
        beat: int,
    ) -> None:
        self._overlay = overlay
        self._info = info
        self._members = list(enumerate(info.members))
        self._group = info.group
        self._options = info.options
        self._nodes = nodes
        self.budget = budget
        self._beat = beat
        self.best: list[tuple[int, Placed]] = []

    def run(self) -> None:
        pods = [pod for _, pod in self._members]
        if any(depends_on_others(self._overlay, pod) for pod in pods):
            self._backtrack(self._members, ordered=True)
        else:
            self._branch(list(_shared_claims(self._uses())), self._members)

    @property
    def _done(self) -> bool:
        return len(self.best) == len(self._members)

    def _uses(self) -> Iterator[ClaimUse]:
        for _, pod in self._members:
            demand = device_demand_of(self._overlay, pod, self._group, self._options)
            if not isinstance(demand, Reason):
                yield from demand.pending

    def _branch(self, shared: Sequence[ClaimUse], members: list[tuple[int, PodInfo]]) -> None:
        """Allocate the first shared claim in every distinct way, then the others, then pack the members."""
        if not shared:
            self._pack(members)
            return
        first, rest = shared[0], shared[1:]
        claims = decoded_claims(self._overlay, self._options, [first])
        tried: set[Hashable] = set()
        for name in self._nodes:
            for results in allocation_alternatives(
                self._overlay, self._options, self.budget, self._overlay.node(name), claims
            ):
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
        without = [entry for entry in members if not self._uses_claim(entry[1], first.path)]
        if len(without) >= len(self.best):
            self._branch([use for use in rest if any(self._uses_claim(p, use.path) for _, p in without)], without)

    def _uses_claim(self, pod: PodInfo, path: str) -> bool:
        demand = device_demand_of(self._overlay, pod, self._group, self._options)
        return not isinstance(demand, Reason) and any(use.path == path for use in demand.uses)

    def _pack(self, members: list[tuple[int, PodInfo]]) -> None:
        known = self._with_demands(members)
        able = self._with_reservations(known)
        classes = member_classes(self._overlay, [[one] for one in able], self._options)
        packing = MultiClassPacking(self._overlay, self._options, self.budget, classes, self._nodes)
        if not packing.confined() or self._share_exclusive_claim(members) or self._bind_volumes(members):
            self._backtrack(members, ordered=False)
            return
        chosen = packing.best(len(members))
        if len(able) < len(known) and sum(chosen.vector) < self._info.needed <= len(able):
            self.budget.unproven = True  # others of them might have fitted
        if sum(chosen.vector) >= len(self.best):
            mark = self._overlay.mark()
            self._keep(packing.assume_all(chosen))
            self._overlay.rollback(mark)

    def _share_exclusive_claim(self, members: list[tuple[int, PodInfo]]) -> bool:
        """Tell whether several members use one allocated claim that only one of them may use (KEP-5517)."""
        if not counts_devices(self._overlay.snapshot, self._options):
            return False
        demands = (device_demand_of(self._overlay, pod, self._group, self._options) for _, pod in members)
        fixed = [pair for demand in demands if not isinstance(demand, Reason) for pair in demand.fixed]
        counts = Counter(path for path, _ in fixed)
        devices = self._overlay.snapshot.devices
        return any(counts[path] > 1 and counts_against_node(devices, allocation) for path, allocation in fixed)

    def _bind_volumes(self, members: list[tuple[int, PodInfo]]) -> bool:
        """Tell whether volumes that members take are lost for others."""
        return any(late_claims(self._overlay.snapshot, pod) for _, pod in members if pod.volume_claims)

    def _backtrack(self, members: list[tuple[int, PodInfo]], *, ordered: bool) -> None:
        beat = max(self._beat, len(self.best))
        search = BacktrackingSearch(self._overlay, self._info, self.budget, self._nodes, ordered=ordered, beat=beat)
        try:
            search.run(members)
        finally:
            self._keep(search.best)

    def _with_demands(self, members: Sequence[tuple[int, PodInfo]]) -> list[_Member]:
        demands = (
            (number, pod, device_demand_of(self._overlay, pod, self._group, self._options)) for number, pod in members
        )
        return [(number, pod, demand) for number, pod, demand in demands if not isinstance(demand, Reason)]

    def _with_reservations(self, members: list[_Member]) -> list[_Member]:
        """Return the members for which all allocated claims can be reserved together, the first ones if not all."""
        consumers: dict[str, set[str]] = {}
        able = []
        for member in members:
            demand = member[2]
            fixed = {path for path, _ in demand.fixed}
            joined = [use for use in demand.uses if use.path in fixed]
            if all(can_be_reserved(use, consumers.get(use.path, ())) for use in joined):
                able.append(member)
                for use in joined:
                    known = consumers.setdefault(use.path, set(self._overlay.consumers(use.path)))
                    known.update(() if use.is_reserved else (use.consumer,))
        return able

    def _keep(self, placed: Sequence[tuple[int, Placed]]) -> None:
        """Keep a result if it is better. Claims allocated ahead of their users go to the first user."""
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
        if len(kept) >= self._info.needed:
            self.budget.allow_extras(self._options.budgets.extras_budget)


def depends_on_others(overlay: Overlay, pod: PodInfo) -> bool:
    """Tell whether filter results for a pod depend on pods on other nodes."""
    if pod.inter_pod or sole_claims(overlay.snapshot, pod):
        return True
    return any(inter_pod_rules(state, pod) is not None for state in overlay.passes)


def member_classes(
    overlay: Overlay, runs: Iterable[Sequence[tuple[int, PodInfo, DeviceDemand]]], options: Options
) -> list[MemberClass]:
    """Group members by class; those of a run equal each other. Members that PreFilter rejects are left out."""
    classes: dict[Hashable, MemberClass | None] = {}
    previous: tuple[str, DeviceDemand, MemberClass | None] | None = None
    for run in runs:
        _, pod, demand = run[0]
        plain = not (demand.fixed or demand.extended)
        if previous is not None and plain and previous[0] == pod.shape and demand.asks_like(previous[1]):
            # Equal to the one before, the common case: no need to build the demand's key.
            chosen = previous[2]
        else:
            key = (pod.shape, demand.shape)
            chosen = classes.get(key)
            if chosen is None:
                plan = lasting_filters(overlay, pod, demand, options)
                chosen = classes[key] = MemberClass(plan, demand) if plan.rejection is None else None
            previous = (pod.shape, demand, chosen) if plain else None
        if chosen is not None:
            chosen.members += run
    return [chosen for chosen in classes.values() if chosen is not None]


def rank(numbers: Iterable[int]) -> tuple[int, list[int]]:
    """Return a sort key, smaller is better: more members, and for equal counts the earlier ones."""
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
