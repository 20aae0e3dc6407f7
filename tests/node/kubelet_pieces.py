"""A kubelet API over real sockets with certificates of its own, and an API server's reviews that a test decides."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp

from haru.apiserver.auth import Pair, client_pair, new_authority, server_pair
from haru.kube.kinds import Kind
from haru.node.api.handlers import KubeletSources
from haru.node.api.kubelet import KubeletServer, ServedNode
from haru.node.api.log_files import read_log
from haru.node.api.options import AuthenticationOptions, ServerOptions
from haru.node.api.sources import ContainerRef, LogOptions, StreamOptions, StreamRequest
from haru.secure_serving.http import HttpError
from haru.secure_serving.reviews import TOKENS, ReviewFailed
from haru.upgrade_proxy import UpgradeRequest, UpgradeResponse, Upstream, open_upgrade

POD: dict[str, Any] = {
    "metadata": {"name": "web", "namespace": "default", "uid": "u-1"},
    "spec": {"containers": [{"name": "main"}, {"name": "side"}], "nodeName": "node-1"},
    "status": {"phase": "Running"},
}
NODE = "node-1"


class Reviews:
    """What the API server says: `tokens` by token, `grants` by user as (verb, subresource)."""

    def __init__(self) -> None:
        self.tokens: dict[str, str] = {}
        self.grants: dict[str, set[tuple[str, str]]] = {}
        self.asked: list[dict[str, Any]] = []
        self.down = False

    async def review(self, kind: Kind, spec: dict[str, Any]) -> dict[str, Any]:
        self.asked.append(spec)
        if self.down:
            raise ReviewFailed(f"{kind.kind}: connection refused")
        if kind is TOKENS:
            name = self.tokens.get(spec["token"])
            return {"authenticated": name is not None, "user": {"username": name or ""}}
        wanted = spec["resourceAttributes"]
        return {"allowed": (wanted["verb"], wanted["subresource"]) in self.grants.get(spec["user"], set())}


class Source:
    """Pods, figures, logs in `directory`, and a streaming server at `stream_port`."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.stream_port = 0
        self.running_now = True
        self.opened: list[tuple[str, Any, StreamRequest]] = []

    def all(self) -> Sequence[dict[str, Any]]:
        return [POD]

    def find(self, namespace: str, name: str) -> dict[str, Any] | None:
        return POD if (namespace, name) == ("default", "web") else None

    async def running(self) -> Sequence[dict[str, Any]]:
        return [POD]

    def summary(self, only_cpu_and_memory: bool = False) -> dict[str, Any]:
        return {"node": {"nodeName": NODE}, "pods": [], "only": only_cpu_and_memory}

    def cadvisor(self) -> str:
        return "# cadvisor\n"

    def resource(self) -> str:
        return "# resource\n"

    def log(self, container: str) -> Path:
        return self.directory / f"{container}.log"

    async def read(self, pod: dict[str, Any], container: str, options: LogOptions) -> AsyncGenerator[bytes, None]:
        if not self.log(container).exists():
            raise HttpError(400, f'container "{container}" in pod "web" is waiting to start: ContainerCreating')

        async def is_running() -> bool:
            return self.running_now

        return read_log(self.log(container), options, is_running)

    async def open_exec(self, container: ContainerRef, options: StreamOptions, asked: StreamRequest) -> UpgradeResponse:
        return await self._open("exec", options, asked)

    async def open_attach(
        self, container: ContainerRef, options: StreamOptions, asked: StreamRequest
    ) -> UpgradeResponse:
        return await self._open("attach", options, asked)

    async def open_ports(self, container: ContainerRef, ports: Sequence[int], asked: StreamRequest) -> UpgradeResponse:
        return await self._open("portForward", list(ports), asked)

    async def _open(self, kind: str, options: Any, asked: StreamRequest) -> UpgradeResponse:
        self.opened.append((kind, options, asked))
        headers = [("host", "runtime"), *asked.headers]
        upstream = Upstream("127.0.0.1", self.stream_port)
        return await open_upgrade(upstream, UpgradeRequest(asked.method, "/stream", headers))

    async def run(self, container: ContainerRef, command: Sequence[str]) -> bytes:
        return " ".join(command).encode()

    async def checkpoint(self, container: ContainerRef, seconds: int) -> str:
        return "/checkpoints/one.tar"


class Authority:
    """An authority and what it signs, as files of a directory."""

    def __init__(self, directory: Path, name: str = "haru") -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self._pair = new_authority(datetime.now(UTC), name)
        self.file = self.write("ca", self._pair)[0]

    def write(self, name: str, pair: Pair) -> tuple[Path, Path]:
        files = self.directory / f"{name}.crt", self.directory / f"{name}.key"
        for file, data in zip(files, (pair.certificate, pair.key), strict=True):
            new = file.with_suffix(".new")
            new.write_bytes(data)
            new.replace(file)
        return files

    def server(self, name: str = "server") -> tuple[Path, Path]:
        return self.write(name, server_pair(self._pair, [NODE], datetime.now(UTC)))

    def client(self, user: str, *groups: str) -> tuple[Path, Path]:
        return self.write(f"client-{user}", client_pair(self._pair, user, groups, datetime.now(UTC)))


def client_context(authority: Path, certificate: tuple[Path, Path] | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(authority))
    if certificate is not None:
        context.load_cert_chain(*certificate)
    return context


class Kubelet:
    """A started kubelet API."""

    def __init__(self, directory: Path, source: Source | None = None, **options: Any) -> None:
        self.reviews = Reviews()
        self.source = source or Source(directory)
        self.servers, self.clients = Authority(directory / "servers"), Authority(directory / "clients")
        self.certificate = self.servers.server()
        (directory / "log").mkdir()
        given: dict[str, Any] = {
            "address": "127.0.0.1",
            "port": 0,
            "healthz_port": 0,
            "cert_file": self.certificate[0],
            "key_file": self.certificate[1],
            "authentication": AuthenticationOptions(self.clients.file),
            "node_logs": directory / "log",
            "certificate_check_seconds": 0.05,
            **options,
        }
        source = self.source
        shown = KubeletSources(source, source, source, source, configuration=lambda: {"port": 10250}, flags={"v": "2"})
        self.shown = shown
        self.server = KubeletServer(
            ServedNode(NODE, ["127.0.0.1"]), shown, ServerOptions(**given), client=None, reviewer=self.reviews
        )

    def grant(self, user: str, *rights: tuple[str, str]) -> dict[str, str]:
        """A token's headers of a user who may do so much."""
        self.reviews.tokens[f"token-{user}"] = user
        self.reviews.grants[user] = set(rights)
        return {"Authorization": f"Bearer token-{user}"}

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.server.port}"

    @asynccontextmanager
    async def session(
        self, certificate: tuple[Path, Path] | None = None, authority: Path | None = None
    ) -> AsyncGenerator[aiohttp.ClientSession, None]:
        connector = aiohttp.TCPConnector(ssl=client_context(authority or self.servers.file, certificate))
        async with aiohttp.ClientSession(self.url, connector=connector) as session:
            yield session
        await asyncio.sleep(0)


@asynccontextmanager
async def kubelet(directory: Path, **options: Any) -> AsyncGenerator[Kubelet, None]:
    made = Kubelet(directory, **options)
    await made.server.start()
    try:
        yield made
    finally:
        await made.server.stop()
