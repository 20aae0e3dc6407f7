"""What the nodes of each domain of a label have together: room and devices, free and in use.

Kept per cluster and brought up to date by what has changed: a pod that is bound changes one node's part of one sum.
Nodes without the label are in no domain; the empty value is a domain like any other.
Source: our own; KEP-5732 tries every domain without looking at its capacity first.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import NamedTuple

from haru.engine.cluster import Snapshot
from haru.engine.devices import AllocatedState, DeviceSnapshot, Features, NodeView
from haru.engine.devices.claims import Ask
from haru.engine.devices.offers import offer_of
from haru.engine.devices.pools import Pool
from haru.engine.devices.selection import judge_of
from haru.engine.nodeinfo import NodeInfo
from haru.engine.persistent import differing

PODS = "pods"
BOUNDLESS = 1 << 40
"""More of something than anybody asks for: pods on a node without a limit, shares of a device."""


class Sums:
    """Amounts of one domain by resource: `free` for filters, `used` and `capacity` for scores."""

    __slots__ = ("capacity", "free", "nodes", "used")

    def __init__(self) -> None:
        self.nodes: set[str] = set()
        self.free: dict[str, int] = {}
        self.used: dict[str, int] = {}
        self.capacity: dict[str, int] = {}

    def add(self, node: NodeInfo, sign: int) -> None:
        """Count a node in (sign 1) or out (-1)."""
        free, used, capacity = self.free, self.used, self.capacity
        for resource, amount in free_on(node).items():
            free[resource] = free.get(resource, 0) + sign * amount
        for resource, amount in node.allocatable.items():
            capacity[resource] = capacity.get(resource, 0) + sign * amount
        cpu, memory = node.scoring_requested
        for resource, amount in {**node.requested, "cpu": cpu, "memory": memory}.items():
            used[resource] = used.get(resource, 0) + sign * amount


def free_on(node: NodeInfo) -> dict[str, int]:
    """What a node has left of every resource that it offers, the number of pods included; never negative."""
    requested = node.requested
    free = {name: max(0, amount - requested.get(name, 0)) for name, amount in node.allocatable.items()}
    room = node.allocatable.get(PODS)
    free[PODS] = BOUNDLESS if room is None else max(0, room - len(node.pods))
    return free


class Aggregates:
    """The domains of one label with their sums."""

    def __init__(self, label: str) -> None:
        self.label = label
        self.domains: dict[str, Sums] = {}
        self.version = 0
        """Grows when a node comes into a domain or leaves one."""
        self._nodes: Mapping[str, NodeInfo] = {}
        self._known: dict[str, NodeInfo] = {}
        self._values: tuple[int, list[str]] = (-1, [])

    @staticmethod
    def of(snapshot: Snapshot, label: str) -> Aggregates:
        """The domains of a label in a snapshot; notes of the cluster save the counting."""
        found = snapshot.notes.entry("domains", label, lambda: Aggregates(label), limit=8)
        found._catch_up(snapshot.nodes)
        return found

    @property
    def values(self) -> list[str]:
        """The values of the label, sorted."""
        if self._values[0] != self.version:
            self._values = (self.version, sorted(self.domains))
        return self._values[1]

    def value_of(self, node: str) -> str | None:
        """The domain that a node is in."""
        info = self._known.get(node)
        return info.labels[self.label] if info is not None else None

    def node(self, name: str) -> NodeInfo:
        """A node of some domain."""
        return self._known[name]

    def _catch_up(self, nodes: Mapping[str, NodeInfo]) -> None:
        for name in differing(nodes, self._nodes):
            self._put(name, nodes.get(name))
        self._nodes = nodes

    def _put(self, name: str, node: NodeInfo | None) -> None:
        before = self._known.pop(name, None)
        after = node if node is not None and node.present and self.label in node.labels else None
        source = before.labels[self.label] if before is not None else None
        target = after.labels[self.label] if after is not None else None
        if before is not None and source is not None:
            self.domains[source].add(before, -1)
        if after is not None and target is not None:
            self._known[name] = after
            self.domains.setdefault(target, Sums()).add(after, 1)
        if source != target:
            self.version += 1
            if source is not None:
                self.domains[source].nodes.discard(name)
                if not self.domains[source].nodes:
                    del self.domains[source]
            if target is not None:
                self.domains[target].nodes.add(name)


class Count(NamedTuple):
    """How many devices there are that an ask may have, and how many of them are free."""

    free: int = 0
    every: int = 0

    def plus(self, other: Count) -> Count:
        """Both together."""
        return Count(self.free + other.free, self.every + other.every)


_NONE = Count()


class DeviceCounts:
    """The devices that one ask may have, by node and by domain; no fewer free ones than the allocator would find.

    Devices that several nodes see are counted in every domain, and in no capacity.
    """

    def __init__(self, ask: Ask, features: Features) -> None:
        self._ask = ask
        self._features = features
        self._seen: tuple[DeviceSnapshot, AllocatedState] | None = None
        self._pools: dict[str, tuple[str, Count]] = {}
        self._on: dict[str, Count] = {}
        self._wide = 0
        self._domains: dict[str, Count] = {}
        self._version = -1

    @staticmethod
    def of(snapshot: Snapshot, aggregates: Aggregates, ask: Ask, features: Features) -> DeviceCounts:
        """The counts of a snapshot; notes of the cluster save the counting."""
        key = (aggregates.label, ask_key(ask), features)
        found = snapshot.notes.entry("device counts", key, lambda: DeviceCounts(ask, features))
        found._catch_up(snapshot, aggregates)
        return found

    def on(self, node: str) -> int:
        """How many a node can have at most."""
        return self._on.get(node, _NONE).free + self._wide

    def on_any(self, nodes: Iterable[str]) -> int:
        """How many some nodes can have together at most."""
        return sum(self._on.get(node, _NONE).free for node in nodes) + self._wide

    def free(self, domain: str) -> int:
        """How many the nodes of a domain can have together at most."""
        return self._domains.get(domain, _NONE).free + self._wide

    def of_domain(self, domain: str) -> Count:
        """The devices of the nodes of a domain, those left out that others see too."""
        return self._domains.get(domain, _NONE)

    def _catch_up(self, snapshot: Snapshot, aggregates: Aggregates) -> None:
        devices, allocated = snapshot.devices, snapshot.allocated
        if self._seen is None:
            changed = set(devices.pools)
        else:
            changed = differing(devices.pools, self._seen[0].pools)
            if allocated is not self._seen[1]:
                changed |= {str(key) for key in allocated.changed(self._seen[1])}
        self._seen = (devices, allocated)
        moved = aggregates.version != self._version
        for name in changed:
            self._put(name, devices.pools.get(name), allocated, None if moved else aggregates)
        if moved:
            self._version = aggregates.version
            self._domains = {}
            for node, count in self._on.items():
                self._add(aggregates.value_of(node), count)

    def _put(self, name: str, pool: Pool | None, allocated: AllocatedState, aggregates: Aggregates | None) -> None:
        old = self._pools.pop(name, None)
        new = self._counted(pool, allocated) if pool is not None else None
        if new is not None:
            self._pools[name] = new
        for entry, sign in ((old, -1), (new, 1)):
            if entry is None:
                continue
            node, (free, every) = entry
            change = Count(sign * free, sign * every)
            if not node:
                self._wide += change.free
                continue
            self._on[node] = self._on.get(node, _NONE).plus(change)
            if aggregates is not None:
                self._add(aggregates.value_of(node), change)

    def _add(self, value: str | None, change: Count) -> None:
        if value is not None:
            self._domains[value] = self._domains.get(value, _NONE).plus(change)

    def _counted(self, pool: Pool, allocated: AllocatedState) -> tuple[str, Count]:
        """The one node that sees a pool ("" if there are several), and its devices."""
        taken = allocated.use(pool.key).devices
        nodes = {item.placement.node_name for item in pool.slices}
        if len(nodes) != 1 or "" in nodes:
            verdict = judge_of(self._ask.selection).verdict
            listed = {d.name: d for item in pool.slices for d in item.devices if verdict(d.shape) is not False}
            return "", Count(sum(self._weight(d.shape.shareable) for n, d in listed.items() if n not in taken), 0)
        (node,) = nodes
        view = pool.view(NodeView(node, {}), self._features.PartitionableDevices)
        if view is None or view.status != "ok":
            return node, _NONE
        if view.table.plain and not self._ask.wanted:
            # Nothing but the selectors decides; a whole column of them is judged at once.
            column = self._ask.selection.column(view)
            names = [d.name for d, verdict in zip(view.devices, column, strict=True) if verdict is not False]
            return node, Count(sum(name not in taken for name in names) if taken else len(names), len(names))
        found = [view.devices[index] for index in offer_of(view.table, self._ask, self._features)]
        free = sum(self._weight(d.shape.shareable) for d in found if d.name not in taken)
        return node, Count(free, len(found))

    def _weight(self, shareable: bool) -> int:
        return BOUNDLESS if shareable and self._features.ConsumableCapacity else 1


def ask_key(ask: Ask) -> Hashable:
    """Equal for asks that may have the same devices."""
    return ask.selection, ask.wanted, ask.tolerations
