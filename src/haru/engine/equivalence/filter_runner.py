"""Run a pod's filters on one node, or on one node of a class, and allocate devices for its claims there.

What a node answers goes into the results of the pod's signature (`NodeFeasibility`). Nodes with equal devices share one
answer of the allocator (`DeviceFeasibilityCache`); where devices depend on the node or on a later pass, the node
allocates for itself.
Source: kube-scheduler's RunFilterPlugins, with the Filter of DynamicResources, as behaviour.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace

from haru.engine.dra.allocator.allocation import DoesNotFit, Solution
from haru.engine.dra.errors import AllocationError, GaveUp
from haru.engine.dra.model.claims import Claim
from haru.engine.equivalence.claim_query import ClaimQuery
from haru.engine.equivalence.device_feasibility_cache import Answer, DeviceFeasibilityCache
from haru.engine.equivalence.node_feasibility import FeasibleNode, NodeFeasibility
from haru.engine.framework.interfaces import PASS, FilterFailure
from haru.engine.framework.options import Options
from haru.engine.plugins.dynamicresources.plugin import chosen_score, insufficient_node_resources, node_allocatable_use
from haru.engine.plugins.dynamicresources.pod_claims import ClaimUse
from haru.engine.plugins.dynamicresources.prefilter import DeviceDemand
from haru.engine.podgroup.filter_node import Decoder, allocate_on, is_told_last, preference, unavailable
from haru.engine.state.node_equivalence_classes import NodeEquivalenceClass
from haru.engine.state.node_info import NodeInfo
from haru.engine.state.overlay import Overlay
from haru.engine.state.pod_info import PodInfo
from haru.kube.meta import Obj

_NOTHING_TO_ALLOCATE = FeasibleNode()
_MAX_FAILURES = 1024
_MANY = 500
"""For so many nodes of a class it pays to look up the devices of all nodes at once."""

DeviceFailures = dict[int, tuple[DoesNotFit, Sequence[FilterFailure]]]
"""The failures of nodes without the devices, by the identity of the allocator's answer."""


