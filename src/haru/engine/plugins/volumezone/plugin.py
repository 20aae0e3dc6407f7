"""Connect VolumeZone to the scheduling framework."""

from __future__ import annotations

from collections.abc import Sequence

from haru.engine.framework.cluster_event import ClusterEvent
from haru.engine.framework.interfaces import FilterRequest, NodeFilter
from haru.engine.plugins.volumezone.filter import volume_zone


class VolumeZone:
    """Refuse nodes outside of the volumes' zones."""

    name = "VolumeZone"
    events = frozenset({ClusterEvent.NODE_ADD, ClusterEvent.NODE_LABEL, ClusterEvent.VOLUME})
    general = False

    def filters(self, request: FilterRequest) -> Sequence[NodeFilter | None]:
        """Make the filter; None if no volume names a zone."""
        return (volume_zone(request.snapshot, request.pod),)
