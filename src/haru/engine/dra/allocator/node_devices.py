"""The devices that a node sees, by position: what an answer needs to be written down, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence

from haru.engine.dra.model.model import Device, DeviceId, Features, NodeView, Slice
from haru.engine.dra.pools.pools import PoolView


class NodeDevices:
    """Positions number the devices of the node's sound pools in the order in which they are tried."""

    def __init__(self, views: Sequence[PoolView], node: NodeView, features: Features) -> None:
        self.node = node
        self.features = features
        self.views = [v for v in views if v.status == "ok"]
        self.devices: list[Device] = []
        self.view_of: list[int] = []
        self.offsets: list[int] = []
        for number, view in enumerate(self.views):
            self.offsets.append(len(self.devices))
            self.devices += view.devices
            self.view_of += [number] * len(view.devices)

    def device_id(self, position: int) -> DeviceId:
        """The identity of the device at a position."""
        key = self.views[self.view_of[position]].key
        return DeviceId(key.driver, key.pool, self.devices[position].name)

    def slice_of(self, position: int) -> Slice:
        """The slice that publishes the device at a position."""
        number = self.view_of[position]
        return self.views[number].slices[position - self.offsets[number]]
