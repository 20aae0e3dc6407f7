"""The parts of `haru up`, started and stopped in order. Tests and fixtures start one too, without the command."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any

from haru.apiserver.aggregation import AggregationOptions
from haru.apiserver.auth import kubeconfig
from haru.apiserver.config import AuthenticationOptions, EncryptionOptions, ServerConfig, UserInfo
from haru.apiserver.encoding import damage_of
from haru.apiserver.peers import FrontProxyOptions
from haru.apiserver.proxy import KubeletOptions
from haru.apiserver.server import ApiServer
from haru.apiserver.serving import HttpServer, TlsFiles
from haru.client.api import ApiClient
from haru.client.http_connections import socket_address
from haru.clock import SYSTEM, Clock
from haru.drivers.simulated.profiles import Profile
from haru.embedded.audit import audit_options
from haru.embedded.errors import OptionError
from haru.embedded.gates import gates_of
from haru.embedded.identity import ADMIN, FRONT_PROXY, USERS, ComponentClients, Identity, ensure_identity
from haru.embedded.options import UpOptions, check_versions
from haru.embedded.part import READERS, Part, Setting, ended, expected_apis, load_part, needed_parts, unless
from haru.embedded.simulated_nodes import described_nodes, requested_nodes, settle_nodes
from haru.embedded.supervised import SupervisedParts
from haru.event_loop import cancelled
from haru.files import write_whole
from haru.kube.gates import FeatureGates
from haru.scheduler.debugger import StateDump
from haru.simulated_nodes.provisioner import install_storage_class
from haru.storage import SqliteStore

# What is served beyond the defaults of 1.36: everything about devices and gangs.
RUNTIME_CONFIG = {
    "resource.k8s.io/v1beta1": True,
    "resource.k8s.io/v1beta2": True,
    "resource.k8s.io/v1alpha3": True,
    "scheduling.k8s.io/v1alpha2": True,
}


class CheckedOptions:
    """What the options say of the API server, loaded and checked before anything is started. Raises OptionError."""

    def __init__(self, options: UpOptions) -> None:
        self.gates = gates_of(options)
        self.nodes = requested_nodes(options)
        check_versions(options.runtime_config)
        self.audit = audit_options(options.security)
        self.admission = options.security.admission()
        options.account_tokens.read()
        self.sealing = options.security.sealing()


class EmbeddedCluster:
    """A whole cluster. `start` returns when it is ready; `failed` ends when a part of it fails.

    The API server is in this process, and so are the parts that are not among `supervised`, which have processes of
    their own. Parts here use `clock`, whose monotonic time has to be that of the running event loop.
    """

    def __init__(
        self, options: UpOptions, directory: Path, clock: Clock = SYSTEM, supervised: Sequence[SupervisedParts] = ()
    ) -> None:
        self._options = options
        self._clock = clock
        self._directory = directory
        self._checked = CheckedOptions(options)
        self._supervised = supervised
        elsewhere = {name for parts in supervised for name in parts.names}
        here = [name for name in needed_parts(options) if name not in elsewhere]
        self._parts: dict[str, Part] = {name: load_part(name)(options) for name in here}
        self.nodes: list[tuple[Profile, str]] = []
        self.kubeconfig = directory / "kubeconfig"
        self.address = ""
        self.notes: list[str] = []
        self.server: ApiServer | None = None
        sealing = self._checked.sealing
        self.store = SqliteStore(directory / "state.db", clock=clock.monotonic, sealing=sealing, check=damage_of)
        self._clients: ComponentClients | None = None
        self.listener: HttpServer | None = None

    async def start(self) -> None:
        """Start everything; raises OptionError, PartEnded or OSError if it cannot."""
        for parts in self._supervised:
            parts.begin()
        identity = ensure_identity(self._directory / "pki", self._options.listen[0])
        await self.store.start()
        self.server = ApiServer(self._server_config(identity))
        self._clients = ComponentClients(self.server, identity.tokens)
        await self.server.start()
        for parts in self._supervised:
            await parts.check()
        await self._settle_nodes()
        await self._listen(self.server, identity)
        self._write_kubeconfigs(identity)
        if self._options.simulated_nodes:
            await install_storage_class(self.client("provisioner"))
        await unless(self.failed(), self._start_parts(identity))
        self.notes += self._part_notes()

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
            has_controllers=any(self._options.controllers.names),
            admission=self._checked.admission,
            aggregation=AggregationOptions(
                identity.front_proxy_client.certificate,
                identity.front_proxy_client.key,
                identity.ca_pem,
                FrontProxyOptions(identity.front_proxy_ca, (FRONT_PROXY,)),
                expected_apis(self._options),
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
        failing = [asyncio.ensure_future(part.failed()) for part in self._all()]
        try:
            await ended(failing)
        finally:
            await cancelled(*failing)

    def dump(self) -> StateDump | None:
        """The state of the scheduler in this process, for the log."""
        return next((dump for part in self._parts.values() if (dump := part.dump()) is not None), None)

    async def stop(self) -> None:
        """Takes everything down: parts, the one started last first, then listener, server, store."""
        await asyncio.gather(*(parts.stop() for parts in self._supervised))
        for part in reversed(self._parts.values()):
            await part.stop()
        if self._clients is not None:
            self._clients.close()
        if self.listener is not None:
            await self.listener.stop()
            self._local_socket.unlink(missing_ok=True)
        if self.server is not None:
            await self.server.stop()
        await self.store.stop()

    async def _settle_nodes(self) -> None:
        where = "--profile" if self._options.simulated_nodes else "--no-simulated-nodes"
        self.nodes, note = await settle_nodes(self.client(ADMIN), self._checked.nodes, where)
        if note:
            self.notes.append(note)

    async def _start_parts(self, identity: Identity) -> None:
        """Start the parts, those that show what the others do at last; return when all of them are ready."""
        assert self._clients is not None and self.listener is not None
        authority = identity.ca_pem.decode()
        setting = Setting(self._clients, self._directory, authority, self.nodes, self._clock)
        starts: list[Coroutine[Any, Any, None]] = []
        if self._supervised:
            told = {"directory": str(self._directory), "authority": authority, "nodes": described_nodes(self.nodes)}
            told["socket"] = await self._serve_locally(self.listener)
            starts = [parts.start(told, self._clients) for parts in self._supervised]
        starts += [part.start(setting) for name, part in self._parts.items() if name != READERS]
        await asyncio.gather(*starts)
        written = {kind: revision for part in self._all() for kind, revision in part.revisions().items()}
        await asyncio.gather(*(part.wait_seen(written) for part in self._all()))
        if READERS in self._parts:
            await self._parts[READERS].start(setting)

    def _all(self) -> list[Part | SupervisedParts]:
        return [*self._parts.values(), *self._supervised]

    @property
    def _local_socket(self) -> Path:
        return self._directory / "run" / "api.sock"

    async def _serve_locally(self, listener: HttpServer) -> str:
        """Serve the processes of the parts on a Unix socket, which only this user can reach; its path."""
        path = self._local_socket
        path.parent.mkdir(mode=0o700, exist_ok=True)
        path.parent.chmod(0o700)
        path.unlink(missing_ok=True)
        await listener.serve_locally(socket_address(path))
        return str(path)

    def _part_notes(self) -> list[str]:
        """What runs, as `haru up` reports it on stderr."""
        defaults = FeatureGates()
        gates = self._checked.gates.all()
        on = ",".join(name for name, on in sorted(gates.items()) if on and not defaults.enabled(name))
        runs = [] if self._options.scheduler.names else ["runs no scheduler"]
        runs += [phrase for part in self._all() for phrase in part.phrases()]
        notes = [note for part in self._all() for note in part.notes()]
        return [f"{'; '.join(runs)}; feature gates on beyond 1.36's defaults: {on}", *notes]

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
