"""The simulated DRA driver: publishes the devices of many nodes, and their taints.

One component for all nodes that carry the profile label, whoever made them, unless they belong to a named fleet, which
has its own. Informers feed a queue of node names; each turn compares what ought to be published with what is,
unless the slices are still at the versions that were written.
The annotation `simulated.haru.dev/device-taints` on a node taints devices; one that cannot be read causes an event, and
the last good one stays in force (after a restart: what is published).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from haru.client.api import ApiClient
from haru.client.events import EventRecorder
from haru.client.informer import Informer, Selection, metadata_informer
from haru.client.workqueue import WorkQueue
from haru.clock import SYSTEM, Clock
from haru.drivers.simulated.amd import DRIVER as AMD_DRIVER
from haru.drivers.simulated.catalogue import UNKNOWN_PROFILE, Catalogue
from haru.drivers.simulated.objects import OF_NO_FLEET, PROFILE_LABEL, device_classes
from haru.drivers.simulated.profiles import COMPUTE_DOMAIN_DRIVER, NVIDIA_DRIVER, Profile, ProfileError
from haru.drivers.simulated.slices import device_names, resource_slices
from haru.drivers.simulated.taints import TAINTS_ANNOTATION, parse_device_taints, published_taints
from haru.drivers.slice_publishing import Publication, delete_slice, plan
from haru.kube.errors import StatusError
from haru.kube.kinds import known_kind
from haru.kube.meta import Obj, annotations_of, labels_of, name_of, uid_of

COMPONENT: Final = "simulated-driver"
DRIVERS: Final = (NVIDIA_DRIVER, COMPUTE_DOMAIN_DRIVER, AMD_DRIVER, "gaudi.intel.com", "tpu.google.com")
WORKERS: Final = 16
_BY_NODE: Final = "node"
_CLASSES: Final = "device classes"
"""What stands for them among the names of nodes that are waited for."""

NODES: Final = known_kind("v1", "Node")
SLICES: Final = known_kind("resource.k8s.io/v1", "ResourceSlice")
CLASSES: Final = known_kind("resource.k8s.io/v1", "DeviceClass")


async def install_device_classes(client: ApiClient) -> int:
    """Create the drivers' device classes; those that exist are left as they are. The newest revision of a class."""
    try:
        there = {name_of(known): int(_version_of(known)) for known in (await client.list(CLASSES))["items"]}
    except StatusError as error:
        if error.code != 403:
            raise
        there = {}  # who may not look may still create
    for obj in device_classes():
        if name_of(obj) in there:
            continue
        try:
            there[name_of(obj)] = int(_version_of(await client.create(CLASSES, obj)))
        except StatusError as error:
            if error.reason != "AlreadyExists":
                raise
    return max(there.values(), default=0)


class _Published(NamedTuple):
    """What was published for a node: out of what, and the versions of the slices that stood in the API then."""

    node_uid: str
    taints: str
    versions: dict[str, str]


@dataclass(frozen=True, slots=True)
class _KnownNodes:
    """What is known of each node: its profile, the last taints that could be read, what was published."""

    profiles: dict[str, Profile] = field(default_factory=dict)
    taints: dict[str, dict[str, list[Obj]]] = field(default_factory=dict)
    published: dict[str, _Published] = field(default_factory=dict)

    def forget(self, name: str) -> None:
        """Drop a node that was deleted."""
        for known in (self.profiles, self.taints, self.published):
            known.pop(name, None)


class _Strays:
    """Slices whose metadata do not say of which node they are."""

    def __init__(self) -> None:
        self._nodes: dict[str, str] = {}
        self._by_node: dict[str, dict[str, None]] = {}

    def add(self, name: str, node: str) -> None:
        self.forget(name)
        self._nodes[name] = node
        self._by_node.setdefault(node, {})[name] = None

    def forget(self, name: str) -> None:
        node = self._nodes.pop(name, None)
        if node is not None:
            del self._by_node[node][name]
            if not self._by_node[node]:
                del self._by_node[node]

    def of_node(self, node: str) -> Iterable[str]:
        return self._by_node.get(node, ())


