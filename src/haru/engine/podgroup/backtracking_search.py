"""Search placements member by member and node by node, and backtrack when no node is left.

The search takes what the packing cannot: rules between pods, where every placement changes what other members may do,
and devices that several nodes see. Where order matters it tries members in every order. It is complete but
exponential, hence bounded by a budget. States in which equal members hold the same devices are searched once.
Source: our own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence

from haru.engine.equivalence.filter_results import FilterResultCache
from haru.engine.plugins.dynamicresources.plugin import (
    NewAllocations,
    insufficient_node_resources,
    node_allocatable_use,
)
from haru.engine.plugins.dynamicresources.prefilter import DeviceDemand, device_demand_of
from haru.engine.podgroup.allocation_alternatives import allocation_alternatives
from haru.engine.podgroup.filter_node import Decoder
from haru.engine.podgroup.placed import Placed, assume, placement_on
from haru.engine.podgroup.podgroup_info import PodGroupInfo
from haru.engine.podgroup.search_budget import SearchBudget
from haru.engine.state.decision import Reason
from haru.engine.state.overlay import Overlay
from haru.engine.state.pod_info import PodInfo
from haru.kube.meta import Obj

Member = tuple[int, PodInfo]
_NODES_PER_QUESTION = 10


class BacktrackingSearch:
    """Search placements on an overlay and leave the overlay unchanged.

    `best` holds the best placements found, of more than `beat` members.
    """

    def __init__(
        self,
        overlay: Overlay,
        info: PodGroupInfo,
        budget: SearchBudget,
        nodes: Sequence[str],
        *,
        ordered: bool,
        beat: int = 0,
    ) -> None:
        self._overlay = overlay
        self._info = info
        self._group = info.group
        self._options = info.options
        self._budget = budget
        self._nodes = nodes
        self._filter_results = FilterResultCache(overlay, info.options, nodes)
        self._decoder = Decoder(overlay, info.options)
        self._ordered = ordered
        self._total = 0
        self._beat = beat
        self._class_of_member: dict[int, int] = {}
        """The class of each member, by number, as computed when the search began."""
        self._placements: Counter[Hashable] = Counter()
        self._exhausted: set[Hashable] = set()
        """States (placements and remaining members) from which no better result is reachable."""
        self.best: list[tuple[int, Placed]] = []

    def run(self, members: Sequence[Member]) -> None:
        """Search until all members have places or all states are exhausted. Raises OutOfBudgetError."""
        self._total = len(members)
        self._class_of_member = self._member_classes(members)
        self._step(list(members), [])

    def _member_classes(self, members: Sequence[Member]) -> dict[int, int]:
        """Number each member's class. A member with a shared claim equals only members that share the same claim."""
        users: Counter[str] = Counter()
        pending: dict[int, tuple[str, ...]] = {}
        for number, pod in members:
            demand = device_demand_of(self._overlay, pod, self._group, self._options)
            pending[number] = () if isinstance(demand, Reason) else tuple(use.path for use in demand.pending)
            users.update(pending[number])
        known: dict[object, int] = {}
        found = {}
        for number, pod in members:
            shared = tuple(path for path in pending[number] if users[path] > 1)
            found[number] = known.setdefault((self._class_key(pod), shared), len(known))
        return found

    def _step(self, remaining: list[Member], placed: list[tuple[int, Placed]]) -> bool:
        if len(placed) > self._beat:
            self.best, self._beat = list(placed), len(placed)
            if len(placed) == self._info.needed:
                self._budget.allow_extras(self._options.budgets.extras_budget)
        ceiling = self._budget.ceiling
        if len(self.best) == self._total or (ceiling is not None and len(self.best) >= ceiling):
            return True
        while remaining and len(placed) + len(remaining) > self._beat:
            for member in self._next(remaining):
                if self._try(member, remaining, placed):
                    return True
            if self._ordered:
                return False
            # Without rules between pods the order does not matter: leave out the first class of members and go on.
            class_key = self._class_key(remaining[0][1])
            remaining = [member for member in remaining if self._class_key(member[1]) != class_key]
        return False

    def _next(self, remaining: Sequence[Member]) -> list[Member]:
        """Return the members to try next: one of each class where the order matters, else the first."""
        if not self._ordered:
            return [remaining[0]]
        first_by_class: dict[object, Member] = {}
        for member in remaining:
            first_by_class.setdefault(self._class_key(member[1]), member)
        return list(first_by_class.values())

    def _class_key(self, pod: PodInfo) -> object:
        demand = device_demand_of(self._overlay, pod, self._group, self._options)
        labels = tuple(sorted(pod.labels.items())) if self._ordered else ()
        return pod.shape, labels, demand.shape if isinstance(demand, DeviceDemand) else pod.key

    def _try(self, member: Member, remaining: list[Member], placed: list[tuple[int, Placed]]) -> bool:
        number, pod = member
        demand = device_demand_of(self._overlay, pod, self._group, self._options)
        if isinstance(demand, Reason):
            return False
        # With rules between pods every node is filtered again; otherwise only changed nodes are.
        self._budget.spend(1 + len(self._nodes) // _NODES_PER_QUESTION if self._ordered else 1)
        feasibility = self._filter_results.feasibility(pod, demand)
        if feasibility.undecided:
            self._budget.unproven = True
        rest = [other for other in remaining if other is not member]
        for name in feasibility.ranking.best_first():
            node = self._overlay.node(name)
            pending = demand.pending_on(node)
            claims = self._decoder.claims(pending)
            self._budget.spend()
            for results in allocation_alternatives(self._overlay, self._options, self._budget, node, claims):
                allocated = tuple(zip(pending, results, strict=True))
                if self._exceeds_node(pod, demand, name, allocated):
                    continue
                placement = (self._class_of_member[number], name, _devices(results))
                self._placements[placement] += 1
                state = self._state(rest)
                if state not in self._exhausted:
                    mark = self._overlay.mark()
                    outcome = assume(self._overlay, placement_on(self._overlay, pod, demand, name, allocated))
                    done = self._step(rest, [*placed, (number, outcome)])
                    self._overlay.rollback(mark)
                    if done:
                        return True
                    self._exhausted.add(state)
                self._placements[placement] -= 1
        return False

    def _state(self, rest: Sequence[Member]) -> Hashable:
        """Return a key that is equal for equal placements and equal classes of remaining members."""
        placements = frozenset((placement, count) for placement, count in self._placements.items() if count)
        return placements, tuple(sorted(self._class_of_member[number] for number, _ in rest))

    def _exceeds_node(self, pod: PodInfo, demand: DeviceDemand, name: str, allocated: NewAllocations) -> bool:
        """Tell whether the node lacks, in any pass, the resources that these devices take of it (KEP-5517)."""
        claimed = node_allocatable_use(self._overlay, pod, demand, self._overlay.node(name), allocated)
        return bool(claimed) and any(
            insufficient_node_resources(pod, m.node(name), claimed) for m in self._overlay.passes
        )


def _devices(results: Sequence[Obj]) -> Hashable:
    """Return the allocated devices with their consumed capacity; a shareable device may occur more than once."""
    found = [
        (r["driver"], r["pool"], r["device"], tuple(sorted((r.get("consumedCapacity") or {}).items())))
        for allocation in results
        for r in (allocation.get("devices") or {}).get("results") or ()
    ]
    return tuple(sorted(found))
