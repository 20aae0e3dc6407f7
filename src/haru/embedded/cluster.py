"""The parts of `haru up`, started and stopped in order. Tests and fixtures start one too, without the command."""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

from haru.accounting.server import AccountingServer
from haru.apiserver.aggregation import AggregationOptions
from haru.apiserver.auth import kubeconfig
from haru.apiserver.config import AuthenticationOptions, EncryptionOptions, ServerConfig, UserInfo
from haru.apiserver.encoding import damage_of
from haru.apiserver.peers import FrontProxyOptions
from haru.apiserver.proxy import KubeletOptions
from haru.apiserver.server import ApiServer
from haru.apiserver.serving import HttpServer, TlsFiles
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
from haru.embedded.explain_api import EmbeddedExplainApi
from haru.embedded.identity import ADMIN, FRONT_PROXY, USERS, ComponentClients, Identity, ensure_identity
from haru.embedded.options import ControllerOptions, SchedulerOptions, UpOptions, UsageOptions, check_versions
from haru.embedded.simulated_nodes import requested_nodes, settle_nodes
from haru.embedded.usage import measured_by
from haru.engine import Features
from haru.engine.framework import PROFILES
from haru.event_loop import cancelled
from haru.files import write_whole
from haru.kube.gates import FeatureGates, parse_overrides
from haru.scheduler.config import parse_fairness, scheduler_config
from haru.scheduler.configuration import Configuration, ConfigurationError, load_configuration
from haru.scheduler.decision_log import DecisionLog
from haru.scheduler.scheduler import Scheduler
from haru.scheduler.settings import Fairness
from haru.simulated_nodes.fleet import Fleet
from haru.simulated_nodes.provisioner import SimulatedProvisioner, install_storage_class
from haru.storage import SqliteStore

_log = logging.getLogger(__name__)

# What is served beyond the defaults of 1.36: everything about devices and gangs.
RUNTIME_CONFIG = {
    "resource.k8s.io/v1beta1": True,
    "resource.k8s.io/v1beta2": True,
    "resource.k8s.io/v1alpha3": True,
    "scheduling.k8s.io/v1alpha2": True,
}


class CheckedOptions:
    """What the options name, loaded and checked before anything is started. Raises OptionError."""

    def __init__(self, options: UpOptions) -> None:
        self.gates = _gates(options.feature_gates)
        self.nodes = requested_nodes(options)
        self.controllers = _controllers(options.controllers)
        self.configuration = _configuration(options.scheduler)
        self.stale_gang = _stale_gang(options.controllers)
        self.fairness = _fairness(options.scheduler)
        check_versions(options.runtime_config)
        self.audit = audit_options(options.security)
        self.admission = options.security.admission()
        options.account_tokens.read()
        self.sealing = options.security.sealing()


