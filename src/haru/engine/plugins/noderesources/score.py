"""Score nodes by their resources: NodeResourcesFit and NodeResourcesBalancedAllocation together.

Source: kube-scheduler 1.36's plugins of these names and their weights, as behaviour.
"""

from __future__ import annotations

from collections.abc import Sequence

from haru.engine.framework.interfaces import NodeScorer
from haru.engine.framework.profile import Profile
from haru.engine.plugins.noderesources.resource_scores import balance_score, fit_score
from haru.engine.state.node_info import NodeInfo
from haru.engine.state.pod_info import PodInfo


class NodeResourcesScore(NodeScorer):
    """NodeResourcesFit and NodeResourcesBalancedAllocation, weighted: they are compared without being normalised."""

    weight = 1

    def __init__(self, profile: Profile, pod: PodInfo) -> None:
        balance = balance_score(profile.balanced, pod)
        fit, even = profile.weight("NodeResourcesFit"), profile.weight("NodeResourcesBalancedAllocation")
        self._parts = [(fit, fit_score(profile.fit, pod))] if fit else []
        if even and balance is not None:
            self._parts.append((even, balance))

    def key(self, node: NodeInfo) -> int:
        """Both scores of the node, weighted and added."""
        total = 0
        for weight, score in self._parts:
            total += weight * score(node)
        return total

    def scores(self, keys: Sequence[int], sizes: Sequence[int]) -> list[int]:
        """The keys are the scores."""
        del sizes
        return list(keys)
