"""When two nodes give the same answer about devices: same inventory and same occupation, as far as some asks can tell.

Names of nodes, pools and devices do not matter, nor do attributes that no selector tells apart and no constraint
compares; compared values are numbered in order of appearance, because only their equality counts. It holds as long as
the devices in question are seen by one node only.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping

from haru.engine.dra.allocated_state import AllocatedState
from haru.engine.dra.model.claims import Claim, SubRequest
from haru.engine.dra.model.model import Features, NodeView
from haru.engine.dra.node_mappings import mappings_of
from haru.engine.dra.placement import matches_node
from haru.engine.dra.pools.inventory import DeviceSnapshot
from haru.engine.dra.pools.pools import Pool, PoolView
from haru.engine.dra.selectors.compiled_selectors import Selection
from haru.engine.state.cache import Snapshot
from haru.engine.state.cow_map import FrozenMap, differing


class NodeDeviceSignature:
    """Looks at devices through the asks and constraints of some claims.

    `mapped`: what devices take of their node's own resources matters too (KEP-5517).
    """

    def __init__(self, claims: Iterable[Claim], features: Features, *, mapped: bool = False) -> None:
        found = list(claims)
        self._features = features
        self._mapped = mapped
        self._selections = _distinct(ask.selection for ask in _asks(found))
        self._attributes = _distinct(c.attribute for claim in found for c in claim.constraints)

    def selects(self, view: PoolView) -> bool:
        """Whether any ask is interested in any device of the view (or fails on one)."""
        return any(verdict is not False for s in self._selections for verdict in s.column(view))

    def confined(self, snapshot: Snapshot, nodes: Iterable[NodeView]) -> bool:
        """Whether every device of interest is seen by one node only, so that nodes can be judged apart."""
        wide = snapshot.decision_cache.get_or_compute("wide pools", None, _WidePools).of(snapshot.devices)
        views = (
            pool.view(node, self._features.PartitionableDevices) for node in (nodes if wide else ()) for pool in wide
        )
        return not any(view is not None and self.selects(view) for view in views)

    def signature(self, devices: DeviceSnapshot, allocated: AllocatedState, node: NodeView) -> Hashable:
        """Equal for nodes that answer alike."""
        numbers: dict[Hashable, int] = {}
        parts: list[Hashable] = []
        for view in devices.views(node, self._features.PartitionableDevices):
            if view.status != "ok":
                parts.append((view.status, str(view.key)))
            elif self.selects(view):
                parts.append(self._view(view, allocated, node, numbers))
                if self._mapped:
                    parts.append(tuple(tuple(mappings_of(devices, view.key, d.name)) for d in view.devices))
        return tuple(parts)

    def _view(
        self, view: PoolView, allocated: AllocatedState, node: NodeView, numbers: dict[Hashable, int]
    ) -> Hashable:
        use = allocated.use(view.key)
        columns = [selection.column(view) for selection in self._selections]
        devices: list[Hashable] = []
        for index, device in enumerate(view.devices):
            verdicts = tuple(column[index] for column in columns)
            compared = tuple(
                numbers.setdefault((attribute, device.shape.attribute(attribute)), len(numbers))
                for attribute in self._attributes
            )
            here = device.placement is None or matches_node(device.placement, node)
            consumed = tuple(sorted(use.consumed(device.name).items())) if device.name in use.shares else ()
            charge = view.charges[index] if view.totals else ()
            inner = (device.shape.shareable, device.shape.capacity, device.taints, device.binding)
            devices.append((verdicts, compared, here, device.name in use.devices, consumed, charge, inner))
        return view.key.driver, tuple(devices), view.counters_left(use)


class _WidePools:
    """The pools that several nodes may see."""

    def __init__(self) -> None:
        self._pools: Mapping[str, Pool] = {}
        self._names: set[str] = set()

    def of(self, devices: DeviceSnapshot) -> list[Pool]:
        """Those of an inventory."""
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


def _asks(claims: Iterable[Claim]) -> list[SubRequest]:
    return [ask for claim in claims for request in claim.requests for ask in request.asks]


def _distinct(values: Iterable[Selection] | Iterable[str]) -> list:  # type: ignore[type-arg]
    return list(dict.fromkeys(values))
