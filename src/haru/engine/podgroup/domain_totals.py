"""Sum the resources and devices of each domain of a topology label: free, used and total.

The decision cache keeps the totals and updates them from differences between snapshots: binding a pod changes one
node's part of one sum. Nodes without the label are in no domain; the empty value is a domain like any other.
Source: our own; KEP-5732 tries every domain without comparing its capacity first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from itertools import compress, groupby, repeat
from operator import attrgetter, is_not, itemgetter, methodcaller
from typing import NamedTuple

from haru.engine.dra.allocated_state import AllocatedState
from haru.engine.dra.allocator.candidates import candidates_of
from haru.engine.dra.model.claims import SubRequest
from haru.engine.dra.model.model import Features, NodeView
from haru.engine.dra.pools.device_table import TableSchema
from haru.engine.dra.pools.inventory import DeviceSnapshot
from haru.engine.dra.pools.pools import Pool, PoolView
from haru.engine.dra.selectors.compiled_selectors import compiled_selector_of
from haru.engine.equivalence.node_device_classes import NodeDeviceClass, SelectorFootprint
from haru.engine.preemption.change_log import ChangeLog
from haru.engine.state.cache import Snapshot
from haru.engine.state.cow_map import differing, values_of
from haru.engine.state.node_info import ABSENT, InternedId, NodeInfo

PODS = "pods"
_KIND_AND_LOAD = attrgetter("spec.kind", "load")
_LABELS = attrgetter("spec.labels")
_DEVICE_CLASS, _USES = attrgetter("node_device_class"), attrgetter("uses")
BOUNDLESS = 1 << 40
"""Stands for an unlimited amount: pods on a node without a limit, shares of a shareable device."""


class ResourceTotals:
    """Amounts of one domain by resource: `free` for filters, `used` and `capacity` for scores."""

    __slots__ = ("capacity", "free", "nodes", "used")

    def __init__(self) -> None:
        self.nodes: set[str] = set()
        self.free: dict[str, int] = {}
        self.used: dict[str, int] = {}
        self.capacity: dict[str, int] = {}

    def add(self, node: NodeInfo, count: int) -> None:
        """Add so many nodes with equal amounts, or subtract them if `count` is negative."""
        free, used, capacity = self.free, self.used, self.capacity
        for resource, amount in free_on(node).items():
            free[resource] = free.get(resource, 0) + count * amount
        for resource, amount in node.allocatable.items():
            capacity[resource] = capacity.get(resource, 0) + count * amount
        cpu, memory = node.scoring_requested
        for resource, amount in {**node.requested, "cpu": cpu, "memory": memory}.items():
            used[resource] = used.get(resource, 0) + count * amount


def free_on(node: NodeInfo) -> dict[str, int]:
    """Return what a node has free of each resource, pod slots included; never negative."""
    requested = node.requested
    free = {name: max(0, amount - requested.get(name, 0)) for name, amount in node.allocatable.items()}
    room = node.allocatable.get(PODS)
    free[PODS] = BOUNDLESS if room is None else max(0, room - len(node.pods))
    return free


class DomainTotals:
    """Hold the totals of each domain of one label."""

    def __init__(self, label: str) -> None:
        self.label = label
        self.domains: dict[str, ResourceTotals] = {}
        self.version = 0
        """Grows when a node enters or leaves a domain."""
        self.changes = ChangeLog()
        """Domains whose nodes or totals changed."""
        self._nodes: Mapping[str, NodeInfo] = {}
        self._known: dict[str, NodeInfo] = {}
        self.domain_of: dict[str, str] = {}
        """The domain of each node that is in one."""
        self._values: tuple[int, list[str]] = (-1, [])
        self._sorted: dict[str, tuple[str, ...]] = {}

    @staticmethod
    def of(snapshot: Snapshot, label: str) -> DomainTotals:
        """Return the totals of a label in a snapshot; the decision cache keeps them between snapshots."""
        found = snapshot.decision_cache.get_or_compute("domains", label, lambda: DomainTotals(label), limit=8)
        found._catch_up(snapshot.nodes)
        return found

    @property
    def values(self) -> list[str]:
        """The values of the label, sorted."""
        if self._values[0] != self.version:
            self._values = (self.version, sorted(self.domains))
        return self._values[1]

    def nodes_of(self, value: str) -> tuple[str, ...]:
        """Return the nodes of a domain, sorted; the same object while these stay."""
        found = self._sorted.get(value)
        if found is None:
            found = self._sorted[value] = tuple(sorted(self.domains[value].nodes))
        return found

    def node(self, name: str) -> NodeInfo:
        """Return the state of a node that is in some domain."""
        return self._known[name]

    def _begin(self, nodes: Mapping[str, NodeInfo]) -> None:
        """Sum all nodes."""
        found = [*map(methodcaller("get", self.label), map(_LABELS, nodes.values()))]
        chosen = [*map(is_not, found, repeat(None))]
        values: list[str] = [*compress(found, chosen)]
        known = self._known = dict(compress(nodes.items(), chosen))
        self.domain_of = dict(zip(known, values, strict=True))
        for value, pairs in groupby(sorted(zip(values, known, strict=True)), itemgetter(0)):
            totals = self.domains[value] = ResourceTotals()
            totals.nodes.update(map(itemgetter(1), pairs))
        keys = list(zip(self.domain_of.values(), map(_KIND_AND_LOAD, known.values()), strict=True))
        samples = dict(zip(keys, known.values(), strict=True))
        for key, count in Counter(keys).items():
            self.domains[key[0]].add(samples[key], count)
        self.version += 1
        self.changes.add_all()
        self._nodes = nodes

    def _catch_up(self, nodes: Mapping[str, NodeInfo]) -> None:
        if not self._nodes:
            self._begin(nodes)
            return
        label, known, domain_of = self.label, self._known, self.domain_of
        changed = list(differing(nodes, self._nodes))
        counts: dict[tuple[str, InternedId, InternedId], int] = {}
        samples: dict[tuple[str, InternedId, InternedId], NodeInfo] = {}
        for name, node in zip(changed, values_of(nodes, changed), strict=True):
            before = known.get(name)
            if before is not None and node is not None and before.spec is node.spec and before.load is node.load:
                known[name] = node  # it offers and uses what it did
                continue
            source, before = domain_of.get(name), known.pop(name, None)
            target = None if node is None or node.spec is ABSENT else node.spec.labels.get(label)
            if source != target:
                self._move(name, source, target)
            if before is not None and source is not None:
                key = source, before.spec.kind, before.load
                counts[key], samples[key] = counts.get(key, 0) - 1, before
            if node is not None and target is not None:
                known[name] = node
                key = target, node.spec.kind, node.load
                counts[key], samples[key] = counts.get(key, 0) + 1, node
        self._nodes = nodes
        # Nodes of one kind with one load have equal amounts: what most of them have is added once.
        for key, count in counts.items():
            if count:
                self.domains[key[0]].add(samples[key], count)
        values = {value for value, _, _ in counts}
        self.changes.add(values)
        for value in [value for value in values if not self.domains[value].nodes]:
            del self.domains[value]

    def _move(self, name: str, source: str | None, target: str | None) -> None:
        """Take a node out of one domain and into another."""
        self.version += 1
        self._sorted.clear()
        if source is not None:
            self.domains[source].nodes.discard(name)
            del self.domain_of[name]
        if target is not None:
            if target not in self.domains:
                self.domains[target] = ResourceTotals()
            self.domains[target].nodes.add(name)
            self.domain_of[name] = target


class Count(NamedTuple):
    """Count the devices that match a subrequest: free ones and all."""

    free: int = 0
    total: int = 0

    def plus(self, other: Count) -> Count:
        """Return the sum of both counts."""
        return Count(self.free + other.free, self.total + other.total)


_NONE = Count()


class DeviceTotals:
    """Count the devices that match one subrequest, by node and domain; never fewer free ones than the allocator finds.

    Devices that several nodes see count as free in every domain, and in no capacity.
    """

    def __init__(self, ask: SubRequest, features: Features) -> None:
        self._ask = ask
        self._features = features
        self._seen: tuple[DeviceSnapshot, AllocatedState] | None = None
        self._pools: dict[str, tuple[str, Count]] = {}
        """The counts of pools that have changed and are not counted by class; those of others are not kept by pool."""
        self._footprint = SelectorFootprint([ask.selection], ())
        self._selected: dict[TableSchema, int] = {}
        """The devices that are selected, as bits, of tables of a schema that the selectors cannot tell apart."""
        self._on: dict[str, Count] = {}
        self._network_attached = 0
        self._domains: dict[str, Count] = {}
        self.changes = ChangeLog()
        """Domains whose counts changed."""
        self._version = -1

    @staticmethod
    def of(snapshot: Snapshot, domain_totals: DomainTotals, ask: SubRequest, features: Features) -> DeviceTotals:
        """Return the counts in a snapshot; the decision cache keeps them between snapshots."""
        key = (domain_totals.label, ask_key(ask), features)
        found = snapshot.decision_cache.get_or_compute("device counts", key, lambda: DeviceTotals(ask, features))
        found._catch_up(snapshot, domain_totals)
        return found

    def on(self, node: str) -> int:
        """Return how many free devices a node can use at most."""
        return self._on.get(node, _NONE).free + self._network_attached

    def on_any(self, nodes: Iterable[str]) -> int:
        """Return how many free devices some nodes can use together at most."""
        return sum(self._on.get(node, _NONE).free for node in nodes) + self._network_attached

    def free(self, domain: str) -> int:
        """Return how many free devices the nodes of a domain can use together at most."""
        return self._domains.get(domain, _NONE).free + self._network_attached

    def node_local_count(self, domain: str) -> Count:
        """Count the devices that exactly one node of the domain sees."""
        return self._domains.get(domain, _NONE)

    def _catch_up(self, snapshot: Snapshot, domain_totals: DomainTotals) -> None:
        devices, allocated = snapshot.devices, snapshot.allocated
        before, self._seen = self._seen, (devices, allocated)
        if before is None:
            self._begin(snapshot)
            changed: set[str] = set()
        else:
            changed = differing(devices.pools, before[0].pools)
            if allocated is not before[1]:
                changed |= {str(key) for key in allocated.changed(before[1])}
        moved = domain_totals.version != self._version
        if before is not None and before[0] is devices and changed:
            changed = self._count_classified(snapshot, changed, None if moved else domain_totals)
        for name in changed:
            old = self._pools.pop(name, None)
            if old is None and before is not None:
                old = self._count_pool(before[0].pools.get(name), before[1])
            new = self._count_pool(devices.pools.get(name), allocated)
            if new is not None:
                self._pools[name] = new
            if new != old:
                self._replace(old, new, None if moved else domain_totals)
        if moved:
            self._version = domain_totals.version
            self._domains = {}
            equal = Counter(zip(map(domain_totals.domain_of.get, self._on), self._on.values(), strict=True))
            for (value, count), nodes in equal.items():
                self._add(value, Count(count.free * nodes, count.total * nodes))
            self.changes.add_all()

    def _count_classified(self, snapshot: Snapshot, changed: set[str], domain_totals: DomainTotals | None) -> set[str]:
        """Count nodes by device class where other devices of pools are taken; return the pools that this leaves."""
        devices, classified = snapshot.devices, snapshot.classified_nodes
        if classified is None:
            return changed
        left: set[str] = set()
        pools = [devices.pools.get(name) for name in changed]
        owners = [pool.slices[0].placement.node_name if pool is not None and pool.slices else "" for pool in pools]
        counts: dict[NodeDeviceClass, Count | None] = {}
        for name, node, known in zip(changed, owners, values_of(classified, owners), strict=True):
            before, count = self._on.get(node), None
            if known is not None and before is not None:
                node_device_class = known.node_device_class
                if node_device_class not in counts:
                    counts[node_device_class] = self._count_class(devices, node, node_device_class)
                count = counts[node_device_class]
            if before is None or count is None:
                left.add(name)
                continue
            self._pools.pop(name, None)
            if count != before:
                self._replace((node, before), (node, count), domain_totals)
        return left

    def _begin(self, snapshot: Snapshot) -> None:
        """Count all pools: once for the nodes of a device class, where the selectors cannot tell them apart."""
        devices, found = snapshot.devices, snapshot.classified_nodes or {}
        classified = dict(compress(found.items(), map(is_not, found.values(), repeat(None))))
        classes = [*map(_DEVICE_CLASS, classified.values())]
        samples = dict(zip(classes, classified, strict=True))
        counts = {one: self._count_class(devices, node, one) for one, node in samples.items()}
        each = [*map(counts.__getitem__, classes)]
        self._on = {node: count for node, count in zip(classified, each, strict=True) if count is not None}
        if sum([len(uses) for uses in map(_USES, map(classified.__getitem__, self._on))]) < len(devices.pools):
            known = frozenset(self._on)
            for pool in devices.pools.values():
                if not any(item.placement.node_name in known for item in pool.slices):
                    self._replace(None, self._count_pool(pool, snapshot.allocated), None)

    def _count_class(self, devices: DeviceSnapshot, node: str, node_device_class: NodeDeviceClass) -> Count | None:
        """Count the devices of a node of a class; None where its nodes may have other counts."""
        pools = [devices.pools[name] for name in devices.by_node.get(node, ())]
        pools.sort(key=lambda pool: (pool.key.driver.encode(), pool.key.pool.encode()))
        bits = offset = 0
        for pool, schema in zip(pools, node_device_class.models, strict=True):
            selected = self._selected_of(pool, node)
            if selected is None:
                return None
            bits |= selected[1] << offset
            offset += schema.count
        return Count((bits & ~node_device_class.taken).bit_count(), bits.bit_count())

    def _replace(
        self, old: tuple[str, Count] | None, new: tuple[str, Count] | None, domain_totals: DomainTotals | None
    ) -> None:
        """Count what a pool has in place of what it had."""
        for entry, sign in ((old, -1), (new, 1)):
            if entry is None:
                continue
            node, (free, total) = entry
            change = Count(sign * free, sign * total)
            if not node:
                self._network_attached += change.free
                continue
            self._on[node] = self._on.get(node, _NONE).plus(change)
            if domain_totals is not None and (value := domain_totals.domain_of.get(node)) is not None:
                self._add(value, change)
                self.changes.add((value,))

    def _add(self, value: str | None, change: Count) -> None:
        if value is not None:
            self._domains[value] = self._domains.get(value, _NONE).plus(change)

    def _count_pool(self, pool: Pool | None, allocated: AllocatedState) -> tuple[str, Count] | None:
        """Return the one node that sees a pool ("" if there are several), and the counts of its devices."""
        if pool is None:
            return None
        use = allocated.use(pool.key)
        if len(pool.slices) == 1 and (owner := pool.slices[0].placement.node_name):
            selected = self._selected_of(pool, owner)
            if selected is not None:
                own, bits = selected
                taken_bits = own.occupation(use)[0] if use.devices else 0
                return owner, Count((bits & ~taken_bits).bit_count(), bits.bit_count())
        taken = use.devices
        nodes = {item.placement.node_name for item in pool.slices}
        if len(nodes) != 1 or "" in nodes:
            verdict = compiled_selector_of(self._ask.selection, pool.tables.cache).verdict
            listed = {d.name: d for item in pool.slices for d in item.devices if verdict(d.shape) is not False}
            return "", Count(sum(self._weight(d.shape.shareable) for n, d in listed.items() if n not in taken), 0)
        (node,) = nodes
        view = pool.view(NodeView(node, {}), self._features.PartitionableDevices)
        if view is None or view.status != "ok":
            return node, _NONE
        if view.table.plain and not self._ask.wanted:
            # Nothing but the selectors decides, so they are evaluated for a whole column at once.
            column = self._ask.selection.column(view)
            names = [d.name for d, verdict in zip(view.devices, column, strict=True) if verdict is not False]
            return node, Count(sum(name not in taken for name in names) if taken else len(names), len(names))
        found = [view.devices[index] for index in candidates_of(view.table, self._ask, self._features).all()]
        free = sum(self._weight(d.shape.shareable) for d in found if d.name not in taken)
        return node, Count(free, len(found))

    def _selected_of(self, pool: Pool, node: str) -> tuple[PoolView, int] | None:
        """Return the pool as its node sees it, with the bits of the devices that are selected.

        None where more than the schema of its devices decides.
        """
        view = None if self._ask.wanted or pool.slices[0].counter_sets else pool.sole_view(node)
        if view is None or view.status != "ok" or not view.table.plain or not view.devices:
            return None
        schema = view.table.model
        if schema is None or not self._footprint.is_blind_to(schema):
            return None
        bits = self._selected.get(schema)
        if bits is None:
            column = self._ask.selection.column(view)
            bits = self._selected[schema] = sum(1 << i for i, verdict in enumerate(column) if verdict is not False)
        return view, bits

    def _weight(self, shareable: bool) -> int:
        return BOUNDLESS if shareable and self._features.ConsumableCapacity else 1


def ask_key(ask: SubRequest) -> Hashable:
    """Return a key that is equal for subrequests that match the same devices."""
    return ask.selection, ask.wanted, ask.tolerations
