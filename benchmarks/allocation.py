"""The device allocator on 69 problems, beside what the reference allocator (Go) takes for them.

    python -m benchmarks.allocation [--name PATTERN] [--markdown]

Times are scaled to the machine and hour of the reference's times: ours × (its calibration / our calibration). For each
problem: preparing it (per device), the first answer, for many nodes the answer after one device changed hands, and how
many times faster than the reference that is. `!` marks what misses a bar:

    hard            every problem within 50 ms (8 of them the reference did not answer in 20 s)
    full, occupied  on 1,000 nodes and more: 5 times faster, 50 times after a change
    mig             on 100 nodes: 20 times faster
    all             no more than 3 times slower; preparing within 10 µs a device (20 devices and more)
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import device_problems
from benchmarks.calibrate import calibrate
from benchmarks.device_objects import GPU, NIC
from benchmarks.results import Result

REFERENCE = json.loads((Path(__file__).parent / "data" / "allocator-reference-times.json").read_text())

HARD_SECONDS = 0.050
PREPARE_MICROSECONDS = 10.0
SELECTOR_MICROSECONDS = 1.5
COMPILE_SECONDS = 0.002
MANY_DEVICES = 20
GROUPS = 512


@dataclass(frozen=True)
class Row:
    """One problem: times in seconds of the reference machine."""

    name: str
    devices: int
    prepare: float
    cold: float
    warm: float | None
    reference: float
    timeout: bool
    agrees: bool

    @property
    def prepare_per_device(self) -> float:
        return self.prepare / self.devices * 1e6

    @property
    def speedup(self) -> float:
        return self.reference / self.cold

    @property
    def warm_speedup(self) -> float | None:
        return self.reference / self.warm if self.warm else None

    def misses(self) -> list[str]:
        """The bars that the problem misses."""
        found = [] if self.agrees else ["outcome"]
        family, large = self.name.split("/")[0], any(f"nodes={n}" in self.name for n in (1000, 5000))
        if family == "hard" and self.cold > HARD_SECONDS:
            found.append("50 ms")
        if family in ("full", "occupied") and large:
            found += ["5x"] if self.speedup < 5 else []
            found += ["50x warm"] if (self.warm_speedup or 0) < 50 else []
        if self.name.startswith("mig/nodes=100") and self.speedup < 20:
            found.append("20x")
        if self.speedup < 1 / 3:
            found.append("3x slower")
        if self.devices >= MANY_DEVICES and self.prepare_per_device > PREPARE_MICROSECONDS:
            found.append("prepare")
        return found


def outcome(answer: dict[str, Any], problem: dict[str, Any]) -> str:
    """The answer in the words of reference-times.json."""
    if answer["error"]:
        return str(answer["error"])
    if "nodes" in problem:
        return f"{answer['nodesFit']} of {len(problem['nodes'])} nodes fit"
    return "does not fit" if answer["results"] is None else "fits"


def measure(problem: dict[str, Any], scale: float) -> Row:
    """One problem, measured as `haru allocate --cases` does."""
    from haru.cli.allocate_cases import answer_case

    reference = REFERENCE["problems"][problem["name"]]
    answer = answer_case(problem)
    timeout = reference["outcome"] == "timeout"
    return Row(
        name=problem["name"],
        devices=sum(len(s["spec"].get("devices", ())) for s in problem["slices"]),
        prepare=answer["prepareSeconds"] * scale,
        cold=answer["seconds"] * scale,
        warm=answer["warmSeconds"] * scale if "warmSeconds" in answer else None,
        reference=reference["seconds"],
        timeout=timeout,
        agrees=not answer["error"] if timeout else outcome(answer, problem) == reference["outcome"],
    )


def scale_now() -> float:
    """What one second here is on the machine of the reference's times."""
    return float(REFERENCE["calibration_seconds"]) / calibrate()


def rows(pattern: str = "*") -> Iterator[Row]:
    """All problems whose names match, one after the other."""
    for name in device_problems.WORKLOADS:
        if fnmatch.fnmatch(name, pattern):
            (problem,) = device_problems.generate([name], 1)
            yield measure(json.loads(json.dumps(problem)), scale_now())


