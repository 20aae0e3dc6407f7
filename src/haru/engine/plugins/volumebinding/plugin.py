"""Connect VolumeBinding to the scheduling framework."""

from __future__ import annotations

from collections.abc import Sequence

from haru.engine.framework.cluster_event import ClusterEvent
from haru.engine.framework.interfaces import FilterRequest, NodeFilter, PreFilterResult
from haru.engine.plugins.volumebinding.filter import volume_affinity, volume_rejection


class VolumeBinding:
    """Refuse pods with unbound claims, and nodes that bound volumes cannot be reached from."""

    name = "VolumeBinding"
    events = frozenset({ClusterEvent.NODE_ADD, ClusterEvent.NODE_LABEL, ClusterEvent.VOLUME})
    general = False

    def pre_filter(self, request: FilterRequest) -> PreFilterResult:
        """Reject a pod whose claims are missing or not bound."""
        return PreFilterResult(volume_rejection(request.snapshot, request.pod))

    def filters(self, request: FilterRequest) -> Sequence[NodeFilter | None]:
        """Make the filter for the node affinity of the volumes."""
        return (volume_affinity(request.snapshot, request.pod),)
