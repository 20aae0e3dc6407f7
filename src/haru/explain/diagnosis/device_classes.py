"""The devices of all nodes, looked at through a pod's claims: nodes that see equal devices, equally used, are asked
once, with the allocator's own conditions (`explain_requests`).

Names of nodes, pools and devices do not matter, nor do attributes that no selector reads; values that constraints
compare are numbered, because only their equality counts. A survey is kept with the cluster and follows it: asked again
it costs what has changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from weakref import ref

from haru.engine import Features, Options, Snapshot
from haru.engine.dra import (
    AllocatedState,
    AllocationError,
    Claim,
    Device,
    DeviceSnapshot,
    NodeFunnel,
    NodeView,
    PoolView,
    Request,
    Shape,
    SubRequest,
    explain_requests,
    names_read,
    usable_on,
    whole,
)
from haru.engine.equivalence import NodeDeviceClass, SelectorFootprint, classified_nodes_of
from haru.engine.state import Mark, NodeEquivalenceClass, NodeInfo, differing, mark_of, written_since
from haru.explain.diagnosis.holders import HolderCount


class DeviceSignature:
    """Looks at nodes through claims. It keeps what it has seen of devices, so equal ones must stay equal."""

    def __init__(self, claims: Iterable[Claim], features: Features) -> None:
        found = list(claims)
        asks = [ask for claim in found for request in claim.requests for ask in request.asks]
        expressions = {
            expression: names_read(expression, features.ListTypeAttributes, features.ConsumableCapacity)
            for ask in asks
            for expression in (*ask.selection.class_expressions, *ask.selection.request_expressions)
            if expression
        }
        self._everything = any(names is None for names in expressions.values())
        self._reads = [names for names in expressions.values() if names is not None]
        self._spelled: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {}
        self._compared = list(dict.fromkeys(c.attribute for claim in found for c in claim.constraints))
        self._shapes: dict[Shape, int] = {}
        self._tables: dict[object, tuple[int, ...]] = {}
        self._numbers: dict[Hashable, int] = {}

    def signature(self, views: Sequence[PoolView], allocated: AllocatedState, node: NodeView) -> Hashable:
        """Equal for nodes whose funnels are equal, position by position."""
        parts: list[Hashable] = []
        order: dict[Hashable, int] = {}
        for view in views:
            if view.status != "ok":
                parts.append((view.status, str(view.key), view.problem))
                continue
            use = allocated.use(view.key)
            here: tuple[int, ...] = ()
            if view.table.placed:
                devices = enumerate(view.devices)
                here = tuple(i for i, device in devices if not usable_on(device, node))
            compared = [
                order.setdefault((name, d.shape.attribute(name)), len(order))
                for name in self._compared
                for d in view.devices
            ]
            counters = view.counters_left(use) if view.totals else ()
            kinds = self._kinds(view)
            parts.append((kinds, *view.occupation(use), here, tuple(compared), counters))
        return tuple(parts)

    def _kinds(self, view: PoolView) -> tuple[int, ...]:
        """A number per device."""
        if view.totals:
            return tuple([self._number(d, c) for d, c in zip(view.devices, view.charges, strict=True)])
        table = view.table
        key: Hashable = table
        if table.uniform and table.plain and not self._everything:
            # Such devices are no more than what is read of them.
            key = table.reading(self._spelled_by(table.shape_of[0].driver)[0], capacity=True)
        found = self._tables.get(key)
        if found is None:
            found = self._tables[key] = tuple([self._number(device, ()) for device in view.devices])
        return found

    def _number(self, device: Device, charge: Hashable) -> int:
        key = (self._shape(device.shape), device.taints, device.binding, bool(device.consumes), charge)
        return self._numbers.setdefault(key, len(self._numbers))

    def _shape(self, shape: Shape) -> int:
        found = self._shapes.get(shape)
        if found is None:
            key = (shape.driver, self._seen(shape), shape.capacity, shape.shareable)
            found = self._shapes[shape] = self._numbers.setdefault(key, len(self._numbers))
        return found

    def _seen(self, shape: Shape) -> Hashable:
        """What the expressions read of a shape. Values that may be faulty are always seen: they fail any expression."""
        if self._everything:
            return whole(shape)
        spelled = self._spelled_by(shape.driver)
        by_name, amounts = shape.by_name, shape.amounts
        return (
            tuple([by_name.get(name) for name in spelled[0]]),
            tuple([amounts.get(name) for name in spelled[1]]),
            shape.faulty,
        )

    def _spelled_by(self, driver: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The attributes and capacities that expressions read of a driver's devices, in all spellings."""
        spelled = self._spelled.get(driver)
        if spelled is None:
            attributes: dict[str, None] = {}
            capacity: dict[str, None] = {}
            for names in self._reads:
                for found, pairs in zip((attributes, capacity), names.published(driver), strict=True):
                    found.update((text, None) for pair in pairs for text in pair)
            spelled = self._spelled[driver] = tuple(attributes), tuple(capacity)
        return spelled


