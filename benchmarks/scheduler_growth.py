"""Processor time and memory of `haru scheduler` as the cluster grows.

    python -m benchmarks.scheduler_growth [--memory] [--nodes 100 --nodes 10000] [--plots] [--document FILE]

The scheduler is the real process; an API server in memory (`benchmarks/memory_api.py`) stands for the cluster, over
HTTP without TLS. Growth: pods come in five bursts of 120, on nodes with 8 devices (a claim of one device each) and on
nodes without; the time is that of the scheduler's process from a burst's first pod to its last event, for a pod, the
median of five, after a burst of 50 that is not counted: the first decision reads every node. Memory: the peak and the
resident memory of the process once it has read nodes of 8 devices, each of which a running pod has by a claim.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp

from benchmarks.calibrate import calibrate
from benchmarks.decision_objects import Obj, node_objects
from benchmarks.memory_api import serve
from benchmarks.plots import growth
from benchmarks.resident import CARDS, _peak, _processor, cluster, kubeconfig, process
from benchmarks.results import CALIBRATION_SECONDS, Result
from benchmarks.tables import markdown, plain, write_section

NODES = (100, 300, 1_000, 3_000, 10_000)
BURST, BURSTS, UNCOUNTED = 120, 5, 50
LARGEST_RATIO = 1.5
MEMORY_NODES = (1_250, 2_500, 5_000)
LARGEST_MIB = 1_024.0
_PATIENCE_SECONDS = 600


def empty_cluster(nodes: int, cards: int) -> Iterator[Obj]:
    """Nodes on which nothing runs, and the classes of their devices."""
    for obj in cluster(0, 0):
        if obj["kind"] == "DeviceClass":
            yield obj
    for number in range(nodes):
        yield from node_objects(number, number * max(1, nodes // 100) // nodes, cards)


def full_cluster(nodes: int) -> Iterator[Obj]:
    """Nodes of 8 devices that are all taken."""
    for number, obj in enumerate(cluster(nodes, nodes * CARDS)):
        obj["metadata"].setdefault("uid", f"uid-{number}")
        yield obj


@asynccontextmanager
async def scheduler(kind: str, nodes: int, cards: int) -> AsyncIterator[tuple[str, int]]:
    """A scheduler before a cluster: the address of the API server and the scheduler's process."""
    arguments = ["-m", "benchmarks.scheduler_growth", "--serve", kind, str(nodes), str(cards)]
    with tempfile.TemporaryDirectory() as folder:
        async with process(*arguments) as (_, port):
            config = kubeconfig(Path(folder), port)
            flags = ["--leader-elect=false", "--health-port=0", "--scheduler-name=default-scheduler"]
            made = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "haru",
                "scheduler",
                f"--kubeconfig={config}",
                *flags,
                stderr=asyncio.subprocess.DEVNULL,
            )
            try:
                yield f"http://127.0.0.1:{port}", made.pid
            finally:
                made.terminate()
                await made.wait()


async def measure(nodes: int, cards: int) -> tuple[float, float]:
    """Milliseconds of processor time for a bound pod, and the same scaled by the machine's pace around each burst."""
    found, scaled, bound = list[float](), list[float](), 0
    connector = aiohttp.TCPConnector(force_close=True)
    session = aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=_PATIENCE_SECONDS))
    async with scheduler("empty", nodes, cards) as (url, pid), session:
        for burst in (UNCOUNTED, *[BURST] * BURSTS):
            await session.get(f"{url}/wait?bound={bound}&events={bound}")
            pace, before = calibrate(), _processor(pid)
            await session.post(f"{url}/load?pods={burst}&cards={min(cards, 1)}&first={bound}")
            bound += burst
            await session.get(f"{url}/wait?bound={bound}&events={bound}")
            found.append((_processor(pid) - before) / burst)
            scaled.append(found[-1] * 2 * CALIBRATION_SECONDS / (pace + calibrate()))
    return statistics.median(found[1:]), statistics.median(scaled[1:])


async def memory(nodes: int) -> tuple[float, float]:
    """Resident and peak MiB of a scheduler that has read a full cluster."""
    async with scheduler("full", nodes, CARDS) as (url, pid), aiohttp.ClientSession() as session:
        await session.post(f"{url}/load?pods=1&cards=0&first=0")
        async with session.get(f"{url}/wait?bound=1&events=1", timeout=aiohttp.ClientTimeout(_PATIENCE_SECONDS)):
            return _resident(pid), _peak(pid)


def _resident(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")) / 1024


def run() -> Iterator[Result]:
    """For `make bench`: two sizes."""
    for nodes in (100, 1_000):
        for cards in (0, CARDS):
            taken, _ = asyncio.run(measure(nodes, cards))
            yield Result("scheduler's processor time for a bound pod", taken, "ms", f"{nodes} nodes x {cards} devices")


def _written(document: Path | None, name: str, heads: list[str], rows: list[list[str]]) -> None:
    print(plain(heads, rows))
    if document:
        write_section(document, name, markdown(heads, rows))


def grow(sizes: list[int], plots: bool, document: Path | None) -> int:
    """Measure each size, by turns with the calibration; 1 if the time of a pod grows by more than it may."""
    rows, series = [], dict[str, list[tuple[float, float]]]()
    for cards in (0, CARDS):
        label = f"{cards} devices a node" if cards else "no devices"
        for nodes in sizes:
            taken, scaled = asyncio.run(measure(nodes, cards))
            series.setdefault(label, []).append((nodes, scaled))
            ratio = scaled / series[label][0][1]
            rows.append([label, f"{nodes:,}", f"{taken:.2f}", f"{scaled:.2f}", f"{ratio:.2f}"])
            print(rows[-1], file=sys.stderr, flush=True)
    heads = ["pods", "nodes", "ms a pod", "scaled ms", "to the smallest cluster"]
    _written(document, "scheduler-growth", heads, rows)
    if plots:
        print(growth("scheduler", "nodes", "processor time for a bound pod, ms (scaled)", series), file=sys.stderr)
    return int(any(points[-1][1] > LARGEST_RATIO * points[0][1] for points in series.values()))


def fill(sizes: list[int], document: Path | None) -> int:
    """Measure the memory at each size; 1 if the largest takes more than it may."""
    rows, peak = [], 0.0
    for nodes in sizes:
        resident, peak = asyncio.run(memory(nodes))
        rows.append([f"{nodes:,}", f"{nodes * CARDS:,}", f"{resident:,.0f}", f"{peak:,.0f}"])
        print(rows[-1], file=sys.stderr, flush=True)
    _written(document, "scheduler-memory", ["nodes", "pods with claims", "resident MiB", "peak MiB"], rows)
    return int(peak > LARGEST_MIB)


def main() -> int:
    """Print the table; 1 if a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, action="append", help="size of the cluster; may be repeated")
    parser.add_argument("--memory", action="store_true", help="measure memory instead of processor time")
    parser.add_argument("--plots", action="store_true", help="write the picture of the document")
    parser.add_argument("--document", type=Path, metavar="FILE", help="write the table into this document")
    parser.add_argument("--serve", nargs=3, metavar="X", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        kind, nodes, cards = options.serve
        serve(empty_cluster(int(nodes), int(cards)) if kind == "empty" else full_cluster(int(nodes)))
        return 0
    if options.memory:
        return fill(options.nodes or list(MEMORY_NODES), options.document)
    return grow(options.nodes or list(NODES), options.plots, options.document)


if __name__ == "__main__":
    sys.exit(main())
