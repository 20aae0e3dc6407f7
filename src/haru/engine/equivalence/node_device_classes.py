"""Classes of nodes with equal devices, but for their identities, of which the same are taken; kept with each event.

Devices mostly have an identity of their own (UUID, bus address), and so no two nodes of a real cluster publish equal
devices. A `TableSchema` is what tables have in common that differ in nothing else: the attributes in which all devices
agree, and the names of those that tell them apart. A `NodeDeviceClass` is the schemas of a node and the positions of
the devices that are taken. It is one object for all equal nodes. One node answers claims for its whole class if their
selectors read nothing that tells devices apart (`SelectorFootprint`).

Only simple nodes have a class: whole devices of pools of one valid slice, without counters, shares or taints, that one
node alone sees.
Source: our own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from haru.engine.dra.allocated_state import EMPTY_USE, AllocatedState, PoolUse
from haru.engine.dra.model.claims import Claim
from haru.engine.dra.pools.device_table import TableSchema
from haru.engine.dra.pools.inventory import DeviceSnapshot, Inventory
from haru.engine.dra.pools.pools import PoolView
from haru.engine.dra.selectors.compiled_selectors import Selection
from haru.engine.dra.selectors.selector_fields import Names, names_read
from haru.engine.state.cow_map import CowMap, FrozenMap, Patched, values_of
from haru.kube.meta import Obj

_MAX_KNOWN = 65_536


class NodeDeviceClass:
    """The devices of a node, as bits in the order in which they are tried."""

    __slots__ = ("devices", "free", "models", "taken")

    def __init__(self, parts: Sequence[tuple[TableSchema, int]]) -> None:
        self.models = tuple([model for model, _ in parts])
        self.devices = self.taken = 0
        """A bit for each device, and for each that is taken."""
        offset = 0
        for model, taken in parts:
            self.taken |= taken << offset
            offset += model.count
        self.devices = (1 << offset) - 1
        self.free = (self.devices & ~self.taken).bit_count()
        """How many devices are free."""


class ClassifiedNode(NamedTuple):
    """A node: its device class, its pools in the order in which they are tried, and the use of each."""

    node_device_class: NodeDeviceClass
    uses: tuple[PoolUse, ...] = ()
    views: tuple[PoolView, ...] = ()


Classified = Mapping[str, ClassifiedNode | None]
_Parts = tuple[tuple[TableSchema, int], ...]
_NOTHING = ClassifiedNode(NodeDeviceClass(()))
"""A node without devices."""


@dataclass(frozen=True, slots=True, eq=False)
class NodeDeviceClasses:
    """The device classes of a cluster's nodes in the state of `devices` and `allocated`.

    `most_devices`: no node has, or had, more; None where some node has no class.
    """

    by_node: FrozenMap[ClassifiedNode | None]
    devices: DeviceSnapshot
    allocated: AllocatedState
    most_devices: int | None
    _known: dict[_Parts, NodeDeviceClass]

    def of(self, devices: DeviceSnapshot, allocated: AllocatedState) -> Classified | None:
        """Return the classes by node, None for nodes without one (`classified_nodes_of`); None for other devices.

        Where a hypothetical snapshot takes other devices, only the nodes that have them are classified again.
        """
        if self.devices is not devices or devices.everywhere or devices.troubled:
            return None
        if self.allocated is allocated:
            return self.by_node
        return None if allocated.is_looked_up else self._with_taken(allocated)

    def _with_taken(self, allocated: AllocatedState) -> Classified | None:
        """Return the classes by node if this is taken; None if some node has no class any more."""
        changes: dict[str, ClassifiedNode | None] = {}
        for pool in values_of(self.devices.pools, list(map(str, allocated.changed(self.allocated)))):
            for name in {item.placement.node_name for item in pool.slices} if pool is not None else ():
                known = self.by_node.get(name)
                if known is None:
                    continue
                found = self.with_uses(known, tuple([allocated.use(view.key) for view in known.views]))
                if found is None:
                    return None
                changes[name] = found
        return Patched(self.by_node, changes)

    def with_uses(self, known: ClassifiedNode, uses: tuple[PoolUse, ...]) -> ClassifiedNode | None:
        """Return a node if this is taken of its pools; None if it has no class then."""
        parts = [part for part in map(part_of, known.node_device_class.models, known.views, uses) if part]
        return (
            ClassifiedNode(_class_of(self._known, tuple(parts)), uses, known.views) if len(parts) == len(uses) else None
        )

    def with_devices(self, known: ClassifiedNode, allocations: Sequence[Obj]) -> ClassifiedNode | None:
        """Return a node if these allocations take of it, too, without its uses; None where that needs them."""
        if len(known.views) != 1:
            return None
        taken, places = known.node_device_class.taken, known.views[0].table.places
        for allocation in allocations:
            for result in _results(allocation):
                place = places.get(result["device"])
                if place is None or "shareID" in result or "adminAccess" in result:
                    return None
                taken |= 1 << place
        parts = ((known.node_device_class.models[0], taken),)
        return ClassifiedNode(_class_of(self._known, parts), (), known.views)


def classified_nodes_of(known: Mapping[str, ClassifiedNode | None] | None, node: str) -> ClassifiedNode | None:
    """Return the class of a node, if it has one. Nodes that no pool names are not in the map: they have no devices."""
    return known.get(node, _NOTHING) if known is not None else None


def all_of(known: Classified, nodes: Sequence[str]) -> Sequence[ClassifiedNode | None]:
    """Return the classes of many nodes."""
    return values_of(known, nodes, _NOTHING)


class ClassIndex:
    """Index the device classes of nodes; each snapshot costs the slices and claims that have changed."""

    def __init__(self, inventory: Inventory) -> None:
        self._inventory = inventory
        self._by_node: CowMap[ClassifiedNode | None] = CowMap()
        self._known: dict[_Parts, NodeDeviceClass] = {}
        self._changed: list[Obj | None] = []
        self._unclassified: set[str] = set()
        self._most_devices = 0

    def taken_changed(self, *allocations: Obj | None) -> None:
        """Note allocations that are new or gone."""
        self._changed += allocations

    def freeze(self, devices: DeviceSnapshot, allocated: AllocatedState) -> NodeDeviceClasses:
        """Return the device classes now, as an immutable value."""
        nodes = self._inventory.take_moved()
        for driver, name in {(r["driver"], r["pool"]) for found in self._changed for r in _results(found)}:
            pool = self._inventory.pool(f"{driver}/{name}")
            if pool is not None:
                nodes.update([item.placement.node_name for item in pool.slices])
        self._changed.clear()
        for node in nodes:
            if node:
                self._classify(node, allocated)
        most = None if self._unclassified else self._most_devices
        return NodeDeviceClasses(self._by_node.freeze(), devices, allocated, most, self._known)

    def _classify(self, node: str, allocated: AllocatedState) -> None:
        pools = self._inventory.pools_of(node)
        self._unclassified.discard(node)
        if not pools:
            self._by_node.pop(node, None)
            return
        if len(pools) > 1:
            pools.sort(key=lambda pool: (pool.key.driver.encode(), pool.key.pool.encode()))
        parts, uses, views = [], [], []
        for pool in pools:
            use, view = allocated.use(pool.key), pool.sole_view(node)
            model = simple_schema(view) if view is not None else None
            part = part_of(model, view, use) if view is not None and model is not None else None
            if view is None or part is None:
                self._by_node[node] = None
                self._unclassified.add(node)
                return
            parts.append(part)
            uses.append(use)
            views.append(view)
        node_device_class = _class_of(self._known, tuple(parts))
        self._most_devices = max(self._most_devices, node_device_class.devices.bit_length())
        self._by_node[node] = ClassifiedNode(node_device_class, tuple(uses), tuple(views))


def part_of(model: TableSchema, view: PoolView, use: PoolUse) -> tuple[TableSchema, int] | None:
    """Return the schema of a pool's devices and those that are taken, as bits; None if some are taken in part."""
    if use.shares or use.states:
        return None
    return model, 0 if use is EMPTY_USE else view.occupation(use)[0]


