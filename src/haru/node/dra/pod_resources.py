"""The PodResources endpoint: monitoring agents ask which container has which device.

Source: KEP-3695, KEP-606; the kubelet's API podresources.v1 and its server, as behaviour.
"""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from google.protobuf.message import Message

from haru.drivers.sockets import remove, serve, unary
from haru.kube.claim_uses import Use, uses_of
from haru.kube.meta import Obj, name_of, namespace_of
from haru.kube.pod_claims import NotPrepared
from haru.node.dra.containers import Find, devices_of
from haru.node.dra.metrics import DraMetrics
from haru.proto import podresources_pb2 as podresources

if TYPE_CHECKING:
    import grpc.aio

SERVICE: Final = "v1.PodResourcesLister"
SOCKET: Final = Path("pod-resources/kubelet.sock")
"""Below the node's directory."""
RATE: Final = 100.0
BURST: Final = 10


def all_cpus() -> podresources.AllocatableResourcesResponse:
    """What a node without managers of CPUs, memory and devices can give: the CPUs that this process may use."""
    return podresources.AllocatableResourcesResponse(cpu_ids=sorted(os.sched_getaffinity(0)))


def resources_of(pod: Obj, find: Find) -> podresources.PodResources:
    """What the containers of a pod have: init containers only if they run beside the others."""
    try:
        uses = uses_of(pod)
    except NotPrepared:
        uses = []
    spec = pod.get("spec") or {}
    sidecars = [c for c in spec.get("initContainers") or () if c.get("restartPolicy") == "Always"]
    containers = [*sidecars, *(spec.get("containers") or ())]
    told = [
        podresources.ContainerResources(
            name=c["name"], dynamic_resources=_dynamic((use for use in uses if use.container == c["name"]), find)
        )
        for c in containers
    ]
    return podresources.PodResources(name=name_of(pod), namespace=namespace_of(pod), containers=told)


def _dynamic(uses: Iterable[Use], find: Find) -> list[podresources.DynamicResource]:
    by_claim: dict[str, dict[tuple[str, str, str, str], podresources.ClaimResource]] = {}
    for use in uses:
        for driver, device in devices_of(use, find):
            resource = podresources.ClaimResource(
                cdi_devices=[podresources.CDIDevice(name=id_) for id_ in device.cdi_ids],
                driver_name=driver,
                pool_name=device.pool,
                device_name=device.device,
                share_id=device.share_id,
            )
            by_claim.setdefault(use.key, {})[driver, device.pool, device.device, device.share_id] = resource
    told = []
    for key, resources in by_claim.items():
        namespace, _, name = key.partition("/")
        told.append(
            podresources.DynamicResource(claim_name=name, claim_namespace=namespace, claim_resources=resources.values())
        )
    return told


class TokenBucket:
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
        allocatable: Callable[[], podresources.AllocatableResourcesResponse] = all_cpus,
        bucket: TokenBucket | None = None,
    ) -> None:
        self._pods = pods
        self._find = find
        self._metrics = metrics
        self._allocatable = allocatable
        self._bucket = bucket or TokenBucket(RATE, BURST)
        self._server: grpc.aio.Server | None = None
        self._path: Path | None = None

    async def open(self, path: Path) -> None:
        """Serve on a socket. Raises `SocketError`."""
        methods = {
            "List": unary(self._counted("list", self._list), podresources.ListPodResourcesRequest),
            "Get": unary(self._counted("get", self._get), podresources.GetPodResourcesRequest),
            "GetAllocatableResources": unary(
                self._counted("get_allocatable", self._get_allocatable), podresources.AllocatableResourcesRequest
            ),
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

    async def _list(self, _: podresources.ListPodResourcesRequest, __: Any) -> podresources.ListPodResourcesResponse:
        return podresources.ListPodResourcesResponse(
            pod_resources=[resources_of(pod, self._find) for pod in self._pods() if not _has_ended(pod)]
        )

    async def _get(
        self, request: podresources.GetPodResourcesRequest, context: Any
    ) -> podresources.GetPodResourcesResponse:
        import grpc

        wanted = (request.pod_namespace, request.pod_name)
        pod = next((pod for pod in self._pods() if (namespace_of(pod), name_of(pod)) == wanted), None)
        where = f"pod {request.pod_name} in namespace {request.pod_namespace}"
        if pod is None:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"{where} not found")
        elif _has_ended(pod):
            await context.abort(grpc.StatusCode.NOT_FOUND, f"{where} is not active")
        assert pod is not None
        return podresources.GetPodResourcesResponse(pod_resources=resources_of(pod, self._find))

    async def _get_allocatable(
        self, _: podresources.AllocatableResourcesRequest, __: Any
    ) -> podresources.AllocatableResourcesResponse:
        return self._allocatable()


def _has_ended(pod: Obj) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")
