"""The status of a Deployment: counts, and the conditions that `kubectl rollout status` reads (pure).

Source: apps/v1 Deployment, conditions Available, Progressing and ReplicaFailure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from haru.controllers.objects import ConditionText
from haru.controllers.rollout import Limits, status_of, total
from haru.kube.meta import Obj, get_condition, name_of
from haru.kube.names import format_time, parse_time

_NO_DEADLINE = 2**31 - 1
_COMPLETE = "NewReplicaSetAvailable"


def counts(deployment: Mapping[str, Any], new: Obj | None, replica_sets: Sequence[Obj]) -> Obj:
    """The status without its conditions."""
    available, replicas = total(replica_sets, "availableReplicas"), total(replica_sets, "replicas")
    wanted = total(replica_sets)
    numbers = {
        "observedGeneration": deployment["metadata"].get("generation", 0),
        "replicas": replicas,
        "updatedReplicas": status_of(new, "replicas") if new else 0,
        "readyReplicas": total(replica_sets, "readyReplicas"),
        "availableReplicas": available,
        "unavailableReplicas": max(0, wanted - available),
    }
    status: Obj = {key: number for key, number in numbers.items() if number}
    noted = [rs.get("status") or {} for rs in replica_sets]
    if all("terminatingReplicas" in each for each in noted if each.get("observedGeneration")):
        status["terminatingReplicas"] = sum(each.get("terminatingReplicas", 0) for each in noted)
    collisions = (deployment.get("status") or {}).get("collisionCount")
    if collisions is not None:
        status["collisionCount"] = collisions
    return status


def with_condition(conditions: Sequence[Obj], new: ConditionText, now: str) -> list[Obj]:
    """Return the conditions with one set; it stays as it is where its status and reason do."""
    old = get_condition(conditions, new.type)
    if old is not None and (old["status"], old.get("reason")) == (new.status, new.reason):
        return list(conditions)
    since = old["lastTransitionTime"] if old is not None and old["status"] == new.status else now
    condition = {
        "type": new.type,
        "status": new.status,
        "lastUpdateTime": now,
        "lastTransitionTime": since,
        "reason": new.reason,
        "message": new.message,
    }
    return [*(c for c in conditions if c["type"] != new.type), condition]


def is_complete(deployment: Mapping[str, Any], status: Mapping[str, Any]) -> bool:
    """All wanted pods are of the new template and available, and no other pod is left."""
    wanted = deployment["spec"].get("replicas", 1)
    fields = ("updatedReplicas", "replicas", "availableReplicas")
    return all(status.get(field, 0) == wanted for field in fields)


def has_deadline(deployment: Mapping[str, Any]) -> bool:
    """Somebody waits for its progress."""
    return deployment["spec"].get("progressDeadlineSeconds") not in (None, _NO_DEADLINE)


def has_progressed(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Something moved towards completion since the last status."""

    def outdated(status: Mapping[str, Any]) -> int:
        return int(status.get("replicas", 0)) - int(status.get("updatedReplicas", 0))

    grown = any(
        new.get(field, 0) > old.get(field, 0) for field in ("updatedReplicas", "readyReplicas", "availableReplicas")
    )
    return grown or outdated(new) < outdated(old)


def conditions(
    deployment: Mapping[str, Any],
    status: Mapping[str, Any],
    new: Obj | None,
    replica_sets: Sequence[Obj],
    now: datetime,
) -> tuple[list[Obj], float | None]:
    """The conditions that go with `status`, and in how many seconds the progress deadline strikes."""
    old_status = deployment.get("status") or {}
    stamp = format_time(now)
    result = list(old_status.get("conditions") or ())
    available = status.get("availableReplicas", 0) >= Limits.of(deployment).min_available
    if available:
        text = ConditionText("Available", "True", "MinimumReplicasAvailable", "Deployment has minimum availability.")
    else:
        text = ConditionText(
            "Available", "False", "MinimumReplicasUnavailable", "Deployment does not have minimum availability."
        )
    result = with_condition(result, text, stamp)
    result, due = _progressing(deployment, status, new, result, now)
    failures = [get_condition(rs, "ReplicaFailure") for rs in (*([new] if new else ()), *replica_sets)]
    failure = next((f for f in failures if f is not None and f["status"] == "True"), None)
    if failure is None:
        result = [c for c in result if c["type"] != "ReplicaFailure"]
    else:
        text = ConditionText("ReplicaFailure", "True", failure.get("reason", ""), failure.get("message", ""))
        result = with_condition(result, text, stamp)
    return result, due


def _progressing(
    deployment: Mapping[str, Any], status: Mapping[str, Any], new: Obj | None, result: list[Obj], now: datetime
) -> tuple[list[Obj], float | None]:
    stamp = format_time(now)
    old_status = deployment.get("status") or {}
    current = get_condition(result, "Progressing")
    if not has_deadline(deployment):
        return [c for c in result if c["type"] != "Progressing"], None
    reason = (current or {}).get("reason")
    if deployment["spec"].get("paused"):
        if reason == "ProgressDeadlineExceeded":
            return result, None
        return with_condition(
            result, ConditionText("Progressing", "Unknown", "DeploymentPaused", "Deployment is paused"), stamp
        ), None
    what = f'ReplicaSet "{name_of(new)}"' if new else f'Deployment "{name_of(deployment)}"'
    if reason == "DeploymentPaused":
        result = with_condition(
            result, ConditionText("Progressing", "Unknown", "DeploymentResumed", "Deployment is resumed"), stamp
        )
        current = get_condition(result, "Progressing")
    if reason == _COMPLETE and status.get("replicas") == status.get("updatedReplicas"):
        return result, None  # a finished rollout that is scaled or has lost a pod has not begun anew
    if is_complete(deployment, status):
        message = f"{what} has successfully progressed."
        return with_condition(result, ConditionText("Progressing", "True", _COMPLETE, message), stamp), None
    if has_progressed(old_status, status):
        text = ConditionText("Progressing", "True", "ReplicaSetUpdated", f"{what} is progressing.")
        result = _refreshed(with_condition(result, text, stamp), stamp)
        return result, float(deployment["spec"]["progressDeadlineSeconds"])
    if current is None or reason == _COMPLETE:
        return result, None  # the rollout that is to be timed has not been written down yet
    since = parse_time(current.get("lastUpdateTime") or current["lastTransitionTime"])
    remaining = (since + timedelta(seconds=deployment["spec"]["progressDeadlineSeconds"]) - now).total_seconds()
    if remaining > 0:
        return result, remaining
    message = f"{what} has timed out progressing."
    return with_condition(
        result, ConditionText("Progressing", "False", "ProgressDeadlineExceeded", message), stamp
    ), None


def _refreshed(conditions: list[Obj], stamp: str) -> list[Obj]:
    return [{**c, "lastUpdateTime": stamp} if c["type"] == "Progressing" else c for c in conditions]
