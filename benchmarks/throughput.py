"""Pods a second, from creation to binding, by any scheduler on any API server.

    python -m benchmarks.throughput [LOAD …] [--scheduler NAME=COMMAND …] [--server PROGRAM | --kubeconfig FILE]

A LOAD is a name of the suite (`--list` prints them) or a scenario, `plain`, `claims`, `templates`, `gangs` or
`one-gang`, of the size that --nodes, --pods, --devices and --size give; default: the suite. Nodes and devices are
written by the benchmark and no kubelet runs, so what is measured is the API server, the scheduler and the client.

Schedulers run one after the other on one server, the order reversed from round to round; ratios are to the baseline.
Without --scheduler a server that is started gets Haru's; one that --kubeconfig names is taken with the scheduler that
serves it. See docs/how-to/compare-schedulers.md. `run` is what `make bench` keeps: `haru up` with its own scheduler.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import shlex
import sys
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NoReturn

import uvloop

from benchmarks.calibrate import calibrate
from benchmarks.cluster import running
from benchmarks.control_planes import Scheduler, Server, serving
from benchmarks.heartbeats import busy_processes
from benchmarks.load import CLIENT_SECONDS, SCENARIOS, SETTLE_SECONDS, Load, Measured, drive, furnish, remove_nodes
from benchmarks.plots import growth
from benchmarks.results import CALIBRATION_SECONDS, Result, commit
from benchmarks.tables import write_section
from benchmarks.throughput_report import Run, compare, ratios, table
from haru.client.api import ApiClient

SUITE = (
    Load("claims-500", "claims", 500, 2_000),
    Load("gangs-500", "gangs", 500, 1_600),
    Load("one-gang-500", "one-gang", 500, 1_000),
    Load("claims-200", "claims", 200, 600),
    Load("gangs-200", "gangs", 200, 600),
    Load("one-gang-200", "one-gang", 200, 256),
    Load("plain-500", "plain", 500, 1_500),
    Load("claims-200-busy", "claims", 200, 600, beside=1),
    Load("gangs-200-busy", "gangs", 200, 600, beside=1),
)
BARS = {
    "claims-500": 4.0,
    "one-gang-500": 3.0,
    "claims-200": 2.5,
    "gangs-200": 2.5,
    "plain-500": 2.0,
    "claims-200-busy": 1.5,
    "gangs-200-busy": 1.5,
}
"""Pods a second as a multiple of kube-scheduler's."""
TEMPLATES = Load("templates-500", "templates", 500, 1_000)
NO_NODE_LIFECYCLE = "*,-node-lifecycle-controller"
WHO_SERVES = "(serving)"
_SERVER_HELP = "haru (default), or the path of a haru or kube-apiserver; may be repeated: one after the other"


@dataclass(frozen=True)
class Options:
    """How loads are run on a server."""

    schedulers: Sequence[Scheduler]
    rounds: int = 1
    scheduler_name: str = ""
    settle: float = SETTLE_SECONDS
    limit: float = 600.0
    processes: Mapping[str, int] = field(default_factory=dict)


@contextlib.asynccontextmanager
async def _nodes(client: ApiClient, load: Load) -> AsyncIterator[None]:
    devices, prefix = load.devices if load.claims else 0, f"bench-{load.scenario[:3]}"
    try:
        await furnish(client, load.nodes, devices, prefix, profile=load.profile)
        yield
    finally:
        await remove_nodes(client, load.nodes, prefix)


async def _turns(server: Server, loads: Sequence[Load], options: Options) -> AsyncGenerator[Run, None]:
    """Every load, every round, every scheduler."""
    async with ApiClient.from_kubeconfig(
        server.kubeconfig, user_agent="haru-benchmark", timeout=CLIENT_SECONDS
    ) as client:
        for load in loads:
            async with _nodes(client, load):
                for number in range(options.rounds):
                    for scheduler in options.schedulers[:: -1 if number % 2 else 1] or (None,):
                        measured = await _turn(client, server, load, scheduler, options)
                        yield Run(load, scheduler.name if scheduler else WHO_SERVES, number, measured)


async def _turn(
    client: ApiClient, server: Server, load: Load, scheduler: Scheduler | None, options: Options
) -> Measured:
    processes = {**server.processes, **options.processes, "client": os.getpid()}
    with contextlib.ExitStack() as stack:
        watched = None
        if scheduler is not None:
            log = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="haru-bench-"))) / "log"
            watched = stack.enter_context(scheduler.running(server.kubeconfig, log))
            processes = {"scheduler": watched.process.pid, **processes}
        stack.enter_context(busy_processes(load.beside))
        driven = drive(client, load, processes, [options.scheduler_name], options.settle, options.limit)
        return await (driven if watched is None else _unless(watched.ended(), driven))


