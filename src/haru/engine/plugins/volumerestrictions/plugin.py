"""Refuse nodes for volumes that may not be shared: ReadWriteOncePod claims and old in-tree disks.

Source: kube-scheduler's VolumeRestrictions plugin (KEP-2485), as behaviour.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from haru.engine.framework.cluster_event import ClusterEvent
from haru.engine.framework.interfaces import PASS, FilterFailure, FilterRequest, NodeFilter, refuse
from haru.engine.state.cache import Snapshot
from haru.engine.state.node_info import NodeInfo
from haru.engine.state.overlay import ChangeCursor, Overlay, present_nodes
from haru.engine.state.pod_info import PodInfo

_PLUGIN = "VolumeRestrictions"
_SINGLE = "ReadWriteOncePod"
_IN_USE = f"node(s) unavailable due to PersistentVolumeClaim with {_SINGLE} access mode already in-use by another pod"


def sole_claims(snapshot: Snapshot, pod: PodInfo) -> tuple[str, ...]:
    """The pod's volume claims that only one pod at a time may use."""
    claims = snapshot.objects("PersistentVolumeClaim")
    found = []
    for name in pod.volume_claims:
        spec = (claims.get(f"{pod.key.namespace}/{name}") or {}).get("spec") or {}
        if _SINGLE in (spec.get("accessModes") or ()):
            found.append(name)
    return tuple(found)


class SoleUse:
    """Whether any pod on any node uses one of the claims that a pod wants for itself."""

    def __init__(self, pod: PodInfo, claims: Iterable[str]) -> None:
        # Pods that ask alike share this: none of them is left out, one that is being placed is on no node.
        self._namespace = pod.key.namespace
        self._claims = frozenset(claims)
        self._follower = ChangeCursor()
        self._users: dict[str, int] = {}

    def catch_up(self, overlay: Overlay) -> bool:
        """Take in what has changed; whether all nodes may now answer differently."""
        changed = self._follower.catch_up(overlay)
        if changed is None:
            self._users = {}
        before = bool(self._users)
        for name, node in present_nodes(overlay, changed):
            users = sum(map(self._uses, node.pods.values())) if node is not None else 0
            if users:
                self._users[name] = users
            else:
                self._users.pop(name, None)
        return changed is None or before != bool(self._users)

    def check(self, node: NodeInfo) -> Sequence[FilterFailure]:
        """Why a node is refused: every node is while a claim is in use. Eviction may help, wherever its user is."""
        if not self._users:
            return PASS
        data = {"persistentVolumeClaims": sorted(self._claims)}
        return (refuse(_PLUGIN, "VolumeInUse", _IN_USE, data, resolvable=True),)

    def _uses(self, other: PodInfo) -> bool:
        return other.key.namespace == self._namespace and not self._claims.isdisjoint(other.volume_claims)


def disk_conflicts(pod: PodInfo) -> NodeFilter | None:
    """Refuse nodes on which another pod has one of the pod's in-tree disks."""
    wanted = pod.disks
    if not wanted:
        return None
    failure = (refuse(_PLUGIN, "DiskConflict", "node(s) had no available disk", resolvable=True),)

    def check(node: NodeInfo) -> Sequence[FilterFailure]:
        taken = [disk for other in node.pods.values() for disk in other.disks]
        return failure if any(_conflict(mine, theirs) for mine in wanted for theirs in taken) else PASS

    return check


def _conflict(mine: Mapping[str, Any], theirs: Mapping[str, Any]) -> bool:
    return any(_same_disk(kind, left, right) for kind, left, right in _pairs(mine, theirs))


def _pairs(mine: Mapping[str, Any], theirs: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    for kind in ("gcePersistentDisk", "awsElasticBlockStore", "iscsi", "rbd"):
        if mine.get(kind) and theirs.get(kind):
            yield kind, mine[kind], theirs[kind]


def _same_disk(kind: str, left: Mapping[str, Any], right: Mapping[str, Any]) -> bool:
    if kind == "awsElasticBlockStore":
        return bool(left.get("volumeID") == right.get("volumeID"))
    if left.get("readOnly") and right.get("readOnly"):
        return False
    if kind == "gcePersistentDisk":
        return bool(left.get("pdName") == right.get("pdName"))
    if kind == "iscsi":
        return bool(left.get("iqn") == right.get("iqn"))
    monitors = set(left.get("monitors") or ()) & set(right.get("monitors") or ())
    same = (left.get("pool") or "rbd") == (right.get("pool") or "rbd") and left.get("image") == right.get("image")
    return bool(monitors) and same


class VolumeRestrictions:
    """Refuse nodes where a volume may not be shared."""

    name = "VolumeRestrictions"
    events = frozenset({ClusterEvent.NODE_ADD, ClusterEvent.NODE_LABEL, ClusterEvent.POD_DELETE, ClusterEvent.VOLUME})
    general = False

    def filters(self, request: FilterRequest) -> Sequence[NodeFilter | None]:
        """Make the filters for in-tree disks and for ReadWriteOncePod claims."""
        return (disk_conflicts(request.pod), request.sole_use)
