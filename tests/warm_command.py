"""Asks a warm process (warm_haru) for a command of Haru with the caller's arguments, streams, folder and environment.

Usage: warm_command.py DESCRIPTOR ARGUMENT...; signals that end a command are passed on. It runs for each command of a
script, so it imports little.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys


def main(descriptor: int, arguments: list[str]) -> int:
    """The exit status of the command."""
    reading, ended = os.pipe()
    request = {"arguments": arguments, "env": dict(os.environ), "cwd": os.getcwd()}  # noqa: PTH109 (pathlib takes 10 ms)
    with socket.socket(fileno=descriptor) as warm:
        socket.send_fds(warm, [json.dumps(request).encode()], [ended, 1, 2, 0])
    os.close(ended)
    with os.fdopen(reading) as told:
        pid = int(told.readline())
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda number, _: os.kill(pid, number))
        status = int(told.readline() or -signal.SIGKILL)
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
