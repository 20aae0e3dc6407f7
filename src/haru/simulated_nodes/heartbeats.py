"""When the heartbeats of simulated kubelets are sent: each node's at even distances, and soon again where one failed.

Heartbeats wait for nothing else that kubelets do: their limit is their own, every node has a timer of its own, and the
first of a node comes within one period. A failed one is tried again after 0.2 s, 0.4 s, ... 4 s. The first that
succeeds after a failure shows that the API is back: then all that failed are tried at once, and those that have waited
long for an answer are sent anew, for it may never come. The nodes' times are spread evenly over the period, but for
what is gathered; what is overdue is sent at once.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final

from haru.event_loop import cancelled
from haru.kube.errors import StatusError

_log = logging.getLogger(__name__)
_AT_ONCE: Final = (8, 16, 128)
"""How many heartbeats may be under way: at least, at first, and at most."""
_QUICK: Final = 2.5
"""Seconds below which a heartbeat shows that more of them may be under way."""
_FIRST_PAUSE: Final = 0.2
_LONGEST_PAUSE: Final = 4.0
_LONG_WAIT: Final = 2.0
"""Who has waited so long for an answer when another node is answered again, is no longer expected to be answered."""
_RETRIED_SECONDS: Final = 1.0
_SPREAD: Final = 0.618034
"""Multiples of it, cut to their fractions, lie evenly between 0 and 1 however many they are."""


class _Beat:
    """The heartbeat of one node."""

    __slots__ = ("at", "busy", "due", "failures", "hastened", "sending", "since", "timer")

    def __init__(self, due: float) -> None:
        self.due = due
        self.failures = 0
        self.busy = False
        self.hastened = False
        self.timer: asyncio.TimerHandle | None = None
        self.at = 0.0
        """When the timer ends: uvloop's own does not know it if that is at once."""
        self.sending: asyncio.Timeout | None = None
        self.since = 0.0
        """When the heartbeat that is under way was sent."""


class _Slots:
    """How many requests may be under way: one more after each quick success while all are taken, half after a failure.

    On a machine that is short of time many new connections at once all take too long, and none would succeed.
    """

    def __init__(self) -> None:
        self._limit = float(_AT_ONCE[1])
        self._taken = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def take(self) -> None:
        """Wait for a slot, in the order of the calls."""
        if self._taken < int(self._limit) and not self._waiting:
            self._taken += 1
            return
        waiting = asyncio.get_running_loop().create_future()
        self._waiting.append(waiting)
        try:
            await waiting
        except asyncio.CancelledError:
            if waiting.done() and not waiting.cancelled():
                self._taken -= 1
                self._hand_out()
            raise

    def give_back(self, failed: bool, seconds: float) -> None:
        """The request has ended after so many seconds."""
        least, _, most = _AT_ONCE
        if failed:
            self._limit = max(self._limit / 2, least)
        elif self._taken >= int(self._limit) and seconds < _QUICK:
            self._limit = min(self._limit + 1, most)
        self._taken -= 1
        self._hand_out()

    def _hand_out(self) -> None:
        while self._waiting and self._taken < int(self._limit):
            waiting = self._waiting.popleft()
            if not waiting.done():
                self._taken += 1
                waiting.set_result(None)


class Heartbeats:
    """Calls `send(node)` once per period for each node that has begun, and `recovered(node)` when it succeeds again.

    `timeouts` are the seconds that a heartbeat, and one that follows a failure, may take. Those that are due within the
    same `gathered` seconds are sent together at their end, so that a store commits them together.
    """

    def __init__(
        self,
        what: str,
        send: Callable[[str], Awaitable[None]],
        period: Callable[[], float],
        *,
        timeouts: tuple[float, float],
        recovered: Callable[[str], None] = lambda node: None,
        gathered: float = 0.0,
    ) -> None:
        self._timeouts = timeouts
        self._what = what
        self._send = send
        self._period = period
        self._slots = _Slots()
        self._recovered = recovered
        self._gathered = gathered
        self._rng = random.Random()
        self._beats: dict[str, _Beat] = {}
        self._begun = 0
        self._retried = -math.inf
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, node: str) -> None:
        """The node has just been heard from: its next heartbeat is due within one period."""
        self.end(node)
        self._begun += 1
        now = asyncio.get_running_loop().time()
        beat = self._beats[node] = _Beat(now + (1 - self._begun * _SPREAD % 1) * self._period())
        self._set(node, beat, self._sent_at(beat.due))

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
        elif beat.timer is None or when < beat.at:
            self._set(node, beat, when)

    def retry_failed(self) -> None:
        """Send at once what has failed, and anew what has waited long for an answer: the API answers again."""
        now = asyncio.get_running_loop().time()
        if now - self._retried < _RETRIED_SECONDS:
            return
        self._retried = now
        for node, beat in self._beats.items():
            if beat.sending is not None and now - beat.since > _LONG_WAIT:
                beat.hastened = True
                beat.sending.reschedule(now)
            elif beat.failures:
                self.hasten(node)

    async def close(self) -> None:
        """End all timers, and the requests that are under way."""
        for node in list(self._beats):
            self.end(node)
        await cancelled(*self._tasks)

    def _sent_at(self, due: float) -> float:
        return math.ceil(due / self._gathered) * self._gathered if self._gathered else due

    def _set(self, node: str, beat: _Beat, when: float) -> None:
        if beat.timer is not None:
            beat.timer.cancel()
        beat.at = when
        beat.timer = asyncio.get_running_loop().call_at(when, self._start, node, beat)

    def _start(self, node: str, beat: _Beat) -> None:
        beat.timer, beat.busy = None, True
        task = asyncio.create_task(self._turn(node, beat), name=f"{self._what} of {node}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _turn(self, node: str, beat: _Beat) -> None:
        await self._slots.take()
        failed = True
        try:
            failed = not await self._succeeds(node, beat)
        finally:
            self._slots.give_back(failed, asyncio.get_running_loop().time() - beat.since)
        beat.busy = False
        if self._beats.get(node) is not beat:
            return
        now, period = asyncio.get_running_loop().time(), self._period()
        if beat.due <= now:
            beat.due += ((now - beat.due) // period + 1) * period
        if failed:
            pause = min(_FIRST_PAUSE * 2 ** min(beat.failures, 16), _LONGEST_PAUSE)
            beat.failures += 1
            again = now if beat.hastened else now + pause * self._rng.uniform(0.75, 1.0)
            beat.hastened = False
            self._set(node, beat, min(again, beat.due))
            return
        had_failed, beat.failures = beat.failures > 0, 0
        self._set(node, beat, now if beat.hastened else self._sent_at(beat.due))
        beat.hastened = False
        if had_failed:
            self._recovered(node)

    async def _succeeds(self, node: str, beat: _Beat) -> bool:
        try:
            async with asyncio.timeout(self._timeouts[beat.failures > 0]) as beat.sending:
                beat.since = asyncio.get_running_loop().time()
                await self._send(node)
        except (StatusError, OSError) as error:
            _log.debug("node %s: %s: %s", node, self._what, error)
            return False
        except Exception:
            _log.exception("node %s: %s", node, self._what)
            return False
        finally:
            beat.sending = None
        return True
