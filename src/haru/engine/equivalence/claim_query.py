"""Claims asked of a whole fleet: which nodes can serve them, and how.

Nodes that are alike, or look alike to the claims, are decided once. A `Question` keeps the answers, so that asking
again after something changed costs what changed; it stays valid while the device classes are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

from haru.engine.dra.allocator.allocation import DEFAULT_BUDGET, DoesNotFit, Solution, decoded, gather, solve
from haru.engine.dra.allocator.allocation_problem import AllocationProblem
from haru.engine.dra.allocator.node_devices import NodeDevices
from haru.engine.dra.errors import AllocationError, GaveUp
from haru.engine.dra.model.claims import Claim
from haru.engine.dra.model.model import Features, Obj
from haru.engine.dra.pools.inventory import DeviceSnapshot
from haru.engine.equivalence.device_signature import DeviceSignature
from haru.engine.equivalence.node_class_index import NodeClass, NodeClassIndex
from haru.engine.equivalence.node_device_classes import NodeDeviceClass, SelectorFootprint

Refusal = DoesNotFit | AllocationError | GaveUp
Answer = Solution | Refusal
"""What the nodes of one kind answer; an error is an answer like any other."""

_SPARE = 4096
_FEW_PEERS = 8
"""So many kinds of nodes are rather asked than looked at."""
_USES = 2
"""Nodes of which every inventory is used in more ways than this differ in their use: looks would not tell more."""


class ClaimQuery:
    """Some claims, with what is known about where they fit."""

    def __init__(
        self,
        fleet: NodeClassIndex,
        claims: Sequence[Obj] | Sequence[Claim],
        features: Features,
        *,
        step_budget: int = DEFAULT_BUDGET,
        expired: Callable[[], bool] | None = None,
        scoring: bool = False,
    ) -> None:
        self.claims = decoded(claims, fleet.snapshot, features)
        self._features = features
        self._step_budget = step_budget
        self._expired = expired
        self._scoring = scoring
        self._sight: DeviceSignature | None = None
        self._answers: dict[Hashable, Answer] = {}
        self._seen: dict[Hashable, Answer] = {}
        self._dressed: dict[NodeDeviceClass, Answer] = {}
        self._regard = SelectorFootprint.of(self.claims)
        self._board: AllocationProblem | None = None
        self._asked: tuple[DeviceSnapshot, int] | None = None  # what the board is of

    def fits(self, fleet: NodeClassIndex) -> list[int]:
        """The numbers of the nodes that can serve the claims, ascending."""
        found: list[int] = []
        for peers in fleet.peers.values():
            if isinstance(self.answer(fleet, peers), Solution):
                found.extend(peers.nodes)
        found.sort()
        return found

    def answer(self, fleet: NodeClassIndex, peers: NodeClass) -> Answer:
        """What these nodes answer, as far as it is the same for all of them."""
        found = self._answers.get(peers.key)
        if found is None:
            if len(self._answers) > 2 * len(fleet.peers) + _SPARE:
                self._answers.clear()
                self._seen.clear()
            found = self._look(fleet, next(iter(peers.nodes)))
            if not isinstance(found, GaveUp):
                self._answers[peers.key] = found
        return found

    def known_of(self, node_device_class: NodeDeviceClass) -> Answer | None:
        """What nodes with this node device class answer, whichever they are, if one was asked."""
        return self._dressed.get(node_device_class)

    def answer_of(self, fleet: NodeClassIndex, number: int, node_device_class: NodeDeviceClass) -> Answer:
        """What a node with this node device class answers; known from now on, if all with it answer the same."""
        found = self.answer(fleet, fleet.peers_of(number))
        if isinstance(found, Solution | DoesNotFit) and self._regard.is_blind(node_device_class):
            if len(self._dressed) >= _SPARE:
                self._dressed.clear()
            self._dressed[node_device_class] = found
        return found

    def results(self, fleet: NodeClassIndex, number: int, new_share_id: Callable[[], str]) -> tuple[Obj, ...] | Refusal:
        """What one node answers: the allocations of the claims, or why there are none."""
        peers = fleet.peers_of(number)
        found = self.answer(fleet, peers)
        if isinstance(found, AllocationError) and len(peers.nodes) > 1:
            found = self._ask(fleet, number)  # the text may name the node's own devices
        if not isinstance(found, Solution):
            return found
        try:
            return found.results(self._site(fleet, number), new_share_id)
        except AllocationError as error:
            return error

    def _site(self, fleet: NodeClassIndex, number: int) -> NodeDevices:
        node = fleet.nodes[number]
        if self._asked == (fleet.snapshot, number) and self._board is not None:
            return self._board
        return NodeDevices(gather(fleet.snapshot, node, self._features), node, self._features)

    def _look(self, fleet: NodeClassIndex, number: int) -> Answer:
        """What a node answers: the same as one that looks like it, if some is known."""
        if len(fleet.peers) < _FEW_PEERS or fleet.inventories * _USES < len(fleet.peers):
            return self._ask(fleet, number)
        try:
            if fleet.partitionable is self._features.PartitionableDevices:
                views = fleet.views(number)
            else:
                views = fleet.snapshot.views(fleet.nodes[number], self._features.PartitionableDevices)
        except AllocationError:
            return self._ask(fleet, number)
        if self._sight is None:
            self._sight = DeviceSignature(self.claims, self._features, sized=self._scoring)
        sight = self._sight.of_views(views, fleet.allocated)
        found = self._seen.get(sight) if sight is not None else None
        if found is None:
            found = self._ask(fleet, number)
            if sight is not None and isinstance(found, Solution | DoesNotFit):
                self._seen[sight] = found
        return found

    def _ask(self, fleet: NodeClassIndex, number: int) -> Answer:
        node = fleet.nodes[number]
        if not self.claims:
            return Solution((), [], [])
        try:
            views = gather(fleet.snapshot, node, self._features)
            board = AllocationProblem(views, fleet.allocated, node, self.claims, self._features)
            self._board, self._asked = board, (fleet.snapshot, number)
            found = solve(board, self._step_budget, self._expired, scoring=self._scoring)
            if isinstance(found, Solution) and not all(view.confined for view in board.views):
                found.results(board, str)  # a node selector that cannot be made up is an error
            return found
        except (AllocationError, GaveUp) as error:
            return error
