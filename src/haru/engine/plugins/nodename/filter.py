"""Refuse nodes other than the one that the pod names.

Source: kube-scheduler's NodeName plugin, as behaviour.
"""

from __future__ import annotations

from haru.engine.framework.interfaces import PASS, NodeFilter
from haru.engine.framework.status import refuse
from haru.engine.state.pod_info import PodInfo


def node_name(pod: PodInfo) -> NodeFilter | None:
    """Refuse all nodes but the one in the pod's `nodeName`."""
    wanted = pod.spec.get("nodeName")
    if not wanted:
        return None
    failure = (refuse("NodeName", "NodeNameMismatch", "node(s) didn't match the requested node name"),)
    return lambda node: PASS if node.name == wanted else failure
