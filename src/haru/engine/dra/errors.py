"""What the allocator answers when it is not with results.

AllocationError     the attempt must be aborted: a request or selector is wrong, whatever the node
GaveUp              the step budget ran out; to be tried again with a larger one, never "does not fit"
"""

from __future__ import annotations


class AllocationError(Exception):
    """The scheduling attempt is to be aborted, on every node; worded as Kubernetes 1.36 does."""


class GaveUp(Exception):
    """The search reached its step budget before it had an answer."""

    def __init__(self, steps: int) -> None:
        super().__init__(f"gave up after {steps} steps of the device search; try again with a larger step budget")
        self.steps = steps
