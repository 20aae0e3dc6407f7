"""Whether what clients saw of one object can be explained by one order of their requests.

Each request takes effect at one moment between its beginning and its end. A request without an answer may have been
carried out or not, but only before its end: when whoever worked on it was gone.
Source: linearizability as Herlihy and Wing define it; all orders are followed at once, from one end to the next, as
Lowe's just-in-time checker does.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

Step = Callable[[Hashable, Any], Iterable[Hashable]]
"""From a state and what was asked and answered to the states that explain it: none, if it cannot have been so."""


@dataclass(frozen=True, eq=False)
class Operation:
    """A request with its answer, from one moment to another. Not `certain`: it may never have been carried out."""

    begun: float
    ended: float
    what: Any
    certain: bool = True


@dataclass(frozen=True)
class Violation:
    """The first request that no order explains, and what might have been stored when it was answered."""

    operation: Operation
    states: frozenset[Hashable]


def violation(history: Sequence[Operation], step: Step, initial: Hashable) -> Violation | None:
    """Why a history of one object is not linearizable; None if it is."""
    moments = sorted(
        [(one.begun, 0, number) for number, one in enumerate(history)]
        + [(one.ended, 1, number) for number, one in enumerate(history)]
    )
    # A configuration: what is stored, and which of the requests under way have taken effect.
    found: set[tuple[Hashable, frozenset[int]]] = {(initial, frozenset())}
    under_way: set[int] = set()
    for _, ends, number in moments:
        if not ends:
            under_way.add(number)
            continue
        found = _with_effects(found, under_way, history, step)
        under_way.discard(number)
        left = {(state, done - {number}) for state, done in found if number in done or not history[number].certain}
        if not left:
            return Violation(history[number], frozenset(state for state, _ in found))
        found = left
    return None


def _with_effects(
    known: set[tuple[Hashable, frozenset[int]]], under_way: set[int], history: Sequence[Operation], step: Step
) -> set[tuple[Hashable, frozenset[int]]]:
    """All configurations that requests under way can lead to."""
    found, new = set(known), list(known)
    while new:
        state, done = new.pop()
        for number in under_way - done:
            for after in step(state, history[number].what):
                made = (after, done | {number})
                if made not in found:
                    found.add(made)
                    new.append(made)
    return found