async def _unless(ended: Coroutine[Any, Any, NoReturn], work: Coroutine[Any, Any, Measured]) -> Measured:
    """What the work returns, unless a scheduler ends before: then its error."""
    tasks: set[asyncio.Task[Measured]] = {asyncio.create_task(ended), asyncio.create_task(work)}
    done, rest = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in rest:
        task.cancel()
    await asyncio.gather(*rest, return_exceptions=True)
    return done.pop().result()


def measure(server: Server, loads: Sequence[Load], options: Options) -> Iterator[Run]:
    """Every run, as it ends."""
    runs = _turns(server, loads, options)

    async def following() -> Run | None:
        return await anext(runs, None)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        try:
            while (one := runner.run(following())) is not None:
                yield one
        finally:
            runner.run(runs.aclose())


def run(loads: Sequence[Load] = (*SUITE[:7], TEMPLATES)) -> Iterator[Result]:
    """For `make bench`: each load on a `haru up` of its own, with the scheduler in it."""
    for load in loads:
        scale = CALIBRATION_SECONDS / calibrate()
        with running("cpu:0", "--controllers", NO_NODE_LIFECYCLE) as cluster:
            server = Server("haru up", cluster.kubeconfig, {"haru up": cluster.process})
            (one,) = (run.measured for run in measure(server, [load], Options(())))
        on = load.describe()
        yield Result("pods bound", one.rate, "1/s", on)
        yield Result("pods bound, scaled", one.rate / scale, "1/s", on)
        yield Result("creation to binding, P50", one.p50, "s", on)
        yield Result("creation to binding, P99", one.p99, "s", on)
        yield Result("processor time per pod", one.used["haru up"].cpu_seconds * 1e3 / one.bound, "ms", on)
        yield Result("memory, high water", one.used["haru up"].high_water_mib, "MiB", on)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.throughput",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "loads", nargs="*", metavar="LOAD", help="names of the suite, or a scenario (default: the suite)"
    )
    parser.add_argument("--list", action="store_true", help="print the loads of the suite")
    size = parser.add_argument_group("size of a scenario")
    size.add_argument("--nodes", default="500", metavar="N,…", help="one run for each number (default 500)")
    size.add_argument("--pods", type=int, default=1_000, metavar="N")
    size.add_argument("--devices", type=int, default=8, metavar="N", help="devices of a node (default 8)")
    size.add_argument("--size", type=int, default=8, metavar="N", help="pods of a gang (default 8)")
    size.add_argument("--profile", default="", metavar="NAME", help="cards as this profile has them (dgx-h100)")
    size.add_argument("--beside", type=int, metavar="N", help="busy processes beside each load")
    size.add_argument("--scale", type=float, default=1.0, metavar="F", help="multiply nodes and pods (0.1: to try it)")
    where = parser.add_argument_group("server and schedulers")
    where.add_argument("--server", action="append", default=[], metavar="PROGRAM", help=_SERVER_HELP)
    where.add_argument("--server-flags", default="", metavar="FLAGS", help="more flags for it")
    where.add_argument("--kubeconfig", type=Path, metavar="FILE", help="a running server instead")
    where.add_argument("--process", action="append", default=[], metavar="NAME=PID", help="measure this process, too")
    where.add_argument("--scheduler", action="append", default=[], metavar="NAME=COMMAND", help="may be repeated")
    where.add_argument("--scheduler-name", default="", metavar="NAME", help="schedulerName of pods")
    how = parser.add_argument_group("runs and results")
    how.add_argument("--rounds", type=int, default=1, metavar="N")
    how.add_argument("--settle", type=float, default=SETTLE_SECONDS, metavar="SECONDS", help="pause before each load")
    how.add_argument(
        "--limit", type=float, default=600.0, metavar="SECONDS", help="until the last binding (default 600)"
    )
    how.add_argument(
        "--baseline", metavar="NAME", help="scheduler to compare with (default: kube-scheduler, or the first)"
    )
    how.add_argument("-o", "--output", choices=("table", "json"), default="table", help="json: a line for each run")
    how.add_argument("--document", type=Path, metavar="FILE", help="write the tables into this document")
    how.add_argument("--plot", metavar="NAME", help="write growth-NAME.svg: processor time by nodes")
    return parser


def _loads(flags: argparse.Namespace) -> list[Load]:
    known = {load.name: load for load in SUITE}
    found: list[Load] = []
    for name in flags.loads or known:
        if name in known:
            found.append(known[name])
        elif name in SCENARIOS:
            sizes = [int(nodes) for nodes in flags.nodes.split(",")]
            found += [Load(f"{name}-{n}", name, n, flags.pods, flags.devices, flags.size) for n in sizes]
        else:
            raise SystemExit(f"no load {name}: one of {', '.join((*known, *SCENARIOS))}")
    return [replace(_sized(load, flags.scale, flags.beside), profile=flags.profile) for load in found]


