"""Connect NodePorts to the scheduling framework."""

from __future__ import annotations

from collections.abc import Sequence

from haru.engine.framework.cluster_event import ClusterEvent
from haru.engine.framework.interfaces import FilterRequest, NodeFilter
from haru.engine.plugins.nodeports.filter import node_ports


class NodePorts:
    """Refuse nodes whose host ports are taken."""

    name = "NodePorts"
    events = frozenset({ClusterEvent.NODE_ADD, ClusterEvent.POD_DELETE})
    general = True

    def filters(self, request: FilterRequest) -> Sequence[NodeFilter | None]:
        """Make the filter; None if the pod has no host ports."""
        return (node_ports(request.pod),)
