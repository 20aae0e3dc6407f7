"""The nodes that take a pod: filtered once per node and pod signature, and again only where something has changed.

Members of a gang are mostly equal, so what is known of a thousand nodes after the first one holds for the next, but for
the node that the first one took; the overlay says which nodes were touched. What depends on nothing but the nodes and
their devices stays in the decision cache for later decisions. Where all nodes have to be filtered, one node of each
equivalence class is (`Snapshot.node_classes`). With `NoCache` every pod filters every node, and each node allocates
for itself.
Source: our own; kube-scheduler's opportunistic batching (KEP-5598) has the same purpose.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Sequence
from functools import partial

from haru.engine.dra.errors import AllocationError
from haru.engine.equivalence.decision_cache import DecisionCache, cached_property
from haru.engine.equivalence.device_feasibility_cache import DeviceFeasibilityCache
from haru.engine.equivalence.filter_runner import DeviceFailures, FilterRunner
from haru.engine.equivalence.node_feasibility import NextResult, NodeFeasibility, ScoreIndex
from haru.engine.equivalence.prefilter_state import PodSignature, PreFilterState, SharedPreFilterState
from haru.engine.framework.interfaces import FilterFailure
from haru.engine.framework.metrics_recorder import MetricsRecorder
from haru.engine.framework.options import Options
from haru.engine.plugins.dynamicresources.prefilter import DeviceDemand
from haru.engine.plugins.haruexpected.plugin import card_requests_of
from haru.engine.plugins.nodeaffinity.plugin import named_nodes
from haru.engine.plugins.registry import PRE_FILTER_PLUGINS
from haru.engine.podgroup.filter_node import FilterPlan, filters_for_all_passes, not_named
from haru.engine.state.node_equivalence_classes import classes_among
from haru.engine.state.overlay import ChangeCursor, Overlay, present_node
from haru.engine.state.pod_info import PodInfo

_MAX_RESULTS = 1_000_000
"""Of all signatures together; the result of one node takes some 130 bytes."""
_MAX_SIGNATURES = 1000
"""However few the nodes are: without any result a signature takes some 12 kB."""
_MAX_REFUSED_DOMAINS = 8
"""Domains of which the results are kept, each for one signature."""
_MAX_NAMING = 32
"""Signatures that name nodes: each pod of a DaemonSet has one, and explanations try pods on one set after the other."""
_MAX_PROFILES = 4
_MAX_NODE_SETS = 4
"""Of which it is kept that none of the nodes is named: the scheduler's own, and those of hypotheses."""
_FEW = 3
"""Fewer nodes than these are not sorted into classes."""


