"""Find the plugins whose rejections a change of the cluster may undo.

A unit that was rejected names the plugins that rejected it; each plugin lists the events that may undo its rejections
(`events` in haru.engine.plugins). Where the two meet, the unit is tried again. A unit without known plugins (an
internal error) is woken by every event. What concerns only those who name one volume claim stands under the claim's
path. That nothing is missing here is a property test: whatever changes, a pod that has become schedulable was woken by
the change.
Source: kube-scheduler's queueing hints (KEP-4247), the table of the scheduling framework's EventsToRegister.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from haru.engine.framework import ClusterEvent
from haru.engine.plugins import plugins_for
from haru.engine.podgroup import keeps_places
from haru.engine.preemption import has_nominations, has_promised_places, keeps_places_from_all
from haru.engine.state import ClusterView, GroupKey
from haru.kube.meta import Obj, podgroup_of
from haru.kube.quantity import parse_quantity
from haru.scheduler.queue.queue_keys import group_key

NODE_PLUGINS = plugins_for(ClusterEvent.NODE_ADD)
POD_GONE = plugins_for(ClusterEvent.POD_DELETE)
# Devices of a pod that was bound are free with its claims, and not before: they have events of their own.
PLACE_LOST = POD_GONE | plugins_for(ClusterEvent.POD_NOMINATION)
POD_PLACED = plugins_for(ClusterEvent.POD_ADD)
PREEMPTION = plugins_for(ClusterEvent.POD_BOUND)
QUORUM = frozenset({"GangScheduling"})
DEVICES = plugins_for(ClusterEvent.DEVICES)
# A class may stand behind an extended resource that nodes were found to lack.
CLASSES = plugins_for(ClusterEvent.DEVICE_CLASS)
# A claim that somebody else is to allocate first.
IN_FLIGHT = frozenset({"haru.dev/ClaimInFlight"})
# What is kept for the head of the queue stands in the way.
RESERVATION = frozenset({"haru.dev/Reservation"})
STORAGE = plugins_for(ClusterEvent.STORAGE)
VOLUMES = plugins_for(ClusterEvent.VOLUME)
_SELECTING = ("Service", "ReplicationController", "ReplicaSet", "StatefulSet")
_VOLUME_KINDS = ("PersistentVolume", "PersistentVolumeClaim", "CSINode", "VolumeAttachment")


def other_change(kind: str, old: Obj | None, new: Obj | None) -> frozenset[str]:
    """The plugins that a change of an object may satisfy that is none of a pod, a claim or a PodGroup."""
    if kind == "Node":
        return NODE_PLUGINS if new is None else node_change(old, new)
    if kind in ("ResourceSlice", "DeviceTaintRule"):
        return DEVICES
    if kind == "DeviceClass":
        return CLASSES
    if kind == "Namespace":
        return frozenset() if old and new and _labels(old) == _labels(new) else plugins_for(ClusterEvent.NAMESPACE)
    if kind in _SELECTING:
        # The defaults of topology spread count the pods that they select.
        return frozenset() if _selector(old) == _selector(new) else plugins_for(ClusterEvent.SELECTOR)
    if kind in ("StorageClass", "CSIDriver", "CSIStorageCapacity"):
        return storage_change(kind, old, new)
    claim = _volume_claim_of(kind, old, new)
    if claim:
        return frozenset({claim})
    return VOLUMES if kind in _VOLUME_KINDS else frozenset()


def storage_change(kind: str, old: Obj | None, new: Obj | None) -> frozenset[str]:
    """The plugins that a change of what provisions volumes may satisfy."""
    if kind == "StorageClass":
        fields = ("allowedTopologies", "provisioner", "volumeBindingMode")
        same = old is not None and new is not None and all(old.get(name) == new.get(name) for name in fields)
        return frozenset() if same else VOLUMES
    if kind == "CSIDriver":
        # Without it, or once it says so, its storage is not measured.
        checked = [((obj or {}).get("spec") or {}).get("storageCapacity") for obj in (old, new)]
        return STORAGE if checked[0] and not checked[1] else frozenset()
    before, after = _volume_limit(old), _volume_limit(new)
    return STORAGE if after is not None and (before is None or after > before) else frozenset()


def _volume_limit(capacity: Obj | None) -> int | None:
    """The size of the largest volume that can be made, in bytes."""
    limit = (capacity or {}).get("maximumVolumeSize") or (capacity or {}).get("capacity")
    return parse_quantity(limit).value() if limit is not None else None


def _volume_claim_of(kind: str, old: Obj | None, new: Obj | None) -> str:
    """The only volume claim whose pods a change may help; nothing if it may help others, too.

    A claim that no volume was bound to counts on no node, and a volume that has a claim is of use to no other one.
    """
    if new is None:
        return ""
    before, after = (old or {}).get("spec") or {}, new.get("spec") or {}
    if kind == "PersistentVolumeClaim" and before.get("volumeName") in (None, "", after.get("volumeName")):
        return _volume_claim(new["metadata"].get("namespace", ""), new["metadata"]["name"])
    reference = after.get("claimRef")
    if kind == "PersistentVolume" and reference and before.get("claimRef") in (None, reference):
        return _volume_claim(reference.get("namespace", ""), reference.get("name", ""))
    return ""


def _volume_claim(namespace: str, name: str) -> str:
    return f"persistentvolumeclaims/{namespace}/{name}"


def rejecting(plugins: Iterable[str], pods: Iterable[Obj]) -> frozenset[str]:
    """What pods wait for that these plugins have rejected: with volumes in it, changes of their own claims as well."""
    found = frozenset(plugins)
    if found.isdisjoint(VOLUMES):
        return found
    return found.union(name for pod in pods for name in _volume_claims(pod))


def _volume_claims(pod: Obj) -> Iterator[str]:
    namespace, own = pod["metadata"].get("namespace", ""), pod["metadata"]["name"]
    for volume in (pod.get("spec") or {}).get("volumes") or ():
        if source := volume.get("persistentVolumeClaim"):
            yield _volume_claim(namespace, source.get("claimName", ""))
        elif volume.get("ephemeral"):
            yield _volume_claim(namespace, f"{own}-{volume['name']}")


def node_change(old: Obj | None, new: Obj) -> frozenset[str]:
    """The plugins that a node's addition or update may satisfy; empty for a heartbeat that changes nothing of use."""
    if old is None:
        return NODE_PLUGINS
    return frozenset[str]().union(*map(plugins_for, node_events(old, new)))


