"""One attempt to place a group on some nodes: greedily first, then by search if that leaves members out.

Source: KEP-4671 (the default algorithm); the search is our own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from haru.engine.cluster import Snapshot
from haru.engine.decision import Obj, Reason
from haru.engine.groups.options import Options
from haru.engine.groups.placing import Placed, Placer, Refused, occupy
from haru.engine.groups.search import Found, rank, search
from haru.engine.overlay import Overlay
from haru.engine.pods import PodInfo

Outcome = Placed | Refused


@dataclass(frozen=True, slots=True)
class Attempt:
    """What became of each member. `gave_up` says that the search ended before it could prove a no."""

    outcomes: tuple[Outcome, ...]
    gave_up: Reason | None = None

    @property
    def fit(self) -> int:
        """How many members have a place."""
        return sum(isinstance(outcome, Placed) for outcome in self.outcomes)

    @property
    def numbers(self) -> list[int]:
        """Which members have a place."""
        return [number for number, outcome in enumerate(self.outcomes) if isinstance(outcome, Placed)]

    @property
    def broken(self) -> bool:
        """Whether an error ended the attempt."""
        return any(isinstance(outcome, Refused) and outcome.failed for outcome in self.outcomes)

    @property
    def unanswered(self) -> bool:
        """Whether the attempt ended without an answer: by an error, or by giving up."""
        return self.broken or self.gave_up is not None


def attempt_on(
    snapshot: Snapshot,
    members: Sequence[PodInfo],
    group: Obj | None,
    needed: int,
    options: Options,
    nodes: Sequence[str],
) -> Attempt:
    """Place as many members as possible on the nodes; at least `needed` if there is a way."""
    greedy = greedily(snapshot, members, group, options, nodes)
    if len(members) == 1 or greedy.broken or greedy.fit in (0, len(members)) or not nodes:
        # Where nobody finds a place who comes first, there is no first one, and so nobody at all.
        return greedy
    short = greedy.fit < needed
    questions = options.placement_budget if short else options.extras_budget
    found = search(snapshot, members, group, needed, options, nodes, questions, needed if short else 0)
    if rank(number for number, _ in found.placed) < rank(greedy.numbers):
        return Attempt(_with_diagnoses(snapshot, members, group, options, nodes, found))
    if short and found.problem:
        return Attempt(greedy.outcomes, Reason("SelectorError", found.problem))
    if short and not found.complete and (found.ceiling is None or found.ceiling >= needed):
        message = f"gave up after {questions} questions to nodes in search of places for {needed} members"
        return Attempt(greedy.outcomes, Reason("GaveUp", message, {"budget": questions, "needed": needed}))
    return greedy


def greedily(
    snapshot: Snapshot, members: Sequence[PodInfo], group: Obj | None, options: Options, nodes: Sequence[str]
) -> Attempt:
    """Place the members one after the other, each on the node that is best for it by then."""
    placer = Placer(Overlay(snapshot), group, options, nodes)
    outcomes: list[Outcome] = []
    for pod in members:
        outcome = placer.place(pod)
        outcomes.append(outcome)
        if isinstance(outcome, Refused) and outcome.failed:
            break
    return Attempt(tuple(outcomes))


def _with_diagnoses(
    snapshot: Snapshot,
    members: Sequence[PodInfo],
    group: Obj | None,
    options: Options,
    nodes: Sequence[str],
    found: Found,
) -> tuple[Outcome, ...]:
    """The members that the search placed, and the others as they fare beside those."""
    overlay = Overlay(snapshot)
    outcomes: dict[int, Outcome] = {}
    for number, placed in found.placed:
        outcomes[number] = replay(overlay, placed)
    placer = Placer(overlay, group, options, nodes)
    for number, pod in enumerate(members):
        if number not in outcomes:
            outcomes[number] = placer.place(pod)
    return tuple(outcomes[number] for number in range(len(members)))


def replay(overlay: Overlay, placed: Placed) -> Placed:
    """Take the same place on another overlay."""
    return occupy(overlay, placed.pod, placed.demand, placed.node, placed.allocations)
