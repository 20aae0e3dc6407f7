"""An event loop whose clock jumps to the next timer whenever nothing is left to do: long waits cost nothing."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from haru.clock import Clock

T = TypeVar("T")
_START = datetime(2026, 1, 1, tzinfo=UTC)
_TURN_SECONDS = 20e-6  # what one turn of the loop is said to take


class _Selector(selectors.SelectSelector):
    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> Any:
        ready = super().select(0)
        if ready or timeout == 0:
            self.now += _TURN_SECONDS
            return ready
        if timeout is None:
            raise RuntimeError("everything waits for ever")
        self.now += max(timeout, _TURN_SECONDS)
        return ready


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """Only for programs that talk to themselves: with sockets or threads the clock would run ahead of them."""

    def __init__(self) -> None:
        self._virtual = _Selector()
        super().__init__(self._virtual)

    def time(self) -> float:
        return self._virtual.now


def now() -> datetime:
    """The wall clock of the running loop."""
    return _START + timedelta(seconds=asyncio.get_running_loop().time())


def clock() -> Clock:
    """The time of the running loop, for what is given a clock."""
    return Clock(now, asyncio.get_running_loop().time)


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run to the end in virtual time."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(work)
