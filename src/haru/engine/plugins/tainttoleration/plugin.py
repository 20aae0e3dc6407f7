"""Refuse and score nodes by their taints.

Source: kube-scheduler 1.36's TaintToleration plugin, as behaviour.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from haru.engine.framework.cluster_event import ClusterEvent
from haru.engine.framework.interfaces import (
    PASS,
    FilterFailure,
    FilterRequest,
    NodeFilter,
    NodeScorer,
    Scorer,
    normalised,
    refuse,
)
from haru.engine.plugins.helper.node_rules import untolerated_taint
from haru.engine.plugins.score_request import ScoreRequest
from haru.engine.state.node_info import NodeInfo
from haru.engine.state.pod_info import PodInfo
from haru.kube.meta import Obj, tolerates, toleration_matches
from haru.kube.names import parse_time
from haru.kube.node_taints import taint_text


def no_execute_taints(node: Mapping[str, Any]) -> list[Obj]:
    """The node's taints that drive pods away."""
    return [t for t in (node.get("spec") or {}).get("taints") or () if t.get("effect") == "NoExecute"]


def eviction_time(pod: Mapping[str, Any], taints: Sequence[Obj], now: datetime) -> datetime | None:
    """When the pod must go; None: it tolerates all the taints for ever."""
    due: list[datetime] = []
    tolerations = (pod.get("spec") or {}).get("tolerations") or ()
    for taint in taints:
        matching = [toleration for toleration in tolerations if toleration_matches(toleration, taint)]
        if not matching:
            return now
        seconds = [t["tolerationSeconds"] for t in matching if t.get("tolerationSeconds") is not None]
        if seconds:
            added = parse_time(taint["timeAdded"]) if taint.get("timeAdded") else now
            due.append(added + timedelta(seconds=max(0, min(seconds))))
    return min(due, default=None)


def taint_toleration(pod: PodInfo) -> NodeFilter:
    """Refuse nodes with a NoSchedule or NoExecute taint that the pod does not tolerate."""
    message = "node(s) had untolerated taint(s)"

    def check(node: NodeInfo) -> Sequence[FilterFailure]:
        taint = untolerated_taint(pod, node.taints) if node.taints else None
        if taint is None:
            return PASS
        named = {"taint": taint_text(taint)}
        return (refuse("TaintToleration", "NodeTaints", message, named),)

    return check


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
