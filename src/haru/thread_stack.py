"""Tell where another thread is, in the way that does not end the process: there is none for all versions of Python.

Python 3.11 lets frame objects outlive the frames that they describe: reading `sys._current_frames` of a busy thread now
and then finds freed memory, and with it an AttributeError or the end of the process (python/cpython#106092, #106883).
`faulthandler` writes what it reads at once, as text, while the thread stands still. On Python 3.13 it reads code where
there is none when C has called a function that ends and its objects are being freed; frame objects are sound there.
"""

from __future__ import annotations

import faulthandler
import os
import re
import sys
import tempfile
from types import FrameType
from typing import IO

Place = tuple[str, str, int]
"""A function, its file, and the line at which it is."""

_LINE = re.compile(r'^  File "(.*)", line (\d+) in (.*)$', re.MULTILINE)


def stack_of(thread: int, file: IO[bytes]) -> list[Place]:
    """Return the functions in which a thread is, the innermost first; none where it has ended. `file` is written anew.

    Before Python 3.13 of more than a hundred functions the outermost are left out, and of more than a hundred threads
    the oldest.
    """
    if sys.version_info >= (3, 13):
        return _places(sys._current_frames().get(thread))
    file.seek(0)
    file.truncate()
    faulthandler.dump_traceback(file, all_threads=True)
    file.seek(0)
    stacks = file.read().decode(errors="replace").split("\n\n")
    own = next((stack for stack in stacks if f"hread 0x{thread:016x} " in stack.partition("\n")[0]), "")
    return [(name, path, int(line)) for path, line, name in _LINE.findall(own)]


def _places(frame: FrameType | None) -> list[Place]:
    found: list[Place] = []
    while frame is not None:
        found.append((frame.f_code.co_name, frame.f_code.co_filename, frame.f_lineno))
        frame = frame.f_back
    return found


def stack_file() -> IO[bytes]:
    """Open what `stack_of` writes to: in memory where the system has such files."""
    if hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create("stacks"), "w+b", buffering=0)
    return tempfile.TemporaryFile(buffering=0)
