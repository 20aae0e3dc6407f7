"""Refuse and score nodes by their taints.

Source: kube-scheduler 1.36's TaintToleration plugin, as behaviour.
"""

from __future__ import annotations

from collections.abc import Sequence

from haru.engine.framework.cluster_event import ClusterEvent
from haru.engine.framework.interfaces import FilterRequest, NodeFilter, NodeScorer, Scorer
from haru.engine.framework.scores import normalised
from haru.engine.plugins.score_request import ScoreRequest
from haru.engine.plugins.tainttoleration.filter import taint_toleration
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
