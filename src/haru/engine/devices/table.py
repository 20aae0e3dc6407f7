"""The devices of a pool in order, shared by all pools that publish the same ones, with what follows from them alone.

Nodes of one model publish equal devices. What does not depend on the node or on what is taken is worked out once for
all of them: which device is where, and which devices an ask may have as far as the device itself decides.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from operator import attrgetter
from typing import Any
from weakref import WeakValueDictionary

from haru.engine.cached import cached_property
from haru.engine.devices.model import Device, Shape

_NAME, _SHAPE, _CONSUMES, _TAINTS, _BINDING, _PLACEMENT = map(
    attrgetter, ("name", "shape", "consumes", "taints", "binding", "placement")
)
_FAULTY, _POLICIES, _SORT = attrgetter("faulty"), attrgetter("policies"), attrgetter("driver", "shareable")


class Table:
    """Devices in the order in which they are tried. `columns`, `offers` and `cards` are caches of functions of them."""

    def __init__(self, devices: tuple[Device, ...]) -> None:
        self.devices = devices
        self.shape_of = list(map(_SHAPE, devices))
        """The shape of each device."""
        self.shapes: Sequence[Shape] = list(dict.fromkeys(self.shape_of))
        """The different shapes."""
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
        taints = any(map(_TAINTS, devices))
        shared = self.shareable or any(map(_POLICIES, self.shapes))
        self.plain = not (taints or shared or self.conditional or self.consuming or bindings - {None})
        """Whether there is nothing about the devices but attributes and capacities that are taken whole."""
        self.counters: dict[Hashable, Any] = {}
        self.columns: dict[Hashable, Any] = {}
        self.offers: dict[Hashable, Any] = {}
        self.cards: dict[Hashable, Any] = {}

    @cached_property
    def places(self) -> dict[str, int]:
        """Where each device is, by name."""
        return dict(zip(map(_NAME, self.devices), range(len(self.devices)), strict=True))

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
