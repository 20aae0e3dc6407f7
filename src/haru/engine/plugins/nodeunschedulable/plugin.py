"""Connect NodeUnschedulable to the scheduling framework."""

from __future__ import annotations

from collections.abc import Sequence

from haru.engine.framework.cluster_event import ClusterEvent
from haru.engine.framework.interfaces import FilterRequest, NodeFilter
from haru.engine.plugins.nodeunschedulable.filter import node_unschedulable


class NodeUnschedulable:
    """Refuse cordoned nodes."""

    name = "NodeUnschedulable"
    events = frozenset({ClusterEvent.NODE_ADD, ClusterEvent.NODE_TAINT, ClusterEvent.NODE_UNSCHEDULABLE})
    general = True

    def filters(self, request: FilterRequest) -> Sequence[NodeFilter | None]:
        """Make the filter; None if the pod tolerates cordons."""
        return (node_unschedulable(request.pod),)
