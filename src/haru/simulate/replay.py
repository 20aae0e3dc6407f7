"""One run: the pods of a workload come in a seeded order and are placed by a policy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from haru.simulate.draws import Draws
from haru.simulate.openb import FULL, Workload, arrivals, ordered
from haru.simulate.packing import CARD, Machine, Packer, Policy, Shape
from haru.simulate.partitions import PartitionedPacker, Partitioning, split

Progress = Callable[[int, int], None]
"""Told how many pods of how many have been tried."""
_TOLD_EVERY = 256


@dataclass(frozen=True, slots=True)
class Run:
    """How much was allocated, in percent of all cards, when so many percent of them had been asked for."""

    allocated: tuple[float, ...]
    """At 1 %, 2 %, … of demand."""
    pods: int
    placed: int

    def at(self, percent: int) -> float:
        """Allocated at a demand in percent; raises IndexError beyond the end of the run."""
        return self.allocated[percent - 1]


def play(workload: Workload, policy: Policy, seed: int, progress: Progress | None = None, demand: float = FULL) -> Run:
    """Replay a workload by the published protocol (`haru.simulate.openb`)."""
    draws = Draws(seed)
    pods = arrivals(workload, draws, demand)
    return fill(ordered(workload.machines, draws), pods, policy, demand, progress)


def play_partitioned(
    workload: Workload,
    policy: Callable[[Sequence[Machine]], Policy],
    partitioning: Partitioning,
    seed: int,
    progress: Progress | None = None,
    demand: float = FULL,
) -> Run:
    """Replay a workload in partitions; pods and nodes come in the order that `play` has for the seed."""
    draws = Draws(seed)
    pods = arrivals(workload, draws, demand)
    parts = split(ordered(workload.machines, draws), partitioning.count)
    packer = PartitionedPacker(parts, policy, partitioning.route, draws)
    return _fill(packer.place, workload.cards * CARD, pods, demand, progress)


def fill(
    machines: Sequence[Machine],
    pods: Sequence[Shape],
    policy: Policy,
    demand: float = FULL,
    progress: Progress | None = None,
) -> Run:
    """Place pods one after another; those that do not fit are dropped."""
    total = sum(machine.cards for machine in machines) * CARD
    return _fill(Packer(machines, policy).place, total, pods, demand, progress)


def _fill(
    place: Callable[[Shape], int | None],
    total: int,
    pods: Sequence[Shape],
    demand: float,
    progress: Progress | None,
) -> Run:
    levels = round(demand * 100)
    allocated: list[float] = []
    arrived = got = placed = 0
    for number, pod in enumerate(pods):
        if progress is not None and number % _TOLD_EVERY == 0:
            progress(number, len(pods))
        while len(allocated) < levels and arrived * 100 >= (len(allocated) + 1) * total:
            allocated.append(got * 100 / total)
        arrived += pod.amount
        if place(pod) is not None:
            got += pod.amount
            placed += 1
    allocated += [got * 100 / total] * (levels - len(allocated))
    if progress is not None:
        progress(len(pods), len(pods))
    return Run(tuple(allocated), len(pods), placed)
