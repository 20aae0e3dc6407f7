"""Which change can help whom: cluster events, and the plugins whose rejections they may undo.

A unit that was rejected names the plugins that rejected it; an event names the plugins it may satisfy. Where the two
meet, the unit is tried again. A unit without known plugins (an internal error) is woken by every event. That nothing
is missing here is a property test: whatever changes, a pod that has become schedulable was woken by the change.
Source: kube-scheduler's queueing hints (KEP-4247), the table of the scheduling framework's EventsToRegister.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

Obj = dict[str, Any]

NODE_PLUGINS = frozenset(
    {
        "NodeUnschedulable",
        "NodeName",
        "TaintToleration",
        "NodeAffinity",
        "NodeDeclaredFeatures",
        "NodePorts",
        "NodeResourcesFit",
        "VolumeBinding",
        "VolumeRestrictions",
        "VolumeZone",
        "NodeVolumeLimits",
        "PodTopologySpread",
        "InterPodAffinity",
        "DynamicResources",
        "GangScheduling",
    }
)
POD_GONE = frozenset(
    {
        "NodeResourcesFit",
        "NodePorts",
        "InterPodAffinity",
        "PodTopologySpread",
        "NodeVolumeLimits",
        "VolumeRestrictions",
        "DynamicResources",
        "GangScheduling",
    }
)
POD_PLACED = frozenset({"InterPodAffinity", "PodTopologySpread"})
PREEMPTION = frozenset({"DefaultPreemption"})
# Who waits for victims to leave hears of that, but not of whoever comes.
ROOM = POD_GONE - POD_PLACED
QUORUM = frozenset({"GangScheduling"})
DEVICES = frozenset({"DynamicResources", "GangScheduling"})
# A class may stand behind an extended resource that nodes were found to lack.
CLASSES = DEVICES | {"NodeResourcesFit"}
# A claim that somebody else is to allocate first.
IN_FLIGHT = frozenset({"haru.dev/ClaimInFlight"})
# What is kept for the head of the queue stands in the way.
RESERVATION = frozenset({"haru.dev/Reservation"})
VOLUMES = frozenset({"VolumeBinding", "VolumeRestrictions", "VolumeZone", "NodeVolumeLimits"})
_SELECTING = ("Service", "ReplicationController", "ReplicaSet", "StatefulSet")
_VOLUME_KINDS = ("PersistentVolume", "PersistentVolumeClaim", "StorageClass", "CSINode", "VolumeAttachment")


def other_change(kind: str, old: Obj | None, new: Obj | None) -> frozenset[str]:
    """The plugins that a change of an object may satisfy that is none of a pod, a claim or a PodGroup."""
    if kind == "Node":
        return NODE_PLUGINS if new is None else node_change(old, new)
    if kind in ("ResourceSlice", "DeviceTaintRule"):
        return DEVICES
    if kind == "DeviceClass":
        return CLASSES
    if kind == "Namespace":
        return frozenset() if old and new and _labels(old) == _labels(new) else frozenset({"InterPodAffinity"}) | QUORUM
    if kind in _SELECTING:
        # The defaults of topology spread count the pods that they select.
        return frozenset() if _selector(old) == _selector(new) else frozenset({"PodTopologySpread"})
    return VOLUMES if kind in _VOLUME_KINDS else frozenset()


def node_change(old: Obj | None, new: Obj) -> frozenset[str]:
    """The plugins that a node's addition or update may satisfy; empty for a heartbeat that changes nothing of use."""
    if old is None:
        return NODE_PLUGINS
    helped: set[str] = set()
    old_spec, new_spec = old.get("spec") or {}, new.get("spec") or {}
    old_status, new_status = old.get("status") or {}, new.get("status") or {}
    if any(old_status.get(name) != new_status.get(name) for name in ("allocatable", "capacity")):
        helped |= {"NodeResourcesFit", "DynamicResources"}
    if old_status.get("declaredFeatures") != new_status.get("declaredFeatures"):
        helped |= {"NodeDeclaredFeatures"}
    if _labels(old) != _labels(new):
        helped |= {"NodeAffinity", "InterPodAffinity", "PodTopologySpread", "DynamicResources"} | VOLUMES
    if old_spec.get("taints") != new_spec.get("taints"):
        helped |= {"TaintToleration", "NodeUnschedulable", "PodTopologySpread"}
    if bool(old_spec.get("unschedulable")) != bool(new_spec.get("unschedulable")):
        helped |= {"NodeUnschedulable", "TaintToleration"}
    return frozenset(helped | {"GangScheduling"}) if helped else frozenset()


