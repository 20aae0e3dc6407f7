"""Ctrl-C while a command starts: end at once and without a traceback.

Python raises KeyboardInterrupt anywhere; in the middle of an import it shows as a traceback, or is even lost. So SIGINT
ends the process until a command needs the exception to clean up, or handles signals itself, as servers do from the
first step of their event loop.
"""

from __future__ import annotations

import os
import signal
from types import FrameType
from typing import Final

STATUS: Final = 130
"""The exit status that shells give a process ended by SIGINT."""


def _end(number: int, frame: FrameType | None) -> None:
    os._exit(STATUS)


def end_at_once() -> None:
    """Let SIGINT end the process; if it is ignored (a shell's background job), it stays ignored."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)


def raise_again() -> None:
    """Let SIGINT raise KeyboardInterrupt, as Python does."""
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)
