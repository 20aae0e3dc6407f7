"""Share one event loop: stop it by signals, bound and end tasks, measure its lag, and cut long work into slices.

A blocked loop answers nobody. Its lag is the lateness of a timer, as Node.js measures it.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
import threading
import time
import traceback
from collections.abc import Awaitable, Callable, Iterable
from types import FrameType
from typing import Any, TypeVar

from haru.exposition import HistogramOf, head

_SLICE_SECONDS = 0.01
_PERIOD_SECONDS = 0.05
_LOGGED_SECONDS = 0.5
_LOOK_SECONDS = 0.1
_FRAMES = 4
_BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_LONGEST = "haru_event_loop_lag_longest_seconds"
_log = logging.getLogger(__name__)
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


class LoopLag:
    """Measures the event loop in which `run` runs. `since_tick` may be called from any thread."""

    def __init__(self, period: float = _PERIOD_SECONDS, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._period = period
        self._monotonic = monotonic
        self._ticked = monotonic()
        self._seen = HistogramOf("haru_event_loop_lag_seconds", "How late timers of the event loop are.", (), _BOUNDS)
        self.longest = 0.0
        """The longest lag so far, in seconds, measured once a period."""
        self._blocked_in = ""

    async def run(self) -> None:
        """Measure until cancelled. A thread looks meanwhile where the loop is held up, which no task of it can."""
        stopped = threading.Event()
        look = threading.Thread(target=self._look, args=(threading.get_ident(), stopped), name="loop lag", daemon=True)
        look.start()
        try:
            while True:
                due = self._monotonic() + self._period
                await asyncio.sleep(self._period)
                self._ticked = self._monotonic()
                self._observe(max(self._ticked - due, 0.0))
        finally:
            stopped.set()

    def since_tick(self) -> float:
        """Return the seconds since the last tick."""
        return self._monotonic() - self._ticked

    def lines(self) -> list[str]:
        """Return the metrics in the text format."""
        help_text = "The longest pause of the event loop so far."
        longest = [*head(_LONGEST, "gauge", help_text), f"{_LONGEST} {self.longest:.6f}"]
        return [*self._seen.lines(), *longest]

    def _observe(self, lag: float) -> None:
        self._seen.observe(lag)
        self.longest = max(self.longest, lag)
        if lag >= _LOGGED_SECONDS:
            where, self._blocked_in = self._blocked_in, ""
            _log.info("the event loop was held up for %.2f s%s", lag, where and f", in {where}")

    def _look(self, thread: int, stopped: threading.Event) -> None:
        looked_at = 0.0
        while not stopped.wait(_LOOK_SECONDS):
            ticked = self._ticked
            if ticked != looked_at and self.since_tick() > _LOGGED_SECONDS / 2:
                looked_at, self._blocked_in = ticked, _place(sys._current_frames().get(thread))


def _place(frame: FrameType | None) -> str:
    """Return the innermost functions of a thread with their files and lines, the innermost first."""
    stack = [one for one in traceback.extract_stack(frame) if "/asyncio/" not in one.filename] if frame else []
    inner = stack[: -_FRAMES - 1 : -1]
    return ", called by ".join(f"{one.name} ({one.filename.rpartition('/haru/')[2]}:{one.lineno})" for one in inner)


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
