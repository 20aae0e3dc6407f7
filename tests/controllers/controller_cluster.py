"""A cluster for controllers: the real API server in this process, and a kubelet that plays along.

Controllers have the identities that they have in `haru up`, and nothing that they ask for may be forbidden.
"""

from __future__ import annotations

import asyncio
import copy
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

import virtual_time
from begun_store import begun
from haru.apiserver.config import AuthenticationOptions, ServerConfig, UserInfo
from haru.apiserver.server import ApiServer
from haru.client.api import ApiClient
from haru.client.informer import Informer
from haru.clock import Clock
from haru.controllers.manager import ControllerManager
from haru.controllers.objects import NAMESPACES, NODES, PODS, SERVICE_ACCOUNTS
from haru.embedded.identity import USERS, controller_user
from haru.kube.errors import StatusError
from haru.kube.gates import FeatureGates
from haru.kube.kinds import Kind
from haru.storage.sqlite import SqliteStore
from waiting import until

Obj = dict[str, Any]
RUNTIME = {"api/all": True}


def service_account_key() -> bytes:
    return ec.generate_private_key(ec.SECP256R1()).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


class Cluster:
    """One API server, a client of it, and controllers that can be started and killed."""

    def __init__(self, server: ApiServer, client: ApiClient, gates: FeatureGates) -> None:
        self.server = server
        self.client = client
        self._own: dict[str, ApiClient] = {}
        self.gates = gates
        self.ahead = timedelta()
        """How far the clock of the controllers is ahead: what they wait for is over at once."""
        self._tasks: list[asyncio.Task[None]] = []

    async def start(
        self, *controllers: str, monotonic: Callable[[], float] | None = None, **options: Any
    ) -> ControllerManager:
        manager = ControllerManager(
            self.client_of("manager"),
            self.gates,
            controllers,
            options=options,
            clock=Clock(self._now, monotonic or self._monotonic),
            clients=self.client_of,
        )
        task = asyncio.create_task(manager.run())
        self._tasks.append(task)
        async with asyncio.timeout(60):
            waiting = asyncio.create_task(manager.wait_started())
            await asyncio.wait([waiting, task], return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                waiting.cancel()
                task.result()
        return manager

    def client_of(self, controller: str) -> ApiClient:
        """The client of a controller, or of their manager."""
        if controller not in self._own:
            manager = USERS["controllers"]
            name, groups = manager if controller == "manager" else controller_user(controller)
            self.server.admit(controller, UserInfo(name, groups))
            self._own[controller] = ApiClient.in_process(self.server, controller, "tests")
        return self._own[controller]

    async def forbidden(self) -> int:
        """How many requests were forbidden, as the metrics count them."""
        _, _, text = await self.client.raw("GET", "/metrics")
        (line,) = [line for line in text.splitlines() if line.startswith(b'authorization_attempts_total{result="no-')]
        return int(line.split()[-1])

    def _now(self) -> datetime:
        return datetime.now(UTC) + self.ahead

    def _monotonic(self) -> float:
        return time.monotonic()

    async def kill(self) -> None:
        """End all controllers at once, wherever they are."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()

    async def play(self, coroutine: Awaitable[None]) -> None:
        self._tasks.append(asyncio.ensure_future(coroutine))

    async def create(self, kind: Kind, obj: Obj, namespace: str = "ns") -> Obj:
        obj = {"apiVersion": kind.api_version, "kind": kind.kind, **copy.deepcopy(obj)}
        return await self.client.create(kind, obj, namespace if kind.namespaced else "")

    async def get(self, kind: Kind, name: str, namespace: str = "ns") -> Obj | None:
        try:
            return await self.client.get(kind, name, namespace if kind.namespaced else "")
        except StatusError as error:
            if error.code == 404:
                return None
            raise

    async def items(self, kind: Kind, namespace: str = "ns", **selectors: str) -> list[Obj]:
        return (await self.client.list(kind, namespace if kind.namespaced else "", **selectors))["items"]

    async def set_spec(self, kind: Kind, name: str, spec: Obj) -> Obj:
        while True:
            live = await self.client.get(kind, name, "ns")
            try:
                return await self.client.update(kind, {**live, "spec": spec})
            except StatusError as error:
                if error.reason != "Conflict":
                    raise

    async def set_status(self, kind: Kind, name: str, status: Obj) -> Obj:
        return await self.client.patch(kind, name, {"status": status}, "ns", subresource="status")

    async def eventually(self, holds: Callable[[], Awaitable[Any]], seconds: float = 60.0) -> Any:
        """The first true answer of `holds`."""
        return await until(holds, seconds=seconds)

    async def always(self, holds: Callable[[], Awaitable[Any]], seconds: float = 0.3) -> None:
        """`holds` stays true for a while."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while loop.time() < deadline:
            assert await holds()
            await asyncio.sleep(0.02)


class Kubelet:
    """Binds every pod to a node and brings it to the phase that `phase_of(pod)` says; deleted pods go at once.

    `Failed 3` is a phase with the exit code of the containers.
    """

    def __init__(
        self, client: ApiClient, phase_of: Callable[[Obj], str] = lambda pod: "Running", node: str = "n1"
    ) -> None:
        self.client, self.phase_of, self.node = client, phase_of, node
        self.pods = Informer(client, PODS)
        self.changed = asyncio.Event()
        self.pods.add_handler(self._note, lambda _, new: self._note(new), self._note)

    def _note(self, _: Obj) -> None:
        self.changed.set()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self.pods.run())
            while True:
                await self.changed.wait()
                self.changed.clear()
                for pod in list(self.pods.store.values()):
                    try:
                        await self._play(pod)
                    except StatusError as error:
                        if error.code not in (404, 409):
                            raise

    async def _play(self, pod: Obj) -> None:
        metadata = pod["metadata"]
        name, namespace = metadata["name"], metadata["namespace"]
        phase = (pod.get("status") or {}).get("phase") or "Pending"
        if metadata.get("deletionTimestamp"):
            if phase in ("Pending", "Running") and metadata.get("finalizers"):
                await self._set(pod, "Failed")
            await self.client.delete(PODS, name, namespace, uid=metadata["uid"], grace_period_seconds=0)
        elif not pod["spec"].get("nodeName"):
            binding = {
                "apiVersion": "v1",
                "kind": "Binding",
                "metadata": {"name": name, "namespace": namespace},
                "target": {"kind": "Node", "name": self.node},
            }
            await self.client.create_subresource(PODS, name, "binding", binding, namespace)
        elif phase not in ("Succeeded", "Failed") and (wanted := self.phase_of(pod)).partition(" ")[0] != phase:
            await self._set(pod, wanted)

    async def _set(self, pod: Obj, wanted: str) -> None:
        phase, _, code = wanted.partition(" ")
        ready = "True" if phase == "Running" else "False"
        condition = {"type": "Ready", "status": ready, "lastTransitionTime": "2026-01-01T00:00:00Z"}
        metadata = pod["metadata"]
        body: Obj = {"status": {"phase": phase, "conditions": [condition]}}
        if code:
            ended = {"terminated": {"exitCode": int(code), "finishedAt": "2026-01-01T00:00:00Z"}}
            names = [container["name"] for container in pod["spec"]["containers"]]
            known = {"ready": False, "restartCount": 0, "image": "i", "imageID": ""}
            body["status"]["containerStatuses"] = [{**known, "name": name, "state": ended} for name in names]
        await self.client.patch(
            PODS, metadata["name"], body, metadata["namespace"], type="strategic", subresource="status"
        )


