"""endpoints-controller: keeps the Endpoints of every Service that selects pods.

EndpointSlices have taken their place since; older clients read them still.
Source: core/v1 Endpoints, kube-controller-manager's endpoints-controller.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from typing import ClassVar

from haru.client.informer import object_key
from haru.controllers.base import Context
from haru.controllers.objects import ENDPOINTS, PODS, SERVICES, is_ready
from haru.controllers.service_pods import (
    HEADLESS,
    TRIGGER,
    Port,
    address_of,
    families_of,
    hostname_of,
    is_headless,
    may_serve,
    ports_of,
    publishes_unready,
    reference_to,
    selector_of,
)
from haru.controllers.service_triggers import ServiceFollower
from haru.kube.kinds import Kind
from haru.kube.meta import Obj, annotations_of, is_being_deleted, labels_of, name_of, namespace_of, node_of

MOST = 1000
"""Addresses of one object; more are cut off, and that is said."""
_OVER = "endpoints.kubernetes.io/over-capacity"
_MANAGED_BY = "endpoints.kubernetes.io/managed-by"
_CONTROLLER = "endpoint-controller"
_LEADER = "control-plane.alpha.kubernetes.io/leader"

_Groups = dict[tuple[Port, ...], tuple[list[Obj], list[Obj]]]
"""By ports: the addresses of those that are ready, and of those that are not."""


class EndpointsController(ServiceFollower):
    """One key is one Service, and the Endpoints of its name."""

    name: ClassVar[str] = "endpoints-controller"
    needs: ClassVar[tuple[Kind, ...]] = (SERVICES, PODS, ENDPOINTS)

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.endpoints = self.informer(ENDPOINTS)
        self.endpoints.add_handler(self._noted, lambda _, new: self._noted(new), self._noted)
        self._orphaned: set[str] = set()

    def _noted(self, endpoints: Obj) -> None:
        if _is_ours(endpoints):
            self.queue.add(object_key(endpoints))

    def service_gone(self, service: Obj) -> None:
        """A Service was deleted, and what is written down of it is nobody's."""
        self._orphaned.add(object_key(service))
        super().service_gone(service)

    async def sync(self, key: str) -> float | None:
        """Bring the Endpoints of one Service into line; they go with it, whoever has written them."""
        namespace, _, name = key.partition("/")
        service, known = self.services.get(name, namespace), self.endpoints.get(name, namespace)
        if service is None:
            # What somebody writes before there is a Service of that name is his.
            if (
                known is not None
                and (key in self._orphaned or _is_ours(known))
                and _LEADER not in annotations_of(known)
            ):
                await self.delete(self.endpoints, known)
            self._orphaned.discard(key)
        elif selector_of(service) is not None and not is_being_deleted(service):
            await self._write(service, known)
        return None

    async def _write(self, service: Obj, known: Obj | None) -> None:
        pods = self.pods_of(service)
        subsets, is_cut = subsets_of(service, pods)
        labels, over = _labels(service), {_OVER: "truncated"} if is_cut else {}
        trigger = self.change_times.since_last(service, pods)
        before = {} if known is None else annotations_of(known)
        stands = known is not None and (known.get("subsets") or [], labels_of(known)) == (subsets, labels)
        if stands and over.get(_OVER) == before.get(_OVER):
            return
        annotations = {key: value for key, value in before.items() if key not in (_OVER, TRIGGER)} | over
        if trigger:
            annotations[TRIGGER] = trigger
        told: Obj = {"apiVersion": ENDPOINTS.api_version, "kind": ENDPOINTS.kind, "subsets": subsets}
        named = {"name": name_of(service), "namespace": namespace_of(service)}
        metadata = {**(named if known is None else known["metadata"]), "labels": labels, "annotations": annotations}
        write = self.create if known is None else self.update
        await write(self.endpoints, {**told, "metadata": metadata})


def _is_ours(endpoints: Obj) -> bool:
    return labels_of(endpoints).get(_MANAGED_BY) == _CONTROLLER


def _labels(service: Obj) -> dict[str, str]:
    found = {key: value for key, value in labels_of(service).items() if key != HEADLESS}
    if is_headless(service):
        found[HEADLESS] = ""
    return {**found, _MANAGED_BY: _CONTROLLER}


def subsets_of(service: Obj, pods: Iterable[Obj]) -> tuple[list[Obj], bool]:
    """The subsets of a Service's Endpoints, and whether some addresses had to be left out.

    Addresses with the same ports share a subset; all is in the order of ports and addresses.
    """
    family = families_of(service)[0]
    groups: _Groups = {}
    has_ports = bool((service.get("spec") or {}).get("ports"))
    for pod in pods:
        address = address_of(pod, family)
        if not address or not may_serve(pod, terminating=publishes_unready(service)):
            continue
        ports = ports_of(service, pod)
        if ports or not has_ports:
            group = groups.setdefault(ports, ([], []))
            is_up = publishes_unready(service) or is_ready(pod)
            group[0 if is_up else 1].append(_address(service, pod, address))
    groups, is_cut = _cut(groups)
    found: list[Obj] = []
    for ports in sorted(groups):
        named = zip(("addresses", "notReadyAddresses"), groups[ports], strict=True)
        subset: Obj = {name: sorted(addresses, key=_order) for name, addresses in named if addresses}
        if ports:
            subset["ports"] = [_told(port) for port in ports]
        found.append(subset)
    return found, is_cut


def _cut(groups: _Groups) -> tuple[_Groups, bool]:
    """At most so many addresses, those that are ready first."""
    if sum(len(each) for group in groups.values() for each in group) <= MOST:
        return groups, False
    room = MOST
    kept: _Groups = {ports: ([], []) for ports in groups}
    for which in (0, 1):
        for ports in sorted(groups):
            addresses = sorted(groups[ports][which], key=_order)[:room]
            kept[ports][which].extend(addresses)
            room -= len(addresses)
    return {ports: group for ports, group in kept.items() if any(group)}, True


def _address(service: Obj, pod: Obj, address: str) -> Obj:
    made: Obj = {"ip": address}
    if hostname := hostname_of(service, pod):
        made["hostname"] = hostname
    if node := node_of(pod):
        made["nodeName"] = node
    return {**made, "targetRef": reference_to(pod)}


def _order(address: Obj) -> tuple[int, int, str]:
    ip = ipaddress.ip_address(address["ip"])
    return ip.version, int(ip), name_of({"metadata": address["targetRef"]})


def _told(port: Port) -> Obj:
    told = port.told()
    return told if port.name else {name: value for name, value in told.items() if name != "name"}
