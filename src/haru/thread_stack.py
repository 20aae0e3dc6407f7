"""Tell where another thread is, without an object for any of its frames.

Python 3.11 lets such objects outlive the frames that they describe: reading `sys._current_frames` of a busy thread now
and then finds freed memory, and with it an AttributeError or the end of the process (python/cpython#106092, #106883).
`faulthandler` writes what it reads at once, as text, while the thread stands still.
"""

from __future__ import annotations

import faulthandler
import os
import re
import tempfile
from typing import IO

Place = tuple[str, str, int]
"""A function, its file, and the line at which it is."""

_LINE = re.compile(r'^  File "(.*)", line (\d+) in (.*)$', re.MULTILINE)


def stack_of(thread: int, file: IO[bytes]) -> list[Place]:
    """Return the functions in which a thread is, the innermost first; none where it has ended. `file` is written anew.

    Of more than a hundred functions the outermost are left out, and of more than a hundred threads the oldest.
    """
    file.seek(0)
    file.truncate()
    faulthandler.dump_traceback(file, all_threads=True)
    file.seek(0)
    stacks = file.read().decode(errors="replace").split("\n\n")
    own = next((stack for stack in stacks if f"hread 0x{thread:016x} " in stack.partition("\n")[0]), "")
    return [(name, path, int(line)) for path, line, name in _LINE.findall(own)]


def stack_file() -> IO[bytes]:
    """Open what `stack_of` writes to: in memory where the system has such files."""
    if hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create("stacks"), "w+b", buffering=0)
    return tempfile.TemporaryFile(buffering=0)
