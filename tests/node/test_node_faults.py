"""kill -9 of agent, driver and runtime: no container is lost track of, no claim stays prepared, no ids stay taken.

At night: a few deaths with a fixed seed, and ten minutes of them. HARU_SEED chooses another course.
"""

from __future__ import annotations

import os
import random
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fault_checks import disagreements, left_by_runtime, leftovers, restarts
from fault_world import PARTS, FaultyMachine, World, guarded, settle

import containerd_process
from haru_process import until

SEED = int(os.environ.get("HARU_SEED", "0")) or 20261122
MINUTES = float(os.environ.get("HARU_FAULT_MINUTES", "10"))
FIRST_IDS = 65_536


@pytest.fixture
def faulty() -> Iterator[FaultyMachine]:
    if lacking := containerd_process.missing():
        pytest.skip(lacking)
    # A socket's path has at most 107 bytes.
    with tempfile.TemporaryDirectory(prefix="haru-faults-") as home:
        running = FaultyMachine(Path(home))
        yield running
        running.stop()


def play(world: World, kills: int, seconds: float) -> None:
    """Until so many have died and so much time has passed."""
    began, rng = time.monotonic(), world.rng
    pause, early = rng.uniform(0.2, 3.0), False
    up_since: float | None = None
    while world.kills.total() < kills or time.monotonic() < began + seconds:
        world.step()
        world.raise_up()
        now = time.monotonic()
        if early or world.is_up():
            up_since = up_since or now
        if up_since is not None and now - up_since >= pause:
            # Now and then several at once, as when a machine is short of memory.
            for part in rng.sample(PARTS, rng.choices((1, 2, 3), (8, 2, 1))[0]):
                world.kill(part)
            # Mostly once all are well again, else while they begin.
            pause, early, up_since = rng.uniform(0.2, 3.0), rng.random() < 0.25, None
        # A moment of the work, not a wait for it: any length will do.
        time.sleep(rng.uniform(0.05, 0.6))


def check(world: World) -> None:
    """Alive, then without pods."""
    machine = world.machine
    settle(world)
    until_empty("API and runtime agree", lambda: disagreements(machine))
    world.note()
    assert restarts(world) == []
    world.end()
    until_empty("nothing is left", lambda: leftovers(machine))
    # The agent itself has forgotten the ids, too: the first ones are given away again.
    volume = {"name": "guard", "hostPath": {"path": str(world.guard)}}
    machine.create("first", [guarded("main", "exec sleep 100000")], volumes=[volume], hostUsers=False)
    uid = machine.until_ready("first")["metadata"]["uid"]
    assert f'"hostId": {FIRST_IDS},' in (machine.home / "n" / "pods" / uid / "userns").read_text()
    machine.delete("first")
    until_empty("nothing is left", lambda: leftovers(machine))


def until_empty(what: str, problems: object, seconds: float = 150) -> None:
    """Waits until there are no problems; says which there are."""
    last: list[str] = []

    def empty() -> bool:
        nonlocal last
        last = problems()  # type: ignore[operator]
        return not last

    try:
        until(what, empty, seconds, 0.5)
    except AssertionError as error:
        raise AssertionError("\n".join([str(error), *last])) from None


def report(world: World) -> None:
    """The figures, for whoever reads the log."""
    print(f"HARU_SEED={SEED} kills={dict(world.kills)} pods={dict(world.made)} deleted={dict(world.deleted)}")
    print(f"forgotten by containerd itself: {left_by_runtime(world.machine)}")


@pytest.mark.nightly
def test_random_kills_lose_track_of_no_pod_or_claim(faulty: FaultyMachine) -> None:
    world = World(faulty, random.Random(SEED), most_pods=5, most_made=11)
    try:
        play(world, kills=6, seconds=0)
        check(world)
    finally:
        report(world)
        world.cards.stop(9)


@pytest.mark.nightly
def test_random_kills_for_ten_minutes_lose_track_of_no_pod_or_claim(faulty: FaultyMachine) -> None:
    world = World(faulty, random.Random(SEED), most_pods=12, most_made=100_000)
    try:
        play(world, kills=100, seconds=60 * MINUTES)
        check(world)
    finally:
        report(world)
        world.cards.stop(9)
