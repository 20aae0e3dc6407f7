"""Ctrl-C while a command comes up: a quiet end at once, before there is anything to put in order.

Python raises KeyboardInterrupt wherever it happens to be, and in the middle of an import that shows as a traceback, or
is even swallowed. So the interrupt ends the process until a command either wants the exception (it has something to
clean up) or listens to signals itself, as commands that serve do from the first step of their event loop.
"""

from __future__ import annotations

import os
import signal
from types import FrameType
from typing import Final

STATUS: Final = 130
"""As shells have it for a process that SIGINT ended."""


def _end(number: int, frame: FrameType | None) -> None:
    os._exit(STATUS)


def end_at_once() -> None:
    """From now on an interrupt ends the process; one that is ignored (a shell's background job) stays ignored."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)


def raise_again() -> None:
    """From now on an interrupt raises KeyboardInterrupt, as ever."""
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)
