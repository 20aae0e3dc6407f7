"""Connect PodTopologySpread to the scheduling framework."""

from __future__ import annotations

from haru.engine.framework.cluster_event import ClusterEvent
from haru.engine.framework.interfaces import Scorer
from haru.engine.plugins.podtopologyspread.score import PodTopologySpreadScore
from haru.engine.plugins.score_request import ScoreRequest


class PodTopologySpread:
    """Refuse and score nodes by skew.

    The filter is `SpreadRules`, which follows placements and so is not made per request.
    """

    name = "PodTopologySpread"
    events = frozenset(
        {
            ClusterEvent.NODE_ADD,
            ClusterEvent.NODE_LABEL,
            ClusterEvent.NODE_TAINT,
            ClusterEvent.POD_ADD,
            ClusterEvent.POD_DELETE,
            ClusterEvent.POD_TERMINATING,
            ClusterEvent.SELECTOR,
        }
    )

    def scorer(self, request: ScoreRequest) -> Scorer | None:
        """Make the scorer; None if the pod has no ScheduleAnyway constraints."""
        if not request.soft:
            return None
        everywhere = request.profile.system_spread and not request.pod.spec.get("topologySpreadConstraints")
        weight = request.profile.weight(self.name)
        return PodTopologySpreadScore(weight, request.pod, request.soft, everywhere=everywhere)
