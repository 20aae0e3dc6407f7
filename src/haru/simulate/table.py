"""What several policies made of several workloads, side by side: rows, their means, a table, JSON."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from haru.simulate.replay import Run

LEVELS = (100, 130)
"""Percent of the cluster's cards that have been asked for when the table looks."""


@dataclass(frozen=True, slots=True)
class Row:
    """One run of one policy: the seed that made its order, and how many pods a second of processor time it decided."""

    workload: str
    policy: str
    seed: int
    run: Run
    pods_per_second: float
    partitions: int = 1
    route: str = ""

    def as_dict(self) -> dict[str, Any]:
        """The documented JSON."""
        return {
            "workload": self.workload,
            "policy": self.policy,
            "seed": self.seed,
            "gpusAllocatedPercentAt": {str(level): round(self.run.at(level), 3) for level in LEVELS},
            "pods": self.run.pods,
            "placed": self.run.placed,
            "placementsPerSecond": round(self.pods_per_second, 1),
            **({"partitions": self.partitions, "route": self.route} if self.route else {}),
        }


@dataclass(frozen=True, slots=True)
class Summary:
    """The runs of one policy on one workload: means and spread (standard deviation over the seeds) at each level."""

    workload: str
    policy: str
    seeds: int
    means: tuple[float, ...]
    spreads: tuple[float, ...]
    pods_per_second: float
    partitions: int = 1


def summaries(rows: Iterable[Row]) -> list[Summary]:
    """One summary for each workload, policy and number of partitions, in the order in which they first come."""
    groups: dict[tuple[str, str, int], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.workload, row.policy, row.partitions), []).append(row)
    found = []
    for (workload, policy, partitions), members in groups.items():
        values = [[member.run.at(level) for member in members] for level in LEVELS]
        speed = sum(member.pods_per_second for member in members) / len(members)
        means = tuple(_mean(column) for column in values)
        spreads = tuple(_spread(column) for column in values)
        found.append(Summary(workload, policy, len(members), means, spreads, speed, partitions))
    return found


def mean_curve(rows: Sequence[Row]) -> tuple[float, ...]:
    """Allocated at 1 %, 2 %, … of demand, the mean over runs of equal length."""
    return tuple(_mean(column) for column in zip(*(row.run.allocated for row in rows), strict=True))


def to_json(rows: Sequence[Row]) -> dict[str, Any]:
    """The documented JSON: every run."""
    return {"apiVersion": "haru.dev/v1alpha1", "kind": "Simulation", "rows": [row.as_dict() for row in rows]}


def to_text(rows: Sequence[Row]) -> str:
    """A table: for each workload and policy the cards allocated in percent, and the spread where seeds are several."""
    partitioned = any(row.route for row in rows)
    titles = ("POLICY", "PARTITIONS") if partitioned else ("POLICY",)
    lines = [("WORKLOAD", *titles, "SEEDS", *(f"AT {level} %" for level in LEVELS), "PODS/S")]
    for item in summaries(rows):
        cells = [
            f"{mean:.2f}" + (f" ±{spread:.2f}" if item.seeds > 1 else "")
            for mean, spread in zip(item.means, item.spreads, strict=True)
        ]
        names = (item.policy, str(item.partitions)) if partitioned else (item.policy,)
        lines.append((item.workload, *names, str(item.seeds), *cells, f"{item.pods_per_second:.0f}"))
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _spread(values: Sequence[float]) -> float:
    mean = _mean(values)
    return (sum((value - mean) ** 2 for value in values) / (len(values) - 1)) ** 0.5 if len(values) > 1 else 0.0