_MOST_SURVEYS = 8


@dataclass(slots=True, eq=False)
class NodeKind:
    """Nodes with equal devices, and their funnel. `nodes` have the labels with which they were looked at."""

    key: Hashable
    funnel: NodeFunnel
    survey: DeviceClassSurvey
    nodes: dict[str, Mapping[str, str]] = field(default_factory=dict)
    holdings: dict[Hashable, tuple[dict[tuple[str, ...], int], Counter[str]]] = field(default_factory=dict)
    """Who holds which devices of these nodes, and short of which counters, as far as it was asked."""

    @property
    def names(self) -> list[str]:
        """The nodes."""
        return sorted(self.nodes)

    def views(self, node: str) -> list[PoolView]:
        """A node's pools in the order of its positions."""
        return [view for view in self.survey.views(node) if view.status == "ok"]

    def devices(self, node: str) -> Iterator[tuple[PoolView, int, Device]]:
        """The node's devices by position: pool, index in it, device."""
        for view in self.views(node):
            for index, device in enumerate(view.devices):
                yield view, index, device


@dataclass(frozen=True, slots=True)
class _Seen:
    """What a survey was made of; of the nodes, which keep pods, only what tells whether they have changed."""

    nodes: Mark | None
    devices: DeviceSnapshot
    allocated: AllocatedState


