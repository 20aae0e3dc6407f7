"""An event loop on which time can be made to pass: its clock runs as all clocks do, and jumps ahead when it is told to.

It jumps to the next moment at which something is due, and only once nothing is left to do at the present one. So all
that would happen in that time happens, in its order and at its time of the clock; only the waiting is left out.
"""

from __future__ import annotations

import asyncio
import selectors
import time
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypeVar, TypeVarTuple, Unpack

from haru.clock import Clock, utc_now
from haru.testing.waiting import WaitTimeoutError

T = TypeVar("T")
Given = TypeVarTuple("Given")
_LONGEST_LOOK = 1.0
"""Seconds after which the loop looks again whether others have ended what it waits for."""


class _Selector(selectors.DefaultSelector):
    """Asks, before it begins to wait, how long it is to wait in truth."""

    before_waiting: Callable[[float | None], float] | None = None

    def select(self, timeout: float | None = None) -> Any:
        if self.before_waiting is None or (timeout is not None and timeout <= 0):
            return super().select(timeout)
        return super().select(0) or super().select(self.before_waiting(timeout))


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds of the machine's clock."""

    settle: float
    """How long somebody outside may take to respond."""
    timeout: float
    """How long it may take altogether until the time has passed."""


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """The event loop of a cluster; its time and `clock` agree."""

    def __init__(self) -> None:
        self._ahead = 0.0
        self._waiting = _Selector()
        self._jobs = 0
        super().__init__(self._waiting)
        self.clock = Clock(lambda: utc_now() + timedelta(seconds=self._ahead), self.time)

    def time(self) -> float:
        """Seconds, as many ahead of the machine's clock as have been made to pass."""
        return super().time() + self._ahead

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[Unpack[Given]], T], *args: *Given
    ) -> asyncio.Future[T]:
        """As every loop does; the time does not jump while another thread works for this one."""
        job = super().run_in_executor(executor, func, *args)
        self._jobs += 1
        job.add_done_callback(self._job_done)
        return job

    def _job_done(self, job: asyncio.Future[Any]) -> None:
        self._jobs -= 1

    async def advance(
        self, seconds: float, limits: Limits, is_busy: Callable[[], bool], stir: Callable[[], int | None]
    ) -> datetime:
        """Make time pass; the clock's time afterwards. RuntimeError where it is being done already.

        It does not jump while `is_busy`, nor for a while after `stir` has changed: that is a number which grows with
        all to which somebody outside may respond, or None where nobody is. Raises WaitTimeoutError beyond the limits.
        """
        if self._waiting.before_waiting is not None:
            raise RuntimeError("time is being advanced already")
        passing = _Passing(self, seconds, limits, is_busy, stir)
        self._waiting.before_waiting = passing.before_waiting
        try:
            await passing.over
        finally:
            self._waiting.before_waiting = None
        return self.clock.now()

    @property
    def is_helped(self) -> bool:
        """Whether other threads work for this one."""
        return self._jobs > 0

    def jump(self, seconds: float) -> None:
        """Set the clock forward."""
        self._ahead += seconds


class _Passing:
    """Time that is being made to pass."""

    def __init__(
        self,
        loop: VirtualTimeLoop,
        seconds: float,
        limits: Limits,
        is_busy: Callable[[], bool],
        stir: Callable[[], int | None],
    ) -> None:
        self._loop = loop
        self._seconds, self._until = seconds, loop.time() + seconds
        self._is_busy, self._stir = is_busy, stir
        self._stirred, self._since = stir(), time.monotonic()
        self._limits, self._began = limits, self._since
        self.over: asyncio.Future[None] = loop.create_future()

    def before_waiting(self, timeout: float | None) -> float:
        """Nothing is ready, and the next timer comes after `timeout` seconds: how long the loop is to wait for it."""
        if self.over.done():
            return 0.0
        longest = _LONGEST_LOOK if timeout is None else min(timeout, _LONGEST_LOOK)
        left = self._until - self._loop.time()
        if (spent := time.monotonic() - self._began) > self._limits.timeout:
            error = f"of {self._seconds:g} s, {left:g} are still to pass after {spent:.2g} s of waiting"
            self.over.set_exception(WaitTimeoutError(error))
            return 0.0
        if self._loop.is_helped or self._is_busy():
            return longest
        if (restless := self._restless()) > 0:
            return min(restless, longest)
        if left > 0:
            self._loop.jump(left if timeout is None else min(timeout, left))
        else:
            self.over.set_result(None)
        return 0.0

    def _restless(self) -> float:
        """For how many seconds somebody outside may still respond to what has happened."""
        now, stirred = time.monotonic(), self._stir()
        if stirred != self._stirred:
            self._stirred, self._since = stirred, now
        return 0.0 if stirred is None else self._since + self._limits.settle - now
