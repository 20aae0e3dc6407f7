"""Share flags, leader election, health, metrics and shutdown between `haru scheduler` and `haru controllers`.

Only the holder of the Lease works. A process that loses the Lease exits, as Kubernetes' components do, so that no old
state survives. Health and metrics listen on loopback only.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import socket
import sys
import uuid
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from haru.cli.connection import add_connection_arguments, connect
from haru.cli.main import UsageError
from haru.event_loop import LoopLag
from haru.garbage import postpone_collection, resume_collection

if TYPE_CHECKING:
    from haru.client.api import ApiClient
    from haru.kube.gates import FeatureGates
    from haru.scheduler.debugger import StateDump

_log = logging.getLogger(__name__)
_LOOK_SECONDS = 0.1
_LONGEST_START = 600


def add_component_arguments(parser: argparse.ArgumentParser, port: int) -> None:
    """The flags of a component that runs against an API server."""
    add_connection_arguments(parser)
    parser.add_argument(
        "--feature-gates", metavar="NAME=BOOL,…", default="", help="set feature gates, as in Kubernetes"
    )
    parser.add_argument(
        "--health-port",
        type=port_number,
        default=port,
        metavar="PORT",
        help=f"port on 127.0.0.1 (default {port}; 0: any free port)",
    )
    parser.add_argument(
        "--leader-elect-namespace", metavar="NAMESPACE", help="namespace of the Lease (default kube-system)"
    )
    parser.add_argument("--no-leader-elect", action="store_true", help="run without a Lease; only for a single replica")
    parser.add_argument("-v", "--verbose", action="count", default=1, help="more log messages")
    parser.add_argument("--log-format", choices=("text", "json"), default="text", help="log format")


def port_number(text: str) -> int:
    """A TCP port, for argparse."""
    if not text.isdigit() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f'Invalid value: "{text}": write a port from 0 to 65535')
    return int(text)


def parse_gates(text: str, minor: int = 0) -> FeatureGates:
    """The gates of `--feature-gates` in version 1.`minor` (0: the newest); raises UsageError that names the gate."""
    from haru.kube.gate_table import NEWEST
    from haru.kube.gates import FeatureGates

    try:
        return FeatureGates.parse(text, minor or NEWEST)
    except ValueError as error:
        raise UsageError(f"--feature-gates: {error}") from error


@dataclass(frozen=True, slots=True)
class Election:
    """Whether replicas elect a leader, and how; times in seconds. Flags win over it."""

    elect: bool = True
    namespace: str = "kube-system"
    lease: float = 15.0
    renew: float = 10.0
    retry: float = 2.0


@dataclass(slots=True)
class Component:
    """A component's work and what it tells about itself."""

    lease: str
    work: Callable[[ApiClient], Coroutine[Any, Any, None]]
    metrics: Callable[[], bytes]
    ready: Callable[[], bool]
    """Whether the work has read the first lists."""
    election: Election = field(default_factory=lambda: Election())
    gates: FeatureGates | None = None
    prepare: Callable[[ApiClient], Coroutine[Any, Any, None]] | None = None
    """Looks at the server before the Lease is taken; may raise UsageError."""
    dump: Callable[[], StateDump | None] | None = None
    """Returns what SIGUSR2 writes into the log."""
    leading: bool = field(default=False, init=False)


def run_component(options: argparse.Namespace, component: Component) -> int:
    """Runs until a signal or the loss of the Lease; the exit status is 0 after a signal, 1 after a loss."""
    from haru.cli.logs import configure_logging

    configure_logging(options.verbose, options.log_format)
    return asyncio.run(_run(options, component))


