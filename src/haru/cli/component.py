"""Share flags, leader election, health, metrics and shutdown between `haru scheduler`, `haru controllers` and others.

Only the holder of the Lease works. A process that loses the Lease exits, as Kubernetes' components do, so that no old
state survives. Health and metrics listen on loopback, or over HTTPS where flags of `serving_flags.py` are given.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import logging
import os
import socket
import sys
import uuid
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from haru.cli.connection import connect, connect_to
from haru.cli.main import UsageError
from haru.cli.serving_flags import serving_options
from haru.embedded.process import loop_factory
from haru.event_loop import cancelled
from haru.garbage import postpone_collection, resume_collection
from haru.loop_lag import LoopLag
from haru.stop import stop_event

if TYPE_CHECKING:
    from haru.client.api import ApiClient
    from haru.kube.gates import FeatureGates
    from haru.scheduler.debugger import StateDump
    from haru.secure_serving.component import Route
    from haru.secure_serving.options import ServingOptions

_log = logging.getLogger(__name__)
_MODULES = (
    "httptools",
    "haru.api.connection",
    "haru.client.leader_election",
    "haru.secure_serving.component",
    "haru.secure_serving.listener",
    "uvicorn.protocols.http.httptools_impl",
)
_LOOK_SECONDS = 0.1
_LONGEST_START = 600


def preload(modules: Iterable[str]) -> None:
    """Import what will be needed before an event loop runs, which each import would hold up."""
    for module in modules:
        importlib.import_module(module)


@dataclass(frozen=True, slots=True)
class Election:
    """Whether replicas elect a leader, and how; times in seconds. Flags win over it."""

    elect: bool = True
    namespace: str = "kube-system"
    lease: float = 15.0
    renew: float = 10.0
    retry: float = 2.0

    def with_flags(self, options: argparse.Namespace) -> Election:
        """The election with what flags say. Raises UsageError where the times leave no room for each other."""
        from haru.client.leases import ElectionTimes

        def chosen(flag: str, configured: float) -> float:
            given: float | None = getattr(options, f"leader_elect_{flag}")
            return configured if given is None else given

        times = chosen("lease_duration", self.lease), chosen("renew_deadline", self.renew)
        retry = chosen("retry_period", self.retry)
        try:
            ElectionTimes(*times, retry)
        except ValueError as error:
            raise UsageError(f"--leader-elect-lease-duration: {error}") from error
        elect = self.elect if options.leader_elect is None else options.leader_elect == "true"
        namespace = options.leader_elect_namespace or self.namespace
        return Election(elect and not options.no_leader_elect, namespace, *times, retry)


@dataclass(slots=True)
class Component:
    """A component's work and what it tells about itself."""

    lease: str
    work: Callable[[ApiClient], Coroutine[Any, Any, None]]
    metrics: Callable[[], bytes]
    ready: Callable[[], bool]
    """Whether the work has read the first lists."""
    election: Election = field(default_factory=lambda: Election())
    modules: tuple[str, ...] = ()
    """What the work imports: loaded before the event loop runs, which an import would hold up."""
    gates: FeatureGates | None = None
    serves: bool = True
    """Whether it has a port for health and metrics."""
    multiplexed: bool = False
    """Whether it writes in bursts: those go over one HTTP/2 connection where the server speaks it."""
    prepare: Callable[[ApiClient], Coroutine[Any, Any, None]] | None = None
    """Looks at the server before the Lease is taken; may raise UsageError."""
    dump: Callable[[], StateDump | None] | None = None
    """Returns what SIGUSR2 writes into the log."""
    configuration: Callable[[Election, str], Mapping[str, Any]] | None = None
    """Returns what `/configz` shows, by the election and the name of the Lease that count."""
    annotations: Mapping[str, str] = field(default_factory=dict)
    """What the holder of the Lease writes on it."""
    labels: Mapping[str, str] = field(default_factory=dict)
    leading: bool = field(default=False, init=False)


def run_component(options: argparse.Namespace, component: Component) -> int:
    """Runs until a signal or the loss of the Lease; the exit status is 0 after a signal, 1 after a loss."""
    from haru.cli.logs import configure_logging

    configure_logging(options.verbose, options.log_format)
    component.election = component.election.with_flags(options)
    component.lease = options.leader_elect_resource_name or component.lease
    preload((*_MODULES, *component.modules))
    with asyncio.Runner(loop_factory=loop_factory(serves=False)) as runner:
        return runner.run(_run(options, component))


