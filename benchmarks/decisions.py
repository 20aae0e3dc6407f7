"""How long one decision takes, and nothing else: no API, no store, no events. The engine on a cluster in memory.

    python -m benchmarks.decisions [NAME…] [--size 0.1|1|10] [--limit SECONDS] [--plots]
                                   [--document docs/performance-decisions.md]

Sizes are a tenth, one and ten times the measured cluster of 5,000 nodes, so that growth shows. `first` is the decision
that meets a cluster for the first time, `next` what follows when the one before has been carried out. Times are
processor time, scaled to the calibration of the targets, 0.20 s. The garbage collector is off meanwhile. A case that
takes longer than `--limit` seconds of processor time, its cluster included, is stopped, and said to be.
"""

from __future__ import annotations

import argparse
import gc
import math
import signal
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from benchmarks import plots
from benchmarks.decision_objects import HOSTNAME, RACK, Obj, cluster_of, fill, gang, take
from benchmarks.pace import PacedClock
from benchmarks.results import CALIBRATION_SECONDS, Result
from benchmarks.tables import markdown, plain, write_section
from haru.engine import Options, SchedulerCache, decide

NODES = 5_000
SIZES = (0.1, 1.0, 10.0)
LIMIT_SECONDS = 1_200


class OutOfTimeError(Exception):
    """A case has taken longer than it may."""


@dataclass(frozen=True)
class Work:
    """`rounds` gangs of `pods` with `cards` each, one after the other, on nodes of which a share is in use.

    `target` in milliseconds holds at the size 1, for the first decision or (`steady`) for the median of the next ones.
    `reference` is what 1.36 takes.
    """

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
    target: float | None = None
    steady: bool = False
    reference: float | None = None

    def size_of_gang(self, size: float) -> int:
        """How many pods the gang has at a size."""
        return max(2, int(self.pods * size)) if self.grows else self.pods

    def racks_at(self, size: float) -> int:
        """How many racks the cluster has at a size; where a gang that belongs into one grows, the racks do."""
        return self.racks if self.grows else max(1, int(self.racks * size))


WORKS = (
    Work(
        "gang of 3, no cards", 3, 0, 50, rounds=1_000, cards_per_node=0, target=1, steady=True, reference=3.7
    ),
    Work("gang of 3 x 1 card", 3, 1, 50, rounds=1_000, target=1, steady=True, reference=3.7),
    Work("gang of 10,000 x 1 card", 10_000, 1, 50, rounds=3, grows=True, target=2_000),
    Work("gang of 1,250 x 8 cards", 1_250, 8, 50, rounds=3, grows=True, target=2_000),
    Work(
        "topology gang of 512 x 1 card", 512, 1, 50, RACK, rounds=4, grows=True, target=500, reference=48_700
    ),
    Work(
        "gang of 10 x 1 card, cluster full",
        10, 1, 50, rounds=4, in_use=1.0, nodes=500, fits=False, target=100, reference=249_500,
    ),
    Work("topology gang of 4, no cards", 4, 0, 50, RACK, rounds=20, cards_per_node=0),
    Work("topology gang of 1,000, no cards", 1_000, 0, 50, RACK, rounds=4, cards_per_node=0, grows=True),
    Work("gang of 8 x 1 card on one host", 8, 1, 50, HOSTNAME, rounds=5, in_use=0.1, sizes=(0.1, 1.0)),
    Work("gang of 9 x 1 card on one host", 9, 1, 50, HOSTNAME, rounds=5, in_use=0.1, fits=False, sizes=(0.1, 1.0)),
)  # fmt: skip


@dataclass(frozen=True)
class Measured:
    """One work at one size; times in milliseconds. `stopped` says at what it was when its time was up.

    Then `first` may be no number.
    """

    work: Work
    size: float
    first: float
    following: tuple[float, ...]
    stopped: str = ""

    @property
    def nodes(self) -> int:
        """How many nodes the cluster has."""
        return int(self.work.nodes * self.size)

    @property
    def pods(self) -> int:
        """How many pods the gang has."""
        return self.work.size_of_gang(self.size)

    @property
    def typical(self) -> float:
        """The median of the decisions after the first; the first where there is no other."""
        return statistics.median(self.following) if self.following else self.first

    @property
    def verdict(self) -> str:
        """Whether the target is met, if there is one for this size; or that the time was up."""
        if self.stopped:
            return self.stopped
        if self.work.target is None or self.size != 1:
            return ""
        over = (self.typical if self.work.steady else self.first) - self.work.target
        said = "met" if over <= 0 else f"missed by {over:,.2f} ms"
        return f"{self.work.target:,.0f} ms: {said}"


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Raises OutOfTimeError in what takes more processor time than this."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise OutOfTimeError

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def measure(work: Work, size: float, limit: float = LIMIT_SECONDS) -> Measured:
    """All decisions of one work on a new cluster, as far as `limit` seconds of processor time allow."""
    times: list[float] = []
    stage, stopped = "the cluster", ""
    try:
        with limited(limit):
            cluster = cluster_of(int(work.nodes * size), work.racks_at(size), work.cards_per_node)
            if work.in_use:
                fill(cluster, work.in_use, work.cards_per_node)
            gc.collect()
            gc.disable()
            clock = PacedClock(CALIBRATION_SECONDS)
            for number in range(work.rounds):
                stage = f"decision {number + 1}"
                times.append(_one(cluster, work, number, size, clock) * 1e3)
    except OutOfTimeError:
        stopped = f"stopped after {limit:,.0f} s at {stage}"
    finally:
        gc.enable()
    return Measured(work, size, times[0] if times else math.nan, tuple(times[1:]), stopped)


