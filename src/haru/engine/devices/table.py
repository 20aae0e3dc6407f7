"""The devices of a pool in order, shared by all pools that publish the same ones, with what follows from them alone.

Nodes of one model publish equal devices. What does not depend on the node or on what is taken is worked out once for
all of them: which device is where, and which devices an ask may have as far as the device itself decides.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any
from weakref import WeakValueDictionary

from haru.engine.cached import cached_property
from haru.engine.devices.model import Device, Shape


class Table:
    """Devices in the order in which they are tried. `columns`, `offers` and `cards` are caches of functions of them."""

    def __init__(self, devices: tuple[Device, ...]) -> None:
        self.devices = devices
        self.shape_of = [device.shape for device in devices]
        """The shape of each device."""
        self.shapes: Sequence[Shape] = list(dict.fromkeys(self.shape_of))
        """The different shapes."""
        bindings = {device.binding for device in devices}
        self.conditional = any(binding is not None and binding.conditions for binding in bindings)
        """Whether some device has binding conditions."""
        self.consuming = any(device.consumes for device in devices)
        """Whether some device consumes counters."""
        self.placed = any(device.placement is not None for device in devices)
        """Whether some device says for itself where it can be used."""
        faulty = any(shape.faulty for shape in self.shapes)
        sorts = {(shape.driver, shape.shareable) for shape in self.shapes}
        self.uniform = not faulty and len(sorts) == 1
        """Whether the devices are of one sort: only plain attributes and capacities tell them apart."""
        taints = any(device.taints for device in devices)
        shared = any(shape.shareable or shape.policies for shape in self.shapes)
        self.plain = not (taints or shared or self.conditional or self.consuming or bindings - {None})
        """Whether there is nothing about the devices but attributes and capacities that are taken whole."""
        self.counters: dict[Hashable, Any] = {}
        self.columns: dict[Hashable, Any] = {}
        self.offers: dict[Hashable, Any] = {}
        self.cards: dict[Hashable, Any] = {}

    @cached_property
    def places(self) -> dict[str, int]:
        """Where each device is, by name."""
        return {device.name: index for index, device in enumerate(self.devices)}

    @cached_property
    def largest(self) -> dict[str, int]:
        """The largest capacity of each name, in billionths."""
        found: dict[str, int] = {}
        for name, capacity in [pair for shape in self.shapes for pair in shape.capacity]:
            found[name] = max(capacity.value, found.get(name, 0))
        return found


_tables: WeakValueDictionary[tuple[Device, ...], Table] = WeakValueDictionary()


def table_of(devices: tuple[Device, ...]) -> Table:
    """The one table of these devices."""
    found = _tables.get(devices)
    if found is None:
        found = _tables[devices] = Table(devices)
    return found
