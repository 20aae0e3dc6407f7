"""Hold what nodes answer to one kind of pod: which of them take it, what the others say, and how they rank."""

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
    """A node that takes the pod, with the allocations that it would give, or the supply's answer that stands for them.

    Nodes with the same answer have devices that look alike to the claims.
    """

    allocations: Sequence[Obj] = ()
    answer: Solution | None = None


class FilterSummary(NamedTuple):
    """What all refusals come to: one message, its reasons, who refused, and the failures of each node."""

    message: str
    reasons: tuple[Reason, ...]
    plugins: tuple[str, ...]
    failures: Mapping[str, Sequence[FilterFailure]]


@dataclass(slots=True)
class NodeFeasibility:
    """The answers of all nodes for one kind of pod. `devices_seen` is the place up to which it knows the supply."""

    plan: FilterPlan
    setting: PreFilterState
    ranking: ScoreIndex
    follower: ChangeCursor = field(default_factory=ChangeCursor)
    later: tuple[PreFilterState, ...] = ()
    differing: frozenset[str] = frozenset()
    devices_seen: int = -1
    summary: FilterSummary | None = None
    candidates: dict[str, FeasibleNode] = field(default_factory=dict)
    refusals: dict[str, Sequence[FilterFailure]] = field(default_factory=dict)
    undecided: dict[str, str] = field(default_factory=dict)

    def forget(self, name: str) -> None:
        """Drop what a node answered."""
        if self.candidates.pop(name, None) is not None:
            self.ranking.drop(name)
        self.refusals.pop(name, None)
        self.undecided.pop(name, None)

    def filter_failures(self, overlay: Overlay) -> dict[str, Sequence[FilterFailure]]:
        """What each node says that refuses the pod, by name."""
        if not self.setting.gated:
            return {name: self.refusals[name] for name in sorted(self.refusals)}
        found = {
            name: self.setting.filter_failures(overlay.node(name), failures) for name, failures in self.refusals.items()
        }
        closed = (name for name in self.candidates if not self.ranking.takes(name))
        found |= {name: self.setting.filter_failures(overlay.node(name), ()) for name in closed}
        return dict(sorted(found.items()))

    @property
    def size(self) -> int:
        """How many nodes have answered."""
        return len(self.candidates) + len(self.refusals) + len(self.undecided)
