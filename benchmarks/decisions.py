"""How long one decision takes, and nothing else: no API, no store, no events. The engine on a cluster in memory.

    python -m benchmarks.decisions [NAME…]

Sizes are a tenth, one and ten times the measured cluster of 5,000 nodes, so that growth shows. `first` is the decision
that meets a cluster for the first time, `next` what follows when the one before has been carried out. Times are scaled
to the calibration of the targets, 0.20 s. The garbage collector is off meanwhile.
"""

from __future__ import annotations

import gc
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from benchmarks.calibrate import calibrate
from benchmarks.decision_objects import HOSTNAME, RACK, Obj, cluster_of, fill, gang, take
from benchmarks.results import CALIBRATION_SECONDS, Result, show
from haru.engine.cluster import Cluster
from haru.engine.decision import Decision
from haru.engine.groups import Options, decide

NODES = 5_000
SIZES = (0.1, 1.0, 10.0)


@dataclass(frozen=True)
class Work:
    """`rounds` gangs of `pods` with `cards` each, one after the other, on nodes of which a share is in use."""

    name: str
    pods: int
    cards: int
    racks: int
    topology: str = ""
    rounds: int = 1
    cards_per_node: int = 8
    in_use: float = 0.0
    nodes: int = NODES
    fits: bool = True
    cpu: str = "8"
    sizes: tuple[float, ...] = SIZES
    grows: bool = False
    """Whether the gang grows with the cluster."""


WORKS = (
    Work("topology gang of 512 x 1 card", 512, 1, 50, RACK, 3, grows=True),
    Work("topology gang of 4, no cards", 4, 0, 50, RACK, 20, cards_per_node=0),
    Work("topology gang of 1,000, no cards", 1_000, 0, 50, RACK, 3, cards_per_node=0, grows=True),
    Work("gang of 8 x 1 card on one host", 8, 1, 50, HOSTNAME, 5, in_use=0.1),
    Work("gang of 9 x 1 card on one host", 9, 1, 50, HOSTNAME, 5, in_use=0.1, fits=False),
    Work("gang of 3, no cards", 3, 0, 50, "", 1_000, cards_per_node=0),
    Work("gang of 3 x 1 card", 3, 1, 50, "", 1_000, cards_per_node=8),
    Work("gang of 10,000 x 1 card", 10_000, 1, 50, "", 1, grows=True),
    Work("gang of 1,250 x 8 cards", 1_250, 8, 50, "", 1, grows=True),
    Work("gang of 10 x 1 card, cluster full", 10, 1, 50, "", 3, in_use=1.0, nodes=500, fits=False),
)


def _gang(cluster: Cluster, work: Work, number: int, size: float) -> tuple[Obj, list[Obj]]:
    pods = max(2, int(work.pods * size)) if work.grows else work.pods
    made = gang(f"gang-{number:04}", pods, work.cards, work.topology, cpu=work.cpu)
    for obj in made:
        cluster.apply(obj)
    return made[0], [obj for obj in made if obj["kind"] == "Pod"]


def _timed(cluster: Cluster, group: Obj, pods: list[Obj], seed: int) -> tuple[float, Decision]:
    snapshot = cluster.snapshot()
    started = time.perf_counter()
    decision = decide(snapshot, pods, group=group, options=Options(seed=seed))
    return time.perf_counter() - started, decision


def measure(work: Work, size: float) -> list[float]:
    """Seconds of each decision, the first one first."""
    nodes = int(work.nodes * size)
    cluster = cluster_of(nodes, max(1, int(work.racks * size)), work.cards_per_node)
    if work.in_use:
        fill(cluster, work.in_use, work.cards_per_node)
    gc.collect()
    gc.disable()
    times = []
    for number in range(work.rounds):
        group, pods = _gang(cluster, work, number, size)
        seconds, decision = _timed(cluster, group, pods, number)
        assert (decision.status == "scheduled") is work.fits, (work.name, size, decision.status, decision.message)
        assert not work.fits or len(decision.placed) == len(pods), (work.name, size, len(decision.placed))
        times.append(seconds)
        take(cluster, decision)
    gc.enable()
    return times


def run(chosen: Callable[[Work], bool] = lambda work: True, sizes: tuple[float, ...] = SIZES) -> Iterator[Result]:
    """Every work at every size."""
    for work in filter(chosen, WORKS):
        for size in (s for s in work.sizes if s in sizes):
            scale = CALIBRATION_SECONDS / calibrate()
            times = [seconds * scale * 1e3 for seconds in measure(work, size)]
            on = f"{int(work.nodes * size)} nodes"
            yield Result(f"decide, first: {work.name}", times[0], "ms", on)
            if len(times) > 1:
                yield Result(f"decide, next: {work.name}", statistics.median(times[1:]), "ms", on)
                yield Result(f"decide, slowest: {work.name}", max(times[1:]), "ms", on)


if __name__ == "__main__":
    named = [argument for argument in sys.argv[1:] if not argument.startswith("--")]
    wanted = (1.0,) if "--one" in sys.argv else (0.1,) if "--tenth" in sys.argv else SIZES
    for figure in run(lambda work: not named or any(name in work.name for name in named), wanted):
        show(figure)
