"""The devices that a node sees, by position, and what is allocated of them."""

from __future__ import annotations

from collections.abc import Sequence

from haru.engine.dra.allocated_state import AllocatedState, PoolUse
from haru.engine.dra.allocator.consumable_capacity import aligned
from haru.engine.dra.model.model import Device, DeviceId, Features, NodeView, Slice
from haru.engine.dra.placement import only_on
from haru.engine.dra.pools.pools import PoolView
from haru.engine.equivalence.decision_cache import cached_property
from haru.kube.meta import Obj


class NodeDevices:
    """Positions number the devices of the node's sound pools in the order in which they are tried."""

    views: Sequence[PoolView]
    devices: Sequence[Device]
    view_of: Sequence[int]
    index_of: Sequence[int]
    """By position: the number of the device's view, and its index in that view."""
    offsets: Sequence[int]

    def __init__(self, views: Sequence[PoolView], node: NodeView, features: Features) -> None:
        self.node = node
        self.features = features
        self.views = views
        for view in views:
            if view.status != "ok":
                self.views = views = [v for v in views if v.status == "ok"]
                break
        if len(views) == 1:
            devices = self.devices = views[0].devices
            self.offsets, self.view_of, self.index_of = (0,), bytes(len(devices)), range(len(devices))
        else:
            self._join(views)

    def _join(self, views: Sequence[PoolView]) -> None:
        """Number the devices of several views."""
        devices: list[Device] = []
        view_of: list[int] = []
        index_of: list[int] = []
        offsets: list[int] = []
        for number, view in enumerate(views):
            offsets.append(len(devices))
            devices += view.devices
            view_of += [number] * len(view.devices)
            index_of += range(len(view.devices))
        self.devices, self.view_of, self.index_of, self.offsets = devices, view_of, index_of, offsets

    @cached_property
    def plain(self) -> bool:
        """Tell whether only this node sees the devices, and they are plain: an allocation just names them."""
        return False not in [view.confined and view.table.plain and not view.table.placed for view in self.views]

    @cached_property
    def only_here(self) -> Obj:
        """The node selector of allocations that can be used on this node alone; they share it."""
        return only_on(self.node)

    def device_id(self, position: int) -> DeviceId:
        """Return the identity of the device at a position."""
        key = self.views[self.view_of[position]].key
        return DeviceId(key.driver, key.pool, self.devices[position].name)

    def slice_of(self, position: int) -> Slice:
        """Return the slice that publishes the device at a position."""
        return self.views[self.view_of[position]].slices[self.index_of[position]]


class AllocatedNodeDevices(NodeDevices):
    """The devices that a node sees, with what is allocated of them before a search."""

    def __init__(
        self, views: Sequence[PoolView], allocated: AllocatedState, node: NodeView, features: Features
    ) -> None:
        super().__init__(views, node, features)
        uses: list[PoolUse] = []
        taken = sharing = counting = False
        for view in self.views:
            use = allocated.use(view.key)
            uses.append(use)
            taken = taken or bool(use.devices or use.shares)
            sharing = sharing or view.table.shareable
            counting = counting or bool(view.totals)
        self.uses = uses
        self.sharing = sharing and features.ConsumableCapacity
        """Whether some device can be given out several times at once."""
        self.counting = counting
        """Whether there are counters."""
        if not taken:
            self.allocated, self.consumed = frozenset(), {}

    def is_free(self, position: int) -> bool:
        """Tell whether nobody has the device at a position whole, nor shares of one that is whole by now."""
        return position not in self.allocated

    def charge(self, position: int) -> tuple[tuple[int, int], ...]:
        """Return what the device at a position takes of its view's counters."""
        view = self.views[self.view_of[position]]
        return view.charges[self.index_of[position]] if view.totals else ()

    @cached_property
    def counters_left(self) -> list[tuple[int, ...]]:
        """What is left of each view's counters."""
        return list(map(PoolView.counters_left, self.views, self.uses))

    @cached_property
    def overdrawn(self) -> frozenset[int]:
        """The views of which more is taken than they have of some counter: no device that consumes is given out."""
        return frozenset([number for number, left in enumerate(self.counters_left) if left and min(left) < 0])

    @cached_property
    def allocated(self) -> frozenset[int]:
        """The positions of devices that are allocated whole, or have shares though they are whole by now."""
        found: list[int] = []
        for offset, view, use in zip(self.offsets, self.views, self.uses, strict=True):
            places = view.table.places if use.devices or use.shares else {}
            found += [offset + places[name] for name in use.devices if name in places]
            shared = [places[name] for name in use.shares if name in places]
            found += [offset + place for place in shared if not view.devices[place].shape.shareable]
        return frozenset(found)

    @cached_property
    def consumed(self) -> dict[int, tuple[int, ...]]:
        """What shares consume of the capacities of devices, by position."""
        return {
            offset + view.table.places[name]: aligned(view.devices[view.table.places[name]].shape, use.consumed(name))
            for offset, view, use in zip(self.offsets, self.views, self.uses, strict=True)
            for name in use.shares
            if name in view.table.places
        }

    def shareable(self, position: int) -> bool:
        """Tell whether the device can be given out several times at once."""
        return self.sharing and self.devices[position].shape.shareable

    def draws_no_more(self, position: int) -> bool:
        """Tell whether another share of the device draws on no counter: it has shares, and keeps some whoever goes."""
        if not (self.shareable(position) and position in self.consumed):
            return False
        return self.uses[self.view_of[position]].shared_throughout(self.devices[position].name)
