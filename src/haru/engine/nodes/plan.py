"""All that an ordinary node must satisfy for one pod, in kube-scheduler's order: the first refusal of a node counts.

A plan is made once per pod shape and asked per node. Inter-pod rules depend on where every other pod is, so they are
rebuilt from the overlay whenever something was placed; everything else depends on the node alone.
Source: kube-scheduler 1.36's default profile, as behaviour.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from haru.engine.cluster import Snapshot
from haru.engine.nodeinfo import NodeInfo
from haru.engine.nodes import basic
from haru.engine.nodes.basic import PASS, NodeFilter
from haru.engine.nodes.failure import Failure
from haru.engine.nodes.volumes import volume_filter, volume_rejection
from haru.engine.pods import PodInfo


@dataclass(frozen=True, slots=True)
class NodePlan:
    """What holds for every node (`rejection`), and what is asked of each."""

    rejection: Failure | None
    filters: tuple[NodeFilter, ...]

    def check(self, node: NodeInfo) -> Sequence[Failure]:
        """Why the node is refused; empty if it is not."""
        return first_failure(self.filters, node)


def first_failure(filters: Sequence[NodeFilter], node: NodeInfo) -> Sequence[Failure]:
    """What the first filter that refuses the node says; empty if none does."""
    for check in filters:
        failures = check(node)
        if failures:
            return failures
    return PASS


def make_plan(snapshot: Snapshot, pod: PodInfo, backed: Collection[str] = ()) -> NodePlan:
    """What is asked of a node for this pod. `backed`: extended resources that need not be the node's own."""
    candidates = [
        basic.node_unschedulable(pod),
        basic.node_name(pod),
        basic.taint_toleration(pod),
        basic.node_affinity(pod),
        basic.node_ports(pod),
        basic.node_resources_fit(pod, backed),
        volume_filter(snapshot, pod),
    ]
    return NodePlan(volume_rejection(snapshot, pod), tuple(check for check in candidates if check is not None))
