"""Share one event loop: bound and end tasks, and cut long work into slices.

A blocked loop answers nobody: `haru.loop_lag` measures it.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import Context, ContextVar, copy_context
from dataclasses import dataclass
from types import CoroutineType
from typing import Any, TypeVar

from haru.errors import raise_first

_SLICE_SECONDS = 0.01
_INSIST_SECONDS = 15.0
"""More than a task takes to end in order: the longest gives a Lease up meanwhile."""
is_for_a_client: ContextVar[bool] = ContextVar("is_for_a_client", default=False)
"""Whether what is done is an answer that a client waits for. Tasks have it from the task that starts them, connections
from the one that listens: `haru.fair_loop` runs the steps of such tasks first."""
T = TypeVar("T")
_imported: set[str] = set()
_log = logging.getLogger(__name__)


async def imported(module: str) -> None:
    """Import a module in a thread, unless this was done before: the event loop goes on meanwhile."""
    if module not in _imported:
        await asyncio.to_thread(importlib.import_module, module)
        _imported.add(module)


async def bounded(items: Iterable[T], action: Callable[[T], Awaitable[Any]], limit: int = 20) -> None:
    """Call `action` for each item, at most `limit` at a time; the first failure is raised after all have ended."""
    semaphore = asyncio.Semaphore(limit)

    async def one(item: T) -> None:
        async with semaphore:
            await action(item)

    results = await asyncio.gather(*(one(item) for item in items), return_exceptions=True)
    raise_first(results)


async def cancelled(*tasks: asyncio.Future[Any]) -> list[Any]:
    """Cancel tasks and wait until they have closed what they opened; return what each returned or raised.

    What has not ended for long is told, and cancelled again: a task may lose a cancellation that comes just when what
    it waits for is there (`asyncio.wait_for` of Python 3.11 does, and so may a library).
    """
    timers: list[asyncio.TimerHandle] = []
    for task in tasks:
        task.cancel()
    _insist_later(tasks, timers)
    try:
        return await asyncio.gather(*tasks, return_exceptions=True)
    finally:
        timers[0].cancel()


def _insist_later(tasks: Sequence[asyncio.Future[Any]], timers: list[asyncio.TimerHandle]) -> None:
    timers[:] = [asyncio.get_running_loop().call_later(_INSIST_SECONDS, _insist, tasks, timers)]


def _insist(tasks: Sequence[asyncio.Future[Any]], timers: list[asyncio.TimerHandle]) -> None:
    for task in tasks:
        if not task.done():
            _log.warning("cancelled %g s ago, but goes on; cancelled again: %s", _INSIST_SECONDS, where(task))
            task.cancel()
    _insist_later(tasks, timers)


def where(task: asyncio.Future[Any]) -> str:
    """Return the name of a task and the functions in which it waits, the outermost first."""
    if not isinstance(task, asyncio.Task):
        return repr(task)
    places = [task.get_name()]
    inner: object = task.get_coro()
    while isinstance(inner, CoroutineType) and (frame := inner.cr_frame) is not None:
        places.append(f"{frame.f_code.co_qualname}:{frame.f_lineno}")
        inner = inner.cr_await
    return " > ".join(places)


def abort(transport: asyncio.WriteTransport) -> None:
    """Cut a connection. One over TLS that was closed twice ends by itself: asyncio of early 3.11 cannot cut it."""
    with suppress(AttributeError):
        transport.abort()


@contextmanager
def for_clients() -> Iterator[None]:
    """Listen meanwhile for clients: what comes over the connections is run first."""
    before = is_for_a_client.set(True)
    try:
        yield
    finally:
        is_for_a_client.reset(before)


def in_background() -> Context:
    """Return the context for a task that goes on when the request which starts it has been answered."""
    context = copy_context()
    context.run(is_for_a_client.set, False)
    return context


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


@dataclass(slots=True, eq=False)
class _Wait:
    task: asyncio.Task[object]
    until: float
    cancelling: int
    late: bool = False


class SharedTimeout:
    """`asyncio.timeout` where many may take the same time: one timer for all, set for the one that began first."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._waits: dict[_Wait, None] = {}
        self._timer: asyncio.TimerHandle | None = None

    async def wait_for(self, work: Awaitable[T]) -> T:
        """Await some work; cancel it and raise TimeoutError if it takes longer."""
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        wait = _Wait(task, loop.time() + self._seconds, task.cancelling())
        self._waits[wait] = None
        if self._timer is None:
            self._timer = loop.call_at(wait.until, self._look)
        try:
            return await work
        except asyncio.CancelledError:
            if wait.late and task.cancelling() <= wait.cancelling + 1:
                raise TimeoutError from None
            raise  # somebody else wants the task to end
        finally:
            del self._waits[wait]
            if wait.late:
                task.uncancel()
            del wait, task  # a cancelled task keeps the error, which knows this frame, which must not hold the task

    def _look(self) -> None:
        loop, self._timer = asyncio.get_running_loop(), None
        for wait in self._waits:
            if wait.late:
                continue
            if wait.until > loop.time():
                self._timer = loop.call_at(wait.until, self._look)
                return
            wait.late = True
            wait.task.cancel()
