"""`haru up`, `haru scheduler` and the like as processes that begin with their modules imported.

Many tests need such a process as their stage, and two thirds of the processor time until it is ready are the
imports. So a process of each test worker imports them once and forks for each start; what it forks runs the same `main`
with arguments, environment, folder and output of its own. Tests of how the commands start begin cold.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

_LONGEST = 1 << 18
_IMPORTED = (
    "haru.cli.up",
    "haru.cli.scheduler",
    "haru.cli.controllers",
    "haru.embedded.run",
    "haru.embedded.cluster",
    "haru.embedded.scheduler_part",
    "haru.embedded.controllers_part",
    "haru.embedded.nodes_part",
    "haru.embedded.pages_part",
    "haru.explain_server.server",
    "aiohttp",
    "haru.accounting.collector",
    "uvicorn",
)
"""What brings in nearly all modules of a running `haru up`; what is not among them is imported by each."""


class Warm:
    """A process forked from the worker's warm one; as far as tests need it, a `subprocess.Popen`."""

    def __init__(
        self,
        arguments: Sequence[str],
        env: Mapping[str, str],
        cwd: Path,
        stderr: IO[str],
        stdin: IO[str] | None = None,
    ) -> None:
        output, self.stdout = _pipe()
        ended, self._status = _pipe()
        request = {"arguments": list(arguments), "env": dict(env), "cwd": str(cwd)}
        given = [stdin.fileno()] if stdin else []
        try:
            _warm().send(json.dumps(request).encode(), ended, output, stderr.fileno(), *given)
        finally:
            os.close(output)
            os.close(ended)
        self.args = ["haru", *arguments]
        self.returncode: int | None = None
        self.pid = int(self._status.readline())

    def poll(self) -> int | None:
        """The exit status, or the negative number of the signal that ended it; None while it runs."""
        if self.returncode is None and select.select([self._status], [], [], 0)[0]:
            self.returncode = int(self._status.readline() or -signal.SIGKILL)
            self._status.close()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """The same at its end, which must come in time."""
        if self.returncode is None and not select.select([self._status], [], [], timeout)[0]:
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        status = self.poll()
        assert status is not None
        return status

    def send_signal(self, number: int) -> None:
        """A signal, unless it has ended."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):  # it ends just now
                os.kill(self.pid, number)

    def kill(self) -> None:
        """Ends it at once."""
        self.send_signal(signal.SIGKILL)


def _pipe() -> tuple[int, IO[str]]:
    """The end to write into, and the text that comes out."""
    reading, writing = os.pipe()
    return writing, os.fdopen(reading, "r")


class _Server:
    """The warm process, as seen by the worker."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            number = theirs.fileno()
            self._process = subprocess.Popen([sys.executable, __file__, str(number)], pass_fds=[number])
        atexit.register(self.stop)

    def stop(self) -> None:
        """Ends it; what it forked goes on."""
        self._socket.close()
        self._process.wait()

    def send(self, request: bytes, *descriptors: int) -> None:
        """Asks for a process; it has these for the news of its end, its output, its messages, and perhaps its input."""
        socket.send_fds(self._socket, [request], descriptors)

    def fileno(self) -> int:
        """Where requests go."""
        return self._socket.fileno()


@functools.cache
def _warm() -> _Server:
    return _Server()


def warm_command(path: Path) -> int:
    """Writes an executable that runs commands of Haru warm, for a process which inherits the descriptor returned."""
    number = _warm().fileno()
    asking = Path(__file__).with_name("warm_command.py")
    path.write_text(f'#!/bin/sh\nexec {sys.executable} -IS {asking} {number} "$@"\n')
    path.chmod(0o755)
    return number


# -- the warm process -------------------------------------------------------------------------------------------------


def serve(requests: socket.socket) -> None:
    """Forks for each request, and says how each ended; returns in the forked one, ready to run `main`."""
    for module in _IMPORTED:
        importlib.import_module(module)
    gc.collect()
    gc.freeze()
    waking, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    on_interrupt = signal.signal(signal.SIGINT, signal.SIG_IGN)
    on_child = signal.signal(signal.SIGCHLD, lambda number, frame: None)
    told: dict[int, int] = {}
    while True:
        ready, _, _ = select.select([requests, waking], [], [])
        if waking in ready:
            os.read(waking, _LONGEST)
            _tell_ends(told)
        if requests in ready:
            request, (ended, *streams) = _received(requests)
            if (pid := os.fork()) == 0:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGINT, on_interrupt)
                signal.signal(signal.SIGCHLD, on_child)
                requests.close()
                for descriptor in (ended, waking, wake, *told.values()):
                    os.close(descriptor)
                _become(request, *streams)
                return
            for descriptor in streams:
                os.close(descriptor)
            os.write(ended, b"%d\n" % pid)
            told[pid] = ended


def _received(requests: socket.socket) -> tuple[dict[str, Any], list[int]]:
    data, descriptors, _, _ = socket.recv_fds(requests, _LONGEST, 4)
    if not data:
        os._exit(0)  # the worker has ended
    return json.loads(data), descriptors


def _tell_ends(told: dict[int, int]) -> None:
    while told:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        listener = told.pop(pid)
        with contextlib.suppress(BrokenPipeError):
            os.write(listener, b"%d\n" % os.waitstatus_to_exitcode(status))
        os.close(listener)


def _become(request: dict[str, Any], *streams: int) -> None:
    for descriptor, number in zip(streams, (1, 2, 0), strict=False):
        os.dup2(descriptor, number)
        os.close(descriptor)
    # The old one takes its descriptor for the seekable file that it was.
    sys.stdout = os.fdopen(1, "w", encoding=sys.stdout.encoding, closefd=False)
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["cwd"])
    sys.argv = ["haru", *request["arguments"]]


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as given:
        serve(given)
    from haru.__main__ import main

    raise SystemExit(main())
