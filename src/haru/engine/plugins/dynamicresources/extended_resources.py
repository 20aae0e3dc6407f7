"""Serve a pod's extended resources by devices: on each node by a claim of its own, or by none.

A node that advertises a resource serves it itself; for the pod's other resources that a DeviceClass backs, the
scheduler creates a claim. A claim of an earlier attempt or an earlier scheduler is used again; if it is allocated, the
pod is limited to nodes that can use it until the claim is deallocated.
Source: KEP-5004; that an allocated claim is kept is ADR 2's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from haru.engine.dra.extended_resources import (
    ContainerRequest,
    backing_class,
    container_requests,
    device_requests,
    extended_resource_claim,
    request_mappings,
    requested_devices,
)
from haru.engine.plugins.dynamicresources.pod_claims import ClaimUse, consumer
from haru.engine.state.cache import Snapshot
from haru.engine.state.node_info import NodeInfo
from haru.engine.state.pod_info import PodInfo
from haru.kube.meta import Obj, allocation_of


@dataclass(frozen=True, slots=True, eq=False)
class ExtendedResourceDemand:
    """Hold the backed extended resources of a pod, its containers' requests, and an existing claim."""

    pod: PodInfo
    backed: Mapping[str, str]
    requests: tuple[ContainerRequest, ...]
    existing: ClaimUse | None = None
    _uses: dict[frozenset[str], ClaimUse | None] = field(default_factory=dict)

    @property
    def shape(self) -> tuple[str, ...]:
        """Return a key that is equal for demands that no node can tell apart."""
        tied = self.existing.path if self.existing is not None and self.existing.allocation else ""
        return (tied, *(f"{name}={self.backed[name]}" for name in sorted(self.backed)), *map(repr, self.requests))

    def use_on(self, node: NodeInfo) -> ClaimUse | None:
        """Return the existing or new claim for a node; None if the node serves all resources itself."""
        return self._use(frozenset(name for name in self.backed if not node.allocatable.get(name)))

    def widest(self) -> ClaimUse | None:
        """Return the claim for a node that serves none of the resources itself."""
        return self._use(frozenset(self.backed))

    def refuses(self, node: NodeInfo) -> bool:
        """Tell whether the pod has an allocated claim that does not suit this node."""
        existing = self.existing
        return existing is not None and existing.allocation is not None and self.use_on(node) is not existing

    def mappings(self, use: ClaimUse) -> tuple[Obj, ...]:
        """Return which container gets the devices of which request of a claim."""
        asked = {name for name, _, _ in requested_devices(use.claim)}
        return request_mappings(request for request in self.requests if request.name in asked)

    def _use(self, served: frozenset[str]) -> ClaimUse | None:
        if served not in self._uses:
            self._uses[served] = self._made(served)
        return self._uses[served]

    def _made(self, served: frozenset[str]) -> ClaimUse | None:
        requests = device_requests((r for r in self.requests if r.resource in served), self.backed)
        if not requests:
            return None
        claim = extended_resource_claim(self.pod.key, requests)
        if self.existing is not None and requested_devices(self.existing.claim) == requested_devices(claim):
            return self.existing
        path = f"{self.pod.key.namespace}/{claim['metadata']['name']}"
        return ClaimUse(path, claim, consumer(self.pod, None), served)


def extended_resource_demand(snapshot: Snapshot, pod: PodInfo) -> ExtendedResourceDemand | None:
    """Return the pod's demand for backed extended resources; None if it requests none."""
    if not (pod.extended_resources or snapshot.claim_index.extended):
        return None
    backed = backed_resources(snapshot, pod)
    existing = extended_resource_claim_use(snapshot, pod)
    if existing is not None and existing.allocation is not None:
        # The class may be gone or another one by now: what was allocated serves the containers all the same.
        given = {name: class_name for name, class_name, _ in requested_devices(existing.claim)}
        own = container_requests(pod.obj, pod.requests.keys())
        backed |= {request.resource: given[request.name] for request in own if request.name in given}
    if not backed:
        return None
    return ExtendedResourceDemand(pod, backed, tuple(container_requests(pod.obj, backed.keys())), existing)


def backed_resources(snapshot: Snapshot, pod: PodInfo) -> dict[str, str]:
    """Return the pod's extended resources that a DeviceClass backs, with the name of the class."""
    if not pod.extended_resources:
        return {}
    classes, explicit = snapshot.objects("DeviceClass"), snapshot.extended_resources
    found = {resource: backing_class(resource, explicit, classes) for resource in pod.extended_resources}
    return {resource: name for resource, name in found.items() if name and snapshot.partition.has_class(name)}


def extended_resource_claim_use(snapshot: Snapshot, pod: PodInfo) -> ClaimUse | None:
    """Return the existing claim for the pod's extended resources that it can use."""
    paths = snapshot.claim_index.extended.get(pod.key.uid)
    if not paths:
        return None
    recorded = (pod.status.get("extendedResourceClaimStatus") or {}).get("resourceClaimName")
    found = []
    for path in sorted(paths):
        claim = snapshot.claims.get(path)
        if claim is not None and not claim["metadata"].get("deletionTimestamp"):
            allocated = bool(allocation_of(claim))
            rank = (not allocated, claim["metadata"]["name"] != recorded, path)
            found.append((rank, ClaimUse(path, claim, consumer(pod, None))))
    return min(found, key=lambda entry: entry[0])[1] if found else None
