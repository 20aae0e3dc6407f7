"""Nothing waits for ever that can run, and nobody is tried again and again for nothing: weeks of churn.

Random work on machines that come and go, with evictions, restarts of the scheduler and a bad line, in virtual time. A
failure prints its seed; `HARU_SEED=<n>` runs that one.
"""

from __future__ import annotations

import os

import pytest
from churn_world import ChurnWorld

import virtual_time
from nights import tonight

SEED = os.environ.get("HARU_SEED")


def check(seed: int, minutes: float, *, backfill: bool) -> ChurnWorld:
    world = ChurnWorld(seed, backfill=backfill)
    virtual_time.run(world.play(minutes))
    told = "\n  ".join(world.problems[:20])
    assert not world.problems, f"seed {seed}, {minutes} minutes, backfill {backfill}:\n  {told}"
    return world


@pytest.mark.parametrize("seed", [int(SEED)] if SEED else range(2))
def test_all_work_that_fits_eventually_runs(seed: int) -> None:
    world = check(seed, 120, backfill=seed % 2 == 0)
    assert len(world.works) > 20
    assert world.evictions.total() > 0


@pytest.mark.nightly
@pytest.mark.parametrize("seed", tonight(range(100, 102)))
def test_all_work_that_fits_eventually_runs_in_10000_minutes(seed: int) -> None:
    world = check(seed, 10_000, backfill=seed % 2 == 0)
    assert len(world.works) > 1500
