"""When the heartbeats of simulated kubelets are sent: each node's at even distances, and soon again where one failed.

Heartbeats wait for nothing else that kubelets do: their limit is their own, every node has a timer of its own, and the
first of a node comes within one period. A failed one is tried again after 0.2 s, 0.4 s, ... 7 s, as kubelets do, so
that all nodes are heard from within seconds of the API's return. The nodes' times are spread evenly over the period;
what is overdue is sent at once.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from typing import Final

from haru.kube.errors import StatusError

_log = logging.getLogger(__name__)
_AT_ONCE: Final = 128
_FIRST_PAUSE: Final = 0.2
_LONGEST_PAUSE: Final = 7.0
_SPREAD: Final = 0.618034
"""Multiples of it, cut to their fractions, lie evenly between 0 and 1 however many they are."""


class _Beat:
    """The heartbeat of one node."""

    __slots__ = ("busy", "due", "failures", "hastened", "timer")

    def __init__(self, due: float) -> None:
        self.due = due
        self.failures = 0
        self.busy = False
        self.hastened = False
        self.timer: asyncio.TimerHandle | None = None


class Heartbeats:
    """Calls `send(node)` once per period for each node that has begun, and `recovered(node)` when it succeeds again."""

    def __init__(
        self,
        what: str,
        send: Callable[[str], Awaitable[None]],
        period: Callable[[], float],
        *,
        recovered: Callable[[str], None] = lambda node: None,
    ) -> None:
        self._what = what
        self._send = send
        self._period = period
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._recovered = recovered
        self._rng = random.Random()
        self._beats: dict[str, _Beat] = {}
        self._begun = 0
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, node: str) -> None:
        """The node has just been heard from: its next heartbeat is due within one period."""
        self.end(node)
        self._begun += 1
        now = asyncio.get_running_loop().time()
        beat = self._beats[node] = _Beat(now + (1 - self._begun * _SPREAD % 1) * self._period())
        self._set(node, beat, beat.due)

    def end(self, node: str) -> None:
        """The node is gone."""
        beat = self._beats.pop(node, None)
        if beat is not None and beat.timer is not None:
            beat.timer.cancel()

    def hasten(self, node: str, seconds: float = 0.0) -> None:
        """Send the node's next heartbeat in so many seconds at the latest, its other ones at their times."""
        beat = self._beats.get(node)
        if beat is None:
            return
        when = asyncio.get_running_loop().time() + seconds
        if beat.busy:
            beat.hastened = True
        elif beat.timer is None or when < beat.timer.when():
            self._set(node, beat, when)

    async def close(self) -> None:
        """End all timers, and the requests that are under way."""
        for node in list(self._beats):
            self.end(node)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _set(self, node: str, beat: _Beat, when: float) -> None:
        if beat.timer is not None:
            beat.timer.cancel()
        beat.timer = asyncio.get_running_loop().call_at(when, self._start, node, beat)

    def _start(self, node: str, beat: _Beat) -> None:
        beat.timer, beat.busy = None, True
        task = asyncio.create_task(self._turn(node, beat), name=f"{self._what} of {node}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _turn(self, node: str, beat: _Beat) -> None:
        async with self._slots:
            failed = not await self._succeeds(node)
        beat.busy = False
        if self._beats.get(node) is not beat:
            return
        now, period = asyncio.get_running_loop().time(), self._period()
        if beat.due <= now:
            beat.due += ((now - beat.due) // period + 1) * period
        if failed:
            pause = min(_FIRST_PAUSE * 2 ** min(beat.failures, 16), _LONGEST_PAUSE)
            beat.failures += 1
            self._set(node, beat, min(now + pause * self._rng.uniform(0.75, 1.0), beat.due))
            return
        had_failed, beat.failures = beat.failures > 0, 0
        self._set(node, beat, now if beat.hastened else beat.due)
        beat.hastened = False
        if had_failed:
            self._recovered(node)

    async def _succeeds(self, node: str) -> bool:
        try:
            await self._send(node)
        except (StatusError, OSError) as error:
            _log.debug("node %s: %s: %s", node, self._what, error)
            return False
        except Exception:
            _log.exception("node %s: %s", node, self._what)
            return False
        return True
