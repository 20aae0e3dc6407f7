"""Define the error for a scheduling question that the budget or a failure left without a proven answer."""

from __future__ import annotations

from haru.engine.state.decision import Reason


class UnansweredError(Exception):
    """Raised when the engine can prove neither yes nor no; `reason` says why."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason.message)
        self.reason = reason


def gave_up(questions: int, wanted: int) -> Reason:
    """Build the reason for a placement search that ran out of budget before it could prove infeasibility."""
    message = f"gave up after {questions} questions to nodes in search of places for {wanted} members"
    return Reason("GaveUp", message, {"budget": questions, "needed": wanted})
