"""Simulated nodes, their driver and provisioner in a cluster of any size; events are heard as a watch brings them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any

from growing_controllers import Answers, named, settle
from growing_controllers import claim as allocated_claim

from haru.client.informer import Informer, object_key
from haru.client.workqueue import WorkQueue
from haru.clock import Clock
from haru.drivers.library import Pool, Slice
from haru.drivers.library.pools import Publisher
from haru.drivers.library.publisher import SlicePublisher
from haru.drivers.simulated.driver import SLICES, SimulatedDriver
from haru.drivers.simulated.objects import node_object
from haru.drivers.simulated.profiles import load_profile
from haru.drivers.simulated.taints import TAINTS_ANNOTATION
from haru.kube import schema
from haru.kube.errors import not_found_error
from haru.kube.kinds import Kind
from haru.kube.patch.merge_patch import apply_merge_patch
from haru.kube.patch.strategic import apply_strategic_merge_patch
from haru.kube.simulated_containers.cluster_network import SERVICE_NAME
from haru.kube.volume_binding import PROVISIONED_BY, STORAGE_PROVISIONER
from haru.simulated_nodes.claim_preparation import ClaimPreparation
from haru.simulated_nodes.fleet import Fleet
from haru.simulated_nodes.network import NodeNetwork
from haru.simulated_nodes.pod_workers import PodWorkers
from haru.simulated_nodes.provisioner import PROVISIONER, SimulatedProvisioner

Obj = dict[str, Any]
Sync = Callable[[str], Awaitable[object]]
PROFILE = load_profile("dgx-h100")


class NodeAnswers(Answers):
    """An API server of simulated nodes that takes every write, and tells the informers nothing of it."""

    def __init__(self) -> None:
        super().__init__()
        self.known: dict[str, Informer] = {}
        self.written: dict[tuple[str, str, str], Obj] = {}

    def _known(self, kind: Kind, name: str, namespace: str) -> Obj:
        if (found := self.written.get((kind.plural, namespace, name))) is not None:
            return found
        informer = self.known.get(kind.plural)
        found = informer.get(name, namespace if kind.namespaced else "") if informer is not None else None
        if found is None:
            raise not_found_error(kind.group, kind.plural, name)
        return found

    def _written(self, verb: str, kind: Kind, obj: Obj) -> Obj:
        made = super()._written(verb, kind, obj)
        self.remember(kind, made)
        return made

    def remember(self, kind: Kind, obj: Obj) -> None:
        """Have an object that somebody else wrote."""
        metadata = obj["metadata"]
        self.written[kind.plural, metadata.get("namespace", ""), metadata["name"]] = obj

    async def patch(self, kind: Kind, name: str, patch: Any, namespace: str = "", **options: Any) -> Obj:
        stored = self._known(kind, name, namespace)
        if options.get("type") == "strategic":
            return self._written("patch", kind, apply_strategic_merge_patch(stored, patch, schema.type_of(kind)))
        return self._written("patch", kind, apply_merge_patch(stored, patch))


class Silent:
    """Records no event: what a recorder does is measured elsewhere."""

    def event(self, *_: Any, **__: Any) -> None:
        """Forget it."""

    async def close(self) -> None:
        """Nothing is under way."""


def _node(kind: Kind, n: int | str) -> Obj:
    made = node_object(PROFILE, f"node-{n}", internal_ip=f"172.16.{int(n) // 250}.{int(n) % 250 + 1}", now=_THEN)
    about = {"uid": f"Node-{n}", "resourceVersion": "1", "creationTimestamp": _THEN}
    return {**made, "metadata": {**made["metadata"], **about}}


_THEN = "2026-01-01T00:00:00Z"


def _pod(kind: Kind, n: int | str) -> Obj:
    spec = {
        "nodeName": f"node-{n}",
        "containers": [{"name": "main", "image": "work", "resources": {"requests": {"cpu": "1"}}}],
        "resourceClaims": [{"name": "gpu", "resourceClaimName": f"resourceclaim-{n}"}],
    }
    status = {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "True"}]}
    return named(kind, n, spec=spec, status=status)


def _slice(kind: Kind, n: int | str) -> Obj:
    owner = {"apiVersion": "v1", "kind": "Node", "name": f"node-{n}", "uid": f"Node-{n}", "controller": True}
    pool = {"name": f"node-{n}", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "pool": pool, "nodeName": f"node-{n}", "devices": [{"name": "gpu-0"}]}
    return named(kind, n, metadata={"name": f"node-{n}-{DRIVER}-devices", "ownerReferences": [owner]}, spec=spec)


def stray_slice(n: int) -> Obj:
    """A slice that somebody wrote for node 5, whose metadata do not say so."""
    made = _slice(SLICES, n)
    made["metadata"].update(name=f"stray-{n}", uid=f"stray-{n}", ownerReferences=[])
    made["spec"]["nodeName"] = "node-5"
    return made


DRIVER = PROFILE.driver


def _volume_claim(kind: Kind, n: int | str) -> Obj:
    resources = {"resources": {"requests": {"storage": "1Gi"}}}
    spec = {"storageClassName": f"storageclass-{n}", "accessModes": ["ReadWriteOnce"], **resources}
    return named(kind, n, metadata={"annotations": {STORAGE_PROVISIONER: PROVISIONER}}, spec=spec, status={})


def _volume(kind: Kind, n: int | str) -> Obj:
    spec = {"persistentVolumeReclaimPolicy": "Delete"}
    annotations = {"annotations": {PROVISIONED_BY: PROVISIONER}}
    return named(kind, n, metadata=annotations, spec=spec, status={"phase": "Released"})


def _endpoint_slice(kind: Kind, n: int | str) -> Obj:
    endpoints = [{"addresses": ["10.0.0.1"], "targetRef": {"kind": "Pod", "name": f"pod-{n}"}}]
    labels = {"labels": {SERVICE_NAME: f"service-{n}"}}
    return named(kind, n, metadata=labels, endpoints=endpoints, ports=[{"port": 80}])


MAKERS: dict[str, Callable[[Kind, int | str], Obj]] = {
    "nodes": _node,
    "pods": _pod,
    "resourceclaims": allocated_claim,
    "resourceslices": _slice,
    "persistentvolumeclaims": _volume_claim,
    "persistentvolumes": _volume,
    "services": lambda kind, n: named(kind, n, spec={"ports": [{"port": 80}]}),
    "endpointslices": _endpoint_slice,
    "storageclasses": lambda kind, n: named(kind, n, provisioner=PROVISIONER, volumeBindingMode="Immediate"),
}


def make(kind: Kind, n: int | str) -> Obj:
    """Object `n` of a kind, all of whose parts have its number."""
    return MAKERS[kind.plural](kind, n)


def changed(obj: Obj) -> Obj:
    """A later version of an object, with a change that its component acts on."""
    metadata = {**obj["metadata"], "resourceVersion": "1000000000"}
    if obj["kind"] == "Pod":
        return {
            **obj,
            "metadata": {**metadata, "deletionTimestamp": _THEN, "deletionGracePeriodSeconds": 30, "finalizers": []},
        }
    if obj["kind"] == "Node":
        status = {**obj["status"], "conditions": [{"type": "Ready", "status": "Unknown"}]}
        taints = {**metadata.get("annotations", {}), TAINTS_ANNOTATION: "gpu-0=broken:NoExecute"}
        return {**obj, "metadata": {**metadata, "annotations": taints}, "status": status}
    return {**obj, "metadata": {**metadata, "labels": {"new": "yes"}}}


class GrowingComponent:
    """A component beside `size` objects of each kind that it watches, and all that it has done for them."""

    def __init__(self, size: int, clock: Clock) -> None:
        self.size = size
        self.client = NodeAnswers()
        self.component, self.queues = self.made(clock)
        self.informers = list(informers_of(self.component))
        self.client.known = {informer.kind.plural: informer for informer in self.informers}

    def made(self, clock: Clock) -> tuple[object, Mapping[WorkQueue[str], Sync]]:
        """The component, and its queues with what works on them."""
        raise NotImplementedError

    async def fill(self) -> None:
        """Have it hear of all objects, and act for them."""
        for informer in self.informers:
            informer._synced.set()
        for informer in sorted(self.informers, key=lambda each: each.kind.plural not in ("nodes", "resourceclaims")):
            for n in range(self.size):
                informer._apply(make(informer.kind, n))
            await self.work()
        await settle()

    async def work(self) -> None:
        """Look at what waits until nothing waits."""
        for _ in range(100 * (self.size + 1)):
            waiting = [(queue, sync) for queue, sync in self.queues.items() if len(queue)]
            if not waiting:
                return
            queue, sync = waiting[0]
            key = await queue.get()
            await sync(key)
            queue.done(key)
        raise AssertionError("there is no end of it")

    async def close(self) -> None:
        """End its timers."""
        for queue in self.queues:
            queue.shut_down()

    async def hear(self, informer: Informer, type_: str, obj: Obj) -> None:
        """Have it hear of an object, and do all that it does because of it."""
        informer._hear(type_, obj)
        await self.work()


class GrowingFleet(GrowingComponent):
    """Simulated kubelets, a running pod with a claim on each node."""

    def made(self, clock: Clock) -> tuple[object, Mapping[WorkQueue[str], Sync]]:
        fleet = self.fleet = Fleet(self.client, [], clock, recorder=Silent())  # type: ignore[arg-type]
        return fleet, {fleet._starting: fleet._bring_up, fleet.pods._queue: fleet.pods.sync}

    async def close(self) -> None:
        """End its timers, those of heartbeats too."""
        await super().close()
        await self.fleet._keeper._leases.close()
        await self.fleet._keeper._statuses.close()


class GrowingDriver(GrowingComponent):
    """The simulated driver of all nodes."""

    def made(self, clock: Clock) -> tuple[object, Mapping[WorkQueue[str], Sync]]:
        driver = self.driver = SimulatedDriver(self.client, recorder=Silent(), clock=clock)  # type: ignore[arg-type]
        return driver, {driver._queue: driver.sync, driver._looking: driver._identify}


class GrowingProvisioner(GrowingComponent):
    """The provisioner of simulated volumes."""

    def made(self, clock: Clock) -> tuple[object, Mapping[WorkQueue[str], Sync]]:
        provisioner = SimulatedProvisioner(self.client, clock, Silent())  # type: ignore[arg-type]
        return provisioner, {provisioner._queue: provisioner._sync}


class GrowingPublisher(GrowingComponent):
    """A driver's library, with a pool of one device for each number."""

    def made(self, clock: Clock) -> tuple[object, Mapping[WorkQueue[str], Sync]]:
        publisher = SlicePublisher(self.client, Publisher(DRIVER, "node-0"), 0.0)
        publisher.declare({f"node-{n}": Pool([Slice([{"name": "gpu-0"}])]) for n in range(self.size + 2)})
        return publisher, {publisher._queue: publisher._sync}