class EmbeddedCluster:
    """A whole cluster in this process. `start` returns when it is ready; `failed` ends when a part of it fails.

    Its parts use `clock`, whose monotonic time has to be that of the running event loop.
    """

    def __init__(self, options: UpOptions, directory: Path, clock: Clock = SYSTEM) -> None:
        self._options = options
        self._clock = clock
        self._directory = directory
        self._checked = CheckedOptions(options)
        self.nodes: list[tuple[Profile, str]] = []
        self.scheduler: Scheduler | None = None
        self.kubeconfig = directory / "kubeconfig"
        self.address = ""
        self.notes: list[str] = []
        self.server: ApiServer | None = None
        sealing = self._checked.sealing
        self.store = SqliteStore(directory / "state.db", clock=clock.monotonic, sealing=sealing, check=damage_of)
        self._clients: ComponentClients | None = None
        self.listener: HttpServer | None = None
        self._pages: list[DashboardServer | AccountingServer | EmbeddedExplainApi] = []
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Start everything; raises OptionError or OSError if it cannot."""
        identity = ensure_identity(self._directory / "pki", self._options.listen[0])
        await self.store.start()
        self.server = ApiServer(self._server_config(identity))
        self._clients = ComponentClients(self.server, identity.tokens)
        await self.server.start()
        await self._settle_nodes()
        await self._listen(self.server, identity)
        self._write_kubeconfigs(identity)
        await install_device_classes(self.client("driver"))
        await install_storage_class(self.client("provisioner"))
        await self._start_components(identity)
        if self._options.dashboard is not None:
            await self._start_dashboard(*self._options.dashboard)
        if self._options.usage.history or self._options.usage.metrics is not None:
            await self._start_accounting(self._options.usage)
        if self._options.explain_api:
            explaining = EmbeddedExplainApi(self.client("explain"), self.client(ADMIN), self._clock.now)
            self._pages.append(explaining)
            await explaining.start()

    def _server_config(self, identity: Identity) -> ServerConfig:
        users = {identity.tokens[key]: UserInfo(name, groups) for key, (name, groups) in USERS.items()}
        signing_key, account_tokens = self._options.account_tokens.read(identity.signing_key_pem)
        return ServerConfig(
            store=self.store,
            clock=self._clock.now,
            gates=self._checked.gates,
            runtime_config={**RUNTIME_CONFIG, **self._options.runtime_config},
            authentication=AuthenticationOptions(
                users, identity.ca_pem, service_account_key_pem=signing_key, account_tokens=account_tokens
            ),
            encryption=EncryptionOptions(self._checked.sealing, self._options.security.encryption_file),
            audit=self._checked.audit,
            admission=self._checked.admission,
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

    async def _listen(self, server: ApiServer, identity: Identity) -> None:
        host, port = self._options.listen
        tls = TlsFiles(identity.server_cert, identity.server_key, identity.ca_file)
        self.listener = HttpServer(server, host, port, tls, http2_streams=self._options.http2_streams)
        try:
            await self.listener.start()
        except ssl.SSLError as error:
            raise OptionError(f"what is in {self._directory / 'pki'} can not be served with: {error}") from error
        except OSError as error:
            remedy = "take another address, or port 0 for any that is free"
            raise OptionError(f"--listen: {host}:{port}: {os.strerror(error.errno or 0)}; {remedy}") from error
        self.address = self.listener.url

    def client(self, component: str) -> ApiClient:
        """A client in process with the identity of a component (or of the administrator)."""
        assert self._clients is not None, "the cluster is not started"
        return self._clients.component(component)

    async def failed(self) -> None:
        """Waits until a part ends, and raises what ended it."""
        done, _ = await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
        raise RuntimeError(f"{', '.join(t.get_name() for t in done)} ended")

    async def stop(self) -> None:
        """Takes everything down: dashboard, accounts, components, listener, server, store."""
        for page in self._pages:
            await page.stop()
        await cancelled(*reversed(self._tasks))
        if self.listener is not None:
            await self.listener.stop()
        if self.server is not None:
            await self.server.stop()
        await self.store.stop()

    async def _settle_nodes(self) -> None:
        where = "--profile" if self._options.simulated_nodes else "--no-simulated-nodes"
        self.nodes, note = await settle_nodes(self.client(ADMIN), self._checked.nodes, where)
        if note:
            self.notes.append(note)

    async def _start_components(self, identity: Identity) -> None:
        """Start controllers, scheduler, simulated nodes and their driver; return when all of them are ready."""
        assert self._clients is not None
        waits: list[Callable[[], Coroutine[Any, Any, Any]]] = []
        if self._checked.controllers:
            waits.append(self._start_controllers(self._clients, identity).wait_started)
        if self._checked.configuration.profiles:
            self.scheduler = self._start_scheduler()
            waits.append(self.scheduler.ready.wait)
        fleet = Fleet(self.client("fleet"), self.nodes, self._clock, clients=self._clients.node)
        driver = SimulatedDriver(self.client("driver"), self.nodes, clock=self._clock)
        provisioner = SimulatedProvisioner(self.client("provisioner"), self._clock)
        self._run("provisioner", provisioner.run())
        waits.append(provisioner.ready.wait)
        self._run("fleet", fleet.run())
        self._run("driver", driver.run())
        waits.append(lambda: _all_in(fleet, driver, self.scheduler))
        await self._wait_ready(waits)
        self.notes += self._component_notes()

    def _start_controllers(self, clients: ComponentClients, identity: Identity) -> ControllerManager:
        checked = self._checked
        manager = ControllerManager(
            self.client("controllers"),
            checked.gates,
            checked.controllers,
            clock=self._clock,
            options={"stale-gang": checked.stale_gang, "root-ca": identity.ca_pem.decode()},
            clients=clients.controller,
        )
        self._run("controllers", manager.run())
        return manager

    def _start_scheduler(self) -> Scheduler:
        checked, clock = self._checked, self._clock
        in_real_time = clock is SYSTEM
        name = next(iter(checked.configuration.profiles))
        recorder = EventRecorder(self.client("scheduler"), name, now=clock.now, monotonic=clock.monotonic)
        config = scheduler_config(
            checked.gates,
            (),
            configuration=checked.configuration,
            fairness=checked.fairness,
            publish_explanations=self._options.scheduler.publish_explanations or ("counts" if in_real_time else "off"),
            # A thread would not see the time of a test stand still.
            explain_inline=not in_real_time,
            clock=clock.now,
            monotonic=clock.monotonic,
        )
        scheduler = Scheduler(self.client("scheduler"), config, recorder, self._decision_log())
        self._run("scheduler", scheduler.run())
        return scheduler

    async def _wait_ready(self, waits: Sequence[Callable[[], Coroutine[Any, Any, Any]]]) -> None:
        """Wait until all components are ready; raise what ended one of them before."""
        ready: asyncio.Future[Any] = asyncio.gather(*(wait() for wait in waits))
        ending: asyncio.Future[Any] = asyncio.ensure_future(self.failed())
        try:
            await asyncio.wait({ready, ending}, return_when=asyncio.FIRST_COMPLETED)
            if ending.done():
                ending.result()
            await ready
        finally:
            await cancelled(ready, ending)

    def _component_notes(self) -> list[str]:
        """What runs, as `haru up` reports it on stderr."""
        checked = self._checked
        served = ", ".join(checked.configuration.profiles)
        scheduling = f"serves schedulerName {served}" if served else "runs no scheduler"
        if served and self._options.scheduler.profile != "Default":
            scheduling += f" with the profile {self._options.scheduler.profile}"
        if served and checked.fairness.backfill:
            scheduling += ", with backfill"
        notes = [f"--scheduler-config: {note}" for note in checked.configuration.notes]
        missing = sorted(set(CONTROLLERS) - set(checked.controllers))
        without = f"without the controllers {', '.join(missing)}" if checked.controllers else "runs no controllers"
        controlling = f"; {without}" if missing else ""
        defaults = FeatureGates()
        gates = ",".join(name for name, on in sorted(checked.gates.all().items()) if on and not defaults.enabled(name))
        return [*notes, f"{scheduling}{controlling}; feature gates on beyond 1.36's defaults: {gates}"]

    def _decision_log(self) -> DecisionLog | None:
        directory = self._options.scheduler.decision_log
        try:
            return None if directory is None else DecisionLog(directory, self._options.scheduler.decision_log_mebibytes)
        except OSError as error:
            raise OptionError(f"--decision-log: {directory}: {error.strerror}") from None

    async def _start_dashboard(self, host: str, port: int) -> None:
        measured = measured_by(self._directory / "usage.db") if self._options.usage.history else None
        dashboard = DashboardServer(self.client("dashboard"), host, port, measured)
        self._pages.append(dashboard)
        try:
            await dashboard.start()
        except OSError as error:
            remedy = "take another port, 0 for any that is free, or --no-dashboard"
            raise OptionError(f"--dashboard: {host}:{port}: {os.strerror(error.errno or 0)}; {remedy}") from error
        self.notes.append(f"dashboard, for one browser: {dashboard.url}")

    async def _start_accounting(self, usage: UsageOptions) -> None:
        file = self._directory / "usage.db" if usage.history else None
        features = Features.from_gates(self._checked.gates.all())
        accounting = AccountingServer(self.client("accounting"), file, usage.metrics, features, self._clock.now)
        self._pages.append(accounting)
        try:
            await accounting.start()
        except OSError as error:
            host, port = usage.metrics or ("", 0)
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
        if (wanted := self._options.state.write_kubeconfig) is not None:
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


def _controllers(options: ControllerOptions) -> list[str]:
    try:
        return select_controllers(options.names)
    except ValueError as error:
        raise OptionError(str(error)) from error


def _fairness(options: SchedulerOptions) -> Fairness:
    try:
        return parse_fairness(options.backfill, options.minimum_run_time, options.preemption_delay)
    except ValueError as error:
        raise OptionError(str(error)) from error


def _stale_gang(options: ControllerOptions) -> StalePolicy:
    try:
        return default_policy(options.stale_gang_after, options.stale_gang_policy)
    except ValueError as error:
        raise OptionError(str(error)) from error


def _configuration(options: SchedulerOptions) -> Configuration:
    """The profiles to serve; none if no scheduler runs here."""
    if options.config is None or not options.names:
        return Configuration(dict.fromkeys(options.names, PROFILES[options.profile]))
    if options.profile != "Default" or options.names != SchedulerOptions().names:
        raise OptionError("--scheduler-config: Forbidden with --scheduler-name or --scheduler-profile: name them there")
    try:
        return load_configuration(options.config)
    except ConfigurationError as error:
        raise OptionError(f"--scheduler-config: {error}") from error
