"""Device selectors: what it takes to compile one, and to evaluate it for the different devices of a node.

    python -m benchmarks.selectors

Evaluated is a selector on 512 devices of which no two are equal: 512 groups of equal devices. Mostly they agree in what
the selector reads, and then one evaluation serves them all (`shared`). The other extreme are devices that differ in
what it reads: the same selector with `index >= 0 &&` before it (`each`). Both times are per group.
"""

from __future__ import annotations

import sys
from statistics import median
from typing import NamedTuple

from benchmarks.device_objects import GPU, NIC, gpu_node
from benchmarks.device_problems import HOPPER_80
from benchmarks.pace import PacedClock
from benchmarks.results import CALIBRATION_SECONDS, Result
from benchmarks.tables import markdown, plain

GROUPS = 512
COMPILE_BAR = 0.002
GROUP_BAR = 1.5e-6
ROUNDS = 101
_INDEX = f"device.attributes['{GPU}'].index >= 0"

EXPRESSIONS = {
    "model and memory": HOPPER_80,
    "driver and type": f"device.driver == '{GPU}' && device.attributes['{GPU}'].type == 'gpu'",
    "an index": _INDEX,
    "one of three models": f"device.attributes['{GPU}'].productName in ['NVIDIA A100', 'NVIDIA H100', 'NVIDIA B200']",
    "profile, if any, or memory": (
        f"device.attributes['{GPU}'].?profile.orValue('').startsWith('1g') || "
        f"device.capacity['{GPU}'].memory.isGreaterThan(quantity('40Gi'))"
    ),
    "an attribute that is not there": f"device.attributes['{NIC}'].rdma",
}


class Row(NamedTuple):
    """One selector: seconds of the reference machine. What reads an index has nothing to share."""

    name: str
    compiling: float
    shared: float | None
    each: float

    def misses(self) -> list[str]:
        """The bars that it misses."""
        found = ["compile"] if self.compiling > COMPILE_BAR else []
        found += ["shared"] if self.shared is not None and self.shared > GROUP_BAR else []
        return found + (["each"] if self.each > GROUP_BAR else [])


def compiling(expression: str, clock: PacedClock) -> float:
    """Seconds to compile a selector, and to find out what it reads."""
    from haru.engine.dra import forget_selectors, read_expression

    spent = []
    for _ in range(ROUNDS):
        forget_selectors()
        begun = clock()
        read_expression(expression, False, True)
        spent.append(clock() - begun)
    return median(spent)


def evaluating(expression: str, clock: PacedClock) -> float:
    """Seconds per group."""
    from haru.engine.dra import DeviceSnapshot, NodeView, Selection, reader_of

    spent = []
    slices = gpu_node("node-0", "Hopper", GROUPS, 2, 4)
    for _ in range(ROUNDS):
        devices = DeviceSnapshot.of(slices)
        (view,) = devices.views(NodeView("node-0", {}))
        reader_of(expression, False, True, devices.cache).compile()
        begun = clock()
        Selection((), (expression,), False, True).column(view)
        spent.append((clock() - begun) / GROUPS)
    return median(spent)


def rows() -> list[Row]:
    """All selectors."""
    found, clock = [], PacedClock(CALIBRATION_SECONDS)
    for name, expression in EXPRESSIONS.items():
        shared = None if expression == _INDEX else evaluating(expression, clock)
        each = evaluating(_INDEX if shared is None else f"{_INDEX} && ({expression})", clock)
        found.append(Row(name, compiling(expression, clock), shared, each))
    return found


def table(found: list[Row], in_markdown: bool) -> str:
    """The selectors as a table."""
    heads = ["selector", "compile ms", "µs per group, shared", "µs per group, each", "misses"]
    lines = [
        [
            row.name,
            f"{row.compiling * 1e3:.2f}",
            "" if row.shared is None else f"{row.shared * 1e6:.2f}",
            f"{row.each * 1e6:.2f}",
            ", ".join(row.misses()),
        ]
        for row in found
    ]
    return (markdown if in_markdown else plain)(heads, lines, frozenset((0, 4)))


def run() -> list[Result]:
    """For `make bench`."""
    results = []
    for row in rows():
        if row.shared is not None:
            results.append(Result(f"selector, {row.name}", row.shared * 1e6, "µs", "per group of equal devices"))
        results.append(Result(f"selector, {row.name}, each", row.each * 1e6, "µs", "per group of equal devices"))
        results.append(Result(f"selector, {row.name}, compile", row.compiling * 1e3, "ms", "per expression"))
    return results


def main() -> int:
    """Prints the table; 1 if a bar is missed."""
    found = rows()
    print(table(found, in_markdown="--markdown" in sys.argv[1:]))
    return int(any(row.misses() for row in found))


if __name__ == "__main__":
    sys.exit(main())
