"""The tentative placement of one pod: what it takes of a node, and how an overlay assumes that.

Source: kube-scheduler's Reserve, as behaviour.
"""

from __future__ import annotations

from dataclasses import dataclass

from haru.engine.plugins.dynamicresources.plugin import node_allocatable_use
from haru.engine.plugins.dynamicresources.pod_claims import ClaimUse
from haru.engine.plugins.dynamicresources.prefilter import DeviceDemand
from haru.engine.plugins.volumebinding.late_binding import assume_volumes
from haru.engine.state.overlay import Overlay
from haru.engine.state.pod_info import PodInfo
from haru.kube.meta import Obj


@dataclass(slots=True, unsafe_hash=True)
class Placed:
    """Hold a pod's tentative placement: the node, the new allocations, and the allocated claims. Never changed.

    `extended_claim` is the claim for its extended resources on that node, new or existing; `claimed` are the node
    resources that its devices take (KEP-5517).
    """

    pod: PodInfo
    demand: DeviceDemand
    node: str
    allocations: tuple[tuple[ClaimUse, Obj], ...]
    joined: tuple[ClaimUse, ...]
    extended_claim: ClaimUse | None = None
    claimed: tuple[Obj, ...] = ()


def placement_on(
    overlay: Overlay, pod: PodInfo, demand: DeviceDemand, node: str, allocations: tuple[tuple[ClaimUse, Obj], ...]
) -> Placed:
    """Describe the placement of a pod on a node with these new allocations; nothing is assumed yet."""
    if demand.extended is None and not demand.counts_devices and len(demand.uses) == len(demand.pending):
        return Placed(pod, demand, node, allocations, ())
    info = overlay.node(node)
    extended_claim = demand.extended_claim_on(info)
    fresh = {use.path for use, _ in allocations}
    uses = demand.uses if extended_claim is None else (*demand.uses, extended_claim)
    joined = tuple(use for use in uses if use.path not in fresh and not use.is_reserved)
    claimed = node_allocatable_use(overlay, pod, demand, info, allocations)
    return Placed(pod, demand, node, allocations, joined, extended_claim, claimed)


def assume(overlay: Overlay, placed: Placed, *, local: bool = False) -> Placed:
    """Assume a placement in the overlay: node, devices (`local`: only that node sees them), reservations, volumes."""
    demand, extended_claim = placed.demand, placed.extended_claim
    overlay.place(placed.pod, placed.node, placed.claimed)
    for use, allocation in placed.allocations:
        overlay.allocate(use.path, allocation, placed.node if local else None)
    for use in demand.uses if extended_claim is None else (*demand.uses, extended_claim):
        if not use.is_reserved or demand.counts_devices:
            overlay.reserve(use.path, use.consumer)
    if placed.pod.volume_claims:
        assume_volumes(overlay, placed.pod, placed.node)
    return placed
