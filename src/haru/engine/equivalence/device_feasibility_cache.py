"""Which nodes can allocate some claims: one answer of the allocator for all nodes with equal devices.

An answer holds until the node's devices, or what is taken of them, change. Allocations are made only for the node that
is chosen.
Source: our own; the answers are those of `dra.allocator.allocation.solve`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence

from haru.engine.dra.allocator.allocation import DoesNotFit, Solution
from haru.engine.dra.errors import AllocationError, GaveUp
from haru.engine.dra.model.claims import Claim
from haru.engine.dra.model.model import Features, NodeView
from haru.engine.equivalence.claim_query import ClaimQuery
from haru.engine.equivalence.decision_cache import DecisionCache
from haru.engine.equivalence.node_class_index import NodeClassIndex
from haru.engine.equivalence.node_device_classes import ClassifiedNode, NodeDeviceClass, classified_nodes_of
from haru.engine.state.node_info import NodeInfo
from haru.engine.state.overlay import Overlay
from haru.engine.state.partition import WHOLE
from haru.kube.meta import Obj

Answer = Solution | DoesNotFit | AllocationError | GaveUp
_MOST_CHANGES = 20_000
_FEW = 100


class DeviceFeasibilityCache:
    """Answers of nodes to claims on the overlay that was followed last.

    A reader keeps a `position` and asks `changed_since` which nodes may answer otherwise.
    """

    def __init__(self, features: Features, step_budget: int, *, scoring: bool = False) -> None:
        self._features = features
        self._step_budget = step_budget
        self._scoring = scoring
        self._index: NodeClassIndex | None = None
        self._classes: object = None
        self._nodes: Mapping[str, NodeInfo] = {}
        self._classified: Mapping[str, ClassifiedNode | None] | None = None
        self._by_class: set[str] = set()
        """Nodes that are not in the index: another node of their device class had answered."""
        self._labels: dict[str, Mapping[str, str]] = {}
        self._queries = DecisionCache()
        self._changes: list[str] = []
        self._first = 0

    @property
    def position(self) -> int:
        """Return the position after all changes so far."""
        return self._first + len(self._changes)

    def changed_since(self, position: int) -> set[str] | None:
        """Return the nodes whose devices may have changed since a position; None for all."""
        return set(self._changes[position - self._first :]) if position >= self._first else None

    def catch_up(self, overlay: Overlay) -> None:
        """Follow the cluster to this overlay: nodes, devices, and what is taken of them."""
        devices, index = overlay.snapshot.devices, self._index
        self._nodes, before = overlay.snapshot.nodes, self._nodes
        # Where others are taken in a later pass, a node answers for itself alone (`FilterResultCache`).
        self._classified = None if overlay.allocates else overlay.snapshot.classified_nodes
        if index is None or devices.classes is not self._classes:
            # What a device class selects is part of the query.
            self._queries = DecisionCache()
            self._classes = devices.classes
            self._forget_changes()
        if index is None:
            partitionable = self._features.PartitionableDevices
            self._index = NodeClassIndex(devices, overlay.allocated, (), partitionable=partitionable, lazy=True)
            return
        if devices is not index.snapshot or overlay.allocated is not index.allocated:
            moved = index.update(devices, overlay.allocated)
            named = self._by_class if index.touched is None else self._by_class & index.touched
            asked = len(index.nodes) + len(self._by_class)
            if moved is None or len(moved) + len(named) > asked // 2 + _FEW:
                self._forget_changes()
            else:
                self._changes += {*named, *[index.nodes[number].name for number in moved]}
        if self._nodes is not before:
            for name in overlay.changed_since(before):
                self._relabel(index, name)
        if len(self._changes) > _MOST_CHANGES:
            self._forget_changes()

    def expect_all_nodes(self, overlay: Overlay) -> None:
        """Prepare for queries to all nodes on this overlay."""
        if self._classified is not None:
            self._classified = overlay.snapshot.all_classified_nodes

    def query(self, key: Hashable, claims: Callable[[], Sequence[Claim]]) -> ClaimQuery:
        """Return the query for claims; `key` is equal for claims that ask for the same."""
        compute = lambda: ClaimQuery(  # noqa: E731
            self._current, claims(), self._features, step_budget=self._step_budget, scoring=self._scoring
        )
        return self._queries.get_or_compute("claim queries", key, compute)

    def answer(self, node: NodeInfo, query: ClaimQuery) -> Answer:
        """Return what a node answers to a query."""
        index = self._current
        classified = classified_nodes_of(self._classified, node.name)
        if classified is None:
            return query.answer(index, index.class_of(self._number(index, node.name, node.labels)))
        found = query.answer_without_search(classified)
        if found is not None:
            self._by_class.add(node.name)
            return found
        return query.answer_for_class(index, self._number(index, node.name, node.labels), classified.node_device_class)

    def can_answer_on(self, overlay: Overlay) -> bool:
        """Return whether nodes with a device class can be asked on an overlay that is not followed (`answer_on`)."""
        devices = overlay.snapshot.devices
        whole = self._features.PartitionableDevices and devices.partition is WHOLE
        return whole and devices.classes is self._classes

    def answer_on(self, overlay: Overlay, node: NodeInfo, query: ClaimQuery) -> Answer | None:
        """Return what a node answers on an overlay that is not followed; None where more than its devices tells it."""
        classified = overlay.classified_by_devices(node.name)
        found = query.answer_without_search(classified) if classified is not None else None
        if found is None:
            classified = overlay.classified_node(node.name)
            if classified is None:
                return None
            found = query.answer_of_own_devices(NodeView(node.name, node.labels), classified)
        if found is not None:
            self._by_class.add(node.name)
        return found

    def holds_for_all(self, names: Sequence[str], node_device_class: NodeDeviceClass | None, query: ClaimQuery) -> bool:
        """Return whether all of some nodes of one device class answer what the first has just answered."""
        if node_device_class is None or query.known_answer(node_device_class) is None:
            return False
        self._by_class.update(names[1:])
        return True

    def results(
        self, node: str, key: Hashable, claims: Callable[[], Sequence[Claim]], new_share_id: Callable[[], str]
    ) -> tuple[Obj, ...]:
        """Return the allocations of claims on a node that can allocate them. Raises AllocationError."""
        index, query = self._current, self.query(key, claims)
        found = query.results(index, self._number(index, node, self._nodes[node].labels), new_share_id)
        if isinstance(found, AllocationError):
            raise AllocationError(str(found))  # each time that the one which is kept is raised it holds more frames
        if not isinstance(found, tuple):
            raise AssertionError(f"node {node} had devices for the claims and now has none: {found}")
        return found

    @property
    def _current(self) -> NodeClassIndex:
        assert self._index is not None
        return self._index

    def _number(self, index: NodeClassIndex, name: str, labels: Mapping[str, str]) -> int:
        """Return a node's number in the index; add the node if it is new."""
        numbers = index.numbers(name)
        if not numbers:
            self._labels[name] = labels
            index.put(NodeView(name, labels))
            numbers = index.numbers(name)
        return numbers[0]

    def _relabel(self, index: NodeClassIndex, name: str) -> None:
        labels = self._labels.get(name)
        if labels is None:
            return
        info = self._nodes.get(name)
        if info is None or not info.present:
            del self._labels[name]
            index.drop(name)
        elif labels is not info.labels:
            self._labels[name] = info.labels
            if labels != info.labels:
                index.put(NodeView(name, info.labels))
                self._changes.append(name)

    def _forget_changes(self) -> None:
        """Make every reader filter all nodes again."""
        self._first = self.position + 1
        self._changes = []
