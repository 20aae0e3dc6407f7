"""What drivers have said of allocated devices that are not ready at once (KEP-5007). Pure.

Source: `bindingConditions` of allocation results, and the conditions of `status.devices` of a ResourceClaim.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from haru.kube.meta import Obj, allocation_of
from haru.kube.names import parse_time

_IDENTITY: Final = ("driver", "pool", "device", "shareID")


def conditional(allocation: Obj | None) -> Iterator[Obj]:
    """The devices of an allocation that have binding conditions."""
    for result in ((allocation or {}).get("devices") or {}).get("results") or ():
        if result.get("bindingConditions"):
            yield result


def conditions_told(claim: Obj) -> Iterator[tuple[Obj, dict[str, Obj]]]:
    """Each device of a claim that has binding conditions, with the conditions that are true of it, by type."""
    status = claim.get("status") or {}
    told = {_identity(one): one.get("conditions") or () for one in status.get("devices") or ()}
    for result in conditional(status.get("allocation")):
        known = told.get(_identity(result), ())
        yield result, {one["type"]: one for one in known if one.get("status") == "True"}


def failed_condition(claim: Obj) -> str:
    """The condition by which a device of a claim has failed; "" if none has."""
    failed = (
        name
        for result, told in conditions_told(claim)
        for name in result.get("bindingFailureConditions") or ()
        if name in told
    )
    return next(failed, "")


def missing_condition(claim: Obj) -> str:
    """A condition for which a claim waits; "" if all of them are true."""
    return next(
        (name for result, told in conditions_told(claim) for name in result["bindingConditions"] if name not in told),
        "",
    )


def is_overdue(claim: Obj, timeout: float, now: float) -> bool:
    """Whether a claim was allocated longer ago than that and still waits for a device. Times are in seconds."""
    allocated = (allocation_of(claim) or {}).get("allocationTimestamp")
    if not allocated or parse_time(allocated).timestamp() + timeout >= now:
        return False
    return bool(missing_condition(claim))


def _identity(device: Obj) -> tuple[str, ...]:
    return tuple([device.get(name) or "" for name in _IDENTITY])
