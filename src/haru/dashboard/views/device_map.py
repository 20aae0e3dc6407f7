"""The map: every card of the cluster with its holders. Equal nodes share a row."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import is_
from typing import Literal, Self

from haru.dashboard.views.cards import ONE_FREE, Card, Part, card_at
from haru.dashboard.views.workloads import EVERYTHING, OTHER, Filter, Owners, Workload, workload
from haru.engine import Snapshot
from haru.engine.dra import DeviceId
from haru.engine.equivalence import DecisionCache
from haru.engine.state import NodeInfo, PodInfo, consumer_key, differing
from haru.explain.card_counts import WHOLE, CardCounts, CardPartition
from haru.explain.cards import Layouts, PoolLayout
from haru.kube.meta import Obj, allocation_of, get_condition, labels_of

_MOST_COUNTED = 64
_RACKS = ("topology.haru.dev/rack", "topology.kubernetes.io/rack", "topology.kubernetes.io/zone")
_POOLS = (
    "node.kubernetes.io/pool", "cloud.google.com/gke-nodepool", "eks.amazonaws.com/nodegroup",
    "kubernetes.azure.com/agentpool", "simulated.haru.dev/profile", "node.kubernetes.io/instance-type",
)  # fmt: skip
"""Labels that say in which rack or pool of nodes a node is, the first that is there."""


@dataclass(frozen=True, slots=True)
class Place:
    """Equal nodes, or a pool that belongs to no single node.

    `state` is empty for nodes that are ready; otherwise what is shown of their cards may be out of date.
    """

    names: tuple[str, ...]
    cards: tuple[Card, ...]
    state: str = ""
    cordoned: bool = False
    taints: tuple[str, ...] = ()
    is_node: bool = True
    rack: str = ""
    pool: str = ""

    @property
    def product(self) -> str:
        """The model of most of its cards; empty without cards."""
        found = Counter(card.product for card in self.cards)
        return max(found, key=lambda name: (found[name], name)) if found else ""

    @property
    def look(self) -> tuple[object, ...]:
        """What a page shows of it, without names."""
        cards = sorted((card.look for card in self.cards), key=repr)
        return self.is_node, self.state, self.cordoned, self.taints, tuple(cards)


NO_CARDS = CardCounts()


@dataclass(frozen=True, slots=True)
class Totals:
    """Cards by the words of `haru top`; those with a taint are counted besides."""

    nodes: int = 0
    cards: int = 0
    tainted: int = 0
    counts: CardCounts = NO_CARDS

    def __add__(self, other: Totals) -> Totals:
        """Both together."""
        return Totals(
            self.nodes + other.nodes,
            self.cards + other.cards,
            self.tainted + other.tainted,
            self.counts + other.counts,
        )


By = Literal["node", "rack", "pool", "model"]
"""What the map is grouped by; nodes are one group."""


@dataclass(frozen=True, slots=True)
class Group:
    """Places that share a rack, a pool of nodes or a model."""

    title: str
    places: tuple[Place, ...]
    totals: Totals


@dataclass(frozen=True, slots=True)
class DeviceMap:
    """All places, in groups; the holders with how many parts of cards they have; the cards of each model."""

    groups: tuple[Group, ...]
    totals: Totals
    holders: tuple[tuple[Workload, int], ...]
    products: tuple[tuple[str, CardCounts], ...] = ()

    @property
    def places(self) -> tuple[Place, ...]:
        """The places of all groups."""
        return tuple(place for group in self.groups for place in group.places)


@dataclass(frozen=True, slots=True)
class _Row:
    """A place with what is computed of it alone."""

    place: Place
    look: tuple[object, ...]
    order: tuple[tuple[str, int], ...]
    holders: Counter[Workload]
    totals: Totals
    products: Mapping[str, CardCounts]

    @classmethod
    def of(cls, place: Place) -> Self:
        """Compute it."""
        parts = [part for card in place.cards for part in card.parts]
        holders = Counter(owner for part in parts for owner in part.owners if owner != OTHER)
        products: dict[str, CardCounts] = {}
        for card in place.cards:
            products[card.product] = products.get(card.product, NO_CARDS) + card.counts
        return cls(place, place.look, natural_key(place.names[0]), holders, _totals(place), products)


class KnownPlaces:
    """The places of one snapshot, kept for the next: only those are made anew that have changed. For one thread."""

    def __init__(self) -> None:
        self._before: Snapshot | None = None
        self._reserved: frozenset[DeviceId] = frozenset()
        self._cards: dict[str, tuple[PoolLayout, list[tuple[str, Card]]]] = {}
        self._rows: dict[tuple[str, bool], tuple[tuple[object, ...], _Row]] = {}
        self._decisions = DecisionCache()
        """For what is kept for the head of the queue: the cluster's own cache is that of the thread that explains."""

    def rows(self, snapshot: Snapshot, layouts: Layouts) -> list[_Row]:
        """The places of a snapshot."""
        cards: dict[str, list[list[tuple[str, Card]]]] = {}
        rows: dict[tuple[str, bool], tuple[tuple[object, ...], _Row]] = {}
        incomplete: set[str] = set()

        def keep(name: str, is_node: bool, key: tuple[object, ...], make: Callable[[], Place]) -> None:
            known = self._rows.get((name, is_node))
            same = known is not None and len(known[0]) == len(key) and all(map(is_, known[0], key))
            rows[name, is_node] = known if known is not None and same else (key, _Row.of(make()))

        for pool, found in self._cards_of_pools(snapshot, layouts):
            nodes = dict.fromkeys(node for node, _ in found)
            for node in filter(None, nodes):
                cards.setdefault(node, []).append(found)
            if not pool.whole:
                incomplete |= nodes.keys() - {""}
            if "" in nodes:
                keep(f"pool {pool.pool.key}", False, (pool, found), partial(_elsewhere, pool, found))
        for name, info in snapshot.nodes.items():
            own, whole = cards.pop(name, []), name not in incomplete
            keep(name, True, (info, whole, *own), partial(_node_place, name, info, own, whole))
        for name, own in cards.items():
            keep(name, True, (None, True, *own), partial(_node_place, name, None, own, True))
        self._rows = rows
        return [row for _, row in rows.values()]

    def _cards_of_pools(
        self, snapshot: Snapshot, layouts: Layouts
    ) -> Iterator[tuple[PoolLayout, list[tuple[str, Card]]]]:
        deciding = replace(snapshot, node_device_classes=None, decision_cache=self._decisions)
        owners, partition = Owners(snapshot), CardPartition(deciding)
        stale = self._stale(snapshot, frozenset(partition.reserved))
        made: dict[str, tuple[PoolLayout, list[tuple[str, Card]]]] = {}
        for pool in layouts.of(snapshot.devices.pools):
            name = str(pool.pool.key)
            known = self._cards.get(name)
            if known is None or known[0] is not pool or name in stale:
                known = pool, list(_cards_of(snapshot, pool, owners, partition))
            made[name] = known
        self._before, self._reserved, self._cards = snapshot, frozenset(partition.reserved), made
        return iter(made.values())

    def _stale(self, snapshot: Snapshot, reserved: frozenset[DeviceId]) -> set[str]:
        """The pools whose cards may look otherwise than before: by what is taken or kept, by holders, by nodes."""
        before = self._before
        if before is None:
            return set()
        moments = (before, snapshot)
        nodes = differing(snapshot.nodes, before.nodes)
        pods = dict.fromkeys(differing(snapshot.pods, before.pods))
        for moment in moments:
            on_nodes = (info for name in nodes if (info := moment.nodes.get(name)) is not None)
            pods.update((pod.key.path, None) for info in on_nodes for pod in info.pods.values())
        claims = set(differing(snapshot.claims, before.claims))
        for moment in moments:
            for pod in (found for path in pods if (found := moment.pods.get(path)) is not None):
                claims |= _claims_of(moment, pod)
        stale = {str(key) for key in snapshot.allocated.changed(before.allocated)}
        stale |= {f"{device.driver}/{device.pool}" for device in reserved ^ self._reserved}
        for moment in moments:
            stale.update(name for node in nodes for name in moment.devices.by_node.get(node) or ())
            stale.update(name for path in claims for name in _pools_of(moment.claims.get(path)))
        return stale


