"""The PodResources endpoint: monitoring agents ask which container has which device.

Source: KEP-3695, KEP-606; the kubelet's API podresources.v1 and its server, as behaviour.
"""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from haru.drivers.sockets import remove, serve, unary
from haru.kube.meta import name_of, namespace_of
from haru.kube.pod_claims import NotPrepared
from haru.messages import Message, many, one, text, texts, whole, wholes
from haru.node.dra.containers import Find, Use, devices_of, uses_of
from haru.node.dra.metrics import DraMetrics

if TYPE_CHECKING:
    import grpc.aio

Obj = dict[str, Any]
SERVICE: Final = "v1.PodResourcesLister"
SOCKET: Final = Path("pod-resources/kubelet.sock")
"""Below the node's directory."""
RATE: Final = 100.0
BURST: Final = 10


@dataclass(slots=True)
class Empty(Message):
    """ListPodResourcesRequest, AllocatableResourcesRequest."""


@dataclass(slots=True)
class GetRequest(Message):
    """GetPodResourcesRequest."""

    pod_name: str = text(1)
    pod_namespace: str = text(2)


@dataclass(slots=True)
class NumaNode(Message):
    """NUMANode."""

    id: int = whole(1)


@dataclass(slots=True)
class Topology(Message):
    """TopologyInfo."""

    nodes: list[NumaNode] = many(1, lambda: NumaNode)


@dataclass(slots=True)
class ContainerDevices(Message):
    """Devices of a device plugin."""

    resource_name: str = text(1)
    device_ids: list[str] = texts(2)
    topology: Topology | None = one(3, lambda: Topology)


@dataclass(slots=True)
class ContainerMemory(Message):
    """Memory or huge pages of a container; the size in bytes."""

    memory_type: str = text(1)
    size: int = whole(2)
    topology: Topology | None = one(3, lambda: Topology)


@dataclass(slots=True)
class CdiDevice(Message):
    """CDIDevice."""

    name: str = text(1)


@dataclass(slots=True)
class ClaimResource(Message):
    """A device of a claim."""

    cdi_devices: list[CdiDevice] = many(1, lambda: CdiDevice)
    driver_name: str = text(2)
    pool_name: str = text(3)
    device_name: str = text(4)
    share_id: str = text(5)


@dataclass(slots=True)
class DynamicResource(Message):
    """A claim of a container."""

    claim_name: str = text(2)
    claim_namespace: str = text(3)
    claim_resources: list[ClaimResource] = many(4, lambda: ClaimResource)


@dataclass(slots=True)
class ContainerResources(Message):
    """What a container has."""

    name: str = text(1)
    devices: list[ContainerDevices] = many(2, lambda: ContainerDevices)
    cpu_ids: list[int] = wholes(3)
    memory: list[ContainerMemory] = many(4, lambda: ContainerMemory)
    dynamic_resources: list[DynamicResource] = many(5, lambda: DynamicResource)


@dataclass(slots=True)
class PodResources(Message):
    """What a pod has."""

    name: str = text(1)
    namespace: str = text(2)
    containers: list[ContainerResources] = many(3, lambda: ContainerResources)


@dataclass(slots=True)
class ListAnswer(Message):
    """ListPodResourcesResponse."""

    pod_resources: list[PodResources] = many(1, lambda: PodResources)


@dataclass(slots=True)
class GetAnswer(Message):
    """GetPodResourcesResponse."""

    pod_resources: PodResources | None = one(1, lambda: PodResources)


@dataclass(slots=True)
class AllocatableAnswer(Message):
    """AllocatableResourcesResponse: what the node could give, dynamic resources aside."""

    devices: list[ContainerDevices] = many(1, lambda: ContainerDevices)
    cpu_ids: list[int] = wholes(2)
    memory: list[ContainerMemory] = many(3, lambda: ContainerMemory)


def all_cpus() -> AllocatableAnswer:
    """What a node without managers of CPUs, memory and devices can give: the CPUs that this process may use."""
    return AllocatableAnswer(cpu_ids=sorted(os.sched_getaffinity(0)))