async def _run(options: argparse.Namespace, component: Component) -> int:
    from haru.client.leader_election import LeaseLostError

    stop = stop_event()
    if component.dump is not None:
        from haru.scheduler.debugger import dump_on_signal

        # A replica that waits for the Lease must survive the signal, too.
        dump_on_signal(component.dump)
    client = connect(options, f"haru-{options.command}", multiplexed=component.multiplexed)
    lag = LoopLag()
    try:
        async with client:
            measuring = asyncio.create_task(lag.run())
            work = asyncio.create_task(_lead(options, client, component, lag))
            try:
                health = await _serve_health(options, client, component, lag)
            except BaseException:
                await cancelled(work, measuring)
                raise
            waiting = asyncio.create_task(stop.wait())
            await asyncio.wait({work, waiting}, return_when=asyncio.FIRST_COMPLETED)
            stopped = stop.is_set()
            outcome, _ = await cancelled(work, waiting)
            await health.aclose()
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
    if not election.elect:
        await _work(client, component)
        return
    from haru.cli.logs import log_last
    from haru.client.leader_election import Leadership
    from haru.client.leases import Candidate, ElectionTimes, LeaderElector

    def candidate(client: ApiClient) -> LeaderElector:
        identity = f"{socket.gethostname()}_{os.getpid()}_{uuid.uuid4()}"
        times = ElectionTimes(election.lease, election.renew, election.retry)
        lease = Candidate(election.namespace, component.lease, identity)
        return LeaderElector(client, lease, times, labels=component.labels, annotations=component.annotations)

    open_client = partial(connect, options, f"haru-{options.command}")
    leadership = Leadership(open_client, candidate, lag.since_tick, tell_loss=log_last)
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


async def _serve_health(
    options: argparse.Namespace, client: ApiClient, component: Component, lag: LoopLag
) -> AsyncExitStack:
    """Serve health and metrics where the flags say so; what is returned ends it. Raises UsageError."""
    routes, closing = _routes(component, lag), AsyncExitStack()
    if not component.serves:
        return closing
    try:
        serving = serving_options(options, options.default_port)
        if serving is not None:
            await _serve_https(options, client, routes, serving, closing)
        if serving is None or options.health_port is not None:
            await _serve_plain(options, routes, closing)
    except BaseException:
        await closing.aclose()
        raise
    return closing


def _routes(component: Component, lag: LoopLag) -> dict[str, Route]:
    from haru.secure_serving.component import health_route
    from haru.secure_serving.http import METRICS, Answer, Request, json_answer

    def synchronized() -> bool:
        # Who waits for the Lease is ready to lead.
        return not component.leading or component.ready()

    def metrics(_: Request) -> Answer:
        gates = component.gates.exposition() if component.gates is not None else []
        lines = "".join(f"{line}\n" for line in [*gates, *lag.lines()])
        return Answer(200, component.metrics() + lines.encode(), METRICS)

    def configz(_: Request) -> Answer:
        assert component.configuration is not None
        return json_answer({"componentconfig": component.configuration(component.election, component.lease)})

    ping = {"ping": lambda: True}
    shown = {"/configz": configz} if component.configuration is not None else {}
    return {
        **shown,
        "/healthz": health_route("healthz", ping),
        "/livez": health_route("livez", ping),
        "/readyz": health_route("readyz", {**ping, "informer-sync": synchronized}),
        "/metrics": metrics,
    }


async def _serve_https(
    options: argparse.Namespace,
    client: ApiClient,
    routes: dict[str, Route],
    serving: ServingOptions,
    closing: AsyncExitStack,
) -> None:
    from haru.secure_serving.component import ComponentServer

    name = f"haru-{options.command}"
    reviewing = []
    for flag in ("authentication_kubeconfig", "authorization_kubeconfig"):
        file, reviewer = getattr(options, flag), client
        if file is not None:
            reviewer = await closing.enter_async_context(connect_to(file, name, f"--{flag.replace('_', '-')}"))
        reviewing.append(reviewer)
    server = ComponentServer(name, routes, serving, *reviewing)
    try:
        await server.start()
    except (OSError, ValueError) as error:
        raise UsageError(f"--secure-port: {error}") from error
    closing.push_async_callback(server.stop)
    _log.info("health and metrics on https://%s:%s", serving.address, server.port)


async def _serve_plain(options: argparse.Namespace, routes: dict[str, Route], closing: AsyncExitStack) -> None:
    from haru.secure_serving.component import ComponentApp
    from haru.secure_serving.listener import Listener

    port = options.default_port if options.health_port is None else options.health_port
    listener = Listener(ComponentApp(routes), "127.0.0.1", port)
    try:
        await listener.start()
    except OSError as error:
        why = os.strerror(error.errno or 0)
        raise UsageError(f"--health-port: {port}: {why}; take another one, or 0 for any") from error
    closing.push_async_callback(listener.stop)
    _log.info("health and metrics on http://127.0.0.1:%s", listener.port)
