"""Refuse nodes outside the partition of the scheduler. It cannot be switched off by a profile.

Source: our own.
"""

from __future__ import annotations

from collections.abc import Sequence

from haru.engine.framework.cluster_event import ClusterEvent
from haru.engine.framework.interfaces import PASS, FilterRequest, NodeFilter, refuse
from haru.engine.state.partition import Partition

NAME = "HaruPartition"


def partition_filter(partition: Partition) -> NodeFilter | None:
    """Refuse nodes outside; None if no node is."""
    if not partition.limits_nodes:
        return None
    message = "node(s) were outside this scheduler's partition"
    failure = (refuse(NAME, "OutsidePartition", message, {"partition": str(partition)}),)
    return lambda node: PASS if partition.has_node(node.labels, node.taints) else failure


class HaruPartition:
    """Refuse nodes outside the partition."""

    name = NAME
    events = frozenset(
        {ClusterEvent.NODE_ADD, ClusterEvent.NODE_LABEL, ClusterEvent.NODE_TAINT, ClusterEvent.DEVICE_CLASS}
    )
    general = False

    def filters(self, request: FilterRequest) -> Sequence[NodeFilter | None]:
        """Make the filter; None if every node is inside."""
        return (partition_filter(request.snapshot.partition),)
