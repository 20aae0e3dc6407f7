"""A gang is bound whole or not at all, whatever happens; and no device is ever given twice.

Random people, machines, faults and crashes against the real API server and scheduler, in virtual time. Every revision
that the store went through is checked (see gang_history). A failure prints its seed; `HARU_SEED=<n>` runs that one.
"""

from __future__ import annotations

import asyncio
import json
import os

import pytest
from gang_history import History
from gang_world import World, device_use

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


def test_scheduler_that_cannot_learn_what_its_server_serves_is_started_again() -> None:
    async def play() -> None:
        world = World(0)
        await world.start()
        try:
            world.faulty.only, world.faulty.rate = lambda _, path: path == "/version", 4.0  # each GET of it
            await world.restart()
            await asyncio.sleep(0)
            ended = world.scheduler
            await asyncio.sleep(60)
            world.faulty.rate = 0.0
            await asyncio.sleep(60)
            assert not ended.ready.is_set() and world.scheduler.ready.is_set()
        finally:
            await world.stop()

    virtual_time.run(play())


@pytest.mark.parametrize(("grace", "doomed"), [(30, ["default/b"]), (0, [])])
def test_group_goes_whole_once_its_scheduler_has_deleted_a_member_and_not_with_one_deleted_by_hand(
    grace: int, doomed: list[str]
) -> None:
    history = History(device_use)
    marked = [{"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}]
    group = {"metadata": {"name": "g", "uid": "g"}, "spec": {"disruptionMode": "PodGroup"}}
    spec = {"schedulingGroup": {"podGroupName": "g"}, "nodeName": "n"}
    pods = {n: {"metadata": {"name": n, "namespace": "default", "uid": n}, "spec": spec} for n in "ab"}
    first = pods["a"] | {"status": {"conditions": marked}}
    deleting = {"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": grace}
    last = first | {"metadata": pods["a"]["metadata"] | deleting}
    stories = [("podgroups", "g", group), *(("pods", n, pod) for n, pod in pods.items())]
    stories += [("pods", "a", first), ("pods", "a", last), ("pods", "a", None)]
    for revision, (bucket, name, obj) in enumerate(stories):
        value = json.dumps(obj).encode() if obj else None
        history.apply(bucket, f"{bucket}/default/{name}", value, revision)
    found = [text for text in history.at_rest() if "as a whole" in text]
    assert found == [f"pods/{path} runs although its group was evicted as a whole" for path in doomed]


@pytest.mark.nightly
@pytest.mark.parametrize("seed", tonight(range(1000, 1000 + MANY)))
def test_random_gangs_are_bound_whole_or_not_at_all_in_long_runs(seed: int) -> None:
    check(seed, 120, (0.0, 0.05, 0.15, 0.3)[seed % 4])
