"""Waiting for a view to have come as far as a revision, and as far as etcd was when somebody asked.

Questions for the newest revision are put together: while one is on its way all who come wait for the next, which then
counts for all of them, since it is asked after they came.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Awaitable, Callable
from itertools import count

from haru.storage.interface import StoreError

LATE_SECONDS = 10.0
"""How long a view may lag before whoever waits is told."""
_FIRST_NUDGE, _NEXT_NUDGE = 0.02, 0.5


class Progress:
    """Who waits for which revision. `nudge` asks the watch how far it is; `here` tells how far it is known to be."""

    def __init__(
        self, newest: Callable[[], Awaitable[int]], nudge: Callable[[], Awaitable[None]], here: Callable[[], int]
    ) -> None:
        self._newest = newest
        self._nudge = nudge
        self._here = here
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._numbers = count()
        self._asking: asyncio.Task[int] | None = None
        self._next: asyncio.Task[int] | None = None
        self._nudging: asyncio.Task[None] | None = None

    def reached(self, revision: int) -> None:
        """The view has come as far as this."""
        while self._waiting and self._waiting[0][0] <= revision:
            _, _, future = heapq.heappop(self._waiting)
            if not future.done():
                future.set_result(None)

    async def wait(self, revision: int, seconds: float = LATE_SECONDS) -> None:
        """Return when the view has come as far as `revision`; `StoreError` when it does not in so many seconds."""
        if self._here() >= revision:
            return
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        future: asyncio.Future[None] = loop.create_future()
        heapq.heappush(self._waiting, (revision, next(self._numbers), future))
        pause = _FIRST_NUDGE
        while loop.time() < deadline:
            await asyncio.wait([future], timeout=pause)
            if future.done():
                await future
                return
            pause = _NEXT_NUDGE
            if self._nudging is None or self._nudging.done():
                self._nudging = asyncio.create_task(self._nudge_once(), name="haru etcd: nudge")
        future.cancel()
        raise StoreError(f"the watch on etcd is late: it is at revision {self._here()}, etcd is at {revision}")

    async def catch_up(self) -> None:
        """Return when the view has come as far as etcd was at the call."""
        if self._next is None:
            self._next = asyncio.create_task(self._ask(self._asking), name="haru etcd: newest revision")
            self._next.add_done_callback(_retrieved)
        # Shielded: others wait for the same answer.
        await self.wait(await asyncio.shield(self._next))

    async def _ask(self, before: asyncio.Task[int] | None) -> int:
        if before is not None:
            await asyncio.wait([before])
        self._asking, self._next = self._next, None  # who comes from here on needs a later answer
        return await self._newest()

    async def _nudge_once(self) -> None:
        try:
            await self._nudge()
        except StoreError:
            return  # who waits goes on asking, or is told that it takes too long

    def stop(self) -> None:
        """Nobody needs to wait any more."""
        for task in (self._asking, self._next, self._nudging):
            if task is not None:
                task.cancel()
        for _, _, future in self._waiting:
            if not future.done():
                future.set_exception(StoreError("the store is closed"))
                future.exception()  # looked at: whoever waited may have gone away
        self._waiting = []


def _retrieved(task: asyncio.Task[int]) -> None:
    if not task.cancelled():
        task.exception()  # looked at: whoever waited may have gone away
