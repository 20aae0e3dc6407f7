"""Refuse nodes outside of the zone or region of the pod's volumes, and pods whose volumes are gone.

Volumes of ephemeral claims are not looked at.
Source: kube-scheduler's VolumeZone plugin, as behaviour.
"""

from __future__ import annotations

from collections.abc import Sequence

from haru.engine.framework.cluster_event import ClusterEvent
from haru.engine.framework.interfaces import PASS, FilterFailure, FilterRequest, NodeFilter, PreFilterResult, refuse
from haru.engine.plugins.volumebinding.plugin import bound_volumes
from haru.engine.state.cache import Snapshot
from haru.engine.state.node_info import NodeInfo
from haru.engine.state.pod_info import PodInfo

_ZONE_LABELS = {
    "topology.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region": "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
}
"""From each label that says where a volume is to the label of today."""
_ZONE_SEPARATOR = "__"


def volume_zone(snapshot: Snapshot, pod: PodInfo) -> NodeFilter | None:
    """Refuse nodes outside of the zone or region in a volume's labels; a node without such labels passes."""
    wanted: list[tuple[str, str, frozenset[str]]] = []
    for name, volume in bound_volumes(snapshot, pod, ephemeral=False):
        labels = (volume or {"metadata": {}})["metadata"].get("labels") or {}
        for key in _ZONE_LABELS:
            if key in labels:
                wanted.append((name, key, frozenset(labels[key].split(_ZONE_SEPARATOR))))
    if not wanted:
        return None

    def check(node: NodeInfo) -> Sequence[FilterFailure]:
        if not any(key in node.labels for key in _ZONE_LABELS):
            return PASS
        for name, key, values in wanted:
            here = node.labels.get(key, node.labels.get(_ZONE_LABELS[key]))
            if here not in values:
                data = {"persistentVolume": name}
                message = "node(s) had no available volume zone"
                return (refuse("VolumeZone", "VolumeNodeAffinity", message, data),)
        return PASS

    return check


class VolumeZone:
    """Refuse nodes outside of the volumes' zones."""

    name = "VolumeZone"
    events = frozenset({ClusterEvent.NODE_ADD, ClusterEvent.NODE_LABEL, ClusterEvent.VOLUME})
    general = False

    def pre_filter(self, request: FilterRequest) -> PreFilterResult:
        """Reject a pod if a volume that one of its claims is bound to does not exist."""
        for name, volume in bound_volumes(request.snapshot, request.pod, ephemeral=False):
            if volume is None:
                message = f'persistentvolume "{name}" not found'
                failure = refuse("VolumeZone", "VolumeMissing", message, {"persistentVolume": name})
                return PreFilterResult(failure)
        return PreFilterResult()

    def filters(self, request: FilterRequest) -> Sequence[NodeFilter | None]:
        """Make the filter; None if no volume names a zone."""
        return (volume_zone(request.snapshot, request.pod),)
