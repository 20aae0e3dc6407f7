"""The node agent: a worker for each pod that was bound to this node, and one for each that only the runtime knows.

Everything that runs was started by somebody: what the runtime has of pods that the API does not know is ended, once the
API has been listened to. The agent may be killed at any time: containers go on, and the next agent finds them by their
labels. Source: the kubelet's main loop and its relisting of the runtime, as behaviour.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from typing import Any

from haru.client.api import ApiClient
from haru.client.events import EventRecorder
from haru.client.informer import Informer, Selection
from haru.errors import HaruError
from haru.kube.kinds import known_kind
from haru.kube.kubelet_admission import KubeletView, admission
from haru.kube.meta import Obj, uid_of
from haru.kube.node_admission import Shortage, shortages_beside
from haru.kube.quantity import parse_quantity
from haru.node.agent.context import Cgroups, Context, RuntimeInfo
from haru.node.agent.evictions import Evictions
from haru.node.agent.log_rotation import ContainerLogManager
from haru.node.agent.machine import own_address, read_machine
from haru.node.agent.node_status import Host, allocatable, amounts_of_pods, declared_features, node_labels
from haru.node.agent.object_cache import Objects
from haru.node.agent.options import NodeOptions
from haru.node.agent.registration import NODES, Registration
from haru.node.cgroups.host import Hierarchies, hierarchies, refusal
from haru.node.cgroups.memory_qos import MemoryQos
from haru.node.cgroups.qos_groups import QosGroups, rule_of
from haru.node.cgroups.tree import FileTree, SystemdTree, Tree
from haru.node.cri.client import RuntimeClient
from haru.node.cri.errors import CriError
from haru.node.dra.devices import Devices, NoDevices
from haru.node.podworker.container_start import ContainerStarter
from haru.node.podworker.observed import POD_UID, SeenContainer
from haru.node.podworker.userns import Ranges, UserNamespaceError, has_user, pool_of_machine, run_getsubids
from haru.node.podworker.worker import PodWorker
from haru.node.probes.probe_exec import HandlerRunner
from haru.node.status.pod_status import TERMINAL
from haru.node.volumes.pod_volumes import PodVolumes
from haru.proto import cri_pb2 as cri

_log = logging.getLogger(__name__)
PODS = known_kind("v1", "Pod")
SERVICES = known_kind("v1", "Service")
_SERVICES_SECONDS = 5.0


class NodeError(HaruError):
    """This machine cannot be the configured node; the text says why and what to do."""


class Agent:
    """One node. `client` may do what a node may."""

    def __init__(
        self, client: ApiClient, options: NodeOptions, *, devices: Devices | None = None, port: int = 0
    ) -> None:
        self._client, self._options, self._port = client, options, port
        self._nodes = Informer(client, NODES, Selection(field_selector=f"metadata.name={options.name}"))
        self._devices = devices or NoDevices()
        self._workers: dict[str, tuple[PodWorker, asyncio.Task[None]]] = {}
        self._seen: dict[str, dict[str, int]] = {}
        self._group: asyncio.TaskGroup | None = None
        self._registration: Registration | None = None
        self.context: Context | None = None
        self.pods: Informer | None = None
        self.evictions: Evictions | None = None
        self.relisted = 0.0
        """When the runtime was last asked for everything it has, by the monotonic clock; 0: not yet."""
        self.ready = asyncio.Event()
        """The node was ready once: it is registered, and everything that runs has been looked at."""

    @property
    def is_ready(self) -> bool:
        """The node is registered, its runtime is well."""
        return self._registration is not None and self._registration.is_ready

    @property
    def devices(self) -> Devices:
        """What prepares devices."""
        return self._devices

    def worker(self, uid: str) -> PodWorker | None:
        """The worker of a pod."""
        found = self._workers.get(uid)
        return found[0] if found is not None else None

    async def run(self) -> None:
        """Run the node until cancelled. Raises `NodeError`, StatusError."""
        options = self._options
        found = hierarchies()
        if problem := refusal(found, fail_cgroup_v1=options.cgroups.fail_v1):
            raise NodeError(problem)
        options.root.mkdir(parents=True, exist_ok=True)
        streaming = options.gates.enabled("CRIListStreaming")
        runtime = RuntimeClient(options.endpoint, streaming=streaming, seconds=options.intervals.runtime_seconds)
        async with runtime:
            context = self.context = await self._context(runtime)
            host = Host(context.machine, context.addresses, self._port)
            self._registration = Registration(self._client, runtime, options, host, context.recorder)
            self.pods = Informer(self._client, PODS, Selection(field_selector=f"spec.nodeName={options.name}"))
            try:
                await self._work(context, self.pods, self._registration)
            finally:
                await context.handler_runner.close()
                await context.objects.close()
                with contextlib.suppress(Exception):
                    await context.recorder.close()

    async def _context(self, runtime: RuntimeClient) -> Context:
        options, found = self._options, hierarchies()
        try:
            version = await runtime.version()
            driver = await runtime.cgroup_driver()
        except CriError as error:
            raise NodeError(f"the container runtime does not answer: {error}; is it running?") from error
        if version.runtime_api_version != "v1":
            raise NodeError(f"{options.endpoint} speaks CRI {version.runtime_api_version}, v1 is needed")
        machine = await asyncio.to_thread(read_machine, options.root)
        systemd = options.cgroups.driver == "systemd" if driver is None else driver == cri.SYSTEMD
        tree: Tree | None = None
        if options.cgroups.per_qos:
            tree = SystemdTree() if systemd else FileTree(found)
        rule, amounts = _memory_qos(options, found), allocatable(options, machine)
        whole = amounts_of_pods(options, machine)
        return Context(
            client=self._client,
            runtime=runtime,
            options=options,
            machine=machine,
            addresses=list(options.addresses) or [own_address()],
            recorder=EventRecorder(self._client, "kubelet", instance=options.name, host=options.name),
            volumes=PodVolumes(options.root, parse_quantity(amounts["memory"]).value()),
            objects=Objects(self._client, self._objects_changed),
            handler_runner=HandlerRunner(runtime),
            devices=self._devices,
            cgroups=Cgroups(found, tree, rule, QosGroups(tree, rule, options.cgroups.root, self._active, whole)),
            ranges=await asyncio.to_thread(_ranges, options),
            runtime_info=RuntimeInfo(version.runtime_name, version.runtime_version, *await _features(runtime)),
            allocatable=amounts,
            services=Informer(self._client, SERVICES, transform=_addressed),
            admission=self._no_room,
        )

    async def _work(self, context: Context, pods: Informer, registration: Registration) -> None:
        async with asyncio.TaskGroup() as group:
            self._group = group
            registration.tell_start(old_groups=context.cgroups.hierarchies.mode != "unified")
            workers = lambda: [worker for worker, _ in self._workers.values()]  # noqa: E731
            evictions = Evictions(context, workers, registration.tell, registration.report_soon)
            self.evictions, registration.short_of = evictions, self._short_of
            if self._options.registration.register:
                await _patiently(registration.register, "the node was not registered")
            with contextlib.suppress(CriError, OSError):
                await registration.report(force=True)
            group.create_task(registration.run(), name="node status")
            starter = ContainerStarter(context)
            pods.add_handler(
                lambda pod: self._pod_changed(context, starter, pod),
                lambda _, pod: self._pod_changed(context, starter, pod),
                self._removed,
            )
            assert context.services is not None
            group.create_task(context.services.run(), name="services")
            group.create_task(self._nodes.run(), name="the node")
            await self._nodes.wait_synced()  # whether it takes a pod is decided by its labels and taints
            group.create_task(pods.run(), name="pods of the node")
            with contextlib.suppress(TimeoutError):
                # Their variables are in every container; later, a container that finds none is tried again.
                async with asyncio.timeout(_SERVICES_SECONDS):
                    await context.services.wait_synced()
            await pods.wait_synced()
            group.create_task(self._relist(context, starter), name="relist")
            group.create_task(context.cgroups.qos_groups.run(registration.tell), name="groups above pods")
            group.create_task(ContainerLogManager(context.runtime, self._running).run(), name="logs")
            group.create_task(evictions.run(), name="evictions")
            _log.info("node %s runs pods on %s", self._options.name, context.runtime_info.name)

    def _short_of(self) -> tuple[str, ...]:
        """Conditions of pressure that hold."""
        return self.evictions.pressure.pressure.conditions if self.evictions is not None else ()

    # -- pods ---------------------------------------------------------------------------------------------------------

    def _pod_changed(self, context: Context, starter: ContainerStarter, pod: Obj) -> None:
        uid = pod["metadata"]["uid"]
        worker = self.worker(uid)
        if worker is None:
            worker = self._start_worker(context, starter, uid)
            self._admit(context, pod, worker)
        worker.update(pod)

    def _start_worker(self, context: Context, starter: ContainerStarter, uid: str) -> PodWorker:
        assert self._group is not None and self.pods is not None
        worker = PodWorker(context, starter, uid, self.pods.observe)
        task = self._group.create_task(worker.run(), name=f"pod {uid}")
        self._workers[uid] = worker, task
        task.add_done_callback(lambda _: self._workers.pop(uid, None))
        return worker

    def _admit(self, context: Context, pod: Obj, worker: PodWorker) -> None:
        """Refuse a pod that was not here before, or end lesser ones for it if it is critical and has no room."""
        status = pod.get("status") or {}
        if status.get("phase") in TERMINAL or status.get("containerStatuses"):
            return
        view = KubeletView(
            self._node(context),
            declared_features(self._options.gates),
            self._others(pod),
            self._short_of(),
            context.machine.has_apparmor,
        )
        found = admission(pod, view, self._shortages(pod), lambda: self._beside(pod))
        if found.problem:
            context.recorder.event(pod, "Warning", *found.problem)
            worker.reject(*found.problem)
        elif found.victims:
            assert self.evictions is not None
            gone = [self._workers[uid_of(one)][0] for one in found.victims]
            self.evictions.preempt(worker, gone, found.resource)

    def _node(self, context: Context) -> Obj:
        """The Node as it was last seen; one that nobody has registered yet has the labels of this machine."""
        name = self._options.name
        found = self._nodes.get(name)
        return found or {"metadata": {"name": name, "labels": node_labels(self._options, context.machine)}}

    def _no_room(self, pod: Obj) -> tuple[str, str] | None:
        """Why the node has no room for a pod beside what the others were allocated."""
        return next((one.problem for one in self._shortages(pod)), None)

    def _shortages(self, pod: Obj) -> list[Shortage]:
        assert self.context is not None
        # Beside what the machine has: what others have written into the node.
        listed = (self._node(self.context).get("status") or {}).get("allocatable") or {}
        listed = {**listed, **self.context.allocatable}
        amounts = {name: parse_quantity(text).milli() for name, text in listed.items()}
        return shortages_beside(pod, self._beside(pod), amounts)

    def _beside(self, pod: Obj) -> list[Obj]:
        """The other pods here, with what they were allocated."""
        assert self.context is not None
        return [self.context.allocations.allocated(other) for other in self._others(pod)]

    def _others(self, pod: Obj) -> list[Obj]:
        return [other for other in self._active() if other["metadata"]["uid"] != pod["metadata"]["uid"]]

    def _active(self) -> list[Obj]:
        """Pods here that have not ended."""
        found = [worker.pod for worker, _ in self._workers.values()]
        return [pod for pod in found if pod is not None and (pod.get("status") or {}).get("phase") not in TERMINAL]

    def _running(self) -> list[SeenContainer]:
        """Containers of pods here that run, as they were last seen."""
        return [one for worker, _ in self._workers.values() for one in worker.seen.containers if one.runs]

    def _removed(self, pod: Obj) -> None:
        if worker := self.worker(pod["metadata"]["uid"]):
            worker.removed()

    def _objects_changed(self, uid: str) -> None:
        if worker := self.worker(uid):
            worker.objects_changed()

    # -- the runtime --------------------------------------------------------------------------------------------------

    async def _relist(self, context: Context, starter: ContainerStarter) -> None:
        """List everything in the runtime at the interval: sync changed pods, end unknown ones."""
        answers = True
        while True:
            answered = True
            try:
                await self._relist_once(context, starter)
            except CriError as error:
                answered = False
                _log.log(logging.WARNING if answers else logging.DEBUG, "relist: %s", error)
            if answered != answers and self._registration is not None:
                self._registration.report_soon()
            answers = answered
            await asyncio.sleep(self._options.intervals.relist_seconds)

    async def _relist_once(self, context: Context, starter: ContainerStarter) -> None:
        sandboxes, containers = await asyncio.gather(context.runtime.sandboxes(), context.runtime.containers())
        seen: dict[str, dict[str, int]] = {}
        listed: list[cri.PodSandbox | cri.Container] = [*sandboxes, *containers]
        for one in listed:
            uid = one.labels.get(POD_UID)
            if uid:
                seen.setdefault(uid, {})[one.id] = one.state
        for uid in {*seen, *self._seen, *await asyncio.to_thread(context.volumes.known)}:
            worker = self.worker(uid)
            if worker is None:
                self._start_worker(context, starter, uid).removed()
            elif seen.get(uid) != self._seen.get(uid):
                worker.wake()
        self._seen = seen
        self.relisted = time.monotonic()
        if self.is_ready:
            self.ready.set()


def _memory_qos(options: NodeOptions, found: Hierarchies) -> MemoryQos:
    """Memory QoS by gate, options and machine. Raises `NodeError`."""
    try:
        return rule_of(options, found)
    except ValueError as error:
        raise NodeError(str(error)) from error


def _ranges(options: NodeOptions) -> Ranges:
    """The users that pods may have for themselves. Raises `NodeError`."""
    try:
        pool = pool_of_machine(options.max_pods, options.ids_per_pod, has_user=has_user, subids=run_getsubids)
        ranges = Ranges(options.root / "pods", pool)
        ranges.load()
    except UserNamespaceError as error:
        raise NodeError(str(error)) from error
    return ranges


async def _features(runtime: RuntimeClient) -> tuple[bool, bool]:
    """Whether the runtime's default handler has users of pods, and recursive read-only mounts."""
    try:
        handlers = (await runtime.status()).runtime_handlers
    except CriError:
        return False, False
    default = next((one.features for one in handlers if one.name == ""), None)
    return (default.user_namespaces, default.recursive_read_only_mounts) if default is not None else (False, False)


async def _patiently(work: Any, what: str) -> None:
    """Until the API answers."""
    while True:
        try:
            await work()
            return
        except OSError as error:
            _log.warning("%s: %s", what, error)
            await asyncio.sleep(1.0)


def _addressed(service: Obj) -> Obj:
    """What variables say of a Service; the rest would fill the memory."""
    metadata = {name: service["metadata"].get(name, "") for name in ("name", "namespace", "uid", "resourceVersion")}
    spec = service.get("spec") or {}
    kept = {"clusterIP": spec.get("clusterIP", ""), "ports": spec.get("ports") or []}
    return {"metadata": metadata, "spec": kept}
