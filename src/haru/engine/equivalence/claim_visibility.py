"""What claims can tell apart: nodes that look alike to them give one answer, though their devices differ in other ways.

Devices mostly have an identity of their own (UUID, bus address), so no two nodes of a real cluster have equal devices.
Hardly any claim asks for that. A `Sight` sees of a node only verdicts, the values that constraints compare, and what
the search goes by besides; position by position, so that one node's solution is the other's.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from haru.engine.dra.allocated_state import AllocatedState
from haru.engine.dra.allocator.constraints import attribute_values
from haru.engine.dra.model.claims import Claim
from haru.engine.dra.model.model import Device, Features
from haru.engine.dra.pools.pools import PoolView


class ClaimVisibility:
    """Looks at nodes through some claims; `sized` says that the sizes of devices count whatever the claims ask for."""

    def __init__(self, claims: Sequence[Claim], features: Features, *, sized: bool = False) -> None:
        asks = [ask for claim in claims for request in claim.requests for ask in request.asks]
        self._lists = features.ListTypeAttributes
        self._selections = list(dict.fromkeys(ask.selection for ask in asks))
        self._compared = sorted({c.attribute for claim in claims for c in claim.constraints})
        self._sized = sized or any(ask.wanted for ask in asks)

    def of(self, views: Sequence[PoolView], allocated: AllocatedState) -> Hashable | None:
        """Equal for nodes that solve the claims alike; None where that cannot be said."""
        parts: list[Hashable] = []
        for view in views:
            if view.status != "ok" or not view.confined:
                return None
            columns: list[Sequence[Hashable]] = [selection.column(view) for selection in self._selections]
            shapes = view.table.shape_of
            columns += [[attribute_values(s, name, self._lists) for s in shapes] for name in self._compared]
            if self._sized or not view.table.plain:
                columns.append([self._more(device) for device in view.devices])
            if view.totals:
                columns.append(view.charges)
            use = allocated.use(view.key)
            left = view.counters_left(use) if view.totals else ()
            parts.append((view.key.driver, tuple(map(tuple, columns)), left, *view.occupation(use)))
        return tuple(parts)

    def _more(self, device: Device) -> Hashable:
        shape = device.shape
        sized = self._sized or shape.shareable or shape.policies
        return (bool(device.consumes), device.taints, device.binding, shape.shareable, sized and shape.capacity)
