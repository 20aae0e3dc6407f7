"""Try a change on a copy of the cluster: what starts, what is displaced, what can no longer be placed, and why.

The cluster is found as kubectl finds it; --data-dir names the data directory of a haru up, and -f manifests, in its
place. The changes apply in the order in which they are written, and the engine that schedules decides, preemption
included, until the cluster is at rest. Displaced pods that a controller or their gang makes again are decided again.
Nothing is written anywhere. Exit status: 0 if everybody who had a place, or came with the change, has one in the end
(or was deleted on purpose), 1 if somebody waits or is lost, 2 for bad usage or input.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from haru.cli.connection import add_connection_arguments, add_manifest_argument
from haru.cli.whatif_changes import add_change_arguments


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `haru whatif`."""
    add_connection_arguments(parser)
    add_manifest_argument(parser, "manifests in place of a cluster")
    parser.add_argument("--data-dir", type=Path, metavar="DIR", help="data directory of a haru up, running or not")
    parser.add_argument("-n", "--namespace", default="default", metavar="NAMESPACE", help="of what names none")
    add_change_arguments(parser)
    parser.add_argument(
        "--scheduler-name",
        default="default-scheduler",
        metavar="NAME",
        help="whose pods are decided (default %(default)s)",
    )
    parser.add_argument("-o", "--output", choices=("text", "json", "yaml"), default="text", help="form of the answer")
    parser.add_argument(
        "--feature-gates", default="", metavar="A=true,…", help="gates that differ from those of haru up"
    )


def run(options: argparse.Namespace) -> int:
    """Prints the difference that the changes make."""
    from haru.answers.fetching import FORKED_KINDS
    from haru.cli.asking import show, snapshot_of
    from haru.cli.whatif_changes import asked_changes, told_by_flag

    snapshot = snapshot_of(options, "haru-whatif", FORKED_KINDS, options.namespace)
    with told_by_flag():
        comparison = snapshot.what_if(*asked_changes(options), scheduler_name=options.scheduler_name)
    show(comparison, options.output, snapshot.refused)
    return 0 if comparison.harmless else 1
