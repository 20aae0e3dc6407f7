"""Run simulated nodes on any cluster: Nodes, Leases, ResourceSlices and the pods bound to them, without machines.

Each Node has the label simulated.haru.dev/fleet=NAME, and a taint that keeps work of others away. The command runs
until SIGINT or SIGTERM; its nodes then stay and become NotReady, except with --delete-at-exit. --delete removes the
nodes of a fleet, and the pods bound to them. One process runs a fleet of a name; another one is refused meanwhile.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from typing import TYPE_CHECKING

from haru.cli.connection import add_connection_arguments, connect, told_as_usage
from haru.cli.main import UsageError
from haru.event_loop import cancelled
from haru.kube.names import counted
from haru.stop import stop_event

if TYPE_CHECKING:
    from haru.client.api import ApiClient
    from haru.simulated_nodes.fleet_nodes import Nodes


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `haru fleet`."""
    add_connection_arguments(parser)
    parser.add_argument(
        "--profile",
        metavar="NAME:COUNT,…",
        help="simulated nodes: profile names or profile files, each with a count, as for haru up",
    )
    parser.add_argument("--name", default="default", metavar="NAME", help="name of the fleet (default default)")
    parser.add_argument("--name-prefix", default="", metavar="TEXT", help="what the names of its nodes begin with")
    parser.add_argument(
        "--node-label", action="append", default=[], metavar="KEY=VALUE", help="label of its nodes; may be repeated"
    )
    taints = parser.add_mutually_exclusive_group()
    taints.add_argument(
        "--taint",
        action="append",
        metavar="KEY[=VALUE]:EFFECT",
        help="taint of the nodes that it creates; may be repeated (default simulated.haru.dev/node:NoSchedule)",
    )
    taints.add_argument("--no-taint", action="store_true", help="create nodes without a taint: any pod may come there")
    ending = parser.add_mutually_exclusive_group()
    ending.add_argument("--delete-at-exit", action="store_true", help="delete the nodes and their pods at exit")
    ending.add_argument("--delete", action="store_true", help="delete the nodes of the fleet and their pods, and exit")
    parser.add_argument("-v", "--verbose", action="count", default=0, help="more log messages; repeat for more")
    parser.add_argument("--log-format", choices=("text", "json"), default="text", help="log format")


def serves(options: argparse.Namespace) -> bool:
    """Whether it runs until it is stopped."""
    return not options.delete


def run(options: argparse.Namespace) -> int:
    """Runs or deletes a fleet."""
    from haru.cli.logs import configure_logging
    from haru.simulated_nodes.fleet_nodes import FleetError

    configure_logging(options.verbose, options.log_format)
    try:
        if options.delete:
            return asyncio.run(_delete(options))
        if not options.profile:
            raise UsageError("--profile: Required value: say which nodes, for example dgx-h100:4, or --delete")
        return asyncio.run(_serve(options, _nodes_of(options)))
    except FleetError as error:
        raise UsageError(str(error)) from error


def _nodes_of(options: argparse.Namespace) -> Nodes:
    from haru.drivers.simulated.profiles import ProfileError, load_profile
    from haru.embedded.options import OptionError, parse_profiles
    from haru.simulated_nodes.fleet_nodes import fleet_nodes, parse_label

    labels = dict(parse_label(text) for text in options.node_label)
    try:
        profiles = [(load_profile(entry.profile), entry.count) for entry in parse_profiles(options.profile)]
    except (OptionError, ProfileError) as error:
        raise UsageError(str(error)) from error
    return fleet_nodes(options.name, profiles, options.name_prefix, labels)


async def _delete(options: argparse.Namespace) -> int:
    async with connect(options, "haru-fleet") as client:
        await _remove(client, options.name)
    return 0


async def _remove(client: ApiClient, name: str) -> None:
    from haru.simulated_nodes.standalone import remove_fleet

    with told_as_usage(client):
        nodes, pods = await remove_fleet(client, name)
    print(
        f"deleted {counted(nodes, 'node')} of the fleet {name}, and {counted(pods, 'pod')} bound to them",
        file=sys.stderr,
    )


async def _serve(options: argparse.Namespace, nodes: Nodes) -> int:
    from haru.simulated_nodes.fleet_nodes import DEFAULT_TAINT, parse_taint
    from haru.simulated_nodes.standalone import run_fleet

    taints = [] if options.no_taint else [parse_taint(text) for text in options.taint or [DEFAULT_TAINT]]
    stop = stop_event(None)  # to delete many nodes takes long
    async with connect(options, "haru-fleet") as client:
        with told_as_usage(client):
            work = asyncio.create_task(
                run_fleet(client, options.name, nodes, taints, lambda text: print(text, flush=True))
            )
            waiting = asyncio.create_task(stop.wait())
            await asyncio.wait({work, waiting}, return_when=asyncio.FIRST_COMPLETED)
            outcome, _ = await cancelled(work, waiting)
            if not stop.is_set() and isinstance(outcome, Exception):
                raise outcome
        if options.delete_at_exit:
            await _remove(client, options.name)
    return 0
