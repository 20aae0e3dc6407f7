"""Try a change on a copy of the cluster: what starts, what is displaced, what can no longer be placed, and why.

The cluster is found as kubectl finds it; --data-dir names the data directory of a haru up, and -f manifests, in its
place. The changes apply in the order in which they are written, and the engine that schedules decides, preemption
included, until the cluster is at rest. Displaced pods that a controller or their gang makes again are decided again.
Nothing is written anywhere. Exit status: 0 if everybody who had a place, or came with the change, has one in the end
(or was deleted on purpose), 1 if somebody waits or is lost, 2 for bad usage or input.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from haru.cli.connection import add_connection_arguments
from haru.cli.main import UsageError
from haru.cli.whatif_changes import add_change_arguments

if TYPE_CHECKING:
    from haru.whatif import Comparison

Obj = dict[str, Any]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `haru whatif`."""
    add_connection_arguments(parser)
    parser.add_argument(
        "-f",
        "--filename",
        action="extend",
        nargs="+",
        metavar="FILE",
        help="manifests in place of a cluster (- is stdin)",
    )
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
    from haru.cli.forking import fork
    from haru.cli.reading import file_gates
    from haru.cli.whatif_changes import changes_of
    from haru.whatif import to_json, to_text

    gates = file_gates(options.feature_gates).all()
    objects, refused = fork(options, gates, "haru-whatif")
    changes = changes_of(options, objects, gates)
    comparison = _compare(options, objects, changes, gates)
    if options.output == "json":
        print(json.dumps(to_json(comparison), indent=2))
    elif options.output == "yaml":
        from haru.kube.yaml import dump

        print(dump(to_json(comparison)), end="")
    else:
        print(to_text(comparison))
        if refused:
            print(f"(not allowed to read {', '.join(refused)}: the answer is without them)")
    return 0 if comparison.harmless else 1


def _compare(
    options: argparse.Namespace, objects: list[Obj], changes: list[Any], gates: Mapping[str, bool]
) -> Comparison:
    from haru.cli.schedule_cases import options_of
    from haru.whatif import ChangeError, Objects, try_out

    now = datetime.now(UTC)
    deciding = replace(options_of(gates), now=now.timestamp())
    try:
        return try_out(Objects(objects), changes, deciding, options.scheduler_name, now)
    except ChangeError as error:
        raise UsageError(str(error)) from error
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        what = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise UsageError(f"nothing can be decided: an object is malformed: {what}; try haru lint") from error
