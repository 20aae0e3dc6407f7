"""What kubectl answers when it is asked about a pod, line by line."""

from __future__ import annotations

import contextlib
import re
import socket
import subprocess
from collections.abc import Sequence

QUESTIONS = ("attach", "cp", "exec", "logs", "port-forward")
"""Commands of kubectl whose answers are compared."""
_SECONDS = 60
_LOCAL = re.compile(r"127\.0\.0\.1:(\d+)")
_LOGGED = re.compile(r"^[EIW]\d{4} [\d:.]+ +\d+ ")
"""What stands before a message of a log."""


def answer(kubectl: Sequence[str], words: Sequence[str]) -> list[str]:
    """The command, what it printed, and its exit code; it reads a line."""
    lines = [f"$ kubectl {' '.join(words)}"]
    if words[0] == "port-forward":
        return lines + _forwarded([*kubectl, *words])
    command = [*kubectl, *words]
    found = subprocess.run(command, input="a line\n", text=True, capture_output=True, check=False, timeout=_SECONDS)
    return [*lines, *found.stdout.splitlines(), *found.stderr.splitlines(), f"exit code {found.returncode}"]


def _forwarded(command: Sequence[str]) -> list[str]:
    """What a connection by a forwarded port brings, and what is said of it."""
    with subprocess.Popen(
        [*command, "--address=127.0.0.1"], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as process:
        assert process.stdout is not None
        first, said = process.stdout.readline(), b""
        port = found[1] if (found := _LOCAL.search(first)) else "0"
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", int(port)), 10) as connection:
            while piece := connection.recv(4096):
                said += piece
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(2)  # it ends by itself if the port is closed
        process.terminate()
        rest, _ = process.communicate(timeout=_SECONDS)
    lines = [*first.splitlines(), f"read: {said.decode()}", *rest.splitlines()]
    return [_LOGGED.sub("", line).replace(port, "LOCAL") for line in lines]
