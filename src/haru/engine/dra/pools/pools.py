"""Pools: which slices of a pool count for a node, whether the pool is whole and sound, and its devices in order.

A `Pool` holds all slices of one (driver, pool) in the cluster; it is immutable, a change of a slice makes a new one.
`Pool.view(node)` is what a node sees of it. Views are kept with the pool per set of relevant slices, so that nodes
which see the same slices share one view with everything computed from it (selector results, counter tables).
Source: KEP-4381 (generations, completeness), KEP-4815 (counters); the order is kube-scheduler's.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import lru_cache
from typing import Literal

from haru.engine.dra.allocated_state import PoolUse
from haru.engine.dra.model.model import CounterSet, Device, DeviceId, NodeView, PoolKey, Slice
from haru.engine.dra.placement import relevant
from haru.engine.dra.pools.counters import Charge as Charge
from haru.engine.dra.pools.counters import Counters, names_and_totals
from haru.engine.dra.pools.device_table import DeviceTable, DeviceTables

PoolStatus = Literal["ok", "incomplete", "invalid"]


class PoolView:
    """What one node, or many alike, sees of a pool. Only a pool whose `status` is ok offers devices."""

    __slots__ = (
        "_charges_elsewhere",
        "_occupied",
        "binding",
        "charges",
        "confined",
        "counter_names",
        "devices",
        "elsewhere",
        "key",
        "overdrawn",
        "problem",
        "slices",
        "status",
        "table",
        "totals",
    )

    def __init__(
        self,
        key: PoolKey,
        slices: Sequence[Slice],
        elsewhere: Sequence[Slice],
        whole: bool,
        partitionable: bool,
        tables: DeviceTables | None = None,
    ) -> None:
        tables = DeviceTables() if tables is None else tables
        self.key = key
        if len(slices) == 1:
            self.devices: tuple[Device, ...] = slices[0].devices
            self.slices: tuple[Slice, ...] = (slices[0],) * len(self.devices)
        else:
            self.devices = tuple([device for item in slices for device in item.devices])
            self.slices = tuple([item for item in slices for _ in item.devices])
        self.table: DeviceTable = tables.of(self.devices)
        self.binding = whole and self.table.conditional
        self.confined = _name_one_node(slices) and not elsewhere
        """Whether nobody but one node sees these devices."""
        self.elsewhere: DeviceTable = _NO_DEVICES
        """The devices of the pool that the node does not see."""
        if elsewhere:
            self.elsewhere = tables.of(tuple([device for item in elsewhere for device in item.devices]))
        self.counter_names: tuple[tuple[str, str], ...] = ()
        self.totals: tuple[int, ...] = ()
        self.overdrawn = False
        """Whether less than nothing is published of some counter."""
        self.charges: tuple[Charge, ...] = ()
        self._charges_elsewhere: tuple[Charge, ...] = ()
        self._occupied: tuple[PoolUse, tuple[int, tuple[Hashable, ...]]] | None = None
        self.problem = ""
        self.status: PoolStatus = "ok" if whole else "incomplete"
        if whole:
            self._count(slices, elsewhere, partitionable)

    def _count(self, slices: Sequence[Slice], elsewhere: Sequence[Slice], partitionable: bool) -> None:
        """Take in the counters of a whole pool, and what is wrong with it."""
        sets = slices[0].counter_sets
        if len(slices) > 1:
            sets = tuple([counter_set for item in slices for counter_set in item.counter_sets])
        table = self.table
        if not (sets or elsewhere or table.consuming) and len(table.places) == len(table.devices):
            self.charges = _none(len(table.devices)).charges
            return
        counters = _counters_of(table, sets)
        beside = _counters_of(self.elsewhere, sets) if elsewhere else _NO_COUNTERS
        self.problem = _repeated(table, sets)
        if partitionable and not self.problem:
            self.problem = counters.fault or beside.fault
        if self.problem:
            self.status = "invalid"
        else:
            _, self.counter_names, self.totals, self.charges, _ = counters
            self._charges_elsewhere = _charges_by_name(self.elsewhere, beside.charges)
            self.overdrawn = bool(self.totals) and min(self.totals) < 0

    def device_id(self, index: int) -> DeviceId:
        """The identity of a device of this view."""
        return DeviceId(self.key.driver, self.key.pool, self.devices[index].name)

    def occupation(self, use: PoolUse) -> tuple[int, tuple[Hashable, ...]]:
        """Which devices are taken whole, as bits, and what shares consume; devices are named by their places."""
        last = self._occupied
        if last is not None and last[0] is use:
            return last[1]
        places, taken = self.table.places, 0
        if use.devices.keys() == places.keys():
            taken = (1 << len(places)) - 1
        else:
            for name in use.devices:
                if name in places:
                    taken |= 1 << places[name]
        shares: tuple[Hashable, ...] = ()
        if use.shares:
            shares = tuple(sorted((places[n], *sorted(use.consumed(n).items())) for n in use.shares if n in places))
        self._occupied = use, (taken, shares)
        return taken, shares

    def counters_left(self, use: PoolUse) -> tuple[int, ...]:
        """What is left of each counter after the devices in use; negative when the pool is overdrawn."""
        if not self.totals or not (use.devices or use.shares):
            return self.totals
        first, *others = [self._left_beside(taken) for taken in use.charged()]
        return tuple(map(min, first, *others)) if others else tuple(first)

    def _left_beside(self, taken: frozenset[str]) -> list[int]:
        left, places = list(self.totals), self.table.places
        for name in taken:
            if name in places:
                for counter, amount in self.charges[places[name]]:
                    left[counter] -= amount
        places = self.elsewhere.places
        for name in taken & places.keys():
            for counter, amount in self._charges_elsewhere[places[name]]:
                left[counter] -= amount
        return left


_NO_DEVICES = DeviceTables().of(())
_NO_COUNTERS = Counters.of((), ())
"""Those of no devices, whatever there is to count: nothing is consumed."""


def _name_one_node(slices: Sequence[Slice]) -> bool:
    first = slices[0].placement.node_name
    return bool(first) and (len(slices) == 1 or all(item.placement.node_name == first for item in slices))


@lru_cache(maxsize=1024)
def _none(devices: int) -> Counters:
    """The counters of so many devices that consume none."""
    return Counters((), (), (), ((),) * devices, "")


def _counters_of(table: DeviceTable, sets: tuple[CounterSet, ...]) -> Counters:
    """The counters of a pool with these devices. Sets that are equal are mostly the same."""
    if not (sets or table.consuming):
        return _none(len(table.devices))
    if not table.devices:
        return Counters(sets, *names_and_totals(sets), (), "")
    # The counters hold the sets, so that no other has their id.
    return table.cache.get_or_compute("counters", tuple(map(id, sets)), lambda: Counters.of(sets, table.devices))


def _charges_by_name(table: DeviceTable, charges: tuple[Charge, ...]) -> tuple[Charge, ...]:
    """Return the charges with those of devices of one name together, at the place that the name has in the table.

    Only where a node sees a name twice its pool is invalid.
    """
    places = table.places
    if len(places) == len(table.devices):
        return charges
    found: list[Charge] = [()] * len(charges)
    for device, charge in zip(table.devices, charges, strict=True):
        found[places[device.name]] += charge
    return tuple(found)


def _repeated(table: DeviceTable, sets: Sequence[CounterSet]) -> str:
    """What a pool has twice, so that it cannot be trusted; or nothing."""
    names = [counter_set.name for counter_set in sets] if sets else ()
    if sets and len(set(names)) < len(names):
        twice = next(name for number, name in enumerate(names) if name in names[:number])
        return f"counter set {twice} is defined twice"
    if len(table.places) < len(table.devices):
        names = [device.name for device in table.devices]
        twice = next(name for name in names if names.count(name) > 1)
        return f"device {twice} is published twice"
    return ""


def _owner(slices: Sequence[Slice]) -> str | None:
    """The node that all slices name, if they do."""
    name = slices[0].placement.node_name if slices else ""
    for item in slices:
        if item.placement.node_name != name or item.per_device:
            return None
    return name or None


class Pool:
    """All slices of one pool in the cluster, in the order of their names."""

    __slots__ = ("_by_name", "_counters", "_owner", "_views", "_whole", "key", "slices", "tables")

    def __init__(self, key: PoolKey, slices: Sequence[Slice], tables: DeviceTables | None = None) -> None:
        self.key = key
        self.tables = DeviceTables() if tables is None else tables
        self.slices = tuple(sorted(slices, key=lambda s: s.name.encode()) if len(slices) > 1 else slices)
        self._views: dict[tuple[bool, tuple[int, ...]], PoolView | None] = {}
        self._owner = _owner(self.slices)
        self._whole: PoolView | None = None  # what the node sees to which all slices are tied
        self._by_name: dict[str, Device] | None = None
        self._counters: dict[tuple[str, str], int] | None = None

    def view(self, node: NodeView, partitionable: bool) -> PoolView | None:
        """What the node sees of the pool; None when nothing of it concerns the node, or only outdated slices."""
        if node.name == self._owner and partitionable:
            if self._whole is None:
                self._whole = self._view(tuple(range(len(self.slices))), partitionable)
            return self._whole
        seen = tuple(i for i, item in enumerate(self.slices) if relevant(item, node, partitionable))
        return self._view(seen, partitionable)

    def device(self, name: str) -> Device | None:
        """A device of the newest generation by name, whoever sees it."""
        if self._by_name is None:
            self._by_name = {device.name: device for item in self._newest() for device in item.devices}
        return self._by_name.get(name)

    def counter(self, counter_set: str, name: str) -> int | None:
        """The value of a counter of the newest generation."""
        if self._counters is None:
            sets = [counter_set for item in self._newest() for counter_set in item.counter_sets]
            self._counters = {(s.name, known): value for s in sets for known, value in s.counters}
        return self._counters.get((counter_set, name))

    def _newest(self) -> list[Slice]:
        newest = max((item.generation for item in self.slices), default=0)
        return [item for item in self.slices if item.generation == newest]

    def look_ahead(self) -> None:
        """Make what the node will see to which a pool of one slice is tied, while the slice is at hand."""
        if self._owner is not None and len(self.slices) == 1:
            self._whole = self._views[True, (0,)] = self._compute((0,), True)
            if self._whole is not None:
                self._whole.table.look_ahead()

    def sole_view(self, node: str) -> PoolView | None:
        """What a node sees to which a pool of one slice is tied; None for any other."""
        return self._whole if node == self._owner and len(self.slices) == 1 else None

    def foreign_view(self, partitionable: bool) -> PoolView | None:
        """What a node sees to which no slice with devices is tied: the slices with counters."""
        seen = tuple(i for i, item in enumerate(self.slices) if item.counter_sets) if partitionable else ()
        return self._view(seen, partitionable)

    def _view(self, seen: tuple[int, ...], partitionable: bool) -> PoolView | None:
        key = (partitionable, seen)
        if key not in self._views:
            self._views[key] = self._compute(seen, partitionable)
        return self._views[key]

    def _compute(self, seen: tuple[int, ...], partitionable: bool) -> PoolView | None:
        if not seen:
            return None
        if len(self.slices) == 1:
            return PoolView(self.key, self.slices, (), self.slices[0].slice_count == 1, partitionable, self.tables)
        newest = max(self.slices[i].generation for i in seen)
        current = [i for i in seen if self.slices[i].generation == newest]
        slices = [self.slices[i] for i in current]
        elsewhere: list[Slice] = []
        wanted, found = slices[0].slice_count, len(slices)
        if found != wanted:
            if any(item.generation > newest for item in self.slices):
                return None
            chosen = set(current)
            elsewhere = [s for i, s in enumerate(self.slices) if s.generation == newest and i not in chosen]
            found += len(elsewhere)
        return PoolView(self.key, slices, elsewhere, found == wanted, partitionable, self.tables)
