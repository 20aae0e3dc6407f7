"""Hold the results of filtering and scoring the nodes for the pods of one signature."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from haru.engine.dra.allocator.allocation import Solution
from haru.engine.equivalence.prefilter_state import PreFilterState
from haru.engine.equivalence.score_index import ScoreIndex
from haru.engine.framework.filter_plan import FilterPlan
from haru.engine.framework.status import FilterFailure
from haru.engine.state.change_cursor import ChangeCursor
from haru.engine.state.decision import Obj, Reason
from haru.engine.state.overlay import Overlay


@dataclass(frozen=True, slots=True)
class FeasibleNode:
    """A node that takes the pod: its allocations, or the answer of the allocator that they follow from.

    Nodes with one answer have devices that the claims cannot tell apart.
    """

    allocations: Sequence[Obj] = ()
    answer: Solution | None = None


class FilterSummary(NamedTuple):
    """Sum up all refusals: one message, its reasons, the plugins, and the failures of each node."""

    message: str
    reasons: tuple[Reason, ...]
    plugins: tuple[str, ...]
    failures: Mapping[str, Sequence[FilterFailure]]


@dataclass(slots=True)
class NodeFeasibility:
    """The results of all nodes for pods of one signature.

    `devices_position`: the changes of devices that are counted in (`DeviceFeasibilityCache.position`).
    """

    plan: FilterPlan
    prefilter: PreFilterState
    ranking: ScoreIndex
    cursor: ChangeCursor = field(default_factory=ChangeCursor)
    later_passes: tuple[PreFilterState, ...] = ()
    differing_nodes: frozenset[str] = frozenset()
    devices_position: int = -1
    summary: FilterSummary | None = None
    candidates: dict[str, FeasibleNode] = field(default_factory=dict)
    refusals: dict[str, Sequence[FilterFailure]] = field(default_factory=dict)
    undecided: dict[str, str] = field(default_factory=dict)

    def forget(self, name: str) -> None:
        """Drop the result of a node."""
        if self.candidates.pop(name, None) is not None:
            self.ranking.drop(name)
        self.refusals.pop(name, None)
        self.undecided.pop(name, None)

    def forget_all(self) -> None:
        """Drop all results."""
        for name in [*self.candidates, *self.refusals, *self.undecided]:
            self.forget(name)

    def filter_failures(self, overlay: Overlay) -> dict[str, Sequence[FilterFailure]]:
        """Return the failures of each node that refuses the pod, by name."""
        if not self.prefilter.spreads_by_key:
            return {name: self.refusals[name] for name in sorted(self.refusals)}
        found = {
            name: self.prefilter.filter_failures(overlay.node(name), failures)
            for name, failures in self.refusals.items()
        }
        closed = (name for name in self.candidates if not self.ranking.takes(name))
        found |= {name: self.prefilter.filter_failures(overlay.node(name), ()) for name in closed}
        return dict(sorted(found.items()))

    @property
    def size(self) -> int:
        """Return how many nodes have a result."""
        return len(self.candidates) + len(self.refusals) + len(self.undecided)
