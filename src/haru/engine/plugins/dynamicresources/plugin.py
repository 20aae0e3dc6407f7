"""DynamicResources: score nodes by lists of alternatives, and check what devices use of their node's resources.

The filter itself is the allocator. Amounts of devices that use their node's resources are added to what the pod
requests; what the pod's own level requests bounds both together. They count on the node as long as the pod is there.
The claims of such devices cannot be shared between pods.
Source: kube-scheduler 1.36's DynamicResources plugin and the validation of its arguments, as behaviour; KEP-4816 (lists
of alternatives), KEP-5517 (DRANodeAllocatableResources, alpha in 1.36).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from haru.engine.dra.model.claims import Claim, SubRequest
from haru.engine.dra.node_mappings import mapped_amounts
from haru.engine.framework.arguments import Arguments
from haru.engine.framework.cluster_event import ClusterEvent
from haru.engine.framework.interfaces import PASS, FilterFailure, NodeScorer, Scorer, normalised, refuse
from haru.engine.framework.profile import Profile
from haru.engine.plugins.dynamicresources.pod_claims import ClaimUse, claim_name
from haru.engine.plugins.dynamicresources.prefilter import PLUGIN, DeviceDemand
from haru.engine.plugins.score_request import ScoreRequest
from haru.engine.state.node_info import NodeInfo
from haru.engine.state.overlay import Overlay
from haru.engine.state.pod_info import PodInfo
from haru.engine.state.pod_values import amount
from haru.kube.errors import invalid
from haru.kube.meta import Obj
from haru.kube.resources import claimed_resources, pod_requests

NewAllocations = Sequence[tuple[ClaimUse, Obj]]
_NOT_MADE_YET = "<extended-resources>"
"""How messages name the claim that is to be made for extended resources."""
_ALTERNATIVES = 8
_NODE_RESOURCES = ("cpu", "memory", "ephemeral-storage")


def prioritized_score(results: Iterable[Obj], claims: Iterable[Obj]) -> int:
    """The sum, over requests with alternatives, of 8 less the index of the chosen one.

    `results` are allocations and `claims` the claims that they belong to, pairwise; a pod that mixes new claims with
    allocated ones passes each pair that the node's answer contains.
    """
    return sum(_score(result, claim) for result, claim in zip(results, claims, strict=True))


def _score(allocation: Obj, claim: Obj) -> int:
    requests = ((claim.get("spec") or {}).get("devices") or {}).get("requests") or ()
    order: Mapping[str, int] = {
        f"{request.get('name')}/{alternative.get('name')}": index
        for request in requests
        for index, alternative in enumerate(request.get("firstAvailable") or ())
    }
    chosen = {result.get("request") for result in (allocation.get("devices") or {}).get("results") or ()}
    return sum(_ALTERNATIVES - order[name] for name in chosen if name in order)


def chosen_score(claims: Iterable[Claim], asks: Iterable[Sequence[SubRequest]]) -> int:
    """The same score, of claims as decoded and the alternative that was chosen for each of their requests."""
    return sum(
        _ALTERNATIVES - next(index for index, ask in enumerate(request.asks) if ask is chosen)
        for claim, of_claim in zip(claims, asks, strict=True)
        for request, chosen in zip(claim.requests, of_claim, strict=True)
        if request.prioritized
    )


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
        told = _NOT_MADE_YET if use.made_for else use.claim["metadata"]["name"]
        amounts = mapped_amounts(overlay.snapshot.devices, f"{pod.key.namespace}/{told}", allocation)
        if amounts:
            entries.append(
                {
                    "resourceClaimName": told,
                    "containers": list(_containers(pod, use)),
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


def _containers(pod: PodInfo, use: ClaimUse) -> Iterator[str]:
    """Yield the containers that name a claim, init containers first; none names the one behind extended resources."""
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


class DynamicResourcesScore(NodeScorer):
    """DynamicResources: how far up their lists of alternatives the claims are served; the key is that number."""

    def __init__(self, weight: int) -> None:
        self.weight = weight

    def key(self, node: NodeInfo) -> int:
        """Nothing is seen of the node itself."""
        del node
        return 0

    def scores(self, keys: Sequence[int], sizes: Sequence[int]) -> list[int]:
        """Relative to the best."""
        del sizes
        return normalised(keys)


class DynamicResources:
    """Refuse and score nodes by devices for claims.

    The filter is the allocator (`haru.engine.dra.allocator`), asked after all other filters.
    """

    name = "DynamicResources"
    events = frozenset(
        {
            ClusterEvent.NODE_ADD,
            ClusterEvent.NODE_ALLOCATABLE,
            ClusterEvent.NODE_LABEL,
            ClusterEvent.POD_NOMINATION,
            ClusterEvent.DEVICES,
            ClusterEvent.DEVICE_CLASS,
        }
    )

    def scorer(self, request: ScoreRequest) -> Scorer | None:
        """Make the scorer, also where the weight is 0: keys begin with its part."""
        return DynamicResourcesScore(request.profile.weight(self.name))

    def read_arguments(self, arguments: Arguments, profile: Profile) -> Profile:
        """Read how long conditions of devices are waited for; steps bound the search for devices, not time."""
        if arguments.seconds("filterTimeout", 10.0) < 0:
            arguments.findings.append(invalid(arguments.at("filterTimeout"), "", "must be zero or positive"))
        timeout = arguments.seconds("bindingTimeout", 600.0)
        if timeout < 1:
            arguments.findings.append(invalid(arguments.at("bindingTimeout"), "", "must be at least 1 second"))
        return replace(profile, device_timeout=timeout)