def node_events(old: Obj, new: Obj) -> list[ClusterEvent]:
    """The parts of a node that an update changed, as far as decisions depend on them."""
    events: list[ClusterEvent] = []
    old_spec, new_spec = old.get("spec") or {}, new.get("spec") or {}
    old_status, new_status = old.get("status") or {}, new.get("status") or {}
    if any(old_status.get(name) != new_status.get(name) for name in ("allocatable", "capacity")):
        events.append(ClusterEvent.NODE_ALLOCATABLE)
    if old_status.get("declaredFeatures") != new_status.get("declaredFeatures"):
        events.append(ClusterEvent.NODE_DECLARED_FEATURE)
    if _labels(old) != _labels(new):
        events.append(ClusterEvent.NODE_LABEL)
    if old_spec.get("taints") != new_spec.get("taints"):
        events.append(ClusterEvent.NODE_TAINT)
    if bool(old_spec.get("unschedulable")) != bool(new_spec.get("unschedulable")):
        events.append(ClusterEvent.NODE_UNSCHEDULABLE)
    return events


def pod_change(old: Obj | None, new: Obj | None, now: ClusterView) -> frozenset[str]:
    """The plugins that a pod's change may satisfy: it left its node or its promised place, came to one, or shrank.

    `now` is the cluster with the change.
    """
    before = _room(old)
    if old is None and not _room(new):
        return frozenset()  # a pod that begins to wait
    # The last that is heard of a pod may be its end: then it had its place until now, whatever its phase says.
    living = new if _lives(new) else None
    helped = set(PLACE_LOST if _gives_places_up(old, living, now) else ())
    after = _room(living)
    if before and before != after:
        helped |= POD_GONE if _node(old) else PLACE_LOST
    if living is None:
        return frozenset(helped)
    # Promised places count among the rules between pods too, once they are taken.
    lived = old if _lives(old) else None
    if _node(living) and not _node(lived):
        helped |= PREEMPTION  # while it was being bound it was nobody's victim
    moved = (_node(lived), before if lived is old else "") != (_node(living), after)
    if after and (moved or _labels(old) != _labels(living)):
        helped |= POD_PLACED
    if old is not None and after and _may_be_resized(old, living) and _sizes(old) != _sizes(living):
        helped |= plugins_for(ClusterEvent.POD_SCALE)
    if old is not None and living["metadata"].get("deletionTimestamp") and not old["metadata"].get("deletionTimestamp"):
        helped |= plugins_for(ClusterEvent.POD_TERMINATING)  # it is not counted any more
    return frozenset(helped)