def _class_of(known: dict[_Parts, NodeDeviceClass], parts: _Parts) -> NodeDeviceClass:
    found = known.get(parts)
    if found is None:
        if len(known) >= _MAX_KNOWN:
            known.clear()
        found = known[parts] = NodeDeviceClass(parts)
    return found


def simple_schema(view: PoolView) -> TableSchema | None:
    """Return the schema of a pool's devices; None if it is not simple."""
    plain = view.status == "ok" and view.confined and not view.counter_names and view.devices
    return view.table.model if plain and not view.slices[0].counter_sets else None


def _results(allocation: Obj | None) -> Sequence[Obj]:
    return ((allocation or {}).get("devices") or {}).get("results") or ()


class SelectorFootprint:
    """The attributes that some claims read: whether they tell nodes of one device class apart."""

    def __init__(self, selections: Iterable[Selection], compared: Iterable[str]) -> None:
        read = [
            None if expression is None else names_read(expression, selection.lists, selection.consumable)
            for selection in dict.fromkeys(selections)
            for expression in (*selection.class_expressions, *selection.request_expressions)
        ]
        self._reads: Sequence[Names] | None = None if None in read else [names for names in read if names is not None]
        self._compared = frozenset(compared)
        self._known: dict[TableSchema, bool] = {}

    @classmethod
    def of(cls, claims: Iterable[Claim]) -> SelectorFootprint:
        """Return the footprint of some claims together."""
        asks = [ask for claim in claims for request in claim.requests for ask in request.asks]
        return cls([ask.selection for ask in asks], [c.attribute for claim in claims for c in claim.constraints])

    def is_blind(self, node_device_class: NodeDeviceClass) -> bool:
        """Return whether the claims cannot tell nodes of this device class apart, device by device."""
        return all(map(self.is_blind_to, node_device_class.models))

    def is_blind_to(self, model: TableSchema) -> bool:
        """Return whether the claims cannot tell tables of this schema apart, device by device."""
        found = self._known.get(model)
        if found is None:
            if len(self._known) >= _MAX_KNOWN:
                self._known.clear()
            found = self._known[model] = self._reads is not None and model.varying.isdisjoint(self._seen(model.driver))
        return found

    def _seen(self, driver: str) -> set[str]:
        """Return the attributes of a driver's devices that the claims read, as published."""
        seen = set(self._compared)
        seen.update(name.removeprefix(f"{driver}/") for name in self._compared)
        for names in self._reads or ():
            seen.update(text for pair in names.published(driver)[0] for text in pair)
        return seen
