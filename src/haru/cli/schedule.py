"""Decide everything that waits, once, and say what was decided and why the rest waits.

One round over a cluster, or over the manifests of -f: the pods of the default scheduler (or of --scheduler-name) in
the order of the queue, gangs whole, with devices, topology and preemption. Nothing is written anywhere. Exit status:
0 if every pod has a place (also one that evictions make room for), 1 if one waits, 2 for bad input. In manifests names
of priority classes are resolved and claims are made from templates, as a cluster does it. With --cases, every line of
a file is a small cluster; one JSON line per case has its decisions, or says what is wrong with the line.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from typing import TYPE_CHECKING, Any

from haru.cli.connection import add_connection_arguments, connect, told_as_usage
from haru.cli.main import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from haru.engine.cluster import Cluster

Obj = dict[str, Any]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `haru schedule`."""
    add_connection_arguments(parser)
    parser.add_argument(
        "-f",
        "--filename",
        action="extend",
        nargs="+",
        metavar="FILE",
        help="manifests, not a cluster (- is stdin)",
    )
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
    from haru.cli.reading import file_gates

    gates = file_gates(options.feature_gates).all()
    if options.cases:
        if options.filename:
            raise UsageError("--cases brings its own objects: leave -f out")
        from haru.cli.cases import answer_every_case
        from haru.cli.schedule_cases import answer_case

        return answer_every_case(options.cases, lambda case: answer_case(case, gates))
    return _schedule(options, gates)


def _schedule(options: argparse.Namespace, gates: Mapping[str, bool]) -> int:
    from haru.cli.schedule_cases import options_of
    from haru.cli.schedule_text import document, show
    from haru.engine.round import run_round

    cluster, refused = _gather(options, gates)
    try:
        result = run_round(cluster, options_of(gates), options.scheduler_name)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        what = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise UsageError(f"nothing can be decided: an object is malformed: {what}; try haru lint") from error
    answer = document(result)
    if options.output == "json":
        print(json.dumps(answer, indent=2))
    elif options.output == "yaml":
        from haru.kube.yaml import dump

        print(dump(answer), end="")
    else:
        print(show(answer))
        if refused:
            print(f"(not allowed to read {', '.join(refused)}: the answer is without them)")
    return 1 if answer["pending"] else 0


def _gather(options: argparse.Namespace, gates: Mapping[str, bool]) -> tuple[Cluster, list[str]]:
    if not options.filename:
        return asyncio.run(_from_api(options))
    from haru.cli.reading import cluster_of, read_objects
    from haru.cli.settling import settled

    objects = list(read_objects(options.filename, options.namespace))
    return cluster_of(settled(objects, group_claims=gates["DRAWorkloadResourceClaims"])), []


async def _from_api(options: argparse.Namespace) -> tuple[Cluster, list[str]]:
    from haru.cli.reading import read_cluster

    async with connect(options, "haru-schedule") as client:
        with told_as_usage(client):
            return await read_cluster(client)
