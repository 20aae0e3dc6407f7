"""The devices of a pool in order, shared by all pools that publish the same ones, with what follows from them alone.

Nodes of one model publish equal devices. What does not depend on the node or on what is taken is worked out once for
all of them: which device is where, and which devices an ask may have as far as the device itself decides.
Tables that differ in nothing but identities (UUIDs, addresses, serial numbers) have one `TableSchema`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, MutableMapping, Sequence
from operator import attrgetter
from weakref import WeakValueDictionary

from haru.engine.dra.model.model import Device, PlainDevices, Shape
from haru.engine.equivalence.decision_cache import DecisionCache, cached_property


class TableSchema:
    """Tables of plain devices, by what all devices of one agree on. `varying` names what tells devices apart."""

    __slots__ = ("__weakref__", "count", "driver", "varying")

    def __init__(self, driver: str, count: int, varying: frozenset[str]) -> None:
        self.driver = driver
        self.count = count
        self.varying = varying


def table_schema_of(shapes: Sequence[Shape], known: MutableMapping[Hashable, TableSchema]) -> TableSchema | None:
    """Return the one schema of devices with these shapes; None if more than values of attributes tells them apart.

    Only for tables that are `plain` and `uniform`: attributes and capacities are all that there is about such devices.
    """
    first, count = shapes[0], len(shapes)
    rows = [shape.attributes for shape in shapes]
    if len(set(map(len, rows))) > 1 or [shape.capacity for shape in shapes].count(first.capacity) != count:
        return None
    same: list[Hashable] = []
    varying: list[str] = []
    for column in zip(*rows, strict=True):
        pair = column[0]
        if pair == column[-1] and column.count(pair) == count:
            same.append(pair)
        elif [name for name, _ in column].count(pair[0]) == count:
            varying.append(pair[0])
        else:
            return None
    key = (first.driver, count, tuple(same), tuple(varying), first.capacity)
    found = known.get(key)
    if found is None:
        found = known[key] = TableSchema(first.driver, count, frozenset(varying))
    return found


_NAME, _SHAPE, _CONSUMES, _TAINTS, _BINDING, _PLACEMENT = map(
    attrgetter, ("name", "shape", "consumes", "taints", "binding", "placement")
)
_FAULTY, _POLICIES, _SORT = attrgetter("faulty"), attrgetter("policies"), attrgetter("driver", "shareable")


class DeviceTable:
    """Devices in the order in which they are tried. `cache` keeps results that depend on them alone."""

    # As it is with plain devices.
    conditional = consuming = placed = shareable = tainted = rationed = False
    uniform = plain = unconditional = True

    def __init__(self, devices: tuple[Device, ...], tables: DeviceTables) -> None:
        self.devices = devices
        self.tables = tables
        self.shape_of = list(map(_SHAPE, devices))
        """The shape of each device."""
        if type(devices) is not PlainDevices:
            self._look()
        self.cache = tables.cache.scope()

    def _look(self) -> None:
        """What there is about devices of which nothing is known."""
        devices = self.devices
        bindings = set(map(_BINDING, devices))
        self.conditional = any(binding is not None and binding.conditions for binding in bindings)
        """Whether some device has binding conditions."""
        self.consuming = any(map(_CONSUMES, devices))
        """Whether some device consumes counters."""
        self.placed = not set(map(_PLACEMENT, devices)) <= {None}
        """Whether some device says for itself where it can be used."""
        faulty = any(map(_FAULTY, self.shapes))
        sorts = set(map(_SORT, self.shapes))
        self.uniform = not faulty and len(sorts) == 1
        """Whether the devices are of one sort: only plain attributes and capacities tell them apart."""
        self.shareable = any(many for _, many in sorts)
        """Whether some device can be given out several times at once."""
        self.tainted = any(map(_TAINTS, devices))
        self.rationed = any(map(_POLICIES, self.shapes))
        """Whether some capacity has a policy for how much of it is given out."""
        self.unconditional = not (self.tainted or self.rationed or self.conditional)
        """Whether every device may be had by whoever wants no capacity, as far as the device decides."""
        self.plain = self.unconditional and not (self.shareable or self.consuming or bindings - {None})
        """Whether there is nothing about the devices but attributes and capacities that are taken whole."""

    def reading(self, attributes: Iterable[str], capacity: bool) -> Hashable:
        """What the devices have under some names, and their capacities, if those are asked for.

        Only for devices of one sort (`uniform`): tables with equal readings are the same, device by device, to whoever
        reads no more. Where all devices agree it has one entry for all of them.
        """
        shapes = self.shape_of
        count, first = len(shapes), shapes[0]
        found: list[Hashable] = [count, first.driver, first.shareable]
        held = [shape.by_name for shape in shapes]
        for name in attributes:
            column = [own.get(name) for own in held]
            found.append(column[0] if column.count(column[0]) == count else (name, *column))
        if capacity:
            amounts = [shape.capacity for shape in shapes]
            found.append(amounts[0] if amounts.count(amounts[0]) == count else (None, *amounts))
        return tuple(found)

    @cached_property
    def model(self) -> TableSchema | None:
        """What there is about the devices beside their identities; None where it is not that simple."""
        return self.tables.schema_of(self.shape_of) if self.plain and self.uniform and not self.placed else None

    def look_ahead(self) -> None:
        """Find out now what most tables are asked for."""
        if self.devices:
            _ = self.model

    @cached_property
    def shapes(self) -> Sequence[Shape]:
        """The different shapes."""
        return list(dict.fromkeys(self.shape_of))

    @cached_property
    def places(self) -> dict[str, int]:
        """Where each device is, by name. Nodes of one model have the same."""
        return self.tables.places_of(tuple(map(_NAME, self.devices)))

    @cached_property
    def largest(self) -> dict[str, int]:
        """The largest capacity of each name, in billionths."""
        found: dict[str, int] = {}
        for name, capacity in [pair for shape in self.shapes for pair in shape.capacity]:
            found[name] = max(capacity.value, found.get(name, 0))
        return found


_MAX_PLACES = 1024


class DeviceTables:
    """The tables of one inventory: pools with equal devices share one, for as long as one of them is in use.

    `cache` keeps results that depend on no device in particular (compiled selectors).
    """

    __slots__ = ("_schemas", "_tables", "cache")

    def __init__(self, cache: DecisionCache | None = None) -> None:
        self.cache = DecisionCache() if cache is None else cache
        self._tables: WeakValueDictionary[tuple[Device, ...], DeviceTable] = WeakValueDictionary()
        self._schemas: WeakValueDictionary[Hashable, TableSchema] = WeakValueDictionary()

    def of(self, devices: tuple[Device, ...]) -> DeviceTable:
        """Return the one table of these devices."""
        found = self._tables.get(devices)
        if found is None:
            found = self._tables[devices] = DeviceTable(devices, self)
        return found

    def schema_of(self, shapes: Sequence[Shape]) -> TableSchema | None:
        """Return the one schema of devices with these shapes (`table_schema_of`)."""
        return table_schema_of(shapes, self._schemas)

    def places_of(self, names: tuple[str, ...]) -> dict[str, int]:
        """Return the places of devices by name. Nodes of one model have the same."""
        compute = lambda: dict(zip(names, range(len(names)), strict=True))  # noqa: E731
        return self.cache.get_or_compute("places by name", names, compute, _MAX_PLACES)
