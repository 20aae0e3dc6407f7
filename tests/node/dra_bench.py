"""A node with an API server, a kubelet's directory and claims that are allocated by hand."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from haru.apiserver.config import AuthenticationOptions, ServerConfig, UserInfo
from haru.apiserver.server import ApiServer
from haru.client.api import ApiClient
from haru.drivers.library import DriverOptions, DriverServer, Plugin, Pool
from haru.kube.gates import FeatureGates
from haru.kube.kinds import known_kind
from haru.node.dra import DeviceOptions, NodeDevices
from haru.storage.sqlite import SqliteStore
from waiting import until

Obj = dict[str, Any]
CLAIMS = known_kind("resource.k8s.io/v1", "ResourceClaim")
SLICES = known_kind("resource.k8s.io/v1", "ResourceSlice")
NODES = known_kind("v1", "Node")
NAMESPACES = known_kind("v1", "Namespace")
NODE = "node-a"
DRIVER = "cards.example.com"


def device(name: str, **attributes: str) -> Obj:
    """A device of a slice."""
    return {"name": name, "attributes": {key: {"string": value} for key, value in attributes.items()}}


def result(name: str, request: str = "gpu", driver: str = DRIVER, pool: str = NODE, **more: Any) -> Obj:
    """An entry of an allocation."""
    return {"request": request, "driver": driver, "pool": pool, "device": name, **more}


def pod(name: str, *claims: str, request: str = "", uid: str = "") -> Obj:
    """A pod bound to the node, whose one container uses all its claims."""
    used = [{"name": f"c{n}", **({"request": request} if request else {})} for n in range(len(claims))]
    return {
        "metadata": {"name": name, "namespace": "default", "uid": uid or str(uuid.uuid4())},
        "spec": {
            "nodeName": NODE,
            "resourceClaims": [{"name": f"c{n}", "resourceClaimName": claim} for n, claim in enumerate(claims)],
            "containers": [{"name": "main", "image": "x", "resources": {"claims": used}}],
        },
        "status": {"phase": "Pending"},
    }


class Bench:
    """The API of one test, and a short-named directory that stands for /var/lib/kubelet and /var/run/cdi."""

    def __init__(self, server: ApiServer, api: ApiClient, root: Path) -> None:
        self.server, self.api, self.root = server, api, root
        self.kubelet, self.cdi = root / "k", root / "cdi"
        self.node: Obj = {}
        self.pods: list[Obj] = []

    async def claim(
        self, name: str, *results: Obj, pods: Sequence[Obj] = (), config: Sequence[Obj] = (), **metadata: Any
    ) -> Obj:
        """An allocated claim, reserved for pods."""
        names = dict.fromkeys(one["request"].partition("/")[0] for one in results)
        subs = {one["request"].partition("/")[0]: one["request"].partition("/")[2] for one in results}
        wanted = []
        for request in names:
            inner: Obj = {"deviceClassName": "cards"}
            if subs[request]:
                wanted.append({"name": request, "firstAvailable": [{"name": subs[request], **inner}]})
            else:
                wanted.append({"name": request, "exactly": inner})
        meta = {"name": name, "namespace": "default", **metadata}
        made = await self.api.create(CLAIMS, {"metadata": meta, "spec": {"devices": {"requests": wanted}}})
        return await self.allocate(made, *results, pods=pods, config=config)

    async def unallocated(self, name: str) -> Obj:
        """A claim that nothing was given to."""
        requests = [{"name": "gpu", "exactly": {"deviceClassName": "cards"}}]
        meta = {"name": name, "namespace": "default"}
        return await self.api.create(CLAIMS, {"metadata": meta, "spec": {"devices": {"requests": requests}}})

    async def allocate(
        self, claim: Obj, *results: Obj, pods: Sequence[Obj] = (), config: Sequence[Obj] = (), node: str = NODE
    ) -> Obj:
        """Write an allocation, as the scheduler does."""
        selector = {
            "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}]
        }
        allocation: Obj = {"devices": {"results": list(results)}, "nodeSelector": selector}
        if config:
            allocation["devices"]["config"] = list(config)
        claim["status"] = {"allocation": allocation, "reservedFor": [reserved(one) for one in pods]}
        return await self.api.update_status(CLAIMS, claim)

    async def reserve(self, name: str, *pods: Obj) -> Obj:
        """Reserve a claim for these pods, and nobody else."""
        claim = await self.api.get(CLAIMS, name, "default")
        claim["status"]["reservedFor"] = [reserved(one) for one in pods]
        return await self.api.update_status(CLAIMS, claim)

    def options(self, name: str = DRIVER, **more: Any) -> DriverOptions:
        """What a driver of this node is told."""
        uid = self.node["metadata"]["uid"]
        return DriverOptions(name, NODE, uid, self.kubelet, self.cdi, **more)

    @asynccontextmanager
    async def driver(
        self, plugin: Plugin, names: Sequence[str] = ("gpu-0", "gpu-1"), **more: Any
    ) -> AsyncIterator[DriverServer]:
        """A driver of the library, whose slices are published."""
        async with DriverServer(plugin, self.api, self.options(**more)) as server:
            await server.declare({NODE: Pool.of([device(name, model="X") for name in names])})
            await server.wait_published()
            yield server

    def devices(self, **more: Any) -> NodeDevices:
        """The node's side; `load` and `run` are the test's."""
        settings = {"look_seconds": 0.02, "grace_seconds": 30.0, **more}
        return NodeDevices(self.api, self.kubelet, NODE, lambda: self.pods, DeviceOptions(**settings))

    @asynccontextmanager
    async def running(self, *drivers: str, **more: Any) -> AsyncIterator[NodeDevices]:
        """The node's side at work, with these drivers registered."""
        devices = self.devices(**more)
        devices.load()
        task = asyncio.create_task(devices.run())
        try:
            await until(lambda: devices.registry.drivers() >= set(drivers) or task.done(), f"{drivers} registered")
            if task.done():
                await task
            yield devices
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def slices(self) -> list[Obj]:
        """All slices."""
        items: list[Obj] = (await self.api.list(SLICES))["items"]
        return items


def reserved(one: Obj) -> Obj:
    """A pod in `reservedFor`."""
    return {"resource": "pods", "name": one["metadata"]["name"], "uid": one["metadata"]["uid"]}


@asynccontextmanager
async def bench(gates: FeatureGates | None = None) -> AsyncIterator[Bench]:
    """A bench with its Node."""
    server = ApiServer(
        ServerConfig(
            store=SqliteStore(":memory:"),
            gates=gates or FeatureGates.accelerator_defaults(),
            runtime_config={"api/all": True},
            authentication=AuthenticationOptions(tokens={"admin": UserInfo("admin", ("system:masters",))}),
        )
    )
    await server.start()
    # Sockets have short names: a test's own directory would be too long.
    root = Path(tempfile.mkdtemp(prefix="haru-dra-"))
    try:
        made = Bench(server, ApiClient.in_process(server, "admin"), root)
        made.node = await made.api.create(
            NODES, {"metadata": {"name": NODE, "labels": {"kubernetes.io/hostname": NODE}}}
        )
        yield made
    finally:
        await server.stop()
        shutil.rmtree(root, ignore_errors=True)
