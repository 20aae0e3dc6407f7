"""Refuse nodes with NoSchedule or NoExecute taints that the pod does not tolerate.

Source: kube-scheduler's TaintToleration plugin, as behaviour.
"""

from __future__ import annotations

from collections.abc import Sequence

from haru.engine.framework.interfaces import PASS, NodeFilter
from haru.engine.framework.status import FilterFailure, refuse
from haru.engine.state.decision import Obj
from haru.engine.state.node_info import NodeInfo
from haru.engine.state.pod_info import PodInfo
from haru.kube.meta import tolerates

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
