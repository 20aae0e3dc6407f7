"""`haru up`: time until ready and memory, for four nodes, for 1,000 whole-card nodes, for 1,000 partitionable nodes.

Run it alone: `python -m benchmarks.startup [PROFILE:COUNT ...]`.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.calibrate import calibrate
from benchmarks.results import CALIBRATION_SECONDS, Result, show

SIZES = ("dgx-h100:2,dgx-a100-80gb-mig:1,cpu:1", "dgx-h100:1000", "dgx-a100-80gb-mig:1000")
TIMEOUT_SECONDS = 300


def start(profiles: str, directory: Path) -> tuple[float, float, str]:
    """Seconds until the ready line, resident MiB five seconds later, and the line."""
    command = [sys.executable, "-m", "haru", "up", "--listen", "127.0.0.1:0", "--profile", profiles]
    command += ["--data-dir", str(directory / "data")]
    started = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline().strip()
        seconds = time.perf_counter() - started
        if not line:
            raise RuntimeError(f"haru up with {profiles} did not become ready")
        time.sleep(5)
        status = Path(f"/proc/{process.pid}/status").read_text()
        resident = next(int(row.split()[1]) for row in status.splitlines() if row.startswith("VmRSS:"))
        return seconds, resident / 1024, line
    finally:
        process.terminate()
        process.wait(60)


def run(sizes: tuple[str, ...] = SIZES) -> Iterator[Result]:
    """Ready time (raw, and scaled to the reference machine) and memory for each size."""
    scale = CALIBRATION_SECONDS / calibrate()
    yield Result("calibration scale", scale, "x", "this machine to the reference machine")
    for profiles in sizes:
        runs = 3 if profiles == SIZES[0] else 1
        for _ in range(runs):
            with tempfile.TemporaryDirectory(prefix="haru-bench-") as directory:
                seconds, resident, _ = start(profiles, Path(directory))
            yield Result("haru up ready", seconds, "s", profiles)
            yield Result("haru up ready, scaled", seconds * scale, "s", profiles)
            yield Result("haru up resident memory", resident, "MiB", profiles)


if __name__ == "__main__":
    for figure in run(tuple(sys.argv[1:]) or SIZES):
        show(figure)