def resources_of(pod: Obj, find: Find) -> PodResources:
    """What the containers of a pod have: init containers only if they run beside the others."""
    try:
        uses = uses_of(pod)
    except NotPrepared:
        uses = []
    spec = pod.get("spec") or {}
    sidecars = [c for c in spec.get("initContainers") or () if c.get("restartPolicy") == "Always"]
    containers = [*sidecars, *(spec.get("containers") or ())]
    told = [
        ContainerResources(
            c["name"], dynamic_resources=_dynamic((use for use in uses if use.container == c["name"]), find)
        )
        for c in containers
    ]
    return PodResources(name_of(pod), namespace_of(pod), told)


def _dynamic(uses: Iterable[Use], find: Find) -> list[DynamicResource]:
    by_claim: dict[str, dict[tuple[str, str, str, str], ClaimResource]] = {}
    for use in uses:
        for driver, device in devices_of(use, find):
            ids = [CdiDevice(id_) for id_ in device.cdi_ids]
            resource = ClaimResource(ids, driver, device.pool, device.device, device.share_id)
            by_claim.setdefault(use.key, {})[driver, device.pool, device.device, device.share_id] = resource
    told = []
    for key, resources in by_claim.items():
        namespace, _, name = key.partition("/")
        told.append(DynamicResource(name, namespace, list(resources.values())))
    return told


class Bucket:
    """So many calls at once, and so many a second after that."""

    def __init__(self, rate: float, burst: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._burst, self._clock = rate, burst, clock
        self._left, self._at = float(burst), clock()

    def take(self) -> bool:
        """Whether one more call may be made now."""
        now = self._clock()
        self._left = min(float(self._burst), self._left + (now - self._at) * self._rate)
        self._at = now
        if self._left < 1:
            return False
        self._left -= 1
        return True


class PodResourcesServer:
    """Serves `v1.PodResourcesLister`. `pods()` are those of this node, those that have ended among them."""

    def __init__(
        self,
        pods: Callable[[], Iterable[Obj]],
        find: Find,
        metrics: DraMetrics,
        allocatable: Callable[[], AllocatableAnswer] = all_cpus,
        bucket: Bucket | None = None,
    ) -> None:
        self._pods = pods
        self._find = find
        self._metrics = metrics
        self._allocatable = allocatable
        self._bucket = bucket or Bucket(RATE, BURST)
        self._server: grpc.aio.Server | None = None
        self._path: Path | None = None

    async def open(self, path: Path) -> None:
        """Serve on a socket. Raises `SocketError`."""
        methods = {
            "List": unary(self._counted("list", self._list), Empty),
            "Get": unary(self._counted("get", self._get), GetRequest),
            "GetAllocatableResources": unary(self._counted("get_allocatable", self._get_allocatable), Empty),
        }
        self._path = path
        self._server = await serve(path, {SERVICE: methods}, 0o660)

    async def close(self) -> None:
        """Serve no longer."""
        if self._server is not None and self._path is not None:
            await self._server.stop(1.0)
            remove(self._path)
            self._server = None

    def _counted(self, name: str, handler: Callable[[Any, Any], Awaitable[Message]]) -> Any:
        import grpc

        async def call(request: Any, context: Any) -> Message:
            self._metrics.requests.labels("v1").inc()
            self._metrics.of_method[name].labels("v1").inc()
            try:
                if not self._bucket.take():
                    await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "rejected by rate limit")
                return await handler(request, context)
            except BaseException:
                self._metrics.failures[name].labels("v1").inc()
                raise

        return call

    async def _list(self, _: Empty, __: Any) -> ListAnswer:
        return ListAnswer([resources_of(pod, self._find) for pod in self._pods() if not _has_ended(pod)])

    async def _get(self, request: GetRequest, context: Any) -> GetAnswer:
        import grpc

        wanted = (request.pod_namespace, request.pod_name)
        pod = next((pod for pod in self._pods() if (namespace_of(pod), name_of(pod)) == wanted), None)
        where = f"pod {request.pod_name} in namespace {request.pod_namespace}"
        if pod is None:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"{where} not found")
        elif _has_ended(pod):
            await context.abort(grpc.StatusCode.NOT_FOUND, f"{where} is not active")
        assert pod is not None
        return GetAnswer(resources_of(pod, self._find))

    async def _get_allocatable(self, _: Empty, __: Any) -> AllocatableAnswer:
        return self._allocatable()


def _has_ended(pod: Obj) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")
