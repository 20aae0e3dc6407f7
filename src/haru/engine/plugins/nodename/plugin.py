"""Connect NodeName to the scheduling framework."""

from __future__ import annotations

from collections.abc import Sequence

from haru.engine.framework.cluster_event import ClusterEvent
from haru.engine.framework.interfaces import FilterRequest, NodeFilter
from haru.engine.plugins.nodename.filter import node_name


class NodeName:
    """Refuse nodes other than the one that the pod names."""

    name = "NodeName"
    events = frozenset({ClusterEvent.NODE_ADD})
    general = False

    def filters(self, request: FilterRequest) -> Sequence[NodeFilter | None]:
        """Make the filter; None if the pod names no node."""
        return (node_name(request.pod),)
