"""Connect InterPodAffinity to the scheduling framework."""

from __future__ import annotations

from haru.engine.framework.cluster_event import ClusterEvent
from haru.engine.framework.interfaces import Scorer
from haru.engine.plugins.helper.topology_domains import HOSTNAME
from haru.engine.plugins.interpodaffinity.score import InterPodAffinityScore
from haru.engine.plugins.score_request import ScoreRequest


class InterPodAffinity:
    """Refuse and score nodes by the pods on them.

    The filter is `TopologyToAffinityTerms`, which follows placements and so is not made per request.
    """

    name = "InterPodAffinity"
    events = frozenset(
        {
            ClusterEvent.NODE_ADD,
            ClusterEvent.NODE_LABEL,
            ClusterEvent.POD_ADD,
            ClusterEvent.POD_DELETE,
            ClusterEvent.NAMESPACE,
        }
    )

    def scorer(self, request: ScoreRequest) -> Scorer | None:
        """Make the scorer; None if no inter-pod term concerns the pod."""
        weight = request.profile.weight(self.name)
        if request.affinity is None or not weight:
            return None
        return InterPodAffinityScore(weight, request.affinity, request.domains(HOSTNAME))
