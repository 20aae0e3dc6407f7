"""The status of controllers with pod templates: counts that are not negative and fit together (apps/v1, core/v1)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from haru.kube.errors import FieldError, invalid
from haru.kube.meta import Obj
from haru.kube.validation.common import not_negative, part

Check = Callable[[Obj, Obj], list[FieldError]]

_SHARED: Final = ("observedGeneration", "replicas", "readyReplicas", "availableReplicas", "terminatingReplicas")


def _counts(counted: tuple[str, ...], parts: tuple[str, ...], ready: str = "readyReplicas") -> Check:
    """Validate counts; `parts` may not be more than the replicas, and available ones are ready, as a message says."""

    def check(new: Obj, old: Obj) -> list[FieldError]:
        status, before = part(new, "status"), part(old, "status")
        found = [error for name in counted for error in not_negative(f"status.{name}", status.get(name))]
        replicas = status.get("replicas") or 0
        for name in parts:
            count = status.get(name) or 0
            if count > replicas:
                found.append(invalid(f"status.{name}", count, "cannot be greater than status.replicas"))
        available = status.get("availableReplicas") or 0
        if parts and available > (status.get("readyReplicas") or 0):
            found.append(invalid("status.availableReplicas", available, f"cannot be greater than {ready}"))
        return found + _collisions(status, before)

    return check


def _collisions(status: Obj, before: Obj) -> list[FieldError]:
    now, then = status.get("collisionCount"), before.get("collisionCount")
    if then is not None and (now is None or now < then):
        return [invalid("status.collisionCount", now or 0, "cannot be decremented")]
    return []


validate_deployment_status = _counts(
    (*_SHARED, "updatedReplicas", "unavailableReplicas", "collisionCount"),
    ("updatedReplicas", "readyReplicas", "availableReplicas"),
)
validate_replica_set_status = _counts(
    (*_SHARED, "fullyLabeledReplicas"), ("fullyLabeledReplicas", "readyReplicas", "availableReplicas")
)
validate_stateful_set_status = _counts(
    (*_SHARED, "currentReplicas", "updatedReplicas", "collisionCount"),
    ("readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas"),
    "status.readyReplicas",
)
validate_daemon_set_status = _counts(
    (
        *("currentNumberScheduled", "numberMisscheduled", "desiredNumberScheduled", "numberReady"),
        *("observedGeneration", "updatedNumberScheduled", "numberAvailable", "numberUnavailable", "collisionCount"),
    ),
    (),
)
