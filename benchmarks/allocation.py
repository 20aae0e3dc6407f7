"""The device allocator on 69 problems, beside what the reference allocator (Go) takes for them.

    python -m benchmarks.allocation [--name PATTERN] [--rounds N] [--document docs/performance.md]

Times are processor seconds of the machine and hour of the reference's times (see `pace`); medians. For each problem:
preparing it, and how much of that is compiling selectors, per device; the first answer; for many nodes the answer after
one device changed hands; and how many times faster than the reference that is. What misses a bar is named:

    50 ms           every hard problem (8 of them the reference did not answer in 20 s)
    5x, 50x warm    full and occupied on 1,000 nodes and more, at first and after a change
    20x             mig on 100 nodes
    3x slower       no problem may be
    prepare         10 µs a device
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from benchmarks import device_problems, selectors
from benchmarks.pace import PacedClock
from benchmarks.results import Result
from benchmarks.tables import markdown, plain, write_section

REFERENCE = json.loads((Path(__file__).parent / "data" / "allocator-reference-times.json").read_text())

HARD_SECONDS = 0.050
PREPARE_MICROSECONDS = 10.0


class Times(NamedTuple):
    """Seconds of the reference machine. `warm` is 0 for a problem with one node."""

    prepare: float
    compiling: float
    cold: float
    warm: float


class Row(NamedTuple):
    """One problem."""

    name: str
    devices: int
    times: Times
    reference: float
    timeout: bool
    agrees: bool

    @property
    def prepare_per_device(self) -> float:
        """Microseconds."""
        return self.times.prepare / self.devices * 1e6

    @property
    def speedup(self) -> float:
        """How many times faster than the reference."""
        return self.reference / self.times.cold

    @property
    def warm_speedup(self) -> float | None:
        """The same after a change."""
        return self.reference / self.times.warm if self.times.warm else None

    def misses(self) -> list[str]:
        """The bars that the problem misses."""
        found = [] if self.agrees else ["outcome"]
        family, large = self.name.split("/")[0], any(f"nodes={n}" in self.name for n in (1000, 5000))
        if family == "hard" and self.times.cold > HARD_SECONDS:
            found.append("50 ms")
        if family in ("full", "occupied") and large:
            found += ["5x"] if self.speedup < 5 else []
            found += ["50x warm"] if (self.warm_speedup or 0) < 50 else []
        if self.name.startswith("mig/nodes=100") and self.speedup < 20:
            found.append("20x")
        if self.speedup < 1 / 3:
            found.append("3x slower")
        if self.prepare_per_device > PREPARE_MICROSECONDS:
            found.append("prepare")
        return found


def outcome(answer: dict[str, Any], problem: dict[str, Any]) -> str:
    """The answer in the words of the reference's times."""
    if answer["error"]:
        return str(answer["error"])
    if "nodes" in problem:
        return f"{answer['nodesFit']} of {len(problem['nodes'])} nodes fit"
    return "does not fit" if answer["results"] is None else "fits"


def compiling(problem: dict[str, Any], clock: PacedClock) -> float:
    """Seconds to compile the problem's selectors."""
    from haru.engine import Features
    from haru.engine.dra import compile_selectors, forget_selectors

    spent = []
    for _ in range(15):
        forget_selectors()
        begun = clock()
        compile_selectors(problem["classes"], problem["claims"], Features(**problem["features"]))
        spent.append(clock() - begun)
    return median(spent)


def measure(problem: dict[str, Any], clock: PacedClock, rounds: int = 1) -> Row:
    """One problem, measured as `haru allocate --cases` does, but by a clock for a machine that others use too."""
    from haru.cli.allocate_cases import answer_case

    reference = REFERENCE["problems"][problem["name"]]
    timeout = reference["outcome"] == "timeout"
    found, agrees = [], True
    for _ in range(rounds):
        answer = answer_case(problem, clock=clock)
        seconds = (answer["prepareSeconds"], compiling(problem, clock), answer["seconds"])
        found.append((*seconds, answer.get("warmSeconds", 0.0)))
        agrees &= not answer["error"] if timeout else outcome(answer, problem) == reference["outcome"]
    return Row(
        name=problem["name"],
        devices=sum(len(s["spec"].get("devices", ())) for s in problem["slices"]),
        times=Times(*map(median, zip(*found, strict=True))),
        reference=reference["seconds"],
        timeout=timeout,
        agrees=agrees,
    )


