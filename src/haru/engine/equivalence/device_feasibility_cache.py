"""What nodes answer to claims, kept from one decision to the next: a fleet that follows, and the questions put to it.

Nodes whose devices look alike to the claims answer once, and an answer holds until the node's devices, or what is
taken of them, change. Allocations are written down only where one is taken.
Source: our own; the answers are those of `devices.allocate`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence

from haru.engine.dra.allocator.allocation import DoesNotFit, Solution
from haru.engine.dra.errors import AllocationError, GaveUp
from haru.engine.dra.model.claims import Claim
from haru.engine.dra.model.model import Features, NodeView
from haru.engine.equivalence.claim_query import ClaimQuery
from haru.engine.equivalence.node_class_index import NodeClassIndex
from haru.engine.equivalence.node_device_classes import ClassifiedNode, NodeDeviceClass, classified_nodes_of
from haru.engine.state.decision import Obj
from haru.engine.state.node_info import NodeInfo
from haru.engine.state.overlay import Overlay

Answer = Solution | DoesNotFit | AllocationError | GaveUp
_MOST_QUESTIONS = 64
_MOST_CHANGES = 20_000
_FEW = 100


class DeviceFeasibilityCache:
    """The devices of the nodes that were asked, as they are on the overlay that was looked at last.

    Readers keep a place (`now`) and ask `since` what has changed.
    """

    def __init__(self, features: Features, step_budget: int, *, scoring: bool = False) -> None:
        self._features = features
        self._step_budget = step_budget
        self._scoring = scoring
        self._fleet: NodeClassIndex | None = None
        self._classes: object = None
        self._nodes: Mapping[str, NodeInfo] = {}
        self._dressed: Mapping[str, ClassifiedNode | None] | None = None
        self._by_outfit: set[str] = set()
        """Nodes that were not looked at, since others with their node device class had answered."""
        self._labels: dict[str, Mapping[str, str]] = {}
        self._questions: OrderedDict[Hashable, ClaimQuery] = OrderedDict()
        self._changes: list[str] = []
        self._first = 0

    @property
    def now(self) -> int:
        """The place of a reader that knows everything so far."""
        return self._first + len(self._changes)

    def since(self, place: int) -> set[str] | None:
        """The nodes whose devices may have changed since then; None for all of them."""
        return set(self._changes[place - self._first :]) if place >= self._first else None

    def catch_up(self, overlay: Overlay) -> None:
        """Take in what has changed: nodes, devices, and what is taken of them."""
        devices, fleet = overlay.snapshot.devices, self._fleet
        self._nodes, before = overlay.snapshot.nodes, self._nodes
        untouched = overlay.allocated is overlay.snapshot.allocated
        self._dressed = overlay.snapshot.dressed if untouched else None
        if fleet is None or devices.classes is not self._classes:
            # What a class selects is part of what was asked.
            self._questions.clear()
            self._classes = devices.classes
            self._forget_changes()
        if fleet is None:
            partitionable = self._features.PartitionableDevices
            self._fleet = NodeClassIndex(devices, overlay.allocated, (), partitionable=partitionable)
            return
        if devices is not fleet.snapshot or overlay.allocated is not fleet.allocated:
            moved = fleet.update(devices, overlay.allocated)
            named = self._by_outfit if fleet.touched is None else self._by_outfit & fleet.touched
            asked = len(fleet.nodes) + len(self._by_outfit)
            if moved is None or len(moved) + len(named) > asked // 2 + _FEW:
                self._forget_changes()
            else:
                self._changes += {*named, *[fleet.nodes[number].name for number in moved]}
        if self._nodes is not before:
            for name in overlay.changed_since(before):
                self._relabel(fleet, name)
        if len(self._changes) > _MOST_CHANGES:
            self._forget_changes()

    def look_at_all(self, overlay: Overlay) -> None:
        """Say that all nodes will be asked, on the overlay that was caught up with."""
        if self._dressed is not None:
            self._dressed = overlay.snapshot.all_dressed

    def question(self, key: Hashable, claims: Callable[[], Sequence[Claim]]) -> ClaimQuery:
        """The question whether nodes have devices for claims; `key` is equal for claims that ask for the same."""
        return self._asked(key, claims)[1]

    def answer(self, node: NodeInfo, question: ClaimQuery) -> Answer:
        """What a node answers to one of the questions."""
        fleet = self._fleet
        assert fleet is not None
        dressed = classified_nodes_of(self._dressed, node.name)
        if dressed is None:
            return question.answer(fleet, fleet.peers_of(self._number(fleet, node.name, node.labels)))
        found = question.known_of(dressed.node_device_class)
        if found is not None:
            self._by_outfit.add(node.name)
            return found
        return question.answer_of(fleet, self._number(fleet, node.name, node.labels), dressed.node_device_class)

    def speaks_for_all(
        self, names: Sequence[str], node_device_class: NodeDeviceClass | None, question: ClaimQuery
    ) -> bool:
        """Whether all of some nodes with one node device class answer what the first of them has just answered."""
        if node_device_class is None or question.known_of(node_device_class) is None:
            return False
        self._by_outfit.update(names[1:])
        return True

    def results(
        self, node: str, key: Hashable, claims: Callable[[], Sequence[Claim]], new_share_id: Callable[[], str]
    ) -> tuple[Obj, ...]:
        """The allocations of claims that a node has said yes to. Raises AllocationError."""
        fleet, question = self._asked(key, claims)
        found = question.results(fleet, self._number(fleet, node, self._nodes[node].labels), new_share_id)
        if isinstance(found, AllocationError):
            raise found
        if not isinstance(found, tuple):
            raise AssertionError(f"node {node} had devices for the claims and now has none: {found}")
        return found

    def _asked(self, key: Hashable, claims: Callable[[], Sequence[Claim]]) -> tuple[NodeClassIndex, ClaimQuery]:
        assert self._fleet is not None
        question = self._questions.get(key)
        if question is None:
            question = self._questions[key] = ClaimQuery(
                self._fleet, claims(), self._features, step_budget=self._step_budget, scoring=self._scoring
            )
            if len(self._questions) > _MOST_QUESTIONS:
                self._questions.popitem(last=False)
        else:
            self._questions.move_to_end(key)
        return self._fleet, question

    def _number(self, fleet: NodeClassIndex, name: str, labels: Mapping[str, str]) -> int:
        """A node's number; it is looked at from now on."""
        numbers = fleet.numbers(name)
        if not numbers:
            self._labels[name] = labels
            fleet.put(NodeView(name, labels))
            numbers = fleet.numbers(name)
        return numbers[0]

    def _relabel(self, fleet: NodeClassIndex, name: str) -> None:
        labels = self._labels.get(name)
        if labels is None:
            return
        info = self._nodes.get(name)
        if info is None or not info.present:
            del self._labels[name]
            fleet.drop(name)
        elif labels is not info.labels:
            self._labels[name] = info.labels
            if labels != info.labels:
                fleet.put(NodeView(name, info.labels))
                self._changes.append(name)

    def _forget_changes(self) -> None:
        """From now on every reader has to look at everything."""
        self._first = self.now + 1
        self._changes = []
