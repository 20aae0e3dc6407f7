"""Explain beside other work: on a thread that the engine itself holds back, more so while a scheduler is busy.

The interpreter runs one thread at a time, so a thread that explains takes its time from the scheduler. The engine
calls its metrics recorder for every pod that it tries; `Pace` is a recorder that measures nothing and waits there
instead, so that a thread has at most 1.5 % of the processor time that the process uses while there is work to
schedule, and a quarter of all time otherwise.
It also ends a question that takes too long, and what is under way when its process stops.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Event
from typing import TYPE_CHECKING, Protocol, TypeVar

from haru.engine.framework import MetricsRecorder
from haru.kube.meta import name_of

if TYPE_CHECKING:
    from haru.explain import Explanation, PendingQuestion

T = TypeVar("T")
SHARE, IDLE_SHARE = 0.015, 0.25
"""Of the time, while there is work to schedule, and while there is none: others use the interpreter, too."""
LEAST_USED = 0.25
"""Of the time at least so much counts as used by the process: one that waits for others leaves time to explain."""
LONGEST_SECONDS = 5.0
_LOOK_SECONDS = 0.05
_SLICE_SECONDS = 0.002
_SHORTEST_SECONDS = 0.0001
_log = logging.getLogger(__name__)


class OutOfTimeError(Exception):
    """Raised where a question took too long, or nobody waits for its answer any more."""


class Pace(MetricsRecorder):
    """Hold back and end what the engine is asked: `busy` tells whether there is work to schedule."""

    def __init__(
        self,
        busy: Callable[[], bool],
        stopped: Event,
        clock: Callable[[], float] = time.thread_time,
        used: Callable[[], float] = time.process_time,
    ) -> None:
        super().__init__(clock)
        self._busy = busy
        self._stopped = stopped
        self._used = used
        self._began = 0.0
        self._slice: float | None = None
        """Until when the thread has rested for its work; None before its first question."""

    def begin(self) -> None:
        """Begin a question, after a rest for what the one before did since its last rest."""
        if self._slice is None:
            self._slice = self.clock()
        self._catch_up()
        self._began = self.clock()
        self.evaluations.clear()

    @property
    def spent(self) -> float:
        """The processor time since the question began, in seconds."""
        return self.clock() - self._began

    def start(self) -> None:
        """Wait while others have more to do. Raises OutOfTimeError."""
        if self._stopped.is_set() or self.spent > LONGEST_SECONDS:
            raise OutOfTimeError
        self._catch_up()

    def _catch_up(self) -> None:
        """Rest for the work since the last rest, if it was more than a slice."""
        worked = self.clock() - (self._slice or 0.0)
        if worked < _SLICE_SECONDS:
            return
        rested = 0.0
        while (left := worked * self._rest_factor() - rested) > _SHORTEST_SECONDS and not self._stopped.is_set():
            rested += self._rest(min(left, _LOOK_SECONDS))
        self._slice = self.clock()

    def _rest_factor(self) -> float:
        """How many times as long as it worked the thread rests."""
        return 1.0 / (SHARE if self._busy() else IDLE_SHARE) - 1.0

    def _rest(self, seconds: float) -> float:
        """Wait; return how much of it counts: while there is work to schedule, what the process used of it."""
        before = self._used()
        self._stopped.wait(seconds)
        return min(max(self._used() - before, LEAST_USED * seconds), seconds) if self._busy() else seconds

    def lap(self, point: str, status: str = "Success") -> None:
        """Record nothing."""

    def uses(self, plan: object) -> None:
        """Count nothing."""


class Worker(Protocol):
    """Where explanations are computed."""

    async def run(self, work: Callable[[Pace], T]) -> T:
        """Return the answer to a question, computed with this recorder. Raises what the question raises."""

    def stop(self) -> None:
        """End; nobody waits for the question under way."""


class ThreadWorker:
    """Compute on a thread of its own."""

    def __init__(self, busy: Callable[[], bool]) -> None:
        self._stopped = Event()
        self._pace = Pace(busy, self._stopped)
        self._executor = ThreadPoolExecutor(1, "published explanations")

    async def run(self, work: Callable[[Pace], T]) -> T:
        """Return the answer to a question."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, self._answer, work)

    def stop(self) -> None:
        """End; the thread ends at the next pod that it tries."""
        self._stopped.set()
        self._executor.shutdown(wait=False, cancel_futures=True)

    def _answer(self, work: Callable[[Pace], T]) -> T:
        self._pace.begin()
        return work(self._pace)


class _Unpaced(Pace):
    """Work without a rest: nobody else can work meanwhile."""

    def _rest_factor(self) -> float:
        return 0.0


class InlineWorker:
    """Compute on the event loop: for one whose time stands still meanwhile."""

    def __init__(self) -> None:
        self._pace = _Unpaced(lambda: False, Event())

    async def run(self, work: Callable[[Pace], T]) -> T:
        """Return the answer to a question."""
        self._pace.begin()
        return work(self._pace)

    def stop(self) -> None:
        """End."""


async def explain_in_time(worker: Worker, question: PendingQuestion, *, names: bool) -> Explanation | None:
    """Explain with remedies, without where that takes too long; None where that does, too."""
    for remedies in (True, False):
        try:
            return await worker.run(partial(question.answer, remedies=remedies, names=names))
        except OutOfTimeError:
            _log.info("explaining pod %s took too long", name_of(question.pod))
    return None
