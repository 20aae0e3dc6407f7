"""Try once to place a group on some nodes: greedily first, then by search if that leaves members unplaced.

Source: KEP-4671 (the default algorithm); the search is our own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from haru.engine.podgroup.placed import Placed, assume
from haru.engine.podgroup.placement_search import FoundPlacements, rank, search_placements
from haru.engine.podgroup.podgroup_info import PodGroupInfo
from haru.engine.podgroup.schedule_one import PodPlacer, Unschedulable
from haru.engine.podgroup.search_budget import gave_up
from haru.engine.state.cache import Snapshot
from haru.engine.state.decision import Reason
from haru.engine.state.overlay import Overlay

Outcome = Placed | Unschedulable


@dataclass(frozen=True, slots=True)
class PlacementAttempt:
    """Hold each member's outcome; `gave_up` is set when the search ended without a proof."""

    outcomes: tuple[Outcome, ...]
    gave_up: Reason | None = None

    @property
    def fit(self) -> int:
        """Count the placed members."""
        return [*map(type, self.outcomes)].count(Placed)

    @property
    def numbers(self) -> list[int]:
        """Return the numbers of the placed members."""
        return [number for number, outcome in enumerate(self.outcomes) if isinstance(outcome, Placed)]

    @property
    def broken(self) -> bool:
        """Tell whether an error ended the attempt."""
        if self.fit == len(self.outcomes):
            return False
        return True in [isinstance(outcome, Unschedulable) and outcome.failed for outcome in self.outcomes]

    @property
    def unanswered(self) -> bool:
        """Tell whether the attempt proved nothing: an error ended it, or the search gave up."""
        return self.broken or self.gave_up is not None


def attempt_placement(snapshot: Snapshot, info: PodGroupInfo, nodes: Sequence[str]) -> PlacementAttempt:
    """Place as many members as possible on the nodes; at least `info.needed` if there is a way."""
    members, needed, budgets = info.members, info.needed, info.options.budgets
    greedy = place_greedily(snapshot, info, nodes)
    if len(members) == 1 or greedy.fit in (0, len(members)) or greedy.broken or not nodes:
        # When no member fits as the first one, no member fits at all.
        return greedy
    short = greedy.fit < needed
    questions = budgets.placement_budget if short else budgets.extras_budget
    found = search_placements(snapshot, info, nodes, questions, needed if short else 0, greedy.fit)
    if rank(number for number, _ in found.placed) < rank(greedy.numbers):
        return PlacementAttempt(_with_diagnoses(snapshot, info, nodes, found))
    if short and found.problem:
        return PlacementAttempt(greedy.outcomes, Reason("SelectorError", found.problem))
    if short and not found.complete and (found.ceiling is None or found.ceiling >= needed):
        return PlacementAttempt(greedy.outcomes, gave_up(questions, needed))
    return greedy


def place_greedily(
    snapshot: Snapshot, info: PodGroupInfo, nodes: Sequence[str], *, asked_again: bool = False
) -> PlacementAttempt:
    """Place the members in order, each on the best node in the state that the earlier ones leave.

    `asked_again`: later attempts are likely to be for the same nodes.
    """
    placer = PodPlacer(Overlay(snapshot), info.group, info.options, nodes, asked_again=asked_again)
    return PlacementAttempt(tuple(placer.place_all(info.members)))


def _with_diagnoses(
    snapshot: Snapshot, info: PodGroupInfo, nodes: Sequence[str], found: FoundPlacements
) -> tuple[Outcome, ...]:
    """Keep the placements of the search, and diagnose the other members beside them."""
    overlay = Overlay(snapshot)
    outcomes: dict[int, Outcome] = {number: assume(overlay, placed) for number, placed in found.placed}
    placer = PodPlacer(overlay, info.group, info.options, nodes)
    for number, pod in enumerate(info.members):
        if number not in outcomes:
            outcomes[number] = placer.place(pod)
    return tuple(outcomes[number] for number in range(len(info.members)))
