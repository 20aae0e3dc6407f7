"""The works that wait: which is the first of the queue, whether it fits for long, and who was overtaken. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from haru.stress.history import History
from haru.stress.plan import WorkloadUnit


@dataclass(slots=True)
class _Waiting:
    unit: WorkloadUnit
    since: float


class WaitingWorks:
    """Works that were created and are not scheduled whole."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._waiting: dict[str, _Waiting] = {}
        self._head = ""
        self._fits_since: float | None = None

    def created(self, unit: WorkloadUnit, now: float) -> None:
        """The work exists."""
        self._waiting[unit.name] = _Waiting(unit, now)

    def left(self, name: str) -> None:
        """The work was deleted."""
        self._waiting.pop(name, None)

    def resume(self, now: float) -> None:
        """The API was away until now: waiting starts anew."""
        self._fits_since = None
        for waiting in self._waiting.values():
            waiting.since = now

    def __len__(self) -> int:
        return len(self._waiting)

    def needed(self, unit: WorkloadUnit) -> int:
        """How many more pods of a work must be scheduled."""
        scheduled = len(self._history.scheduled[unit.name])
        return max((unit.min_count if unit.kind == "gang" else unit.pods) - scheduled, 0)

    def tick(self, now: float, fits: Callable[[WorkloadUnit, int], bool]) -> None:
        """Take out what was scheduled, and look at who waits too long."""
        for name, waiting in list(self._waiting.items()):
            if not self.needed(waiting.unit):
                del self._waiting[name]
                self._overtaken(waiting, now)
        self._look_at_head(now, fits)

    def _overtaken(self, scheduled: _Waiting, now: float) -> None:
        for older in self._waiting.values():
            waited = now - older.since
            ahead = scheduled.since > older.since and scheduled.unit.important <= older.unit.important
            if ahead and waited > self._history.rules.starvation and scheduled.unit.covers(older.unit):
                younger = f"{scheduled.unit.name}, younger and no smaller, was scheduled"
                text = f"{older.unit.name} waits for {waited:.0f} s; {younger}"
                self._history.report("Starvation", now, older.unit.name, text)

    def _look_at_head(self, now: float, fits: Callable[[WorkloadUnit, int], bool]) -> None:
        head = first_of(self._waiting)
        if head is None or head.unit.name != self._head:
            self._head, self._fits_since = head.unit.name if head is not None else "", None
        if head is None:
            return
        if not fits(head.unit, self.needed(head.unit)):
            self._fits_since = None
        elif self._fits_since is None:
            self._fits_since = now
        elif (lasting := now - self._fits_since) > self._history.rules.fit:
            text = f"{head.unit.name} is the first of the queue and fits for {lasting:.0f} s, but is not scheduled"
            self._history.report("PodStuck", now, head.unit.name, text)


def first_of(waiting: Mapping[str, _Waiting]) -> _Waiting | None:
    """The work that a scheduler takes first: the most important, then the oldest."""
    return min(waiting.values(), key=lambda one: (not one.unit.important, one.since), default=None)
