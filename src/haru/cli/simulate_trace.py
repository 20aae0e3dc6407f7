"""Replay a trace for `haru simulate`: read it, run its policies and seeds, and show the results."""

from __future__ import annotations

import argparse
import difflib
import gzip
import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TextIO

from haru.cli.main import UsageError
from haru.cli.progress import Progress
from haru.cli.simulate_options import chosen, chosen_seeds
from haru.simulate.openb import NODES, PODS, TABULATED, TraceError, Workload, read_machines, read_pods
from haru.simulate.partitions import DEFAULT_ROUTE, ROUTES, Partitioning
from haru.simulate.policies import POLICIES, make_policy
from haru.simulate.replay import play, play_partitioned
from haru.simulate.table import Row, mean_curve, to_json, to_text

DEFAULT_POLICIES = ("first-fit", "fgd", "haru")


def run_trace(options: argparse.Namespace) -> int:
    """`haru simulate openb`."""
    if options.data is None:
        raise UsageError("--data: name the directory with the tables of the trace (openb_node_list_gpu_node.csv, …)")
    if options.arrivals is not None:
        raise UsageError("--arrivals: says when pods of manifests come: leave it out with a trace")
    policies = chosen(options.policy, DEFAULT_POLICIES)
    for name in policies:
        if name not in POLICIES:
            raise UsageError(f"--policy: {name}: there are {', '.join(POLICIES)}")
    partitionings = _partitionings(options)
    seeds = chosen_seeds(options)
    workloads = [read_workload(options.data, name) for name in _workloads(options)]
    rows: list[Row] = []
    steps = len(workloads) * len(policies) * len(partitionings or (1,)) * len(seeds)
    with Progress(steps, sys.stderr, shown=not options.no_progress) as progress:
        for workload in workloads:
            for name in policies:
                rows += run_all(workload, name, partitionings, seeds, progress)
    print(json.dumps(to_json(rows), indent=2) if options.output == "json" else to_text(rows))
    _draw(options, rows)
    return 0


def run_all(
    workload: Workload, name: str, partitionings: Sequence[Partitioning], seeds: Sequence[int], progress: Progress
) -> Iterator[Row]:
    """A policy on a workload with every seed, timed in seconds of this process's processor time."""
    demand = workload.demand
    policy = make_policy(name, demand, workload.machines)
    for partitioning in partitionings or (None,):
        for seed in seeds:
            parts = partitioning.count if partitioning else 1
            progress.begin(f"{workload.name} {name} {seed}" + (f" in {parts}" if parts > 1 else ""))
            began = time.process_time()
            if partitioning is None:
                run = play(workload, policy, seed, progress.part)
            else:
                make = partial(make_policy, name, demand)
                run = play_partitioned(workload, make, partitioning, seed, progress.part)
            speed = run.pods / max(time.process_time() - began, 1e-9)
            yield Row(workload.name, name, seed, run, speed, parts, partitioning.route if partitioning else "")
            progress.done()


def read_workload(directory: Path, name: str) -> Workload:
    """The cluster and one list of pods; raises UsageError that names the file, the line and the column."""
    with _table(directory, NODES) as lines:
        machines = read_machines(lines)
    with _table(directory, PODS + name) as lines:
        return Workload(name, machines, read_pods(lines))


@contextmanager
def _table(directory: Path, name: str) -> Iterator[TextIO]:
    for path in (directory / f"{name}.csv", directory / f"{name}.csv.gz"):
        if path.exists():
            break
    else:
        raise UsageError(f"--data: {directory}: holds no {name}.csv{_nearest(directory, name)}")
    try:
        with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as lines:
            yield lines
    except (TraceError, OSError, EOFError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: {error}") from error


def _nearest(directory: Path, name: str) -> str:
    known = [path.name.removesuffix(".gz").removesuffix(".csv") for path in directory.glob(f"{PODS}*.csv*")]
    close = difflib.get_close_matches(name, known, 1)
    return (
        f": did you mean the workload {close[0].removeprefix(PODS)}?"
        if close and name.startswith(PODS)
        else " or .csv.gz"
    )


def _partitionings(options: argparse.Namespace) -> list[Partitioning]:
    """One for each number of --partitions; none without."""
    if options.route is not None and options.partitions is None:
        raise UsageError("--route: says how pods get to partitions: give --partitions, too")
    route = options.route or DEFAULT_ROUTE
    if route not in ROUTES:
        raise UsageError(f"--route: {route}: there are {', '.join(ROUTES)}")
    counts = chosen(options.partitions, ()) if options.partitions is not None else []
    for text in counts:
        if not text.isdecimal() or not int(text):
            raise UsageError(f"--partitions: {text}: write a whole number from 1 on")
    return [Partitioning(int(text), route) for text in counts]


def _workloads(options: argparse.Namespace) -> list[str]:
    names = chosen(options.workload, ("default",))
    return [name for asked in names for name in (TABULATED if asked == "all" else (asked,))]


def _draw(options: argparse.Namespace, rows: list[Row]) -> None:
    if options.plot is None and options.html is None:
        return
    curves: dict[str, dict[str, tuple[float, ...]]] = {}
    for row in rows:
        of_workload = curves.setdefault(row.workload, {})
        name = row.policy + (f", {row.partitions} partitions" if row.route else "")
        if name not in of_workload:
            key = row.workload, row.policy, row.partitions
            of_workload[name] = mean_curve(
                [other for other in rows if (other.workload, other.policy, other.partitions) == key]
            )
    from haru.cli.simulate_charts import draw_png, write_page

    title = "GPUs allocated (%) over GPUs asked for (%)"
    if options.plot is not None:
        draw_png(options.plot, title, curves)
    if options.html is not None:
        write_page(options.html, title, to_text(rows), curves)
