"""What long-running commands share: how long the process runs, and the event loop."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path

_IMPORTED = time.monotonic()


def seconds_since_start() -> float:
    """How long this process runs, interpreter start included where the system tells (Linux), else since the import."""
    try:
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        started = int(fields[19]) / os.sysconf("SC_CLK_TCK")
        return time.clock_gettime(time.CLOCK_BOOTTIME) - started
    except (OSError, ValueError, IndexError, AttributeError):
        return time.monotonic() - _IMPORTED


def loop_factory(*, serves: bool) -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop where it is there; for a process that `serves` clients beside other work, the one that runs theirs first.

    A step takes a microsecond on that one, half of one on uvloop alone.
    """
    try:
        if serves:
            from haru.fair_loop import FairLoop

            return FairLoop
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory
