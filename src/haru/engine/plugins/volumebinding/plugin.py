"""Refuse pods with unbound volume claims, and nodes that cannot reach the bound volumes.

Volumes are not bound late (WaitForFirstConsumer): a pod that needs it is refused with a message that says so, rather
than placed where its volume may never come.
Source: kube-scheduler's VolumeBinding plugin and the validation of its arguments, as behaviour.
"""

from __future__ import annotations

from collections.abc import Sequence

from haru.engine.framework.arguments import Arguments
from haru.engine.framework.cluster_event import ClusterEvent
from haru.engine.framework.interfaces import PASS, FilterRequest, NodeFilter, PreFilterResult
from haru.engine.framework.profile import Profile
from haru.engine.framework.status import FilterFailure, refuse
from haru.engine.state.cache import Snapshot
from haru.engine.state.decision import Obj
from haru.engine.state.node_info import NodeInfo
from haru.engine.state.pod_info import PodInfo
from haru.kube.errors import invalid
from haru.kube.meta import controller_of
from haru.kube.selectors import node_selector_matches

_PLUGIN = "VolumeBinding"


def volume_rejection(snapshot: Snapshot, pod: PodInfo) -> FilterFailure | None:
    """Return why the pod's volume claims keep it off every node; None if they do not."""
    for name in pod.volume_claims:
        failure = _claim_rejection(snapshot, pod, name)
        if failure is not None:
            return failure
    return None


def _claim_rejection(snapshot: Snapshot, pod: PodInfo, name: str) -> FilterFailure | None:
    path = f"{pod.key.namespace}/{name}"
    claim = snapshot.objects("PersistentVolumeClaim").get(path)
    data = {"persistentVolumeClaim": path}
    generated = name in pod.ephemeral_claims
    if claim is None:
        waited = f'waiting for ephemeral volume controller to create the persistentvolumeclaim "{name}"'
        message = waited if generated else f'persistentvolumeclaim "{name}" not found'
        return refuse(_PLUGIN, "VolumeMissing", message, data)
    spec = claim.get("spec") or {}
    volume_name = spec.get("volumeName")
    if (claim.get("status") or {}).get("phase") == "Lost":
        message = f'persistentvolumeclaim "{name}" bound to non-existent persistentvolume "{volume_name or ""}"'
        return refuse(_PLUGIN, "VolumeMissing", message, data)
    if claim["metadata"].get("deletionTimestamp"):
        return refuse(_PLUGIN, "VolumeMissing", f'persistentvolumeclaim "{name}" is being deleted', data)
    if generated and (controller_of(claim) or {}).get("uid") != pod.key.uid:
        message = f"PVC {path} was not created for pod {pod.key.path} (pod is not owner)"
        return refuse(_PLUGIN, "VolumeMissing", message, data)
    if not volume_name or _is_anothers(snapshot.objects("PersistentVolume").get(volume_name), claim):
        return _unbound(snapshot, spec, data)
    return None


def _is_anothers(volume: Obj | None, claim: Obj) -> bool:
    """Whether a volume belongs to another claim than the one that asks for it by name."""
    owner = ((volume or {}).get("spec") or {}).get("claimRef")
    if not owner:
        return False
    meta = claim["metadata"]
    same = (owner.get("namespace"), owner.get("name")) == (meta.get("namespace") or "default", meta["name"])
    return not same or bool(owner.get("uid") and meta.get("uid") and owner["uid"] != meta["uid"])


def _unbound(snapshot: Snapshot, spec: Obj, data: Obj) -> FilterFailure:
    storage_class = snapshot.objects("StorageClass").get(spec.get("storageClassName") or "") or {}
    if storage_class.get("volumeBindingMode") == "WaitForFirstConsumer" and not spec.get("volumeName"):
        claim = data["persistentVolumeClaim"]
        message = f'persistentvolumeclaim "{claim}" must be bound before the pod is scheduled: late binding is not done'
        return refuse(_PLUGIN, "VolumeUnbound", message, data)
    return refuse(_PLUGIN, "VolumeUnbound", "pod has unbound immediate PersistentVolumeClaims", data)


def bound_volumes(snapshot: Snapshot, pod: PodInfo) -> list[tuple[str, Obj | None]]:
    """The names of the volumes that the pod's claims are bound to, and the volumes."""
    claims, volumes = snapshot.objects("PersistentVolumeClaim"), snapshot.objects("PersistentVolume")
    names = [
        ((claims.get(f"{pod.key.namespace}/{name}") or {}).get("spec") or {}).get("volumeName")
        for name in pod.volume_claims
    ]
    return [(name, volumes.get(name)) for name in names if name]


def volume_affinity(snapshot: Snapshot, pod: PodInfo) -> NodeFilter | None:
    """Refuse nodes that the pod's bound volumes cannot be reached from."""
    bound = bound_volumes(snapshot, pod)
    if not bound:
        return None
    gone = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"

    def check(node: NodeInfo) -> Sequence[FilterFailure]:
        for name, volume in bound:
            data = {"persistentVolume": name}
            if volume is None:
                return (refuse(_PLUGIN, "VolumeMissing", gone, data),)
            required = ((volume.get("spec") or {}).get("nodeAffinity") or {}).get("required")
            if required is not None and not node_selector_matches(required, node.name, node.labels):
                message = "node(s) didn't match PersistentVolume's node affinity"
                return (refuse(_PLUGIN, "VolumeNodeAffinity", message, data),)
        return PASS

    return check


class VolumeBinding:
    """Refuse pods with unbound claims, and nodes that bound volumes cannot be reached from."""

    name = "VolumeBinding"
    events = frozenset({ClusterEvent.NODE_ADD, ClusterEvent.NODE_LABEL, ClusterEvent.VOLUME})
    general = False

    def pre_filter(self, request: FilterRequest) -> PreFilterResult:
        """Reject a pod whose claims are missing or not bound."""
        return PreFilterResult(volume_rejection(request.snapshot, request.pod))

    def filters(self, request: FilterRequest) -> Sequence[NodeFilter | None]:
        """Make the filter for the node affinity of the volumes."""
        return (volume_affinity(request.snapshot, request.pod),)

    def read_arguments(self, arguments: Arguments, profile: Profile) -> Profile:
        """Check the timeout and change nothing: volumes are not bound late."""
        seconds = arguments.integer("bindTimeoutSeconds", 600)
        if seconds is not None and seconds < 0:
            why = "invalid BindTimeoutSeconds, should not be a negative value"
            arguments.findings.append(invalid(arguments.at("bindTimeoutSeconds"), seconds, why))
        arguments.refuse("shape", "needs the feature gate StorageCapacityScoring, which is not there")
        return profile
