"""One node asked whether it takes a pod: its filters, and devices for the claims as the allocator finds them."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace

from haru.engine.decision import Obj
from haru.engine.devices import (
    Claim,
    DoesNotFit,
    NodeView,
    allocate,
    decode_claims,
    prioritized_score,
)
from haru.engine.devices.allocate import CANNOT_ALLOCATE
from haru.engine.groups.claims import ClaimUse
from haru.engine.groups.demand import PLUGIN, Demand
from haru.engine.groups.options import Options
from haru.engine.nodeinfo import NodeInfo
from haru.engine.nodes.basic import NodeFilter
from haru.engine.nodes.failure import Failure, refuse
from haru.engine.nodes.plan import NodePlan, make_plan
from haru.engine.overlay import Overlay
from haru.engine.pods import PodInfo


class Decoder:
    """Claims as the allocator takes them, decoded once for many nodes."""

    def __init__(self, overlay: Overlay, options: Options) -> None:
        self._overlay = overlay
        self._options = options
        self._known: dict[Hashable, tuple[Claim, ...]] = {}

    def claims(self, uses: Sequence[ClaimUse]) -> tuple[Claim, ...]:
        """What these claims ask for."""
        key = tuple((use.path, use.made_for) for use in uses)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = decoded_claims(self._overlay, self._options, uses)
        return found


def lasting_plan(
    overlay: Overlay, pod: PodInfo, demand: Demand, options: Options, sole_use: NodeFilter | None = None
) -> NodePlan:
    """What is asked of a node for the pod; what rejects it at any moment rejects it."""
    plans = [
        make_plan(
            moment.snapshot,
            pod,
            demand.backed,
            options.profile,
            declared_features=options.declared_features,
            sole_use=sole_use,
        )
        for moment in overlay.moments
    ]
    rejections = [plan.rejection for plan in plans if plan.rejection is not None]
    return replace(plans[0], rejection=rejections[0] if rejections else None)


def decoded_claims(overlay: Overlay, options: Options, uses: Sequence[ClaimUse]) -> tuple[Claim, ...]:
    """Claims as the allocator takes them."""
    return decode_claims([use.claim for use in uses], overlay.snapshot.devices.classes, options.features)


def allocate_on(
    overlay: Overlay, options: Options, node: NodeInfo, claims: Sequence[Claim]
) -> tuple[Obj, ...] | Failure:
    """Devices for claims on a node as things stand. Raises AllocationError and GaveUp."""
    answer = allocate(
        overlay.snapshot.devices,
        overlay.allocated,
        NodeView(node.name, node.labels),
        claims,
        options.features,
        new_share_id=options.new_share_id,
        step_budget=options.step_budget,
        scoring=options.profile.packing,
    )
    return unavailable(answer) if isinstance(answer, DoesNotFit) else answer.results


def unavailable(answer: DoesNotFit) -> Failure:
    """How a node says that it has not the devices."""
    why = [{"type": r.type, "message": r.message, **r.data} for r in answer.reasons]
    return refuse(PLUGIN, "DevicesUnavailable", CANNOT_ALLOCATE, {"why": why} if why else {})


def preference(demand: Demand, node: NodeInfo, allocations: Sequence[Obj]) -> int:
    """How far up their lists of alternatives the claims are served (KEP-4816)."""
    fixed = dict(demand.fixed)
    claims = [use.claim for use in demand.uses if use.path in fixed] + [use.claim for use in demand.pending_on(node)]
    return prioritized_score([*fixed.values(), *allocations], claims)
