"""Name watch events as kube-scheduler's metrics do: `AssignedPodAdd`, `NodeUpdateNodeTaint`, `resource.k8s.io/…`.

Source: `ClusterEvent.Label` and the event handlers of kube-scheduler 1.36.
"""

from __future__ import annotations

from haru.engine.framework import ClusterEvent
from haru.kube.meta import Obj
from haru.scheduler.queue.queueing_hints import node_events

_GROUPS = {
    "CSINode": "storage.k8s.io",
    "CSIDriver": "storage.k8s.io",
    "CSIStorageCapacity": "storage.k8s.io",
    "VolumeAttachment": "storage.k8s.io",
    "StorageClass": "storage.k8s.io",
    "ResourceClaim": "resource.k8s.io",
    "ResourceSlice": "resource.k8s.io",
    "DeviceClass": "resource.k8s.io",
    "DeviceTaintRule": "resource.k8s.io",
    "PodGroup": "scheduling.k8s.io",
}
_NODE_UPDATES = {
    ClusterEvent.NODE_ALLOCATABLE: "NodeUpdateNodeAllocatable",
    ClusterEvent.NODE_LABEL: "NodeUpdateNodeLabel",
    ClusterEvent.NODE_TAINT: "NodeUpdateNodeTaint",
    ClusterEvent.NODE_UNSCHEDULABLE: "NodeUpdateNodeTaint",
    ClusterEvent.NODE_DECLARED_FEATURE: "NodeUpdateNodeDeclaredFeature",
}


def event_labels(kind: str, old: Obj | None, new: Obj | None) -> tuple[str, ...]:
    """Return the labels of one event; a node's update may have several."""
    if kind == "Pod":
        return (_pod_label(old, new),)
    if kind == "Node" and old is not None and new is not None:
        return tuple(dict.fromkeys(_NODE_UPDATES[event] for event in node_events(old, new))) or ("NodeUpdate",)
    group = _GROUPS.get(kind)
    return (f"{group}/{kind}{_action(old, new)}" if group else f"{kind}{_action(old, new)}",)


def _pod_label(old: Obj | None, new: Obj | None) -> str:
    if not _assigned(new or old):
        return f"UnschedulablePod{_action(old, new)}"
    came = new is not None and not _assigned(old)
    return "AssignedPodAdd" if came else f"AssignedPod{_action(old, new)}"


def _assigned(pod: Obj | None) -> bool:
    return bool(((pod or {}).get("spec") or {}).get("nodeName"))


def _action(old: Obj | None, new: Obj | None) -> str:
    if old is None:
        return "Add"
    return "Delete" if new is None else "Update"