class SimulatedDriver:
    """Publishes the slices of all simulated nodes until cancelled.

    `ready` is set once the nodes given, and all others that were there at the start, have their devices, and the
    device classes are there, if they are needed.
    """

    def __init__(
        self,
        client: ApiClient,
        nodes: Sequence[tuple[Profile, str]] = (),
        *,
        recorder: EventRecorder | None = None,
        clock: Clock = SYSTEM,
        resync_seconds: float = 30.0,
        selector: str = OF_NO_FLEET,
        is_alone: bool = False,
    ) -> None:
        """`is_alone`: no driver of real nodes is expected that brings its device classes."""
        self._client = client
        self._slim = client.metadata_only()
        self._catalogue = Catalogue(profile for profile, _ in nodes)
        self._recorder = recorder or EventRecorder(client, COMPONENT, now=clock.now, monotonic=clock.monotonic)
        self._resync_seconds = resync_seconds
        self._queue: WorkQueue[str] = WorkQueue(COMPONENT)
        self._known = _KnownNodes()
        self._strays = _Strays()
        self._looking: WorkQueue[str] = WorkQueue(f"{COMPONENT} strays")
        self._unpublished = {name for profile, name in nodes if profile.driver}
        self._needs_classes = asyncio.Event()
        if is_alone:
            self._need_classes()
        self.ready = asyncio.Event()
        self.revision = 0
        """The newest revision of a slice that was written or found."""
        self.class_revision = 0
        """The newest revision of a device class that was written or found."""
        self._nodes = Informer(client, NODES, Selection(label_selector=selector))
        self._nodes.add_handler(self._node_added, self._node_updated, self._node_deleted)
        # Slices are large and their writer knows what is in them: their versions say whether it is still so.
        self._slices = metadata_informer(client, SLICES)
        self._slices.add_index(_BY_NODE, self._nodes_of)
        self._slices.add_handler(self._slice_changed, lambda old, new: self._slice_changed(new), self._slice_deleted)

    async def run(self) -> None:
        """Keep the slices as they ought to be, and install the device classes once they are needed."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._nodes.run(), name=f"{COMPONENT} nodes")
            group.create_task(self._slices.run(), name=f"{COMPONENT} slices")
            group.create_task(self._install_classes(), name=f"{COMPONENT} classes")
            await self._nodes.wait_synced()
            await self._slices.wait_synced()
            self._unpublished |= self._known.profiles.keys()
            self._settled("")
            group.create_task(self._queue.run(self.sync, WORKERS), name=COMPONENT)
            group.create_task(self._looking.run(self._identify), name=f"{COMPONENT} strays")

    async def _install_classes(self) -> None:
        # Where all nodes are real, their drivers bring their own: Helm takes over no class that is there already.
        await self._needs_classes.wait()
        delay = 0.5
        while True:
            try:
                self.class_revision = await install_device_classes(self._client)
            except (StatusError, OSError) as error:
                if isinstance(error, StatusError) and error.code == 403:
                    self._settled(_CLASSES)  # they are left to others, unless it is allowed one day
                await asyncio.sleep(delay)
                delay = min(delay * 2, 30.0)
            else:
                self._settled(_CLASSES)
                return

    def _need_classes(self) -> None:
        if not self._needs_classes.is_set():
            self._needs_classes.set()
            self._unpublished.add(_CLASSES)

    # -- what has changed ---------------------------------------------------------------------------------------------

    def _node_added(self, node: Obj) -> None:
        name = name_of(node)
        try:
            profile = self._catalogue.profile_of(node)
        except ProfileError as error:
            self._recorder.event(node, "Warning", UNKNOWN_PROFILE, str(error), "Publishing")
            profile = None
        if profile is not None and profile.driver:
            self._known.profiles[name] = profile
            self._need_classes()
            self._queue.add(name)
        else:
            self._settled(name)

    def _node_updated(self, old: Obj, new: Obj) -> None:
        name = name_of(new)
        if name not in self._known.profiles and labels_of(old).get(PROFILE_LABEL) != labels_of(new).get(PROFILE_LABEL):
            self._node_added(new)
        elif name in self._known.profiles and _taints_of(old) != _taints_of(new):
            self._queue.add(name)

    def _node_deleted(self, node: Obj) -> None:
        """Its slices go with it, by garbage collection."""
        name = name_of(node)
        self._known.forget(name)
        self._settled(name)

    def _slice_changed(self, obj: Obj) -> None:
        """Someone wrote a slice. A foreign writer is given time: repairing at once would be a fight."""
        nodes = self._nodes_of(obj)
        if not nodes:
            self._looking.add(name_of(obj))
        for name in nodes:
            if name in self._known.profiles and not self._is_own(name, obj):
                self._queue.add_after(name, self._resync_seconds)

    def _slice_deleted(self, obj: Obj) -> None:
        self._slice_changed(obj)
        self._strays.forget(name_of(obj))

    async def _identify(self, name: str) -> None:
        """Read a slice whose metadata do not say of which node it is."""
        try:
            spec = (await self._client.get(SLICES, name))["spec"]
        except StatusError as error:
            if error.code != 404:
                raise
            return
        node = spec.get("nodeName")
        if node and spec.get("driver") in DRIVERS:
            self._strays.add(name, node)
            self._queue.add_after(node, self._resync_seconds)

    def _is_own(self, node: str, obj: Obj) -> bool:
        published = self._known.published.get(node)
        return published is not None and published.versions.get(name_of(obj)) == _version_of(obj)

    def _nodes_of(self, obj: Obj) -> tuple[str, ...]:
        """The nodes that a slice may be of: its owner, and the one that its name begins with."""
        owners = obj["metadata"].get("ownerReferences") or ()
        nodes = {owner["name"] for owner in owners if owner.get("kind") == NODES.kind}
        for driver in DRIVERS:
            node, found, _ = name_of(obj).partition(f"-{driver}-")
            if found:
                nodes.add(node)
        return tuple(nodes)

    # -- one node -----------------------------------------------------------------------------------------------------

    async def sync(self, name: str) -> None:
        """Bring the slices of one node to what they ought to be."""
        node, profile = self._nodes.get(name), self._known.profiles.get(name)
        if node is None or profile is None:
            return
        text = _taints_of(node)
        found = {name_of(obj): _version_of(obj) for obj in self._slices.by_index(_BY_NODE, name)}
        found.update(dict.fromkeys(self._strays.of_node(name), ""))
        if self._known.published.get(name) != _Published(uid_of(node), text, found):
            stored = await self._fetch(found, name, profile)
            taints = self._taints(node, profile, stored)
            wanted = plan(stored, lambda generation: resource_slices(profile, name, uid_of(node), taints, generation))
            versions = {name_of(obj): _version_of(obj) for obj in stored}
            await self._write(wanted, versions)
            self._known.published[name] = _Published(uid_of(node), text, versions)
            self.revision = max([self.revision, *map(int, versions.values())])
        self._settled(name)

    async def _fetch(self, names: Iterable[str], node: str, profile: Profile) -> list[Obj]:
        """The slices of those names that are of this driver for this node."""
        stored = []
        for name in names:
            try:
                obj = await self._client.get(SLICES, name)
            except StatusError as error:
                if error.code != 404:
                    raise
                continue
            if obj["spec"].get("driver") in profile.drivers and obj["spec"].get("nodeName") == node:
                stored.append(obj)
        return stored

    async def _write(self, wanted: Publication, versions: dict[str, str]) -> None:
        """Carry a publication out; `versions` is kept to what stands then."""
        for obj in wanted.create:
            self._observe(await self._slim.create(SLICES, obj), versions)
        for obj in wanted.update:
            self._observe(await self._slim.update(SLICES, obj), versions)
        for obj in wanted.delete:
            await delete_slice(self._client, self._slices, obj)
            del versions[name_of(obj)]

    def _observe(self, answer: Obj, versions: dict[str, str]) -> None:
        versions[name_of(answer)] = _version_of(answer)
        self._slices.observe(answer)

    def _settled(self, name: str) -> None:
        """With the last node's slices, and the device classes, the driver is ready."""
        self._unpublished.discard(name)
        if not self._unpublished and self._slices.has_synced:
            self.ready.set()

    def _taints(self, node: Obj, profile: Profile, stored: Sequence[Obj]) -> dict[str, list[Obj]]:
        name = name_of(node)
        try:
            self._known.taints[name] = parse_device_taints(_taints_of(node), device_names(profile))
        except ValueError as error:
            last = self._known.taints.setdefault(name, published_taints(stored))
            kept = "the taints published before stay in force" if last else "no device is tainted"
            message = f"annotation {TAINTS_ANNOTATION}: {error}; {kept}"
            self._recorder.event(node, "Warning", "InvalidDeviceTaints", message, "Publishing")
        return self._known.taints[name]


def _taints_of(node: Obj) -> str:
    return annotations_of(node).get(TAINTS_ANNOTATION, "")


def _version_of(obj: Obj) -> str:
    return str(obj["metadata"].get("resourceVersion") or "0")
