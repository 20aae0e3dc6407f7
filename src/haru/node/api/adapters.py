"""The kubelet API of a running agent: its pods, its runtime's streams, its machine's figures."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

from haru.client.api import ApiClient
from haru.event_loop import cancelled
from haru.kube.meta import Obj
from haru.node.agent.agent import Agent
from haru.node.agent.context import Context
from haru.node.agent.machine import own_address
from haru.node.agent.node_status import KUBELET_VERSION
from haru.node.agent.options import EvictionOptions, NodeOptions
from haru.node.api.handlers import KubeletSources
from haru.node.api.kubelet import KubeletServer, ServedNode
from haru.node.api.options import ServerOptions
from haru.node.api.runtime_streams import RuntimeStreams
from haru.node.api.sources import ContainerRef, LogOptions, StreamOptions, StreamRequest
from haru.node.cri.errors import CriError
from haru.node.podworker.observed import CONTAINER_NAME, POD_NAME, POD_NAMESPACE, POD_UID
from haru.node.stats.kubelet.collector import Collector
from haru.node.stats.kubelet.runtime_stats import RuntimeStats
from haru.proto import cri_pb2 as cri
from haru.secure_serving.http import HttpError
from haru.upgrade_proxy import UpgradeResponse

_STUCK_SECONDS = 180.0
_LOOK_SECONDS = 0.1
_EVERY = "node"


class AgentView:
    """`Pods`, `Logs`, `Streams` and `Statistics` of an agent, which may not have begun yet."""

    def __init__(self, options: NodeOptions) -> None:
        self._options = options
        self.agent: Agent | None = None
        self._collector: Collector | None = None

    # -- pods ---------------------------------------------------------------------------------------------------------

    def all(self) -> Sequence[Obj]:
        """All that are bound to the node, with their status, as the API has them."""
        pods = self.agent.pods if self.agent is not None else None
        if pods is None:
            return []
        pods.add_index(_EVERY, lambda pod: (_EVERY,))
        return [{"apiVersion": "v1", "kind": "Pod", **pod} for pod in pods.by_index(_EVERY, _EVERY)]

    def find(self, namespace: str, name: str) -> Obj | None:
        """One of them."""
        pods = self.agent.pods if self.agent is not None else None
        return pods.get(name, namespace) if pods is not None else None

    async def running(self) -> Sequence[Obj]:
        """Pods that run in the runtime. Raises OSError."""
        runtime = self._context().runtime
        try:
            sandboxes, containers = await asyncio.gather(runtime.sandboxes(), runtime.containers())
        except CriError as error:
            raise OSError(str(error)) from error
        found: dict[str, Obj] = {}
        for one in sandboxes:
            uid = one.labels.get(POD_UID, "")
            if one.state == cri.SANDBOX_READY and uid:
                meta = {
                    "name": one.labels.get(POD_NAME, ""),
                    "namespace": one.labels.get(POD_NAMESPACE, ""),
                    "uid": uid,
                }
                found[uid] = {"metadata": meta, "spec": {"containers": []}, "status": {}}
        for container in containers:
            pod = found.get(container.labels.get(POD_UID, ""))
            if pod is not None and container.state == cri.CONTAINER_RUNNING:
                name = container.labels.get(CONTAINER_NAME, "")
                pod["spec"]["containers"].append({"name": name, "image": container.image.image, "resources": {}})
        return list(found.values())

    # -- logs and ways into containers --------------------------------------------------------------------------------

    async def read(self, pod: Obj, container: str, options: LogOptions) -> AsyncGenerator[bytes, None]:
        """A container's log. Raises `HttpError`."""
        return await self._streams().read(pod, container, options)

    async def open_exec(self, container: ContainerRef, options: StreamOptions, asked: StreamRequest) -> UpgradeResponse:
        """A command in a container. Raises `HttpError`, OSError."""
        return await self._streams().open_exec(container, options, asked)

    async def open_attach(
        self, container: ContainerRef, options: StreamOptions, asked: StreamRequest
    ) -> UpgradeResponse:
        """A container's own process. Raises `HttpError`, OSError."""
        return await self._streams().open_attach(container, options, asked)

    async def open_ports(self, container: ContainerRef, ports: Sequence[int], asked: StreamRequest) -> UpgradeResponse:
        """Ports of a pod. Raises `HttpError`, OSError."""
        return await self._streams().open_ports(container, ports, asked)

    async def run(self, container: ContainerRef, command: Sequence[str]) -> bytes:
        """Run a command and return its output. Raises `HttpError`, OSError."""
        return await self._streams().run(container, command)

    async def checkpoint(self, container: ContainerRef, seconds: int) -> str:
        """A container's state as a file. Raises `HttpError`, OSError."""
        return await self._streams().checkpoint(container, seconds)

    # -- figures ------------------------------------------------------------------------------------------------------

    def summary(self, only_cpu_and_memory: bool = False) -> Obj:
        """The Summary API's object."""
        return self._figures().summary(only_cpu_and_memory)

    def cadvisor(self) -> str:
        """The exposition of /metrics/cadvisor."""
        return self._figures().cadvisor()

    def resource(self) -> str:
        """The exposition of /metrics/resource."""
        return self._figures().resource()

    def probes(self) -> str:
        """The exposition of /metrics/probes."""
        context = self.agent.context if self.agent is not None else None
        return context.handler_runner.counts.text() if context is not None else ""

    async def measure(self) -> None:
        """Measure at the interval, from when the agent has begun until cancelled."""
        while self.agent is None or self.agent.context is None or self.agent.pods is None:  # noqa: ASYNC110
            await asyncio.sleep(_LOOK_SECONDS)  # the agent asks its runtime first
        context, options = self.agent.context, self._options
        self._collector = Collector(options.name, context.host_paths(), self.all, RuntimeStats(context.runtime).uses)
        await self._collector.run()

    def of_devices(self) -> Sequence[str]:
        """The lines of /metrics about devices."""
        return self.agent.devices.lines() if self.agent is not None else ()

    def of_evictions(self) -> Sequence[str]:
        """The lines of /metrics about evicted pods."""
        evictions = self.agent.evictions if self.agent is not None else None
        return evictions.lines() if evictions is not None else ()

    def health_problem(self) -> str:
        """Why the agent's main loop is unhealthy; empty if it is healthy."""
        agent = self.agent
        if agent is None or not agent.relisted:
            return ""
        late = time.monotonic() - agent.relisted
        return f"the runtime was last looked at {late:.0f} s ago" if late > _STUCK_SECONDS else ""

    def _context(self) -> Context:
        if self.agent is None or self.agent.context is None:
            raise HttpError(503, "the agent has not begun yet")
        return self.agent.context

    def _streams(self) -> RuntimeStreams:
        return RuntimeStreams(self._context().runtime, self._options.root / "checkpoints")

    def _figures(self) -> Collector:
        if self._collector is None:
            raise HttpError(503, "nothing has been measured yet")
        return self._collector


