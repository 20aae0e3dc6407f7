"""Run a fleet of simulated kubelets: one component for any number of nodes.

Every Node with the profile label belongs to the fleet, whether the fleet created it or a user did, unless a label gives
it to a named fleet: `nodes` brings it up and renews its lease and status, `pod_workers` acts for its pods. A Node that
is deleted is gone.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from haru.client.api import ApiClient
from haru.client.backoff import Backoff
from haru.client.events import EventRecorder
from haru.client.informer import Informer, Selection
from haru.client.workqueue import WorkQueue
from haru.clock import SYSTEM, Clock
from haru.drivers.simulated.catalogue import UNKNOWN_PROFILE, Catalogue
from haru.drivers.simulated.device_health import HEALTH_ANNOTATION, parse_device_health
from haru.drivers.simulated.objects import FEATURES, OF_NO_FLEET, OFFLINE, PROFILE_LABEL
from haru.drivers.simulated.profiles import Profile, ProfileError
from haru.kube.meta import Obj, annotations_of, labels_of, name_of
from haru.kube.selectors import parse_label_selector
from haru.simulated_nodes.claims import FAIL_PREPARATION, PreparedClaims
from haru.simulated_nodes.nodes import NODES, NodeKeeper, SimulatedNode
from haru.simulated_nodes.pod_workers import COMPONENT, WORKERS, PodWorkers

_log = logging.getLogger(__name__)

_LONGEST_PAUSE: Final = 5.0
_RENEWED_SECONDS: Final = 5.0
"""A watch that was opened so recently is not opened anew."""


class FleetOptions(NamedTuple):
    """Which Nodes belong to a fleet, and what it keeps to there."""

    selector: str = OF_NO_FLEET
    """Labels of the Nodes that belong to the fleet, of those that have a profile."""
    taints: tuple[Obj, ...] = ()
    """Taints of the Nodes that the fleet creates."""
    with_claims: bool = True
    """Whether the server serves ResourceClaims."""
    features: tuple[str, ...] = FEATURES
    """What the Nodes declare."""


NO_NAME: Final = FleetOptions()


class Fleet:
    """Simulated kubelets for these (profile, node name) pairs; `run` until cancelled.

    `client` watches for all; `clients` gives each node the one that it writes with, under the node's own identity.
    """

    def __init__(
        self,
        client: ApiClient,
        nodes: Sequence[tuple[Profile, str]],
        clock: Clock = SYSTEM,
        *,
        recorder: EventRecorder | None = None,
        renew_seconds: float = 10.0,
        clients: Callable[[str], ApiClient] | None = None,
        options: FleetOptions = NO_NAME,
    ) -> None:
        self._as_node = clients or (lambda name: client)
        self._recorder = recorder or EventRecorder(
            client, "kubelet", instance=COMPONENT, now=clock.now, monotonic=clock.monotonic
        )
        self._selector = parse_label_selector(options.selector)
        self._requested = {name: profile for profile, name in nodes}
        self._catalogue = Catalogue(profile for profile, _ in nodes)
        self._nodes: dict[str, SimulatedNode] = {}
        self._next_number = 0
        self._awaited = set(self._requested)
        # What a node controller writes is to be seen soon after an outage.
        self._stored_nodes = Informer(
            client, NODES, Selection(label_selector=options.selector), backoff=Backoff(cap=_LONGEST_PAUSE)
        )
        self._stored_nodes.add_handler(self._node_added, self._node_updated, self._node_deleted)
        read = self._stored_nodes.get
        self._keeper = NodeKeeper(
            self._as_node,
            self._nodes,
            read,
            clock.now,
            renew_seconds=renew_seconds,
            recovered=self._renew_watches,
            taints=options.taints,
            features=options.features,
        )
        self._starting: WorkQueue[str] = WorkQueue(f"{COMPONENT} nodes", max_delay=7.0)
        self.revision = 0
        """The newest revision of a node that was brought up."""
        self.ready = asyncio.Event()
        self.pods = PodWorkers(
            client, self._as_node, self._nodes, clock, self._recorder, with_claims=options.with_claims
        )

    @property
    def prepared(self) -> PreparedClaims:
        """Return the claims that are prepared on the nodes."""
        return self.pods.prepared

    async def run(self) -> None:
        """Create the nodes that are missing, then act for all until cancelled."""
        async with asyncio.TaskGroup() as group:
            informers = (*self.pods.informers, self._stored_nodes)
            for informer in informers:
                group.create_task(informer.run(), name=f"{COMPONENT} {informer.kind.plural}")
            for informer in informers:
                await informer.wait_synced()
            self._awaited |= self._nodes.keys()
            for name in self._awaited:
                self._starting.add(name)
            self._settled("")
            group.create_task(self.pods.run(), name=COMPONENT)
            group.create_task(self._starting.run(self._bring_up, WORKERS), name=f"{COMPONENT} nodes")
            group.create_task(self._keeper.run(), name=f"{COMPONENT} heartbeats")

    def _renew_watches(self) -> None:
        """The API answers again: a watch from before may be on a connection that nobody closed and nobody serves."""
        for informer in (self._stored_nodes, *self.pods.informers, *self.pods.network.informers):
            informer.renew_watch(_RENEWED_SECONDS)

    # -- nodes --------------------------------------------------------------------------------------------------------

    def _node_added(self, stored: Obj) -> None:
        name = name_of(stored)
        try:
            profile = self._requested.get(name) or self._catalogue.profile_of(stored)
        except ProfileError as error:
            self._recorder.event(stored, "Warning", UNKNOWN_PROFILE, str(error))
            profile = None
        if profile is None:
            self._settled(name)
            return
        node = self._nodes[name] = SimulatedNode(profile, name, self._next_number)
        node.adopt(stored)
        self._next_number = max(self._next_number, node.number) + 1
        node.offline, node.failing_devices = _is_offline(stored), _failing_devices(stored)
        self._see_health(node, stored)
        self._starting.add(name)

    def _node_updated(self, old: Obj, new: Obj) -> None:
        node = self._nodes.get(name_of(new))
        if node is None:
            if labels_of(old).get(PROFILE_LABEL) != labels_of(new).get(PROFILE_LABEL):
                self._node_added(new)
            return
        node.see(new)
        if node.failing_devices != _failing_devices(new):
            node.failing_devices = _failing_devices(new)
            self.pods.sync_node(node.name)
        if annotations_of(old).get(HEALTH_ANNOTATION) != annotations_of(new).get(HEALTH_ANNOTATION):
            self._see_health(node, new)
            self.pods.sync_node(node.name)
        if node.offline != _is_offline(new):
            # Who comes back starts as a kubelet does: status, lease, then the pods.
            node.offline, node.up = _is_offline(new), False
            self._starting.add(node.name)
        elif node.acts:
            self._keeper.compare(new)

    def _see_health(self, node: SimulatedNode, stored: Obj) -> None:
        """Take over what the annotation says of devices; the last valid one holds."""
        text = annotations_of(stored).get(HEALTH_ANNOTATION)
        try:
            node.device_health = None if text is None else parse_device_health(text)
        except ValueError as error:
            self._recorder.event(stored, "Warning", "InvalidDeviceHealth", str(error))

    def _node_deleted(self, stored: Obj) -> None:
        """The node is gone for good; what it had is collected by the controllers."""
        name = name_of(stored)
        self._nodes.pop(name, None)
        self._requested.pop(name, None)
        self._keeper.forget(name)
        self._settled(name)

    async def _bring_up(self, name: str) -> None:
        """Bring a node up, creating it first if it is one of those that were asked for."""
        stored = self._stored_nodes.get(name)
        if stored is None and name in self._requested:
            profile = self._requested[name]
            address = SimulatedNode(profile, name, self._next_number).internal_ip
            self._next_number += 1
            stored = await self._keeper.create(profile, name, address)
            if stored is None:
                stored = await self._as_node(name).get(NODES, name)
                if not self._selector.matches(labels_of(stored)):
                    _log.error("node %s is somebody else's: it is left alone", name)
                    self._requested.pop(name)
                    self._settled(name)
                    return
            self._stored_nodes.observe(stored)
        node = self._nodes.get(name)
        if stored is None or node is None:
            return
        if not node.up and not node.offline:
            stored = await self._keeper.bring_up(node, stored)
            self._stored_nodes.observe(stored)
            node.up = True
        self.pods.sync_node(name)
        self.revision = max(self.revision, int(stored["metadata"]["resourceVersion"]))
        self._settled(name)

    def _settled(self, name: str) -> None:
        """With the last node of those asked for and found at the start the fleet is ready."""
        self._awaited.discard(name)
        if not self._awaited and self._stored_nodes.has_synced:
            self.ready.set()


def _failing_devices(node: Obj) -> str:
    return str(annotations_of(node).get(FAIL_PREPARATION) or "")


def _is_offline(node: Obj) -> bool:
    return annotations_of(node).get(OFFLINE) == "true"
