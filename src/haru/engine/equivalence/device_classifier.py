"""Classes of the devices of one node that claims, constraints and counters cannot tell apart.

How many members fit depends on how many devices of each class are free, not on which.
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
from haru.engine.equivalence.node_device_classes import NodeDeviceClass, SelectorFootprint
from haru.engine.preemption.node_occupancy import NodeOccupancy
from haru.engine.state.cache import Snapshot

_TOPIC = "device classifiers"
_MAX_SCHEMAS = 4096


class DeviceClasses(NamedTuple):
    """The devices of a node by class: `masks` have a bit for each device.

    `kind` is equal for nodes with as many of each. `wanted`: the devices that members may have. `shared`: some device
    can be allocated several times.
    """

    kind: int
    masks: tuple[int, ...]
    wanted: int
    shared: bool


class DeviceClassifier:
    """Classify devices as claims with these selectors and constraints see them. `lists`: attributes may be lists."""

    def __init__(self, selections: Sequence[Selection], compared: Sequence[str], lists: bool) -> None:
        self._selections = selections
        self._compared = compared
        self._lists = lists
        self._known: dict[str, tuple[tuple[PoolView, ...], object, DeviceClasses | None]] = {}
        self._kinds: dict[Hashable, int] = {}
        self._footprint = SelectorFootprint(selections, compared)
        self._by_schemas: dict[Hashable, DeviceClasses | None] = {}

    @staticmethod
    def of(base: Snapshot, claims: Sequence[Claim], *, lists: bool) -> DeviceClassifier:
        """Return the classifier for claims; those that select and compare the same share it."""
        selections = tuple(dict.fromkeys(_selections(claims)))
        compared = tuple(dict.fromkeys(c.attribute for claim in claims for c in claim.constraints))
        key = (selections, compared, lists)
        return base.decision_cache.get_or_compute(_TOPIC, key, lambda: DeviceClassifier(*key))

    def device_classes(self, occupancy: NodeOccupancy) -> DeviceClasses | None:
        """Return the node's devices by class; None if a selector fails on one of them."""
        info, node_device_class = occupancy.info, occupancy.node_device_class
        if node_device_class is not None:
            models = node_device_class.models
            if models in self._by_schemas:
                return self._by_schemas[models]
            if self.is_blind(node_device_class):
                if len(self._by_schemas) >= _MAX_SCHEMAS:
                    self._by_schemas.clear()
                found = self._by_schemas[models] = self._classify(occupancy)
                return found
        known = self._known.get(info.name)
        if known is None or known[0] != occupancy.views or known[1] is not info.labels:
            known = self._known[info.name] = occupancy.views, info.labels, self._classify(occupancy)
        return known[2]

    def known_classes(self, node_device_class: NodeDeviceClass) -> DeviceClasses | None:
        """Return the classes of all nodes of this class; None if they are not known, or not the same."""
        return self._by_schemas.get(node_device_class.models)

    def is_blind(self, node_device_class: NodeDeviceClass) -> bool:
        """Tell whether the claims cannot tell nodes of this class apart, device by device."""
        return self._footprint.is_blind(node_device_class)

    def _classify(self, occupancy: NodeOccupancy) -> DeviceClasses | None:
        """Classify the devices of one node."""
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