class FilterResultCache:
    """Compute which of some nodes take a pod, as an overlay changes during one attempt.

    Results for all nodes are kept for later attempts, those for some nodes only if they are `asked_again`.
    """

    def __init__(self, overlay: Overlay, options: Options, nodes: Sequence[str], *, asked_again: bool = False) -> None:
        self._overlay = overlay
        self._options = options
        self._nodes = nodes
        self._all_nodes = nodes is overlay.snapshot.node_names
        self._allowed: frozenset[str] = frozenset() if self._all_nodes else frozenset(nodes)
        self._place = tuple(nodes) if asked_again and not self._all_nodes else None
        cache = overlay.snapshot.decision_cache
        alone = overlay.differing_devices
        self._differing = overlay.differing | (alone or frozenset())
        self._attempt = object()
        self._shares = cache.shares_results and alone is not None
        key = (options.profile, options.features, options.budgets.step_budget, options.gates.declared_features)
        self._cache = cache.get_or_compute("feasibility", key, cache.scope, _MAX_PROFILES)
        """For all attempts under the same options."""
        self._attempt_cache = cache.scope()
        self._devices = self._cache.get_or_compute("devices", None, self._new_devices) if self._shares else None
        self._shared: SharedPreFilterState | None = None
        device_failures: DeviceFailures = self._cache.get_or_compute("device failures", None, dict)
        self.runner = FilterRunner(overlay, options, self._devices, device_failures)
        self._recorder = options.recorder

    @cached_property
    def _has_local_devices(self) -> bool:
        """Whether no device is seen by several nodes."""
        pools = self._overlay.snapshot.devices.pools.values()
        return all(item.placement.node_name for pool in pools for item in pool.slices)

    def feasibility(self, pod: PodInfo, demand: DeviceDemand) -> NodeFeasibility:
        """Return which nodes take a pod now. Raises AllocationError if the attempt must be aborted."""
        shared = self._shared = self._caught_up()
        signature = shared.pod_signature(self._overlay, pod)
        later_passes = self._later_passes(pod)
        lasting = not (pod.volume_claims or later_passes) and self._is_lasting(demand)
        key = pod.shape, demand.shape, signature.key, tuple([found.key for _, found in later_passes])
        limit = min(_MAX_SIGNATURES, max(1, _MAX_RESULTS // max(1, len(self._nodes))))
        kept = self._cache if lasting else self._attempt_cache
        next_results: dict[Hashable, NextResult] = kept.get_or_compute("next results", key, dict)
        compute = partial(self._new_feasibility, shared, signature, demand, later_passes, next_results, kept)
        if lasting and self._place is not None:
            place, limit = (key, self._place), min(limit, _MAX_REFUSED_DOMAINS)
            feasibility = self._cache.get_or_compute("nodes of refused domains", place, compute, limit)
        else:
            cache = self._cache if lasting and self._all_nodes else self._attempt_cache
            if named_nodes(pod) is not None:
                feasibility = cache.get_or_compute("nodes of named ones", key, compute, min(limit, _MAX_NAMING))
            else:
                feasibility = cache.get_or_compute("nodes", key, compute, limit)
        recorder, rejected = self._recorder, feasibility.plan.rejection is not None
        if recorder is not None:
            recorder.uses(feasibility.plan)
            recorder.lap("PreFilter", "UnschedulableAndUnresolvable" if rejected else "Success")
        if rejected:
            return feasibility
        try:
            self._refresh(feasibility, pod, demand)
        except AllocationError:
            feasibility.cursor = ChangeCursor()  # some nodes have not been filtered: filter all the next time
            if recorder is not None:
                recorder.lap("Filter", "Error")
            raise
        if recorder is not None:
            recorder.lap("Filter")
        return feasibility

    def can_batch(self, feasibility: NodeFeasibility, pod: PodInfo, demand: DeviceDemand) -> bool:
        """Return whether a node's result and score for such pods depend only on what is on that node."""
        tied = pod.volume_claims or pod.disks or demand.fixed or demand.extended or demand.counts_devices
        one_pass = self._overlay.next_pass is None
        return self._shares and one_pass and feasibility.prefilter.is_node_local and not tied

    def pod_key(self, pod: PodInfo) -> Hashable:
        """Return what tells a pod from others of its shape, as far as rules between pods and scores go."""
        assert self._shared is not None
        return self._shared.pod_signature(self._overlay, pod).key

    def reads_labels(self, pod: PodInfo, keys: Collection[str]) -> bool:
        """Return whether rules may tell pods of one shape apart by some of their labels, in any pass."""
        passes = ((self._caught_up(), self._overlay), *self._later_shared())
        return any(shared.reads_labels(overlay, pod, keys) for shared, overlay in passes)

    def _caught_up(self) -> SharedPreFilterState:
        shared = self._cache.get_or_compute("prefilter", None, self._new_shared)
        shared.catch_up(self._overlay)
        return shared

    def refilter(self, feasibility: NodeFeasibility, pod: PodInfo, demand: DeviceDemand, name: str) -> None:
        """Filter one node again. Raises AllocationError."""
        feasibility.forget(name)
        self.runner.refilter_node(feasibility, pod, demand, name)

    def _new_devices(self) -> DeviceFeasibilityCache:
        options = self._options
        return DeviceFeasibilityCache(options.features, options.budgets.step_budget, scoring=options.profile.packing)

    def _new_shared(self) -> SharedPreFilterState:
        return SharedPreFilterState(self._options.profile)

    def _is_lasting(self, demand: DeviceDemand) -> bool:
        """Return whether the result holds for later attempts: not where it depends on claims that are allocated."""
        if not (demand.uses or demand.extended):
            return True
        tied = demand.fixed or (demand.extended is not None and demand.extended.existing is not None)
        return self.runner.allocates_by_class(demand) and not tied

    def _later_passes(self, pod: PodInfo) -> Sequence[tuple[SharedPreFilterState, PodSignature]]:
        """Return what tells a pod from others in each later pass; empty if no rules between pods hold there."""
        found = [(shared, shared.pod_signature(later, pod)) for shared, later in self._later_shared()]
        return found if any(signature.hard or signature.has_affinity for _, signature in found) else ()

    def _later_shared(self) -> Sequence[tuple[SharedPreFilterState, Overlay]]:
        """Return what pods share in each later pass."""
        passes = self._overlay.passes[1:]
        if not passes:
            return ()
        all_shared = self._attempt_cache.get_or_compute(
            "prefilter of later passes", None, lambda: [self._new_shared() for _ in passes]
        )
        for shared, later in zip(all_shared, passes, strict=True):
            shared.catch_up(later)
        return list(zip(all_shared, passes, strict=True))

    def _new_feasibility(
        self,
        shared: SharedPreFilterState,
        signature: PodSignature,
        demand: DeviceDemand,
        later_passes: Sequence[tuple[SharedPreFilterState, PodSignature]],
        next_results: dict[Hashable, NextResult],
        kept: DecisionCache,
    ) -> NodeFeasibility:
        # Where devices are allocated, spreading is checked per node: a node that it refuses needs no allocation.
        needs_devices = bool(demand.uses or demand.extended)
        wide: frozenset[str] = (
            frozenset() if needs_devices else shared.wide(self._overlay, (c.key for c in signature.hard))
        )
        wanted = card_requests_of(use.claim for use in demand.pending_anywhere()) if shared.profile.remaining else ()
        prefilter = PreFilterState(shared, signature, wide, wanted, self._overlay.snapshot)
        if self._recorder is not None:
            self._recorder.evaluations.update((name, "PreScore") for name in prefilter.scoring_plugins)
        ranking = ScoreIndex(prefilter.scorers, prefilter.is_closed if prefilter.spreads_by_key else None)
        plan = self._plan(signature.pod, demand, prefilter, kept)
        later = tuple(PreFilterState(shared, found) for shared, found in later_passes)
        return NodeFeasibility(plan, prefilter, ranking, next_results, later_passes=later)

    def _plan(self, pod: PodInfo, demand: DeviceDemand, prefilter: PreFilterState, kept: DecisionCache) -> FilterPlan:
        sole_use, late, key = prefilter.sole_use, prefilter.late_binding, (pod.shape, demand.backed)
        compute = partial(filters_for_all_passes, self._overlay, pod, demand, self._options, sole_use, late)
        if self._recorder is not None:
            compute = partial(self._made_plan, compute, self._recorder)
        if sole_use is not None or late is not None:
            return compute()  # whether its claims are in use, or can be bound, is a rule of this pod alone
        return kept.get_or_compute("filter plans", key, compute)

    def _made_plan(self, compute: Callable[[], FilterPlan], recorder: MetricsRecorder) -> FilterPlan:
        """Make a plan and record which plugins ran PreFilter for it."""
        plan = compute()
        for plugin in PRE_FILTER_PLUGINS:
            if plugin.name in self._options.profile.filters:
                recorder.evaluations[plugin.name, "PreFilter"] += 1
            if plan.rejection is not None and plan.rejection.plugin == plugin.name:
                break
        return plan

    def _refresh(self, feasibility: NodeFeasibility, pod: PodInfo, demand: DeviceDemand) -> None:
        """Filter again the nodes that have changed, and those for which rules between pods have."""
        changed = feasibility.cursor.catch_up(self._overlay)
        if demand.uses or demand.extended:
            changed = self._with_device_changes(feasibility, demand, changed)
        by_rules = feasibility.prefilter.catch_up(self._overlay)
        for prefilter, later in zip(feasibility.later_passes, self._overlay.passes[1:], strict=False):
            by_later = prefilter.catch_up(later)
            by_rules = None if by_rules is None or by_later is None else by_rules | by_later
        if by_rules is None or by_rules:
            feasibility.next_results.clear()
        differing = self._differing
        stale: Sequence[str] = self._nodes
        if changed is None or by_rules is None:
            feasibility.forget_all()
        else:
            names = changed | by_rules
            if feasibility.refreshed_in is not self._attempt or not self._has_local_devices:
                # Passes stay what they are during an attempt: their nodes change as others do. But a node that
                # allocates for itself is not told of devices that were taken by way of another one.
                names |= differing | feasibility.differing_nodes
            stale = sorted(names if self._all_nodes else names & self._allowed)
        feasibility.differing_nodes, feasibility.refreshed_in = differing, self._attempt
        if stale or feasibility.prefilter.spreads_by_key:
            feasibility.summary = None
        if stale is self._overlay.snapshot.node_names:
            self._filter_all(feasibility, pod, demand)
            return
        for name in stale:
            feasibility.forget(name)
        for name in stale if not self._filter_alike(feasibility, demand, stale) else ():
            node = present_node(self._overlay, name)
            if node is not None:
                self.runner.filter_node(feasibility, pod, demand, node)

    def _filter_all(self, feasibility: NodeFeasibility, pod: PodInfo, demand: DeviceDemand) -> None:
        if feasibility.plan.names is not None:
            self._filter_named(feasibility, pod, demand, feasibility.plan.names)
            return
        if self._can_filter_classes(feasibility, demand) and self._filter_classes(feasibility, pod, demand):
            return
        if self._devices is not None:
            self._devices.expect_all_nodes(self._overlay)
        for _, node in self._overlay.present_nodes():
            if node is not None:
                self.runner.filter_node(feasibility, pod, demand, node)

    def _filter_named(
        self, feasibility: NodeFeasibility, pod: PodInfo, demand: DeviceDemand, names: Collection[str]
    ) -> None:
        """Filter the nodes that the pod names; all others share one refusal, which is copied as a whole."""
        snapshot, plugin = self._overlay.snapshot, feasibility.plan.plugins[0]

        def refused() -> tuple[object, dict[str, Sequence[FilterFailure]]]:
            failures = not_named(plugin)
            # With the names, whose identity is the key.
            return snapshot.node_names, {name: failures for name, node in snapshot.present_nodes if node is not None}

        key = plugin, id(snapshot.node_names)
        feasibility.refusals = self._cache.get_or_compute("not named", key, refused, _MAX_NODE_SETS)[1].copy()
        for name in sorted(names):
            if feasibility.refusals.pop(name, None) is not None:
                self.runner.filter_node(feasibility, pod, demand, self._overlay.node(name))

    def _with_device_changes(
        self, feasibility: NodeFeasibility, demand: DeviceDemand, changed: set[str] | None
    ) -> set[str] | None:
        """Return the nodes that changed or whose devices did; None for all."""
        if self._devices is None or demand.counts_devices:
            return None if feasibility.cursor.devices_changed else changed
        self._devices.catch_up(self._overlay)
        moved = self._devices.changed_since(feasibility.devices_position)
        feasibility.devices_position = self._devices.position
        return None if changed is None or moved is None else changed | moved

    def _can_filter_classes(self, feasibility: NodeFeasibility, demand: DeviceDemand) -> bool:
        """Return whether the nodes of an equivalence class answer alike, but for devices that are not classified."""
        simple = not (demand.fixed or demand.extended or demand.counts_devices or feasibility.later_passes)
        return self._shares and simple and feasibility.plan.general and feasibility.prefilter.general

    def _filter_classes(self, feasibility: NodeFeasibility, pod: PodInfo, demand: DeviceDemand) -> bool:
        """Filter one node of each class, and each touched node; return False if every node has to be filtered.

        The first node that raises an error names it, so all nodes have to be filtered in their order.
        """
        touched = self._differing.union(self._overlay.touched)
        try:
            for one in self._overlay.snapshot.node_classes:
                names = [name for name in one.names if name not in touched] if touched else one.names
                if names:
                    self.runner.filter_class(feasibility, demand, one, names)
        except AllocationError:
            feasibility.forget_all()
            return False
        for name in sorted(touched):
            node = present_node(self._overlay, name)
            if node is not None:
                self.runner.filter_node(feasibility, pod, demand, node)
        return True

    def _filter_alike(self, feasibility: NodeFeasibility, demand: DeviceDemand, stale: Sequence[str]) -> bool:
        """Filter one node of each class among some nodes; return False if every node has to be filtered."""
        if len(stale) < _FEW or self._differing or self._overlay.touched:
            return False
        if not self._can_filter_classes(feasibility, demand):
            return False
        snapshot = self._overlay.snapshot
        try:
            for one in classes_among(stale, snapshot.nodes, snapshot.classified_nodes).values():
                self.runner.filter_class(feasibility, demand, one, one.names)
        except AllocationError:
            for name in stale:
                feasibility.forget(name)
            return False
        return True
