"""How long it takes to say why a gang waits, alone and with what would help: the engine on a cluster in memory.

    python -m benchmarks.explaining [NAME…] [--nodes 5000] [--document docs/performance-explain.md]

`first` is the explanation that meets a cluster for the first time, `next` the median of the same question asked again
after a pod elsewhere has come, which is what a dashboard and a scheduler's own process see. Processor time is scaled to
the calibration of the targets, 0.20 s; wall time is as it was. The garbage collector is off meanwhile.
"""

from __future__ import annotations

import argparse
import gc
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.decision_objects import Obj, cluster_of, gang, member, taken_member
from benchmarks.pace import PacedClock
from benchmarks.results import CALIBRATION_SECONDS, Result
from benchmarks.tables import markdown, plain, write_section
from haru.engine import SchedulerCache
from haru.explain.entry import explain
from haru.explain.results import Explanation

NODES = 5_000
CARDS = 8
AGAIN = 3
REASON_TARGET, REMEDIES_TARGET = 200.0, 2_000.0
MAINTENANCE = {"key": "maintenance", "value": "disk", "effect": "NoSchedule"}
SIZES = ((8,), (4, 4), (4, 2, 1), (2, 2, 2, 1), (4, 3), (1,) * 7, (5, 1, 1), (8,))


@dataclass(frozen=True)
class Work:
    """A gang of `pods` with `cards` each that finds no place, on nodes that `occupy` has taken."""

    name: str
    pods: int
    cards: int
    occupy: Callable[[SchedulerCache], None]
    kinds: tuple[str, ...]
    """Remedies that have to be among those that are found."""


def full_alike(cluster: SchedulerCache) -> None:
    """Every node is full with one pod."""
    for name in cluster.snapshot().node_names:
        _apply(cluster, taken_member(f"full-{name}", name, range(CARDS)))


def all_different(cluster: SchedulerCache, limit: int | None = None) -> None:
    """Pods of all sizes, priorities and needs of memory, so that hardly two nodes are used alike; on `limit` nodes.

    Elsewhere one pod has it all.
    """
    rng = random.Random(1)
    for number, name in enumerate(cluster.snapshot().node_names):
        if limit is not None and number >= limit:
            _apply(cluster, taken_member(f"full-{name}", name, range(CARDS)))
            continue
        cards = rng.sample(range(CARDS), CARDS)
        for index, size in enumerate(rng.choice(SIZES)):
            mine, cards = cards[:size], cards[size:]
            priority, memory = rng.randrange(10), f"{rng.randrange(1, 120)}Gi"
            _apply(cluster, taken_member(f"used-{name}-{index}", name, mine, priority=priority, memory=memory))


def thousand_different(cluster: SchedulerCache) -> None:
    """A fifth of 5,000 nodes used in as many ways."""
    all_different(cluster, 1_000)


def closed_mix(cluster: SchedulerCache) -> None:
    """A tenth of the nodes is cordoned, a tenth tainted, and has room; the rest is used in different ways."""
    rng = random.Random(2)
    snapshot = cluster.snapshot()
    for name in snapshot.node_names:
        cut = rng.random()
        if cut < 0.2:
            obj = snapshot.nodes[name].spec.obj
            spec: Obj = {"unschedulable": True} if cut < 0.1 else {"taints": [MAINTENANCE]}
            cluster.apply({**obj, "spec": spec})
        else:
            count = rng.choice((6, 7, 8, 8, 8))
            cards = rng.sample(range(CARDS), count)
            _apply(cluster, taken_member(f"used-{name}", name, cards, priority=rng.randrange(10)))


def _apply(cluster: SchedulerCache, objects: Sequence[Obj]) -> None:
    for obj in objects:
        cluster.apply(obj)


WORKS = (
    Work("64 x 8 cards, nodes full and alike", 64, 8, full_alike, ("Evict", "AddNodes")),
    Work("512 x 1 card, nodes full and alike", 512, 1, full_alike, ("Evict", "AddNodes")),
    Work("16 x 8 cards, 1,000 nodes all different", 16, 8, thousand_different, ("Evict", "AddNodes")),
    Work("16 x 8 cards, all 5,000 different", 16, 8, all_different, ("Evict", "AddNodes")),
    Work("64 x 4 cards, all 5,000 different", 64, 4, all_different, ("Evict", "AddNodes")),
    Work("64 x 8 cards, cordoned and tainted", 64, 8, closed_mix, ("Uncordon", "Tolerate", "Evict")),
)


