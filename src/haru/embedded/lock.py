"""One `haru up` to a data directory: an advisory lock that ends with the process, even by kill -9.

The lock file also says who runs: process id and address, so that other commands find the running cluster.
"""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path
from typing import Any

LOCK_NAME = "lock"


class AlreadyRunningError(RuntimeError):
    """Another process holds the data directory."""


class DirectoryLock:
    """Holds `<directory>/lock` from `acquire` until `release` or the end of the process."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / LOCK_NAME
        self._descriptor: int | None = None

    def acquire(self) -> None:
        """Takes the lock; raises AlreadyRunningError with the holder's process id."""
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = _read(descriptor).get("pid", "unknown")
            os.close(descriptor)
            raise AlreadyRunningError(
                f"{self._path.parent} is in use by the haru up with process id {holder}; "
                "stop it, or give this one another --data-dir"
            ) from None
        self._descriptor = descriptor

    def describe(self, **facts: Any) -> None:
        """Writes who holds the lock, for `holder_of`."""
        if self._descriptor is not None:
            text = json.dumps({"pid": os.getpid(), **facts}).encode()
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, text, 0)

    def release(self) -> None:
        """Gives the lock back; the file stays."""
        if self._descriptor is not None:
            os.ftruncate(self._descriptor, 0)
            os.close(self._descriptor)
            self._descriptor = None


def holder_of(directory: Path) -> dict[str, Any] | None:
    """What the running `haru up` of this directory wrote about itself; None if none runs."""
    try:
        descriptor = os.open(directory / LOCK_NAME, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return _read(descriptor)
    else:
        return None
    finally:
        os.close(descriptor)


def _read(descriptor: int) -> dict[str, Any]:
    try:
        facts = json.loads(os.pread(descriptor, 65536, 0) or b"{}")
    except ValueError:
        return {}
    return facts if isinstance(facts, dict) else {}
