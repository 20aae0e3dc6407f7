"""Share one event loop: stop it by signals, bound and end tasks, and cut long work into slices.

A blocked loop answers nobody: `haru.loop_lag` measures it.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeVar

_SLICE_SECONDS = 0.01
T = TypeVar("T")


async def bounded(items: Iterable[T], action: Callable[[T], Awaitable[Any]], limit: int = 20) -> None:
    """Call `action` for each item, at most `limit` at a time; the first failure is raised after all have ended."""
    semaphore = asyncio.Semaphore(limit)

    async def one(item: T) -> None:
        async with semaphore:
            await action(item)

    results = await asyncio.gather(*(one(item) for item in items), return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result


def stop_event() -> asyncio.Event:
    """Return an event that SIGINT and SIGTERM set from now on."""
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop


async def cancelled(*tasks: asyncio.Future[Any]) -> list[Any]:
    """Cancel tasks and wait until they have closed what they opened; return what each returned or raised."""
    for task in tasks:
        task.cancel()
    return await asyncio.gather(*tasks, return_exceptions=True)


class TimeSlice:
    """Cuts long work on the loop into slices: `await shared()` between two steps."""

    def __init__(self, seconds: float = _SLICE_SECONDS) -> None:
        self._seconds = seconds
        self._began = time.perf_counter()

    async def shared(self) -> None:
        """Let other tasks run if the slice is over."""
        if time.perf_counter() - self._began >= self._seconds:
            await asyncio.sleep(0)
            self._began = time.perf_counter()
