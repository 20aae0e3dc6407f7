"""Score nodes by how far up their lists of alternatives the claims are served (KEP-4816).

Source: kube-scheduler's DynamicResources plugin, as behaviour.
"""

from __future__ import annotations

from collections.abc import Sequence

from haru.engine.framework.interfaces import NodeScorer
from haru.engine.framework.scores import normalised
from haru.engine.state.node_info import NodeInfo


class DynamicResourcesScore(NodeScorer):
    """DynamicResources: how far up their lists of alternatives the claims are served; the key is that number."""

    def __init__(self, weight: int) -> None:
        self.weight = weight

    def key(self, node: NodeInfo) -> int:
        """Nothing is seen of the node itself."""
        del node
        return 0

    def scores(self, keys: Sequence[int], sizes: Sequence[int]) -> list[int]:
        """Relative to the best."""
        del sizes
        return normalised(keys)
