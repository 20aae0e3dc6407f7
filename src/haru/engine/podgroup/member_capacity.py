"""Count how many members fit on the nodes, one node at a time, for many eviction dry runs on nearly the same cluster.

When no device that members request is visible from two nodes, a node's capacity depends only on which candidates the
dry run removed from it. So each such state of each node is computed once, and a new dry run costs only the nodes that
it changes: equal members add up, members of several classes need the sums of `MultiClassPacking`.
Source: our own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import count

from haru.engine.dra.errors import AllocationError
from haru.engine.framework.options import Options
from haru.engine.plugins.dynamicresources.prefilter import DeviceDemand
from haru.engine.plugins.volumebinding.volume_matcher import late_claims
from haru.engine.podgroup.equal_members import members_with_demands
from haru.engine.podgroup.multi_class_packing import MemberClass, MultiClassPacking, Vector
from haru.engine.podgroup.placement_search import depends_on_others, member_classes
from haru.engine.podgroup.podgroup_info import PodGroupInfo
from haru.engine.podgroup.search_budget import OutOfBudgetError, SearchBudget, UnansweredError, gave_up
from haru.engine.preemption.dry_run import EvictionDryRun
from haru.engine.state.cache import Snapshot
from haru.engine.state.decision import Reason
from haru.engine.state.overlay import Overlay
from haru.engine.state.pod_info import PodInfo


class MemberCapacity(MultiClassPacking):
    """Cache each node's member capacity by the candidates that the dry run removed from it."""

    def __init__(
        self, overlay: Overlay, options: Options, classes: Sequence[MemberClass], nodes: Sequence[str]
    ) -> None:
        super().__init__(overlay, options, SearchBudget(options.budgets.placement_budget), classes, nodes)
        self._base_overlay = self._current_overlay = overlay
        self._single_class = len(classes) == 1
        self.classes = classes
        self._combinations_by_state: dict[tuple[str, tuple[int, ...]], tuple[Vector, ...]] = {}
        self._committed_counts: dict[str, int] = {}
        self._barren: set[str] = set()
        """Nodes that take no member of any class, until they change for good."""
        self._tentative: Collection[str] | None = None
        """While classes are packed: the nodes that may change back."""
        self._dry_run: EvictionDryRun | None = None
        self._uncertain = False

    def use_dry_run(self, dry_run: EvictionDryRun) -> None:
        """Count on the nodes as this dry run leaves them from now on."""
        self._dry_run = dry_run
        self._combinations_by_state = {}
        self._committed_counts = {}
        self._barren = set()

    def keep(self, nodes: Iterable[str]) -> None:
        """Drop the committed counts of nodes that changed for good."""
        for name in nodes:
            self._committed_counts.pop(name, None)
            self._barren.discard(name)

    def max_members(self, nodes: Sequence[str], enough: int, tentative: Collection[str]) -> int:
        """Count the members that fit on some nodes, up to `enough`; changes of `touched` nodes are tentative.

        Raises UnansweredError.
        """
        assert self._dry_run is not None
        budget = SearchBudget(self._options.budgets.placement_budget)
        self._current_overlay = Overlay(self._dry_run.snapshot())
        self.use_overlay(self._current_overlay, budget)
        try:
            if self._single_class:
                found = self._sum(nodes, enough, tentative)
            else:
                found = self._best_sum(nodes, enough, tentative)
        except OutOfBudgetError:
            raise UnansweredError(gave_up(self._options.budgets.placement_budget, enough)) from None
        except AllocationError as error:
            raise UnansweredError(Reason("SelectorError", str(error))) from error
        self._uncertain |= budget.unproven
        if found < enough and self._uncertain:
            raise UnansweredError(gave_up(self._options.budgets.step_budget, enough))
        return found

    def count(self, name: str) -> int:
        """Count the members of a single class that fit on one node in the dry run's current state.

        Raises AllocationError, and OutOfBudgetError where a no would not be proven.
        """
        assert self._dry_run is not None
        if (name, self._dry_run.removed_on(name)) not in self._combinations_by_state:
            budget = SearchBudget(self._options.budgets.placement_budget)
            self._current_overlay = Overlay(self._dry_run.snapshot())
            self.use_overlay(self._current_overlay, budget)
            self.combinations(name)
            if budget.unproven:
                raise OutOfBudgetError
        vectors = self.combinations(name)
        return vectors[0][0] if vectors else 0

    def usable_nodes(self, nodes: Sequence[str]) -> tuple[str, ...]:
        """Return the nodes that take at least one member in the dry run's current state, as far as is known.

        Raises UnansweredError.
        """
        try:
            return tuple([name for name in nodes if self.combinations(name)])
        except OutOfBudgetError:
            return tuple(nodes)
        except AllocationError as error:
            raise UnansweredError(Reason("SelectorError", str(error))) from error

    def combinations(self, name: str) -> tuple[Vector, ...]:
        """Return the largest combinations of classes that a node takes."""
        assert self._dry_run is not None
        key = (name, self._dry_run.removed_on(name))
        found = self._combinations_by_state.get(key)
        if found is None:
            # A node without removals is as in the base: its devices are visible from no other node.
            self._overlay = self._current_overlay if key[1] else self._base_overlay
            found = self._combinations_by_state[key] = super().combinations(name)
        if not found and self._tentative is not None and name not in self._tentative:
            self._barren.add(name)
        return found

    def _best_sum(self, nodes: Sequence[str], enough: int, tentative: Collection[str]) -> int:
        """Pack members of several classes; most nodes take none, and are passed over until they change for good."""
        self._tentative = tentative
        try:
            worth = (name for name in nodes if name not in self._barren or name in tentative)
            return sum(self.best(enough, worth).vector)
        finally:
            self._tentative = None

    def _sum(self, nodes: Sequence[str], enough: int, tentative: Collection[str]) -> int:
        total, left = 0, []
        for name in nodes:
            known = self._committed_counts.get(name) if name not in tentative else None
            if known is None:
                left.append(name)
            else:
                total += known
        for name in left:
            if total >= enough:
                break
            vectors = self.combinations(name)
            count = vectors[0][0] if vectors else 0
            if name not in tentative:
                self._committed_counts[name] = count
            total += count
        return total


