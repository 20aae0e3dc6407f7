"""Connect ImageLocality to the scheduling framework."""

from __future__ import annotations

from haru.engine.framework.cluster_event import ClusterEvent
from haru.engine.framework.interfaces import Scorer
from haru.engine.plugins.imagelocality.score import ImageLocalityScore
from haru.engine.plugins.score_request import ScoreRequest


class ImageLocality:
    """Score nodes by the images that they have."""

    name = "ImageLocality"
    events: frozenset[ClusterEvent] = frozenset()

    def scorer(self, request: ScoreRequest) -> Scorer | None:
        """Make the scorer."""
        weight = request.profile.weight(self.name)
        return ImageLocalityScore(weight, request.pod, request.images) if weight else None
