"""The bound of a search for a group's places: so many questions to nodes, and then an honest "gave up"."""

from __future__ import annotations


class OutOfBudgetError(Exception):
    """The search asked as many questions as it may."""


class Budget:
    """Counts questions. `missed` is set when a question itself went unanswered, so that no is not proven."""

    def __init__(self, questions: int) -> None:
        self.limit = questions
        self.left = questions
        self.missed = False

    def spend(self, questions: int = 1) -> None:
        """Account for questions, or for work that takes as long as so many."""
        if self.left < questions:
            raise OutOfBudgetError
        self.left -= questions
