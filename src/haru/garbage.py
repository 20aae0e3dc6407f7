"""Tune Python's garbage collection: a collection stops the process, for seconds if it looks at millions of objects.

What is allocated at a start lives until the end: it is not collected meanwhile. Of what comes later reference counts
free nearly everything (`haru.errors.raise_first` names what they would not). So of the young, in portions, only some
are looked at, each of which takes some hundredths of a second; as long as there is next to no garbage among these the
others count as old unseen. Everything is looked at in an idle moment, once there has been much more; if there is none,
after ten times as much.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import asyncio

_PORTION: Final = 10_000
"""So many objects more than before begin a collection; what replaces others is young, too, but is not counted."""
_SEEN_ONE_OF: Final = 8
"""Of so many portions one is looked at while there is next to no garbage."""
_FEW: Final = 50
"""If a look at a portion frees at most so many blocks of memory there was next to no garbage in it."""
_DUE: Final = 1000
"""Portions from which on an idle moment is used to look at everything."""
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
    import asyncio  # who postpones need not have a loop

    gc.freeze()
    # What outlives one collection is old: with a middle generation half of it would be looked at once more.
    gc.set_threshold(_PORTION, _NO_MIDDLE, _OVERDUE)
    gc.enable()
    with suppress(RuntimeError):  # no loop runs
        portions = _Portions(asyncio.get_running_loop())
        gc.callbacks.append(portions.note)
        portions.look()


class _Portions:
    """Says which portions of the young are looked at, and when everything is, until its loop ends."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._looked, self._used = time.monotonic(), time.process_time()
        self._passed = self._blocks = 0
        self._is_clean = self._is_unseen = False

    def note(self, phase: str, info: Mapping[str, Any]) -> None:
        """Hear that a collection begins, and spare it its work; or what one has found that has ended."""
        if info["generation"] > 1:
            return
        if phase == "start":
            self._passed += 1
            self._is_unseen = self._is_clean and self._passed % _SEEN_ONE_OF > 0 and not self._loop.is_closed()
            if self._is_unseen:
                gc.freeze()  # nothing young is left for the collection that follows
            else:
                self._blocks = sys.getallocatedblocks()
        elif self._loop.is_closed():
            gc.callbacks.remove(self.note)
        elif not self._is_unseen:
            # What hangs on suspended generators and coroutines is freed, too, but is not told as collected.
            self._is_clean = self._blocks - sys.getallocatedblocks() <= _FEW

    def look(self) -> None:
        """Look at everything if there is enough and the time since the last look was idle; look again later."""
        now, used = time.monotonic(), time.process_time()
        is_idle = used - self._used < _IDLE_BELOW * (now - self._looked)
        if self._passed >= (_DUE if is_idle else _OVERDUE):
            self._passed = 0
            gc.unfreeze()
            gc.collect()
            gc.freeze()
        self._looked, self._used = time.monotonic(), time.process_time()
        self._loop.call_later(_LOOK_SECONDS, self.look)