def _one(cluster: SchedulerCache, work: Work, number: int, size: float, clock: Callable[[], float]) -> float:
    made = gang(f"gang-{number:04}", work.size_of_gang(size), work.cards, work.topology, cpu=work.cpu)
    for obj in made:
        cluster.apply(obj)
    group: Obj = made[0]
    pods = [obj for obj in made if obj["kind"] == "Pod"]
    snapshot = cluster.snapshot()
    begun = clock()
    decision = decide(snapshot, pods, group=group, options=Options(seed=number))
    seconds = clock() - begun
    assert (decision.status == "scheduled") is work.fits, (work.name, size, decision.status, decision.message)
    assert not work.fits or len(decision.placed) == len(pods), (work.name, size, len(decision.placed))
    take(cluster, decision)
    return seconds


def measured(
    names: Sequence[str] = (), sizes: Sequence[float] = SIZES, limit: float = LIMIT_SECONDS
) -> Iterator[Measured]:
    """The works of which a name says part, or all; at some sizes."""
    for work in WORKS:
        if not names or any(name in work.name for name in names):
            yield from (measure(work, size, limit) for size in work.sizes if size in sizes)


def run() -> Iterator[Result]:
    """For `make bench`: every work at every size."""
    for one in measured():
        on = f"{one.nodes} nodes"
        if math.isnan(one.first):
            print(f"decide: {one.work.name} on {on}: {one.stopped}", file=sys.stderr)
            continue
        yield Result(f"decide, first: {one.work.name}", one.first, "ms", on)
        if one.following:
            yield Result(f"decide, next: {one.work.name}", one.typical, "ms", on)
            yield Result(f"decide, slowest: {one.work.name}", max(one.following), "ms", on)


HEADS = ("decision", "nodes", "pods", "first ms", "next ms", "slowest ms", "µs a pod", "1.36 ms", "target")


def cells(one: Measured) -> list[str]:
    """A row of the table."""
    more = [f"{one.typical:,.2f}", f"{max(one.following):,.2f}"] if one.following else ["", ""]
    reference = f"{one.work.reference:,.1f}" if one.work.reference and one.size == 1 else ""
    none = math.isnan(one.first)
    per_pod = "" if none else f"{one.typical / one.pods * 1e3:,.0f}"
    return [
        one.work.name,
        f"{one.nodes:,}",
        f"{one.pods:,}",
        "" if none else f"{one.first:,.1f}",
        *more,
        per_pod,
        reference,
        one.verdict,
    ]


def table(found: Sequence[Measured], in_markdown: bool) -> str:
    """All that was measured."""
    return (markdown if in_markdown else plain)(HEADS, [cells(one) for one in found], frozenset((0, len(HEADS) - 1)))


def plot(found: Sequence[Measured]) -> Iterator[Path]:
    """Time per pod against the number of nodes: of the first decision, and of those after it."""
    found = [one for one in found if not math.isnan(one.first)]
    names = list(dict.fromkeys(one.work.name for one in found))
    first = {name: [(o.nodes, o.first / o.pods) for o in found if o.work.name == name] for name in names}
    later = {
        name: [(o.nodes, o.typical / o.pods) for o in found if o.work.name == name and o.following] for name in names
    }
    yield plots.growth("decisions-first", "nodes", "milliseconds a pod, first decision", first)
    later = {name: points for name, points in later.items() if points}
    yield plots.growth("decisions-next", "nodes", "milliseconds a pod, next decisions", later)


def main() -> int:
    """Prints the table; 1 if a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="only works whose names contain one of these")
    parser.add_argument("--size", type=float, action="append", choices=SIZES, help="only at this size")
    parser.add_argument("--plots", action="store_true", help="write the pictures of the document")
    parser.add_argument("--document", type=Path, metavar="FILE", help="write the table into this document")
    parser.add_argument("--limit", type=float, default=LIMIT_SECONDS, help="seconds of processor time for each case")
    options = parser.parse_args()
    found = []
    for one in measured(options.names, options.size or SIZES, options.limit):
        print(plain(HEADS, [cells(one)]).splitlines()[1], file=sys.stderr, flush=True)
        found.append(one)
    print(table(found, in_markdown=False))
    if options.document:
        write_section(options.document, "decisions", table(found, in_markdown=True))
    for path in plot(found) if options.plots else ():
        print(path, file=sys.stderr)
    return int(any("missed" in one.verdict for one in found))


if __name__ == "__main__":
    sys.exit(main())
