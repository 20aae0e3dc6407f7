"""Volumes as far as a scheduler must honour them: claims that are bound, where their volumes can be reached from.

Binding a volume late (WaitForFirstConsumer) is not done here, so a pod that needs it is refused in so many words
rather than placed where its volume may never come.
Source: kube-scheduler's VolumeBinding, VolumeZone and VolumeRestrictions plugins, as behaviour.
"""

from __future__ import annotations

from collections.abc import Sequence

from haru.engine.cluster import Snapshot
from haru.engine.decision import Obj
from haru.engine.nodeinfo import NodeInfo
from haru.engine.nodes.basic import PASS, NodeFilter
from haru.engine.nodes.failure import Failure, refuse
from haru.engine.pods import PodInfo
from haru.kube.selectors import node_selector_matches

_ZONE_LABELS = (
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
)
_ZONE_SEPARATOR = "__"


def volume_rejection(snapshot: Snapshot, pod: PodInfo) -> Failure | None:
    """What about the pod's volume claims keeps it off every node."""
    for name in pod.volume_claims:
        failure = _claim_rejection(snapshot, pod, name)
        if failure is not None:
            return failure
    return None


def _claim_rejection(snapshot: Snapshot, pod: PodInfo, name: str) -> Failure | None:
    path = f"{pod.key.namespace}/{name}"
    claim = snapshot.objects("PersistentVolumeClaim").get(path)
    data = {"persistentVolumeClaim": path}
    if claim is None:
        return refuse("VolumeBinding", "VolumeMissing", f'persistentvolumeclaim "{name}" not found', data)
    if claim["metadata"].get("deletionTimestamp"):
        return refuse("VolumeBinding", "VolumeMissing", f'persistentvolumeclaim "{name}" is being deleted', data)
    spec = claim.get("spec") or {}
    volume_name = spec.get("volumeName")
    if not volume_name:
        return _unbound(snapshot, spec, data)
    if volume_name not in snapshot.objects("PersistentVolume"):
        return refuse("VolumeBinding", "VolumeMissing", f'persistentvolume "{volume_name}" not found', data)
    if "ReadWriteOncePod" in (spec.get("accessModes") or ()) and _in_use(snapshot, pod, name):
        message = "node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod access mode"
        return refuse("VolumeRestrictions", "VolumeInUse", message, data, resolvable=True)
    return None


def _unbound(snapshot: Snapshot, spec: Obj, data: Obj) -> Failure:
    storage_class = snapshot.objects("StorageClass").get(spec.get("storageClassName") or "") or {}
    if storage_class.get("volumeBindingMode") == "WaitForFirstConsumer":
        claim = data["persistentVolumeClaim"]
        message = f'persistentvolumeclaim "{claim}" must be bound before the pod is scheduled: late binding is not done'
        return refuse("VolumeBinding", "VolumeUnbound", message, data)
    return refuse("VolumeBinding", "VolumeUnbound", "pod has unbound immediate PersistentVolumeClaims", data)


def _in_use(snapshot: Snapshot, pod: PodInfo, claim: str) -> bool:
    return any(
        claim in other.volume_claims
        for other in snapshot.pods.values()
        if other.key.namespace == pod.key.namespace
        and other.key.path != pod.key.path
        and other.node
        and not other.terminal
    )


def volume_filter(snapshot: Snapshot, pod: PodInfo) -> NodeFilter | None:
    """Nodes that the pod's bound volumes can be reached from."""
    volumes: list[Obj] = []
    for name in pod.volume_claims:
        claim = snapshot.objects("PersistentVolumeClaim").get(f"{pod.key.namespace}/{name}") or {}
        volume = snapshot.objects("PersistentVolume").get((claim.get("spec") or {}).get("volumeName") or "")
        if volume is not None:
            volumes.append(volume)
    if not volumes:
        return None

    def check(node: NodeInfo) -> Sequence[Failure]:
        for volume in volumes:
            failure = _unreachable(volume, node)
            if failure is not None:
                return (failure,)
        return PASS

    return check


def _unreachable(volume: Obj, node: NodeInfo) -> Failure | None:
    data = {"persistentVolume": volume["metadata"]["name"]}
    required = ((volume.get("spec") or {}).get("nodeAffinity") or {}).get("required")
    if required is not None and not node_selector_matches(required, node.name, node.labels):
        message = "node(s) didn't match PersistentVolume's node affinity"
        return refuse("VolumeBinding", "VolumeNodeAffinity", message, data)
    labels = volume["metadata"].get("labels") or {}
    for key in _ZONE_LABELS:
        if key in labels and node.labels.get(key) not in labels[key].split(_ZONE_SEPARATOR):
            return refuse("VolumeZone", "VolumeNodeAffinity", "node(s) had no available volume zone", data)
    return None
