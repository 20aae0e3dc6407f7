"""Signatures of nodes' devices: nodes with one signature answer some claims alike, though their devices differ.

Devices mostly have an identity of their own (UUID, bus address), so no two nodes of a real cluster have equal devices.
Hardly any claim looks at that. A signature holds what claims can tell apart: whether each device is selected, the
values that constraints compare, what is taken, and what the search depends on besides. Names of nodes, pools and
devices do not matter.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence

from haru.engine.dra.allocated_state import AllocatedState
from haru.engine.dra.allocator.constraints import attribute_values
from haru.engine.dra.model.claims import Claim
from haru.engine.dra.model.model import Device, Features, NodeView, Shape
from haru.engine.dra.node_mappings import mappings_of
from haru.engine.dra.placement import matches_node
from haru.engine.dra.pools.inventory import DeviceSnapshot
from haru.engine.dra.pools.pools import Pool, PoolView
from haru.engine.state.cache import Snapshot
from haru.engine.state.cow_map import FrozenMap, differing


def compared_value(shape: Shape, name: str, lists: bool, numbers: dict[Hashable, int]) -> Hashable:
    """Return what constraints see of an attribute; None where a device cannot satisfy any.

    Of single values only their equality counts, so they are numbered in order of appearance. Lists may overlap.
    """
    values = attribute_values(shape, name, lists)
    return values if values is None or lists else numbers.setdefault((name, values), len(numbers))


class DeviceSignature:
    """Compute signatures for some claims. `sized`: the sizes of devices count, whatever the claims ask for."""

    def __init__(self, claims: Iterable[Claim], features: Features, *, sized: bool = False) -> None:
        found = list(claims)
        asks = [ask for claim in found for request in claim.requests for ask in request.asks]
        self._lists = features.ListTypeAttributes
        self._partitionable = features.PartitionableDevices
        self._selections = list(dict.fromkeys(ask.selection for ask in asks))
        self._compared = sorted({c.attribute for claim in found for c in claim.constraints})
        self._sized = sized or any(ask.wanted for ask in asks)

    def of_views(self, views: Sequence[PoolView], allocated: AllocatedState) -> Hashable | None:
        """Return a signature by which one node's solution is the other's, device by device; None if there is none.

        None where other nodes see the devices, too, or a pool cannot be used.
        """
        if any(view.status != "ok" or not view.confined for view in views):
            return None
        return tuple([self._of_view(view, allocated, None) for view in views])

    def of_node(self, devices: DeviceSnapshot, allocated: AllocatedState, node: NodeView, *, mapped: bool) -> Hashable:
        """Return a signature by which nodes serve as many claims, if no other node sees the devices.

        `mapped`: what devices take of their node's own resources matters, too (KEP-5517).
        """
        numbers: dict[Hashable, int] = {}
        parts: list[Hashable] = []
        for view in devices.views(node, self._partitionable):
            if view.status != "ok":
                parts.append((view.status, str(view.key)))
            elif self.selects(view):
                here = tuple([d.placement is None or matches_node(d.placement, node) for d in view.devices])
                parts.append((self._of_view(view, allocated, numbers), here))
                if mapped:
                    parts.append(tuple(tuple(mappings_of(devices, view.key, d.name)) for d in view.devices))
        return tuple(parts)

    def selects(self, view: PoolView) -> bool:
        """Return whether a request selects any device of the view, or a selector fails on one."""
        return any(verdict is not False for s in self._selections for verdict in s.column(view))

    def are_independent(self, snapshot: Snapshot, nodes: Iterable[NodeView]) -> bool:
        """Return whether each device that a request selects is seen by one node only."""
        shared = snapshot.decision_cache.get_or_compute("shared pools", None, _SharedPools).of(snapshot.devices)
        views = (pool.view(node, self._partitionable) for node in (nodes if shared else ()) for pool in shared)
        return not any(view is not None and self.selects(view) for view in views)

    def _of_view(self, view: PoolView, allocated: AllocatedState, numbers: dict[Hashable, int] | None) -> Hashable:
        """Signature of one pool; `numbers`: of compared values only their equality counts."""
        columns: list[Sequence[Hashable]] = [selection.column(view) for selection in self._selections]
        shapes = view.table.shape_of
        for name in self._compared:
            if numbers is None:
                columns.append([attribute_values(shape, name, self._lists) for shape in shapes])
            else:
                columns.append([compared_value(shape, name, self._lists, numbers) for shape in shapes])
        if self._sized or not view.table.plain:
            columns.append([self._beside_attributes(device) for device in view.devices])
        if view.totals:
            columns.append(view.charges)
        use = allocated.use(view.key)
        left = view.counters_left(use) if view.totals else ()
        return (view.key.driver, len(shapes), tuple(map(tuple, columns)), left, *view.occupation(use))

    def _beside_attributes(self, device: Device) -> Hashable:
        shape = device.shape
        sized = self._sized or shape.shareable or shape.policies
        return (bool(device.consumes), device.taints, device.binding, shape.shareable, sized and shape.capacity)


class _SharedPools:
    """The pools that several nodes may see."""

    def __init__(self) -> None:
        self._pools: Mapping[str, Pool] = {}
        self._names: set[str] = set()

    def of(self, devices: DeviceSnapshot) -> list[Pool]:
        """Return those of an inventory."""
        before, self._pools = self._pools, devices.pools
        pairs: Iterable[tuple[str, Pool | None]]
        if not before and isinstance(devices.pools, FrozenMap):
            pairs = devices.pools.pairs()
        else:
            changed = differing(devices.pools, before)
            self._names -= changed
            pairs = ((name, devices.pools.get(name)) for name in changed)
        for name, pool in pairs:
            slices = pool.slices if pool is not None else ()
            if len(slices) > 1 and len({item.placement.node_name for item in slices}) > 1:
                self._names.add(name)
        return [devices.pools[name] for name in sorted(self._names | devices.everywhere)]
