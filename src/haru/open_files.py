"""Open files: their limit, which each connection counts against (1,024 in most shells), and the standard streams.

Source: Go's runtime, which raises the limit, and opens /dev/null for closed streams, in every program.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys


def raise_limit() -> None:
    """Raise the soft limit of this process, and of those that it starts, to the hard one."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(OSError, ValueError):  # macOS has a hard limit that it does not grant
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def limit() -> int:
    """Return how many files this process may have open."""
    try:
        import resource
    except ImportError:
        return sys.maxsize
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if soft == resource.RLIM_INFINITY else soft


def stand_in_for_closed_streams() -> None:
    """Open /dev/null for closed standard streams: the next files would get their numbers."""
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(number, True)
    os.close(number)
    for number, name in ((1, "stdout"), (2, "stderr")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, "w", closefd=False))


def write_what_streams_can() -> None:
    """Let stdout have question marks for the characters that its encoding lacks, rather than end the command."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")


def flush_or_discard() -> None:
    """Flush stdout; discard what cannot be written, which the interpreter would try once more at its end."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
