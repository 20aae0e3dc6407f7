"""One of several API servers over one etcd: `haru apiserver` from start to stop.

Nothing is kept here: what replicas have to agree on is in etcd, and what they have to be given alike are the files that
the flags name. So each can be killed, and started anywhere, at any time.
"""

from __future__ import annotations

import asyncio
import csv
import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from haru.apiserver.aggregation import AggregationOptions
from haru.apiserver.auth import PemError, new_authority, read_pair, server_pair
from haru.apiserver.config import AuthenticationOptions, EncryptionOptions, FlowControl, ServerConfig, UserInfo
from haru.apiserver.encoding import damage_of
from haru.apiserver.proxy import KubeletOptions
from haru.apiserver.server import ApiServer
from haru.apiserver.serving import HttpServer, TlsFiles
from haru.embedded.account_tokens import AccountTokenFiles
from haru.embedded.audit import audit_options
from haru.embedded.errors import OptionError
from haru.embedded.flag_files import read_authorities, read_file
from haru.embedded.options import check_versions
from haru.embedded.peers import PeerFiles
from haru.embedded.process import loop_factory, seconds_since_start
from haru.embedded.security import SecurityOptions
from haru.files import write_whole
from haru.garbage import postpone_collection, resume_collection
from haru.http2 import MAX_STREAMS
from haru.kube.gates import FeatureGates
from haru.loop_lag import measured_loop
from haru.stop import stop_event, unless_stopped
from haru.storage.etcd import EtcdStore, EtcdStoreOptions, read_credentials


@dataclass(frozen=True, slots=True)
class EtcdOptions:
    """The etcd that all replicas share; paths are those of PEM files."""

    servers: tuple[str, ...]
    prefix: str = "/registry"
    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    compaction_interval: float = 300.0
    """Seconds between compactions; 0: this replica does not compact."""


@dataclass(frozen=True, slots=True)
class ServingOptions:
    """Where the server listens, and the certificate that it serves with."""

    host: str = "0.0.0.0"
    port: int = 6443
    advertise: str = ""
    tls_cert: Path | None = None
    tls_key: Path | None = None
    cert_dir: Path = Path("apiserver")
    """The directory in which a certificate is created if none is given."""
    http2_streams: int = MAX_STREAMS
    """How many requests a connection of HTTP/2 may have at once; 0: only HTTP/1.1 is served."""


@dataclass(frozen=True, slots=True)
class CredentialFiles:
    """The files that say whom the server lets in."""

    client_ca: Path | None = None
    token_file: Path | None = None
    account_tokens: AccountTokenFiles = field(default_factory=AccountTokenFiles)


@dataclass(frozen=True, slots=True)
class ReplicaOptions:
    """The options of `haru apiserver`."""

    etcd: EtcdOptions
    serving: ServingOptions = field(default_factory=ServingOptions)
    credentials: CredentialFiles = field(default_factory=CredentialFiles)
    gates: FeatureGates = field(default_factory=FeatureGates)
    runtime_config: Mapping[str, bool] = field(default_factory=dict)
    flow_control: FlowControl = field(default_factory=FlowControl)
    security: SecurityOptions = field(default_factory=SecurityOptions)
    """Encryption at rest, audit and admission."""
    peers: PeerFiles = field(default_factory=PeerFiles)
    """The other API servers, of this version or another one, and the front proxies."""
    kubelets: KubeletOptions = field(default_factory=KubeletOptions)
    """How kubelets of real nodes are reached."""


def run_replica(options: ReplicaOptions) -> int:
    """Serves until SIGINT or SIGTERM; returns the exit status. Raises OptionError, StoreError."""
    postpone_collection()
    with asyncio.Runner(loop_factory=loop_factory(serves=True)) as runner:
        return runner.run(_run(options))


async def _run(options: ReplicaOptions) -> int:
    stop = stop_event()
    replica = Replica(options)
    async with measured_loop():
        try:
            await unless_stopped(replica.start(), stop)
            if stop.is_set():
                return 0
            resume_collection()
            print(f"haru apiserver is ready after {seconds_since_start():.1f} s at {replica.url}", flush=True)
            await stop.wait()
            return 0
        finally:
            await replica.stop()


