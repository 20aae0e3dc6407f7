"""Replay a workload in virtual time, and compare several policies.

haru simulate openb replays the openb trace by its published protocol: pods arrive in a seeded order until they have
requested 130 % of the cluster's GPUs; no pod ends or moves, and pods that do not fit are dropped. Policies: first-fit,
best-fit, most-allocated, fgd (Fragmentation Gradient Descent) and haru. Ties go to the node that comes first in a
seeded order of the nodes.

haru simulate -f FILE… replays manifests with the engine of the live scheduler: pods arrive at the time in their
annotation haru.dev/arrival-time (or in --arrivals), and end when their activeDeadlineSeconds or haru.dev/run-time-limit
has passed. Policies: default, packing and haru (the scheduler profiles Default, HaruPacking and HaruExpected), and
most-allocated.

The same input and seed give the same result on every machine. Nothing is written to a cluster. Exit status: 0 after a
replay, 2 for bad usage or input.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from haru.cli.connection import add_manifest_argument
from haru.cli.main import UsageError

TRACES = ("openb",)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `haru simulate`."""
    parser.add_argument("trace", nargs="?", choices=TRACES, help="trace to replay, instead of manifests")
    parser.add_argument(
        "--data", type=Path, metavar="DIR", help="directory with the tables of the trace (.csv or .csv.gz)"
    )
    parser.add_argument(
        "--workload",
        action="append",
        metavar="NAME,…",
        help="pod lists of the trace (default: default; all: the 17 with published results)",
    )
    add_manifest_argument(parser, "manifests to replay")
    parser.add_argument(
        "-n", "--namespace", default="default", metavar="NAMESPACE", help="namespace of manifests that name none"
    )
    parser.add_argument(
        "--arrivals",
        type=Path,
        metavar="FILE",
        help="arrival times: lines of NAMESPACE/NAME,TIME (90s, 1h30m, or seconds)",
    )
    parser.add_argument(
        "--policy",
        action="append",
        metavar="NAME,…",
        help="policies to compare (default: first-fit, fgd and haru for a trace, default and haru for manifests)",
    )
    parser.add_argument(
        "--partitions",
        action="append",
        metavar="N,…",
        help="trace: split the nodes into N partitions with a scheduler each; several numbers are compared",
    )
    parser.add_argument(
        "--route",
        metavar="NAME",
        help="with --partitions: random, least-requested (default; the partition with the least share of its GPUs "
        "requested) or any (least-requested, then the others until the pod fits)",
    )
    seeds = parser.add_mutually_exclusive_group()
    seeds.add_argument("--seed", type=int, metavar="N", help="seed of one run (default 42)")
    seeds.add_argument("--seeds", metavar="A-B,…", help="several seeds, one run each: 42-51, or 1,2,5")
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text", help="output format")
    parser.add_argument(
        "--plot", type=Path, metavar="FILE.png", help="plot the curves to a PNG (needs the extra haru[plots])"
    )
    parser.add_argument("--html", type=Path, metavar="FILE", help="write an HTML page with the table and the curves")
    parser.add_argument(
        "--no-progress", action="store_true", help="show no progress bar (it is shown on a terminal only)"
    )
    parser.add_argument(
        "--feature-gates",
        default="",
        metavar="A=true,…",
        help="manifests: feature gates that differ from the defaults of haru up",
    )


def run(options: argparse.Namespace) -> int:
    """Replays, and prints the comparison."""
    if options.trace and options.filename:
        raise UsageError("a trace and -f both name what is replayed: leave one of them out")
    if options.trace:
        from haru.cli.simulate_trace import run_trace

        return run_trace(options)
    if options.partitions is not None or options.route is not None:
        raise UsageError("--partitions and --route are for a trace: leave them out with manifests")
    if not options.filename:
        raise UsageError("say what is replayed: openb --data DIR, or -f FILE with manifests")
    from haru.cli.simulate_manifests import run_manifests

    return run_manifests(options)
