"""How the allocator's time grows: with devices per node, with nodes, with requests; and that there is no cliff.

    python -m benchmarks.growth [--plots] [--document docs/performance.md]

One size is varied at a time. `fits` asks for what can be had, `scarce` for what just cannot: that is what a search
without pruning never ends with. Times are processor seconds of the reference's machine (see `pace`). Plots need
matplotlib (pip install 'haru[plots]').
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.allocation import paced_clock
from benchmarks.device_objects import (
    PCIE_ROOT,
    PRODUCTS,
    claim,
    device_ids,
    gpu_node,
    match,
    mig_node,
    mig_requests,
    problem,
    request,
)
from benchmarks.device_problems import HOPPER_80
from benchmarks.results import Result
from benchmarks.tables import markdown, plain, write_section

Json = dict[str, Any]

DEVICES = (8, 16, 32, 64, 128, 256, 512)
NODES = (10, 30, 100, 300, 1000, 3000, 10_000)
REQUESTS = (1, 2, 4, 8, 16, 32)
PLOTS = Path(__file__).parents[1] / "docs" / "images"


class Point(NamedTuple):
    """One measured problem, in seconds of the reference machine."""

    series: str
    size: int
    prepare: float
    cold: float
    warm: float


def per_node(devices: int, scarce: bool) -> Json:
    """Devices on one root, of which all but a few are taken if they are to be scarce."""
    slices = gpu_node("node-0", "Hopper", devices, 4, devices // 2)
    taken = random.Random(devices).sample(device_ids(slices), devices // 2)
    count = 5 if scarce else 4
    return problem(slices, [claim("claim-0", [request("gpus", count, HOPPER_80)], [match(PCIE_ROOT)])], None, taken[:2])


def partitions(devices: int, scarce: bool) -> Json:
    """Cards with 26 partitions each: as many of half a card as there are, or one more."""
    cards = max(1, devices // 26)
    count = min(32, 2 * cards) if not scarce else min(32, 2 * cards + 1)
    slices = mig_node("node-0", cards)
    taken = [] if 2 * cards <= 31 or not scarce else device_ids(slices)[: 26 * (cards - 15)]
    return problem(slices, [claim("claim-0", mig_requests({"3g.40gb": count}))], None, taken)


def cluster(nodes: int, scarce: bool) -> Json:
    """A mixed cluster in which every tenth node is in use, each in one of several ways."""
    rng = random.Random(nodes)
    names = [f"node-{i}" for i in range(nodes)]
    slices = [s for name in names for s in gpu_node(name, rng.choice(sorted(PRODUCTS)))]
    used = [rng.choice(device_ids([item])) for item in slices if rng.random() < 0.1]
    return problem(slices, [claim("claim-0", [request("gpus", 9 if scarce else 8, HOPPER_80)])], names, used)


def requests(count: int, scarce: bool) -> Json:
    """Requests that compete for devices: as many as there are, or one more."""
    slices = gpu_node("node-0", "Hopper", count - 1 if scarce and count > 1 else count)
    selector = "device.attributes['gpu.nvidia.com'].index >= 99" if scarce and count == 1 else HOPPER_80
    wanted = [request(f"gpu-{i}", 1, selector) for i in range(count)]
    return problem(slices, [claim("claim-0", wanted)])


SERIES: dict[str, tuple[tuple[int, ...], Callable[[int, bool], Json]]] = {
    "devices per node": (DEVICES, per_node),
    "partitions per node": (DEVICES[2:], partitions),
    "nodes": (NODES, cluster),
    "requests": (REQUESTS, requests),
}


def points() -> Iterator[Point]:
    """Every series at every size."""
    from haru.cli.allocate_cases import answer_case

    clock = paced_clock()
    for series, (sizes, build) in SERIES.items():
        for scarce in (False, True):
            for size in sizes:
                answer = answer_case({"name": series, **build(size, scarce)}, clock=clock)
                assert answer["error"] is None, answer
                fits = bool(answer["nodes"] if "nodes" in answer else answer["results"])
                assert fits is not scarce, (series, size, scarce)
                times = (answer[key] for key in ("prepareSeconds", "seconds"))
                name = f"{series}, {'scarce' if scarce else 'fits'}"
                yield Point(name, size, *times, answer.get("warmSeconds", 0.0))


def run() -> Iterator[Result]:
    """For `make bench`."""
    for point in points():
        yield Result(f"growth: {point.series}", point.cold * 1e3, "ms", f"{point.size}")


def steepest(found: list[Point]) -> dict[str, float]:
    """Per series, the largest exponent between neighbouring sizes: 1 is linear, 2 quadratic."""
    from math import log

    result: dict[str, float] = {}
    for series in dict.fromkeys(point.series for point in found):
        own = [point for point in found if point.series == series]
        slopes = [log(b.cold / a.cold) / log(b.size / a.size) for a, b in pairwise(own)]
        result[series] = max(slopes)
    return result


def table(found: list[Point], in_markdown: bool) -> str:
    """The points as a table."""
    heads = ["what grows", "size", "prepare ms", "answer ms", "after a change ms"]
    lines = [
        [
            point.series,
            f"{point.size:,}",
            f"{point.prepare * 1e3:.2f}",
            f"{point.cold * 1e3:.3f}",
            f"{point.warm * 1e3:.3f}" if point.warm else "",
        ]
        for point in found
    ]
    return (markdown if in_markdown else plain)(heads, lines)


def slopes(found: list[Point]) -> str:
    """The steepest growth of each series in words."""
    lines = [f"- {series}: {slope:.1f}" for series, slope in steepest(found).items()]
    return "\n".join(["Steepest growth between neighbouring sizes, as an exponent:", "", *lines])


def plot(found: list[Point]) -> list[Path]:
    """One picture per series, written beside the documents."""
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    plt.rcParams["svg.hashsalt"] = "haru"
    PLOTS.mkdir(exist_ok=True)
    paths = []
    for name in SERIES:
        figure, axes = plt.subplots(figsize=(5, 3.2))
        for kind, marker in (("fits", "o"), ("scarce", "s")):
            own = [point for point in found if point.series == f"{name}, {kind}"]
            axes.loglog([p.size for p in own], [p.cold * 1e3 for p in own], marker=marker, label=f"answer, {kind}")
            if any(p.warm for p in own):
                axes.loglog([p.size for p in own], [p.warm * 1e3 for p in own], "--", label=f"after a change, {kind}")
        axes.set_xlabel(name)
        axes.set_ylabel("milliseconds")
        axes.grid(True, which="both", alpha=0.3)
        axes.legend(fontsize=8)
        figure.tight_layout()
        paths.append(PLOTS / f"growth-{name.replace(' ', '-')}.svg")
        figure.savefig(paths[-1], metadata={"Date": None})
        plt.close(figure)
    return paths


def main() -> int:
    """Prints the table and the steepest growth of each series."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plots", action="store_true", help="write the pictures of docs/performance.md")
    parser.add_argument("--document", type=Path, metavar="FILE", help="write the table into this document")
    options = parser.parse_args()
    found = list(points())
    print(table(found, in_markdown=False), slopes(found), sep="\n\n")
    if options.document:
        write_section(options.document, "growth", f"{table(found, in_markdown=True)}\n\n{slopes(found)}")
    for path in plot(found) if options.plots else ():
        print(path, file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
