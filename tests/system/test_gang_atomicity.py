"""A gang is bound whole or not at all, whatever happens; and no device is ever given twice.

Random people, machines, faults and crashes against the real API server and scheduler, in virtual time. Every revision
that the store went through is checked (see gang_history). A failure prints its seed; `HARU_SEED=<n>` runs that one.
"""

from __future__ import annotations

import os

import pytest
from gang_world import World

import virtual_time
from nights import tonight

FEW, MANY = 3, 200
SEED = os.environ.get("HARU_SEED")


def check(seed: int, steps: int, fault_rate: float) -> None:
    world = World(seed, fault_rate)
    problems = virtual_time.run(world.play(steps))
    if problems:
        story = "\n  ".join(world.steps)
        told = "\n  ".join(problems[:20])
        pytest.fail(f"seed {seed}, {steps} steps, fault rate {fault_rate}:\n  {told}\nafter\n  {story}", pytrace=False)
    assert world.history.revisions > steps


@pytest.mark.parametrize("seed", [int(SEED)] if SEED else range(FEW))
def test_random_gangs_are_bound_whole_or_not_at_all(seed: int) -> None:
    check(seed, 40, (0.0, 0.05, 0.15)[seed % 3])


@pytest.mark.nightly
@pytest.mark.parametrize("seed", tonight(range(1000, 1000 + MANY)))
def test_random_gangs_are_bound_whole_or_not_at_all_in_long_runs(seed: int) -> None:
    check(seed, 120, (0.0, 0.05, 0.15, 0.3)[seed % 4])
