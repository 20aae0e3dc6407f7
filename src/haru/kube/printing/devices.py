"""Devices and claims (resource.k8s.io, every version)."""

from __future__ import annotations

from typing import Any

from haru.kube.meta import Obj, has_condition, value_at
from haru.kube.printing.base import NONE, age, between, condition, meta, name, printer, since, spec, status


def _claim_state(claim: Obj) -> str:
    states = ["deleted"] if meta(claim).get("deletionTimestamp") else []
    if status(claim).get("allocation") is not None:
        states.append("allocated")
        if status(claim).get("reservedFor"):
            states.append("reserved")
    elif not states:
        states.append("pending")
    return ",".join(states)


def _slice(obj: Obj) -> list[Any]:
    pool = value_at(obj, "spec", "pool", "name") or ""
    return [name(obj), spec(obj).get("nodeName", ""), spec(obj).get("driver", ""), pool, age(obj)]


def _taint_rule(obj: Obj) -> list[Any]:
    taint = spec(obj).get("taint") or {}
    told = [taint.get(field, "") for field in ("key", "value", "effect")]
    return [name(obj), *told, since(taint.get("timeAdded")), age(obj)]


def _pool_status_request(obj: Obj) -> list[Any]:
    pools = status(obj).get("pools") or []
    matching = status(obj).get("poolCount") or 0
    complete, failed = has_condition(obj, "Complete"), has_condition(obj, "Failed")
    counts = ["-"] * 5
    if obj.get("status") is not None and not failed:
        errors = sum(bool(pool.get("validationError")) for pool in pools)
        counts = [*(str(sum(pool.get(field) or 0 for pool in pools)) for field in _COUNTS), str(errors)]
    state = "Complete" if complete else "Failed" if failed else "Pending"
    if complete and len(pools) < matching:
        state += f" ({len(pools)}/{matching} pools)"
    finished = since(condition(obj, "Complete").get("lastTransitionTime")) if complete else NONE
    return [name(obj), spec(obj).get("driver", ""), *counts, matching, state, finished]


_COUNTS = ("totalDevices", "availableDevices", "allocatedDevices", "unavailableDevices")
_GROUP = "resource.k8s.io"
PRINTERS = {
    (_GROUP, "resourceclaims"): printer("Name State Age", between(_claim_state)),
    (_GROUP, "resourceslices"): printer("Name Node Driver Pool Age", _slice),
    (_GROUP, "devicetaintrules"): printer("Name Key Value Effect TimeAdded Age", _taint_rule),
    (_GROUP, "resourcepoolstatusrequests"): printer(
        "Name Driver Total Available Allocated Unavailable Errors Pools:integer Status Completed", _pool_status_request
    ),
}