def _gives_places_up(old: Obj | None, living: Obj | None, now: ClusterView) -> bool:
    """Whether the change ends it that a half-placed gang keeps what its members were promised from everybody."""
    pod = living or old
    if pod is None or not has_nominations(now) or not podgroup_of(pod):
        return False
    lived = old if _lives(old) else None
    came, placed = bool(living) - bool(lived), bool(_node(living)) - bool(_node(lived))
    if not (came or placed):
        return False
    key = group_key(pod)
    state, group = now.group_state(key), now.pod_group(key)
    kept = keeps_places(group, state.count - came, state.scheduled_count - placed)
    return kept and not keeps_places_from_all(now, key) and has_promised_places(now, key)


def group_change(old: Obj | None, new: Obj | None, now: ClusterView) -> frozenset[str]:
    """The plugins that a change of a PodGroup may satisfy: it no longer keeps what was promised from everybody."""
    group = new or old
    if group is None:
        return frozenset()
    if not has_nominations(now):
        return frozenset()
    key = GroupKey(group["metadata"].get("namespace", ""), group["metadata"]["name"])
    state = now.group_state(key)
    kept = keeps_places(old, state.count, state.scheduled_count)
    given_up = kept and not keeps_places_from_all(now, key) and has_promised_places(now, key)
    return PLACE_LOST if given_up else frozenset()


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


_SIZED = ("containers", "initContainers", "resources", "overhead")
_SIZED_STATUS = ("containerStatuses", "initContainerStatuses", "resources", "allocatedResources")


def _may_be_resized(old: Obj, new: Obj) -> bool:
    """Whether anything differs that `_sizes` are made of; most changes are about something else."""
    spec, other = old.get("spec") or {}, new.get("spec") or {}
    status, later = old.get("status") or {}, new.get("status") or {}
    if [*map(spec.get, _SIZED)] != [*map(other.get, _SIZED)]:
        return True
    if [*map(status.get, _SIZED_STATUS)] != [*map(later.get, _SIZED_STATUS)]:
        return True
    conditions = [*(status.get("conditions") or ()), *(later.get("conditions") or ())]
    return "PodResizePending" in [condition.get("type") for condition in conditions]


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


def wanted_by(pods: Sequence[Obj], refusals: Iterable[Collection[str]], *, spread: bool = False) -> frozenset[str]:
    """The plugins that matter to any member of a group, as far as their events do not wake every rejected group.

    Of a rejected group only the members without a place say why (`refusals`, the plugins of each). What would give
    another place to those that had one, and so make room, has to wake it too. Where all are alike in what they need of
    a node, it is what refused the others. `spread`: pods without constraints are given hard ones.
    """
    wanted: set[str] = set()
    told = [found for found in map(frozenset, refusals) if found != QUORUM]
    if not told or any(found >= QUORUM for found in told) or any(not _alike(pods[0], pod) for pod in pods):
        wanted.add("NodeResourcesFit")
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


_OF_NODES = (
    "nodeSelector",
    "affinity",
    "tolerations",
    "resources",
    "overhead",
    "hostNetwork",
    "hostUsers",
    "schedulerName",
)


def _alike(one: Obj, other: Obj) -> bool:
    """Whether two pods need the same of a node, devices of claims and what `wanted_by` looks at left aside."""
    spec, its = one["spec"], other["spec"]
    if any(spec.get(name) != its.get(name) for name in _OF_NODES):
        return False
    containers, others = ([*(s.get("initContainers") or ()), *(s.get("containers") or ())] for s in (spec, its))
    return len(containers) == len(others) and all(
        c.get(name) == o.get(name)
        for c, o in zip(containers, others, strict=True)
        for name in ("resources", "ports", "restartPolicy")
    )


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
