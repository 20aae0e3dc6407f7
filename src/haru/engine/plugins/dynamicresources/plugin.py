"""Connect DynamicResources to the scheduling framework."""

from __future__ import annotations

from haru.engine.framework.cluster_event import ClusterEvent
from haru.engine.framework.interfaces import Scorer
from haru.engine.plugins.dynamicresources.score import DynamicResourcesScore
from haru.engine.plugins.score_request import ScoreRequest


class DynamicResources:
    """Refuse and score nodes by devices for claims.

    The filter is the allocator (`haru.engine.dra.allocator`), asked after all other filters.
    """

    name = "DynamicResources"
    events = frozenset(
        {
            ClusterEvent.NODE_ADD,
            ClusterEvent.NODE_ALLOCATABLE,
            ClusterEvent.NODE_LABEL,
            ClusterEvent.POD_DELETE,
            ClusterEvent.DEVICES,
            ClusterEvent.DEVICE_CLASS,
        }
    )

    def scorer(self, request: ScoreRequest) -> Scorer | None:
        """Make the scorer, also where the weight is 0: keys begin with its part."""
        return DynamicResourcesScore(request.profile.weight(self.name))
