"""Connect TaintToleration to the scheduling framework."""

from __future__ import annotations

from collections.abc import Sequence

from haru.engine.framework.cluster_event import ClusterEvent
from haru.engine.framework.interfaces import FilterRequest, NodeFilter, Scorer
from haru.engine.plugins.score_request import ScoreRequest
from haru.engine.plugins.tainttoleration.filter import taint_toleration
from haru.engine.plugins.tainttoleration.score import TaintTolerationScore


class TaintToleration:
    """Refuse and score nodes by taints."""

    name = "TaintToleration"
    events = frozenset({ClusterEvent.NODE_ADD, ClusterEvent.NODE_TAINT, ClusterEvent.NODE_UNSCHEDULABLE})
    general = True

    def filters(self, request: FilterRequest) -> Sequence[NodeFilter | None]:
        """Make the filter for NoSchedule and NoExecute taints."""
        return (taint_toleration(request.pod),)

    def scorer(self, request: ScoreRequest) -> Scorer | None:
        """Make the scorer for PreferNoSchedule taints."""
        weight = request.profile.weight(self.name)
        return TaintTolerationScore(weight, request.pod) if weight else None
