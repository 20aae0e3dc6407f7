"""API servers of two versions on one etcd, in this process but over real sockets, with certificates of their own."""

from __future__ import annotations

import asyncio
import json
import ssl
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp

from etcd_process import Etcd
from haru.apiserver.auth import Pair, certificates
from haru.embedded.account_tokens import AccountTokenFiles
from haru.embedded.peers import PeerFiles
from haru.embedded.replica import CredentialFiles, EtcdOptions, Replica, ReplicaOptions, ServingOptions
from haru.embedded.security import SecurityOptions
from haru.files import write_whole
from haru.kube.gates import FeatureGates
from waiting import until

Obj = dict[str, Any]
SECONDS = 30.0
"""However busy the machine is."""
ADMIN, JANE = "the-token-of-the-administrator", "the-token-of-jane"
GATES = {
    35: "UnknownVersionInteroperabilityProxy=true,DRADeviceTaints=true,DRADeviceTaintRules=true",
    36: "GenericWorkload=true,DRADeviceTaintRules=true,DRAResourcePoolStatus=true",
}
GROUPS = "/apis/scheduling.k8s.io/v1alpha2/namespaces/default/podgroups"
LIST = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
POLICY = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n- level: Metadata\nomitStages: [RequestReceived]\n"


def pod_group(name: str) -> Obj:
    policy = {"gang": {"minCount": 1}}
    return {
        "apiVersion": "scheduling.k8s.io/v1alpha2",
        "kind": "PodGroup",
        "metadata": {"name": name},
        "spec": {"schedulingPolicy": policy},
    }


class Authorities:
    """A directory with every certificate that the tests show: good ones, and some that nobody should take."""

    def __init__(self, home: Path) -> None:
        self.home, now = home, datetime.now(UTC)
        self._contexts: dict[str, ssl.SSLContext] = {}
        self.serving, self.front, self.clients, self.stranger = (
            certificates.new_authority(now, name) for name in ("serving", "front-proxy", "clients", "stranger")
        )
        for name in ("serving", "front", "clients", "stranger"):
            self._write(f"{name}-ca.crt", getattr(self, name).certificate)
        self._pair("server", certificates.server_pair(self.serving, (), now))
        self._pair("strange-server", certificates.server_pair(self.stranger, (), now))
        for name, authority, user, groups in (
            ("peer", self.front, "apiserver-proxy", ()),
            ("wrong-name", self.front, "somebody-else", ("system:masters",)),
            ("strange-peer", self.stranger, "apiserver-proxy", ()),
            ("user", self.clients, "carol", ("devs",)),
            ("user-named-as-a-peer", self.clients, "apiserver-proxy", ()),
        ):
            self._pair(name, certificates.client_pair(authority, user, groups, now))
        self._write("sa.key", certificates.new_key())
        self._write("tokens.csv", f'{ADMIN},admin,1,"system:masters"\n{JANE},jane,jane-uid,"devs,night"\n'.encode())
        self._write("policy.yaml", POLICY.encode())

    def _write(self, name: str, content: bytes) -> None:
        write_whole(self.home / name, content)

    def _pair(self, name: str, pair: Pair) -> None:
        self._write(f"{name}.crt", pair.certificate)
        self._write(f"{name}.key", pair.key)

    def tls(self, client: str = "") -> ssl.SSLContext:
        """A client's settings, with a certificate to show."""
        if client not in self._contexts:
            context = ssl.create_default_context(cafile=str(self.home / "serving-ca.crt"))
            if client:
                context.load_cert_chain(self.home / f"{client}.crt", self.home / f"{client}.key")
            self._contexts[client] = context
        return self._contexts[client]


class Answer:
    def __init__(self, status: int, headers: Any, body: bytes) -> None:
        self.status, self.headers, self.body = status, headers, body

    @property
    def json(self) -> Obj:
        found: Obj = json.loads(self.body)
        return found


