"""What is decided together: a pod's unit in the queue is its PodGroup, or itself."""

from __future__ import annotations

from haru.engine import Snapshot
from haru.engine.state import GroupKey
from haru.kube.meta import Obj, podgroup_of
from haru.scheduler.queue.scheduling_queue import QueuedUnit


def group_key(pod: Obj) -> GroupKey:
    """The pod's PodGroup."""
    return GroupKey(pod["metadata"].get("namespace", ""), podgroup_of(pod))


def group_object(snapshot: Snapshot, unit: QueuedUnit) -> Obj | None:
    """The PodGroup of a unit, if it is one and exists."""
    return snapshot.pod_group(GroupKey(unit.key[1], unit.key[2])) if unit.is_group else None


def unit_key(pod: Obj, *, groups: bool) -> tuple[str, str, str]:
    """The key of the pod's unit; `groups`: whether pods belong to PodGroups at all."""
    namespace, group = pod["metadata"].get("namespace", ""), podgroup_of(pod)
    if group and groups:
        return ("group", namespace, group)
    return ("pod", namespace, pod["metadata"]["name"])


def priority_of(pod: Obj) -> int:
    """The pod's priority."""
    return int((pod.get("spec") or {}).get("priority") or 0)
