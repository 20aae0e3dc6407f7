"""Classes of nodes with equal devices of which the same are taken: they give one answer to any claims.

The index follows the devices at the cost of what changes: a device that is allocated moves one node to another class.
Names of nodes, pools and devices do not matter, as long as only one node sees the devices. Pools that several nodes
can see, and incomplete or invalid pools, count by their identity.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Sequence

from haru.engine.dra.allocated_state import AllocatedState
from haru.engine.dra.errors import AllocationError
from haru.engine.dra.model.model import NodeView
from haru.engine.dra.placement import matches_node
from haru.engine.dra.pools.inventory import DeviceSnapshot
from haru.engine.dra.pools.pools import PoolView
from haru.engine.state.cow_map import differing, values_of

_SPARE = 1000


class NodeClass:
    """Equal nodes by their numbers in the index. Equal `key` means equal answers, whatever else changes."""

    __slots__ = ("key", "nodes")

    def __init__(self, key: Hashable) -> None:
        self.key = key
        self.nodes: dict[int, None] = {}


_ABSENT = NodeClass(None)
"""The class of a number without a node."""
_UNCLASSIFIED = NodeClass(None)
"""The class of a node that no query has asked for."""
_MOVED = NodeClass(None)
"""The class of a node that no query has asked for since its devices changed."""


class NodeClassIndex:
    """Nodes by class in one state of the devices; `update` follows to the next state.

    `lazy`: nodes whose devices change are in no class until it is asked for.
    """

    def __init__(
        self,
        snapshot: DeviceSnapshot,
        allocated: AllocatedState,
        nodes: Iterable[NodeView],
        *,
        partitionable: bool = True,
        lazy: bool = False,
    ) -> None:
        self._lazy = lazy
        self._moved = 0
        self.snapshot = snapshot
        self.allocated = allocated
        self.nodes = list(nodes)
        """By number. A dropped node stays until another takes its number."""
        self.partitionable = partitionable
        self.classes: dict[Hashable, NodeClass] = {}
        self._named: dict[str, list[int]] = {}
        for number, node in enumerate(self.nodes):
            self._named.setdefault(node.name, []).append(number)
        self._free: list[int] = []
        self._stamps: dict[str, int] = {}
        self._clock = 0
        self.touched: set[str] | None = set()
        """All nodes whose devices the last update may have changed, in the index or not; None: all."""
        self._last_views: tuple[NodeView, DeviceSnapshot, list[PoolView]] | None = None
        self._class_of: list[NodeClass] = []
        self._inventories = _InventoryNumbers()
        self._met_with: dict[int, int] = {}
        """How many entries of `_inventories` came with a node, by its number."""
        self._reset()

    @property
    def inventory_count(self) -> int:
        """Return how many different pools there are, whatever their devices are called."""
        return self._inventories.count

    @property
    def class_count(self) -> int:
        """Return how many classes there are at most."""
        return len(self.classes) + self._moved

    def numbers(self, name: str) -> Sequence[int]:
        """Return the numbers of the nodes of a name; there may be several, or none."""
        return self._named.get(name, ())

    def put(self, node: NodeView) -> None:
        """Add a node, or replace one that has other labels. Its class is computed when it is asked for."""
        numbers = self._named.get(node.name)
        if numbers is None:
            number = self._free.pop() if self._free else len(self.nodes)
            if number == len(self.nodes):
                self.nodes.append(node)
                self._class_of.append(_ABSENT)
            numbers = self._named[node.name] = [number]
        for number in numbers:
            self.nodes[number] = node
            self._remove(number)
            self._class_of[number] = _UNCLASSIFIED

    def drop(self, name: str) -> None:
        """Drop the nodes of a name."""
        for number in self._named.pop(name, ()):
            self._remove(number)
            self._class_of[number] = _ABSENT
            self._inventories.expected -= self._met_with.pop(number, 0)
            self._free.append(number)

    def update(self, snapshot: DeviceSnapshot, allocated: AllocatedState) -> set[int] | None:
        """Follow to another state; return the nodes whose devices, or what is taken of them, changed (None: all)."""
        changed: set[str] = set()
        if snapshot is not self.snapshot:
            changed |= differing(snapshot.pools, self.snapshot.pools)
        if allocated is not self.allocated:
            changed.update(map(str, allocated.changed(self.allocated)))
        moved = self._affected(changed, *((snapshot,) if snapshot is self.snapshot else (self.snapshot, snapshot)))
        self.snapshot, self.allocated = snapshot, allocated
        if len(self._inventories) > 2 * self._inventories.expected + _SPARE:
            self._reset()
            return None
        for number in moved:
            if self._class_of[number] is not _UNCLASSIFIED:
                self._remove(number)
                if self._lazy:
                    self._class_of[number] = _MOVED
                    self._moved += 1
                else:
                    self._add(number)
        return moved

    def last_views(self, number: int) -> list[PoolView] | None:
        """Return the pools that a node sees, if its class was the last to be computed."""
        last = self._last_views
        return last[2] if last is not None and last[0] is self.nodes[number] and last[1] is self.snapshot else None

    def class_of(self, number: int) -> NodeClass:
        """Return the class of a node."""
        if self._class_of[number] is _MOVED:
            self._moved -= 1
            self._add(number)
        elif self._class_of[number] is _UNCLASSIFIED:
            known = len(self._inventories)
            self._add(number)
            met = len(self._inventories) - known
            self._met_with[number] = self._met_with.get(number, 0) + met
            self._inventories.expected += met
        return self._class_of[number]

    def _affected(self, pools: Collection[str], *snapshots: DeviceSnapshot) -> set[int]:
        """Return the nodes whose answer may depend on some pools, as they were or as they are."""
        self._clock += 1
        self._stamps.update(dict.fromkeys(pools, self._clock))
        nodes: set[str] = set()
        for snapshot in snapshots:
            if not (snapshot.everywhere.isdisjoint(pools) and snapshot.troubled.isdisjoint(pools)):
                self.touched = None
                return {number for number, place in enumerate(self._class_of) if place is not _ABSENT}
            for pool in values_of(snapshot.pools, pools):
                if pool is not None:
                    nodes.update([item.placement.node_name for item in pool.slices])
        self.touched = nodes
        return {number for node in nodes & self._named.keys() for number in self._named[node]}

    def _reset(self) -> None:
        self.classes.clear()
        self._moved = 0
        self._inventories = self._inventories.renewed()
        self._met_with.clear()
        before = self._class_of
        self._class_of = [_ABSENT] * len(self.nodes)
        for numbers in self._named.values():
            for number in numbers:
                if before and (before[number] is _UNCLASSIFIED or before[number] is _MOVED):
                    self._class_of[number] = _UNCLASSIFIED
                else:
                    self._add(number)
        self._inventories.expected = len(self._inventories)

    def _add(self, number: int) -> None:
        node = self.nodes[number]
        self._last_views = None
        try:
            views = self.snapshot.views(node, self.partitionable)
            self._last_views = node, self.snapshot, views
            if len(views) == 1:
                key: Hashable = (self._pool_key(views[0], node),)
            else:
                key = tuple([self._pool_key(view, node) for view in views])
        except AllocationError:
            key = number
        node_class = self.classes.get(key)
        if node_class is None:
            node_class = self.classes[key] = NodeClass(key)
        node_class.nodes[number] = None
        self._class_of[number] = node_class

    def _remove(self, number: int) -> None:
        node_class = self._class_of[number]
        if node_class is _ABSENT or node_class is _UNCLASSIFIED or node_class is _MOVED:
            self._moved -= node_class is _MOVED
            return
        del node_class.nodes[number]
        if not node_class.nodes:
            del self.classes[node_class.key]

    def _pool_key(self, view: PoolView, node: NodeView) -> Hashable:
        """Return what counts of a pool: its devices and what is taken of them."""
        if view.status != "ok":
            return (view.status, view.key)
        if not view.confined:
            pattern: tuple[bool, ...] = ()
            if view.table.placed:
                pattern = tuple([d.placement is None or matches_node(d.placement, node) for d in view.devices])
            return (view, self._stamps.get(str(view.key), 0), pattern)
        use = self.allocated.use(view.key)
        if use.states:
            # What is left of counters is another thing in each state.
            return ("states", view.key, self._stamps.get(str(view.key), 0))
        return (view.key.driver, self._inventories.of(view), *view.occupation(use))


class _InventoryNumbers:
    """Number the views of pools: equal for views that differ in names only.

    `alone` has the one view of each form, by which devices with identities are told apart; None once there are several.
    """

    __slots__ = ("_alone", "_next", "_numbers", "count", "expected")

    def __init__(self, first: int = 0) -> None:
        self._numbers: dict[Hashable, int] = {}
        self._alone: dict[Hashable, PoolView | None] = {}
        self._next = first
        self.count = 0
        """How many different inventories there are."""
        self.expected = 0
        """How many entries the nodes of the index account for."""

    def __len__(self) -> int:
        return len(self._numbers)

    def renewed(self) -> _InventoryNumbers:
        """Return an empty one that gives out other numbers."""
        return _InventoryNumbers(self._next)

    def of(self, view: PoolView) -> int:
        """Return the number of a view."""
        known = (view.table, view.counter_names, view.totals)
        number = self._numbers.get(known)
        if number is None:
            shapes = view.table.shape_of
            form = (len(shapes), shapes[0] if shapes else None, view.counter_names, view.totals)
            if form not in self._alone:
                # The content of the first view of a form is compared only once there is another.
                self._alone[form] = view
                number = self._new()
            else:
                number = self._of_content(view, form)
            self._numbers[known] = number
        return number

    def _of_content(self, view: PoolView, form: Hashable) -> int:
        alone = self._alone[form]
        if alone is not None:
            self._numbers[_content(alone)] = self._numbers[(alone.table, alone.counter_names, alone.totals)]
            self._alone[form] = None
        content = _content(view)
        number = self._numbers.get(content)
        if number is None:
            number = self._numbers[content] = self._new()
        return number

    def _new(self) -> int:
        """Return a number that was never used: answers are kept by them."""
        self._next += 1
        self.count += 1
        return self._next - 1


def _content(view: PoolView) -> Hashable:
    """Return the content of a view without names."""
    content: Hashable = tuple(view.table.shape_of)
    if not view.table.plain:
        content = tuple([(d.shape, d.consumes, d.taints, d.binding) for d in view.devices])
    return (content, view.counter_names, view.totals)
