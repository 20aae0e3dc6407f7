"""Refuse pods with unbound volume claims, and nodes that the pods' volumes cannot serve.

Source: kube-scheduler's VolumeBinding plugin and the validation of its arguments, as behaviour.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from haru.engine.framework.arguments import Arguments
from haru.engine.framework.cluster_event import ClusterEvent
from haru.engine.framework.interfaces import PASS, FilterFailure, FilterRequest, NodeFilter, PreFilterResult, refuse
from haru.engine.framework.profile import Profile
from haru.engine.plugins.volumebinding.late_binding import PLUGIN
from haru.engine.state.cache import Snapshot
from haru.engine.state.node_info import NodeInfo
from haru.engine.state.pod_info import PodInfo
from haru.kube.errors import invalid
from haru.kube.meta import Obj, controller_of
from haru.kube.selectors import node_selector_matches
from haru.kube.volume_binding import class_of, is_fully_bound, waits_for_consumer


def volume_rejection(snapshot: Snapshot, pod: PodInfo) -> FilterFailure | None:
    """Return why the pod's volume claims keep it off every node; None if they do not."""
    for name in pod.volume_claims:
        failure = _claim_rejection(snapshot, pod, name)
        if failure is not None:
            return failure
    claims, classes = snapshot.objects("PersistentVolumeClaim"), snapshot.objects("StorageClass")
    for name in pod.volume_claims:
        path = f"{pod.key.namespace}/{name}"
        claim = claims[path]
        late = waits_for_consumer(classes.get(class_of(claim))) and not (claim.get("spec") or {}).get("volumeName")
        if not late and not _is_bound(snapshot, claim):
            data = {"persistentVolumeClaim": path}
            return refuse(PLUGIN, "VolumeUnbound", "pod has unbound immediate PersistentVolumeClaims", data)
    return None


def _is_bound(snapshot: Snapshot, claim: Obj) -> bool:
    """Whether a claim is bound, to a volume that no other claim has."""
    volume = snapshot.objects("PersistentVolume").get((claim.get("spec") or {}).get("volumeName") or "")
    return is_fully_bound(claim) and not _is_anothers(volume, claim)


def _claim_rejection(snapshot: Snapshot, pod: PodInfo, name: str) -> FilterFailure | None:
    path = f"{pod.key.namespace}/{name}"
    claim = snapshot.objects("PersistentVolumeClaim").get(path)
    data = {"persistentVolumeClaim": path}
    generated = name in pod.ephemeral_claims
    if claim is None:
        waited = f'waiting for ephemeral volume controller to create the persistentvolumeclaim "{name}"'
        message = waited if generated else f'persistentvolumeclaim "{name}" not found'
        return refuse(PLUGIN, "VolumeMissing", message, data)
    if (claim.get("status") or {}).get("phase") == "Lost":
        volume_name = (claim.get("spec") or {}).get("volumeName") or ""
        message = f'persistentvolumeclaim "{name}" bound to non-existent persistentvolume "{volume_name}"'
        return refuse(PLUGIN, "VolumeMissing", message, data)
    if claim["metadata"].get("deletionTimestamp"):
        return refuse(PLUGIN, "VolumeMissing", f'persistentvolumeclaim "{name}" is being deleted', data)
    if generated and (controller_of(claim) or {}).get("uid") != pod.key.uid:
        message = f"PVC {path} was not created for pod {pod.key.path} (pod is not owner)"
        return refuse(PLUGIN, "VolumeMissing", message, data)
    return None


def _is_anothers(volume: Obj | None, claim: Obj) -> bool:
    """Whether a volume belongs to another claim than the one that asks for it by name."""
    owner = ((volume or {}).get("spec") or {}).get("claimRef")
    if not owner:
        return False
    meta = claim["metadata"]
    same = (owner.get("namespace"), owner.get("name")) == (meta.get("namespace") or "default", meta["name"])
    return not same or bool(owner.get("uid") and meta.get("uid") and owner["uid"] != meta["uid"])


def bound_volumes(snapshot: Snapshot, pod: PodInfo, *, ephemeral: bool = True) -> list[tuple[str, Obj | None]]:
    """The names of the volumes that the pod's claims are bound to, ephemeral ones or not, and the volumes."""
    claims, volumes = snapshot.objects("PersistentVolumeClaim"), snapshot.objects("PersistentVolume")
    names = [
        ((claims.get(f"{pod.key.namespace}/{name}") or {}).get("spec") or {}).get("volumeName")
        for name in pod.volume_claims
        if ephemeral or name not in pod.ephemeral_claims
    ]
    return [(name, volumes.get(name)) for name in names if name]


def volume_filter(request: FilterRequest) -> NodeFilter | None:
    """Refuse nodes that the pod's bound volumes cannot be reached from, or that have no volumes for its other claims.

    As in kube-scheduler a node may be refused for several of these reasons at once.
    """
    affinity, late = volume_affinity(request.snapshot, request.pod), request.late_binding
    if affinity is None or late is None:
        return affinity or late

    def check(node: NodeInfo) -> Sequence[FilterFailure]:
        bound, unbound = affinity(node), late(node)
        missing = bound and bound[0].reason.type == "VolumeMissing"
        return (*unbound, *bound) if missing else (*bound, *unbound)

    return check


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
                return (refuse(PLUGIN, "VolumeMissing", gone, data),)
            required = ((volume.get("spec") or {}).get("nodeAffinity") or {}).get("required")
            if required is not None and not node_selector_matches(required, node.name, node.labels):
                message = "node(s) didn't match PersistentVolume's node affinity"
                return (refuse(PLUGIN, "VolumeNodeAffinity", message, data),)
        return PASS

    return check


class VolumeBinding:
    """Refuse pods with unbound claims, and nodes that cannot serve their volumes."""

    name = "VolumeBinding"
    events = frozenset({ClusterEvent.NODE_ADD, ClusterEvent.NODE_LABEL, ClusterEvent.VOLUME, ClusterEvent.STORAGE})
    general = False

    def pre_filter(self, request: FilterRequest) -> PreFilterResult:
        """Reject a pod whose claims are missing, or not bound though nothing is to be waited for."""
        return PreFilterResult(volume_rejection(request.snapshot, request.pod))

    def filters(self, request: FilterRequest) -> Sequence[NodeFilter | None]:
        """Make the filter for the pod's volumes."""
        return (volume_filter(request) if request.pod.volume_claims else None,)

    def read_arguments(self, arguments: Arguments, profile: Profile) -> Profile:
        """Return the profile with the time that the binding of volumes may take."""
        seconds = arguments.integer("bindTimeoutSeconds", 600)
        if seconds is not None and seconds < 0:
            why = "invalid BindTimeoutSeconds, should not be a negative value"
            arguments.findings.append(invalid(arguments.at("bindTimeoutSeconds"), seconds, why))
        arguments.refuse("shape", "needs the feature gate StorageCapacityScoring, which is not there")
        return replace(profile, bind_timeout=600 if seconds is None else seconds)
