"""Bound a placement search by the number of node checks; a search without budget answers "gave up", not no."""

from __future__ import annotations

from collections.abc import Callable

from haru.engine.state.decision import Reason

BOUND_AFTER = 500
"""After so many node checks the upper bound on reachable members is worth its cost."""


class OutOfBudgetError(Exception):
    """Raised when the search has used up its node checks."""


class UnansweredError(Exception):
    """Raised when the engine can prove neither yes nor no; `reason` says why."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason.message)
        self.reason = reason


def gave_up(questions: int, wanted: int) -> Reason:
    """Build the reason for a placement search that ran out of budget before it could prove infeasibility."""
    message = f"gave up after {questions} questions to nodes in search of places for {wanted} members"
    return Reason("GaveUp", message, {"budget": questions, "needed": wanted})


class SearchBudget:
    """Count node checks. `missed` is set when a check itself gave up, so that a negative answer is no proof."""

    def __init__(self, questions: int, capacity_bound: Callable[[], int] | None = None, quorum: int = 0) -> None:
        self.limit = questions
        self.left = questions
        self.unproven = False
        self.ceiling: int | None = None
        """Upper bound on placed members, computed by `capacity_bound`; below the quorum the search ends."""
        self._capacity_bound = capacity_bound
        self._quorum = quorum

    def allow_extras(self, questions: int) -> None:
        """Leave so many node checks at most: the quorum is found, and more members are worth less."""
        self.left = min(self.left, questions)

    def spend(self, questions: int = 1) -> None:
        """Count node checks, or work that takes as long."""
        if self.left < questions:
            raise OutOfBudgetError
        self.left -= questions
        if self._capacity_bound is not None and self.limit - self.left > BOUND_AFTER:
            capacity_bound, self._capacity_bound = self._capacity_bound, None
            self.ceiling = capacity_bound()
            if self.ceiling < self._quorum:
                raise OutOfBudgetError
