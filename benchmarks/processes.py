"""Processor time and memory of processes and their children, read from /proc; and processes that a benchmark starts."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

TERMINATE_SECONDS = 60


def descendants(pid: int) -> list[int]:
    """The process and all that it and its children started, as far as they run. Of this process: itself alone."""
    found = [pid]
    if pid == os.getpid():
        return found
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                found += descendants(int(child))
    return found


def cpu_seconds(pid: int) -> float:
    """Processor time of the process, its children, and those of them that have ended."""
    if pid == os.getpid():
        return time.process_time()  # itself alone, and finer than the ticks of /proc
    total = 0
    for member in descendants(pid):
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{member}/stat").read_text().rpartition(")")[2].split()
            total += sum(map(int, fields[11:15]))
    return total / os.sysconf("SC_CLK_TCK")


def high_water_mib(pid: int) -> float:
    """The most resident memory of process and children since `reset_high_water`; what they share counts for each."""
    return _status_mib(pid, "VmHWM:")


def resident_mib(pid: int) -> float:
    """The resident memory of process and children now."""
    return _status_mib(pid, "VmRSS:")


def _status_mib(pid: int, row: str) -> float:
    total = 0
    for member in descendants(pid):
        with contextlib.suppress(OSError):
            lines = Path(f"/proc/{member}/status").read_text().splitlines()
            total += sum(int(line.split()[1]) for line in lines if line.startswith(row))
    return total / 1024


def reset_high_water(pid: int) -> None:
    """Count the most resident memory from now on. Nothing is done about a process of another user."""
    for member in descendants(pid):
        with contextlib.suppress(OSError):
            Path(f"/proc/{member}/clear_refs").write_text("5")


@dataclass(frozen=True, slots=True)
class Used:
    """What a process and its children took while a load ran."""

    cpu_seconds: float
    high_water_mib: float


class Meter:
    """What named processes take from its making on."""

    def __init__(self, processes: Mapping[str, int]) -> None:
        self._processes = dict(processes)
        for pid in self._processes.values():
            reset_high_water(pid)
        self._before = {name: cpu_seconds(pid) for name, pid in self._processes.items()}

    def used(self) -> dict[str, Used]:
        """What each took so far."""
        return {
            name: Used(cpu_seconds(pid) - self._before[name], high_water_mib(pid))
            for name, pid in self._processes.items()
        }


@contextlib.contextmanager
def started(command: Sequence[str], log: Path | IO[bytes] | int) -> Iterator[subprocess.Popen[bytes]]:
    """A process until the block is left; both its outputs go to the log."""
    with contextlib.ExitStack() as stack:
        to = stack.enter_context(log.open("ab")) if isinstance(log, Path) else log
        process = subprocess.Popen(list(command), stdout=to, stderr=to)
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(TERMINATE_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
