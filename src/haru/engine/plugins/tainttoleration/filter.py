"""Refuse nodes with NoSchedule or NoExecute taints that the pod does not tolerate.

Source: kube-scheduler's TaintToleration plugin, as behaviour.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from haru.engine.framework.interfaces import PASS, NodeFilter
from haru.engine.framework.status import FilterFailure, refuse
from haru.engine.state.decision import Obj
from haru.engine.state.node_info import NodeInfo
from haru.engine.state.pod_info import PodInfo
from haru.kube.meta import tolerates, toleration_matches
from haru.kube.names import parse_time


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


_HARD_EFFECTS = ("NoSchedule", "NoExecute")


def untolerated_taint(pod: PodInfo, taints: Sequence[Obj]) -> Obj | None:
    """Return the first NoSchedule or NoExecute taint that the pod does not tolerate."""
    for taint in taints:
        if taint.get("effect") in _HARD_EFFECTS and not tolerates(pod.tolerations, taint):
            return taint
    return None


def taint_toleration(pod: PodInfo) -> NodeFilter:
    """Refuse nodes with a NoSchedule or NoExecute taint that the pod does not tolerate."""
    message = "node(s) had untolerated taint(s)"

    def check(node: NodeInfo) -> Sequence[FilterFailure]:
        taint = untolerated_taint(pod, node.taints) if node.taints else None
        if taint is None:
            return PASS
        named = {"taint": f"{taint['key']}={taint.get('value') or ''}:{taint['effect']}"}
        return (refuse("TaintToleration", "NodeTaints", message, named),)

    return check
