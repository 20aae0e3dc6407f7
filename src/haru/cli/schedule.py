"""Schedule all waiting pods once, and show the decisions and why the other pods wait.

One round covers a cluster, or the manifests of -f: the pods of the default scheduler (or of --scheduler-name) in queue
order, gangs as a whole, with devices, topology and preemption. Nothing is written anywhere. Exit status: 0 if every pod
has a place (also one that needs evictions first), 1 if a pod waits, 2 for bad input. For manifests, the command creates
the pods (and gangs) of new Jobs, Deployments, ReplicaSets and StatefulSets, resolves priority classes and makes claims
from templates, as a cluster does. With --cases, every line of a file is a small cluster; the output has one JSON line
per case with its decisions, or with the error in the line.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping

from haru.api.decision_options import options_of
from haru.api.rounds import reason_of
from haru.cli.connection import add_answer_arguments, add_connection_arguments, add_manifest_argument
from haru.cli.main import UsageError
from haru.engine import RoundResult, SchedulerCache, run_round
from haru.kube.meta import Obj

_RESULT_FIELDS = ("request", "driver", "pool", "device")


def answer_case(case: Obj, gates: Mapping[str, bool]) -> Obj:
    """The outcome of one case under these gates, but for those that the case itself switches."""
    cluster = SchedulerCache.of(case["objects"])
    enabled = {**gates, **(case.get("gates") or {})}
    return {"name": case["name"], **answer(run_round(cluster, options_of(enabled)))}


def answer(result: RoundResult) -> Obj:
    """The result of a round in the form of the test vectors."""
    return {
        "bindings": result.bindings,
        "allocations": {
            path: [{name: entry[name] for name in _RESULT_FIELDS} for entry in given.allocation["devices"]["results"]]
            for path, given in result.allocations.items()
            if given.new_claim is None
        },
        "nominations": result.nominations,
        "evictions": [eviction.pod.path for eviction in result.evictions],
        "pending": {path: {"reason": reason_of(result, path)} for path in result.pending},
        "groups": result.groups,
    }


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `haru schedule`."""
    add_connection_arguments(parser)
    add_manifest_argument(parser, "manifests instead of a cluster")
    parser.add_argument(
        "-n", "--namespace", default="default", metavar="NAMESPACE", help="namespace of manifests that name none"
    )
    parser.add_argument(
        "--scheduler-name",
        default="default-scheduler",
        metavar="NAME",
        help="schedulerName of the pods to schedule (default %(default)s)",
    )
    add_answer_arguments(parser, cases=True)


def run(options: argparse.Namespace) -> int:
    """Prints what would be decided."""
    from haru.cli.progress import working
    from haru.cli.sources import file_gates, show, snapshot_of
    from haru.engine.state import WATCHED_KINDS

    if options.cases:
        if options.filename:
            raise UsageError("--cases brings its own objects: leave -f out")
        from haru.cli.cases import answer_every_case

        gates = file_gates(options.feature_gates).all()
        return answer_every_case(options.cases, lambda case: answer_case(case, gates))
    snapshot = snapshot_of(options, "haru-schedule", WATCHED_KINDS, options.namespace)
    with working("deciding"):
        answer = snapshot.schedule(options.scheduler_name)
    show(answer, options.output, snapshot.left_out())
    return 0 if answer.complete else 1
