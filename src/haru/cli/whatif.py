"""Try a change on a copy of the cluster: which work starts, is displaced, or no longer fits, and why.

The cluster is found as by kubectl; --data-dir names the data directory of a haru up instead, -f manifests. The changes
apply in the order of their flags. The scheduler's engine then decides, with preemption, until no decision changes the
cluster. Displaced pods that a controller or their gang recreates are scheduled again. Nothing is written anywhere. Exit
status: 0 if all work that had a place, or came with the change, has one in the end (or was deleted on purpose), 1 if
work waits or is lost, 2 for bad usage or input.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from haru.cli.connection import add_answer_arguments, add_connection_arguments, add_manifest_argument
from haru.cli.whatif_changes import add_change_arguments


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `haru whatif`."""
    add_connection_arguments(parser)
    add_manifest_argument(parser, "manifests instead of a cluster")
    parser.add_argument("--data-dir", type=Path, metavar="DIR", help="data directory of a haru up, running or stopped")
    parser.add_argument(
        "-n", "--namespace", default="default", metavar="NAMESPACE", help="namespace of changes that name none"
    )
    add_change_arguments(parser)
    parser.add_argument(
        "--scheduler-name",
        default="default-scheduler",
        metavar="NAME",
        help="schedulerName of the pods to schedule (default %(default)s)",
    )
    add_answer_arguments(parser)


def run(options: argparse.Namespace) -> int:
    """Prints the difference that the changes make."""
    from haru.cli.progress import working
    from haru.cli.sources import show, snapshot_of
    from haru.cli.whatif_changes import asked_changes, told_by_flag

    snapshot = snapshot_of(options, "haru-whatif", namespace=options.namespace)
    with told_by_flag(), working("deciding what follows"):
        comparison = snapshot.what_if(*asked_changes(options), scheduler_name=options.scheduler_name)
    show(comparison, options.output, snapshot.left_out())
    return 0 if comparison.harmless else 1
