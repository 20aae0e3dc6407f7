"""What runs of loads say: medians for each scheduler, ratios to a baseline from runs by turns, and missed bars."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from benchmarks.load import Load, Measured
from benchmarks.processes import Used
from benchmarks.tables import markdown, plain

P50_BAR = 1.0
P99_BAR = 1.2


@dataclass(frozen=True)
class Run:
    """One run of a load by a scheduler, in a round."""

    load: Load
    scheduler: str
    round: int
    measured: Measured

    def as_json(self) -> dict[str, Any]:
        """All figures under speaking names."""
        one = self.measured
        used = {
            name: {
                "cpuSeconds": round(used.cpu_seconds, 3),
                "cpuMillisecondsPerPod": round(used.cpu_seconds * 1e3 / one.bound, 3),
                "cores": round(used.cpu_seconds / one.seconds, 3),
                "highWaterMiB": round(used.high_water_mib, 1),
            }
            for name, used in one.used.items()
        }
        return {
            "load": asdict(self.load),
            "scheduler": self.scheduler,
            "round": self.round,
            "bound": one.bound,
            "podsPerSecond": round(one.rate, 2),
            "seconds": round(one.seconds, 3),
            "createSeconds": round(one.create_seconds, 3),
            "p50Seconds": round(one.p50, 4),
            "p99Seconds": round(one.p99, 4),
            "processes": used,
            "requestsPerPod": {name: round(count, 3) for name, count in sorted(one.requests.items())},
        }


@dataclass(frozen=True)
class Comparison:
    """A scheduler beside the baseline on one load: medians of the ratios of each round."""

    load: Load
    scheduler: str
    rate: float
    p50: float
    p99: float
    cpu: float
    """Processor time of all processes but the client, a pod."""
    ceiling: float
    """The most that `rate` could be: all processors busy with what the others took for it, none with the scheduler."""

    def missed(self, bar: float | None) -> list[str]:
        """Names of the bars that are missed."""
        missed = ["pods/s"] if bar is not None and self.rate < bar else []
        missed += ["p50"] if self.p50 > P50_BAR else []
        return missed + (["p99"] if self.p99 > P99_BAR else [])


def _names(runs: Iterable[Run], of: Callable[[Run], str]) -> list[str]:
    return list(dict.fromkeys(of(run) for run in runs))


def compare(runs: Sequence[Run], baseline: str) -> list[Comparison]:
    """Every other scheduler with the baseline, load by load, by the pods that each bound."""
    found = []
    by_turn = {(run.load, run.scheduler, run.round): run.measured for run in runs}
    for load in dict.fromkeys(run.load for run in runs):
        for scheduler in _names(runs, lambda run: run.scheduler):
            pairs = [
                (measured, by_turn[load, baseline, number])
                for (own, name, number), measured in by_turn.items()
                if own == load and name == scheduler != baseline and (load, baseline, number) in by_turn
            ]
            if pairs:
                medians = map(median, zip(*(_quotients(*pair) for pair in pairs), strict=True))
                found.append(Comparison(load, scheduler, *medians))
    return found


def _quotients(one: Measured, other: Measured) -> tuple[float, float, float, float, float]:
    cpu = [sum(used.cpu_seconds for name, used in of.used.items() if name != "client") for of in (one, other)]
    of_pod = cpu[0] / one.bound / (cpu[1] / other.bound) if all(cpu) else math.nan
    return one.rate / other.rate, one.p50 / other.p50, one.p99 / other.p99, of_pod, _ceiling(one) / other.rate


def _ceiling(one: Measured) -> float:
    """Pods a second if the scheduler took no processor time and the others as much as they did, on all processors."""
    others = sum(used.cpu_seconds for name, used in one.used.items() if name != "scheduler")
    return (os.cpu_count() or 1) * one.bound / others if others and "scheduler" in one.used else math.nan


def table(runs: Sequence[Run], in_markdown: bool = False, without: Sequence[str] = ()) -> str:
    """Medians of each load and scheduler: rate, times, processor time and cores in use, memory of each process.

    Columns whose titles have one of the words in `without` are left out.
    """
    processes = list(dict.fromkeys(name for run in runs for name in run.measured.used))
    heads = ["load", "scheduler", "bound", "pods/s", "p50 s", "p99 s"]
    heads += [f"{name} ms/pod" for name in processes] + [f"{name} cores" for name in processes]
    heads += [f"{name} MiB" for name in processes]
    lines = []
    for load in dict.fromkeys(run.load for run in runs):
        for scheduler in _names(runs, lambda run: run.scheduler):
            own = [run.measured for run in runs if run.load == load and run.scheduler == scheduler]
            if own:
                lines.append([load.describe(), scheduler, *_medians(own, processes)])
    kept = [number for number, head in enumerate(heads) if not set(head.split()) & set(without)]
    heads, *lines = ([line[number] for number in kept] for line in (heads, *lines))
    return (markdown if in_markdown else plain)(heads, lines, frozenset((0, 1)))


def _medians(own: Sequence[Measured], processes: Sequence[str]) -> list[str]:
    def of(value: Callable[[Measured], float], digits: int) -> str:
        return f"{median(map(value, own)):,.{digits}f}"

    cells = [f"{min(one.bound for one in own):,}", of(lambda one: one.rate, 1)]
    cells += [of(lambda one: one.p50, 2), of(lambda one: one.p99, 2)]
    measured = [name for name in processes if all(name in one.used for one in own)]

    def each(value: Callable[[Measured, Used], float], digits: int) -> list[str]:
        return [
            f"{median(value(one, one.used[name]) for one in own):,.{digits}f}" if name in measured else ""
            for name in processes
        ]

    cells += each(lambda one, used: used.cpu_seconds * 1e3 / one.bound, 2)
    cells += each(lambda one, used: used.cpu_seconds / one.seconds, 2)
    return cells + each(lambda _, used: used.high_water_mib, 0)


def ratios(comparisons: Sequence[Comparison], bars: dict[Load, float], baseline: str, in_markdown: bool = False) -> str:
    """Ratios to the baseline with their bars, the most that they could be, and what is missed."""
    heads = ["load", "scheduler", f"pods/s of {baseline}'s", "bar", "at most", "p50", "p99", "processor time", "misses"]
    lines = []
    for one in comparisons:
        bar = bars.get(one.load)
        shown = "" if bar is None else f"≥ {bar:g}"
        values = [
            f"{one.rate:.2f}",
            shown,
            "" if one.load.beside or math.isnan(one.ceiling) else f"{one.ceiling:.2f}",
            f"{one.p50:.2f}",
            f"{one.p99:.2f}",
            f"{one.cpu:.2f}",
            ", ".join(one.missed(bar)),
        ]
        lines.append([one.load.describe(), one.scheduler, *values])
    return (markdown if in_markdown else plain)(heads, lines, frozenset((0, 1, 8)))