def _sized(load: Load, scale: float, beside: int | None) -> Load:
    pods = max(load.size, int(load.pods * scale) // load.size * load.size) if scale != 1 else load.pods
    if load.claims and pods >= load.devices * int(load.nodes * scale):
        raise SystemExit(f"{load.name}: {pods} pods, and one before them, need more devices than there are")
    nodes = max(1, int(load.nodes * scale))
    return replace(load, nodes=nodes, pods=pods, beside=load.beside if beside is None else beside)


def _baseline(flags: argparse.Namespace, schedulers: Sequence[Scheduler]) -> str:
    names = [scheduler.name for scheduler in schedulers]
    if len(set(names)) != len(names):
        raise SystemExit(f"--scheduler: each needs a name of its own (NAME=COMMAND): {', '.join(names)}")
    if flags.baseline and flags.baseline not in names:
        raise SystemExit(f"--baseline: no scheduler {flags.baseline}")
    kube = next((name for name in names if "kube-scheduler" in name), "")
    return flags.baseline or kube or (names[0] if names else "")


@contextlib.contextmanager
def _server(flags: argparse.Namespace, program: str, loads: Sequence[Load]) -> Iterator[Server]:
    if flags.kubeconfig is not None:
        yield Server("running", flags.kubeconfig)
        return
    controllers = NO_NODE_LIFECYCLE if any(load.scenario == "templates" for load in loads) else ""
    with serving(program, shlex.split(flags.server_flags), controllers) as server:
        yield server


def _write(path: Path, server: str, runs: Sequence[Run], baseline: str) -> None:
    """The ratios and the medians, for this kind of server, into the document."""
    name = "on-" + server.replace(" ", "-")
    rounds = max(run.round for run in runs) + 1
    text = f"On {server}, {rounds} {'round' if rounds == 1 else 'rounds'}, commit {commit()}:\n\n"
    if comparisons := compare(runs, baseline):
        text += ratios(comparisons, _bars(runs), baseline, in_markdown=True) + "\n\n"
    write_section(path, name, text + table(runs, in_markdown=True, without=("client", "cores")))


def _bars(runs: Sequence[Run]) -> dict[Load, float]:
    """The bars of the loads that have the suite's size."""
    return {run.load: BARS[run.load.name] for run in runs if run.load in SUITE and run.load.name in BARS}


def _plot(name: str, runs: Sequence[Run]) -> Path:
    series: dict[str, list[tuple[float, float]]] = {}
    for one in runs:
        for process, used in one.measured.used.items():
            if process == "client":
                continue
            point = one.load.nodes, used.cpu_seconds * 1e3 / one.measured.bound
            series.setdefault(f"{one.load.scenario}: {one.scheduler}, {process}", []).append(point)
    return growth(name, "nodes", "processor time per pod, ms", series)


def _tell(one: Run, server: str, output: str) -> None:
    times = f"p50 {one.measured.p50:.2f} s, p99 {one.measured.p99:.2f} s"
    text = f"{one.load.name} on {server}: {one.scheduler}: {one.measured.rate:.1f} pods/s, {times}"
    print(json.dumps({"server": server, **one.as_json()}) if output == "json" else text, flush=True)


def main() -> int:
    """Runs what the flags say, and prints it."""
    flags = _parser().parse_args()
    if flags.list:
        print(*(f"{load.name:16} {load.describe()}" for load in SUITE), sep="\n")
        return 0
    loads = _loads(flags)
    schedulers = [Scheduler.parse(text) for text in flags.scheduler]
    if not schedulers and flags.kubeconfig is None:
        schedulers = [Scheduler("haru", "haru")]
    baseline = _baseline(flags, schedulers)
    processes = {name: int(pid) for name, _, pid in (text.partition("=") for text in flags.process)}
    options = Options(schedulers, flags.rounds, flags.scheduler_name, flags.settle, flags.limit, processes)
    complete = True
    for program in flags.server or ["haru"]:
        runs: list[Run] = []
        with _server(flags, program, loads) as server:
            for one in measure(server, loads, options):
                runs.append(one)
                _tell(one, server.name, flags.output)
        if flags.output == "table":
            print("", table(runs), sep="\n")
            if comparisons := compare(runs, baseline):
                print("", ratios(comparisons, _bars(runs), baseline), sep="\n")
        if flags.document is not None:
            _write(flags.document, server.name, runs, baseline)
        if flags.plot:
            print(_plot(flags.plot, runs), file=sys.stderr)
        complete = complete and all(one.measured.bound == one.load.pods for one in runs)
    return 0 if complete else 1


if __name__ == "__main__":
    sys.exit(main())
