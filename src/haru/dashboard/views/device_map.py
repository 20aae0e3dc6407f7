"""The map: every card of the cluster with its holders. Equal nodes share a row."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from haru.dashboard.views.cards import ONE_FREE, Card, Part, card_at
from haru.dashboard.views.workloads import EVERYTHING, OTHER, Filter, Owners, Workload, workload
from haru.engine import Snapshot
from haru.engine.state import NodeInfo
from haru.explain.card_counts import WHOLE, CardCounts, CardPartition
from haru.explain.cards import Layouts, PoolLayout
from haru.kube.meta import get_condition

_MOST_COUNTED = 64


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


@dataclass(frozen=True, slots=True)
class DeviceMap:
    """All places, and the holders with how many parts of cards they have."""

    places: tuple[Place, ...]
    totals: Totals
    holders: tuple[tuple[Workload, int], ...]


def device_map(snapshot: Snapshot, layouts: Layouts, chosen: Filter = EVERYTHING) -> DeviceMap:
    """Make the map of what a filter selects."""
    owners = Owners(snapshot)
    places = [_seen(place, chosen) for place in _places(snapshot, layouts, owners) if chosen.takes_node(place.names[0])]
    if chosen.chooses_work:
        places = [place for place in places if any(_is_chosen(part) for card in place.cards for part in card.parts)]
    held = Counter(
        owner
        for place in places
        for card in place.cards
        for part in card.parts
        for owner in part.owners
        if owner != OTHER
    )
    holders = sorted(held.items(), key=lambda item: (-item[1], item[0]))
    return DeviceMap(_grouped(places), _totals(places), tuple(holders))


def _places(snapshot: Snapshot, layouts: Layouts, owners: Owners) -> Iterator[Place]:
    cards: dict[str, list[Card]] = {}
    partition = CardPartition(snapshot)
    incomplete: set[str] = set()
    for pool in layouts.of(snapshot.devices.pools):
        elsewhere: list[Card] = []
        for node, card in _cards_of(snapshot, pool, owners, partition):
            (cards.setdefault(node, []) if node else elsewhere).append(card)
            if not pool.whole:
                incomplete.add(node)
        if elsewhere:
            state = "" if pool.whole else "its pool is being published"
            yield Place((f"pool {pool.pool.key}",), _in_order(elsewhere), state, is_node=False)
    for name, info in snapshot.nodes.items():
        own = _in_order([*cards.pop(name, ()), *_counted(info)])
        state = _state(info) or ("its pool is being published" if name in incomplete else "")
        yield Place((name,), own, state, info.spec.unschedulable, _taints(info))
    for name, left in cards.items():
        yield Place((name,), _in_order(left), "no such node")


def _cards_of(
    snapshot: Snapshot, pool: PoolLayout, owners: Owners, partition: CardPartition
) -> Iterator[tuple[str, Card]]:
    use = snapshot.allocated.use(pool.pool.key)
    for layout in pool.cards:
        yield layout.node, replace(card_at(layout, use, owners), counts=partition.counts(layout, pool))


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


def _grouped(places: Iterable[Place]) -> tuple[Place, ...]:
    groups: dict[object, list[Place]] = {}
    for place in sorted(places, key=lambda place: _natural(place.names[0])):
        groups.setdefault(place.look, []).append(place)
    return tuple(replace(group[0], names=tuple(place.names[0] for place in group)) for group in groups.values())


def _in_order(cards: Sequence[Card]) -> tuple[Card, ...]:
    return tuple(sorted(cards, key=lambda card: _natural(card.name)))


def _natural(name: str) -> tuple[tuple[str, int], ...]:
    """`gpu-10` comes after `gpu-9`."""
    return tuple((text, int(number or 0)) for text, number in re.findall(r"(\D*)(\d*)", name))


def _totals(places: Sequence[Place]) -> Totals:
    cards = [card for place in places for card in place.cards]
    return Totals(
        nodes=sum(place.is_node for place in places),
        cards=len(cards),
        tainted=sum(bool(card.taints) for card in cards),
        counts=sum((card.counts for card in cards), CardCounts()),
    )