def configuration(node: NodeOptions, server: ServerOptions) -> Obj:
    """KubeletConfiguration's fields, as far as the agent has them."""
    ca = {"clientCAFile": str(server.authentication.client_ca_file)} if server.authentication.client_ca_file else {}
    return {
        "kind": "KubeletConfiguration",
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "address": server.address,
        "port": server.port,
        "healthzPort": max(0, server.healthz_port),
        "healthzBindAddress": server.healthz_address,
        "authentication": {
            "x509": ca,
            "webhook": {
                "enabled": server.authentication.webhook,
                "cacheTTL": f"{server.authentication.cache_seconds:g}s",
            },
            "anonymous": {"enabled": server.authentication.anonymous},
        },
        "authorization": {
            "mode": server.authorization.mode,
            "webhook": {
                "cacheAuthorizedTTL": f"{server.authorization.allowed_seconds:g}s",
                "cacheUnauthorizedTTL": f"{server.authorization.denied_seconds:g}s",
            },
        },
        "enableDebuggingHandlers": server.debugging_handlers,
        "enableSystemLogHandler": server.system_logs,
        "enableSystemLogQuery": False,
        "enableDebugFlagsHandler": server.flags_handler,
        "clusterDomain": node.dns.domain,
        "clusterDNS": list(node.dns.servers),
        "resolvConf": str(node.dns.resolv_conf or ""),
        "cgroupRoot": node.cgroups.root,
        "cgroupsPerQOS": node.cgroups.per_qos,
        "cgroupDriver": node.cgroups.driver,
        "failCgroupV1": node.cgroups.fail_v1,
        "maxPods": node.max_pods,
        "podPidsLimit": node.cgroups.pod_pids_limit or -1,
        "imageGCHighThresholdPercent": node.image_gc.high_percent,
        "imageGCLowThresholdPercent": node.image_gc.low_percent,
        "imageMinimumGCAge": f"{node.image_gc.minimum_age:g}s",
        "imageMaximumGCAge": f"{node.image_gc.maximum_age:g}s",
        **_eviction(node.eviction),
        "systemReserved": dict(node.reserved),
        "containerRuntimeEndpoint": node.endpoint,
        "podLogsDir": str(node.logs),
        "featureGates": {gate.name: node.gates.enabled(gate.name) for gate in node.gates.gates},
    }


def _eviction(options: EvictionOptions) -> Obj:
    hard = [one for one in options.thresholds if not one.grace]
    soft = [one for one in options.thresholds if one.grace]
    minimum = {one.signal: str(one.minimum) for one in options.thresholds if one.minimum is not None}
    return {
        "evictionHard": {one.signal: str(one.value) for one in hard},
        **({"evictionSoft": {one.signal: str(one.value) for one in soft}} if soft else {}),
        **({"evictionSoftGracePeriod": {one.signal: f"{one.grace:g}s" for one in soft}} if soft else {}),
        **({"evictionMinimumReclaim": minimum} if minimum else {}),
        "evictionPressureTransitionPeriod": f"{options.transition_seconds:g}s",
        "evictionMaxPodGracePeriod": round(options.max_pod_grace_seconds),
    }


@contextlib.asynccontextmanager
async def serve(
    client: ApiClient, node: NodeOptions, server: ServerOptions, flags: Mapping[str, Any]
) -> AsyncGenerator[tuple[AgentView, int], None]:
    """Serve the API of an agent that is then given to the view; and the port. Raises OSError, ValueError."""
    view = AgentView(node)
    told = {name: str(value) for name, value in flags.items()}
    shown = KubeletSources(
        view,
        view,
        view,
        view,
        configuration=lambda: configuration(node, server),
        flags=told,
        version=KUBELET_VERSION,
        gates=node.gates,
        health_problem=view.health_problem,
        probes=view.probes,
        more=(view.of_devices, view.of_evictions),
    )
    addresses = list(node.addresses) or [own_address()]
    serving = KubeletServer(ServedNode(node.name, addresses), shown, server, client=client)
    await serving.start()
    measuring = asyncio.create_task(view.measure(), name="figures of the node")
    try:
        yield view, serving.port
    finally:
        await cancelled(measuring)
        await serving.stop()
