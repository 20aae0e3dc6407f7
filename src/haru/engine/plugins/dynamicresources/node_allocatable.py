"""Count what a pod's devices use of their node's resources, and check that the node has that much left (KEP-5517).

Amounts are added to what the pod requests; what the pod's own level requests bounds both together. They count on the
node as long as the pod is there. The claims of such devices cannot be shared between pods.
Source: KEP-5517 (DRANodeAllocatableResources, alpha in 1.36); messages are kube-scheduler's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from haru.engine.dra.node_mappings import mapped_amounts
from haru.engine.framework.interfaces import PASS
from haru.engine.framework.status import FilterFailure, refuse
from haru.engine.plugins.dynamicresources.pod_claims import ClaimUse, claim_name
from haru.engine.plugins.dynamicresources.prefilter import PLUGIN, DeviceDemand
from haru.engine.state.decision import Obj
from haru.engine.state.node_info import NodeInfo
from haru.engine.state.overlay import Overlay
from haru.engine.state.pod_info import PodInfo, amount
from haru.kube.resources import claimed_resources, pod_requests

NewAllocations = Sequence[tuple[ClaimUse, Obj]]
_NODE_RESOURCES = ("cpu", "memory", "ephemeral-storage")


def node_allocatable_use(
    overlay: Overlay, pod: PodInfo, demand: DeviceDemand, node: NodeInfo, fresh: NewAllocations
) -> tuple[Obj, ...]:
    """Return `status.nodeAllocatableResourceClaimStatuses` for a pod on a node, sorted by claim.

    `fresh` are its claims that are allocated with this placement. Raises AllocationError.
    """
    if not demand.counts_devices:
        return ()
    entries = []
    for use, allocation in (*_allocated(demand, node), *fresh):
        amounts = mapped_amounts(overlay.snapshot.devices, use.path, allocation)
        if amounts:
            entries.append(
                {
                    "resourceClaimName": use.claim["metadata"]["name"],
                    "containers": list(_containers(pod, demand, use)),
                    "resources": {name: str(amounts[name]) for name in sorted(amounts)},
                }
            )
    return tuple(sorted(entries, key=lambda entry: str(entry["resourceClaimName"])))


def insufficient_node_resources(pod: PodInfo, node: NodeInfo, claimed: tuple[Obj, ...]) -> Sequence[FilterFailure]:
    """Return why a node cannot take a pod whose devices use this much of it."""
    for entry in claimed:
        if not entry["containers"]:
            name = entry["resourceClaimName"]
            message = f"claim {name}: node-allocatable resource claim not referenced by any container within the pod"
            return (refuse(PLUGIN, "ClaimUnreferenced", message, {"claim": f"{pod.key.namespace}/{name}"}),)
    if claimed and (failure := _beyond_pod_level(pod, claimed)) is not None:
        return (failure,)
    failures: list[FilterFailure] = []
    for name, asked in sorted(pod.bound_to(node.name, claimed).usage.items()):
        allocatable, used = node.allocatable.get(name, 0), node.requested.get(name, 0)
        if _is_node_resource(name) and asked > allocatable - used:
            data = {"resource": name, "requested": asked, "used": used, "allocatable": allocatable}
            possible = asked <= allocatable
            failures.append(refuse(PLUGIN, "InsufficientResource", f"Insufficient {name}", data, resolvable=possible))
    return failures or PASS


def _allocated(demand: DeviceDemand, node: NodeInfo) -> Iterator[tuple[ClaimUse, Obj]]:
    fixed = dict(demand.fixed)
    for use in demand.uses:
        if use.path in fixed:
            yield use, fixed[use.path]
    extended_claim = demand.extended_claim_on(node)
    if extended_claim is not None and extended_claim.allocation is not None:
        yield extended_claim, extended_claim.allocation


def _containers(pod: PodInfo, demand: DeviceDemand, use: ClaimUse) -> Iterator[str]:
    """Yield the containers that use a claim, init containers first."""
    if demand.extended is not None and use.path not in {other.path for other in demand.uses}:
        yield from dict.fromkeys(str(entry["containerName"]) for entry in demand.extended.mappings(use))
        return
    names = {entry.name for entry in pod.claims if claim_name(pod, entry) == use.claim["metadata"]["name"]}
    for container in [*(pod.spec.get("initContainers") or ()), *(pod.spec.get("containers") or ())]:
        if any(c.get("name") in names for c in (container.get("resources") or {}).get("claims") or ()):
            yield container["name"]


def _beyond_pod_level(pod: PodInfo, claimed: tuple[Obj, ...]) -> FilterFailure | None:
    bounds = (pod.spec.get("resources") or {}).get("requests") or {}
    if not bounds:
        return None
    own = {key: value for key, value in pod.spec.items() if key != "resources"}
    containers = pod_requests({**pod.obj, "spec": own})
    devices = claimed_resources({"spec": own}, claimed)
    for name in sorted(bounds):
        asked = sum(amount(name, part[name]) for part in (containers, devices) if name in part)
        if asked > pod.requests.get(name, 0):
            message = (
                f"pod level request for {name} is insufficient to cover the aggregated container and node-allocatable "
                "DRA requests"
            )
            data = {"resource": name, "requested": asked, "podLevel": pod.requests.get(name, 0)}
            return refuse(PLUGIN, "PodLevelExceeded", message, data)
    return None


def _is_node_resource(name: str) -> bool:
    return name in _NODE_RESOURCES or name.startswith("hugepages-")
