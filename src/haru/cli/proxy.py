"""Serve the Services of a cluster on this node: cluster IPs, node ports and external IPs, by nftables.

In place of kube-proxy, on one machine or on each node of a cluster. It needs root and the program nft. The rules stay
when it stops, so connections go on while it is restarted; --cleanup removes them.
"""

from __future__ import annotations

import argparse
import asyncio
import ipaddress
import logging
import os
import socket
import sys
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from haru.cli.connection import add_connection_arguments, connect
from haru.cli.main import UsageError
from haru.event_loop import cancelled
from haru.loop_lag import measured_loop
from haru.stop import stop_event

if TYPE_CHECKING:
    from haru.secure_serving.component import Route
    from haru.service_proxy.proxy import ServiceProxy

_log = logging.getLogger(__name__)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `haru proxy`, named as kube-proxy's."""
    add_connection_arguments(parser)
    parser.add_argument("--hostname-override", metavar="NAME", help="name of the node (default: the host name)")
    parser.add_argument(
        "--cluster-cidr",
        default="",
        metavar="CIDR",
        help="addresses of pods: what comes to a cluster IP from elsewhere gets the node's address as its source",
    )
    parser.add_argument("--masquerade-all", action="store_true", help="the same for all that comes to a cluster IP")
    parser.add_argument(
        "--min-sync-period",
        type=float,
        default=1.0,
        metavar="SECONDS",
        help="least time between two changes of the rules (default 1)",
    )
    parser.add_argument(
        "--healthz-bind-address",
        default="127.0.0.1:10256",
        metavar="HOST:PORT",
        help="address of /healthz and /livez (default 127.0.0.1:10256; empty: none)",
    )
    parser.add_argument(
        "--metrics-bind-address",
        default="127.0.0.1:10249",
        metavar="HOST:PORT",
        help="address of /metrics (default 127.0.0.1:10249; empty: none)",
    )
    parser.add_argument("--cleanup", action="store_true", help="remove the rules, and end")
    parser.add_argument("-v", "--verbose", action="count", default=1, help="more log messages")
    parser.add_argument("--log-format", choices=("text", "json"), default="text", help="log format")


def run(options: argparse.Namespace) -> int:
    """Serve until told to stop."""
    from haru.cli.logs import configure_logging

    configure_logging(options.verbose, options.log_format)
    return asyncio.run(_clean_up() if options.cleanup else _run(options))


async def _clean_up() -> int:
    from haru.service_proxy.nftables import NftError, remove_tables

    try:
        await remove_tables()
    except NftError as error:
        print(f"haru proxy: {error}", file=sys.stderr)
        return 2
    return 0


async def _run(flags: argparse.Namespace) -> int:
    from haru.service_proxy.proxy import ServiceProxy, ServiceProxyOptions
    from haru.service_proxy.ruleset import ProxyOptions

    if flags.cluster_cidr:
        try:
            ipaddress.ip_network(flags.cluster_cidr)
        except ValueError as error:
            raise UsageError(f'--cluster-cidr: Invalid value: "{flags.cluster_cidr}": {error}') from error
    if not 0 <= flags.min_sync_period <= 3600:
        raise UsageError(f"--min-sync-period: Invalid value: {flags.min_sync_period:g}: write 0 to 3600 seconds")
    name = (flags.hostname_override or socket.gethostname()).lower()
    rules = ProxyOptions(flags.cluster_cidr, flags.masquerade_all)
    stop = stop_event()
    async with measured_loop(), connect(flags, "haru-proxy") as client, AsyncExitStack() as closing:
        proxy = ServiceProxy(client, ServiceProxyOptions(name, rules, flags.min_sync_period))
        await _listen(flags.healthz_bind_address, "--healthz-bind-address", proxy.health.health_routes(), closing)
        await _listen(flags.metrics_bind_address, "--metrics-bind-address", proxy.health.metrics_routes(), closing)
        tasks = [asyncio.create_task(one) for one in (proxy.run(), stop.wait(), _tell(proxy, name))]
        await asyncio.wait(tasks[:2], return_when=asyncio.FIRST_COMPLETED)
        stopped = stop.is_set()
        outcome, *_ = await cancelled(*tasks)
    if isinstance(outcome, Exception) and not stopped:
        print(f"haru proxy: stopped: {outcome}", file=sys.stderr)
        return 1
    return 0


async def _listen(address: str, flag: str, routes: dict[str, Route], closing: AsyncExitStack) -> None:
    """Serve for as long as the proxy runs. An address that is taken is told: Services are served all the same."""
    from haru.embedded.errors import OptionError
    from haru.embedded.options import parse_listen
    from haru.secure_serving.component import ComponentApp
    from haru.secure_serving.listener import Listener

    if not address:
        return
    try:
        host, port = parse_listen(address, flag)
    except OptionError as error:
        raise UsageError(str(error)) from error
    listener = Listener(ComponentApp(routes), host, port)
    try:
        await listener.start()
    except OSError as error:
        _log.warning("%s: %s: %s; nothing is served there", flag, address, os.strerror(error.errno or 0))
        return
    closing.push_async_callback(listener.stop)


async def _tell(proxy: ServiceProxy, name: str) -> None:
    """One line as soon as Services are served."""
    await proxy.ready.wait()
    print(f"services are served on {name}", flush=True)
