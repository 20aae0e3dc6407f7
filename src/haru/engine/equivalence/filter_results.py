"""Which nodes take a pod: asked once per node and kind of pod, and asked again only where something has changed.

Members of a gang are mostly alike, so what one of them learnt about a thousand nodes holds for the next, but for the
node that the first one took. The overlay says which nodes were touched. A `Memory` makes what was learnt in one
decision hold in the next, too, as far as it depends on nothing but the nodes and their devices. Nodes that are alike
are asked once (`Snapshot.lots`), where all of them have to be.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from functools import partial

from haru.engine.dra.allocator.allocation import DoesNotFit, Solution
from haru.engine.dra.errors import AllocationError, GaveUp
from haru.engine.dra.model.claims import Claim
from haru.engine.dra.scoring.prioritized_list import chosen_score
from haru.engine.equivalence.claim_query import ClaimQuery
from haru.engine.equivalence.feasibility_cache import FeasibilityCache
from haru.engine.equivalence.node_feasibility import FeasibleNode, NodeFeasibility
from haru.engine.equivalence.prefilter_state import PodSignature, PreFilterState, SharedPreFilterState
from haru.engine.equivalence.score_index import ScoreIndex
from haru.engine.framework.filter_plan import FilterPlan
from haru.engine.framework.options import Options
from haru.engine.framework.status import FilterFailure
from haru.engine.plugins.dynamicresources.node_allocatable import node_allocatable_use, too_much
from haru.engine.plugins.dynamicresources.pod_claims import ClaimUse
from haru.engine.plugins.dynamicresources.prefilter import DeviceDemand
from haru.engine.plugins.haruexpected.score import wanted_of
from haru.engine.podgroup.filter_node import Decoder, allocate_on, filters_for_all_passes, preference, unavailable
from haru.engine.state.cache import Snapshot
from haru.engine.state.change_cursor import present_node
from haru.engine.state.decision import Obj
from haru.engine.state.node_info import NodeInfo
from haru.engine.state.overlay import Overlay
from haru.engine.state.pod_info import PodInfo
from haru.engine.state.snapshot import NodeEquivalenceClass

_NOTHING_TO_ALLOCATE = FeasibleNode()


class FilterResultCache:
    """The boards of one attempt over an overlay, limited to some nodes."""

    def __init__(self, overlay: Overlay, options: Options, nodes: Sequence[str]) -> None:
        self._overlay = overlay
        self._options = options
        self._nodes = nodes
        self._everywhere = nodes is overlay.snapshot.node_names
        self._allowed = frozenset[str]() if self._everywhere else frozenset(nodes)
        cache = overlay.snapshot.decision_cache
        self._shares = cache.shares_results
        self._memory = feasibility_cache_of(overlay.snapshot, options)
        # Two moments at once are nobody else's question.
        by_class = self._shares and overlay.after is None
        self._supply = self._memory.supply(options.features, options.budgets.step_budget) if by_class else None
        self._filter_results: dict[Hashable, NodeFeasibility] = {}
        self._plans = cache.scope()
        self._decoder = Decoder(overlay, options)
        self._shared_later: list[SharedPreFilterState] = []
        self._asking: tuple[DeviceDemand, Sequence[ClaimUse], ClaimQuery] | None = None
        self._said: tuple[DoesNotFit, Sequence[FilterFailure]] | None = None

    def feasibility(self, pod: PodInfo, demand: DeviceDemand) -> NodeFeasibility:
        """The answers for a pod as things stand now. Raises AllocationError if the attempt must be aborted."""
        if not self._shares:
            self._memory = FeasibilityCache(self._options.profile)
            self._filter_results, self._shared_later = {}, []
        self._memory.shared.catch_up(self._overlay)
        kind = self._memory.shared.kind(self._overlay, pod)
        key = (pod.shape, demand.shape, kind.signature)
        later = self._later(pod)
        lasting = self._everywhere and not (pod.volume_claims or later) and self._forgettable(demand)
        feasibility = self._memory.find(key) if lasting else self._filter_results.get(key)
        if feasibility is None:
            feasibility = self._made(kind, demand)
            feasibility.later = later
        if feasibility.plan.rejection is None:
            try:
                self._refresh(feasibility, pod, demand)
            except AllocationError:
                self._memory.forget(key)
                raise
        if lasting:
            self._memory.keep(key, feasibility)
        else:
            self._filter_results[key] = feasibility
        return feasibility

    def allocations(self, demand: DeviceDemand, name: str, candidate: FeasibleNode) -> Sequence[Obj]:
        """The allocations that a candidate of the board that was asked for last would give. Raises AllocationError."""
        if candidate.answer is None:
            return candidate.allocations
        assert self._supply is not None
        uses = demand.pending_on(self._overlay.node(name))
        return self._supply.results(name, *self._question(demand, uses), self._options.new_share_id)

    def steady(self, feasibility: NodeFeasibility, pod: PodInfo, demand: DeviceDemand) -> bool:
        """Whether a node's answer and score for such pods change with what is on that node and nothing else."""
        single = (
            self._shares
            and self._overlay.after is None
            and feasibility.setting.alone
            and not (pod.volume_claims or pod.disks)
        )
        return single and not (demand.fixed or demand.extended or demand.counts_devices)

    def signature(self, pod: PodInfo) -> Hashable:
        """What tells a pod from others of its shape, as far as rules between pods and scores go."""
        return self._memory.shared.kind(self._overlay, pod).signature

    def refilter(self, feasibility: NodeFeasibility, pod: PodInfo, demand: DeviceDemand, name: str) -> None:
        """Ask one node as things stand now. Raises AllocationError."""
        if demand.uses and self._supply is not None:
            self._supply.catch_up(self._overlay)
        feasibility.forget(name)
        self._memory.asked += 1
        self._ask(feasibility, pod, demand, self._overlay.node(name))

    def _forgettable(self, demand: DeviceDemand) -> bool:
        """Whether other decisions may ask the same: not where claims of this one have been allocated."""
        if not (demand.uses or demand.extended):
            return True
        tied = demand.fixed or (demand.extended is not None and demand.extended.existing is not None)
        return self._by_supply(demand) and not tied

    def _by_supply(self, demand: DeviceDemand) -> bool:
        return self._supply is not None and not demand.counts_devices

    def _question(
        self, demand: DeviceDemand, uses: Sequence[ClaimUse]
    ) -> tuple[Hashable, Callable[[], Sequence[Claim]]]:
        """What is asked of the supply, and by which name."""
        special = [json.dumps(use.claim.get("spec"), sort_keys=True) for use in uses[len(demand.pending) :]]
        return (demand.asked, *special), lambda: self._decoder.claims(uses)

    def _later(self, pod: PodInfo) -> tuple[PreFilterState, ...]:
        """The rules between pods that hold for a pod once room was made for others, by moment; nothing without any."""
        moments = self._overlay.moments[1:]
        if not self._shared_later:
            self._shared_later = [SharedPreFilterState(self._options.profile) for _ in moments]
        kinds = []
        for shared, moment in zip(self._shared_later, moments, strict=True):
            shared.catch_up(moment)
            kinds.append(shared.kind(moment, pod))
        if not any(kind.hard or kind.company for kind in kinds):
            return ()
        return tuple(PreFilterState(shared, kind) for shared, kind in zip(self._shared_later, kinds, strict=True))

    def _made(self, kind: PodSignature, demand: DeviceDemand) -> NodeFeasibility:
        shared = self._memory.shared
        # Where devices are allocated, nodes that rules refuse are not worth a question.
        asks_devices = bool(demand.uses or demand.extended)
        wide = frozenset[str]() if asks_devices else shared.wide(self._overlay, (c.key for c in kind.hard))
        wanted = wanted_of(use.claim for use in demand.pending_anywhere()) if shared.profile.remaining else ()
        setting = PreFilterState(shared, kind, wide, wanted)
        ranking = ScoreIndex(setting.scorers, setting.is_closed if setting.gated else None)
        return NodeFeasibility(self._plan(kind.pod, demand, setting), setting, ranking)

    def _plan(self, pod: PodInfo, demand: DeviceDemand, setting: PreFilterState) -> FilterPlan:
        """Return the filters for a pod; whether a claim is in sole use is asked of this pod's own rule."""
        sole_use, key = setting.sole_use, (pod.shape, demand.backed)
        compute = partial(filters_for_all_passes, self._overlay, pod, demand, self._options, sole_use)
        return compute() if sole_use is not None else self._plans.get_or_compute("filter plans", key, compute)

    def _refresh(self, feasibility: NodeFeasibility, pod: PodInfo, demand: DeviceDemand) -> None:
        """Ask again where the answer may have changed: at nodes that did, and where rules between pods say so."""
        changed = feasibility.follower.catch_up(self._overlay)
        if demand.uses or demand.extended:
            changed = self._with_devices(feasibility, demand, changed)
        moved = feasibility.setting.catch_up(self._overlay)
        for setting, moment in zip(feasibility.later, self._overlay.moments[1:], strict=False):
            moved_later = setting.catch_up(moment)
            moved = None if moved is None or moved_later is None else moved | moved_later
        differing = self._overlay.differing
        stale: Sequence[str] = self._nodes
        if changed is None or moved is None:
            for name in [*feasibility.candidates, *feasibility.refusals, *feasibility.undecided]:
                feasibility.forget(name)
        else:
            names = changed | moved | differing | feasibility.differing
            stale = sorted(names if self._everywhere else names & self._allowed)
        feasibility.differing = differing
        if stale or feasibility.setting.gated:
            feasibility.summary = None
        known = feasibility.size
        everybody = stale is self._overlay.snapshot.node_names
        if everybody and self._supply is not None:
            self._supply.look_at_all(self._overlay)
        if everybody and not known and self._in_lots(feasibility, demand) and self._ask_lots(feasibility, pod, demand):
            return
        some = ((name, present_node(self._overlay, name)) for name in stale)
        for name, node in self._overlay.present_nodes() if everybody else some:
            if known:
                feasibility.forget(name)
            if node is not None:
                self._memory.asked += 1
                self._ask(feasibility, pod, demand, node)

    def _with_devices(
        self, feasibility: NodeFeasibility, demand: DeviceDemand, changed: set[str] | None
    ) -> set[str] | None:
        """The nodes that changed, those included of which the devices did."""
        if self._supply is None or demand.counts_devices:
            return None if feasibility.follower.devices_changed else changed
        self._supply.catch_up(self._overlay)
        moved, feasibility.devices_seen = self._supply.since(feasibility.devices_seen), self._supply.now
        return None if changed is None or moved is None else changed | moved

    def _in_lots(self, feasibility: NodeFeasibility, demand: DeviceDemand) -> bool:
        """Whether the nodes of a lot answer alike (but for their devices, where these are not known to be alike)."""
        simple = not (demand.fixed or demand.extended or demand.counts_devices)
        by_supply = not demand.pending or self._by_supply(demand)
        return (
            self._shares
            and simple
            and by_supply
            and self._overlay.after is None
            and feasibility.plan.general
            and feasibility.setting.general
        )

    def _ask_lots(self, feasibility: NodeFeasibility, pod: PodInfo, demand: DeviceDemand) -> bool:
        """Ask one node of each lot, and nodes that were touched by themselves; False if that has to be done otherwise.

        An error is told by the first node that makes it, so all have to be asked in their order.
        """
        touched = self._overlay.touched
        try:
            for lot in self._overlay.snapshot.lots:
                names = [name for name in lot.names if name not in touched] if touched else lot.names
                if names:
                    self._ask_lot(feasibility, demand, lot, names)
        except AllocationError:
            for name in [*feasibility.candidates, *feasibility.refusals, *feasibility.undecided]:
                feasibility.forget(name)
            return False
        for name in sorted(touched):
            self._memory.asked += 1
            self._ask(feasibility, pod, demand, self._overlay.node(name))
        return True

    def _ask_lot(
        self, feasibility: NodeFeasibility, demand: DeviceDemand, lot: NodeEquivalenceClass, names: Sequence[str]
    ) -> None:
        self._memory.asked += 1
        failures = feasibility.plan.check(lot.first)
        if not failures and demand.pending:
            self._ask_lot_for_devices(feasibility, demand, lot, names)
        elif failures:
            feasibility.refusals.update(dict.fromkeys(names, failures))
        else:
            self._offer_lot(feasibility, names, _NOTHING_TO_ALLOCATE, 0)

    def _ask_lot_for_devices(
        self, feasibility: NodeFeasibility, demand: DeviceDemand, lot: NodeEquivalenceClass, names: Sequence[str]
    ) -> None:
        assert self._supply is not None
        node = self._overlay.node(names[0])
        question = self._question_of(demand, demand.pending)
        answer = self._supply.answer(node, question)
        if not self._supply.speaks_for_all(names, lot.node_device_class, question):
            for name in names:
                self._memory.asked += 1
                self._ask_supply(feasibility, demand, self._overlay.node(name), demand.pending)
        elif isinstance(answer, DoesNotFit):
            feasibility.refusals.update(dict.fromkeys(names, self._refused(answer)))
        elif isinstance(answer, Solution):
            self._offer_lot(feasibility, names, FeasibleNode(answer=answer), chosen_score(answer.claims, answer.asks))

    def _offer_lot(
        self, feasibility: NodeFeasibility, names: Sequence[str], candidate: FeasibleNode, preference: int
    ) -> None:
        if not feasibility.setting.same_keys:
            for name in names:
                self._offer(feasibility, self._overlay.node(name), candidate, preference)
            return
        feasibility.candidates.update(dict.fromkeys(names, candidate))
        feasibility.ranking.put_all(names, feasibility.setting.key(self._overlay.node(names[0]), preference))

    def _ask(self, feasibility: NodeFeasibility, pod: PodInfo, demand: DeviceDemand, node: NodeInfo) -> None:
        name = node.name
        failures = (
            feasibility.plan.check(node)
            or feasibility.setting.check(node)
            or (self._overlay.after is not None and self._refused_later(feasibility, name))
            or demand.tied_elsewhere(node)
        )
        if failures:
            feasibility.refusals[name] = failures
            return
        uses = demand.pending_on(node)
        if demand.counts_devices or (uses and not self._by_supply(demand)):
            self._ask_allocator(feasibility, pod, demand, node, uses)
        elif uses:
            self._ask_supply(feasibility, demand, node, uses)
        else:
            self._offer(feasibility, node, _NOTHING_TO_ALLOCATE, preference(demand, node, ()) if demand.fixed else 0)

    def _offer(self, feasibility: NodeFeasibility, node: NodeInfo, candidate: FeasibleNode, preference: int) -> None:
        feasibility.candidates[node.name] = candidate
        feasibility.ranking.put(node.name, feasibility.setting.key(node, preference))

    def _ask_supply(
        self, feasibility: NodeFeasibility, demand: DeviceDemand, node: NodeInfo, uses: Sequence[ClaimUse]
    ) -> None:
        assert self._supply is not None
        answer = self._supply.answer(node, self._question_of(demand, uses))
        if isinstance(answer, DoesNotFit):
            feasibility.refusals[node.name] = self._refused(answer)
        elif isinstance(answer, GaveUp):
            feasibility.undecided[node.name] = str(answer)
        elif isinstance(answer, AllocationError):
            # Asked for these claims, the error names them.
            allocate_on(self._overlay, self._options, node, self._decoder.claims(uses))
            raise answer
        else:
            fixed = preference(replace(demand, pending=(), extended=None), node, ()) if demand.fixed else 0
            self._offer(
                feasibility, node, FeasibleNode(answer=answer), fixed + chosen_score(answer.claims, answer.asks)
            )

    def _question_of(self, demand: DeviceDemand, uses: Sequence[ClaimUse]) -> ClaimQuery:
        assert self._supply is not None
        last = self._asking
        if last is None or last[0] is not demand or last[1] is not uses:
            last = self._asking = demand, uses, self._supply.question(*self._question(demand, uses))
        return last[2]

    def _refused(self, answer: DoesNotFit) -> Sequence[FilterFailure]:
        """How a node says that it has not the devices; those with the same answer say the same."""
        last = self._said
        if last is None or last[0] is not answer:
            last = self._said = answer, (unavailable(answer),)
        return last[1]

    def _ask_allocator(
        self, feasibility: NodeFeasibility, pod: PodInfo, demand: DeviceDemand, node: NodeInfo, uses: Sequence[ClaimUse]
    ) -> None:
        name = node.name
        try:
            found = allocate_on(self._overlay, self._options, node, self._decoder.claims(uses)) if uses else ()
        except GaveUp as error:
            feasibility.undecided[name] = str(error)
            return
        if isinstance(found, FilterFailure):
            feasibility.refusals[name] = (found,)
        elif demand.counts_devices and (failures := self._no_room(pod, demand, node, uses, found)):
            feasibility.refusals[name] = failures
        else:
            self._offer(feasibility, node, FeasibleNode(found), preference(demand, node, found))

    def _no_room(
        self, pod: PodInfo, demand: DeviceDemand, node: NodeInfo, uses: Sequence[ClaimUse], found: Sequence[Obj]
    ) -> Sequence[FilterFailure]:
        """What a node lacks for what the devices take of it themselves, at any moment."""
        claimed = node_allocatable_use(self._overlay, pod, demand, node, list(zip(uses, found, strict=True)))
        for moment in self._overlay.moments if claimed else ():
            if failures := too_much(pod, moment.node(node.name), claimed):
                return failures
        return ()

    def _refused_later(self, feasibility: NodeFeasibility, name: str) -> Sequence[FilterFailure]:
        """What speaks against a node once room was made for others."""
        failures: Sequence[FilterFailure] = ()
        for moment in self._overlay.moments[1:] if name in feasibility.differing else ():
            failures = failures or feasibility.plan.check(moment.node(name))
        for setting, moment in zip(feasibility.later, self._overlay.moments[1:], strict=False):
            failures = failures or setting.check(moment.node(name))
        return failures


def feasibility_cache_of(snapshot: Snapshot, options: Options) -> FeasibilityCache:
    """Return the cache that the options bring, or the one that the cluster has for decisions with such options."""
    given = options.memory
    if given is not None and given.profile is options.profile and snapshot.decision_cache.shares_results:
        return given
    key = (options.profile, options.features, options.budgets.step_budget, options.gates.declared_features)
    return snapshot.decision_cache.get_or_compute("boards", key, lambda: FeasibilityCache(options.profile), limit=4)
