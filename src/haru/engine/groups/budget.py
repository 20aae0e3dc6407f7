"""The bound of a search for a group's places: so many questions to nodes, and then an honest "gave up"."""

from __future__ import annotations

from collections.abc import Callable

LOOK_UP = 500
"""After so many questions it is worth while to ask how much can be reached at all."""


class OutOfBudgetError(Exception):
    """The search asked as many questions as it may."""


class Budget:
    """Counts questions. `missed` is set when a question itself went unanswered, so that no is not proven."""

    def __init__(self, questions: int, reach: Callable[[], int] | None = None, quorum: int = 0) -> None:
        self.limit = questions
        self.left = questions
        self.missed = False
        self.ceiling: int | None = None
        """No more members than this can have places, once that was asked of `reach`; below the quorum it all ends."""
        self._reach = reach
        self._quorum = quorum

    def spend(self, questions: int = 1) -> None:
        """Account for questions, or for work that takes as long as so many."""
        if self.left < questions:
            raise OutOfBudgetError
        self.left -= questions
        if self._reach is not None and self.limit - self.left > LOOK_UP:
            reach, self._reach = self._reach, None
            self.ceiling = reach()
            if self.ceiling < self._quorum:
                raise OutOfBudgetError
