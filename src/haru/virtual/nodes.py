"""Nodes of a fleet: registered once, then kept fresh by leases and heartbeats.

All nodes share one rota in which every node has its turn once per period, evenly spread, so that the load on the API
server is level however many there are. A lease is renewed every 10 s and lasts 40 s; a status that did not change is
reported every 5 minutes, as kubelets do. A node that is deleted stays deleted: it comes back with the next start.
"""

from __future__ import annotations

import asyncio
import ipaddress
import itertools
import logging
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Any, Final

from haru.client.api import ApiClient
from haru.drivers.simulated.objects import node_conditions, node_labels, node_object
from haru.drivers.simulated.profiles import Profile
from haru.kube import kinds
from haru.kube.errors import StatusError
from haru.kube.kinds import Kind
from haru.kube.meta import labels_of, owner_reference
from haru.kube.names import format_micro_time, format_time
from haru.kube.quantity import parse_quantity

Obj = dict[str, Any]
_log = logging.getLogger(__name__)

LEASE_NAMESPACE: Final = "kube-node-lease"
LEASE_SECONDS: Final = 40
_FIRST_ADDRESS: Final = int(ipaddress.IPv4Address("172.16.0.1"))


def _kind(group: str, plural: str) -> Kind:
    kind = kinds.lookup(group, "v1", plural)
    assert kind is not None
    return kind


NODES: Final = _kind("", "nodes")
NAMESPACES: Final = _kind("", "namespaces")
LEASES: Final = _kind("coordination.k8s.io", "leases")


class VirtualNode:
    """One simulated node."""

    __slots__ = ("allocatable", "internal_ip", "name", "profile", "uid")

    def __init__(self, profile: Profile, name: str, number: int) -> None:
        self.profile = profile
        self.name = name
        self.uid = ""
        self.internal_ip = str(ipaddress.IPv4Address(_FIRST_ADDRESS + number))
        self.allocatable: dict[str, int] = {}

    def adopt(self, node: Obj) -> None:
        """Take over what the stored object says."""
        self.uid = node["metadata"]["uid"]
        status = node.get("status") or {}
        for address in status.get("addresses") or ():
            if address.get("type") == "InternalIP":
                self.internal_ip = address["address"]
        self.allocatable = {
            name: parse_quantity(value).milli() for name, value in (status.get("allocatable") or {}).items()
        }
        self.allocatable.setdefault("pods", self.profile.pods * 1000)


class NodeKeeper:
    """Registers nodes and keeps them fresh."""

    def __init__(
        self,
        client: ApiClient,
        nodes: Sequence[VirtualNode],
        clock: Callable[[], datetime],
        *,
        renew_seconds: float = 10.0,
        report_seconds: float = 300.0,
        concurrency: int = 16,
    ) -> None:
        self._client = client
        self._nodes = nodes
        self._clock = clock
        self._renew_seconds = renew_seconds
        self._report_seconds = report_seconds
        self._slots = asyncio.Semaphore(concurrency)

    # -- registration -------------------------------------------------------------------------------------------------

    async def register(self, registered: Callable[[VirtualNode], None]) -> None:
        """Create the nodes that are missing and adopt the others; tells of each when it is there."""
        async with asyncio.TaskGroup() as group:
            for node in self._nodes:
                group.create_task(self._register(node, registered))

    async def _register(self, node: VirtualNode, registered: Callable[[VirtualNode], None]) -> None:
        delay = 0.2
        while True:
            async with self._slots:
                try:
                    node.adopt(await self._create_or_adopt(node))
                    await self._renew(node)
                    registered(node)
                    return
                except (StatusError, OSError) as error:
                    _log.log(logging.WARNING if delay > 5 else logging.DEBUG, "node %s: %s", node.name, error)
            await asyncio.sleep(delay)
            delay = min(delay * 2, 7.0)

    async def _create_or_adopt(self, node: VirtualNode) -> Obj:
        now = format_time(self._clock())
        wanted = node_object(node.profile, node.name, internal_ip=node.internal_ip, now=now)
        try:
            stored = await self._client.create(NODES, wanted)
        except StatusError as error:
            if error.reason != "AlreadyExists":
                raise
            stored = await self._client.get(NODES, node.name)
            missing = {k: v for k, v in node_labels(node.profile, node.name).items() if labels_of(stored).get(k) != v}
            if missing:
                stored = await self._client.patch(NODES, node.name, {"metadata": {"labels": missing}})
        status = stored.get("status") or {}
        ready = any(c.get("type") == "Ready" and c.get("status") == "True" for c in status.get("conditions") or ())
        same = all(status.get(field) == wanted["status"][field] for field in ("capacity", "allocatable"))
        if ready and same:
            return stored
        fresh = dict(wanted["status"])
        if status.get("addresses"):
            del fresh["addresses"]
        return await self._client.patch(NODES, node.name, {"status": fresh}, type="strategic", subresource="status")

    # -- freshness ----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Renew leases and report statuses until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._rota(self._renew_seconds, self._renew, "lease"), name="node leases")
            group.create_task(self._rota(self._report_seconds, self._report, "status"), name="node statuses")

    async def _rota(self, period: float, work: Callable[[VirtualNode], Awaitable[None]], what: str) -> None:
        """Every node once per period, one after the other at even distances."""
        loop = asyncio.get_running_loop()
        due = loop.time()
        async with asyncio.TaskGroup() as group:
            for node in itertools.cycle(self._nodes):
                due += period / len(self._nodes)
                wait = due - loop.time()
                if wait > 0:
                    await asyncio.sleep(wait)
                elif wait < -period:
                    due = loop.time()  # no burst to make up for lost time
                await self._slots.acquire()
                group.create_task(self._turn(node, work, what))

    async def _turn(self, node: VirtualNode, work: Callable[[VirtualNode], Awaitable[None]], what: str) -> None:
        try:
            if node.uid:
                await work(node)
        except (StatusError, OSError) as error:
            _log.debug("node %s: %s: %s", node.name, what, error)
        except Exception:
            _log.exception("node %s: %s", node.name, what)
        finally:
            self._slots.release()

    async def _report(self, node: VirtualNode) -> None:
        conditions = node_conditions(format_time(self._clock()))
        for condition in conditions:
            del condition["lastTransitionTime"]
        patch = {"metadata": {"uid": node.uid}, "status": {"conditions": conditions}}
        await self._client.patch(NODES, node.name, patch, type="strategic", subresource="status")

    async def _renew(self, node: VirtualNode) -> None:
        now = format_micro_time(self._clock())
        try:
            await self._client.patch(LEASES, node.name, {"spec": {"renewTime": now}}, LEASE_NAMESPACE)
        except StatusError as error:
            if error.code != 404:
                raise
            await self._create_lease(node, now)

    async def _create_lease(self, node: VirtualNode, now: str) -> None:
        about = {"metadata": {"name": node.name, "uid": node.uid}}
        lease = {
            "apiVersion": LEASES.api_version,
            "kind": LEASES.kind,
            "metadata": {
                "name": node.name,
                "namespace": LEASE_NAMESPACE,
                "ownerReferences": [owner_reference(about, NODES, controller=False)],
            },
            "spec": {"holderIdentity": node.name, "leaseDurationSeconds": LEASE_SECONDS, "renewTime": now},
        }
        try:
            await self._client.create(LEASES, lease)
        except StatusError as error:
            if error.code != 404:
                raise
            namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": LEASE_NAMESPACE}}
            await self._client.create(NAMESPACES, namespace)
            await self._client.create(LEASES, lease)