class Replica:
    """An API server over etcd, and its listener."""

    def __init__(self, options: ReplicaOptions) -> None:
        check_versions(options.runtime_config)
        self._options = options
        self.url = ""
        self._cert, self._key = _serving_files(options.serving)
        sealing, etcd = options.security.sealing(), options.etcd
        self.store = EtcdStore(
            etcd.servers,
            EtcdStoreOptions(etcd.prefix, read_credentials(etcd.ca, etcd.cert, etcd.key), etcd.compaction_interval),
            sealing=sealing,
            check=damage_of,
        )
        signing_key, account_tokens = options.credentials.account_tokens.read()
        client_ca = read_authorities(options.credentials.client_ca, "--client-ca-file") or None
        peers, front_proxy = options.peers.peers(options.gates), options.peers.front_proxy(client_ca, options.gates)
        self._server = ApiServer(
            ServerConfig(
                self.store,
                options.gates,
                options.runtime_config,
                AuthenticationOptions(
                    tokens_of(options.credentials.token_file), client_ca, front_proxy, signing_key, account_tokens
                ),
                f"{options.serving.advertise or _own_address(options.serving.host)}:{options.serving.port}",
                flow_control=options.flow_control,
                encryption=EncryptionOptions(sealing, options.security.encryption_file),
                audit=audit_options(options.security),
                admission=options.security.admission(),
                peers=peers,
                aggregation=AggregationOptions(peers.certificate, peers.key, client_ca or b"", front_proxy),
                kubelets=options.kubelets,
            )
        )
        self._listener: HttpServer | None = None

    async def start(self) -> None:
        """Follow etcd, write what every cluster starts with, and serve."""
        options, serving = self._options, self._options.serving
        await self.store.start()
        await self._server.start()
        self._listener = HttpServer(
            self._server,
            serving.host,
            serving.port,
            TlsFiles(self._cert, self._key, options.credentials.client_ca, options.peers.front_proxy_ca),
            http2_streams=serving.http2_streams,
        )
        try:
            await self._listener.start()
        except ssl.SSLError as error:
            self._listener = None
            raise OptionError(f"the certificates and keys can not be served with: {error}") from error
        except OSError as error:
            self._listener = None
            where = f"{serving.host}:{serving.port}"
            raise OptionError(f"--secure-port: {where}: {os.strerror(error.errno or 0)}; take another one") from error
        self.url = self._listener.url

    async def stop(self) -> None:
        """End the streams, finish what is in flight, close."""
        if self._listener is not None:
            await self._listener.stop()
        await self._server.stop()
        await self.store.stop()


def _own_address(host: str) -> str:
    return "127.0.0.1" if host in ("0.0.0.0", "::", "") else host


def tokens_of(path: Path | None) -> dict[str, UserInfo]:
    """The users of a file with lines `token,user,uid,"group1,group2"`, as kube-apiserver reads it."""
    if path is None:
        return {}
    users: dict[str, UserInfo] = {}
    text = read_file(path, "--token-auth-file").decode(errors="replace")
    for number, row in enumerate(csv.reader(text.splitlines(), skipinitialspace=True), 1):
        if not row:
            continue
        if len(row) < 3 or not row[0] or not row[1]:
            raise OptionError(f'--token-auth-file: {path}: line {number}: write token,user,uid,"group1,group2"')
        groups = tuple(name.strip() for name in row[3].split(",") if name.strip()) if len(row) > 3 else ()
        users[row[0]] = UserInfo(row[1], groups, row[2])
    return users


def _serving_files(options: ServingOptions) -> tuple[Path, Path]:
    """Certificate and key to serve with; made and kept in the certificates' directory when none are given."""
    if (options.tls_cert is None) != (options.tls_key is None):
        raise OptionError("--tls-cert-file and --tls-private-key-file belong together: give both or none")
    if options.tls_cert is not None and options.tls_key is not None:
        _check_pair(options.tls_cert, options.tls_key, "--tls-cert-file", "--tls-private-key-file")
        return options.tls_cert, options.tls_key
    directory = options.cert_dir
    authority, cert, key = (directory / name for name in ("ca.crt", "apiserver.crt", "apiserver.key"))
    if not (authority.exists() and cert.exists() and key.exists()):
        now = datetime.now(UTC)
        try:
            directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            made = new_authority(now)
            pair = server_pair(made, (options.host, options.advertise), now)
            write_whole(key, pair.key)
            write_whole(cert, pair.certificate)
            write_whole(authority, made.certificate)
        except OSError as error:
            raise OptionError(f"--cert-dir: {directory}: {error.strerror}; name one that can be written") from None
    _check_pair(cert, key, "--cert-dir", "--cert-dir")
    return cert, key


def _check_pair(cert: Path, key: Path, cert_flag: str, key_flag: str) -> None:
    try:
        read_pair(cert, key)
    except PemError as error:
        remedy = "" if cert_flag != key_flag else "; remove both, and they are made anew"
        raise OptionError(f"{key_flag if error.file == key else cert_flag}: {error}{remedy}") from None
