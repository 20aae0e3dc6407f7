"""What of a node's devices can make a difference to some claims, as a value: nodes with equal ones answer alike.

Names of nodes, pools and devices do not matter, nor do attributes that no selector reads; values that constraints
compare are numbered, because only their equality counts.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence

from haru.engine import Features
from haru.engine.dra import AllocatedState, Claim, Device, NodeView, PoolView, Shape, names_read, usable_on, whole


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
