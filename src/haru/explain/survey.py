"""The devices of all nodes, looked at through a pod's claims: nodes that see equal devices, equally used, are asked
once, with the allocator's own conditions (`explain_requests`).

Names of nodes, pools and devices do not matter for equality, nor do attributes that no selector reads; values that
constraints compare are numbered, because only their equality counts.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from haru.engine.cluster import Snapshot
from haru.engine.devices import AllocationError, Claim, Device, NodeFunnel, NodeView, explain_requests
from haru.engine.devices.claims import Ask, Request
from haru.engine.devices.placement import matches_node
from haru.engine.devices.pools import PoolView
from haru.engine.devices.reads import names_read, whole
from haru.engine.groups import Options


@dataclass(slots=True)
class NodeKind:
    """Nodes with equal devices: their funnel, and each node's pools in the order of its positions."""

    funnel: NodeFunnel
    views: dict[str, list[PoolView]] = field(default_factory=dict)

    def devices(self, node: str) -> Iterator[tuple[PoolView, int, Device]]:
        """The node's devices by position: pool, index in it, device."""
        for view in self.views[node]:
            for index, device in enumerate(view.devices):
                yield view, index, device


class Survey:
    """The kinds of nodes that a snapshot has for some claims. `faults` are nodes whose pools cannot be read."""

    def __init__(self, snapshot: Snapshot, claims: Sequence[Claim], options: Options) -> None:
        self.snapshot = snapshot
        self.claims = tuple(claims)
        self.options = options
        self.faults: dict[str, str] = {}
        self.kinds: list[NodeKind] = []
        self.kind_of: dict[str, NodeKind] = {}
        self._lens = _Lens(self.claims, options)
        known: dict[Hashable, NodeKind] = {}
        for name in snapshot.node_names:
            self._add(name, known)

    def asks(self) -> Iterator[tuple[Claim, Request, Ask]]:
        """Every alternative of every request, in the order of the funnels."""
        for claim in self.claims:
            for request in claim.requests:
                for ask in request.asks:
                    yield claim, request, ask

    def wide_pools(self) -> frozenset[str]:
        """Pools of which several nodes may see the same devices."""
        pools = self.snapshot.devices.pools
        shared = {key for key in self.snapshot.devices.everywhere if key in pools}
        shared |= {key for key, pool in pools.items() if len({s.placement.node_name for s in pool.slices}) > 1}
        return frozenset(shared)

    def _add(self, name: str, known: dict[Hashable, NodeKind]) -> None:
        devices, features = self.snapshot.devices, self.options.features
        node = NodeView(name, self.snapshot.nodes[name].labels)
        try:
            views = devices.views(node, features.PartitionableDevices)
            signature = self._lens.signature(views, self.snapshot, node)
            kind = known.get(signature)
            if kind is None:
                answer = explain_requests(devices, self.snapshot.allocated, node, self.claims, features)
                kind = known[signature] = NodeKind(answer)
                self.kinds.append(kind)
        except AllocationError as error:
            self.faults[name] = str(error)
            return
        kind.views[name] = [view for view in views if view.status == "ok"]
        self.kind_of[name] = kind


class _Lens:
    """What of a device can make a difference to the claims, as a number: equal devices have equal numbers."""

    def __init__(self, claims: Iterable[Claim], options: Options) -> None:
        found = list(claims)
        features = options.features
        asks = [ask for claim in found for request in claim.requests for ask in request.asks]
        expressions = {
            expression
            for ask in asks
            for expression in (*ask.selection.class_expressions, *ask.selection.request_expressions)
            if expression
        }
        self._names = [names_read(e, features.ListTypeAttributes, features.ConsumableCapacity) for e in expressions]
        self._compared = list(dict.fromkeys(c.attribute for claim in found for c in claim.constraints))
        self._shapes: dict[int, int] = {}
        self._numbers: dict[Hashable, int] = {}

    def signature(self, views: Sequence[PoolView], snapshot: Snapshot, node: NodeView) -> Hashable:
        """Equal for nodes whose funnels are equal, position by position."""
        parts: list[Hashable] = []
        order: dict[Hashable, int] = {}
        for view in views:
            if view.status != "ok":
                parts.append((view.status, str(view.key), view.problem))
                continue
            use = snapshot.allocated.use(view.key)
            taken = [i for i, d in enumerate(view.devices) if d.name in use.devices] if use.devices else ()
            shared = list(enumerate(view.devices)) if use.shares else ()
            shares = [(i, tuple(sorted(use.consumed(d.name).items()))) for i, d in shared]
            here = [
                i for i, d in enumerate(view.devices) if d.placement is not None and not matches_node(d.placement, node)
            ]
            compared = [
                order.setdefault((name, d.shape.attribute(name)), len(order))
                for name in self._compared
                for d in view.devices
            ]
            counters = view.counters_left(use) if view.totals else ()
            kinds = tuple(self._number(view, index) for index in range(len(view.devices)))
            parts.append((kinds, tuple(taken), tuple(shares), tuple(here), tuple(compared), counters))
        return tuple(parts)

    def _number(self, view: PoolView, index: int) -> int:
        device = view.devices[index]
        charge = view.charges[index] if view.totals else ()
        key = (self._shape(device), device.taints, device.binding, bool(device.consumes), charge)
        return self._numbers.setdefault(key, len(self._numbers))

    def _shape(self, device: Device) -> int:
        shape = device.shape
        found = self._shapes.get(id(shape))
        if found is None:
            seen = tuple(whole(shape) if names is None else names.of(shape) for names in self._names)
            key = (shape.driver, seen, shape.capacity, shape.shareable)
            found = self._shapes[id(shape)] = self._numbers.setdefault(key, len(self._numbers))
        return found
