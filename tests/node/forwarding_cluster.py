"""An API server before a kubelet, both over real sockets; the kubelet trusts the server's certificate."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
from kubelet_pieces import NODE, Authority, Kubelet, Source, client_context, kubelet

from haru.apiserver.config import AuthenticationOptions, ServerConfig, UserInfo
from haru.apiserver.proxy import KubeletOptions
from haru.apiserver.server import ApiServer
from haru.apiserver.serving import HttpServer, TlsFiles
from haru.storage.sqlite import SqliteStore

TOKENS = {
    "root": UserInfo("root", ("system:masters",)),
    "alice": UserInfo("alice"),
}
ALL = {(verb, name) for verb in ("get", "create") for name in ("proxy", "pods", "stats", "configz")}


class Cluster:
    """An API server and a kubelet behind it; requests come from `session`."""

    def __init__(self, node: Kubelet, url: str, authority: Path, session: aiohttp.ClientSession) -> None:
        self.node, self.url, self.authority, self.session = node, url, authority, session

    async def ask(
        self, method: str, path: str, user: str = "root", body: Any = None, **headers: str
    ) -> tuple[int, Any]:
        given = {"Authorization": f"Bearer {user}", "Accept": "application/json", **headers}
        async with self.session.request(method, path, json=body, headers=given) as answer:
            text = await answer.text()
            return answer.status, json.loads(text) if "json" in answer.headers.get("Content-Type", "") else text

    async def create(self, path: str, obj: dict[str, Any]) -> None:
        status, said = await self.ask("POST", path, body=obj)
        assert status == 201, said


def node_object(name: str, port: int) -> dict[str, Any]:
    status: dict[str, Any] = {"addresses": [{"type": "InternalIP", "address": "127.0.0.1"}]}
    if port:
        status["daemonEndpoints"] = {"kubeletEndpoint": {"Port": port}}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": status}


def pod_object(name: str, node: str = NODE) -> dict[str, Any]:
    containers = [{"name": each, "image": "x"} for each in ("main", "side")]
    meta = {"name": name, "annotations": {"kubectl.kubernetes.io/default-container": "main"}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {"containers": containers, "nodeName": node}}


@asynccontextmanager
async def cluster(directory: Path, *, source: Source | None = None, **options: Any) -> AsyncGenerator[Cluster, None]:
    async with kubelet(directory, source=source) as node:
        shown = node.clients.client("kube-apiserver-kubelet-client")
        node.reviews.grants["kube-apiserver-kubelet-client"] = set(ALL)
        given = KubeletOptions(shown[0].read_bytes(), shown[1].read_bytes(), node.servers.file.read_bytes(), **options)
        store = SqliteStore(":memory:")
        await store.start()
        app = ApiServer(ServerConfig(store, authentication=AuthenticationOptions(tokens=TOKENS), kubelets=given))
        await app.start()
        own = Authority(directory / "api", "api")
        certificate, key = own.server()
        listener = HttpServer(app, tls=TlsFiles(certificate, key))
        await listener.start()
        connector = aiohttp.TCPConnector(ssl=client_context(own.file))
        try:
            async with aiohttp.ClientSession(listener.url, connector=connector) as session:
                made = Cluster(node, listener.url, own.file, session)
                for name, port in ((NODE, node.server.port), ("simulated", 0)):
                    await made.create("/api/v1/nodes", node_object(name, port))
                    path = f"/api/v1/nodes/{name}/status"
                    status, _ = await made.ask("PUT", path, body=node_object(name, port))
                    assert status == 200
                yield made
        finally:
            await listener.stop()
            await app.stop()
            await store.stop()
