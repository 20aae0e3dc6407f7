"""endpointslice-mirroring-controller: EndpointSlices beside Endpoints that somebody writes himself.

Source: discovery.k8s.io/v1 EndpointSlice (KEP-1904), kube-controller-manager's endpointslice-mirroring-controller.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import ClassVar

from haru.controllers.base import Context, Controller
from haru.controllers.objects import ENDPOINT_SLICES, ENDPOINTS, SERVICES
from haru.controllers.service_pods import HEADLESS, MANAGED_BY, SERVICE_NAME, TRIGGER, Port, family_of, selector_of
from haru.controllers.slice_plan import Group, plan
from haru.kube.kinds import Kind
from haru.kube.meta import Obj, annotations_of, is_being_deleted, labels_of, name_of, namespace_of, owner_reference

CONTROLLER = "endpointslicemirroring-controller.k8s.io"
MOST = 1000
"""Addresses of a subset that are mirrored (`--mirroring-max-endpoints-per-subset`)."""
_SKIP = "endpointslice.kubernetes.io/skip-mirror"
_LEADER = "control-plane.alpha.kubernetes.io/leader"
_UNTOLD = (TRIGGER, "kubectl.kubernetes.io/last-applied-configuration")


class EndpointSliceMirroringController(Controller):
    """One key is that of Endpoints and of their Service, which has no selector."""

    name: ClassVar[str] = "endpointslice-mirroring-controller"
    needs: ClassVar[tuple[Kind, ...]] = (SERVICES, ENDPOINTS, ENDPOINT_SLICES)

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.services = self.informer(SERVICES)
        self.endpoints = self.informer(ENDPOINTS)
        self.slices = self.informer(ENDPOINT_SLICES)
        self.slices.add_index("mirrored", _mirrored)
        for informer in (self.services, self.endpoints):
            informer.add_handler(self.enqueue, lambda _, new: self.enqueue(new), self.enqueue)
        self.slices.add_handler(self._slice_changed, lambda _, new: self._slice_changed(new), self._slice_changed)

    def _slice_changed(self, endpoint_slice: Obj) -> None:
        for key in _mirrored(endpoint_slice):
            self.queue.add(key)

    async def sync(self, key: str) -> float | None:
        """Bring the mirrored slices of one Service into line; without Endpoints to mirror there are none."""
        namespace, _, name = key.partition("/")
        service, endpoints = self.services.get(name, namespace), self.endpoints.get(name, namespace)
        existing = [each for each in self.slices.by_index("mirrored", key) if not is_being_deleted(each)]
        mirrors = service is not None and endpoints is not None and _is_mirrored(service, endpoints)
        if not mirrors or endpoints is None:
            for each in existing:
                await self.delete(self.slices, each)
            return None
        found = plan(existing, wanted_of(endpoints))
        metadata: Obj = {"generateName": f"{name}-", "namespace": namespace}
        metadata["ownerReferences"] = [owner_reference(endpoints, ENDPOINTS)]
        new = {"apiVersion": ENDPOINT_SLICES.api_version, "kind": ENDPOINT_SLICES.kind, "metadata": metadata}
        for group, told in found.create:
            await self.create(self.slices, _with(new, endpoints, group, told))
        for known, group, told in found.change:
            await self.update(self.slices, _with(known, endpoints, group, told))
        for known in found.keep:
            if labels_of(known) != _labels(endpoints):
                await self.update(self.slices, _with(known, endpoints))
        for known in found.remove:
            await self.delete(self.slices, known)
        return None


def wanted_of(endpoints: Obj) -> Mapping[Group, list[Obj]]:
    """The addresses of Endpoints by their family and ports."""
    found: dict[Group, list[Obj]] = {}
    for subset in endpoints.get("subsets") or ():
        ports = tuple(sorted(map(_port, subset.get("ports") or ())))
        told = [(each, True) for each in subset.get("addresses") or ()]
        told += [(each, False) for each in subset.get("notReadyAddresses") or ()]
        for address, ready in told[:MOST]:
            family = family_of(address["ip"])
            if family:
                found.setdefault((family, ports), []).append(_endpoint(address, ready))
    return found


def _port(port: Obj) -> Port:
    return Port(port.get("name") or "", port["port"], port.get("protocol") or "TCP", port.get("appProtocol") or "")


def _endpoint(address: Obj, ready: bool) -> Obj:
    told = {name: address[name] for name in ("hostname", "nodeName", "targetRef") if address.get(name)}
    return {"addresses": [address["ip"]], "conditions": {"ready": ready}, **told}


def _with(known: Obj, endpoints: Obj, group: Group | None = None, told: list[Obj] | None = None) -> Obj:
    annotations = {key: value for key, value in annotations_of(endpoints).items() if key not in _UNTOLD}
    metadata = {**known["metadata"], "labels": _labels(endpoints), "annotations": annotations or None}
    made = {**known, "metadata": metadata}
    if group is not None:
        made["addressType"], ports = group
        made["ports"], made["endpoints"] = [port.told() for port in ports], told
    return made


def _labels(endpoints: Obj) -> dict[str, str]:
    own = {key: value for key, value in labels_of(endpoints).items() if key not in (SERVICE_NAME, MANAGED_BY, HEADLESS)}
    return {**own, SERVICE_NAME: name_of(endpoints), MANAGED_BY: CONTROLLER}


def _is_mirrored(service: Obj, endpoints: Obj) -> bool:
    spec = service.get("spec") or {}
    if spec.get("type") == "ExternalName" or selector_of(service) is not None or is_being_deleted(endpoints):
        return False
    return labels_of(endpoints).get(_SKIP) != "true" and _LEADER not in annotations_of(endpoints)


def _mirrored(endpoint_slice: Obj) -> Iterable[str]:
    labels = labels_of(endpoint_slice)
    ours = labels.get(MANAGED_BY) == CONTROLLER and labels.get(SERVICE_NAME)
    return [f"{namespace_of(endpoint_slice)}/{labels[SERVICE_NAME]}"] if ours else []
