"""Connect HaruExpected to the scheduling framework."""

from __future__ import annotations

from haru.engine.framework.cluster_event import ClusterEvent
from haru.engine.framework.interfaces import Scorer
from haru.engine.plugins.haruexpected.score import PackingScore
from haru.engine.plugins.score_request import ScoreRequest


class HaruExpected:
    """Score nodes by what they can still take of an expected mix."""

    name = "HaruExpected"
    events: frozenset[ClusterEvent] = frozenset()

    def scorer(self, request: ScoreRequest) -> Scorer | None:
        """Make the scorer; None if the profile expects no mix."""
        profile = request.profile
        if profile.remaining is None or not profile.expected_weight:
            return None
        return PackingScore(profile.expected_weight, profile.remaining, request.pod, request.card_requests)