def pod_change(old: Obj | None, new: Obj | None) -> frozenset[str]:
    """The plugins that a pod's change may satisfy: it left its node or its promised place, came to one, or shrank."""
    # The last that is heard of a pod may be its end: then it had its place until now, whatever its phase says.
    living = new if _lives(new) else None
    helped: set[str] = set()
    if _room(old) and _room(old) != _room(living):
        helped |= POD_GONE
    if living is None:
        return frozenset(helped)
    # Promised places count among the rules between pods too, once they are taken.
    lived = old if _lives(old) else None
    if _node(living) and not _node(lived):
        helped |= PREEMPTION  # while it was being bound it was nobody's victim
    moved = (_node(lived), _room(lived)) != (_node(living), _room(living))
    if _room(living) and (moved or _labels(old) != _labels(living)):
        helped |= POD_PLACED
    if old is not None and _room(living) and _sizes(old) != _sizes(living):
        helped |= {"NodeResourcesFit", "GangScheduling"}
    if old is not None and living["metadata"].get("deletionTimestamp") and not old["metadata"].get("deletionTimestamp"):
        helped |= {"PodTopologySpread"}  # it is not counted any more
    return frozenset(helped)


def _node(pod: Obj | None) -> str:
    return str(((pod or {}).get("spec") or {}).get("nodeName") or "")


def _room(pod: Obj | None) -> str:
    """The node on which a pod takes room: its own, or the one that it is promised while it is wanted."""
    if pod is None or _node(pod):
        return _node(pod)
    wanted = not pod["metadata"].get("deletionTimestamp")
    return str((pod.get("status") or {}).get("nominatedNodeName") or "") if wanted else ""


def _lives(pod: Obj | None) -> bool:
    return pod is not None and (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed")


def _labels(obj: Obj | None) -> Mapping[str, str]:
    found: Mapping[str, str] = ((obj or {}).get("metadata") or {}).get("labels") or {}
    return found


def _selector(obj: Obj | None) -> Any:
    return ((obj or {}).get("spec") or {}).get("selector")


def _sizes(pod: Obj) -> list[Any]:
    """All that a pod's effective request is made of, what it was promised and has during a resize included."""
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    containers = [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]
    running = [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
    held = [(c.get("resources"), c.get("allocatedResources")) for c in (*running, status)]
    resizing = [c.get("reason") for c in status.get("conditions") or () if c.get("type") == "PodResizePending"]
    return [spec.get("resources"), spec.get("overhead"), [c.get("resources") for c in containers], held, resizing]


def claim_change(old: Obj | None, new: Obj | None) -> frozenset[str]:
    """The plugins that a claim's change may satisfy: it was freed, lost a consumer, was allocated for all its users.

    Who waits for a claim to appear is held until then, and is told by `Admission`.
    """
    if old is None:
        return frozenset()
    before, after = old.get("status") or {}, (new or {}).get("status") or {}
    if new is None:
        return DEVICES if before.get("allocation") else frozenset()
    gone = {entry.get("uid") for entry in before.get("reservedFor") or ()}
    gone -= {entry.get("uid") for entry in after.get("reservedFor") or ()}
    if not before.get("allocation") and after.get("allocation"):
        return IN_FLIGHT
    if gone or any(before.get(name) != after.get(name) for name in ("allocation", "devices")):
        return DEVICES
    return frozenset()


def wanted_by(pods: Iterable[Obj], *, spread: bool = False) -> frozenset[str]:
    """The plugins that matter to any member of a group, as far as their events do not wake every rejected group.

    Of a rejected group only the members without a place say why. What would give another place to those that had one,
    and so make room, has to wake it too. `spread`: pods without constraints are given hard ones.
    """
    wanted: set[str] = set()
    for pod in pods:
        spec = pod.get("spec") or {}
        terms = [(spec.get("affinity") or {}).get(kind) or {} for kind in ("podAffinity", "podAntiAffinity")]
        if any(term.get("requiredDuringSchedulingIgnoredDuringExecution") for term in terms):
            wanted.add("InterPodAffinity")
        constraints = spec.get("topologySpreadConstraints") or ()
        if any(c.get("whenUnsatisfiable") == "DoNotSchedule" for c in constraints) or (spread and not constraints):
            wanted.add("PodTopologySpread")
        if any(v.get("persistentVolumeClaim") or v.get("ephemeral") for v in spec.get("volumes") or ()):
            wanted |= VOLUMES
    return frozenset(wanted)


def scheduling_fields(pod: Obj) -> Mapping[str, Any]:
    """What of a waiting pod's own object can change its fate."""
    metadata = pod["metadata"]
    return {
        "labels": metadata.get("labels"),
        "annotations": metadata.get("annotations"),
        "owners": metadata.get("ownerReferences"),
        "spec": pod.get("spec"),
        "claims": (pod.get("status") or {}).get("resourceClaimStatuses"),
        "deleting": metadata.get("deletionTimestamp"),
    }
