"""endpointslice-controller: keeps the EndpointSlices of every Service that selects pods.

Source: discovery.k8s.io/v1 EndpointSlice (KEP-752), kube-controller-manager's endpointslice-controller.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from haru.controllers.base import Context
from haru.controllers.objects import ENDPOINT_SLICES, NODES, PODS, SERVICES, by_node
from haru.controllers.service_pods import (
    HEADLESS,
    MANAGED_BY,
    SERVICE_NAME,
    TRIGGER,
    is_headless,
    selector_of,
)
from haru.controllers.service_triggers import ServiceFollower
from haru.controllers.slice_plan import Group, plan, wanted_of
from haru.kube.kinds import Kind
from haru.kube.meta import (
    Obj,
    annotations_of,
    is_being_deleted,
    labels_of,
    name_of,
    namespace_of,
    node_of,
    owner_reference,
)

CONTROLLER = "endpointslice-controller.k8s.io"
_ZONE = "topology.kubernetes.io/zone"


class EndpointSliceController(ServiceFollower):
    """One key is one Service."""

    name: ClassVar[str] = "endpointslice-controller"
    needs: ClassVar[tuple[Kind, ...]] = (SERVICES, PODS, NODES, ENDPOINT_SLICES)

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.nodes = self.informer(NODES)
        self.slices = self.informer(ENDPOINT_SLICES)
        self.slices.add_index("service", _service_of)
        self.slices.add_handler(self._slice_changed, lambda _, new: self._slice_changed(new), self._slice_changed)
        self.pods.add_index("node", by_node)
        self.nodes.add_handler(self._node_changed, self._node_updated)

    def _slice_changed(self, endpoint_slice: Obj) -> None:
        for key in _service_of(endpoint_slice):
            self.queue.add(key)

    def _node_changed(self, node: Obj) -> None:
        """A node that is heard of after its pods: its zone was not known."""
        for pod in self.pods.by_index("node", name_of(node)):
            self._pod_changed(pod)

    def _node_updated(self, old: Obj, new: Obj) -> None:
        if _zone_of(old) != _zone_of(new):
            self._node_changed(new)

    async def sync(self, key: str) -> float | None:
        """Bring the slices of one Service into line; those of a Service that is gone are the garbage collector's."""
        namespace, _, name = key.partition("/")
        service = self.services.get(name, namespace)
        if service is None or selector_of(service) is None or is_being_deleted(service):
            return None
        pods = self.pods_of(service)
        zones = {node: self._zone(node) for node in {node_of(pod) for pod in pods}}
        existing = [each for each in self.slices.by_index("service", key) if not is_being_deleted(each)]
        found = plan(existing, wanted_of(service, pods, zones))
        labels, trigger = _labels(service), self.change_times.since_last(service, pods)
        for group, endpoints in found.create:
            metadata: Obj = {"generateName": f"{name}-", "namespace": namespace}
            metadata["ownerReferences"] = [owner_reference(service, SERVICES)]
            made = {"apiVersion": ENDPOINT_SLICES.api_version, "kind": ENDPOINT_SLICES.kind, "metadata": metadata}
            await self.create(self.slices, _with(made, group, endpoints, labels, trigger))
        changes = [*found.change, *((each, None, None) for each in found.keep if labels_of(each) != labels)]
        for each, group_or_none, endpoints_or_none in changes:
            await self.update(self.slices, _with(each, group_or_none, endpoints_or_none, labels, trigger))
        for each in found.remove:
            await self.delete(self.slices, each)
        return None

    def _zone(self, name: str) -> str:
        node = self.nodes.get(name) if name else None
        return "" if node is None else _zone_of(node)


def _with(
    endpoint_slice: Obj, group: Group | None, endpoints: list[Obj] | None, labels: dict[str, str], trigger: str
) -> Obj:
    """The slice with these endpoints, if any are given, and the labels of its Service."""
    metadata = {**endpoint_slice["metadata"], "labels": labels}
    annotations = {key: value for key, value in annotations_of(endpoint_slice).items() if key != TRIGGER}
    metadata["annotations"] = {**annotations, TRIGGER: trigger} if trigger else annotations
    made = {**endpoint_slice, "metadata": metadata}
    if group is not None:
        made["addressType"], ports = group
        made["ports"], made["endpoints"] = [port.told() for port in ports], endpoints
    return made


def _labels(service: Obj) -> dict[str, str]:
    reserved = (SERVICE_NAME, MANAGED_BY, HEADLESS)
    found = {key: value for key, value in labels_of(service).items() if key not in reserved}
    if is_headless(service):
        found[HEADLESS] = ""
    return {**found, SERVICE_NAME: name_of(service), MANAGED_BY: CONTROLLER}


def _service_of(endpoint_slice: Obj) -> Iterable[str]:
    labels = labels_of(endpoint_slice)
    ours = labels.get(MANAGED_BY) == CONTROLLER and labels.get(SERVICE_NAME)
    return [f"{namespace_of(endpoint_slice)}/{labels[SERVICE_NAME]}"] if ours else []


def _zone_of(node: Obj) -> str:
    return labels_of(node).get(_ZONE, "")
