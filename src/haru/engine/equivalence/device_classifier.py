"""The devices of a node by sort: those of one sort are the same to some claims, to constraints and to counters.

How many members are served depends on how many devices of each sort are free, and not on which.
Source: our own.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import NamedTuple

from haru.engine.dra.model.claims import Claim
from haru.engine.dra.model.model import NodeView
from haru.engine.dra.placement import matches_node
from haru.engine.dra.pools.pools import PoolView
from haru.engine.dra.selectors.compiled_selectors import Selection, SelectionError
from haru.engine.equivalence.device_signature import compared_value
from haru.engine.equivalence.node_device_classes import SelectorFootprint
from haru.engine.preemption.node_occupancy import NodeOccupancy
from haru.engine.state.cache import Snapshot

_TOPIC = "sorts of devices"
_MOST_MODELS = 4096


class DeviceClasses(NamedTuple):
    """The devices of a node by sort: `masks` have a bit for each device.

    `kind` is equal for nodes with as many of each, `wanted` are those that members may have; `shared` says that some
    can be had more than once.
    """

    kind: int
    masks: tuple[int, ...]
    wanted: int
    shared: bool


class DeviceClassifier:
    """Sorts devices as claims of some form can tell them apart, and remembers it. `lists`: attributes may be lists."""

    def __init__(self, selections: Sequence[Selection], compared: Sequence[str], lists: bool) -> None:
        self._selections = selections
        self._compared = compared
        self._lists = lists
        self._known: dict[str, tuple[tuple[PoolView, ...], object, DeviceClasses | None]] = {}
        self._kinds: dict[Hashable, int] = {}
        self._regard = SelectorFootprint(selections, compared)
        self._by_models: dict[Hashable, DeviceClasses | None] = {}

    @staticmethod
    def of(base: Snapshot, claims: Sequence[Claim], *, lists: bool) -> DeviceClassifier:
        """The one for claims that select and compare the same."""
        selections = tuple(dict.fromkeys(_selections(claims)))
        compared = tuple(dict.fromkeys(c.attribute for claim in claims for c in claim.constraints))
        key = (selections, compared, lists)
        return base.decision_cache.get_or_compute(_TOPIC, key, lambda: DeviceClassifier(*key))

    def device_classes(self, occupancy: NodeOccupancy) -> DeviceClasses | None:
        """The node's devices by sort; None if a selector cannot be evaluated on one of them."""
        info, node_device_class = occupancy.info, occupancy.node_device_class
        if node_device_class is not None and self._regard.is_blind(node_device_class):
            if node_device_class.models not in self._by_models:
                if len(self._by_models) >= _MOST_MODELS:
                    self._by_models.clear()
                self._by_models[node_device_class.models] = self._sorted(occupancy)
            return self._by_models[node_device_class.models]
        known = self._known.get(info.name)
        if known is None or known[0] != occupancy.views or known[1] is not info.labels:
            known = self._known[info.name] = occupancy.views, info.labels, self._sorted(occupancy)
        return known[2]

    def _sorted(self, occupancy: NodeOccupancy) -> DeviceClasses | None:
        """Devices are of one sort if members, counters and constraints cannot tell them apart."""
        node = NodeView(occupancy.info.name, occupancy.info.labels)
        numbers: dict[Hashable, int] = {}
        masks: dict[Hashable, int] = {}
        bit, wanted, shared = 1, 0, False
        for place, view in enumerate(occupancy.views):
            columns = [selection.column(view) for selection in self._selections]
            for index, device in enumerate(view.devices):
                verdicts = tuple([column[index] for column in columns])
                if any(isinstance(verdict, SelectionError) for verdict in verdicts):
                    return None
                shape = device.shape
                compared: tuple[Hashable, ...] = ()
                if any(verdicts):
                    compared = tuple([compared_value(shape, n, self._lists, numbers) for n in self._compared])
                here = device.placement is None or matches_node(device.placement, node)
                charge = view.charges[index] if view.totals else ()
                inner = (shape.shareable, shape.capacity, device.taints, device.binding)
                sort = (place, view.key.driver, verdicts, compared, here, charge, inner, bool(device.consumes))
                masks[sort] = masks.get(sort, 0) | bit
                wanted |= bit if any(verdicts) else 0
                shared |= shape.shareable
                bit <<= 1
        content = tuple([(sort, mask.bit_count()) for sort, mask in masks.items()])
        key = (content, tuple([view.totals for view in occupancy.views]))
        return DeviceClasses(self._kinds.setdefault(key, len(self._kinds)), tuple(masks.values()), wanted, shared)


def _selections(claims: Sequence[Claim]) -> list[Selection]:
    return [ask.selection for claim in claims for request in claim.requests for ask in request.asks]