@dataclass(frozen=True)
class Measured:
    """One work, in milliseconds: reason alone and with remedies, processor and wall, first and next."""

    work: Work
    nodes: int
    reason: tuple[float, ...]
    helped: tuple[float, ...]
    reason_wall: tuple[float, ...]
    helped_wall: tuple[float, ...]
    found: Explanation


def measure(work: Work, nodes: int) -> Measured:
    """Reason and remedies of one work, each on a cluster of its own that nobody has asked anything."""
    times: dict[bool, tuple[list[float], list[float]]] = {}
    told: Explanation | None = None
    for remedies in (False, True):
        cluster = cluster_of(nodes, max(1, nodes // 100), CARDS)
        work.occupy(cluster)
        made = gang("gang", work.pods, work.cards)
        _apply(cluster, made)
        paced, wall = times[remedies] = [], []
        gc.collect()
        gc.disable()
        clock = PacedClock(CALIBRATION_SECONDS)
        for number in range(1 + AGAIN):
            _apply(cluster, member(f"other-{number}", "", 0))
            snapshot = cluster.snapshot()
            begun, since = clock(), time.perf_counter()
            told = explain(snapshot, "podgroup", made[0], remedies=remedies)
            wall.append((time.perf_counter() - since) * 1e3)
            paced.append((clock() - begun) * 1e3)
        gc.enable()
    assert told is not None
    kinds = {remedy.kind for remedy in told.remedies if remedy.confirmed}
    assert set(work.kinds) <= kinds, (work.name, told.verdict, kinds)
    reason, helped = times[False], times[True]
    return Measured(work, nodes, tuple(reason[0]), tuple(helped[0]), tuple(reason[1]), tuple(helped[1]), told)


def measured(names: Sequence[str] = (), nodes: int = NODES) -> Iterator[Measured]:
    """The works of which a name says part, or all."""
    for work in WORKS:
        if not names or any(name in work.name for name in names):
            yield measure(work, nodes)


def run() -> Iterator[Result]:
    """For `make bench`: every work."""
    for one in measured():
        on = f"{one.nodes} nodes"
        yield Result(f"explain, first: {one.work.name}", one.reason[0], "ms", on)
        yield Result(f"explain, next: {one.work.name}", statistics.median(one.reason[1:]), "ms", on)
        yield Result(f"explain with remedies, first: {one.work.name}", one.helped[0], "ms", on)
        yield Result(f"explain with remedies, next: {one.work.name}", statistics.median(one.helped[1:]), "ms", on)


HEADS = (
    "gang", "nodes", "reason: first ms", "wall", "next ms", "wall", "with remedies: first ms", "wall", "next ms",
    "wall", "targets (next)",
)  # fmt: skip


def cells(one: Measured) -> list[str]:
    """A row of the table."""
    numbers = []
    for series in (one.reason, one.reason_wall, one.helped, one.helped_wall):
        numbers.append((series[0], statistics.median(series[1:])))
    (reason, reason_next), reason_wall, (helped, helped_next), helped_wall = numbers
    figures = (
        reason, reason_wall[0], reason_next, reason_wall[1], helped, helped_wall[0], helped_next, helped_wall[1],
    )  # fmt: skip
    said = ", ".join(
        "met" if value <= target else f"missed by {value - target:,.0f} ms"
        for value, target in ((reason_next, REASON_TARGET), (helped_next, REMEDIES_TARGET))
    )
    return [one.work.name, f"{one.nodes:,}", *(f"{value:,.0f}" for value in figures), said]


def table(found: Sequence[Measured], in_markdown: bool) -> str:
    """All that was measured."""
    return (markdown if in_markdown else plain)(HEADS, [cells(one) for one in found], frozenset((0, len(HEADS) - 1)))


def main() -> int:
    """Prints the table; 1 if a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="only works whose names contain one of these")
    parser.add_argument("--nodes", type=int, default=NODES, help="size of the cluster")
    parser.add_argument("--document", type=Path, metavar="FILE", help="write the table into this document")
    options = parser.parse_args()
    found = []
    for one in measured(options.names, options.nodes):
        print(plain(HEADS, [cells(one)]).splitlines()[1], file=sys.stderr, flush=True)
        found.append(one)
    print(table(found, in_markdown=False))
    if options.document:
        write_section(options.document, "explaining", table(found, in_markdown=True))
    return int(any("missed" in cells(one)[-1] for one in found))


if __name__ == "__main__":
    sys.exit(main())