def _claims_of(snapshot: Snapshot, pod: PodInfo) -> set[str]:
    """The claims that a pod or its group has reserved."""
    by_consumer = snapshot.claim_index.by_consumer
    keys = [consumer_key("pods", pod.key.namespace, pod.key.name)]
    keys += [consumer_key("podgroups", *pod.group)] if pod.group is not None else []
    return {path for key in keys for path in by_consumer.get(key) or ()}


def _pools_of(claim: Obj | None) -> Iterator[str]:
    """The pools in which a claim has devices, as `driver/pool`."""
    allocation = allocation_of(claim) or {}
    for result in (allocation.get("devices") or {}).get("results") or ():
        yield f"{result['driver']}/{result['pool']}"


def device_map(
    snapshot: Snapshot,
    layouts: Layouts,
    chosen: Filter = EVERYTHING,
    known: KnownPlaces | None = None,
    by: By = "node",
) -> DeviceMap:
    """Make the map of what a filter selects; what is `known` of an earlier snapshot is not computed again."""
    found = (known or KnownPlaces()).rows(snapshot, layouts)
    rows = [row for row in found if chosen.takes_node(row.place.names[0])]
    if chosen.chooses_work:
        seen = (_seen(row.place, chosen) for row in rows)
        rows = [
            _Row.of(place) for place in seen if any(_is_chosen(part) for card in place.cards for part in card.parts)
        ]
    held: Counter[Workload] = Counter()
    products: dict[str, CardCounts] = {}
    for row in rows:
        held.update(row.holders)
        for name, counts in row.products.items():
            products[name] = products.get(name, NO_CARDS) + counts
    holders = sorted(held.items(), key=lambda item: (-item[1], item[0]))
    models = sorted(products.items(), key=lambda item: (-item[1].total, item[0]))
    return DeviceMap(_groups(rows, by), _sum(rows), tuple(holders), tuple(models))


