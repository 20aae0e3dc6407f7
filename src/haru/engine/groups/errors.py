"""A question that has no answer: an error, never a no."""

from __future__ import annotations

from haru.engine.decision import Reason


class UnansweredError(Exception):
    """A question went unanswered; `reason` says why."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason.message)
        self.reason = reason


def gave_up(questions: int, wanted: int) -> Reason:
    """The search for places ended before it could prove a no."""
    message = f"gave up after {questions} questions to nodes in search of places for {wanted} members"
    return Reason("GaveUp", message, {"budget": questions, "needed": wanted})