class DeviceClassSurvey:
    """The kinds of nodes that a snapshot has for some claims. `faults` are nodes whose pools cannot be read."""

    @staticmethod
    def of(snapshot: Snapshot, claims: Sequence[Claim], options: Options, asked: Hashable) -> DeviceClassSurvey:
        """The survey for claims; `asked` is equal for claims that ask for the same, whatever they are called."""
        key = (asked, options.features)
        found = snapshot.decision_cache.get_or_compute("surveys", key, DeviceClassSurvey, limit=_MOST_SURVEYS)
        found.catch_up(snapshot, claims, options)
        return found

    def __init__(self) -> None:
        self.faults: dict[str, str] = {}
        self.kinds: list[NodeKind] = []
        self.kind_of: dict[str, NodeKind] = {}
        self.holder_counts: dict[Hashable, HolderCount] = {}
        """Who holds what stops devices, by request and condition."""
        self._known: dict[Hashable, NodeKind] = {}
        self._dressed: dict[NodeDeviceClass, NodeKind] = {}
        self._wide: dict[str, frozenset[str]] = {}
        self._seen: _Seen | None = None

    def catch_up(self, snapshot: Snapshot, claims: Sequence[Claim], options: Options) -> None:
        """Take in what has changed since the last look."""
        self._snapshot = ref(snapshot)
        self.claims = tuple(claims)
        self.options = options
        last, self._seen = self._seen, None  # whatever goes wrong, nothing half done is built upon
        stale = None if last is None or last.devices.classes is not snapshot.devices.classes else self._stale(last)
        if stale is None:
            self.faults, self.kind_of, self._known, self._wide = {}, {}, {}, {}
            self._lens = DeviceSignature(self.claims, options.features)
            self._regard = SelectorFootprint.of(self.claims)
        self._dressed.clear()
        for lot in snapshot.node_classes if stale is None else ():
            self._add_lot(lot)
        known = snapshot.classified_nodes
        for name in sorted(stale or ()):
            self._drop(name)
            info = snapshot.nodes.get(name)
            if info is not None and info.present:
                classified = classified_nodes_of(known, name)
                self._add(info, classified.node_device_class if classified is not None else None)
        self.kinds = sorted(self._known.values(), key=lambda kind: min(kind.nodes))
        self._seen = _Seen(mark_of(snapshot.nodes), snapshot.devices, snapshot.allocated)

    @property
    def snapshot(self) -> Snapshot:
        """The cluster, which whoever asks keeps: here it would stay, with its pods, until somebody asks again."""
        snapshot = self._snapshot()
        assert snapshot is not None
        return snapshot

    def asks(self) -> Iterator[tuple[Claim, Request, SubRequest]]:
        """Every alternative of every request, in the order of the funnels."""
        for claim in self.claims:
            for request in claim.requests:
                for ask in request.asks:
                    yield claim, request, ask

    def wide_pools(self) -> frozenset[str]:
        """Pools of which several nodes may see the same devices."""
        return frozenset().union(*self._wide.values())

    def views(self, node: str) -> list[PoolView]:
        """The pools that a node sees. Raises AllocationError."""
        info = self.snapshot.nodes[node]
        return self.snapshot.devices.views(NodeView(node, info.labels), self.options.features.PartitionableDevices)

    def _stale(self, last: _Seen) -> set[str] | None:
        """The nodes to be looked at again; None for all of them."""
        snapshot = self.snapshot
        found: set[str] = set()
        written = written_since(snapshot.nodes, last.nodes)
        for name in {*self.kind_of, *snapshot.node_names} if written is None else written:
            kind, now = self.kind_of.get(name), snapshot.nodes.get(name)
            if kind is None or now is None or not now.present or kind.nodes[name] != now.labels:
                found.add(name)
        pools = differing(snapshot.devices.pools, last.devices.pools)
        pools |= {str(key) for key in snapshot.allocated.changed(last.allocated)}
        moments = (snapshot.devices, last.devices)
        for pool in pools:
            if any(pool in moment.everywhere or pool in moment.troubled for moment in moments):
                return None
            slices = [s for moment in moments if pool in moment.pools for s in moment.pools[pool].slices]
            found.update(item.placement.node_name for item in slices)
        return found

    def _drop(self, name: str) -> None:
        self.faults.pop(name, None)
        self._wide.pop(name, None)
        kind = self.kind_of.pop(name, None)
        if kind is not None:
            del kind.nodes[name]
            kind.holdings.clear()
            if not kind.nodes:
                del self._known[kind.key]

    def _add_lot(self, lot: NodeEquivalenceClass) -> None:
        rest = lot.names[1:]
        self._add(lot.first, lot.node_device_class)
        kind = self._dressed.get(lot.node_device_class) if lot.node_device_class is not None else None
        if kind is None:
            for name in rest:
                self._add(self.snapshot.nodes[name], lot.node_device_class)
        else:
            nodes = self.snapshot.nodes
            kind.nodes.update((name, nodes[name].labels) for name in rest)
            self.kind_of.update(dict.fromkeys(rest, kind))

    def _add(self, info: NodeInfo, node_device_class: NodeDeviceClass | None) -> None:
        kind = self._dressed.get(node_device_class) if node_device_class is not None else None
        if kind is None:
            kind = self._looked_at(info)
            if kind is None:
                return
            if node_device_class is not None and self._regard.is_blind(node_device_class):
                self._dressed[node_device_class] = kind
        if kind.holdings:
            kind.holdings.clear()
        kind.nodes[info.name] = info.labels
        self.kind_of[info.name] = kind

    def _looked_at(self, info: NodeInfo) -> NodeKind | None:
        """The kind of a node, by what its devices are; None if they cannot be read."""
        devices, allocated, features = self.snapshot.devices, self.snapshot.allocated, self.options.features
        node = NodeView(info.name, info.labels)
        try:
            views = devices.views(node, features.PartitionableDevices)
            signature = self._lens.signature(views, allocated, node)
            kind = self._known.get(signature)
            if kind is None:
                answer = explain_requests(devices, allocated, node, self.claims, features)
                kind = self._known[signature] = NodeKind(signature, answer, self)
        except AllocationError as error:
            self.faults[info.name] = str(error)
            return None
        wide = frozenset([str(view.key) for view in views if not view.confined and view.status == "ok"])
        if wide:
            self._wide[info.name] = wide
        return kind
