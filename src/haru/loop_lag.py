"""Measure the lag of an event loop, and tell who held it up: a function, other threads, the machine, or a system call.

The lag is the lateness of a timer, as Node.js measures it. A thread looks meanwhile where the loop is held up, which no
task of it can. Processor time tells a function that blocks from a machine that is busy with others.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from types import FrameType
from typing import Self

from haru.event_loop import cancelled
from haru.exposition import HistogramOf, head
from haru.thread_stack import Place, stack_file, stack_of

_PERIOD_SECONDS = 0.05
_HELD_UP_SECONDS = 0.1
"""A lag from here on is told with who it was."""
_LOGGED_SECONDS = 0.5
"""A lag from here on is logged whoever it was."""
_LOOK_SECONDS = 0.075
_SUSPECTED_SECONDS = _HELD_UP_SECONDS - _LOOK_SECONDS
"""A loop that is so late is looked at: every one that comes to be told is looked at once at least."""
_FRAMES = 4
_MOST_SAMPLES = 100
_BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_LONGEST = "haru_event_loop_lag_longest_seconds"
_BY = "haru_event_loop_held_up_seconds_total"
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Spent:
    """Seconds so far: processor time of the loop's thread and of the process, waiting for a processor, collecting."""

    own: float
    process: float
    queued: float
    collecting: float


@dataclass(frozen=True, slots=True)
class HoldUp:
    """What a lag consists of, in seconds: the loop's own processor time, waiting for a processor, other threads of the
    process, which hold Python's lock, and the rest, which are system calls and locks. `collecting` is part of the own.
    """

    lag: float
    own: float
    machine: float
    threads: float
    collecting: float

    @classmethod
    def between(cls, lag: float, before: Spent, after: Spent) -> Self:
        """Share a lag out. What was spent may be more than the lag: the loop worked before its timer was due, too."""
        own = min(after.own - before.own, lag)
        machine = min(max(after.queued - before.queued, 0.0), lag - own)
        others = (after.process - before.process) - (after.own - before.own)
        threads = min(max(others, 0.0), lag - own - machine)
        return cls(lag, own, machine, threads, min(after.collecting - before.collecting, own))

    @property
    def rest(self) -> float:
        """Seconds in system calls and waiting for locks."""
        return self.lag - self.own - self.machine - self.threads

    @property
    def is_ours(self) -> bool:
        """Whether this process held its loop up, and not the machine."""
        return self.lag - self.machine >= _HELD_UP_SECONDS

    def parts(self) -> Mapping[str, float]:
        """The parts by the metric's values of `by`."""
        return {"loop": self.own, "machine": self.machine, "threads": self.threads, "waiting": self.rest}

    def __str__(self) -> str:
        said = {
            "its own work": self.own - self.collecting,
            "garbage collection": self.collecting,
            "other threads": self.threads,
            "a busy machine": self.machine,
            "system calls": self.rest,
        }
        shares = sorted(((round(part, 2), name) for name, part in said.items()), reverse=True)
        return ", ".join(f"{part:.2f} s {name}" for part, name in shares if part)


