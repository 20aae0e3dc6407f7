"""All that an ordinary node must satisfy for one pod, in kube-scheduler's order: the first refusal of a node counts.

A plan is made once per pod shape and asked per node. Rules between pods depend on where every other pod is, so they
follow the overlay (`spread`, `interpod`); everything else depends on the node alone.
Source: kube-scheduler 1.36's default profile, as behaviour.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from haru.engine.cluster import Snapshot
from haru.engine.nodeinfo import NodeInfo
from haru.engine.nodes import basic, disks, limits, volumes
from haru.engine.nodes.basic import PASS, NodeFilter
from haru.engine.nodes.failure import Failure
from haru.engine.pods import PodInfo
from haru.engine.profile import DEFAULT_PROFILE, Profile


@dataclass(frozen=True, slots=True)
class NodePlan:
    """What holds for every node (`rejection`), and what is asked of each.

    `general`: nodes of one lot (`Snapshot.lots`) answer alike.
    """

    rejection: Failure | None
    filters: tuple[NodeFilter, ...]
    general: bool = False

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


def make_plan(
    snapshot: Snapshot,
    pod: PodInfo,
    backed: Collection[str] = (),
    profile: Profile = DEFAULT_PROFILE,
    *,
    declared_features: bool = True,
    sole_use: NodeFilter | None = None,
) -> NodePlan:
    """What is asked of a node for this pod. `backed`: extended resources that need not be the node's own.

    `sole_use` says whether claims that the pod wants for itself are in use, which depends on all nodes.
    """
    on = profile.filters
    candidates: list[NodeFilter | None] = []
    particular: list[NodeFilter | None] = []
    rejection: Failure | None = None

    def look_closer(*filters: NodeFilter | None) -> None:
        """Filters that look at a node's name, labels or pods."""
        candidates.extend(filters)
        particular.extend(filters)

    if "NodeAffinity" in on:
        look_closer(basic.named_nodes(pod))
        rejection = basic.conflicting_names(pod)
    if "NodeUnschedulable" in on:
        candidates.append(basic.node_unschedulable(pod))
    if "NodeName" in on:
        look_closer(basic.node_name(pod))
    if "TaintToleration" in on:
        candidates.append(basic.taint_toleration(pod))
    if "NodeAffinity" in on:
        look_closer(basic.added_node_affinity(profile.added_affinity), basic.node_affinity(pod))
    if "NodeDeclaredFeatures" in on and declared_features:
        candidates.append(basic.declared_features(pod))
    if "NodePorts" in on:
        candidates.append(basic.node_ports(pod))
    if "NodeResourcesFit" in on:
        candidates.append(basic.node_resources_fit(pod, backed, profile))
    if "VolumeRestrictions" in on:
        look_closer(disks.disk_conflicts(pod), sole_use)
    if "NodeVolumeLimits" in on:
        look_closer(limits.volume_limits(snapshot, pod))
    if "VolumeBinding" in on:
        rejection = rejection or volumes.volume_rejection(snapshot, pod)
        look_closer(volumes.volume_affinity(snapshot, pod))
    if "VolumeZone" in on:
        look_closer(volumes.volume_zone(snapshot, pod))
    filters = tuple(check for check in candidates if check is not None)
    return NodePlan(rejection, filters, general=all(check is None for check in particular))
