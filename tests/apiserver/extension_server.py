"""An extension API server: TLS, client certificates of the front proxy alone, one resource kept in memory.

`wagons` of `trains.example/v1` can be listed, read, created, deleted and watched. Odd paths answer oddly, for tests of
what a server behind the API server may do to it.
"""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from aiohttp import web
from api_caller import Caller

from haru.apiserver.aggregation.options import AggregationOptions
from haru.apiserver.auth import certificates
from haru.apiserver.peers.options import FrontProxyOptions
from waiting import until

Obj = dict[str, Any]
Odd = Callable[[web.Request], Awaitable[web.StreamResponse]]

GROUP, VERSION = "trains.example", "v1"
ROOT = f"/apis/{GROUP}/{VERSION}"
WAGONS = f"{ROOT}/namespaces/default/wagons"
SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"
NAME = f"{VERSION}.{GROUP}"
VERBS = ["create", "delete", "get", "list", "watch"]
RESOURCES = [
    {
        "name": "wagons",
        "singularName": "wagon",
        "namespaced": True,
        "kind": "Wagon",
        "verbs": VERBS,
        "shortNames": ["wg"],
    },
    {"name": "wagons/status", "singularName": "", "namespaced": True, "kind": "Wagon", "verbs": ["get"]},
]


@dataclass(frozen=True)
class Keys:
    """The front proxy's authority and certificate, and the extension server's authority."""

    front: certificates.Pair
    proxy: certificates.Pair
    serving: certificates.Pair

    @staticmethod
    def made() -> Keys:
        now = datetime.now(UTC)
        front = certificates.new_authority(now, "front-proxy")
        return Keys(front, certificates.client_pair(front, "proxy", (), now), certificates.new_authority(now, "trains"))

    def options(self) -> AggregationOptions:
        front = FrontProxyOptions(self.front.certificate, ("proxy",))
        return AggregationOptions(self.proxy.certificate, self.proxy.key, b"", front)

    @property
    def bundle(self) -> str:
        return base64.b64encode(self.serving.certificate).decode()


class ExtensionServer:
    """`asked` are method, path and headers of users' requests; the paths of the API server's own are in `checked`."""

    def __init__(self, directory: Path, keys: Keys, host: str = "trains.default.svc") -> None:
        self._directory, self.keys = directory, keys
        self.asked: list[tuple[str, str, dict[str, str]]] = []
        self.checked: list[str] = []
        self.wagons: dict[str, Obj] = {}
        self.odd: dict[str, Odd] = {}
        self.broken = False
        self.pair = certificates.server_pair(keys.serving, (host,), datetime.now(UTC))
        self._revision = 0
        self._watchers: list[asyncio.Queue[Obj]] = []

    async def start(self) -> None:
        cert, key = self._directory / "extension.crt", self._directory / "extension.key"
        cert.write_bytes(self.pair.certificate)
        key.write_bytes(self.pair.key)
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cadata=self.keys.front.certificate.decode())
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_cert_chain(cert, key)
        app = web.Application()
        app.router.add_route("*", "/{rest:.*}", self._answer)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=context)
        await site.start()
        self.port: int = self._runner.addresses[0][1]

    async def stop(self) -> None:
        await self._runner.cleanup()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        headers = {name.lower(): ", ".join(request.headers.getall(name)) for name in request.headers}
        if headers.get("x-remote-user") == "system:kube-aggregator":
            self.checked.append(request.path)
            if self.broken:
                return web.Response(status=500)
        else:
            self.asked.append((request.method, request.path_qs, headers))
        if odd := self.odd.get(request.path):
            return await odd(request)
        if request.path == ROOT:
            kind = {"kind": "APIResourceList", "apiVersion": "v1"}
            return web.json_response({**kind, "groupVersion": f"{GROUP}/{VERSION}", "resources": RESOURCES})
        if request.path == "/openapi/v3":
            return web.json_response({"paths": {ROOT[1:]: {"serverRelativeURL": f"/openapi/v3{ROOT}?hash=A1"}}})
        if request.path == f"/openapi/v3{ROOT}":
            return web.json_response({"openapi": "3.0.0", "info": {"title": "trains", "version": "1"}, "paths": {}})
        if request.path.startswith(WAGONS):
            return await self._wagons(request)
        return web.json_response({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404}, status=404)

    async def _wagons(self, request: web.Request) -> web.StreamResponse:
        name = request.path.removeprefix(WAGONS).strip("/")
        if request.method == "POST":
            return web.json_response(self._put(await request.json()), status=201)
        if name and name not in self.wagons:
            status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}
            return web.json_response({**status, "message": f'wagons "{name}" not found'}, status=404)
        if request.method == "DELETE":
            gone = self.wagons.pop(name)
            self._tell("DELETED", gone)
            return web.json_response(gone)
        if name:
            return web.json_response(self.wagons[name])
        if request.query.get("watch") in ("1", "true"):
            return await self._watch(request)
        metadata = {"resourceVersion": str(self._revision)}
        listed = {"kind": "WagonList", "apiVersion": f"{GROUP}/{VERSION}", "metadata": metadata}
        return web.json_response({**listed, "items": list(self.wagons.values())})

    def _put(self, wagon: Obj) -> Obj:
        self._revision += 1
        metadata = {**wagon["metadata"], "namespace": "default", "resourceVersion": str(self._revision), "uid": "u"}
        wagon = {**wagon, "metadata": {**metadata, "creationTimestamp": "2026-11-22T00:00:00Z"}}
        self.wagons[metadata["name"]] = wagon
        self._tell("ADDED", wagon)
        return wagon

    def _tell(self, kind: str, wagon: Obj) -> None:
        for queue in self._watchers:
            queue.put_nowait({"type": kind, "object": wagon})

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        queue: asyncio.Queue[Obj] = asyncio.Queue()
        self._watchers.append(queue)
        try:
            await response.prepare(request)
            while True:
                await response.write(json.dumps(await queue.get()).encode() + b"\n")
        finally:
            self._watchers.remove(queue)


