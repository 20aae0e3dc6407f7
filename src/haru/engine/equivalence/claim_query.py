"""Which nodes can allocate some claims, and how: the allocator runs once per class of nodes.

Nodes with equal devices in equal use are one class; nodes with one signature of devices answer alike, too. A query
keeps its answers, so that the next use costs what has changed. It is valid while the DeviceClasses stay the same.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar

from haru.engine.dra.allocated_state import AllocatedState
from haru.engine.dra.allocator.allocation import DEFAULT_BUDGET, TAKEN, DoesNotFit, Solution, decoded, gather, solve
from haru.engine.dra.allocator.allocation_problem import MAX_RESULTS, AllocationProblem
from haru.engine.dra.allocator.candidates import SubrequestPlan
from haru.engine.dra.allocator.node_devices import NodeDevices
from haru.engine.dra.allocator.search_state import Pick
from haru.engine.dra.errors import AllocationError, GaveUp
from haru.engine.dra.model.claims import Claim
from haru.engine.dra.model.model import Features, NodeView
from haru.engine.dra.pools.inventory import DeviceSnapshot
from haru.engine.dra.pools.pools import PoolView
from haru.engine.equivalence.decision_cache import cached_property
from haru.engine.equivalence.device_signature import DeviceSignature
from haru.engine.equivalence.node_class_index import NodeClass, NodeClassIndex
from haru.engine.equivalence.node_device_classes import (
    ClassifiedNode,
    NodeDeviceClass,
    SelectorFootprint,
    part_of,
    simple_schema,
)
from haru.kube.meta import Obj

K = TypeVar("K", bound=Hashable)
Refusal = DoesNotFit | AllocationError | GaveUp
Answer = Solution | Refusal
"""What the nodes of one class answer; an error is an answer, too."""

_VERDICTS = frozenset((True, False))
_SPARE = 1024
_FEW_CLASSES = 8
"""With fewer classes, no signatures are computed."""
_USES = 2
"""Signatures are computed only if there are fewer uses of an inventory: else nodes differ in their use anyway."""


class ClaimQuery:
    """Some claims and the answers of nodes so far."""

    def __init__(
        self,
        index: NodeClassIndex,
        claims: Sequence[Obj] | Sequence[Claim],
        features: Features,
        *,
        step_budget: int = DEFAULT_BUDGET,
        expired: Callable[[], bool] | None = None,
        scoring: bool = False,
    ) -> None:
        self.claims = decoded(claims, index.snapshot, features)
        self._features = features
        self._step_budget = step_budget
        self._expired = expired
        self._scoring = scoring
        self._signature: DeviceSignature | None = None
        self._answers: dict[Hashable, Answer] = {}
        self._by_signature: dict[Hashable, Answer] = {}
        self._by_device_class: dict[NodeDeviceClass, Answer] = {}
        self._by_places: dict[tuple[int, ...], Answer] = {}
        """By the devices that are selected and free: answers that need no search."""
        self._problem: tuple[DeviceSnapshot, NodeView, AllocationProblem] | None = None  # the last, and what it is of

    @cached_property
    def _footprint(self) -> SelectorFootprint:
        return SelectorFootprint.of(self.claims)

    def fits(self, index: NodeClassIndex) -> list[int]:
        """Return the numbers of the nodes that can allocate the claims, ascending."""
        found: list[int] = []
        for key, node_class in index.classes.items():
            if isinstance(self._answers.get(key) or self.answer(index, node_class), Solution):
                found.extend(node_class.nodes)
        found.sort()
        return found

    def answer(self, index: NodeClassIndex, node_class: NodeClass) -> Answer:
        """Return what the nodes of a class answer, as far as it is the same for all."""
        found = self._answers.get(node_class.key)
        if found is None:
            if len(self._answers) > 2 * len(index.classes) + _SPARE:
                self._answers.clear()
                self._by_signature.clear()
            found = self._answer_anew(index, next(iter(node_class.nodes)))
            if not isinstance(found, GaveUp):
                self._answers[node_class.key] = found
        return found

    def known_answer(self, node_device_class: NodeDeviceClass) -> Answer | None:
        """Return what all nodes of a device class answer, if one has answered."""
        return self._by_device_class.get(node_device_class)

    def answer_without_search(self, one: ClassifiedNode) -> Answer | None:
        """Return what all nodes of a device class answer, if one has answered or that is seen without a search."""
        node_device_class = one.node_device_class
        found = self._by_device_class.get(node_device_class)
        if found is None and self._counted and len(one.views) == 1 and self._footprint.is_blind(node_device_class):
            found = self._counted_answer(self._counted, one.views[0], node_device_class.taken)
            if found is not None:
                _keep(self._by_device_class, node_device_class, found)
        return found

    def _counted_answer(self, plan: SubrequestPlan, view: PoolView, taken: int) -> Answer | None:
        """Return what a node answers that has one simple pool of which these devices are taken (`_counted`)."""
        selected = plan.ask.selection.column(view)
        if not _VERDICTS.issuperset(selected):
            return None  # a selector fails, which ends the attempt if the search comes to that device
        found = tuple([place for place, is_selected in enumerate(selected) if is_selected and not taken >> place & 1])
        answer = self._by_places.get(found)
        if answer is None:
            answer = TAKEN
            if len(found) >= plan.needed:
                picks = [Pick(plan, place, None) for place in found[: plan.needed]]
                answer = Solution(self.claims, [picks], [[plan.ask]])
            _keep(self._by_places, found, answer)
        return answer

    def answer_for_class(self, index: NodeClassIndex, number: int, node_device_class: NodeDeviceClass) -> Answer:
        """Return what a node of a device class answers; keep it if it holds for the whole class."""
        found = self.answer(index, index.class_of(number))
        if isinstance(found, Solution | DoesNotFit) and self._footprint.is_blind(node_device_class):
            _keep(self._by_device_class, node_device_class, found)
        return found

    def answer_of_own_devices(self, node: NodeView, one: ClassifiedNode) -> Answer | None:
        """Return what a node answers with devices of this class, whatever the index has; None where that may differ."""
        found = self.answer_without_search(one)
        if found is not None or not self.claims or not self._footprint.is_blind(one.node_device_class):
            return found
        allocated = AllocatedState.of_uses({view.key: use for view, use in zip(one.views, one.uses, strict=True)})
        signature = self._signature_of(one.views, allocated)
        found = self._by_signature.get(signature) if signature is not None else None
        if found is None:
            try:
                problem = AllocationProblem(one.views, allocated, node, self.claims, self._features)
                found = solve(problem, self._step_budget, self._expired, scoring=self._scoring)
            except (AllocationError, GaveUp):
                return None
            if signature is not None:
                _keep(self._by_signature, signature, found)
        _keep(self._by_device_class, one.node_device_class, found)
        return found

    def results(self, index: NodeClassIndex, number: int, new_share_id: Callable[[], str]) -> tuple[Obj, ...] | Refusal:
        """Return the allocations of the claims on one node, or why there are none."""
        node_class = index.class_of(number)
        found = self.answer(index, node_class)
        if isinstance(found, AllocationError) and len(node_class.nodes) > 1:
            found = self._answer_anew(index, number)  # the text may name the node's own devices
        if not isinstance(found, Solution):
            return found
        try:
            return found.results(self._node_devices(index, number), new_share_id)
        except AllocationError as error:
            return error.with_traceback(None)

    def _node_devices(self, index: NodeClassIndex, number: int) -> NodeDevices:
        node = index.nodes[number]
        last = self._problem
        if last is not None and last[0] is index.snapshot and last[1] is node:
            return last[2]
        return NodeDevices(gather(index.snapshot, node, self._features), node, self._features)

    def _answer_anew(self, index: NodeClassIndex, number: int) -> Answer:
        """Return the answer of a node: by count, of one with the same signature, or else of a search."""
        if not self.claims:
            return Solution((), [], [])
        try:
            views = self._views(index, number)
        except AllocationError as error:
            return error.with_traceback(None)
        model = simple_schema(views[0]) if len(views) == 1 else None
        if model is not None and self._counted:
            part = part_of(model, views[0], index.allocated.use(views[0].key))
            counted = self._counted_answer(self._counted, views[0], part[1]) if part else None
            if counted is not None:
                return counted
        if index.class_count < _FEW_CLASSES or index.inventory_count * _USES < index.class_count:
            return self._solve(index, number, views)
        signature = self._signature_of(views, index.allocated)
        found = self._by_signature.get(signature) if signature is not None else None
        if found is None:
            found = self._solve(index, number, views)
            if signature is not None and isinstance(found, Solution | DoesNotFit):
                self._by_signature[signature] = found
        return found

    def _signature_of(self, views: Sequence[PoolView], allocated: AllocatedState) -> Hashable | None:
        if self._signature is None:
            self._signature = DeviceSignature(self.claims, self._features, sized=self._scoring)
        return self._signature.of_views(views, allocated)

    def _views(self, index: NodeClassIndex, number: int) -> Sequence[PoolView]:
        """Return the pools that a node sees. Raises AllocationError."""
        known = index.last_views(number) if index.partitionable is self._features.PartitionableDevices else None
        return gather(index.snapshot, index.nodes[number], self._features) if known is None else known

    def _solve(self, index: NodeClassIndex, number: int, views: Sequence[PoolView]) -> Answer:
        node = index.nodes[number]
        try:
            problem = AllocationProblem(views, index.allocated, node, self.claims, self._features)
            self._problem = index.snapshot, node, problem
            found = solve(problem, self._step_budget, self._expired, scoring=self._scoring)
            if isinstance(found, Solution) and [view for view in problem.views if not view.confined]:
                found.results(problem, str)  # a node selector that cannot be made up is an error
            return found
        except (AllocationError, GaveUp) as error:
            return error.with_traceback(None)  # what is kept must not hold the frames, nor the snapshot in them

    @cached_property
    def _counted(self) -> SubrequestPlan | None:
        """The plan of the one request, if the first devices that are free and selected are the answer."""
        requests = [request for claim in self.claims for request in claim.requests]
        if self._scoring or len(self.claims) != 1 or len(requests) != 1 or not self.claims[0].takes_any_devices:
            return None
        (ask,) = requests[0].asks
        if requests[0].error or ask.error or ask.count > MAX_RESULTS:
            return None
        return SubrequestPlan(1, ask, (), [], {})


def _keep(answers: dict[K, Answer], key: K, answer: Answer) -> None:
    if len(answers) >= _SPARE:
        answers.clear()
    answers[key] = answer
