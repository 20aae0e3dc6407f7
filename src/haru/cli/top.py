"""Show who holds which devices, their utilization, and the devices that are free while compatible work waits.

Without --since, the command shows the current state of any cluster or of the manifests of -f; with --since,
device-hours from the history that `haru up` and `haru scheduler --usage-history` write. A card counts as one device, a
partition as its share of a card. Utilization comes from the driver or a node agent; elsewhere it is unknown. Memory
and I/O pressure come from the kubelets of real nodes: the share of the last minute during which some of the pod's work
stalled, and all of it. Reading them needs the permission to get nodes/proxy.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from haru.cli.connection import add_connection_arguments, add_manifest_argument, connect
from haru.cli.main import UsageError

if TYPE_CHECKING:
    from haru.accounting.pressure import Pressures
    from haru.accounting.report import Filter, Usage
    from haru.api.snapshot import Snapshot

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_AGENT = "haru-top"
_PAUSE_SECONDS = 2.0
_CLEAR = "\033[H\033[2J"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `haru top`."""
    add_connection_arguments(parser)
    parser.add_argument("--since", type=duration, metavar="DURATION", help="period to report, for example 24h or 7d")
    parser.add_argument("--history", type=Path, metavar="PATH", help="usage history: the file or its directory")
    parser.add_argument("-n", "--namespace", default="", metavar="PATTERN", help="only owners in namespaces that match")
    parser.add_argument(
        "--owner", default="", metavar="PATTERN", help="only owners that match, for example job/training or 'train*'"
    )
    parser.add_argument(
        "--by",
        choices=("owner", "namespace"),
        default="owner",
        help="one row per owner or per namespace (default owner)",
    )
    parser.add_argument("-w", "--watch", action="store_true", help="refresh every two seconds")
    parser.add_argument("-o", "--output", choices=("text", "json", "yaml"), default="text", help="output format")
    parser.add_argument(
        "--output-version",
        choices=("haru.dev/v1alpha2", "haru.dev/v1alpha1"),
        default="haru.dev/v1alpha2",
        help="apiVersion of -o json and yaml; v1alpha1 is served for one release more (default haru.dev/v1alpha2)",
    )
    add_manifest_argument(parser, "manifests instead of a cluster")


def duration(text: str) -> int:
    """Milliseconds, of `90s`, `30m`, `24h`, `7d` or several of them."""
    parts = re.findall(r"([0-9]+)([smhd])", text)
    seconds = sum(int(number) * _UNITS[unit] for number, unit in parts)
    if "".join(number + unit for number, unit in parts) != text or not 0 < seconds < 10**9:
        raise argparse.ArgumentTypeError(f'Invalid value: "{text}": write a duration such as 30m, 24h or 7d')
    return seconds * 1000


def run(options: argparse.Namespace) -> int:
    """Prints the table."""
    from haru.accounting.report import Filter
    from haru.cli.sources import show

    if options.since is not None and options.filename:
        raise UsageError("--since needs a history, which manifests do not have: leave -f out")
    if options.history is not None and options.since is None:
        raise UsageError("--history goes with --since: say over which time, for example --since 24h")
    if options.watch and (options.output != "text" or options.filename):
        raise UsageError("-w shows the text of a running cluster again and again: leave -o and -f out")
    chosen = Filter(options.namespace, options.owner)
    while True:
        usage, left_out = _asked(options, chosen)
        if options.watch:
            sys.stdout.write(_CLEAR if sys.stdout.isatty() else "")
        told = usage.by_namespace() if options.by == "namespace" else usage
        show(usage.in_version(options.output_version), options.output, left_out, text=told.__str__)
        if not options.watch:
            return 0
        sys.stdout.flush()
        time.sleep(_PAUSE_SECONDS)


def _asked(options: argparse.Namespace, chosen: Filter) -> tuple[Usage, list[str]]:
    if options.since is not None:
        return _over(options, chosen), []
    from haru.cli.progress import working
    from haru.cli.sources import snapshot_of
    from haru.engine.state import HELD_BACK_BY, WATCHED_KINDS

    snapshot = snapshot_of(options, _AGENT, (*WATCHED_KINDS, *HELD_BACK_BY))
    with working("counting the devices"):
        usage = snapshot.usage(owner_namespace=chosen.namespace, owner=chosen.owner)
    if not options.filename:
        with working("asking the kubelets"):
            usage = _with_pressures(options, usage, snapshot)
    return usage, snapshot.left_out()


def _with_pressures(options: argparse.Namespace, usage: Usage, snapshot: Snapshot) -> Usage:
    """With what the kubelets say of the pods that hold devices; simulated nodes have none, and are not asked."""
    import asyncio

    from haru.api.pressure import ask, with_kubelets

    real = with_kubelets(snapshot.objects)
    nodes = [node for node in usage.pod_nodes if node in real]
    if not nodes:
        return usage

    async def asked() -> Pressures:
        async with connect(options, _AGENT) as client:
            return await ask(client, nodes)

    return replace(usage, pressures=asyncio.run(asked()))


def _over(options: argparse.Namespace, chosen: Filter) -> Usage:
    from haru.accounting.history import HistoryError, read
    from haru.accounting.ledger import total
    from haru.accounting.report import usage_over
    from haru.api.connection import usage_file

    path = options.history or usage_file(options.kubeconfig, options.context, "--kubeconfig")
    until = int(time.time() * 1000)
    try:
        found = read(path, until - options.since, until)
    except HistoryError as error:
        raise UsageError(str(error)) from error
    return usage_over(total(found, until - options.since, until), chosen)
