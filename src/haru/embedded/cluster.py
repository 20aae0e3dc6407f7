"""The parts of `haru up`, started and stopped in order. Tests and fixtures start one too, without the command."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import ssl
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from haru.accounting.server import AccountingServer
from haru.apiserver.aggregation import AggregationOptions
from haru.apiserver.auth import kubeconfig
from haru.apiserver.config import ServerConfig, UserInfo
from haru.apiserver.encoding import damage_of
from haru.apiserver.peers import FrontProxyOptions
from haru.apiserver.proxy import KubeletOptions
from haru.apiserver.server import ApiServer
from haru.apiserver.serving import HttpServer
from haru.client.api import ApiClient
from haru.client.events import EventRecorder
from haru.clock import SYSTEM, Clock
from haru.controllers.manager import CONTROLLERS, ControllerManager, select_controllers
from haru.controllers.stale_gang_rules import StalePolicy, default_policy
from haru.dashboard.server import DashboardServer
from haru.drivers.simulated.driver import SimulatedDriver, install_device_classes
from haru.drivers.simulated.profiles import Profile
from haru.embedded.audit import audit_options
from haru.embedded.errors import OptionError
from haru.embedded.identity import ADMIN, FRONT_PROXY, USERS, Identity, controller_user, ensure_identity, node_user
from haru.embedded.options import UpOptions, check_versions
from haru.embedded.simulated_nodes import requested_nodes, settle_nodes
from haru.embedded.usage import measured_by
from haru.engine import Features
from haru.engine.framework import PROFILES
from haru.files import write_whole
from haru.kube.gates import FeatureGates, parse_overrides
from haru.scheduler.config import parse_fairness, scheduler_config
from haru.scheduler.configuration import Configuration, ConfigurationError, load_configuration
from haru.scheduler.decision_log import DecisionLog
from haru.scheduler.scheduler import Scheduler
from haru.scheduler.settings import Fairness
from haru.simulated_nodes.fleet import Fleet
from haru.storage import SqliteStore

_log = logging.getLogger(__name__)

# What is served beyond the defaults of 1.36: everything about devices and gangs.
RUNTIME_CONFIG = {
    "resource.k8s.io/v1beta1": True,
    "resource.k8s.io/v1beta2": True,
    "resource.k8s.io/v1alpha3": True,
    "scheduling.k8s.io/v1alpha2": True,
}


class EmbeddedCluster:
    """A whole cluster in this process. `start` returns when it is ready; `failed` ends when a part of it fails.

    Its parts go by `clock`, whose monotonic time has to be that of the running event loop.
    """

    def __init__(self, options: UpOptions, directory: Path, clock: Clock = SYSTEM) -> None:
        self._options = options
        self._clock = clock
        self._directory = directory
        self.gates = _gates(options.feature_gates)
        self._requested_nodes = requested_nodes(options)
        self.nodes: list[tuple[Profile, str]] = []
        self.scheduler: Scheduler | None = None
        self._controllers = _controllers(options)
        self._configuration = _scheduling(options)
        self._stale_gang = _stale_gang(options)
        self._fairness = _fairness(options)
        check_versions(options.runtime_config)
        self.kubeconfig = directory / "kubeconfig"
        self.address = ""
        self.notes: list[str] = []
        self.server: ApiServer | None = None
        self._audit = audit_options(options.security)
        self._admission = options.security.admission()
        options.account_tokens.read()  # what is wrong with it is told before anything is begun
        self._sealing = options.security.sealing()
        self.store = SqliteStore(directory / "state.db", clock=clock.monotonic, sealing=self._sealing, check=damage_of)
        self._identity: Identity | None = None
        self._minted: dict[str, ApiClient] = {}
        self.listener: HttpServer | None = None
        self._dashboard: DashboardServer | None = None
        self._accounting: AccountingServer | None = None
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Brings everything up; raises OptionError or OSError if it cannot."""
        identity = self._identity = ensure_identity(self._directory / "pki", self._options.host)
        users = {identity.tokens[key]: UserInfo(name, groups) for key, (name, groups) in USERS.items()}
        await self.store.start()
        signing_key, account_tokens = self._options.account_tokens.read(identity.signing_key_pem)
        self.server = ApiServer(
            ServerConfig(
                store=self.store,
                clock=self._clock.now,
                gates=self.gates,
                runtime_config={**RUNTIME_CONFIG, **self._options.runtime_config},
                tokens=users,
                client_ca_pem=identity.ca_pem,
                service_account_key_pem=signing_key,
                sealing=self._sealing,
                encryption_file=self._options.security.encryption_file,
                audit=self._audit,
                admission=self._admission,
                account_tokens=account_tokens,
                aggregation=AggregationOptions(
                    identity.front_proxy_client.certificate,
                    identity.front_proxy_client.key,
                    identity.ca_pem,
                    FrontProxyOptions(identity.front_proxy_ca, (FRONT_PROXY,)),
                ),
                kubelets=KubeletOptions(
                    identity.kubelet_client.certificate,
                    identity.kubelet_client.key,
                    # A name of a machine at home is known to nobody else.
                    address_types=("InternalIP", "ExternalIP", "Hostname"),
                ),
            )
        )
        await self.server.start()
        await self._settle_nodes()
        self.listener = HttpServer(
            self.server,
            self._options.host,
            self._options.port,
            cert_file=identity.server_cert,
            key_file=identity.server_key,
            client_ca_file=identity.ca_file,
            http2_streams=self._options.http2_streams,
        )
        try:
            await self.listener.start()
        except ssl.SSLError as error:
            raise OptionError(f"what is in {self._directory / 'pki'} can not be served with: {error}") from error
        except OSError as error:
            where = f"{self._options.host}:{self._options.port}"
            remedy = "take another address, or port 0 for any that is free"
            raise OptionError(f"--listen: {where}: {os.strerror(error.errno or 0)}; {remedy}") from error
        self.address = self.listener.url
        self._write_kubeconfigs(identity)
        await install_device_classes(self.client("driver"))
        await self._start_components()
        if self._options.dashboard is not None:
            await self._start_dashboard(*self._options.dashboard)
        if self._options.usage_history or self._options.usage_metrics is not None:
            file = self._directory / "usage.db" if self._options.usage_history else None
            features, metrics = Features.from_gates(self.gates.all()), self._options.usage_metrics
            self._accounting = AccountingServer(self.client("accounting"), file, metrics, features, self._clock.now)
            await self._start_accounting(self._accounting)

    def client(self, component: str) -> ApiClient:
        """A client in process with the identity of a component (or of the administrator)."""
        assert self.server is not None and self._identity is not None, "the cluster is not started"
        return ApiClient.in_process(self.server, self._identity.tokens[component], f"haru-{component}")

    def controller_client(self, controller: str) -> ApiClient:
        """A client in process that is a controller: its ServiceAccount."""
        return self._minted_client(*controller_user(controller), "haru-controllers")

    def node_client(self, node: str) -> ApiClient:
        """A client in process that is a node: what its kubelet would be."""
        return self._minted_client(*node_user(node), "haru-fleet")

    def _minted_client(self, user: str, groups: tuple[str, ...], agent: str) -> ApiClient:
        """The client of a user for whom a token is made that nobody else learns, and that ends with the process."""
        client = self._minted.get(user)
        if client is None:
            assert self.server is not None, "the cluster is not started"
            token = secrets.token_urlsafe(32)
            self.server.admit(token, UserInfo(user, groups))
            client = self._minted[user] = ApiClient.in_process(self.server, token, agent)
        return client

    async def failed(self) -> None:
        """Waits until a part ends, and raises what ended it."""
        done, _ = await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
        raise RuntimeError(f"{', '.join(t.get_name() for t in done)} ended")

    async def stop(self) -> None:
        """Takes everything down: dashboard, accounts, components, listener, server, store."""
        if self._dashboard is not None:
            await self._dashboard.stop()
        if self._accounting is not None:
            await self._accounting.stop()
        for task in reversed(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self.listener is not None:
            await self.listener.stop()
        if self.server is not None:
            await self.server.stop()
        await self.store.stop()

    # -- inside -----------------------------------------------------------------------------------------------------

    async def _settle_nodes(self) -> None:
        where = "--profile" if self._options.simulated_nodes else "--no-simulated-nodes"
        self.nodes, note = await settle_nodes(self.client(ADMIN), self._requested_nodes, where)
        if note:
            self.notes.append(note)

    async def _start_components(self) -> None:
        waits: list[Callable[[], Coroutine[Any, Any, Any]]] = []
        if self._controllers:
            assert self._identity is not None
            settings = {"stale-gang": self._stale_gang, "root-ca": self._identity.ca_pem.decode()}
            manager = ControllerManager(
                self.client("controllers"),
                self.gates,
                self._controllers,
                clock=self._clock,
                options=settings,
                clients=self.controller_client,
            )
            self._run("controllers", manager.run())
            waits.append(manager.wait_started)
        if names := tuple(self._configuration.profiles):
            recorder = EventRecorder(
                self.client("scheduler"), names[0], now=self._clock.now, monotonic=self._clock.monotonic
            )
            config = scheduler_config(
                self.gates,
                (),
                configuration=self._configuration,
                fairness=self._fairness,
                clock=self._clock.now,
                monotonic=self._clock.monotonic,
            )
            self.scheduler = Scheduler(self.client("scheduler"), config, recorder, self._decision_log())
            self._run("scheduler", self.scheduler.run())
            waits.append(self.scheduler.ready.wait)
        fleet = Fleet(self.client("fleet"), self.nodes, self._clock, clients=self.node_client)
        driver = SimulatedDriver(self.client("driver"), self.nodes, clock=self._clock)
        self._run("fleet", fleet.run())
        self._run("driver", driver.run())
        waits.append(lambda: _all_in(fleet, driver, self.scheduler))
        ready: asyncio.Future[Any] = asyncio.gather(*(wait() for wait in waits))
        ending: asyncio.Future[Any] = asyncio.ensure_future(self.failed())
        try:
            await asyncio.wait({ready, ending}, return_when=asyncio.FIRST_COMPLETED)
            if ending.done():
                ending.result()
            await ready
        finally:
            for future in (ready, ending):
                future.cancel()
            await asyncio.gather(ready, ending, return_exceptions=True)
        gates = ",".join(
            name for name, on in sorted(self.gates.all().items()) if on and not FeatureGates().enabled(name)
        )
        served = ", ".join(names)
        scheduling = f"serves schedulerName {served}" if served else "runs no scheduler"
        if served and self._options.scheduler_profile != "Default":
            scheduling += f" with the profile {self._options.scheduler_profile}"
        if served and self._fairness.backfill:
            scheduling += ", with backfill"
        self.notes += [f"--scheduler-config: {note}" for note in self._configuration.notes]
        missing = sorted(set(CONTROLLERS) - set(self._controllers))
        without = f"without the controllers {', '.join(missing)}" if self._controllers else "runs no controllers"
        controlling = f"; {without}" if missing else ""
        self.notes.append(f"{scheduling}{controlling}; feature gates on beyond 1.36's defaults: {gates}")

    def _decision_log(self) -> DecisionLog | None:
        directory = self._options.decision_log
        try:
            return None if directory is None else DecisionLog(directory, self._options.decision_log_mebibytes)
        except OSError as error:
            raise OptionError(f"--decision-log: {directory}: {error.strerror}") from None

    async def _start_dashboard(self, host: str, port: int) -> None:
        measured = measured_by(self._directory / "usage.db") if self._options.usage_history else None
        self._dashboard = DashboardServer(self.client("dashboard"), host, port, measured)
        try:
            await self._dashboard.start()
        except OSError as error:
            remedy = "take another port, 0 for any that is free, or --no-dashboard"
            raise OptionError(f"--dashboard: {host}:{port}: {os.strerror(error.errno or 0)}; {remedy}") from error
        self.notes.append(f"dashboard, for one browser: {self._dashboard.url}")

    async def _start_accounting(self, accounting: AccountingServer) -> None:
        try:
            await accounting.start()
        except OSError as error:
            host, port = self._options.usage_metrics or ("", 0)
            remedy = "take another port, or 0 for any that is free"
            raise OptionError(f"--usage-metrics: {host}:{port}: {os.strerror(error.errno or 0)}; {remedy}") from error
        if accounting.url:
            self.notes.append(f"usage metrics: {accounting.url}")

    def _run(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.append(asyncio.create_task(work, name=name))

    def _write_kubeconfigs(self, identity: Identity) -> None:
        own_data = self._directory.absolute()
        text = kubeconfig(self.address, identity.ca_pem, identity.tokens[ADMIN], data_dir=own_data)
        write_whole(self.kubeconfig, text)
        for component in ("scheduler", "controllers"):
            # For `haru scheduler` and `haru controllers` as processes of their own, each with its own identity.
            own = kubeconfig(self.address, identity.ca_pem, identity.tokens[component])
            write_whole(self._directory / f"{component}.kubeconfig", own)
        if (wanted := self._options.write_kubeconfig) is not None:
            try:
                write_whole(wanted.absolute(), text)
            except OSError as error:
                remedy = "name a file in a directory that can be written"
                raise OptionError(f"--write-kubeconfig: {wanted}: {error.strerror}; {remedy}") from error


async def _all_in(fleet: Fleet, driver: SimulatedDriver, scheduler: Scheduler | None) -> None:
    """All nodes are up, all devices are published, and the scheduler counts on them."""
    await fleet.ready.wait()
    await driver.ready.wait()
    if scheduler is not None:
        await scheduler.wait_seen("Node", fleet.revision)
        await scheduler.wait_seen("ResourceSlice", driver.revision)


def _gates(text: str) -> FeatureGates:
    try:
        return FeatureGates.accelerator_defaults(parse_overrides(text))
    except ValueError as error:
        raise OptionError(f"--feature-gates: {error}") from error


def _controllers(options: UpOptions) -> list[str]:
    try:
        return select_controllers(options.controllers)
    except ValueError as error:
        raise OptionError(str(error)) from error


def _fairness(options: UpOptions) -> Fairness:
    try:
        return parse_fairness(options.backfill, options.minimum_run_time, options.preemption_delay)
    except ValueError as error:
        raise OptionError(str(error)) from error


def _stale_gang(options: UpOptions) -> StalePolicy:
    try:
        return default_policy(options.stale_gang_after, options.stale_gang_policy)
    except ValueError as error:
        raise OptionError(str(error)) from error


def _scheduling(options: UpOptions) -> Configuration:
    """The profiles to serve; none if no scheduler runs here."""
    if options.scheduler_config is None or not options.scheduler_names:
        return Configuration(dict.fromkeys(options.scheduler_names, PROFILES[options.scheduler_profile]))
    if options.scheduler_profile != "Default" or options.scheduler_names != UpOptions().scheduler_names:
        raise OptionError("--scheduler-config: Forbidden with --scheduler-name or --scheduler-profile: name them there")
    try:
        return load_configuration(options.scheduler_config)
    except ConfigurationError as error:
        raise OptionError(f"--scheduler-config: {error}") from error
