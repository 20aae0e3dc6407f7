"""Refuse nodes other than the one that the pod names.

Source: kube-scheduler 1.36's NodeName plugin, as behaviour.
"""

from __future__ import annotations

from collections.abc import Sequence

from haru.engine.framework.cluster_event import ClusterEvent
from haru.engine.framework.interfaces import PASS, FilterRequest, NodeFilter, refuse
from haru.engine.state.pod_info import PodInfo


def node_name(pod: PodInfo) -> NodeFilter | None:
    """Refuse all nodes but the one in the pod's `nodeName`."""
    requested = pod.spec.get("nodeName")
    if not requested:
        return None
    failure = (refuse("NodeName", "NodeNameMismatch", "node(s) didn't match the requested node name"),)
    return lambda node: PASS if node.name == requested else failure


class NodeName:
    """Refuse nodes other than the one that the pod names."""

    name = "NodeName"
    events = frozenset({ClusterEvent.NODE_ADD})
    general = False

    def filters(self, request: FilterRequest) -> Sequence[NodeFilter | None]:
        """Make the filter; None if the pod names no node."""
        return (node_name(request.pod),)
