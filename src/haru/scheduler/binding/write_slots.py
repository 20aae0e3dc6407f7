"""Bound the writes in flight; a free place goes to the write whose decision was made first.

Decisions are made faster than they are written. Places given in the order of asking would have each decision write its
claims before any decision binds a pod: the first pod of a burst would be bound with its last.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections import Counter
from contextvars import ContextVar
from types import TracebackType
from typing import Final

_MOST_DECISIONS: Final = 16
_decision: ContextVar[int] = ContextVar("decision", default=0)


class WriteSlots:
    """An asynchronous context manager around each write. What belongs to no decision goes first."""

    def __init__(self, places: int, most_decisions: int = _MOST_DECISIONS) -> None:
        self._free = places
        self._most_decisions = most_decisions
        self._asked: list[tuple[int, int, asyncio.Future[None]]] = []
        self._numbers = itertools.count(1)
        self._decisions = itertools.count(1)
        self._waiting: Counter[int] = Counter()
        self._room = asyncio.Event()
        self._room.set()

    def new_decision(self) -> None:
        """Count the writes of the running task, and of those that it starts, as one decision, later than any before."""
        _decision.set(next(self._decisions))

    @property
    def room(self) -> int:
        """How many decisions may be made before too many have writes that wait for a place; at least one."""
        return max(1, self._most_decisions - len(self._waiting))

    async def wait_for_room(self) -> None:
        """Wait until there is room for several decisions, once there was none."""
        if not self._room.is_set():
            await self._room.wait()

    async def __aenter__(self) -> None:
        if self._free:
            self._free -= 1
            return
        decision, place = _decision.get(), asyncio.get_running_loop().create_future()
        heapq.heappush(self._asked, (decision, next(self._numbers), place))
        self._count(decision, 1)
        try:
            await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():
                self._give_on()
            raise
        finally:
            self._count(decision, -1)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._give_on()

    def _give_on(self) -> None:
        while self._asked:
            place = heapq.heappop(self._asked)[2]
            if not place.done():
                place.set_result(None)
                return
        self._free += 1

    def _count(self, decision: int, more: int) -> None:
        self._waiting[decision] += more
        if not self._waiting[decision]:
            del self._waiting[decision]
        if len(self._waiting) >= self._most_decisions:
            self._room.clear()
        elif len(self._waiting) <= self._most_decisions // 2:
            self._room.set()