def _sum(rows: Iterable[_Row]) -> Totals:
    return sum((row.totals for row in rows), Totals())


def _groups(rows: Iterable[_Row], by: By) -> tuple[Group, ...]:
    """Put places into groups; those without devices come last."""
    found: dict[tuple[bool, str], list[_Row]] = {}
    for row in sorted(rows, key=lambda row: row.order):
        title = {"rack": row.place.rack, "pool": row.place.pool, "model": row.place.product, "node": ""}[by]
        bare = not row.place.cards
        found.setdefault((bare, "" if bare else title or (f"no {by}" if by != "node" else "")), []).append(row)
    ordered = sorted(found.items(), key=lambda item: (item[0][0], natural_key(item[0][1])))
    return tuple(
        Group("Nodes without devices" if bare else title, _grouped(own), _sum(own)) for (bare, title), own in ordered
    )


def _elsewhere(pool: PoolLayout, found: Sequence[tuple[str, Card]]) -> Place:
    """The cards of a pool that are on no single node."""
    state = "" if pool.whole else "its pool is being published"
    cards = _in_order([card for node, card in found if not node])
    return Place((f"pool {pool.pool.key}",), cards, state, is_node=False)


def _node_place(name: str, info: NodeInfo | None, pools: Sequence[Sequence[tuple[str, Card]]], whole: bool) -> Place:
    cards = [card for found in pools for node, card in found if node == name]
    if info is None:
        return Place((name,), _in_order(cards), "no such node")
    state = _state(info) or ("" if whole else "its pool is being published")
    rack, pool = _labelled(info, _RACKS), _labelled(info, _POOLS)
    ordered = _in_order([*cards, *_counted(info)])
    return Place((name,), ordered, state, info.spec.unschedulable, _taints(info), rack=rack, pool=pool)


