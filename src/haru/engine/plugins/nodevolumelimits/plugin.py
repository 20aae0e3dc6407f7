"""Refuse nodes that can attach no more volumes of a CSI driver.

The limit counts volumes, not pods: two pods that use one volume on a node attach it once. Attached volumes that no
known pod uses count too.

Source: kube-scheduler 1.36's NodeVolumeLimits plugin, as behaviour.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from haru.engine.framework.cluster_event import ClusterEvent
from haru.engine.framework.interfaces import PASS, FilterFailure, FilterRequest, NodeFilter, refuse
from haru.engine.state.cache import Snapshot
from haru.engine.state.node_info import NodeInfo
from haru.engine.state.pod_info import PodInfo
from haru.kube.meta import Obj

_MESSAGE = "node(s) exceed max volume count"


class CsiVolume(NamedTuple):
    """A volume as its driver knows it."""

    driver: str
    handle: str


def volume_limits(snapshot: Snapshot, pod: PodInfo) -> NodeFilter | None:
    """Refuse nodes to which no more of the pod's volumes can be attached."""
    wanted = set(_volumes(snapshot, pod))
    if not wanted:
        return None
    attachments = _attached(snapshot)

    def check(node: NodeInfo) -> Sequence[FilterFailure]:
        limits = _limits(snapshot.objects("CSINode").get(node.name))
        if not limits:
            return PASS
        attached = {volume for other in node.pods.values() for volume in _volumes(snapshot, other)}
        attached |= attachments.get(node.name, set())
        for driver in sorted({volume.driver for volume in wanted - attached}):
            used = sum(volume.driver == driver for volume in attached)
            more = sum(volume.driver == driver for volume in wanted - attached)
            if driver in limits and used + more > limits[driver]:
                data = {"driver": driver, "attached": used, "wanted": more, "limit": limits[driver]}
                return (refuse("NodeVolumeLimits", "TooManyVolumes", _MESSAGE, data, resolvable=True),)
        return PASS

    return check


def _limits(csi_node: Obj | None) -> Mapping[str, int]:
    drivers = ((csi_node or {}).get("spec") or {}).get("drivers") or ()
    counts = {driver["name"]: (driver.get("allocatable") or {}).get("count") for driver in drivers}
    return {name: int(count) for name, count in counts.items() if count is not None}


def _volumes(snapshot: Snapshot, pod: PodInfo) -> Iterator[CsiVolume]:
    """The CSI volumes behind a pod's claims; a claim without a volume yet is one that is to come."""
    claims, volumes = snapshot.objects("PersistentVolumeClaim"), snapshot.objects("PersistentVolume")
    for name in pod.volume_claims:
        path = f"{pod.key.namespace}/{name}"
        claim = claims.get(path)
        if claim is None:
            continue
        volume = volumes.get((claim.get("spec") or {}).get("volumeName") or "")
        if volume is not None:
            csi = (volume.get("spec") or {}).get("csi")
            if csi:
                yield CsiVolume(csi.get("driver") or "", csi.get("volumeHandle") or "")
        else:
            class_name = (claim.get("spec") or {}).get("storageClassName") or ""
            storage_class = snapshot.objects("StorageClass").get(class_name)
            if storage_class is not None:
                yield CsiVolume(storage_class.get("provisioner") or "", f"claim {path}")


def _attached(snapshot: Snapshot) -> dict[str, set[CsiVolume]]:
    """By node: the volumes that are attached to it, or are about to be."""
    found: dict[str, set[CsiVolume]] = {}
    for attachment in snapshot.objects("VolumeAttachment").values():
        spec = attachment.get("spec") or {}
        name = (spec.get("source") or {}).get("persistentVolumeName") or ""
        csi = ((snapshot.objects("PersistentVolume").get(name) or {}).get("spec") or {}).get("csi")
        if csi and csi.get("driver") == spec.get("attacher"):
            volume = CsiVolume(csi["driver"], csi.get("volumeHandle") or "")
            found.setdefault(spec.get("nodeName") or "", set()).add(volume)
    return found


def attachments_of_pods(snapshot: Snapshot) -> list[Obj]:
    """Return the VolumeAttachments of volumes that a pod on the node uses: once no pod does, they go."""
    found, used = list[Obj](), dict[str, set[str]]()
    for attachment in snapshot.objects("VolumeAttachment").values():
        spec = attachment.get("spec") or {}
        node = spec.get("nodeName") or ""
        if node not in used:
            used[node] = set(_volume_names(snapshot, node))
        if (spec.get("source") or {}).get("persistentVolumeName") in used[node]:
            found.append(attachment)
    return found


def _volume_names(snapshot: Snapshot, node: str) -> Iterator[str]:
    """The PersistentVolumes that pods on a node use."""
    claims, info = snapshot.objects("PersistentVolumeClaim"), snapshot.nodes.get(node)
    for pod in info.pods.values() if info is not None else ():
        for name in pod.volume_claims:
            volume = ((claims.get(f"{pod.key.namespace}/{name}") or {}).get("spec") or {}).get("volumeName")
            if volume:
                yield volume


class NodeVolumeLimits:
    """Refuse nodes that can attach no more volumes."""

    name = "NodeVolumeLimits"
    events = frozenset({ClusterEvent.NODE_ADD, ClusterEvent.NODE_LABEL, ClusterEvent.POD_DELETE, ClusterEvent.VOLUME})
    general = False

    def filters(self, request: FilterRequest) -> Sequence[NodeFilter | None]:
        """Make the filter; None if the pod has no CSI volumes."""
        return (volume_limits(request.snapshot, request.pod),)
