"""Connect VolumeRestrictions to the scheduling framework."""

from __future__ import annotations

from collections.abc import Sequence

from haru.engine.framework.cluster_event import ClusterEvent
from haru.engine.framework.interfaces import FilterRequest, NodeFilter
from haru.engine.plugins.volumerestrictions.filter import disk_conflicts


class VolumeRestrictions:
    """Refuse nodes where a volume may not be shared."""

    name = "VolumeRestrictions"
    events = frozenset({ClusterEvent.NODE_ADD, ClusterEvent.NODE_LABEL, ClusterEvent.POD_DELETE, ClusterEvent.VOLUME})
    general = False

    def filters(self, request: FilterRequest) -> Sequence[NodeFilter | None]:
        """Make the filters for in-tree disks and for ReadWriteOncePod claims."""
        return (disk_conflicts(request.pod), request.sole_use)
