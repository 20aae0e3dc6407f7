"""Nodes of a fleet: brought up once, then kept fresh by leases and heartbeats.

A lease lasts 40 s and is renewed every 10 s, in large fleets every 20 s; a status that did not change is reported every
5 minutes, one that others changed at once or within 10 s, as kubelets do. A node that is offline is left alone.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Final

from haru.client.api import ApiClient
from haru.drivers.simulated.objects import FEATURES, PLACES, node_conditions, node_labels, node_object, node_status
from haru.drivers.simulated.profiles import Profile
from haru.kube.errors import StatusError
from haru.kube.kinds import known_kind
from haru.kube.meta import Obj, get_condition, labels_of, owner_reference
from haru.kube.names import format_micro_time, format_time, is_extended_resource_name
from haru.kube.quantity import parse_quantity
from haru.simulated_nodes.heartbeats import Heartbeats
from haru.simulated_nodes.node_usage import NodeUsage

LEASE_NAMESPACE: Final = "kube-node-lease"
LEASE_SECONDS: Final = 40
_LARGE_FLEET: Final = 200
_TIMEOUTS: Final = (10.0, 5.0)
"""Seconds that a heartbeat, and one that follows a failure, may take."""
_GATHERED_SECONDS: Final = 0.05
"""Leases that are due in so many seconds are renewed together, in one commit of the store."""
_REPORT_SECONDS: Final = 300.0
"""An unchanged status is reported so often."""
_COMPARED_SECONDS: Final = 10.0
"""A kubelet compares its status with what is stored so often."""
_FIRST_ADDRESS: Final = int(ipaddress.IPv4Address("172.16.0.1"))
_ADDRESSES: Final = 2**20 - 2


NODES: Final = known_kind("v1", "Node")
NAMESPACES: Final = known_kind("v1", "Namespace")
LEASES: Final = known_kind("coordination.k8s.io/v1", "Lease")


class SimulatedNode:
    """One simulated node. Its kubelet acts once it is `up`, and not while it is offline."""

    __slots__ = (
        "allocatable", "device_health", "failing_devices", "internal_ip", "name", "offline", "profile", "stored", "uid",
        "up", "usage",
    )  # fmt: skip

    def __init__(self, profile: Profile, name: str, number: int) -> None:
        self.profile = profile
        self.name = name
        self.uid = ""
        self.up = False
        self.offline = False
        self.failing_devices = ""
        """Which devices its driver fails to prepare, as an annotation says it."""
        self.device_health: Mapping[str, tuple[str, str]] | None = None
        """State and message of devices that are not healthy, as an annotation says it; without it, None."""
        self.internal_ip = str(ipaddress.IPv4Address(_FIRST_ADDRESS + number))
        self.allocatable: dict[str, int] = {}
        self.stored: Obj = {"metadata": {"name": name}}
        """The Node as it was last seen."""
        self.usage = NodeUsage()

    @property
    def number(self) -> int:
        """The place of its address among those that the fleet gives out, -1 for any other address."""
        number = int(ipaddress.IPv4Address(self.internal_ip)) - _FIRST_ADDRESS if "." in self.internal_ip else -1
        return number if 0 <= number < _ADDRESSES else -1

    @property
    def acts(self) -> bool:
        """Whether there is a kubelet that does anything."""
        return self.up and not self.offline

    def adopt(self, node: Obj) -> None:
        """Take over what the stored object says."""
        self.uid = node["metadata"]["uid"]
        for address in (node.get("status") or {}).get("addresses") or ():
            if address.get("type") == "InternalIP":
                self.internal_ip = address["address"]
        self.see(node)

    def see(self, node: Obj) -> None:
        """Take over what others have made of the stored object."""
        allocatable = (node.get("status") or {}).get("allocatable") or {}
        if not self.allocatable or allocatable != (self.stored.get("status") or {}).get("allocatable"):
            self.allocatable = {name: parse_quantity(value).milli() for name, value in allocatable.items()}
            self.allocatable.setdefault("pods", self.profile.pods * 1000)
        self.stored = node

    def resources_of_others(self, stored: Obj) -> dict[str, str | None]:
        """What changes of its allocatable resources: extended ones that others wrote into its capacity, or took out.

        So an operator gives a node resources of which no driver knows.
        """
        status = stored.get("status") or {}
        capacity, allocatable = status.get("capacity") or {}, status.get("allocatable") or {}
        names = (capacity.keys() | allocatable.keys()) - self.profile.extended.keys()
        others = filter(is_extended_resource_name, names)
        return {name: capacity.get(name) for name in others if capacity.get(name) != allocatable.get(name)}


class NodeKeeper:
    """Brings nodes up and keeps them fresh, each with its own client."""

    def __init__(
        self,
        clients: Callable[[str], ApiClient],
        nodes: Mapping[str, SimulatedNode],
        read: Callable[[str], Obj | None],
        clock: Callable[[], datetime],
        *,
        renew_seconds: float = 10.0,
        recovered: Callable[[], None] = lambda: None,
        taints: Sequence[Obj] = (),
        features: Sequence[str] = FEATURES,
    ) -> None:
        self._as_node = clients
        self._told_recovered = recovered
        self._taints, self._features = list(taints), features
        self._nodes = nodes
        self._read = read
        self._clock = clock
        self._renew_seconds = renew_seconds
        self._statuses = Heartbeats("status", self._send_status, lambda: _REPORT_SECONDS, timeouts=_TIMEOUTS)
        self._leases = Heartbeats(
            "lease",
            self._send_lease,
            self._renewal_period,
            timeouts=_TIMEOUTS,
            recovered=self._recovered,
            gathered=_GATHERED_SECONDS,
        )

    # -- bringing up --------------------------------------------------------------------------------------------------

    async def create(self, profile: Profile, name: str, internal_ip: str) -> Obj | None:
        """Create a node; None if there is one of this name."""
        now = format_time(self._clock())
        try:
            node = node_object(profile, name, internal_ip=internal_ip, now=now, features=self._features)
            if self._taints:
                node["spec"]["taints"] = self._taints
            return await self._as_node(name).create(NODES, node)
        except StatusError as error:
            if error.reason != "AlreadyExists":
                raise
            return None

    async def bring_up(self, node: SimulatedNode, stored: Obj) -> Obj:
        """What a kubelet does when it starts: labels, status and lease of its node. Answers the node as it is then."""
        node.adopt(stored)
        profile, name = node.profile, node.name
        # Where a node stands was said by whoever created or labelled it, unless the profile says it.
        kept = labels_of(stored).keys() & (PLACES - profile.labels.keys())
        wanted_labels = {key: value for key, value in node_labels(profile, name).items() if key not in kept}
        missing = {key: value for key, value in wanted_labels.items() if labels_of(stored).get(key) != value}
        if missing:
            patch = {"metadata": {"uid": node.uid, "labels": missing}}
            stored = await self._as_node(name).patch(NODES, name, patch)
        status = stored.get("status") or {}
        now = format_time(self._clock())
        wanted = node_status(profile, name, internal_ip=node.internal_ip, now=now, features=self._features)
        compared = ("capacity", "allocatable", "daemonEndpoints", "declaredFeatures", "features")
        same = all((status.get(field) or []) == wanted[field] for field in compared)
        if not same or not all(_agrees(stored, condition) for condition in wanted["conditions"]):
            wanted["conditions"] = [_observed(stored, condition) for condition in wanted["conditions"]]
            if status.get("addresses"):
                del wanted["addresses"]
            patch = {"metadata": {"uid": node.uid}, "status": wanted}
            client = self._as_node(name)
            stored = await client.patch(NODES, name, patch, type="strategic", subresource="status")
        node.adopt(stored)
        await self._begin_lease(node)
        self._leases.begin(name)
        self._statuses.begin(name)
        return stored

    async def _begin_lease(self, node: SimulatedNode) -> None:
        """The lease of a node that has just come up; another node's of the same name is replaced."""
        now = format_micro_time(self._clock())
        try:
            await self._create_lease(node, now)
        except StatusError as error:
            if error.reason != "AlreadyExists":
                raise
            patch = {"metadata": {"ownerReferences": [_owner(node)]}, "spec": {"renewTime": now}}
            await self._as_node(node.name).patch(LEASES, node.name, patch, LEASE_NAMESPACE)

    # -- freshness ----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Renew leases and report statuses of the nodes that have come up until cancelled."""
        try:
            await asyncio.Event().wait()
        finally:
            await self._leases.close()
            await self._statuses.close()

    def forget(self, name: str) -> None:
        """The node is gone."""
        self._leases.end(name)
        self._statuses.end(name)

    def compare(self, stored: Obj) -> None:
        """Report the node's status anew if others have changed what its kubelet says: at once if it was given up."""
        differing = [
            present
            for condition in node_conditions("")
            if (present := get_condition(stored, condition["type"]) or {}).get("status") != condition["status"]
        ]
        if any(present.get("status") == "Unknown" for present in differing):
            self._statuses.hasten(stored["metadata"]["name"])
        elif differing or self._nodes[stored["metadata"]["name"]].resources_of_others(stored):
            self._statuses.hasten(stored["metadata"]["name"], _COMPARED_SECONDS)

    def _recovered(self, name: str) -> None:
        # Who was not heard may have been given up meanwhile, and may not have heard of that yet.
        self._statuses.hasten(name)
        for beats in (self._leases, self._statuses):
            beats.retry_failed()
        self._told_recovered()

    def _renewal_period(self) -> float:
        return self._renew_seconds if len(self._nodes) <= _LARGE_FLEET else 2 * self._renew_seconds

    def _heartbeat_client(self, name: str) -> ApiClient:
        """One that gives up soon and tries once: a heartbeat that is late is sent anew, with the time of then."""
        return self._as_node(name).hasty(_TIMEOUTS[0])

    async def _send_lease(self, name: str) -> None:
        node = self._nodes.get(name)
        if node is not None and node.acts:
            await self._renew(node)

    async def _send_status(self, name: str) -> None:
        node = self._nodes.get(name)
        if node is not None and node.acts:
            await self._report(node)

    async def _report(self, node: SimulatedNode) -> None:
        stored = self._read(node.name) or {}
        conditions = [_observed(stored, condition) for condition in node_conditions(format_time(self._clock()))]
        status: Obj = {"conditions": conditions}
        if changed := node.resources_of_others(stored):
            status["allocatable"] = changed
        patch = {"metadata": {"uid": node.uid}, "status": status}
        await self._heartbeat_client(node.name).patch(NODES, node.name, patch, type="strategic", subresource="status")

    async def _renew(self, node: SimulatedNode) -> None:
        now = format_micro_time(self._clock())
        try:
            patch = {"spec": {"renewTime": now}}
            await self._heartbeat_client(node.name).patch(LEASES, node.name, patch, LEASE_NAMESPACE)
        except StatusError as error:
            if error.code != 404:
                raise
            await self._create_lease(node, now)

    async def _create_lease(self, node: SimulatedNode, now: str) -> None:
        lease = {
            "apiVersion": LEASES.api_version,
            "kind": LEASES.kind,
            "metadata": {"name": node.name, "namespace": LEASE_NAMESPACE, "ownerReferences": [_owner(node)]},
            "spec": {"holderIdentity": node.name, "leaseDurationSeconds": LEASE_SECONDS, "renewTime": now},
        }
        client = self._as_node(node.name)
        try:
            await client.create(LEASES, lease)
        except StatusError as error:
            if error.code != 404:
                raise
            namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": LEASE_NAMESPACE}}
            await client.create(NAMESPACES, namespace)
            await client.create(LEASES, lease)


def _owner(node: SimulatedNode) -> Obj:
    return owner_reference({"metadata": {"name": node.name, "uid": node.uid}}, NODES, controller=False)


def _agrees(stored: Obj, condition: Obj) -> bool:
    present = get_condition(stored, condition["type"]) or {}
    return bool(present.get("status") == condition["status"])


def _observed(stored: Obj, condition: Obj) -> Obj:
    """The condition as it is reported: its time of transition only if there was a transition."""
    if not _agrees(stored, condition):
        return condition
    return {name: value for name, value in condition.items() if name != "lastTransitionTime"}
