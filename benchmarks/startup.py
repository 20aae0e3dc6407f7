"""`haru up`: time until ready, memory, and what it costs to keep idle nodes alive.

For four nodes, 1,000 whole-card nodes and 1,000 partitionable nodes. Ready means that every node is Ready, every slice
is published and the scheduler has taken all of it in. Run it alone: `python -m benchmarks.startup [PROFILE:COUNT ...]`.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator

from benchmarks.calibrate import calibrate
from benchmarks.cluster import running
from benchmarks.results import CALIBRATION_SECONDS, Result, show

SIZES = ("dgx-h100:2,dgx-a100-80gb-mig:1,cpu:1", "dgx-h100:1000", "dgx-a100-80gb-mig:1000")
SETTLE_SECONDS = 3
IDLE_SECONDS = 20


def run(sizes: tuple[str, ...] = SIZES) -> Iterator[Result]:
    """Ready time (raw, and scaled to the reference machine), memory and idle load for each size."""
    scale = CALIBRATION_SECONDS / calibrate()
    yield Result("calibration scale", scale, "x", "this machine to the reference machine")
    for profiles in sizes:
        for _ in range(3 if profiles == SIZES[0] else 1):
            with running(profiles) as cluster:
                time.sleep(SETTLE_SECONDS)
                resident, used = cluster.resident_mib(), cluster.cpu_seconds()
                time.sleep(IDLE_SECONDS)
                idle = (cluster.cpu_seconds() - used) / IDLE_SECONDS
            yield Result("haru up ready", cluster.ready_seconds, "s", profiles)
            yield Result("haru up ready, scaled", cluster.ready_seconds * scale, "s", profiles)
            yield Result("haru up ready, processor time", cluster.ready_cpu_seconds, "s", profiles)
            yield Result("haru up resident memory", resident, "MiB", profiles)
            yield Result("haru up idle load", idle * 100, "% CPU", profiles)


if __name__ == "__main__":
    for figure in run(tuple(sys.argv[1:]) or SIZES):
        show(figure)
