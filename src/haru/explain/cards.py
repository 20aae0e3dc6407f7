"""Cards: the devices of a pool that exclude each other, as published.

Devices that draw on one counter set are one card with its partitions (KEP-4815); so are partitions that name one
parent. Every other device is a card of its own. How much of its card a partition is, is told by memory where both are
known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile

from haru.engine.dra import Device, Pool, PoolUse, Slice

_PRODUCT_NAMES = ("productName", "product", "model")
_PARENT = "parentUUID"
_MEMORY = "memory"
Counters = Mapping[tuple[str, str], int]


@dataclass(frozen=True, slots=True)
class Layout:
    """A card as published: its devices, and how much there is of each counter that they draw on."""

    name: str
    node: str
    product: str
    devices: tuple[Device, ...]
    totals: Counters
    taints: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PoolLayout:
    """The cards of a pool; `whole` is false while slices of its newest generation are missing."""

    pool: Pool
    cards: tuple[Layout, ...]
    whole: bool


class Layouts:
    """Layouts of pools, made once for each version of a pool."""

    def __init__(self) -> None:
        self._known: dict[str, PoolLayout] = {}

    def of(self, pools: Mapping[str, Pool]) -> Sequence[PoolLayout]:
        """The layouts of all pools, by name."""
        known: dict[str, PoolLayout] = {}
        for name in sorted(pools):
            before = self._known.get(name)
            known[name] = before if before is not None and before.pool is pools[name] else layout_of(pools[name])
        self._known = known
        return tuple(known.values())


def layout_of(pool: Pool) -> PoolLayout:
    """The cards that the newest generation of a pool publishes."""
    newest = max(item.generation for item in pool.slices)
    slices = [item for item in pool.slices if item.generation == newest]
    totals = {
        (counters.name, name): amount
        for s in slices
        for counters in s.counter_sets
        for name, amount in counters.counters
    }
    groups: dict[tuple[str, str], list[Device]] = {}
    for item in slices:
        for device in item.devices:
            groups.setdefault((_node_of(item, device), _card_of(device)), []).append(device)
    cards = [_layout(node, devices, totals) for (node, _), devices in groups.items()]
    return PoolLayout(pool, tuple(cards), len(slices) == slices[0].slice_count)


def _node_of(item: Slice, device: Device) -> str:
    """The one node that a device is on, or nothing."""
    placement = device.placement if device.placement is not None else item.placement
    return placement.node_name


def _card_of(device: Device) -> str:
    if device.consumes:
        return f"counters {device.consumes[0].counter_set}"
    parent = device.shape.attribute(f"{device.shape.driver}/{_PARENT}")
    return f"parent {parent.value}" if parent is not None else f"device {device.name}"


def _layout(node: str, devices: Sequence[Device], totals: Counters) -> Layout:
    amounts = [_amount(device, totals) for device in devices]
    largest = devices[amounts.index(max(amounts))]
    # Without counters the card itself is no device: there are only the partitions that it was divided into.
    whole = len(devices) == 1 or (bool(totals) and amounts.count(max(amounts)) == 1)
    name = largest.name if whole else _beginning([device.name for device in devices]) or largest.name
    taints = sorted({str(taint) for device in devices for taint in device.taints})
    sets = {entry.counter_set for entry in largest.consumes}
    own = {key: amount for key, amount in totals.items() if key[0] in sets}
    return Layout(name, node, _product(largest), tuple(devices), own, tuple(taints))


def _beginning(names: Sequence[str]) -> str:
    """What the names of partitions begin with: the card's name."""
    pairs = zip(min(names), max(names), strict=False)
    common = "".join(one for one, _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    return common.partition("-mig")[0].rstrip("-")


def _product(device: Device) -> str:
    for name in _PRODUCT_NAMES:
        attribute = device.shape.attribute(f"{device.shape.driver}/{name}")
        if attribute is not None and isinstance(attribute.value, str):
            return attribute.value
    return ""


def _amount(device: Device, totals: Counters) -> float:
    """How large a device is, to be compared with others of its card."""
    ratios = {
        n: v / totals[c.counter_set, n] for c in device.consumes for n, v in c.amounts if totals.get((c.counter_set, n))
    }
    if ratios:
        return ratios.get(_MEMORY, sum(ratios.values()) / len(ratios))
    memory = device.shape.amounts.get(_MEMORY)
    return float(memory.value) if memory is not None else 1.0


def share_consumed(device: Device, consumed: Mapping[str, int]) -> float:
    """How much of a device some capacity is, by the capacity of which it is most; the whole where nothing tells."""
    amounts = device.shape.amounts
    fractions = [value / amounts[n].value for n, value in consumed.items() if n in amounts and amounts[n].value]
    return max(fractions, default=1.0)


def share_of_card(layout: Layout, device: Device) -> float:
    """How much of its card a device is, from 0 to 1, to three digits."""
    if len(layout.devices) == 1:
        return 1.0
    amount = _amount(device, layout.totals)
    return round(amount if layout.totals else amount / sum(_amount(d, layout.totals) for d in layout.devices), 3)


def is_part(pool: Pool, device: Device) -> bool:
    """Whether a device of a pool is a part of its card."""
    if device.shape.attribute(f"{device.shape.driver}/{_PARENT}") is not None:
        return True
    own = (card for card in layout_of(pool).cards if any(other is device for other in card.devices))
    return any(share_of_card(card, device) < 1 for card in own)


def something_fits(layout: Layout, use: PoolUse, may_be: Callable[[Device], bool] = lambda device: True) -> bool:
    """Whether some device of the card, of those that may be, could still be given to somebody."""
    left = dict(layout.totals)
    for device in layout.devices:
        if device.name in use.devices or device.name in use.shares:
            for entry in device.consumes:
                for name, amount in entry.amounts:
                    left[entry.counter_set, name] = left.get((entry.counter_set, name), 0) - amount
    return any(
        device.shape.shareable
        if device.name in use.shares
        else device.name not in use.devices
        and all(left.get((entry.counter_set, n), 0) >= v for entry in device.consumes for n, v in entry.amounts)
        for device in layout.devices
        if may_be(device)
    )
