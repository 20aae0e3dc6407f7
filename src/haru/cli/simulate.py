"""Replay a workload in virtual time, with several policies side by side.

haru simulate openb replays the openb trace by its published protocol: pods come in a seeded order until 130 % of
the cluster's GPUs have been asked for, nothing ends and nothing is moved, what does not fit is dropped. Policies:
first-fit, best-fit, most-allocated, fgd (Fragmentation Gradient Descent) and haru. Ties go to the node that comes first
in a seeded order of the nodes.

haru simulate -f FILE… replays manifests with the engine of the live scheduler: pods come at the time of their
annotation haru.dev/arrival-time (or of --arrivals), and end when their activeDeadlineSeconds or
haru.dev/run-time-limit has passed. Policies: default, packing and haru, the
scheduler's profiles Default, HaruPacking and HaruExpected, and most-allocated.

The same input and seed give the same answer everywhere. Nothing is written to a cluster. Exit status: 0 if it was
replayed, 2 for bad usage or input.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from haru.cli.connection import add_manifest_argument
from haru.cli.main import UsageError

TRACES = ("openb",)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `haru simulate`."""
    parser.add_argument("trace", nargs="?", choices=TRACES, help="a trace, in place of manifests")
    parser.add_argument(
        "--data", type=Path, metavar="DIR", help="directory with the tables of the trace (.csv or .csv.gz)"
    )
    parser.add_argument(
        "--workload",
        action="append",
        metavar="NAME,…",
        help="lists of pods of the trace (default: default; all: the 17 with published results)",
    )
    add_manifest_argument(parser, "manifests to replay")
    parser.add_argument("-n", "--namespace", default="default", metavar="NAMESPACE", help="of manifests that name none")
    parser.add_argument(
        "--arrivals",
        type=Path,
        metavar="FILE",
        help="when pods come: lines of NAMESPACE/NAME,TIME (90s, 1h30m, or seconds)",
    )
    parser.add_argument(
        "--policy",
        action="append",
        metavar="NAME,…",
        help="policies to compare (default: first-fit, fgd and haru for a trace, default and haru for manifests)",
    )
    seeds = parser.add_mutually_exclusive_group()
    seeds.add_argument("--seed", type=int, metavar="N", help="the seed of one run (default 42)")
    seeds.add_argument("--seeds", metavar="A-B,…", help="several seeds, one run each: 42-51, or 1,2,5")
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text", help="form of the answer")
    parser.add_argument("--plot", type=Path, metavar="FILE.png", help="draw the curves (needs the extra haru[plots])")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write a page with the table and the curves")
    parser.add_argument("--no-progress", action="store_true", help="no progress bar (there is none but on a terminal)")
    parser.add_argument(
        "--feature-gates", default="", metavar="A=true,…", help="of manifests: gates that differ from those of haru up"
    )


def run(options: argparse.Namespace) -> int:
    """Replays, and prints the comparison."""
    if options.trace and options.filename:
        raise UsageError("a trace and -f both name what is replayed: leave one of them out")
    if options.trace:
        from haru.cli.simulate_trace import run_trace

        return run_trace(options)
    if not options.filename:
        raise UsageError("say what is replayed: openb --data DIR, or -f FILE with manifests")
    from haru.cli.simulate_manifests import run_manifests

    return run_manifests(options)


def chosen_seeds(options: argparse.Namespace) -> list[int]:
    """The seeds that `--seed` or `--seeds` name; raises UsageError."""
    if options.seeds is None:
        return [42 if options.seed is None else options.seed]
    found: list[int] = []
    for part in options.seeds.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdigit() or (dash and not last.isdigit()) or (dash and int(last) < int(first)):
            raise UsageError(f"--seeds: {options.seeds}: write numbers and ranges such as 42-51 or 1,2,5")
        found += range(int(first), int(last if dash else first) + 1)
    return list(dict.fromkeys(found))


def chosen(values: list[str] | None, default: tuple[str, ...]) -> list[str]:
    """The names of a repeated flag whose values are lists, each once, in their order."""
    names = [name.strip() for value in values or () for name in value.split(",")]
    return list(dict.fromkeys(name for name in names if name)) or list(default)