class Server:
    """One API server of the world."""

    def __init__(self, world: World, name: str, replica: Replica) -> None:
        self.world, self.name, self.replica = world, name, replica
        self.audit = world.authorities.home / f"{name}.audit"

    @property
    def url(self) -> str:
        return self.replica.url

    @property
    def id(self) -> str:
        assert self.peers is not None
        return str(self.peers.identity.name)

    @property
    def peers(self) -> Any:
        return self.replica._server.peers

    @property
    def objects(self) -> Any:
        return self.replica._server.objects

    @property
    def streams(self) -> Any:
        return self.replica._server.streams

    async def call(
        self, method: str, path: str, body: Any = None, *, token: str = ADMIN, client: str = "", **headers: str
    ) -> Answer:
        """One request; names of headers with underscores for dashes."""
        async with self.open(method, path, body, token=token, client=client, **headers) as answer:
            return Answer(answer.status, answer.headers, await answer.read())

    @asynccontextmanager
    async def open(
        self, method: str, path: str, body: Any = None, *, token: str = ADMIN, client: str = "", **headers: str
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if token:
            sent["Authorization"] = f"Bearer {token}"
        data = json.dumps(body).encode() if body is not None else None
        if body is not None:
            kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
            sent.setdefault("Content-Type", kind)
        from yarl import URL

        async with (
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=self.world.authorities.tls(client))) as session,
            asyncio.timeout(SECONDS),
            session.request(method, URL(self.url + path, encoded=True), data=data, headers=sent) as answer,
        ):
            yield answer

    async def groups(self, accept: str = LIST) -> list[Obj]:
        found: list[Obj] = (await self.call("GET", "/apis", Accept=accept)).json["items"]
        return found

    async def told(self, holds: Callable[[Obj], bool]) -> Obj:
        """The first event of the audit log that `holds` for; it is written a moment after the answer."""

        def found() -> Obj | None:
            lines = self.audit.read_text().splitlines() if self.audit.exists() else []
            return next((event for event in map(json.loads, lines) if holds(event)), None)

        return await until(found, "the event in the audit log")  # type: ignore[no-any-return]

    async def forwarded(self) -> float:
        """How many requests for resources were answered by peers; questions of discovery are not among them."""
        text = (await self.call("GET", "/metrics")).body.decode()
        lines = [line for line in text.splitlines() if line.startswith("apiserver_rerouted_request_total{")]
        return sum(float(line.rpartition(" ")[2]) for line in lines if 'resource=""' not in line)

    async def metric(self, start: str) -> float:
        """The sum of the samples whose lines begin so."""
        text = (await self.call("GET", "/metrics")).body.decode()
        return sum(float(line.rpartition(" ")[2]) for line in text.splitlines() if line.startswith(start))


class World:
    """Servers on one etcd, each with a hostname of its own."""

    def __init__(self, home: Path, etcd: Etcd) -> None:
        self.authorities = Authorities(home)
        self._etcd = etcd
        self._prefix = f"/mixed/{uuid.uuid4()}"
        self.servers: list[Server] = []
        self.ports: dict[str, int] = {}
        """Those of servers that keep theirs when they are started again."""

    async def start(self, name: str, minor: int = 36, gates: str | None = None, **peers: Any) -> Server:
        """Start a server of a version; `peers` changes what it is told about its peers (None: drop it)."""
        home = self.authorities.home
        files = {
            "peer_ca": home / "serving-ca.crt",
            "proxy_cert": home / "peer.crt",
            "proxy_key": home / "peer.key",
            "front_proxy_ca": home / "front-ca.crt",
            "names": ("apiserver-proxy",),
            **peers,
        }
        options = ReplicaOptions(
            EtcdOptions((self._etcd.url,), self._prefix, compaction_interval=0),
            ServingOptions(
                host="127.0.0.1",
                port=self.ports.get(name, 0),
                tls_cert=home / "server.crt",
                tls_key=home / "server.key",
            ),
            CredentialFiles(
                home / "clients-ca.crt", home / "tokens.csv", AccountTokenFiles(signing_key=home / "sa.key")
            ),
            gates=FeatureGates.parse(GATES[minor] if gates is None else gates, minor),
            runtime_config={"api/all": True},
            security=SecurityOptions(audit_policy=home / "policy.yaml", audit_log=str(home / f"{name}.audit")),
            peers=PeerFiles(hostname=name, **{key: value for key, value in files.items() if value is not None}),
        )
        server = Server(self, name, Replica(options))
        self.servers.append(server)
        await server.replica.start()
        return server

    async def stop(self, server: Server) -> None:
        self.servers.remove(server)
        await server.replica.stop()

    async def close(self) -> None:
        for server in list(self.servers):
            await self.stop(server)


async def acquainted(*servers: Server) -> None:
    """Wait until each has learned what the others serve."""

    def knows() -> bool:
        ids = {server.id for server in servers}
        return all(server.peers.discovery_cache.offers.keys() >= ids - {server.id} for server in servers)

    await until(knows, "the servers know each other")


def resources(groups: list[Obj]) -> set[str]:
    """`plural.version.group` of each resource of a document."""
    return {
        f"{resource['resource']}.{version['version']}.{group['metadata']['name']}"
        for group in groups
        for version in group["versions"]
        for resource in version["resources"]
    }
