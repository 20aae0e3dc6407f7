"""Connect GangScheduling to the scheduling framework."""

from __future__ import annotations

from haru.engine.framework.cluster_event import NODE_UPDATES, ClusterEvent


class GangScheduling:
    """Hold and reject pods of a PodGroup without a quorum.

    `haru.engine.podgroup` is the implementation.
    """

    name = "GangScheduling"
    events = frozenset(
        {
            *NODE_UPDATES,
            ClusterEvent.NODE_ADD,
            ClusterEvent.POD_SCALE,
            ClusterEvent.DEVICES,
            ClusterEvent.DEVICE_CLASS,
            ClusterEvent.NAMESPACE,
        }
    )
