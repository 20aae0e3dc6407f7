"""Many nodes at once: nodes with equal devices of which the same are taken give one answer.

A `Fleet` sorts nodes into peers and keeps that up to date at the cost of what changed: a device that changes hands
moves one node. Names of nodes, pools and devices do not matter, as long as only one node sees the devices; pools that
several nodes can see, and pools in trouble, are told apart by what they are.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence

from haru.engine.dra.allocated_state import AllocatedState
from haru.engine.dra.errors import AllocationError
from haru.engine.dra.model.model import NodeView
from haru.engine.dra.placement import matches_node
from haru.engine.dra.pools.inventory import DeviceSnapshot
from haru.engine.dra.pools.pools import PoolView
from haru.engine.state.cow_map import differing

_SPARE = 1000


class NodeClass:
    """Nodes that are alike, by their numbers in the fleet. Equal `key` means equal answers, whatever else changes."""

    __slots__ = ("key", "nodes")

    def __init__(self, key: Hashable) -> None:
        self.key = key
        self.nodes: dict[int, None] = {}


_NOWHERE = NodeClass(None)
"""Where a node is that is not there."""
_UNSEEN = NodeClass(None)
"""Where a node is that nobody has asked about."""


class NodeClassIndex:
    """Nodes, the devices that they see and what is taken of them, at one moment; `update` moves on to another."""

    def __init__(
        self,
        snapshot: DeviceSnapshot,
        allocated: AllocatedState,
        nodes: Iterable[NodeView],
        *,
        partitionable: bool = True,
    ) -> None:
        self.snapshot = snapshot
        self.allocated = allocated
        self.nodes = list(nodes)
        """By number; also those that were dropped, until another node takes the number."""
        self.partitionable = partitionable
        self.peers: dict[Hashable, NodeClass] = {}
        self._named: dict[str, list[int]] = {}
        for number, node in enumerate(self.nodes):
            self._named.setdefault(node.name, []).append(number)
        self._free: list[int] = []
        self._stamps: dict[str, int] = {}
        self._clock = 0
        self._next = 0
        self.touched: set[str] | None = set()
        """The nodes, known here or not, whose devices the last update may have changed; None: all."""
        self._looked_at: tuple[int, DeviceSnapshot, list[PoolView]] | None = None
        self._place: list[NodeClass] = []
        self._reset()

    def numbers(self, name: str) -> Sequence[int]:
        """The numbers of the nodes of a name; there may be several, or none."""
        return self._named.get(name, ())

    def put(self, node: NodeView) -> None:
        """Take in a node that is new, or has other labels. It is looked at when somebody asks for its peers."""
        numbers = self._named.get(node.name)
        if numbers is None:
            number = self._free.pop() if self._free else len(self.nodes)
            if number == len(self.nodes):
                self.nodes.append(node)
                self._place.append(_NOWHERE)
            numbers = self._named[node.name] = [number]
        for number in numbers:
            self.nodes[number] = node
            self._leave(number)
            self._place[number] = _UNSEEN

    def drop(self, name: str) -> None:
        """Forget the nodes of a name."""
        for number in self._named.pop(name, ()):
            self._leave(number)
            self._place[number] = _NOWHERE
            self._free.append(number)

    def update(self, snapshot: DeviceSnapshot, allocated: AllocatedState) -> set[int] | None:
        """Take in how things stand now; the nodes whose devices, or what is taken of them, changed (None: all)."""
        changed: set[str] = set()
        if snapshot is not self.snapshot:
            changed |= differing(snapshot.pools, self.snapshot.pools)
        if allocated is not self.allocated:
            changed |= {str(key) for key in allocated.changed(self.allocated)}
        moved: set[int] = set()
        self.touched = set()
        moments = (snapshot,) if snapshot is self.snapshot else (self.snapshot, snapshot)
        for name in changed:
            moved.update(self._concerned(name, *moments))
        self.snapshot, self.allocated = snapshot, allocated
        if len(self._numbers) > 2 * self._numbers_at_reset + _SPARE:
            self._reset()
            return None
        for number in moved:
            if self._place[number] is not _UNSEEN:
                self._leave(number)
                self._join(number)
        return moved

    def views(self, number: int) -> list[PoolView]:
        """The pools that a node sees now. Raises AllocationError."""
        last = self._looked_at
        if last is None or last[0] != number or last[1] is not self.snapshot:
            last = number, self.snapshot, self.snapshot.views(self.nodes[number], self.partitionable)
            self._looked_at = last
        return last[2]

    def peers_of(self, number: int) -> NodeClass:
        """The nodes that are like this one, itself included."""
        if self._place[number] is _UNSEEN:
            known = len(self._numbers)
            self._join(number)
            self._numbers_at_reset += len(self._numbers) - known
        return self._place[number]

    def _concerned(self, name: str, *snapshots: DeviceSnapshot) -> Iterable[int]:
        """The nodes whose answer may depend on a pool, as it was or as it is."""
        self._clock += 1
        self._stamps[name] = self._clock
        if any(name in snapshot.everywhere or name in snapshot.troubled for snapshot in snapshots):
            self.touched = None
            return [number for number, place in enumerate(self._place) if place is not _NOWHERE]
        pools = [snapshot.pools[name] for snapshot in snapshots if name in snapshot.pools]
        nodes = {item.placement.node_name for pool in pools for item in pool.slices}
        if self.touched is not None:
            self.touched |= nodes
        return [number for node in nodes for number in self._named.get(node, ())]

    def _reset(self) -> None:
        self.peers.clear()
        self._numbers: dict[Hashable, int] = {}
        self._alone: dict[Hashable, PoolView | None] = {}
        """The one view of a form; None once there were several."""
        self.inventories = 0
        """How many different pools there are, whatever their devices are called."""
        before = self._place
        self._place = [_NOWHERE] * len(self.nodes)
        for numbers in self._named.values():
            for number in numbers:
                if before and before[number] is _UNSEEN:
                    self._place[number] = _UNSEEN
                else:
                    self._join(number)
        self._numbers_at_reset = len(self._numbers)

    def _join(self, number: int) -> None:
        node = self.nodes[number]
        self._looked_at = None
        try:
            key: Hashable = tuple([self._part(view, node) for view in self.views(number)])
        except AllocationError:
            key = number
        peers = self.peers.get(key)
        if peers is None:
            peers = self.peers[key] = NodeClass(key)
        peers.nodes[number] = None
        self._place[number] = peers

    def _leave(self, number: int) -> None:
        peers = self._place[number]
        if peers is _NOWHERE or peers is _UNSEEN:
            return
        del peers.nodes[number]
        if not peers.nodes:
            del self.peers[peers.key]

    def _part(self, view: PoolView, node: NodeView) -> Hashable:
        """What matters of a pool: its devices and what is taken of them."""
        if view.status != "ok":
            return (view.status, view.key)
        if not view.confined:
            pattern: tuple[bool, ...] = ()
            if view.table.placed:
                pattern = tuple([d.placement is None or matches_node(d.placement, node) for d in view.devices])
            return (view, self._stamps.get(str(view.key), 0), pattern)
        return (view.key.driver, self._number(view), *view.occupation(self.allocated.use(view.key)))

    def _number(self, view: PoolView) -> int:
        """Equal for views that differ in names only."""
        known = (view.table, view.counter_names, view.totals)
        number = self._numbers.get(known)
        if number is None:
            shapes = view.table.shape_of
            # Devices with identities of their own are told apart by the first of them.
            form = (len(shapes), shapes[0] if shapes else None, view.counter_names, view.totals)
            if form not in self._alone:
                # The first of its form: what it consists of matters when there is another.
                self._alone[form] = view
                number = self._new_number()
            else:
                number = self._number_of_content(view, form)
            self._numbers[known] = number
        return number

    def _number_of_content(self, view: PoolView, form: Hashable) -> int:
        alone = self._alone[form]
        if alone is not None:
            self._numbers[_content(alone)] = self._numbers[(alone.table, alone.counter_names, alone.totals)]
            self._alone[form] = None
        content = _content(view)
        number = self._numbers.get(content)
        if number is None:
            number = self._numbers[content] = self._new_number()
        return number

    def _new_number(self) -> int:
        """No number means two things, not even one after the other: answers are kept by them."""
        self._next += 1
        self.inventories += 1
        return self._next - 1


def _content(view: PoolView) -> Hashable:
    """What there is of a view beside names."""
    content: Hashable = tuple(view.table.shape_of)
    if not view.table.plain:
        content = tuple([(d.shape, d.consumes, d.taints, d.binding) for d in view.devices])
    return (content, view.counter_names, view.totals)