def pod_body(name: str = "", **spec: Any) -> Obj:
    metadata = {"name": name} if name else {}
    return {"metadata": metadata, "spec": {"containers": [{"name": "c", "image": "i"}], **spec}}


def template(labels: dict[str, str], **spec: Any) -> Obj:
    return {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}], **spec}}


class VirtualCluster(Cluster):
    """A cluster whose time is that of the running virtual-time loop."""

    def _now(self) -> datetime:
        return virtual_time.now() + self.ahead

    def _monotonic(self) -> float:
        return asyncio.get_running_loop().time()


V = TypeVar("V", bound=Cluster)


def in_virtual_time(scenario: Callable[[Any], Awaitable[None]], kind: type[Cluster] = VirtualCluster) -> None:
    """Run a scenario on a cluster of its own; hours of waiting cost nothing."""

    async def run() -> None:
        store = SqliteStore(":memory:", clock=asyncio.get_running_loop().time)
        async with started(kind, store, clock=virtual_time.now) as cluster:
            await scenario(cluster)

    virtual_time.run(run())


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with started(Cluster, SqliteStore(":memory:")) as cluster:
        yield cluster


@asynccontextmanager
async def started(
    kind: type[V],
    store: SqliteStore,
    gates: FeatureGates | None = None,
    runtime: dict[str, bool] = RUNTIME,
    **config: Any,
) -> AsyncIterator[V]:
    """A cluster with a namespace and a node; nothing that a controller asked for was forbidden."""
    gates = gates or FeatureGates.accelerator_defaults()
    tokens = {"admin": UserInfo("admin", ("system:masters",))}
    authentication = AuthenticationOptions(tokens=tokens, service_account_key_pem=service_account_key())
    settings = ServerConfig(store=store, gates=gates, runtime_config=runtime, authentication=authentication, **config)
    if config or store.revision > 1:
        server = ApiServer(settings)
        await server.start()
    else:
        server = await begun(settings, store)
    cluster = kind(server, ApiClient.in_process(server, "admin", "tests"), gates)
    await cluster.create(NAMESPACES, {"metadata": {"name": "ns"}})
    await cluster.create(SERVICE_ACCOUNTS, {"metadata": {"name": "default"}})
    await cluster.create(NODES, {"metadata": {"name": "n1"}})
    try:
        yield cluster
    finally:
        await cluster.kill()
        assert await cluster.forbidden() == 0
        await server.stop()