async def _run(options: argparse.Namespace, component: Component) -> int:
    from haru.client.leader_election import LeaseLostError

    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    if component.dump is not None:
        from haru.scheduler.debugger import dump_on_signal

        # A replica that waits for the Lease must survive the signal, too.
        dump_on_signal(component.dump)
    client = connect(options, f"haru-{options.command}")
    lag = LoopLag()
    try:
        async with client:
            measuring = asyncio.create_task(lag.run())
            work = asyncio.create_task(_lead(options, client, component, lag))
            health = await _serve_health(options.health_port, component, lag)
            waiting = asyncio.create_task(stop.wait())
            await asyncio.wait({work, waiting}, return_when=asyncio.FIRST_COMPLETED)
            stopped = stop.is_set()
            for task in (work, waiting):
                task.cancel()
            (outcome, _) = await asyncio.gather(work, waiting, return_exceptions=True)
            await health.cleanup()  # type: ignore[attr-defined]
            measuring.cancel()
    finally:
        sys.stderr.flush()
    if isinstance(outcome, UsageError) and not stopped:
        raise outcome
    if isinstance(outcome, Exception) and not isinstance(outcome, LeaseLostError) and not stopped:
        _log.error("stopped: %s", outcome, exc_info=outcome)
    return 0 if stopped else 1


async def _lead(options: argparse.Namespace, client: ApiClient, component: Component, lag: LoopLag) -> None:
    election = component.election
    if component.prepare is not None:
        await _patiently(component.prepare, client, election.retry)
    if options.no_leader_elect or not election.elect:
        await _work(client, component)
        return
    from haru.client.leader_election import Leadership
    from haru.client.leases import Candidate, ElectionTimes, LeaderElector

    def candidate(client: ApiClient) -> LeaderElector:
        identity = f"{socket.gethostname()}_{os.getpid()}_{uuid.uuid4()}"
        namespace = options.leader_elect_namespace or election.namespace
        times = ElectionTimes(election.lease, election.renew, election.retry)
        return LeaderElector(client, Candidate(namespace, component.lease, identity), times)

    leadership = Leadership(lambda: connect(options, f"haru-{options.command}"), candidate, lag.since_tick)
    await leadership.run(lambda: _work(client, component))


async def _work(client: ApiClient, component: Component) -> None:
    """Do the component's work, as the leader or alone; garbage collection waits for its first lists."""
    component.leading = True
    postpone_collection()
    starting = asyncio.create_task(_started(component))
    try:
        await component.work(client)
    finally:
        starting.cancel()
        resume_collection()


async def _started(component: Component) -> None:
    for _ in range(_LONGEST_START):
        await asyncio.sleep(_LOOK_SECONDS)
        if component.ready():
            break
    resume_collection()


async def _patiently(
    prepare: Callable[[ApiClient], Coroutine[Any, Any, None]], client: ApiClient, pause: float
) -> None:
    """Until the server answers: components may be started before it."""
    told = False
    while True:
        try:
            return await prepare(client)
        except (OSError, TimeoutError) as error:
            if not told:
                _log.warning("the API server does not answer: %s", error)
            told = True
            await asyncio.sleep(pause)


async def _serve_health(port: int, component: Component, lag: LoopLag) -> object:
    from aiohttp import web

    def ready() -> bool:
        # Who waits for the Lease is ready to lead.
        return not component.leading or component.ready()

    async def healthz(_: web.Request) -> web.Response:
        return web.Response(text="ok")

    async def readyz(_: web.Request) -> web.Response:
        return web.Response(text="ok") if ready() else web.Response(status=503, text="not ready")

    async def metrics(_: web.Request) -> web.Response:
        gates = component.gates.exposition() if component.gates is not None else []
        body = component.metrics() + "".join(f"{line}\n" for line in [*gates, *lag.lines()]).encode()
        return web.Response(body=body, headers={"Content-Type": "text/plain; version=0.0.4"})

    app = web.Application()
    app.add_routes([web.get("/healthz", healthz), web.get("/livez", healthz)])
    app.add_routes([web.get("/readyz", readyz), web.get("/metrics", metrics)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", port)
    try:
        await site.start()
    except OSError as error:
        await runner.cleanup()
        raise UsageError(f"--health-port: {port}: {error.strerror}; take another one, or 0 for any") from error
    _log.info("health and metrics on http://127.0.0.1:%s", runner.addresses[0][1])
    return runner
