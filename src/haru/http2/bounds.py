"""How long a client may take, and how much of what leads nowhere it may send."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from haru import serving
from haru.http2.frames import Code, ConnectionFault

CALM_FRAMES = 2_000
"""So many frames a second may lead nowhere."""


class Calm:
    """Counts frames that cost something and lead nowhere, by the second."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._count = 0
        self._since = 0.0

    def count(self) -> None:
        """One more. ConnectionFault when there are too many."""
        self._count += 1
        if self._count > CALM_FRAMES:
            now = self._loop.time()
            if now - self._since < 1:
                raise ConnectionFault(Code.ENHANCE_YOUR_CALM, "too many frames that lead nowhere")
            self._count, self._since = 0, now


class Clock:
    """Looks again, each time when it may be so far, how many seconds are `left`, and acts when there are none.

    A timer is not set anew for each request: that costs more than to look once too often.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, left: Callable[[], float | None], act: Callable[[], None]
    ) -> None:
        self._loop, self._left, self._act = loop, left, act
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Look after what is left now, unless that is going to be done."""
        if self._timer is None and (left := self._left()) is not None:
            self._timer = self._loop.call_later(left, self._look)

    def stop(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self._timer = None
        left = self._left()
        if left is not None and left <= 0:
            self._act()
        else:
            self.start()


class HeadClock(Clock):
    """What comes drop by drop, or not at all, does not hold a connection for ever."""

    def __init__(self, loop: asyncio.AbstractEventLoop, act: Callable[[], None]) -> None:
        super().__init__(loop, self._owed_for, act)
        self._owed: tuple[bool, int] | None = None
        self._since = 0.0

    def owes(self, what: tuple[bool, int] | None) -> None:
        """The client has begun something and owes the rest; None: it owes nothing. The same again changes nothing."""
        if what != self._owed:
            self._owed, self._since = what, self._loop.time()
            self.start()

    def _owed_for(self) -> float | None:
        return None if self._owed is None else self._since + serving.HEAD_SECONDS - self._loop.time()
