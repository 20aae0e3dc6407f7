"""A queue of keys for reconcilers: a key waits at most once, and is never worked on twice at the same time.

A key added while it is being worked on is handed out again afterwards. Failures come back with exponential backoff per
key; success forgets them.
Source: client-go `util/workqueue`.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from typing import Final, Generic, TypeVar

from haru.kube.errors import StatusError

Key = TypeVar("Key", bound=Hashable)
_SHORTEST: Final = 0.001
"""A timer of uvloop that ends within half of it knows no time."""

_log = logging.getLogger(__name__)


class ShutDown(Exception):
    """The queue was shut down: there is no further key."""


class WorkQueue(Generic[Key]):
    """Keys to work on, in the order in which they were first added."""

    def __init__(self, name: str = "", base_delay: float = 0.02, max_delay: float = 60.0) -> None:
        self.name = name
        self._base_delay = base_delay
        self._max_delay = max_delay
        # Whoever takes the first key of a plain dict skips all that were taken before: a queue of n would cost n².
        self._waiting: OrderedDict[Key, None] = OrderedDict()
        self._processing: set[Key] = set()
        self._again: set[Key] = set()
        self._failures: dict[Key, int] = {}
        self._timers: dict[Key, asyncio.TimerHandle] = {}
        self._ready = asyncio.Event()
        self._shut_down = False
        self.adds = 0
        """How many additions made a key wait."""
        self.retries = 0
        """How many additions followed a failure."""

    def __len__(self) -> int:
        return len(self._waiting)

    def idle(self) -> bool:
        """Nothing waits, nothing is worked on; later additions (`add_after`) may be due."""
        return not self._waiting and not self._processing

    def add(self, key: Key) -> None:
        """Let the key be worked on (again)."""
        if self._shut_down:
            return
        if key in self._waiting or key in self._again:
            return
        self.adds += 1
        if key in self._processing:
            self._again.add(key)
            return
        self._waiting[key] = None
        self._ready.set()

    def add_after(self, key: Key, delay: float) -> None:
        """Add the key after `delay` seconds, or sooner if an earlier call said so."""
        if self._shut_down:
            return
        if delay < _SHORTEST:
            self.add(key)
            return
        loop = asyncio.get_running_loop()
        due = loop.time() + delay
        timer = self._timers.get(key)
        if timer is not None:
            if timer.when() <= due:
                return
            timer.cancel()
        self._timers[key] = loop.call_at(due, self._fire, key)

    def _fire(self, key: Key) -> None:
        self._timers.pop(key, None)
        self.add(key)

    def add_rate_limited(self, key: Key) -> None:
        """Add the key after a pause that doubles with each failure."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        self.retries += 1
        self.add_after(key, min(self._base_delay * 2 ** min(failures, 32), self._max_delay))

    def failures(self, key: Key) -> int:
        """How often the key failed since it was last forgotten."""
        return self._failures.get(key, 0)

    def forget(self, key: Key) -> None:
        """The key succeeded: its next failure waits the shortest pause."""
        self._failures.pop(key, None)

    async def get(self) -> Key:
        """The next key; it must be given back with `done`. Raises `ShutDown`."""
        while not self._waiting:
            if self._shut_down:
                raise ShutDown
            self._ready.clear()
            await self._ready.wait()
        key, _ = self._waiting.popitem(last=False)
        self._processing.add(key)
        return key

    def done(self, key: Key) -> None:
        """The work on the key ended, whatever its outcome."""
        self._processing.discard(key)
        if key in self._again:
            self._again.discard(key)
            self._waiting[key] = None
            self._ready.set()

    def shut_down(self) -> None:
        """Hand out nothing more and wake those who wait."""
        self._shut_down = True
        self._waiting.clear()
        self._again.clear()
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._ready.set()

    async def run(self, sync: Callable[[Key], Awaitable[float | None]], workers: int = 1) -> None:
        """Work until cancelled: `sync(key)` may answer after how many seconds it wants the key again.

        A failure is logged and retried; a conflict with another writer is retried quietly.
        """
        try:
            async with asyncio.TaskGroup() as group:
                for number in range(workers):
                    group.create_task(self._work(sync), name=f"{self.name} worker {number}")
        finally:
            self.shut_down()

    async def _work(self, sync: Callable[[Key], Awaitable[float | None]]) -> None:
        while True:
            try:
                key = await self.get()
            except ShutDown:
                return
            try:
                again = await sync(key)
            except Exception as error:
                _log_failure(self.name, key, error, self.failures(key))
                self.add_rate_limited(key)
            else:
                self.forget(key)
                if again is not None:
                    self.add_after(key, again)
            finally:
                self.done(key)


def _log_failure(name: str, key: Hashable, error: Exception, failures: int) -> None:
    if isinstance(error, StatusError) and error.code == 409:
        _log.debug("%s: %s: %s", name, key, error)
    elif isinstance(error, StatusError | OSError):
        _log.log(logging.WARNING if failures in (3, 10) else logging.DEBUG, "%s: %s: %s", name, key, error)
    else:
        _log.error("%s: %s failed", name, key, exc_info=error)
