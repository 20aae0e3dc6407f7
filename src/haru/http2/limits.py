"""What a client of HTTP/2 may cost: useless frames a second, running handlers, time."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

from haru import serving
from haru.http2.frames import ErrorCode, Http2ConnectionError
from haru.http2.stream import Application, Stream

USELESS_FRAMES = 2_000
"""Allowed in a second."""
QUEUE_FACTOR = 4
"""Streams may wait for handlers of reset streams to end: so many times the limit of streams, as in Go's server."""


class UselessFrameLimit:
    """Counts frames that cost something and lead nowhere, by the second."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._count = 0
        self._since = 0.0

    def count(self) -> None:
        """Count one. Http2ConnectionError when there are too many."""
        self._count += 1
        if self._count > USELESS_FRAMES:
            now = self._loop.time()
            if now - self._since < 1:
                raise Http2ConnectionError(ErrorCode.ENHANCE_YOUR_CALM, "too many useless frames")
            self._count, self._since = 0, now


class HandlerPool:
    """Runs the handlers of a connection, `limit` at a time: those of reset streams count until they end."""

    def __init__(self, loop: asyncio.AbstractEventLoop, application: Application, tasks: set[Any], limit: int) -> None:
        self._loop, self._application, self._tasks, self._limit = loop, application, tasks, limit
        self._waiting: deque[Stream] = deque()
        self.running = 0

    def start(self, stream: Stream) -> None:
        """Run the handler of a stream, now or when others have ended. Http2ConnectionError if too many wait."""
        if self.running < self._limit:
            self._run(stream)
            return
        self._waiting.append(stream)
        if len(self._waiting) > QUEUE_FACTOR * self._limit:
            raise Http2ConnectionError(ErrorCode.ENHANCE_YOUR_CALM, "too many reset requests")

    def finished(self) -> None:
        """Note that a handler has ended, and run the next."""
        self.running -= 1
        while self._waiting and self.running < self._limit:
            following = self._waiting.popleft()
            if not following.closed:
                self._run(following)

    def close(self) -> None:
        """Close the streams that wait."""
        for stream in self._waiting:
            stream.close()
        self._waiting.clear()

    def _run(self, stream: Stream) -> None:
        self.running += 1
        task = self._loop.create_task(stream.run(self._application))
        task.add_done_callback(self._tasks.discard)
        self._tasks.add(task)


def _nothing() -> None:
    """Do nothing."""


def _never() -> bool:
    return False


class Deadline:
    """Acts when no time is `_left`; it looks again whenever that may be so.

    Setting a timer anew for each request would cost more than a look too many.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, act: Callable[[], None]) -> None:
        self._loop, self._act = loop, act
        self._timer: asyncio.TimerHandle | None = None
        self._since = loop.time()

    def start(self) -> None:
        """Set the timer, unless it is set or nothing is due."""
        if self._timer is None and (left := self._left()) is not None:
            self._timer = self._loop.call_later(left, self._look)

    def stop(self) -> None:
        """Cancel the timer for good, and forget the connection, which has this."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._act = _nothing

    def _left(self) -> float | None:
        """Seconds that are left; None if nothing is due."""
        raise NotImplementedError

    def _look(self) -> None:
        self._timer = None
        left = self._left()
        if left is not None and left <= 0:
            self._act()
        else:
            self.start()


class HeaderDeadline(Deadline):
    """The time for the rest of a header block or frame: slow or silent clients hold no connection."""

    _partial: tuple[bool, int] | None = None

    def await_rest_of(self, partial: tuple[bool, int] | None) -> None:
        """Start the time when something new is incomplete; None: nothing is. The same again changes nothing."""
        if partial != self._partial:
            self._partial, self._since = partial, self._loop.time()
            self.start()

    def _left(self) -> float | None:
        return None if self._partial is None else self._since + serving.HEAD_SECONDS - self._loop.time()


class IdleDeadline(Deadline):
    """The time for which a connection without requests is kept."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, act: Callable[[], None], seconds: float, is_busy: Callable[[], bool]
    ) -> None:
        super().__init__(loop, act)
        self._seconds, self._is_busy = seconds, is_busy

    def stop(self) -> None:
        """Cancel the timer for good, and forget the connection, which has this."""
        super().stop()
        self._is_busy = _never

    def restart(self) -> None:
        """Count from now."""
        self._since = self._loop.time()

    def _left(self) -> float:
        return self._seconds if self._is_busy() else self._since + self._seconds - self._loop.time()