def member_capacity_for(base: Snapshot, info: PodGroupInfo, nodes: Sequence[str]) -> MemberCapacity | None:
    """A member capacity for members that can be counted; None where nodes' answers may depend on each other."""
    overlay, options = Overlay(base), info.options
    runs: list[list[tuple[int, PodInfo, DeviceDemand]]] = []
    numbers = count()
    last: PodInfo | None = None
    for run, demands in members_with_demands(overlay, info.members, info.group, options):
        pods, demand = run.pods, demands[0]
        # Why a claim cannot be used, or where an allocated one ties the pod to, may end with the pods that use it.
        if isinstance(demand, Reason) or demand.fixed or late_claims(base, pods[0]):
            return None
        # Rules between pods see no more of a pod than its shape and its labels.
        for pod in run.by_labels:
            if last is None or pod.shape != last.shape or pod.labels != last.labels:
                if depends_on_others(overlay, pod):
                    return None
                last = pod
        if demand.extended is not None and demand.extended.existing is not None:
            return None
        plain = [one for one in demands if not isinstance(one, Reason)]
        runs.append(list(zip(numbers, pods, plain, strict=False)))
    if len(runs) > 1:  # members of one run share no claim
        paths = [use.path for run in runs for _, _, demand in run for use in demand.pending]
        if len(set(paths)) != len(paths):
            return None
    capacity = MemberCapacity(overlay, options, member_classes(overlay, runs, options), nodes)
    return capacity if capacity.confined() else None
