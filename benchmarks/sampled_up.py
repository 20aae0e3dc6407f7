"""Run the command `haru` in this process, and count where its processor time goes between two signals.

    python -m benchmarks.sampled_up STACKS.json up --profile dgx-h100:200 …

SIGUSR1 begins, a second SIGUSR1 ends and writes `STACKS.json`: for each stack of the main thread, as `file:function`
from the innermost frame outward, the seconds for which it stood. A sample weighs what the main thread has used since
the last one, so that the sums are exact however rarely the timer goes off; what other threads used stands on its own.
Code is not slowed down by being watched, unlike by cProfile, to which a call of Python costs more than the work in C.
"""

from __future__ import annotations

import json
import signal
import sys
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
        self._names: dict[object, str] = {}
        self._is_on = False

    def toggle(self, number: int, frame: FrameType | None) -> None:
        """Begin, or end and write."""
        self._is_on = not self._is_on
        if self._is_on:
            self._main, self._all = time.thread_time(), time.process_time()
            signal.setitimer(signal.ITIMER_PROF, SAMPLE_SECONDS, SAMPLE_SECONDS)
            return
        signal.setitimer(signal.ITIMER_PROF, 0)
        rows = [[seconds, *stack] for stack, seconds in self._stacks.items()]
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
        self._stacks[(OTHER_THREADS,)] += max(0.0, everything - self._all - used)  # type: ignore[assignment]
        self._main, self._all = main, everything


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
