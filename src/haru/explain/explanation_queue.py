"""Which waiting work is explained next: what never was, the newest first; the rest at most every 30 seconds."""

from __future__ import annotations

import heapq
from collections.abc import Container
from dataclasses import dataclass, field

UnitKey = tuple[str, str, str]
"""`pod` or `group`, the namespace and the name of what is placed together."""
AGAIN_SECONDS = 30.0
UNEXPLAINED = "", "", ""
"""The `change_key` of work of which nothing was published."""
_MOST_WAITING = 10_000


@dataclass(slots=True)
class ExplanationQueue:
    """What is to be explained: units never explained, the newest first, and others from a time on."""

    settle_seconds: float = 1.0
    """How long work has waited before it is explained: most of it starts at once."""
    new: dict[UnitKey, float] = field(default_factory=dict)
    _again: list[tuple[float, UnitKey]] = field(default_factory=list)
    _due: set[UnitKey] = field(default_factory=set)
    explained: dict[UnitKey, tuple[float, tuple[str, str, str]]] = field(default_factory=dict)
    """When a unit was explained, and what its last event was told for."""

    def add(self, key: UnitKey, now: float) -> None:
        """Have a unit explained that was refused or is held."""
        known = self.explained.get(key)
        if known is None:
            if len(self.new) < _MOST_WAITING:
                self.new.setdefault(key, now + self.settle_seconds)
        elif key not in self._due:
            self._due.add(key)
            heapq.heappush(self._again, (max(known[0] + AGAIN_SECONDS, now + self.settle_seconds), key))

    def next_due(self, now: float) -> tuple[float, UnitKey] | None:
        """The unit to explain next, and when; the newest of those that are due now."""
        soonest: tuple[float, UnitKey] | None = None
        for key in reversed(self.new):
            soonest = self.new[key], key
            if soonest[0] <= now:
                return soonest
        if self._again and (soonest is None or self._again[0][0] < soonest[0]):
            soonest = self._again[0]
        return soonest

    def take(self, key: UnitKey) -> None:
        """Take a unit out: it is being explained."""
        self.new.pop(key, None)
        if self._again and self._again[0][1] == key:
            heapq.heappop(self._again)
            self._due.discard(key)

    def forget_all_but(self, waiting: Container[UnitKey]) -> None:
        """Drop what is known of units that do not wait any more."""
        for key in [key for key in self.explained if key not in waiting]:
            del self.explained[key]
