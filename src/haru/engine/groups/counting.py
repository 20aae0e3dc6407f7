"""How many members fit, counted node by node, for the many questions that preemption asks of almost the same cluster.

Where nodes can be judged apart from each other, a node's answer depends on which candidates are gone from it and on
nothing else. So it is found out once for each such state of each node, and a question costs what it changes: for
members that are all alike it is a sum, for members of several classes the sums of `Packing`.
Source: our own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence

from haru.engine.clearing import Clearing
from haru.engine.cluster import Snapshot
from haru.engine.decision import Obj, Reason
from haru.engine.devices import AllocationError
from haru.engine.groups.budget import Budget, OutOfBudgetError
from haru.engine.groups.demand import Demand, demand_of
from haru.engine.groups.errors import UnansweredError, gave_up
from haru.engine.groups.options import Options
from haru.engine.groups.packing import MemberClass, Packing, Vector
from haru.engine.groups.search import depends_on_others, member_classes
from haru.engine.overlay import Overlay
from haru.engine.pods import PodInfo


class Shelf(Packing):
    """What each node takes, remembered by which candidates are gone from it."""

    def __init__(
        self, overlay: Overlay, options: Options, classes: Sequence[MemberClass], nodes: Sequence[str]
    ) -> None:
        super().__init__(overlay, options, Budget(options.placement_budget), classes, nodes)
        self._before = self._now = overlay
        self._alike = len(classes) == 1
        self.classes = classes
        self._states: dict[tuple[str, tuple[int, ...]], tuple[Vector, ...]] = {}
        self._lasting: dict[str, int] = {}
        self._clearing: Clearing | None = None
        self._uncertain = False

    def stand_on(self, clearing: Clearing) -> None:
        """Answer for the nodes as they are in a clearing from now on."""
        self._clearing = clearing
        self._states = {}
        self._lasting = {}

    def keep(self, nodes: Iterable[str]) -> None:
        """These nodes have changed for good."""
        for name in nodes:
            self._lasting.pop(name, None)

    def most(self, nodes: Sequence[str], enough: int, touched: Collection[str]) -> int:
        """How many members fit on some nodes, or any number from `enough` on; `touched` nodes are so for now only.

        Raises UnansweredError.
        """
        assert self._clearing is not None
        budget = Budget(self._options.placement_budget)
        self._now = Overlay(self._clearing.snapshot())
        self.look_at(self._now, budget)
        try:
            found = self._sum(nodes, enough, touched) if self._alike else sum(self.best(enough, nodes).vector)
        except OutOfBudgetError:
            raise UnansweredError(gave_up(self._options.placement_budget, enough)) from None
        except AllocationError as error:
            raise UnansweredError(Reason("SelectorError", str(error))) from error
        self._uncertain |= budget.missed
        if found < enough and self._uncertain:
            raise UnansweredError(gave_up(self._options.step_budget, enough))
        return found

    def count(self, name: str) -> int:
        """How many members fit on one node, if they are all alike, as the clearing is now.

        Raises AllocationError, and OutOfBudgetError where a no would not be proven.
        """
        assert self._clearing is not None
        if (name, self._clearing.gone_on(name)) not in self._states:
            budget = Budget(self._options.placement_budget)
            self._now = Overlay(self._clearing.snapshot())
            self.look_at(self._now, budget)
            self.combinations(name)
            if budget.missed:
                raise OutOfBudgetError
        vectors = self.combinations(name)
        return vectors[0][0] if vectors else 0

    def useful(self, nodes: Sequence[str]) -> tuple[str, ...]:
        """The nodes that take any member, as the clearing is now."""
        return tuple(name for name in nodes if self.combinations(name))

    def combinations(self, name: str) -> tuple[Vector, ...]:
        """The largest combinations of classes that a node takes."""
        assert self._clearing is not None
        key = (name, self._clearing.gone_on(name))
        found = self._states.get(key)
        if found is None:
            # With nobody gone from it the node is what it was: devices that nodes have for themselves are used there.
            self._overlay = self._now if key[1] else self._before
            found = self._states[key] = super().combinations(name)
        return found

    def _sum(self, nodes: Sequence[str], enough: int, touched: Collection[str]) -> int:
        total, left = 0, []
        for name in nodes:
            known = self._lasting.get(name) if name not in touched else None
            if known is None:
                left.append(name)
            else:
                total += known
        for name in left:
            if total >= enough:
                break
            vectors = self.combinations(name)
            count = vectors[0][0] if vectors else 0
            if name not in touched:
                self._lasting[name] = count
            total += count
        return total


def shelf_for(
    base: Snapshot, members: Sequence[PodInfo], group: Obj | None, options: Options, nodes: Sequence[str]
) -> Shelf | None:
    """A shelf for members that can be counted; None where nodes' answers may depend on each other."""
    overlay = Overlay(base)
    known: list[tuple[int, PodInfo, Demand]] = []
    for number, pod in enumerate(members):
        demand = demand_of(overlay, pod, group, options)
        # Why a claim cannot be used, or where an allocated one ties the pod to, may end with the pods that use it.
        if isinstance(demand, Reason) or demand.fixed or depends_on_others(overlay, pod):
            return None
        if demand.extended is not None and demand.extended.existing is not None:
            return None
        known.append((number, pod, demand))
    wanted = Counter(use.path for _, _, demand in known for use in demand.pending)
    if any(count > 1 for count in wanted.values()):
        return None
    shelf = Shelf(overlay, options, member_classes(overlay, known, options), nodes)
    return shelf if shelf.confined() else None
