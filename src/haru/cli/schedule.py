"""Decide everything that waits, once, and say what was decided and why the rest waits.

One round over a cluster, or over the manifests of -f: the pods of the default scheduler (or of --scheduler-name) in
the order of the queue, gangs whole, with devices, topology and preemption. Nothing is written anywhere. Exit status:
0 if every pod has a place (also one that evictions make room for), 1 if one waits, 2 for bad input. In manifests new
Jobs, Deployments, ReplicaSets and StatefulSets have the pods (and gangs) that their controllers would make, names of
priority classes are resolved and claims are made from templates, as a cluster does it. With --cases, every line of a
file is a small cluster; one JSON line per case has its decisions, or says what is wrong with the line.
"""

from __future__ import annotations

import argparse

from haru.cli.connection import add_connection_arguments, add_manifest_argument
from haru.cli.main import UsageError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `haru schedule`."""
    add_connection_arguments(parser)
    add_manifest_argument(parser, "manifests, not a cluster")
    parser.add_argument("-n", "--namespace", default="default", metavar="NAMESPACE", help="of manifests that name none")
    parser.add_argument(
        "--scheduler-name",
        default="default-scheduler",
        metavar="NAME",
        help="whose pods (default %(default)s)",
    )
    parser.add_argument("--cases", metavar="FILE", help="cases, one JSON object a line, plain or .gz (- is stdin)")
    parser.add_argument("-o", "--output", choices=("text", "json", "yaml"), default="text", help="form of the answer")
    parser.add_argument(
        "--feature-gates", default="", metavar="A=true,…", help="gates that differ from those of haru up"
    )


def run(options: argparse.Namespace) -> int:
    """Prints what would be decided."""
    from haru.cli.asking import file_gates, show, snapshot_of
    from haru.engine.inputs import KINDS

    if options.cases:
        if options.filename:
            raise UsageError("--cases brings its own objects: leave -f out")
        from haru.cli.cases import answer_every_case
        from haru.cli.schedule_cases import answer_case

        gates = file_gates(options.feature_gates).all()
        return answer_every_case(options.cases, lambda case: answer_case(case, gates))
    snapshot = snapshot_of(options, "haru-schedule", KINDS, options.namespace)
    answer = snapshot.schedule(options.scheduler_name)
    show(answer, options.output, snapshot.refused)
    return 0 if answer.complete else 1
