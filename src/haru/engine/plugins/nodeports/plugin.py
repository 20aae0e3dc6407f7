"""Refuse nodes on which another pod has the pod's host ports.

Source: kube-scheduler 1.36's NodePorts plugin, as behaviour.
"""

from __future__ import annotations

from collections.abc import Sequence

from haru.engine.framework.cluster_event import ClusterEvent
from haru.engine.framework.interfaces import PASS, FilterFailure, FilterRequest, NodeFilter, refuse
from haru.engine.state.node_info import NodeInfo
from haru.engine.state.pod_info import PodInfo


def node_ports(pod: PodInfo) -> NodeFilter | None:
    """Refuse nodes on which a pod already has one of the host ports."""
    requested = pod.host_ports
    if not requested:
        return None
    message = "node(s) didn't have free ports for the requested pod ports"

    def check(node: NodeInfo) -> Sequence[FilterFailure]:
        taken = sorted({port.port for port in requested for used in node.host_ports if port.clashes(used)})
        return (refuse("NodePorts", "PortsTaken", message, {"ports": taken}, resolvable=True),) if taken else PASS

    return check


class NodePorts:
    """Refuse nodes whose host ports are taken."""

    name = "NodePorts"
    events = frozenset({ClusterEvent.NODE_ADD, ClusterEvent.POD_DELETE})
    general = True

    def filters(self, request: FilterRequest) -> Sequence[NodeFilter | None]:
        """Make the filter; None if the pod has no host ports."""
        return (node_ports(request.pod),)
