"""Say why an object waits, why it runs where it runs, or why it never will.

KIND is pod, podgroup, job, replicaset or claim. The answer names what is asked, what blocks it (per group of equal
nodes and per device) and what would help; every remedy was tried on a copy of the cluster. Any object in any state has
an answer.

node/NAME says what a node holds, what is free there and why what waits does not use it; device/NODE/DEVICE (also
POOL/DEVICE, DRIVER/POOL/DEVICE) the same of one device: who holds it, taints, counters, and the parts that block it.
"""

from __future__ import annotations

import argparse
import asyncio
from typing import TYPE_CHECKING, Any

from haru.cli.connection import add_connection_arguments, add_manifest_argument, connect, told_as_usage

if TYPE_CHECKING:
    from haru.answers.snapshot import Snapshot
    from haru.explain.subject import SubjectKind

Obj = dict[str, Any]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `haru explain`."""
    add_connection_arguments(parser)
    parser.add_argument("object", metavar="KIND/NAME", help="what to explain, for example job/training or node/n1")
    parser.add_argument("-n", "--namespace", metavar="NAMESPACE", help="namespace of the object")
    parser.add_argument(
        "--no-remedies",
        dest="remedies",
        action="store_false",
        help="leave out what would help: it takes most of the time",
    )
    parser.add_argument("-o", "--output", choices=("text", "json", "yaml"), default="text", help="form of the answer")
    add_manifest_argument(parser, "manifests in place of a cluster", several=False)


def run(options: argparse.Namespace) -> int:
    """Prints the explanation."""
    from haru.answers.subjects import parse_place, parse_subject
    from haru.cli.asking import show, snapshot_of
    from haru.engine.inputs import HELD_BACK_BY, KINDS

    if options.filename or parse_place(options.object) is not None:
        snapshot, what = (
            snapshot_of(options, "haru-explain", (*KINDS, *HELD_BACK_BY), options.namespace),
            options.object,
        )
    else:
        snapshot, what = asyncio.run(_from_api(options, *parse_subject(options.object)))
    show(snapshot.explain(what, remedies=options.remedies), options.output, snapshot.refused)
    return 0


async def _from_api(options: argparse.Namespace, kind: SubjectKind, name: str) -> tuple[Snapshot, Obj]:
    """The object is read by itself: a missing one is told at once, and one may be read where no list may."""
    from haru.answers.fetching import fetch
    from haru.answers.snapshot import Snapshot
    from haru.answers.subjects import served_kind
    from haru.engine.inputs import HELD_BACK_BY, KINDS

    served = served_kind(kind)
    async with connect(options, "haru-explain") as client:
        namespace = options.namespace or client.namespace
        with told_as_usage(client):
            obj = await client.get(served, name, namespace)
        fetched = await fetch(client, (*KINDS, *HELD_BACK_BY), namespace)
    snapshot = Snapshot(fetched.objects, namespace=namespace, refused=fetched.refused)
    return snapshot, {"apiVersion": served.api_version, "kind": served.kind, **obj}
