"""Which change can help whom: cluster events, and the plugins whose rejections they may undo.

A unit that was rejected names the plugins that rejected it; an event names the plugins it may satisfy. Where the two
meet, the unit is tried again. A unit without known plugins (an internal error) is woken by every event.
Source: kube-scheduler's queueing hints (KEP-4247), the table of the scheduling framework's EventsToRegister.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from haru.engine.extended import special_owner

Obj = dict[str, Any]

NODE_PLUGINS = frozenset(
    {
        "NodeUnschedulable",
        "NodeName",
        "TaintToleration",
        "NodeAffinity",
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
QUORUM = frozenset({"GangScheduling"})
DEVICES = frozenset({"DynamicResources", "GangScheduling"})
# A class may stand behind an extended resource that nodes were found to lack.
CLASSES = DEVICES | {"NodeResourcesFit"}
VOLUMES = frozenset({"VolumeBinding", "VolumeRestrictions", "VolumeZone", "NodeVolumeLimits"})


def node_change(old: Obj | None, new: Obj) -> frozenset[str]:
    """The plugins that a node's addition or update may satisfy; empty for a heartbeat that changes nothing of use."""
    if old is None:
        return NODE_PLUGINS
    helped: set[str] = set()
    old_spec, new_spec = old.get("spec") or {}, new.get("spec") or {}
    old_status, new_status = old.get("status") or {}, new.get("status") or {}
    if old_status.get("allocatable") != new_status.get("allocatable"):
        helped |= {"NodeResourcesFit", "DynamicResources"}
    if (old["metadata"].get("labels") or {}) != (new["metadata"].get("labels") or {}):
        helped |= {"NodeAffinity", "InterPodAffinity", "PodTopologySpread", "DynamicResources"} | VOLUMES
    if old_spec.get("taints") != new_spec.get("taints"):
        helped |= {"TaintToleration", "NodeUnschedulable", "PodTopologySpread"}
    if bool(old_spec.get("unschedulable")) != bool(new_spec.get("unschedulable")):
        helped |= {"NodeUnschedulable", "TaintToleration"}
    return frozenset(helped | {"GangScheduling"}) if helped else frozenset()


def pod_change(old: Obj | None, new: Obj | None) -> frozenset[str]:
    """The plugins that a pod's change may satisfy: it left its node or its promised place, came to one, or shrank."""
    # The last that is heard of a pod may be its end: then it had its place until now, whatever its phase says.
    before, after = _place(old), _place(new) if _lives(new) else ""
    if before and not after:
        return POD_GONE
    if new is None or old is None or not after:
        return POD_PLACED if after else frozenset()
    helped: set[str] = set()
    if before != after or (old["metadata"].get("labels") or {}) != (new["metadata"].get("labels") or {}):
        helped |= POD_PLACED
    if _sizes(old) != _sizes(new):
        helped |= {"NodeResourcesFit"}
    return frozenset(helped)


def _place(pod: Obj | None) -> str:
    if pod is None:
        return ""
    node = (pod.get("spec") or {}).get("nodeName") or (pod.get("status") or {}).get("nominatedNodeName")
    return str(node or "")


def _lives(pod: Obj | None) -> bool:
    return pod is not None and (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed")


def _sizes(pod: Obj) -> list[Any]:
    spec = pod.get("spec") or {}
    return [spec.get("resources"), *(c.get("resources") for c in spec.get("containers") or ())]


def claim_change(old: Obj | None, new: Obj | None) -> frozenset[str]:
    """The plugins that a claim's change may satisfy: it appeared, was freed, or has room for another consumer."""
    if old is None and new is not None and special_owner(new) and not (new.get("status") or {}).get("allocation"):
        return frozenset()  # made for a pod that is decided already
    if old is None or new is None:
        return DEVICES
    before, after = old.get("status") or {}, new.get("status") or {}
    if before == after and not new["metadata"].get("deletionTimestamp"):
        return frozenset()
    return DEVICES


def scheduling_fields(pod: Obj) -> Mapping[str, Any]:
    """What of a waiting pod's own object can change its fate."""
    spec, metadata = pod.get("spec") or {}, pod["metadata"]
    status = pod.get("status") or {}
    return {
        "labels": metadata.get("labels"),
        "annotations": metadata.get("annotations"),
        "gates": spec.get("schedulingGates"),
        "tolerations": spec.get("tolerations"),
        "nodeSelector": spec.get("nodeSelector"),
        "affinity": spec.get("affinity"),
        "sizes": _sizes(pod),
        "claims": status.get("resourceClaimStatuses"),
        "deleting": metadata.get("deletionTimestamp"),
    }
