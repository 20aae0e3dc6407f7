"""Serve the dashboard of a cluster: the map of its cards, the queue with reasons and remedies, and a page per workload.

The command prints one line: a loopback address with a code that admits one browser, once; or, with --secure-port, the
port of HTTPS at which the people of the cluster sign in. The page only reads. `haru up` serves a dashboard for its own
cluster; use this command for any other cluster, or for another browser. Ctrl-C or SIGTERM stops it.
"""

from __future__ import annotations

import argparse
import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from haru.cli.connection import add_connection_arguments, connect
from haru.cli.main import UsageError
from haru.cli.team_flags import add_team_arguments, team_options
from haru.stop import stop_event

if TYPE_CHECKING:
    from haru.client.api import ApiClient
    from haru.dashboard.server import DashboardServer
    from haru.dashboard.team_server import TeamOptions


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `haru dashboard`."""
    add_connection_arguments(parser)
    parser.add_argument(
        "--listen",
        metavar="HOST:PORT",
        default="127.0.0.1:0",
        help="address of the page, on loopback only (default 127.0.0.1:0: any free port)",
    )
    parser.add_argument(
        "--history",
        type=Path,
        metavar="PATH",
        help="usage history for the charts: the file or its directory (default: that of haru up)",
    )
    parser.add_argument(
        "--usage-history",
        type=Path,
        metavar="DIR",
        help="keep a usage history in this directory for as long as this runs, and show it; for a cluster in which "
        "neither haru up nor haru scheduler --usage-history keeps one",
    )
    parser.add_argument("--card-prices", type=Path, metavar="FILE", help="price list of cards, for what idle ones cost")
    add_team_arguments(parser)
    parser.add_argument("-v", "--verbose", action="count", default=0, help="more log messages; repeat for more")
    parser.add_argument("--log-format", choices=("text", "json"), default="text", help="log format")


def run(options: argparse.Namespace) -> int:
    """Serves the page until it is stopped."""
    from haru.cli.logs import configure_logging
    from haru.dashboard.server import DashboardServer
    from haru.embedded.options import OptionError, parse_dashboard
    from haru.embedded.prices import read_prices
    from haru.embedded.usage import usage_history

    configure_logging(options.verbose, options.log_format)
    try:
        host, port = parse_dashboard(options.listen, "--listen")
        prices = read_prices(options.card_prices, "--card-prices")
    except OptionError as error:
        raise UsageError(str(error)) from error
    if options.history is not None and options.usage_history is not None:
        raise UsageError("--history and --usage-history: name one; the first is read, the second is kept")
    file = _history(options)
    history = usage_history(file) if file is not None else None
    if (team := team_options(options, history, prices)) is not None:
        return asyncio.run(_serve_team(options, team))
    return asyncio.run(_serve(options, lambda client: DashboardServer(client, host, port, history, prices)))


def _history(options: argparse.Namespace) -> Path | None:
    """The history of usage that is named or kept, or that of the `haru up` whose cluster this is."""
    from haru.api.connection import usage_file
    from haru.errors import ClusterError

    named: Path | None = options.history or options.usage_history
    if named is not None:
        return named
    try:
        return usage_file(options.kubeconfig, options.context, "--kubeconfig")
    except ClusterError:
        return None


@asynccontextmanager
async def _keeping(options: argparse.Namespace, client: ApiClient) -> AsyncIterator[None]:
    """Keep the usage history that is asked for, meanwhile. Raises UsageError."""
    if options.usage_history is None:
        yield
        return
    from haru.accounting.history import NAME, History, HistoryError
    from haru.accounting.server import AccountingServer

    file = options.usage_history / NAME
    try:
        await asyncio.to_thread(lambda: History(file).close())
    except HistoryError as error:
        raise UsageError(f"--usage-history: {error}") from error
    keeper = AccountingServer(client, file, None)
    await keeper.start()
    try:
        yield
    finally:
        await keeper.stop()


async def _serve(options: argparse.Namespace, made: Callable[[ApiClient], DashboardServer]) -> int:
    stop = stop_event()
    async with connect(options, "haru-dashboard") as client, _keeping(options, client):
        server = made(client)
        try:
            await server.start()
        except OSError as error:
            remedy = "take another port, or 0 for any that is free"
            raise UsageError(f"--listen: {options.listen}: {os.strerror(error.errno or 0)}; {remedy}") from error
        try:
            print(f"haru dashboard is ready, for one browser: {server.url}", flush=True)
            await stop.wait()
        finally:
            await server.stop()
    return 0


async def _serve_team(options: argparse.Namespace, team: TeamOptions) -> int:
    from haru.dashboard.team_server import TeamServer

    stop = stop_event()
    async with connect(options, "haru-dashboard") as client, _keeping(options, client):
        server = TeamServer(client, team)
        try:
            await server.start()
        except (OSError, ValueError) as error:
            raise UsageError(f"the port is not served: {error}") from error
        try:
            print(f"haru dashboard serves the people of the cluster on port {server.port}", flush=True)
            await stop.wait()
        finally:
            await server.stop()
    return 0