def _labelled(info: NodeInfo, keys: Iterable[str]) -> str:
    """Return the first of some labels that a node has."""
    labels = labels_of(info.spec.obj)
    return next((labels[key] for key in keys if labels.get(key)), "")


def _cards_of(
    snapshot: Snapshot, pool: PoolLayout, owners: Owners, partition: CardPartition
) -> Iterator[tuple[str, Card]]:
    key = pool.pool.key
    use = snapshot.allocated.use(key)
    for layout in pool.cards:
        card = card_at(layout, use, owners, lambda claim, device: partition.percent(claim, key, device))
        yield layout.node, replace(card, counts=partition.counts(layout, pool), driver=key.driver, pool=key.pool)


def _counted(info: NodeInfo) -> Iterator[Card]:
    """List the devices of device plugins: a number of them without names."""
    closed = bool(_state(info)) or info.spec.unschedulable
    for resource, count in sorted(info.spec.allocatable.items()):
        if "/" not in resource or not 0 < count <= _MOST_COUNTED:
            continue
        users = [workload(pod) for pod in info.pods.values() for _ in range(pod.usage.get(resource, 0))]
        for number in range(count):
            parts = (Part(resource, (users[number],), 1.0),) if number < len(users) else ()
            counts = CardCounts(unmeasured=WHOLE) if parts else CardCounts(unavailable=WHOLE) if closed else ONE_FREE
            yield Card(f"{number + 1} of {count}", resource, parts, 0.0 if parts else 1.0, counts=counts)


def _state(info: NodeInfo) -> str:
    if not info.present:
        return "no such node"
    ready = get_condition(info.spec.obj, "Ready")
    status = ready.get("status") if ready is not None else "Unknown"
    return {"True": "", "False": "not ready"}.get(str(status), "unknown")


def _taints(info: NodeInfo) -> tuple[str, ...]:
    return tuple(sorted(f"{taint.get('key')}:{taint.get('effect')}" for taint in info.spec.taints))


def _seen(place: Place, chosen: Filter) -> Place:
    """Replace the holders that the filter leaves out by other work."""
    if not chosen.chooses_work:
        return place
    cards = tuple(replace(card, parts=tuple(_other(part, chosen) for part in card.parts)) for card in place.cards)
    return replace(place, cards=cards)


def _other(part: Part, chosen: Filter) -> Part:
    kept = tuple(owner for owner in part.owners if chosen.takes(owner))
    return part if kept == part.owners else replace(part, owners=kept or (OTHER,))


def _is_chosen(part: Part) -> bool:
    return part.owners != (OTHER,)


def _grouped(rows: Iterable[_Row]) -> tuple[Place, ...]:
    groups: dict[object, list[Place]] = {}
    for row in sorted(rows, key=lambda row: row.order):
        groups.setdefault(row.look, []).append(row.place)
    return tuple(
        replace(group[0], names=tuple(place.names[0] for place in group)) if len(group) > 1 else group[0]
        for group in groups.values()
    )


def _in_order(cards: Sequence[Card]) -> tuple[Card, ...]:
    return tuple(sorted(cards, key=lambda card: natural_key(card.name)))


def natural_key(name: str) -> tuple[tuple[str, int], ...]:
    """`gpu-10` comes after `gpu-9`."""
    return tuple((text, int(number or 0)) for text, number in re.findall(r"(\D*)(\d*)", name))


def _totals(place: Place) -> Totals:
    tainted = sum(bool(card.taints) for card in place.cards)
    counts = sum((card.counts for card in place.cards), CardCounts())
    return Totals(int(place.is_node), len(place.cards), tainted, counts)
