"""Filter one node for a pod: run the filter plugins and allocate devices for the pod's claims.

Source: kube-scheduler's Filter extension point, DynamicResources included.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from haru.engine.dra.allocator.allocation import CANNOT_ALLOCATE, DoesNotFit, allocate
from haru.engine.dra.model.claims import Claim, decode_claims
from haru.engine.dra.model.model import NodeView
from haru.engine.dra.scoring.prioritized_list import prioritized_score
from haru.engine.framework.filter_plan import FilterPlan, make_filter_plan
from haru.engine.framework.interfaces import FilterRequest, NodeFilter
from haru.engine.framework.options import Options
from haru.engine.framework.status import FilterFailure, refuse
from haru.engine.plugins.dynamicresources.pod_claims import ClaimUse
from haru.engine.plugins.dynamicresources.prefilter import PLUGIN, DeviceDemand
from haru.engine.state.decision import Obj
from haru.engine.state.node_info import NodeInfo
from haru.engine.state.overlay import Overlay
from haru.engine.state.pod_info import PodInfo

_MAX_CLAIMS = 65_536


class Decoder:
    """Decode claims for the allocator once and reuse them for many nodes."""

    def __init__(self, overlay: Overlay, options: Options) -> None:
        self._overlay = overlay
        self._options = options
        self._cache = overlay.snapshot.decision_cache.scope()

    def claims(self, uses: Sequence[ClaimUse]) -> tuple[Claim, ...]:
        """Return the decoded claims of these uses."""
        key = tuple((use.path, use.made_for) for use in uses)
        compute = partial(decoded_claims, self._overlay, self._options, uses)
        return self._cache.get_or_compute("claims", key, compute, _MAX_CLAIMS)


def filters_for_all_passes(
    overlay: Overlay, pod: PodInfo, demand: DeviceDemand, options: Options, sole_use: NodeFilter | None = None
) -> FilterPlan:
    """Build the filter plan for a pod; a PreFilter rejection in any pass rejects the pod."""
    plans = [
        make_filter_plan(
            FilterRequest(
                state.snapshot, pod, options.profile, demand.backed, options.gates.declared_features, sole_use
            )
        )
        for state in overlay.passes
    ]
    rejections = [plan.rejection for plan in plans if plan.rejection is not None]
    return replace(plans[0], rejection=rejections[0] if rejections else None)


def decoded_claims(overlay: Overlay, options: Options, uses: Sequence[ClaimUse]) -> tuple[Claim, ...]:
    """Decode claims for the allocator."""
    return decode_claims([use.claim for use in uses], overlay.snapshot.devices.classes, options.features)


def allocate_on(
    overlay: Overlay, options: Options, node: NodeInfo, claims: Sequence[Claim]
) -> tuple[Obj, ...] | FilterFailure:
    """Allocate devices for claims on a node in the overlay's state. Raises AllocationError and GaveUp."""
    answer = allocate(
        overlay.snapshot.devices,
        overlay.allocated,
        NodeView(node.name, node.labels),
        claims,
        options.features,
        new_share_id=options.new_share_id,
        step_budget=options.budgets.step_budget,
        scoring=options.profile.packing,
    )
    return unavailable(answer) if isinstance(answer, DoesNotFit) else answer.results


def unavailable(answer: DoesNotFit) -> FilterFailure:
    """Build the filter failure of a node that lacks the devices."""
    why = [{"type": r.type, "message": r.message, **r.data} for r in answer.reasons]
    return refuse(PLUGIN, "DevicesUnavailable", CANNOT_ALLOCATE, {"why": why} if why else {})


def preference(demand: DeviceDemand, node: NodeInfo, allocations: Sequence[Obj]) -> int:
    """Score how early in their lists of alternatives the claims are served (KEP-4816)."""
    fixed = dict(demand.fixed)
    claims = [use.claim for use in demand.uses if use.path in fixed] + [use.claim for use in demand.pending_on(node)]
    return prioritized_score([*fixed.values(), *allocations], claims)
