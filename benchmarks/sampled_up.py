"""Run the command `haru` in this process, and count where its processor time goes between two signals.

    python -m benchmarks.sampled_up STACKS.json up --profile dgx-h100:200 …

SIGUSR1 begins, a second SIGUSR1 ends and writes `STACKS.json`: for each stack of the main thread, as `file:function`
from the innermost frame outward, the seconds for which it stood. A sample weighs what the main thread has used since
the last one, so that the sums are exact however rarely the timer goes off. What other threads used stands as
`other threads` with the name of each as the only frame around it.
Code is not slowed down by being watched, unlike by cProfile, to which a call of Python costs more than the work in C.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from types import FrameType

SAMPLE_SECONDS = 0.002
OTHER_THREADS = "other threads"


class Sampler:
    """Takes the stack of the main thread whenever the process has used some time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stacks: Counter[tuple[str, ...]] = Counter()
        self._main = self._all = 0.0
        self._threads: dict[int, float] = {}
        self._names: dict[object, str] = {}
        self._others = 0.0
        self._is_on = False

    def toggle(self, number: int, frame: FrameType | None) -> None:
        """Begin, or end and write."""
        self._is_on = not self._is_on
        if self._is_on:
            self._main, self._all = time.thread_time(), time.process_time()
            self._threads = _thread_seconds()
            signal.setitimer(signal.ITIMER_PROF, SAMPLE_SECONDS, SAMPLE_SECONDS)
            return
        signal.setitimer(signal.ITIMER_PROF, 0)
        rows = [[seconds, *stack] for stack, seconds in self._stacks.items()] + self._other_threads()
        written = self._path.with_suffix(".part")
        written.write_text(json.dumps(rows))
        written.rename(self._path)

    def sample(self, number: int, frame: FrameType | None) -> None:
        """Count what was used since the last sample for the stack that stands now."""
        main, everything = time.thread_time(), time.process_time()
        stack = []
        while frame is not None:
            code = frame.f_code
            name = self._names.get(code)
            if name is None:
                name = self._names[code] = f"{code.co_filename}:{code.co_name}"
            stack.append(name)
            frame = frame.f_back
        used = main - self._main
        self._stacks[tuple(stack)] += used  # type: ignore[assignment]
        self._others += max(0.0, everything - self._all - used)
        self._main, self._all = main, everything

    def _other_threads(self) -> list[list[str | float]]:
        """What the other threads that live used, by their names, and the rest, of those that have ended."""
        names = {thread.native_id: thread.name for thread in threading.enumerate()}
        rows: list[list[str | float]] = []
        left = self._others
        for thread, seconds in _thread_seconds().items():
            used = seconds - self._threads.get(thread, 0.0)
            if thread != os.getpid() and used > 0:
                rows.append([used, OTHER_THREADS, names.get(thread, "a thread of a library")])
                left -= used
        return [*rows, [left, OTHER_THREADS, "threads that have ended"]]


def _thread_seconds() -> dict[int, float]:
    """The processor time of each thread of this process by its number."""
    found = {}
    for path in Path("/proc/self/task").glob("*/schedstat"):
        with contextlib.suppress(OSError):  # it has ended
            found[int(path.parent.name)] = int(path.read_text().split()[0]) / 1e9
    return found


def main() -> int:
    """Run the command; its flags follow the file."""
    sampler = Sampler(Path(sys.argv[1]))
    signal.signal(signal.SIGUSR1, sampler.toggle)
    signal.signal(signal.SIGPROF, sampler.sample)
    signal.siginterrupt(signal.SIGPROF, False)
    sys.argv = ["haru", *sys.argv[2:]]
    from haru.__main__ import main as run

    return run()


if __name__ == "__main__":
    raise SystemExit(main())
