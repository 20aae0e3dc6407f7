"""Refuse cordoned nodes.

Source: kube-scheduler 1.36's NodeUnschedulable plugin, as behaviour.
"""

from __future__ import annotations

from collections.abc import Sequence

from haru.engine.framework.cluster_event import ClusterEvent
from haru.engine.framework.interfaces import PASS, FilterRequest, NodeFilter, refuse
from haru.engine.state.pod_info import PodInfo
from haru.kube.meta import Obj, tolerates

_UNSCHEDULABLE_TAINT: Obj = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}


def node_unschedulable(pod: PodInfo) -> NodeFilter | None:
    """Refuse cordoned nodes, unless the pod tolerates the taint node.kubernetes.io/unschedulable."""
    if tolerates(pod.tolerations, _UNSCHEDULABLE_TAINT):
        return None
    failure = (refuse("NodeUnschedulable", "NodeUnschedulable", "node(s) were unschedulable"),)
    return lambda node: failure if node.spec.unschedulable else PASS


class NodeUnschedulable:
    """Refuse cordoned nodes."""

    name = "NodeUnschedulable"
    events = frozenset({ClusterEvent.NODE_ADD, ClusterEvent.NODE_TAINT, ClusterEvent.NODE_UNSCHEDULABLE})
    general = True

    def filters(self, request: FilterRequest) -> Sequence[NodeFilter | None]:
        """Make the filter; None if the pod tolerates cordons."""
        return (node_unschedulable(request.pod),)