class LoopLag:
    """Measures the event loop in which `run` runs. `since_tick` may be called from any thread."""

    def __init__(self, period: float = _PERIOD_SECONDS, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._period = period
        self._monotonic = monotonic
        self._ticked = monotonic()
        self._seen = HistogramOf("haru_event_loop_lag_seconds", "How late timers of the event loop are.", (), _BOUNDS)
        self._by = dict.fromkeys(("loop", "machine", "threads", "waiting"), 0.0)
        self.longest = 0.0
        """The longest lag so far, in seconds, measured once a period."""
        self._samples: list[tuple[Place, ...]] = []
        self._collecting, self._collection_began = 0.0, 0.0
        self._queue_file = -1
        self._thread = 0

    async def run(self) -> None:
        """Measure until cancelled."""
        stopped = threading.Event()
        self._thread = threading.get_ident()
        looked_at = (self._thread, _depth(sys._getframe()), stopped)
        look = threading.Thread(target=self._look, args=looked_at, name="loop lag", daemon=True)
        gc.callbacks.append(self._collect)
        with suppress(OSError):
            self._queue_file = os.open(f"/proc/self/task/{threading.get_native_id()}/schedstat", os.O_RDONLY)
        look.start()
        _running.append(self)
        try:
            await self._measure()
        finally:
            _running.remove(self)
            stopped.set()
            gc.callbacks.remove(self._collect)
            if self._queue_file >= 0:
                os.close(self._queue_file)

    async def _measure(self) -> None:
        while True:
            due, before = self._monotonic() + self._period, self._spent()
            await asyncio.sleep(self._period)
            self._ticked = self._monotonic()
            samples, self._samples = self._samples, []
            lag = max(self._ticked - due, 0.0)
            self._seen.observe(lag)
            self.longest = max(self.longest, lag)
            if lag >= _HELD_UP_SECONDS:
                self._tell(HoldUp.between(lag, before, self._spent()), samples)

    def since_tick(self) -> float:
        """Return the seconds since the last tick."""
        return self._monotonic() - self._ticked

    def lines(self) -> list[str]:
        """Return the metrics in the text format."""
        longest = [
            *head(_LONGEST, "gauge", "The longest pause of the event loop so far."),
            f"{_LONGEST} {self.longest:.6f}",
        ]
        text = f"Pauses of the event loop above {_HELD_UP_SECONDS} s: its own processor time, waiting for the machine, "
        text += "other threads of the process, system calls and locks."
        by = [f'{_BY}{{by="{name}"}} {seconds:.6f}' for name, seconds in self._by.items()]
        return [*self._seen.lines(), *longest, *head(_BY, "counter", text), *by]

    def _tell(self, held: HoldUp, samples: Sequence[tuple[Place, ...]]) -> None:
        for name, seconds in held.parts().items():
            self._by[name] += seconds
        # A machine that is busy with others is no function's fault.
        where = blocking(samples) if held.is_ours else ""
        level = logging.INFO if held.is_ours or held.lag >= _LOGGED_SECONDS else logging.DEBUG
        _log.log(level, "the event loop was held up for %.2f s (%s)%s", held.lag, held, where)

    def _spent(self) -> Spent:
        return Spent(time.thread_time(), time.process_time(), self._queued(), self._collecting)

    def _queued(self) -> float:
        """Seconds for which the loop's thread could have run, had there been a processor; 0 where none tells."""
        if self._queue_file < 0:
            return 0.0
        return int(os.pread(self._queue_file, 100, 0).split()[1]) / 1e9

    def _collect(self, phase: str, _: Mapping[str, int]) -> None:
        if threading.get_ident() != self._thread:
            return
        if phase == "start":
            self._collection_began = time.thread_time()
        else:
            self._collecting += time.thread_time() - self._collection_began

    def _look(self, thread: int, depth: int, stopped: threading.Event) -> None:
        # Nobody waits for this thread to end.
        with stack_file() as file:
            while not stopped.is_set():
                time.sleep(_LOOK_SECONDS)
                if self.since_tick() > self._period + _SUSPECTED_SECONDS and len(self._samples) < _MOST_SAMPLES:
                    self._samples.append(_step(stack_of(thread, file), depth))


_running: list[LoopLag] = []


def lag_lines() -> list[str]:
    """Return the metrics of this process's loop in the text format; none where it is not measured."""
    return _running[0].lines() if _running else []


@asynccontextmanager
async def measured_loop() -> AsyncIterator[None]:
    """Measure the running loop meanwhile."""
    measuring = asyncio.create_task(LoopLag().run(), name="loop lag")
    try:
        yield
    finally:
        await cancelled(measuring)


def blocking(samples: Sequence[tuple[Place, ...]]) -> str:
    """Name the innermost function in which the loop was whenever it was looked at; each sample has the innermost last.

    Where there is none it was several steps, each too short to be blamed.
    """
    seen = [sample for sample in samples if sample]
    if not seen:
        return ""
    same = 0
    while all(len(sample) > same and sample[same][:2] == seen[0][same][:2] for sample in seen):
        same += 1
    if not same:
        return f", in several steps, one in {_chain(seen[len(seen) // 2])}"
    return f", in {_chain(seen[0][:same])}"


def _chain(places: Sequence[Place]) -> str:
    inner = places[: -_FRAMES - 1 : -1]
    return ", called by ".join(f"{name} ({file.rpartition('/haru/')[2]}:{line})" for name, file, line in inner)


def _depth(frame: FrameType | None) -> int:
    """How many functions the loop itself is in while it runs a step, and those that called it."""
    depth = -1
    while frame is not None:
        depth, frame = depth + 1, frame.f_back
    return depth


def _step(stack: Sequence[Place], depth: int) -> tuple[Place, ...]:
    """The functions of a step of the loop, the innermost last, without those of asyncio."""
    return tuple(place for place in reversed(stack[: len(stack) - depth]) if "/asyncio/" not in place[1])
