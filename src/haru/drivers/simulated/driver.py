"""The simulated DRA driver: publishes the devices of many nodes, and their taints.

One component for all nodes: informers of Nodes and ResourceSlices feed a queue of node names, and each turn compares
what ought to be published with what is. The annotation `simulated.haru.dev/device-taints` on a node taints devices; one
that cannot be read causes an event, and the last good one stays in force (after a restart: what is published).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from haru.client.api import ApiClient
from haru.client.events import EventRecorder
from haru.client.informer import Informer
from haru.client.workqueue import WorkQueue
from haru.drivers.simulated.objects import device_classes
from haru.drivers.simulated.profiles import Profile
from haru.drivers.simulated.publishing import plan
from haru.drivers.simulated.slices import device_names, resource_slices
from haru.drivers.simulated.taints import TAINTS_ANNOTATION, parse_device_taints, published_taints
from haru.kube import kinds
from haru.kube.errors import StatusError
from haru.kube.kinds import Kind
from haru.kube.meta import annotations_of, name_of, uid_of

Obj = dict[str, Any]

COMPONENT: Final = "simulated-driver"
_BY_NODE: Final = "node"


def _kind(group: str, plural: str) -> Kind:
    kind = kinds.lookup(group, "v1", plural)
    assert kind is not None
    return kind


NODES: Final = _kind("", "nodes")
SLICES: Final = _kind("resource.k8s.io", "resourceslices")
CLASSES: Final = _kind("resource.k8s.io", "deviceclasses")


async def install_device_classes(client: ApiClient) -> None:
    """Create the drivers' device classes; those that exist are left as they are."""
    for obj in device_classes():
        try:
            await client.create(CLASSES, obj)
        except StatusError as error:
            if error.reason != "AlreadyExists":
                raise


class SimulatedDriver:
    """Publishes the slices of these nodes until cancelled."""

    def __init__(
        self,
        client: ApiClient,
        nodes: Sequence[tuple[Profile, str]],
        *,
        recorder: EventRecorder | None = None,
        workers: int = 4,
        resync_seconds: float = 30.0,
    ) -> None:
        self._client = client
        self._profiles = {name: profile for profile, name in nodes if profile.driver}
        self._recorder = recorder or EventRecorder(client, COMPONENT)
        self._workers = workers
        self._resync_seconds = resync_seconds
        self._queue: WorkQueue[str] = WorkQueue(COMPONENT)
        self._good: dict[str, dict[str, list[Obj]]] = {}
        self._unpublished = set(self._profiles)
        self.ready = asyncio.Event()
        self._nodes = Informer(client, NODES)
        self._nodes.add_handler(self._node_added, self._node_updated)
        self._slices = Informer(client, SLICES)
        self._slices.add_index(_BY_NODE, _node_of)
        self._slices.add_handler(None, self._slice_updated, self._slice_changed)

    async def run(self) -> None:
        """Install the device classes, then keep the slices as they ought to be."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._nodes.run(), name=f"{COMPONENT} nodes")
            group.create_task(self._slices.run(), name=f"{COMPONENT} slices")
            group.create_task(self._install_classes(), name=f"{COMPONENT} classes")
            await self._nodes.wait_synced()
            await self._slices.wait_synced()
            self._published("")
            group.create_task(self._queue.run(self.sync, self._workers), name=COMPONENT)

    async def _install_classes(self) -> None:
        delay = 0.5
        while True:
            try:
                await install_device_classes(self._client)
            except (StatusError, OSError):
                await asyncio.sleep(delay)
                delay = min(delay * 2, 30.0)
            else:
                return

    # -- what has changed ---------------------------------------------------------------------------------------------

    def _node_added(self, node: Obj) -> None:
        if name_of(node) in self._profiles:
            self._queue.add(name_of(node))

    def _node_updated(self, old: Obj, new: Obj) -> None:
        if annotations_of(old).get(TAINTS_ANNOTATION) != annotations_of(new).get(TAINTS_ANNOTATION):
            self._node_added(new)

    def _slice_updated(self, old: Obj, new: Obj) -> None:
        self._slice_changed(new)

    def _slice_changed(self, obj: Obj) -> None:
        """Someone wrote a slice. A foreign writer is given time: repairing at once would be a fight."""
        for name in _node_of(obj):
            if name in self._profiles:
                self._queue.add_after(name, self._resync_seconds)

    # -- one node -----------------------------------------------------------------------------------------------------

    async def sync(self, name: str) -> None:
        """Bring the slices of one node to what they ought to be."""
        node = self._nodes.get(name)
        profile = self._profiles[name]
        if node is None:
            return  # its slices go with it, by garbage collection
        stored = [obj for obj in self._slices.by_index(_BY_NODE, name) if obj["spec"].get("driver") == profile.driver]
        taints = self._taints(node, profile, stored)
        publication = plan(stored, lambda generation: resource_slices(profile, name, uid_of(node), taints, generation))
        for obj in publication.create:
            self._slices.observe(await self._client.create(SLICES, obj))
        for obj in publication.update:
            self._slices.observe(await self._client.update(SLICES, obj))
        for obj in publication.delete:
            await self._delete(obj)
        self._published(name)

    def _published(self, name: str) -> None:
        """With the last node's slices the driver is ready."""
        self._unpublished.discard(name)
        if not self._unpublished:
            self.ready.set()

    async def _delete(self, obj: Obj) -> None:
        try:
            answer = await self._client.delete(SLICES, name_of(obj), uid=uid_of(obj))
        except StatusError as error:
            if error.code != 404:
                raise
        else:
            self._slices.observe_deleted(obj, answer)

    def _taints(self, node: Obj, profile: Profile, stored: Sequence[Obj]) -> dict[str, list[Obj]]:
        name = name_of(node)
        text = annotations_of(node).get(TAINTS_ANNOTATION, "")
        try:
            self._good[name] = parse_device_taints(text, device_names(profile))
        except ValueError as error:
            last = self._good.setdefault(name, published_taints(stored))
            kept = "the taints published before stay in force" if last else "no device is tainted"
            message = f"annotation {TAINTS_ANNOTATION}: {error}; {kept}"
            self._recorder.event(node, "Warning", "InvalidDeviceTaints", message, "Publishing")
        return self._good[name]


def _node_of(obj: Obj) -> tuple[str, ...]:
    name = (obj.get("spec") or {}).get("nodeName")
    return (name,) if name else ()