def service(name: str = "trains", **spec: Any) -> Obj:
    """A Service without a selector."""
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {"ports": [{"port": 443}], **spec}}


def endpoint_slice(port: int, name: str = "trains", **changes: Any) -> Obj:
    """What somebody has written by hand: it leads to the loopback."""
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": name, "namespace": "default", "labels": {"kubernetes.io/service-name": name}},
        "addressType": "IPv4",
        "endpoints": [{"addresses": ["127.0.0.1"]}],
        "ports": [{"name": "", "port": port, "protocol": "TCP"}],
        **changes,
    }


def api_service(**spec: Any) -> Obj:
    whole = {
        "group": GROUP,
        "version": VERSION,
        "service": {"namespace": "default", "name": "trains"},
        "groupPriorityMinimum": 2000,
        "versionPriority": 10,
        **spec,
    }
    kind = {"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService"}
    return {**kind, "metadata": {"name": NAME}, "spec": whole}


def wagon(name: str) -> Obj:
    return {"apiVersion": f"{GROUP}/{VERSION}", "kind": "Wagon", "metadata": {"name": name}, "spec": {"seats": 4}}


async def told(api: Caller, status: str, reason: str, name: str = NAME) -> str:
    """Wait until the APIService says so; its message."""
    found: list[Obj] = []

    async def is_so() -> bool:
        found[:] = (await api.get(f"{SERVICES}/{name}"))["status"].get("conditions") or []
        return any((each["status"], each["reason"]) == (status, reason) for each in found)

    try:
        await until(is_so)
    except AssertionError:
        raise AssertionError(f"{status} ({reason}) was waited for, there is {found}") from None
    return str(found[0]["message"])


async def register(api: Caller, server: ExtensionServer, keys: Keys, **spec: Any) -> None:
    """Lead to the server, and wait until it can be used."""
    await api.create("/api/v1/namespaces/default/services", service())
    await api.create("/apis/discovery.k8s.io/v1/namespaces/default/endpointslices", endpoint_slice(server.port))
    await api.create(SERVICES, api_service(**{"caBundle": keys.bundle, **spec}))
    await told(api, "True", "Passed")
