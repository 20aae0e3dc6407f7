"""The limit of open files: each connection of a client is one, and the soft limit of a shell is mostly 1,024.

Source: Go's runtime, which raises it for every program.
"""

from __future__ import annotations

import contextlib
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
