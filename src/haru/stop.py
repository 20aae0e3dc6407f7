"""The stop of a process by SIGINT or SIGTERM: what it ends, and that it ends itself."""

from __future__ import annotations

import asyncio
import faulthandler
import os
import re
import signal
import sys
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

from haru.event_loop import cancelled, where

STOP_SECONDS: Final = 45.0
"""So long a stop may take. Less than service managers wait, more than any stop in order needs on a busy machine."""
_TOLD_BEFORE_SECONDS = 1.0
_MOST_TASKS = 50
_STOPS: Final = re.compile(r"(?:\.stop|\.close|\bcancelled):\d")
T = TypeVar("T")


def stop_event(seconds: float | None = STOP_SECONDS) -> asyncio.Event:
    """Return an event that SIGINT and SIGTERM set from now on. A second one ends the process at once, with status 1.

    So does a stop that is not over after so many seconds, if it has a limit: it tells on stderr what it waited for.
    """
    stop, loop = asyncio.Event(), asyncio.get_running_loop()

    def asked() -> None:
        if stop.is_set():
            os._exit(1)
        stop.set()
        if seconds is not None:
            loop.call_later(max(seconds - _TOLD_BEFORE_SECONDS, 0.0), _tell_tasks, seconds)
            # By a thread that is none of Python's: the event loop may stand still, or have ended.
            faulthandler.dump_traceback_later(seconds, exit=True, file=sys.__stderr__ or 2)

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, asked)
    return stop


def _tell_tasks(seconds: float) -> None:
    """Say which tasks have not ended; the threads follow when the time is over."""
    tasks = asyncio.all_tasks()
    print(f"the stop has not ended within {seconds:g} s: {len(tasks)} tasks wait", file=sys.stderr)
    # First what stops others, and what does not end though it is cancelled.
    told = sorted((not _STOPS.search(place := where(task)) and not task.cancelling(), place) for task in tasks)
    for _, place in told[:_MOST_TASKS]:
        print(f"  {place}", file=sys.stderr)
    sys.stderr.flush()


async def unless_stopped(work: Coroutine[Any, Any, T], stop: asyncio.Event) -> T | None:
    """Await `work`; None, with `work` cancelled, if `stop` is set first."""
    task, stopping = asyncio.ensure_future(work), asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait({task, stopping}, return_when=asyncio.FIRST_COMPLETED)
        return task.result() if task.done() else None
    finally:
        await cancelled(task, stopping)
