"""What whatif foretells is what then happens: random clusters, random changes, and nothing else going on.

Compared is, for every workload, how many of its pods have a place in the end, how many wait, and how many lost the
place they had. Which of several equal nodes a pod gets is chance, and so is who comes first when several are displaced
at once; where the outcome hangs on that, nothing can be foretold. A case counts as determined if the course of events
comes out the same under other tie-breaks, with the displaced going one by one, in any order, decisions in between, and
with some of what waits decided before the rest (in the live queue some are in back-off); only those are compared, and
enough of all cases must be of that kind.

Left out: Jobs (their back-off limits are no matter of scheduling), tolerations that run out, claims of groups that are
evicted by device taints, and backfill, which keeps places that whatif does not know of.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from whatif_world import CUT, NS, PLAIN, REST_SECONDS, SMALL, Summary, Workload, World, workload_of

import virtual_time
from haru.api.changes import Apply as AskedApply
from haru.api.changes import resolved
from haru.api.decision_options import options_of
from haru.drivers.simulated.profiles import Profile
from haru.engine import Options
from haru.engine.dra import DeviceId, Taint
from haru.kube.yaml import dump
from haru.whatif import (
    AddNodes,
    Change,
    Comparison,
    Cordon,
    Delete,
    Objects,
    Repartition,
    TaintDevice,
    TaintNode,
    try_out,
)
from haru.whatif.changes import apply_change
from haru.whatif.course import Course
from haru.whatif.departures import Departure
from nights import tonight

Obj = dict[str, Any]
SCHEDULER = "default-scheduler"
VARIANTS = 6
CLAIMS = ("", "one-card", "one-card", "two-cards", "one-part")


def random_nodes(rng: random.Random) -> list[tuple[Profile, str]]:
    counts = ((SMALL, rng.randint(1, 3)), (PLAIN, rng.randint(1, 2)), (CUT, rng.randint(0, 1)))
    return [(profile, f"{profile.name}-n{number}") for profile, count in counts for number in range(count)]


def random_workloads(rng: random.Random) -> list[Workload]:
    priorities = rng.sample(range(2, 100, 2), 8)
    found = []
    for number in range(rng.randint(3, 8)):
        kind = rng.choice(("set", "set", "gang", "gang", "bare"))
        size = 1 if kind == "bare" else rng.randint(2, 4)
        claim = rng.choice(CLAIMS)
        # Priorities all differ: who goes before whom is no chance.
        found.append(Workload(f"{kind}-{number}", kind, size, rng.randint(1, 3), claim, priorities[number]))
    return found


@dataclass(frozen=True)
class Arrival:
    """Somebody submits more work: what `--apply` foretells."""

    work: Workload

    def changes(self, objects: Sequence[Obj], folder: Path, gates: Mapping[str, bool]) -> list[Change]:
        path = folder / "work.yaml"
        path.write_text("---\n".join(map(dump, self.work.manifests())))
        return resolved([AskedApply(path)], objects, gates, NS)


def random_arrival(rng: random.Random) -> Arrival:
    kind = rng.choice(("set", "gang", "bare"))
    size = 1 if kind == "bare" else rng.randint(2, 4)
    return Arrival(
        Workload(f"{kind}-new", kind, size, rng.randint(1, 4), rng.choice(CLAIMS), rng.randrange(41, 200, 2))
    )


def random_change(rng: random.Random, nodes: list[tuple[Profile, str]], works: list[Workload]) -> Change:
    """A change that can be made; `works` are those that are there."""
    _, node = rng.choice(nodes)
    taint = Taint("maintenance", "fan", rng.choice(("NoExecute", "NoExecute", "NoSchedule")))
    of_work = {"set": "ReplicaSet", "gang": "PodGroup", "bare": "Pod"}
    possible: list[Change] = [
        Cordon(node),
        TaintNode(node, taint),
        Delete("Node", node),
        *(Delete(of_work[work.kind], f"{NS}/{work.name}") for work in rng.sample(works, min(1, len(works)))),
        AddNodes(rng.choice((SMALL, PLAIN, CUT)), rng.randint(1, 2)),
    ]
    with_cards = [name for of, name in nodes if of is SMALL]
    name = rng.choice(with_cards)
    possible += [
        TaintDevice(DeviceId("gpu.nvidia.com", name, f"gpu-{rng.randrange(2)}"), taint),
        Repartition(name, CUT),
    ]
    return rng.choice(possible)


class OneByOne(Course):
    """The same events with another timing: some of the displaced go, some of what waits is decided, then the others."""

    rng: random.Random

    def first(self, found: list[Departure]) -> list[Departure]:
        return self.rng.sample(found, self.rng.randint(1, len(found))) if found else []

    def _decide(self) -> bool:
        waiting = [pod for pod in self._cluster.snapshot().pods.values() if not pod.node and not pod.terminal]
        workloads = sorted({workload_of(pod.obj) for pod in waiting})
        late = set(self.rng.sample(workloads, self.rng.randint(0, len(workloads))))
        hidden = [pod.obj for pod in waiting if workload_of(pod.obj) in late]
        for obj in hidden:
            self._cluster.remove(obj)
        moved = super()._decide()
        for obj in hidden:
            self._cluster.apply(obj)
        return moved or super()._decide()


def check_told(told: Comparison, course: Summary, ran: Sequence[Obj]) -> None:
    """What is told of workloads is what came of the pods."""

    def counted(entries: Iterable[Any]) -> Counter[str]:
        return Counter(entry.workload.rpartition("/")[2] for entry in entries)

    had_a_place = {f"{NS}/{pod['metadata']['name']}" for pod in ran}
    displaced = [entry for entry in told.displaced if entry.path in had_a_place]
    again = counted(entry for entry in displaced if entry.outcome == "Restarts")
    waiting = sum(entry.outcome == "Waits" for entry in displaced)
    assert counted(displaced) == course.displaced
    assert Counter(map(workload_of, ran)) - counted(displaced) + again + counted(told.starts) == course.placed
    assert waiting + told.still_waiting + len(told.waits) == course.waiting.total()


def other_course(original: Objects, changes: Sequence[Change], options: Options, seed: int) -> Summary:
    changed = original.copy()
    for change in changes:
        apply_change(changed, change, virtual_time.now())
    course = OneByOne(changed, original, replace(options, seed=seed * 7919), SCHEDULER, virtual_time.now())
    course.rng = random.Random(seed)
    end = course.run()
    assert end.settled and not end.errors
    objects = original.of_kind("Pod")
    pods = end.snapshot.pods.values()
    return Summary(
        Counter(workload_of(pod.obj) for pod in pods if pod.node),
        Counter(workload_of(pod.obj) for pod in pods if not pod.node),
        Counter(workload_of(objects[p]) for p in end.displaced if p in objects and objects[p]["spec"].get("nodeName")),
    )


async def play(seed: int, folder: Path) -> str:
    """One case: `determined` if it could be compared (and agreed), else why not."""
    rng = random.Random(seed)
    nodes, works = random_nodes(rng), random_workloads(rng)
    world = World(seed)
    await world.start(nodes)
    try:
        for work in works:
            await world.submit(work)
            await asyncio.sleep(rng.choice((0.5, 2.0)))
        await asyncio.sleep(REST_SECONDS)
        objects, gates = await world.fork(), world.gates.all()
        pods = await world.pods()
        ran = [pod for pod in pods if pod["spec"].get("nodeName")]
        left = {workload_of(pod) for pod in pods}
        change = random_change(rng, nodes, [work for work in works if work.name in left])
        arrival = random_arrival(rng) if rng.random() < 0.4 else None
        changes = arrival.changes(objects, folder, gates) if arrival is not None else [change]
        original, options = Objects(objects), options_of(gates)
        comparison = try_out(original, changes, options, SCHEDULER, virtual_time.now())
        assert comparison.settled and not comparison.errors
        if comparison.anyway != (0, 0):
            return "not at rest"
        courses = [other_course(original, changes, options, number) for number in range(VARIANTS)]
        if any(course != courses[0] for course in courses):
            return "chance"
        check_told(comparison, courses[0], ran)
        await (world.submit(arrival.work) if arrival is not None else world.make(change))
        await asyncio.sleep(REST_SECONDS)
        happened = await world.summary(ran)
        assert happened == courses[0], f"seed {seed}: {arrival or change}: foretold {courses[0]}, happened {happened}"
        return "determined"
    finally:
        await world.stop()


@pytest.mark.parametrize("seed", (0, 2, 3, 1041, 1042))
def test_predicted_change_equals_actual_outcome(seed: int, tmp_path: Path) -> None:
    assert virtual_time.run(play(seed, tmp_path)) == "determined"


@pytest.mark.nightly
def test_predicted_change_equals_actual_outcome_in_500_cases(tmp_path: Path) -> None:
    kinds = Counter(virtual_time.run(play(seed, tmp_path)) for seed in tonight(range(1000, 1500)))
    assert kinds["determined"] >= 400, kinds