def paced_clock() -> PacedClock:
    """A clock that counts in seconds of the reference's times."""
    return PacedClock(float(REFERENCE["calibration_seconds"]))


def rows(pattern: str = "*", rounds: int = 1) -> list[Row]:
    """All problems whose names match, in seconds of the reference machine."""
    found, clock = [], paced_clock()
    for name in device_problems.WORKLOADS:
        if fnmatch.fnmatch(name, pattern):
            (problem,) = device_problems.generate([name], 1)
            found.append(measure(json.loads(json.dumps(problem)), clock, rounds))
    return found


HEADS = (
    "problem",
    "devices",
    "prepare µs/device",
    "of it compiling",
    "ms",
    "warm ms",
    "reference ms",
    "faster",
    "warm faster",
    "misses",
)


def cells(row: Row) -> list[str]:
    """A row in words and figures."""
    more = "> " if row.timeout else ""
    return [
        row.name,
        f"{row.devices:,}",
        f"{row.prepare_per_device:.1f}",
        f"{row.times.compiling / row.devices * 1e6:.1f}",
        f"{row.times.cold * 1e3:.2f}",
        f"{row.times.warm * 1e3:.3f}" if row.times.warm else "",
        f"{more}{row.reference * 1e3:,.2f}",
        more + _times(row.speedup),
        "" if row.warm_speedup is None else _times(row.warm_speedup),
        ", ".join(row.misses()),
    ]


def _times(factor: float) -> str:
    return f"{factor:.2g}" if factor < 100 else f"{float(f'{factor:.2g}'):,.0f}"


def table(found: list[Row], in_markdown: bool) -> str:
    """The rows as a table."""
    return (markdown if in_markdown else plain)(HEADS, [cells(row) for row in found], frozenset((0, len(HEADS) - 1)))


def summary(found: list[Row]) -> str:
    """How many problems miss each bar, and how many answer otherwise than the reference."""
    counts: dict[str, int] = {}
    for bar in (bar for row in found for bar in row.misses()):
        counts[bar] = counts.get(bar, 0) + 1
    missed = ", ".join(f"{bar}: {count}" for bar, count in sorted(counts.items())) or "none"
    return f"{len(found)} problems; bars missed: {missed}"


def run() -> Iterator[Result]:
    """For `make bench`: every problem's times."""
    for row in rows():
        size = f"{row.devices} devices"
        yield Result(f"allocate {row.name}", row.times.cold * 1e3, "ms", size)
        if row.times.warm:
            yield Result(f"allocate {row.name}, warm", row.times.warm * 1e3, "ms", size)
        yield Result(f"prepare {row.name}", row.prepare_per_device, "µs", "per device")


def main() -> int:
    """Prints the tables of problems and selectors; 1 if a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--name", default="*", help="only problems whose names match this pattern")
    parser.add_argument("--rounds", type=int, default=1, help="measure each so often, and take the medians")
    parser.add_argument("--document", type=Path, metavar="FILE", help="write the tables into this document")
    options = parser.parse_args()
    found = rows(options.name, options.rounds)
    evaluated = selectors.rows()
    print(table(found, in_markdown=False), summary(found), selectors.table(evaluated, in_markdown=False), sep="\n\n")
    if options.document:
        write_section(options.document, "problems", f"{table(found, in_markdown=True)}\n\n{summary(found)}.")
        write_section(options.document, "selectors", selectors.table(evaluated, in_markdown=True))
    return int(any(row.misses() for row in found) or any(row.misses() for row in evaluated))


if __name__ == "__main__":
    sys.exit(main())
