"""The time in which an observer observed: who was blocked, or cut off from the API server, learns nothing of anybody.

kube-controller-manager loses its leader's Lease when it is blocked or cut off, ends, and begins with empty hands; a
controller in one process with an API server has nobody who would take its Lease away.
"""

from __future__ import annotations

from collections.abc import Callable


class ObservedTime:
    """Seconds of a clock, without those in which the observer did not look, or could not have seen anything.

    The observer calls `look` again and again. Between two looks at most `longest` seconds count, and none where
    `can_see` says no at the second one.
    """

    def __init__(self, clock: Callable[[], float], longest: float, can_see: Callable[[], bool]) -> None:
        self._clock = clock
        self._longest = longest
        self._can_see = can_see
        self._counted = 0.0
        self._looked = clock()
        self.looks = 0
        """How often the observer has looked."""

    def __call__(self) -> float:
        """The seconds so far."""
        return self._counted + min(self._clock() - self._looked, self._longest)

    def look(self) -> None:
        """The observer looks."""
        if self._can_see():
            self._counted = self()
        self._looked = self._clock()
        self.looks += 1