COMPONENTS = {
    "simulated_nodes/claim_preparation.py": GrowingFleet,
    "simulated_nodes/fleet.py": GrowingFleet,
    "simulated_nodes/network.py": GrowingFleet,
    "simulated_nodes/pod_workers.py": GrowingFleet,
    "simulated_nodes/provisioner.py": GrowingProvisioner,
    "drivers/simulated/driver.py": GrowingDriver,
    "drivers/library/publisher.py": GrowingPublisher,
}
"""What stands for each module that watches something."""


def informers_of(component: object) -> Iterator[Informer]:
    """The informers of a component and of its parts."""
    for part in getattr(component, "__dict__", {}).values():
        if isinstance(part, Informer):
            yield part
        elif isinstance(part, PodWorkers | ClaimPreparation | NodeNetwork):
            yield from informers_of(part)


def events_of(growing: GrowingComponent) -> Iterator[tuple[str, Callable[[], Awaitable[None]]]]:
    """What can happen to an object of each kind that is watched: it comes, changes and goes."""
    for informer in growing.informers:
        added = make(informer.kind, growing.size + 1)
        if informer.kind.plural == "pods":
            added["spec"].update(nodeName="node-1", resourceClaims=[])
        own = make(informer.kind, 0)
        old = informer.store.get(object_key(own)) or next(iter(informer.store.values()))
        for what, type_, obj in (
            ("new", "ADDED", added),
            ("changed", "MODIFIED", changed(old)),
            ("deleted", "DELETED", changed(old)),
        ):
            yield f"{what} {informer.kind.plural}", lambda i=informer, t=type_, o=obj: growing.hear(i, t, o)  # type: ignore[misc]
