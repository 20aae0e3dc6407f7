"""Build the patches of conditions on pods and PodGroups about decisions. Pure.

Source: scheduling-framework status reporting of 1.36 (`PodScheduled`), KEP-4671 (`PodGroupScheduled`).
"""

from __future__ import annotations

from typing import NamedTuple

from haru.engine.backfill import CONDITION
from haru.kube.meta import Obj


def condition(conditions: list[Obj] | None, type_: str) -> Obj | None:
    """The condition of a type, if it is there."""
    return next((c for c in conditions or () if c.get("type") == type_), None)


class ConditionText(NamedTuple):
    """Reason and message of a condition, and the time of a transition."""

    reason: str
    message: str
    now: str


class NominationChange(NamedTuple):
    """What becomes of `nominatedNodeName`: set to `nominate`, else kept if `keep`, else removed."""

    keep: bool = False
    nominate: str = ""


def pod_scheduled_patch(pod: Obj, text: ConditionText, nomination: NominationChange) -> Obj | None:
    """A strategic merge patch of the status that says why the pod is not scheduled; None if it says so already."""
    (reason, message, now), (keep_nomination, nominate) = text, nomination
    status = pod.get("status") or {}
    current = condition(status.get("conditions"), "PodScheduled")
    patch: Obj = {}
    if nominate:
        if status.get("nominatedNodeName") != nominate:
            patch["nominatedNodeName"] = nominate
    elif status.get("nominatedNodeName") and not keep_nomination:
        patch["nominatedNodeName"] = None
    same = current and (current.get("status"), current.get("reason"), current.get("message")) == (
        "False",
        reason,
        message,
    )
    if not same:
        changed = not current or current.get("status") != "False"
        entry: Obj = {"type": "PodScheduled", "status": "False", "reason": reason, "message": message}
        entry["observedGeneration"] = pod["metadata"].get("generation", 1)
        entry["lastProbeTime"] = None
        if changed:
            entry["lastTransitionTime"] = now
        patch["conditions"] = [entry]
    if not patch:
        return None
    return {"metadata": {"uid": pod["metadata"]["uid"]}, "status": patch}


def unnominated_patch(pod: Obj) -> Obj | None:
    """A patch of the status that takes the nomination away; None if there is none."""
    if not (pod.get("status") or {}).get("nominatedNodeName"):
        return None
    return {"metadata": {"uid": pod["metadata"]["uid"]}, "status": {"nominatedNodeName": None}}


def reserved_patch(obj: Obj, text: str | None, now: str) -> Obj | None:
    """A patch of the status of a pod or group for which places are kept (`text` says which), or no longer (None)."""
    current = condition((obj.get("status") or {}).get("conditions"), CONDITION)
    status, reason, message = ("False", "Released", "") if text is None else ("True", "HeadOfQueue", text)
    if current is None and text is None:
        return None
    if current and (current.get("status"), current.get("message", "")) == (status, message):
        return None
    entry: Obj = {"type": CONDITION, "status": status, "reason": reason, "message": message, "lastTransitionTime": now}
    if current and current.get("status") == status:
        entry["lastTransitionTime"] = current.get("lastTransitionTime") or now
    return {"metadata": {"uid": obj["metadata"]["uid"]}, "status": {"conditions": [entry]}}


def disruption_target_patch(pod: Obj, message: str, now: str) -> Obj | None:
    """A strategic merge patch of the status of a pod that is evicted for another (KEP-3329); None if it says so."""
    told = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler", "message": message}
    current = condition((pod.get("status") or {}).get("conditions"), "DisruptionTarget") or {}
    if told.items() <= current.items():
        return None
    entry = {**told, "lastTransitionTime": now}
    return {"metadata": {"uid": pod["metadata"]["uid"]}, "status": {"conditions": [entry]}}


def group_scheduled_patch(group: Obj, status: str, reason: str, message: str, now: str) -> Obj | None:
    """A strategic merge patch for `PodGroupScheduled`; None if nothing changes. True is never taken back."""
    current = condition((group.get("status") or {}).get("conditions"), "PodGroupScheduled")
    if current and current.get("status") == "True":
        return None
    if current and (current["status"], current["reason"], current.get("message", "")) == (status, reason, message):
        return None
    entry: Obj = {
        "type": "PodGroupScheduled",
        "status": status,
        "reason": reason,
        "message": message,
        "observedGeneration": group["metadata"].get("generation", 1),
        "lastTransitionTime": now,
    }
    if current and current.get("status") == status:
        entry["lastTransitionTime"] = current.get("lastTransitionTime") or now
    return {"metadata": {"uid": group["metadata"]["uid"]}, "status": {"conditions": [entry]}}
