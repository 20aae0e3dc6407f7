"""Filter one node for a pod: make the filters once per pod shape, ask them per node, and allocate devices for claims.

The filters are all plugins of the profile in kube-scheduler's order; the first that refuses a node says why.
PodTopologySpread and InterPodAffinity depend on where every other pod is, so they follow the overlay
(`PreFilterState`); every filter of a plan depends on the node alone. The last one, NodeDeclaredFeatures, comes after
those and after the devices, too (`is_told_last`).
Source: kube-scheduler 1.36's PreFilter and Filter extension points, DynamicResources included.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial

from haru.engine.dra.allocator.allocation import CANNOT_ALLOCATE, INVALID_POOLS, DoesNotFit, allocate
from haru.engine.dra.model.claims import Claim, decode_claims
from haru.engine.dra.model.model import NodeView
from haru.engine.framework.interfaces import PASS, FilterFailure, FilterRequest, NodeFilter, refuse
from haru.engine.framework.metrics_recorder import MetricsRecorder
from haru.engine.framework.options import Options
from haru.engine.plugins.dynamicresources.plugin import prioritized_score
from haru.engine.plugins.dynamicresources.pod_claims import ClaimUse
from haru.engine.plugins.dynamicresources.prefilter import PLUGIN, DeviceDemand
from haru.engine.plugins.nodedeclaredfeatures.plugin import PLUGIN as LAST
from haru.engine.plugins.registry import FILTER_PLUGINS, PARTITION, PRE_FILTER_PLUGINS
from haru.engine.state.node_info import NodeInfo
from haru.engine.state.overlay import Overlay
from haru.engine.state.pod_info import PodInfo
from haru.kube.meta import Obj

_MAX_CLAIMS = 65_536


@dataclass(frozen=True, slots=True)
class FilterPlan:
    """Hold the filters for one pod, and the reason why no node can take it (`rejection`).

    `general`: the filters answer alike for nodes of one class (`Snapshot.node_classes`). `plugins`: whose each filter
    is. `names`: the nodes that the pod's spec names, if it does; the first filter refuses all others. `ends`: how many
    checks each filter ended, and how many passed all; only metrics read it.
    """

    rejection: FilterFailure | None
    filters: tuple[NodeFilter, ...]
    general: bool = False
    plugins: tuple[str, ...] = ()
    names: frozenset[str] | None = None
    ends: list[int] = field(default_factory=list, compare=False, repr=False)

    def check(self, node: NodeInfo, recorder: MetricsRecorder | None = None) -> Sequence[FilterFailure]:
        """Return the failures of the first filter that refuses the node; empty if none does."""
        if recorder is not None and recorder.timed:
            return self._check_timed(node, recorder)
        for number, check in enumerate(self.filters):
            failures = check(node)
            if failures:
                self.ends[number] += 1
                return failures
        self.ends[-1] += 1
        return PASS

    def _check_timed(self, node: NodeInfo, recorder: MetricsRecorder) -> Sequence[FilterFailure]:
        for number, check in enumerate(self.filters):
            began = recorder.clock()
            failures = check(node)
            status = failure_code(failures)
            recorder.run(self.plugins[number], "Filter", status, recorder.clock() - began)
            if failures:
                self.ends[number] += 1
                return failures
        self.ends[-1] += 1
        return PASS


def is_told_last(failures: Sequence[FilterFailure]) -> bool:
    """Tell whether rules between pods, and devices, refuse a node before these failures of a plan do."""
    return bool(failures) and failures[0].plugin == LAST


def failure_code(failures: Sequence[FilterFailure]) -> str:
    """Return the status code of a filter's answer, as kube-scheduler names it."""
    if not failures:
        return "Success"
    return "UnschedulableAndUnresolvable" if not any(f.resolvable for f in failures) else "Unschedulable"


def make_filter_plan(request: FilterRequest) -> FilterPlan:
    """Make the filters for a pod."""
    profile = request.profile
    made: list[NodeFilter] = []
    plugins: list[str] = []
    rejection: FilterFailure | None = None
    general = True
    names: frozenset[str] | None = None
    for plugin in PRE_FILTER_PLUGINS:
        if plugin.name in profile.filters and rejection is None:
            rejection, nodes = plugin.pre_filter(request)
            if nodes is not None:
                names = nodes  # one plugin alone finds any
                made.append(_only(nodes, plugin.name))
                plugins.append(plugin.name)
                general = False
    for filter_plugin in FILTER_PLUGINS:
        if filter_plugin.name in profile.filters or filter_plugin is PARTITION:
            filters = [check for check in filter_plugin.filters(request) if check is not None]
            made += filters
            plugins += [filter_plugin.name] * len(filters)
            general = general and (filter_plugin.general or not filters)
    ends = [0] * (len(made) + 1)
    return FilterPlan(rejection, tuple(made), general=general, plugins=tuple(plugins), names=names, ends=ends)


@cache
def not_named(plugin: str) -> tuple[FilterFailure]:
    """Return the refusal of all nodes that a pod's spec does not name, as a plugin's PreFilter found."""
    return (refuse(plugin, "NodeAffinityMismatch", f"node(s) didn't satisfy plugin(s) [{plugin}]"),)


def _only(names: frozenset[str], plugin: str) -> NodeFilter:
    failure = not_named(plugin)
    return lambda node: PASS if node.name in names else failure


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
    overlay: Overlay,
    pod: PodInfo,
    demand: DeviceDemand,
    options: Options,
    sole_use: NodeFilter | None = None,
    late_binding: NodeFilter | None = None,
) -> FilterPlan:
    """Build the filter plan for a pod; a PreFilter rejection in any pass rejects the pod."""
    plans = [
        make_filter_plan(
            FilterRequest(
                state.snapshot,
                pod,
                options.profile,
                demand.backed,
                options.gates.declared_features,
                sole_use,
                late_binding,
            )
        )
        for state in overlay.passes
    ]
    if len(plans) == 1:
        return plans[0]
    rejections = [plan.rejection for plan in plans if plan.rejection is not None]
    return replace(plans[0], rejection=rejections[0] if rejections else None)


def lasting_filters(overlay: Overlay, pod: PodInfo, demand: DeviceDemand, options: Options) -> FilterPlan:
    """Build the same plan; where no volumes count, it depends on the pod alone and is kept for later decisions."""
    compute = partial(filters_for_all_passes, overlay, pod, demand, options)
    if pod.volume_claims:
        return compute()
    key = pod.shape, demand.backed, options.profile, options.gates.declared_features
    return overlay.snapshot.decision_cache.get_or_compute("filters", key, compute)


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
    # Of a pool that contradicts itself the message tells as well: what is missing may be there.
    message = INVALID_POOLS if any(r.type == "PoolInvalid" for r in answer.reasons) else CANNOT_ALLOCATE
    return refuse(PLUGIN, "DevicesUnavailable", message, {"why": why} if why else {})


def preference(demand: DeviceDemand, node: NodeInfo, allocations: Sequence[Obj]) -> int:
    """Score how early in their lists of alternatives the claims are served (KEP-4816)."""
    fixed = dict(demand.fixed)
    claims = [use.claim for use in demand.uses if use.path in fixed] + [use.claim for use in demand.pending_on(node)]
    return prioritized_score([*fixed.values(), *allocations], claims)
