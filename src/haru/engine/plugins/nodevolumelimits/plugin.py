"""Connect NodeVolumeLimits to the scheduling framework."""

from __future__ import annotations

from collections.abc import Sequence

from haru.engine.framework.cluster_event import ClusterEvent
from haru.engine.framework.interfaces import FilterRequest, NodeFilter
from haru.engine.plugins.nodevolumelimits.filter import volume_limits


class NodeVolumeLimits:
    """Refuse nodes that can attach no more volumes."""

    name = "NodeVolumeLimits"
    events = frozenset({ClusterEvent.NODE_ADD, ClusterEvent.NODE_LABEL, ClusterEvent.POD_DELETE, ClusterEvent.VOLUME})
    general = False

    def filters(self, request: FilterRequest) -> Sequence[NodeFilter | None]:
        """Make the filter; None if the pod has no CSI volumes."""
        return (volume_limits(request.snapshot, request.pod),)
