"""Explain why an object waits, why it runs where it runs, or why it can never run.

KIND is pod, podgroup, job, replicaset, statefulset or claim. The output lists the requests, what blocks them (per group
of equal nodes and per device) and remedies; each remedy was tried on a copy of the cluster. The command explains any
object in any state.

node/NAME shows the allocations on a node, its free devices, and why waiting work does not use them. device/NODE/DEVICE
(also POOL/DEVICE, DRIVER/POOL/DEVICE) shows the same for one device: its holder, taints, counters, and the partitions
that block it.
"""

from __future__ import annotations

import argparse
import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from haru.cli.connection import add_connection_arguments, add_manifest_argument, connect, told_as_usage

if TYPE_CHECKING:
    from haru.api.snapshot import Snapshot
    from haru.explain.entry import SubjectKind

Obj = dict[str, Any]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `haru explain`."""
    add_connection_arguments(parser)
    parser.add_argument("object", metavar="KIND/NAME", help="object to explain, for example job/training or node/n1")
    parser.add_argument("-n", "--namespace", metavar="NAMESPACE", help="namespace of the object")
    parser.add_argument(
        "--no-remedies",
        dest="remedies",
        action="store_false",
        help="omit the remedies, which take most of the time",
    )
    parser.add_argument("-o", "--output", choices=("text", "json", "yaml"), default="text", help="output format")
    add_manifest_argument(parser, "manifests instead of a cluster", several=False)


def run(options: argparse.Namespace) -> int:
    """Prints the explanation."""
    from haru.api.subjects import parse_place, parse_subject
    from haru.cli.sources import show, snapshot_of
    from haru.engine.state import HELD_BACK_BY, WATCHED_KINDS

    if options.filename or parse_place(options.object) is not None:
        snapshot, what = (
            snapshot_of(options, "haru-explain", (*WATCHED_KINDS, *HELD_BACK_BY), options.namespace),
            options.object,
        )
    else:
        snapshot, what = asyncio.run(_from_api(options, *parse_subject(options.object)))
    show(snapshot.explain(what, remedies=options.remedies), options.output, snapshot.left_out())
    return 0


async def _from_api(options: argparse.Namespace, kind: SubjectKind, name: str) -> tuple[Snapshot, Obj]:
    """The object is read by itself: a missing one is told at once, and one may be read where no list may."""
    from haru.api.cluster_reader import fetch, know_server, list_signs
    from haru.api.snapshot import Snapshot
    from haru.api.subjects import served_kind
    from haru.engine.state import HELD_BACK_BY, WATCHED_KINDS

    served = served_kind(kind)
    async with connect(options, "haru-explain") as client:
        with told_as_usage(client):
            await know_server(client)
        namespace = options.namespace or client.namespace
        with told_as_usage(client):
            obj = await client.get(served, name, namespace)
        fetched = await fetch(client, (*WATCHED_KINDS, *HELD_BACK_BY), namespace)
        signs, refused = await list_signs(client, fetched.objects, namespace)
    found = replace(fetched, objects=[*fetched.objects, *signs], refused=[*fetched.refused, *refused])
    snapshot = Snapshot.of_fetched(found, namespace, "")
    return snapshot, {"apiVersion": served.api_version, "kind": served.kind, **obj}
