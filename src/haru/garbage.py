"""Tune Python's garbage collection: a collection stops the process, for seconds if it looks at millions of objects.

What is allocated at a start lives until the end: it is not collected meanwhile, and never again afterwards. Young
objects are collected in portions, each of which takes some hundredths of a second. All that came since the start is
looked at in an idle moment, once there has been much of it; if there is none, after ten times as much. Reference
counts free nearly everything: what is left for a collection are closed connections, and tasks that were cancelled.
"""

from __future__ import annotations

import asyncio
import gc
import time
from contextlib import suppress
from typing import Final

_PORTION: Final = 10_000
"""So many objects more than before begin a collection; what replaces others is young, too, but is not counted."""
_DUE: Final = 1000
"""Collections of a portion from which on an idle moment is used for the oldest generation."""
_NO_MIDDLE: Final = -1
_OVERDUE: Final = 10 * _DUE
_LOOK_SECONDS: Final = 2.0
_IDLE_BELOW: Final = 0.3
"""Of a core: thousands of simulated nodes that only renew their Leases take nearly as much."""


def postpone_collection() -> None:
    """Disable collection for a start, until `resume_collection`."""
    gc.disable()


def resume_collection() -> None:
    """Exempt what lives now from collection, collect the young in portions, and the rest when the loop is idle."""
    gc.freeze()
    # What outlives one collection is old: with a middle generation half of it would be looked at once more.
    gc.set_threshold(_PORTION, _NO_MIDDLE, _OVERDUE)
    gc.enable()
    with suppress(RuntimeError):  # no loop runs
        _IdleMoments(asyncio.get_running_loop()).look()


class _IdleMoments:
    """Collects the oldest generation when the process has had little to do, until its loop ends."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._looked, self._used = time.monotonic(), time.process_time()

    def look(self) -> None:
        """Collect if there is enough and the time since the last look was idle; look again later."""
        now, used = time.monotonic(), time.process_time()
        is_idle = used - self._used < _IDLE_BELOW * (now - self._looked)
        if is_idle and gc.get_count()[2] >= _DUE:
            gc.collect()
        self._looked, self._used = time.monotonic(), time.process_time()
        self._loop.call_later(_LOOK_SECONDS, self.look)
