"""Start the processes of parts: forked while this process is still small, or made anew to replace one that died.

A fork begins with the modules that this process has imported, so that they are imported once, and the rest is imported
in all processes at once. Later this process has an event loop and threads, with which no fork is safe.
"""

from __future__ import annotations

import importlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from haru.embedded.part_process import run

_SHARED: Final = (
    "haru.client.api",
    "haru.client.events",
    "haru.client.informer",
    "haru.client.http",
    "haru.client.workqueue",
    "haru.kube.kinds",
    "haru.kube.quantity",
    "haru.kube.selectors",
    "httptools",
    "uvloop",
)
"""What each of the processes imports."""


@dataclass(frozen=True, slots=True)
class Child:
    """A process: its id, our end of the channel, and how to wait for its exit status (negative: a signal)."""

    pid: int
    channel: socket.socket
    wait: Callable[[], int]


class Lifeline:
    """A pipe that this process holds open, and whose end ends all its children."""

    def __init__(self) -> None:
        self.end, self._held = os.pipe()

    def let_go(self) -> None:
        """Close our end, in a fork."""
        os.close(self._held)

    def close(self) -> None:
        """End all children that are left."""
        os.close(self._held)
        os.close(self.end)


def fork_all(groups: Sequence[Sequence[str]], lifeline: Lifeline) -> list[Child]:
    """Fork a process for each group of parts. Call it before there is any thread or event loop."""
    for module in _SHARED:
        importlib.import_module(module)
    sys.stdout.flush()
    sys.stderr.flush()
    ends = [socket.socketpair() for _ in groups]
    children = [_fork(names, number, ends, lifeline) for number, names in enumerate(groups)]
    for _, theirs in ends:
        theirs.close()
    return children


def _fork(names: Sequence[str], number: int, ends: list[tuple[socket.socket, socket.socket]], held: Lifeline) -> Child:
    pid = os.fork()
    if not pid:
        for index, (ours, theirs) in enumerate(ends):
            ours.close()
            if index != number:
                theirs.close()
        held.let_go()
        run(names, ends[number][1], held.end)
    return Child(pid, ends[number][0], lambda: os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))


def spawn(names: Sequence[str], lifeline: Lifeline) -> Child:
    """Start a process with an interpreter of its own."""
    ours, theirs = socket.socketpair()
    code = "from haru.embedded.part_process import main; main()"
    arguments = [",".join(names), str(theirs.fileno()), str(lifeline.end)]
    # Ctrl-C must not end it before it ignores Ctrl-C.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", code, *arguments],
            stdin=subprocess.DEVNULL,
            pass_fds=(theirs.fileno(), lifeline.end),
        )
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        theirs.close()
    return Child(process.pid, ours, process.wait)
