"""A scheduler on the real API server, in virtual time; nodes, devices and pods are written by hand."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

import virtual_time
from faulty_api import FaultyApi
from haru.client.api import ApiClient
from haru.client.discovery import adapt_to_server
from haru.client.event_series import SeriesRecorder
from haru.engine import SchedulerCache
from haru.gangs import ADAPTERS
from haru.kube.errors import StatusError
from haru.kube.gates import FeatureGates
from haru.kube.kinds import Kind, known_kind
from haru.kube.names import format_time
from haru.scheduler.config import scheduler_config
from haru.scheduler.configuration import Configuration
from haru.scheduler.queue.scheduling_queue import QueuedUnit, SchedulingQueue
from haru.scheduler.scheduler import Scheduler
from haru.scheduler.settings import COMPATIBLE, Fairness, PublishedNames
from haru.scheduler.shared import SchedulerState
from virtual_server import started_server

Obj = dict[str, Any]
NS = "default"
DRIVER = "test.example.com"


PODS, NODES, EVENTS = known_kind("v1", "Pod"), known_kind("v1", "Node"), known_kind("v1", "Event")
CLAIMS, SLICES = known_kind("resource.k8s.io/v1", "ResourceClaim"), known_kind("resource.k8s.io/v1", "ResourceSlice")
CLASSES = known_kind("resource.k8s.io/v1", "DeviceClass")
GROUPS = known_kind("scheduling.k8s.io/v1alpha2", "PodGroup")
_BASE = (("v1", "Namespace", NS), ("v1", "Namespace", "kube-system"), ("v1", "ServiceAccount", "default"))


def state_of(cluster: SchedulerCache) -> SchedulerState:
    """The state of a scheduler with this cache, for one part of it."""
    config = scheduler_config(FeatureGates.accelerator_defaults(), ["default-scheduler"])
    return SchedulerState(config, cluster, SchedulingQueue())


class Bench:
    """`faulty` stands between the scheduler and the API; it does nothing until it is told to."""

    def __init__(self, *names: str) -> None:
        self.names = names or ("default-scheduler",)
        self.gates = FeatureGates.accelerator_defaults()
        self.runtime_config = {"api/all": True}
        self.configuration: Configuration | None = None
        self.fairness = COMPATIBLE
        self.publish: PublishedNames = "off"
        self.way: Any = None
        """How the scheduler reaches the API, if not through `faulty` alone."""

    async def start(self) -> None:
        self.server = await started_server(self.gates, self.runtime_config)
        self.faulty = FaultyApi(self.server, random.Random(1), 0.0)
        self.api = ApiClient.in_process(self.server, "admin")
        await adapt_to_server(self.api)
        for api_version, name, named in _BASE:
            try:
                await self.create(known_kind(api_version, name), {"metadata": {"name": named}})
            except StatusError as error:
                assert error.code == 409
        if self.api.version.serves(CLASSES):
            await self.create(CLASSES, {"metadata": {"name": "gpu"}, "spec": {}})
        await self.start_scheduler()

    async def start_scheduler(self) -> None:
        monotonic = asyncio.get_running_loop().time
        config = scheduler_config(
            self.scheduler_gates(),
            self.names,
            configuration=self.configuration,
            fairness=self.fairness,
            gang_adapters=self.adapters(),
            publish_explanations=self.publish,
            explain_inline=True,
            clock=virtual_time.now,
            monotonic=monotonic,
        )
        recorder = SeriesRecorder(self.api, self.names[0], now=virtual_time.now, monotonic=monotonic)
        self.scheduler = Scheduler(ApiClient.in_process(self.way or self.faulty, "admin"), config, recorder)
        self.task = asyncio.create_task(self.scheduler.run())
        await self.scheduler.ready.wait()

    def scheduler_gates(self) -> FeatureGates:
        """The gates that the scheduler is given: by default those of the server."""
        return self.gates

    def adapters(self) -> frozenset[str]:
        """The projects whose gangs the scheduler knows."""
        return frozenset(ADAPTERS)

    async def kill(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)

    async def stop(self) -> None:
        await self.kill()
        await self.server.stop()

    # -- writing ------------------------------------------------------------------------------------------------------

    async def create(self, of: Kind, obj: Obj) -> Obj:
        body = {"apiVersion": of.api_version, "kind": of.kind, **obj}
        return await self.api.create(of, body, NS if of.namespaced else "")

    async def node(self, name: str = "n1", cpu: int = 4, gpus: int = 0, **spec: Any) -> None:
        labels = {"kubernetes.io/hostname": name}
        await self.create(NODES, {"metadata": {"name": name, "labels": labels}, "spec": spec})
        # Admission taints new nodes; the kubelet that would report readiness is not here.
        await self.api.patch(NODES, name, {"spec": {"taints": spec.get("taints")}})
        await self.size(name, cpu)
        if gpus:
            await self.devices(name, gpus)

    async def size(self, name: str, cpu: int) -> None:
        amounts = {"cpu": str(cpu), "memory": "16Gi", "pods": "30"}
        await self.api.patch(
            NODES, name, {"status": {"capacity": amounts, "allocatable": amounts}}, "", "merge", "status"
        )

    async def devices(self, node: str, count: int) -> None:
        pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
        devices = [{"name": f"gpu-{i}"} for i in range(count)]
        spec = {"driver": DRIVER, "pool": pool, "nodeName": node, "devices": devices}
        await self.create(SLICES, {"metadata": {"name": f"slice-{node}"}, "spec": spec})

    async def pod(self, name: str = "p", cpu: str = "1", group: str = "", claim: str = "", **spec: Any) -> Obj:
        container: Obj = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
        if group:
            spec["schedulingGroup"] = {"podGroupName": group}
        if claim:
            spec["resourceClaims"] = [{"name": "gpu", "resourceClaimName": claim}]
        return await self.create(PODS, {"metadata": {"name": name}, "spec": {"containers": [container], **spec}})

    async def claim(self, name: str, device_class: str = "gpu", count: int = 1) -> Obj:
        request = {"name": "r", "exactly": {"deviceClassName": device_class, "count": count}}
        return await self.create(CLAIMS, {"metadata": {"name": name}, "spec": {"devices": {"requests": [request]}}})

    async def reserve(self, claim: str, pod: Obj, node: str = "n1") -> None:
        """As a scheduler did that died before it bound the pod."""
        result = {"request": "r", "driver": DRIVER, "pool": node, "device": "gpu-0"}
        field = {"key": "metadata.name", "operator": "In", "values": [node]}
        allocation = {
            "devices": {"results": [result]},
            "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]},
        }
        user = {"resource": "pods", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}
        status = {"allocation": allocation, "reservedFor": [user]}
        await self.api.patch(CLAIMS, claim, {"status": status}, NS, "merge", "status")

    async def gang(self, name: str, minimum: int, **more: Any) -> Obj:
        spec = {"schedulingPolicy": {"gang": {"minCount": minimum}}, **more}
        return await self.create(GROUPS, {"metadata": {"name": name}, "spec": spec})

    async def delete(self, name: str) -> None:
        await self.api.delete(PODS, name, NS, grace_period_seconds=0)

    async def started(self, *names: str) -> None:
        """As the kubelet would say of pods that are bound."""
        await self.eventually_bound(*names)
        for name in names:
            status = {"phase": "Running", "startTime": format_time(virtual_time.now())}
            await self.api.patch(PODS, name, {"status": status}, NS, "merge", "status")

    # -- asking -------------------------------------------------------------------------------------------------------

    async def node_of(self, name: str) -> str:
        return str((await self.api.get(PODS, name, NS))["spec"].get("nodeName") or "")

    async def condition(self, of: Kind, name: str, type_: str) -> Obj:
        obj = await self.api.get(of, name, NS)
        found = [c for c in (obj.get("status") or {}).get("conditions") or () if c["type"] == type_]
        return found[0] if found else {}

    async def allocation(self, name: str) -> Obj:
        return ((await self.api.get(CLAIMS, name, NS)).get("status") or {}).get("allocation") or {}

    async def eventually_bound(self, *names: str, seconds: float = 15.0) -> None:
        """Within the longest backoff, and long before the queue is flushed after five minutes."""
        deadline = asyncio.get_running_loop().time() + seconds
        while not all([await self.node_of(name) for name in names]):
            assert asyncio.get_running_loop().time() < deadline, f"{names} are not bound within {seconds} s"
            await asyncio.sleep(0.05)

    def queued(self, name: str) -> QueuedUnit:
        """A pod's unit in the queue."""
        return self.scheduler.queue.units["pod", NS, name]

    def metric(self, text: str) -> float:
        """The value of one line of the metrics; 0 if it is not there."""
        lines = self.scheduler.metrics.text().decode().splitlines()
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(text))


def play(
    work: Callable[[Bench], Awaitable[None]],
    *names: str,
    configuration: Configuration | None = None,
    fairness: Fairness = COMPATIBLE,
    bench: Bench | None = None,
) -> None:
    """Runs a scenario on a new bench (or on the given one), in virtual time."""
    bench = bench or Bench(*names)

    async def run() -> None:
        bench.configuration = configuration
        bench.fairness = fairness
        await bench.start()
        try:
            await work(bench)
            assert not bench.task.done()
        finally:
            await bench.stop()

    virtual_time.run(run())