class FilterRunner:
    """Filter nodes for pods during one attempt, each pod on the overlay as it is then.

    `devices`: what equal nodes answer, if they may share it. `failures` are kept for later attempts.
    """

    def __init__(
        self, overlay: Overlay, options: Options, devices: DeviceFeasibilityCache | None, failures: DeviceFailures
    ) -> None:
        self._overlay = overlay
        self._options = options
        self._devices = devices
        self._alone: frozenset[str] = overlay.differing_devices or frozenset()
        """Nodes of whose devices others are taken in a later pass: each allocates for itself."""
        self._is_behind = False
        """Whether `devices` may have to follow the overlay before they are asked."""
        self._decoder = Decoder(overlay, options)
        self._last_query: tuple[tuple[str, ...], ClaimQuery] | None = None
        self._device_failures = failures
        self._recorder = options.recorder

    def filter_node(self, feasibility: NodeFeasibility, pod: PodInfo, demand: DeviceDemand, node: NodeInfo) -> None:
        """Filter one node and allocate its devices. Raises AllocationError."""
        failures = feasibility.plan.check(node, self._recorder)
        last = failures if is_told_last(failures) else PASS
        failures = (
            (PASS if last else failures)
            or feasibility.prefilter.check(node)
            or (self._overlay.next_pass is not None and self._failures_in_later_passes(feasibility, node.name, last))
            or demand.allocated_elsewhere(node)
        )
        if failures:
            feasibility.refusals[node.name] = failures
            return
        self._allocate_if_asked(feasibility, pod, demand, node)
        if last:
            feasibility.refuse(node.name, last)

    def refilter_node(self, feasibility: NodeFeasibility, pod: PodInfo, demand: DeviceDemand, name: str) -> None:
        """Filter a node again that has taken a pod since all were. Raises AllocationError."""
        devices = self._devices if demand.uses else None
        if devices is not None:
            self._is_behind = devices.can_answer_on(self._overlay)
            if not self._is_behind:
                devices.catch_up(self._overlay)
        try:
            self.filter_node(feasibility, pod, demand, self._overlay.node(name))
        finally:
            self._is_behind = False

    def _allocate_if_asked(
        self, feasibility: NodeFeasibility, pod: PodInfo, demand: DeviceDemand, node: NodeInfo
    ) -> None:
        uses = demand.pending_on(node)
        if demand.counts_devices or (uses and (node.name in self._alone or not self.allocates_by_class(demand))):
            self._allocate(feasibility, pod, demand, node, uses)
        elif uses:
            self._allocate_by_class(feasibility, demand, node, uses)
        else:
            self._add(feasibility, node, _NOTHING_TO_ALLOCATE, preference(demand, node, ()) if demand.fixed else 0)

    def filter_class(
        self, feasibility: NodeFeasibility, demand: DeviceDemand, one: NodeEquivalenceClass, names: Sequence[str]
    ) -> None:
        """Filter one node for all nodes of a class, and allocate their devices. Raises AllocationError."""
        failures = feasibility.plan.check(one.first, self._recorder)
        if failures and not (demand.pending and is_told_last(failures)):
            feasibility.refusals.update(dict.fromkeys(names, failures))
        elif demand.pending:
            self._allocate_for_class(feasibility, demand, one, names)
            for name in names if failures else ():
                feasibility.refuse(name, failures)
        else:
            self._add_class(feasibility, names, _NOTHING_TO_ALLOCATE, 0)

    def allocations(self, demand: DeviceDemand, name: str, candidate: FeasibleNode) -> Sequence[Obj]:
        """Return the allocations on a feasible node. Raises AllocationError."""
        if candidate.answer is None:
            return candidate.allocations
        assert self._devices is not None
        uses = demand.pending_on(self._overlay.node(name))
        return self._devices.results(name, *self._query_key(demand, uses), self._options.new_share_id)

    def allocates_by_class(self, demand: DeviceDemand) -> bool:
        """Return whether one node answers for all nodes with equal devices."""
        return self._devices is not None and not demand.counts_devices

    def _allocate_for_class(
        self, feasibility: NodeFeasibility, demand: DeviceDemand, one: NodeEquivalenceClass, names: Sequence[str]
    ) -> None:
        assert self._devices is not None
        node = self._overlay.node(names[0])
        query = self._query(demand, demand.pending)
        answer = self._devices.answer(node, query)
        if not self._devices.holds_for_all(names, one.node_device_class, query):
            if len(names) > _MANY:
                self._devices.expect_all_nodes(self._overlay)
            for name in names:
                self._allocate_by_class(feasibility, demand, self._overlay.node(name), demand.pending)
        elif isinstance(answer, DoesNotFit):
            feasibility.refusals.update(dict.fromkeys(names, self._failure(answer)))
        elif isinstance(answer, Solution):
            self._add_class(feasibility, names, FeasibleNode(answer=answer), chosen_score(answer.claims, answer.asks))

    def _add_class(
        self, feasibility: NodeFeasibility, names: Sequence[str], candidate: FeasibleNode, preference: int
    ) -> None:
        if not feasibility.prefilter.same_keys:
            for name in names:
                self._add(feasibility, self._overlay.node(name), candidate, preference)
            return
        feasibility.candidates.update(dict.fromkeys(names, candidate))
        feasibility.ranking.put_all(names, feasibility.prefilter.key(self._overlay.node(names[0]), preference))

    def _add(self, feasibility: NodeFeasibility, node: NodeInfo, candidate: FeasibleNode, preference: int) -> None:
        feasibility.candidates[node.name] = candidate
        feasibility.ranking.put(node.name, feasibility.prefilter.key(node, preference))

    def _allocate_by_class(
        self, feasibility: NodeFeasibility, demand: DeviceDemand, node: NodeInfo, uses: Sequence[ClaimUse]
    ) -> None:
        answer = self._answer(node, demand, uses)
        if isinstance(answer, DoesNotFit):
            feasibility.refusals[node.name] = self._failure(answer)
        elif isinstance(answer, GaveUp):
            feasibility.undecided[node.name] = str(answer)
        elif isinstance(answer, AllocationError):
            # Asked for these claims, the error names them.
            allocate_on(self._overlay, self._options, node, self._decoder.claims(uses))
            raise AllocationError(str(answer))
        else:
            fixed = preference(replace(demand, pending=(), extended=None), node, ()) if demand.fixed else 0
            score = fixed + chosen_score(answer.claims, answer.asks)
            self._add(feasibility, node, FeasibleNode(answer=answer), score)

    def _allocate(
        self, feasibility: NodeFeasibility, pod: PodInfo, demand: DeviceDemand, node: NodeInfo, uses: Sequence[ClaimUse]
    ) -> None:
        try:
            found = allocate_on(self._overlay, self._options, node, self._decoder.claims(uses)) if uses else ()
        except GaveUp as error:
            feasibility.undecided[node.name] = str(error)
            return
        if isinstance(found, FilterFailure):
            feasibility.refusals[node.name] = (found,)
        elif demand.counts_devices and (failures := self._exceeds_node(pod, demand, node, uses, found)):
            feasibility.refusals[node.name] = failures
        else:
            self._add(feasibility, node, FeasibleNode(found), preference(demand, node, found))

    def _exceeds_node(
        self, pod: PodInfo, demand: DeviceDemand, node: NodeInfo, uses: Sequence[ClaimUse], found: Sequence[Obj]
    ) -> Sequence[FilterFailure]:
        """Return what a node lacks, in any pass, of the resources that these devices take of it (KEP-5517)."""
        claimed = node_allocatable_use(self._overlay, pod, demand, node, list(zip(uses, found, strict=True)))
        for one in self._overlay.passes if claimed else ():
            if failures := insufficient_node_resources(pod, one.node(node.name), claimed):
                return failures
        return ()

    def _failures_in_later_passes(
        self, feasibility: NodeFeasibility, name: str, last: Sequence[FilterFailure]
    ) -> Sequence[FilterFailure]:
        failures: Sequence[FilterFailure] = ()
        for later in self._overlay.passes[1:] if name in feasibility.differing_nodes and not last else ():
            failures = failures or feasibility.plan.check(later.node(name), self._recorder)
        for prefilter, later in zip(feasibility.later_passes, self._overlay.passes[1:], strict=False):
            failures = failures or prefilter.check(later.node(name))
        return failures

    def _answer(self, node: NodeInfo, demand: DeviceDemand, uses: Sequence[ClaimUse]) -> Answer:
        """Return what a node answers; where its own devices tell that, tentative allocations are not followed."""
        devices = self._devices
        assert devices is not None
        if self._is_behind:
            found = devices.answer_on(self._overlay, node, self._query(demand, uses))
            if found is not None:
                return found
            devices.catch_up(self._overlay)
        return devices.answer(node, self._query(demand, uses))

    def _query(self, demand: DeviceDemand, uses: Sequence[ClaimUse]) -> ClaimQuery:
        assert self._devices is not None
        if uses is not demand.pending:
            return self._devices.query(*self._query_key(demand, uses))
        # Equal pods share the text of what they ask for.
        last, asked = self._last_query, demand.asked
        if last is None or last[0] is not asked:
            last = self._last_query = asked, self._devices.query(*self._query_key(demand, uses))
        return last[1]

    def _query_key(
        self, demand: DeviceDemand, uses: Sequence[ClaimUse]
    ) -> tuple[Hashable, Callable[[], Sequence[Claim]]]:
        """Return a key that is equal for claims that ask for the same, and how to decode them."""
        extended = [json.dumps(use.claim.get("spec"), sort_keys=True) for use in uses[len(demand.pending) :]]
        return (demand.asked, *extended), lambda: self._decoder.claims(uses)

    def _failure(self, answer: DoesNotFit) -> Sequence[FilterFailure]:
        """Return the failures of a node without the devices; nodes with one answer share the object."""
        known = self._device_failures.get(id(answer))
        if known is None or known[0] is not answer:
            if len(self._device_failures) >= _MAX_FAILURES:
                self._device_failures.clear()
            known = self._device_failures[id(answer)] = answer, (unavailable(answer),)
        return known[1]
