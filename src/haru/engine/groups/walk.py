"""The general search: member by member, node by node, one way to allocate after the other, going back when stuck.

It takes what the packing cannot: rules between pods, where every placement changes what the others may do, and devices
that several nodes see. It tries members in every order where order matters. Complete, but exponential, hence bounded.
What members that are alike have taken between them is looked at once, whoever of them took what.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence

from haru.engine.decision import Obj, Reason
from haru.engine.groups.alternatives import alternatives
from haru.engine.groups.asking import Decoder
from haru.engine.groups.board import Boards
from haru.engine.groups.budget import Budget
from haru.engine.groups.claimed import Given, claimed_on, too_much
from haru.engine.groups.demand import Demand, demand_of
from haru.engine.groups.options import Options
from haru.engine.groups.placing import Placed, occupy
from haru.engine.overlay import Overlay
from haru.engine.pods import PodInfo

Member = tuple[int, PodInfo]
_NODES_PER_QUESTION = 10


class Walk:
    """One search over an overlay, which is left as it was found; `best` holds the placements that it came upon."""

    def __init__(
        self,
        overlay: Overlay,
        group: Obj | None,
        options: Options,
        budget: Budget,
        nodes: Sequence[str],
        *,
        ordered: bool,
    ) -> None:
        self._overlay = overlay
        self._group = group
        self._options = options
        self._budget = budget
        self._nodes = nodes
        self._boards = Boards(overlay, options, nodes)
        self._decoder = Decoder(overlay, options)
        self._ordered = ordered
        self._kinds: dict[int, int] = {}
        """By member: which are alike, as things stood when the search began."""
        self._taken: Counter[Hashable] = Counter()
        self._exhausted: set[Hashable] = set()
        """What was taken and who was left where nothing better was to be found."""
        self.best: list[tuple[int, Placed]] = []

    def run(self, members: Sequence[Member], needed: int) -> None:
        """Search until `needed` members have places, or everything was tried. Raises OutOfBudgetError."""
        self._kinds = self._alike(members)
        self._step(list(members), [], needed)

    def _alike(self, members: Sequence[Member]) -> dict[int, int]:
        """By member: the number of its kind. Who has a claim to share is like those only who share it."""
        users: Counter[str] = Counter()
        pending: dict[int, tuple[str, ...]] = {}
        for number, pod in members:
            demand = demand_of(self._overlay, pod, self._group, self._options)
            pending[number] = () if isinstance(demand, Reason) else tuple(use.path for use in demand.pending)
            users.update(pending[number])
        known: dict[object, int] = {}
        found = {}
        for number, pod in members:
            shared = tuple(path for path in pending[number] if users[path] > 1)
            found[number] = known.setdefault((self._kind(pod), shared), len(known))
        return found

    def _step(self, remaining: list[Member], placed: list[tuple[int, Placed]], needed: int) -> bool:
        if len(placed) > len(self.best):
            self.best = list(placed)
        ceiling = self._budget.ceiling
        if len(self.best) >= needed or (ceiling is not None and len(self.best) >= ceiling):
            return True
        while remaining and len(placed) + len(remaining) > len(self.best):
            for member in self._next(remaining):
                if self._try(member, remaining, placed, needed):
                    return True
            if self._ordered:
                return False
            # Without rules between pods the order does not matter: leave the first kind of member out and go on.
            kind = self._kind(remaining[0][1])
            remaining = [member for member in remaining if self._kind(member[1]) != kind]
        return False

    def _next(self, remaining: Sequence[Member]) -> list[Member]:
        """The members that may come next: one of each kind where the order matters, else the first."""
        if not self._ordered:
            return [remaining[0]]
        kinds: dict[object, Member] = {}
        for member in remaining:
            kinds.setdefault(self._kind(member[1]), member)
        return list(kinds.values())

    def _kind(self, pod: PodInfo) -> object:
        demand = demand_of(self._overlay, pod, self._group, self._options)
        labels = tuple(sorted(pod.labels.items())) if self._ordered else ()
        return pod.shape, labels, demand.shape if isinstance(demand, Demand) else pod.key

    def _try(self, member: Member, remaining: list[Member], placed: list[tuple[int, Placed]], needed: int) -> bool:
        number, pod = member
        demand = demand_of(self._overlay, pod, self._group, self._options)
        if isinstance(demand, Reason):
            return False
        # Rules between pods are asked of every node again; otherwise only touched nodes are.
        self._budget.spend(1 + len(self._nodes) // _NODES_PER_QUESTION if self._ordered else 1)
        board = self._boards.board(pod, demand)
        if board.undecided:
            self._budget.missed = True
        rest = [other for other in remaining if other is not member]
        for name in board.ranking.best_first():
            node = self._overlay.node(name)
            pending = demand.pending_on(node)
            claims = self._decoder.claims(pending)
            self._budget.spend()
            for results in alternatives(self._overlay, self._options, self._budget, node, claims):
                given = tuple(zip(pending, results, strict=True))
                if self._too_much(pod, demand, name, given):
                    continue
                taking = (self._kinds[number], name, _devices(results))
                self._taken[taking] += 1
                state = self._state(rest)
                if state not in self._exhausted:
                    mark = self._overlay.mark()
                    outcome = occupy(self._overlay, pod, demand, name, given)
                    done = self._step(rest, [*placed, (number, outcome)], needed)
                    self._overlay.rollback(mark)
                    if done:
                        return True
                    self._exhausted.add(state)
                self._taken[taking] -= 1
        return False

    def _state(self, rest: Sequence[Member]) -> Hashable:
        """Equal where the same is taken and members that are alike are left."""
        taken = frozenset((taking, count) for taking, count in self._taken.items() if count)
        return taken, tuple(sorted(self._kinds[number] for number, _ in rest))

    def _too_much(self, pod: PodInfo, demand: Demand, name: str, given: Given) -> bool:
        """Whether the node lacks what these devices take of it themselves, at any moment."""
        claimed = claimed_on(self._overlay, pod, demand, self._overlay.node(name), given)
        return bool(claimed) and any(too_much(pod, m.node(name), claimed) for m in self._overlay.moments)


def _devices(results: Sequence[Obj]) -> Hashable:
    """The devices of some allocations, with what is consumed of them: of one that is shared maybe more than once."""
    found = [
        (r["driver"], r["pool"], r["device"], tuple(sorted((r.get("consumedCapacity") or {}).items())))
        for allocation in results
        for r in (allocation.get("devices") or {}).get("results") or ()
    ]
    return tuple(sorted(found))
