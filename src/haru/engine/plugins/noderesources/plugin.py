"""Connect NodeResourcesFit to the scheduling framework."""

from __future__ import annotations

from collections.abc import Sequence

from haru.engine.framework.cluster_event import ClusterEvent
from haru.engine.framework.interfaces import FilterRequest, NodeFilter, Scorer
from haru.engine.plugins.noderesources.filter import node_resources_fit
from haru.engine.plugins.noderesources.score import NodeResourcesScore
from haru.engine.plugins.score_request import ScoreRequest


class NodeResourcesFit:
    """Refuse and score nodes by resources.

    The scorer serves NodeResourcesBalancedAllocation too: neither score is normalised, so one key has both.
    """

    name = "NodeResourcesFit"
    events = frozenset(
        {
            ClusterEvent.NODE_ADD,
            ClusterEvent.NODE_ALLOCATABLE,
            ClusterEvent.POD_DELETE,
            ClusterEvent.POD_SCALE,
            ClusterEvent.DEVICE_CLASS,
        }
    )
    general = True

    def filters(self, request: FilterRequest) -> Sequence[NodeFilter | None]:
        """Make the filter for the pod's requests."""
        return (node_resources_fit(request.pod, request.backed, request.profile),)

    def scorer(self, request: ScoreRequest) -> Scorer | None:
        """Make the scorer of both plugins, with their weights in the keys."""
        return NodeResourcesScore(request.profile, request.pod)
