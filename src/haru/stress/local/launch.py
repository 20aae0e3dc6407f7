"""Become a program that ends with the process that started it, a kill of that process included.

    python -I -S launch.py PARENT PROGRAM [ARGUMENT ...]

The kernel sends SIGKILL when the parent's thread that started this one ends (prctl PR_SET_PDEATHSIG, Linux). It lasts
over the exec, so that the number of this process stays that of the program.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

_PR_SET_PDEATHSIG = 1


def ending_with_this_process(command: Sequence[str]) -> list[str]:
    """Return a command that runs another one, which ends when the calling thread does; on Linux only."""
    if sys.platform != "linux":
        return list(command)
    return [sys.executable, "-I", "-S", str(Path(__file__)), str(os.getpid()), *command]


def main(arguments: Sequence[str]) -> None:
    """Become the program; exits with 1 where the parent has ended before the kernel knew."""
    parent, *command = arguments
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL) != 0:
        raise OSError(ctypes.get_errno(), "prctl PR_SET_PDEATHSIG")
    if os.getppid() != int(parent):
        sys.exit(1)
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(sys.argv[1:])