def selectors(scale: float) -> tuple[float, float]:
    """Microseconds per group of equal devices for one selector, and seconds to compile the slowest of four."""
    from haru.cel.device import compile_device_selector
    from haru.engine.devices import DeviceSnapshot, NodeView
    from haru.engine.devices.reads import names_read
    from haru.engine.devices.selection import Selection, forget

    expressions = [
        device_problems.HOPPER_80,
        f"device.driver == '{GPU}' && device.attributes['{GPU}'].type == 'gpu'",
        f"device.attributes['{NIC}'].rdma",
        f"device.attributes['{GPU}'].?profile.orValue('').startsWith('1g') || "
        f"device.capacity['{GPU}'].memory.isGreaterThan(quantity('40Gi'))",
    ]
    compiling = []
    for expression in expressions:
        spent = []
        for _ in range(15):
            compile_device_selector.cache_clear()
            names_read.cache_clear()
            begun = time.perf_counter()
            compile_device_selector(expression, new=False)
            names_read(expression, False, True)
            spent.append(time.perf_counter() - begun)
        compiling.append(median(spent))
    per_group = []
    for _ in range(9):
        forget()
        # Devices of which no two are equal: as many groups.
        slices = device_problems.gpu_node("node-0", "Hopper", GROUPS, 2, 4)
        (view,) = DeviceSnapshot.of(slices).views(NodeView("node-0", {}))
        selection = Selection((), (expressions[0],), False, True)
        begun = time.perf_counter()
        selection.column(view)
        per_group.append((time.perf_counter() - begun) / GROUPS)
    return median(per_group) * 1e6 * scale, max(compiling) * scale


def table(found: list[Row], markdown: bool) -> str:
    """The rows as a table."""
    heads = [
        "problem",
        "devices",
        "prepare µs/device",
        "ms",
        "warm ms",
        "reference ms",
        "faster",
        "warm faster",
        "misses",
    ]
    cells = [heads] + [
        [
            row.name,
            f"{row.devices:,}",
            f"{row.prepare_per_device:.1f}",
            f"{row.cold * 1e3:.2f}",
            "" if row.warm is None else f"{row.warm * 1e3:.3f}",
            ("> " if row.timeout else "") + f"{row.reference * 1e3:.2f}",
            ("> " if row.timeout else "") + f"{row.speedup:.2g}",
            "" if row.warm_speedup is None else f"{row.warm_speedup:.2g}",
            "! " + ", ".join(row.misses()) if row.misses() else "",
        ]
        for row in found
    ]
    widths = [max(len(line[i]) for line in cells) for i in range(len(heads))]
    edge = "| " if markdown else ""
    lines = [
        edge
        + (" | " if markdown else "  ")
        .join(
            cell.ljust(width) if number in (0, len(heads) - 1) else cell.rjust(width)
            for number, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        .rstrip()
        + (" |" if markdown else "")
        for line in cells
    ]
    if markdown:
        lines.insert(1, "|" + "|".join("---" if i in (0, len(heads) - 1) else "---:" for i in range(len(heads))) + "|")
    return "\n".join(lines)


def run() -> Iterator[Result]:
    """For `make bench`: every problem's times."""
    for row in rows():
        yield Result(f"allocate {row.name}", row.cold * 1e3, "ms", f"{row.devices} devices")
        if row.warm is not None:
            yield Result(f"allocate {row.name}, warm", row.warm * 1e3, "ms", f"{row.devices} devices")
        yield Result(f"prepare {row.name}", row.prepare_per_device, "µs", "per device")
    per_group, compiling = selectors(scale_now())
    yield Result("selector", per_group, "µs", "per group of equal devices")
    yield Result("selector compilation", compiling * 1e3, "ms", "per expression")


def main() -> int:
    """Prints the table; 1 if a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--name", default="*", help="only problems whose names match this pattern")
    parser.add_argument("--markdown", action="store_true")
    options = parser.parse_args()
    found = list(rows(options.name))
    print(table(found, options.markdown))
    per_group, compiling = selectors(scale_now())
    print(f"\nselectors: {per_group:.2f} µs per group of equal devices, {compiling * 1e3:.2f} ms to compile")
    missed = per_group > SELECTOR_MICROSECONDS or compiling > COMPILE_SECONDS or any(row.misses() for row in found)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
