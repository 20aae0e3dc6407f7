"""The fewest nodes that have to be opened to the work, of those that are closed to it.

What a node could take at most is known by division, so nodes that would not help are left out, and mostly one question
to the scheduler is enough: whether as many of the roomiest will do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from haru.engine import Options, Snapshot
from haru.explain.diagnosis.requests import Capacity
from haru.explain.diagnosis.workload_unit import WorkloadUnit

T = TypeVar("T")


def smallest(items: Sequence[T], fits: Callable[[Sequence[T]], bool]) -> list[T]:
    """A set of items with which it fits and none of which can be done without; empty if all of them do not help."""
    if not items or not fits(items):
        return []
    kept = list(items)
    step = max(1, len(kept) // 2)
    while True:
        index = 0
        while index < len(kept):
            fewer = kept[:index] + kept[index + step :]
            if fewer and fits(fewer):
                kept = fewer
            else:
                index += step
        if step == 1:
            return kept
        step //= 2


@dataclass(frozen=True, slots=True)
class Openings:
    """Work that lacks places for some of its pods: `fit` of them have one now."""

    snapshot: Snapshot
    work: WorkloadUnit
    options: Options
    capacity: Capacity
    fit: int

    @property
    def missing(self) -> int:
        """How many pods need a place besides those that have one."""
        return max(1, self.capacity.needed - self.fit)

    def fewest(self, names: Sequence[str], opened: Callable[[Sequence[str]], Snapshot]) -> list[str]:
        """Nodes none of which can be spared, out of these; empty if opening all of them does not help."""
        useful = sorted((n for n in names if self.capacity.of(n)), key=lambda n: (-self.capacity.of(n), n))
        chosen: list[str] = []
        room = 0
        for name in useful:
            if room >= self.missing:
                break
            chosen.append(name)
            room += self.capacity.of(name)
        if room < self.missing:
            return []
        if self._fits(opened(chosen)):
            return sorted(chosen)
        # There is more to it than room: where would the work go if all were open?
        decision = self.work.decision(opened(useful), self.options)
        if decision is None or decision.status != "scheduled":
            return []
        used = {member.node for member in decision.placed}
        return sorted(smallest([n for n in useful if n in used], lambda some: self._fits(opened(some))))

    def _fits(self, snapshot: Snapshot) -> bool:
        return self.work.fits(snapshot, self.options)
