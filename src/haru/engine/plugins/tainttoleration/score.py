"""Score nodes by the PreferNoSchedule taints that the pod does not tolerate.

Source: kube-scheduler's TaintToleration plugin, as behaviour.
"""

from __future__ import annotations

from collections.abc import Sequence

from haru.engine.framework.interfaces import NodeScorer
from haru.engine.framework.scores import normalised
from haru.engine.state.node_info import NodeInfo
from haru.engine.state.pod_info import PodInfo
from haru.kube.meta import tolerates


class TaintTolerationScore(NodeScorer):
    """TaintToleration: fewer PreferNoSchedule taints are better."""

    def __init__(self, weight: int, pod: PodInfo) -> None:
        self.weight = weight
        self._pod = pod

    def key(self, node: NodeInfo) -> int:
        """How many taints are not tolerated."""
        return raw_taints(self._pod, node) if node.taints else 0

    def scores(self, keys: Sequence[int], sizes: Sequence[int]) -> list[int]:
        """Relative to the most."""
        del sizes
        return normalised(keys, reverse=True)


def raw_taints(pod: PodInfo, node: NodeInfo) -> int:
    """How many PreferNoSchedule taints the pod does not tolerate."""
    return sum(
        1
        for taint in node.taints
        if taint.get("effect") == "PreferNoSchedule" and not tolerates(pod.tolerations, taint)
    )
