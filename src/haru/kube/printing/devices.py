"""Devices and claims (resource.k8s.io, every version)."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from haru.kube.meta import Obj, value_at
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


def _slice(obj: Obj, now: datetime) -> list[Any]:
    pool = value_at(obj, "spec", "pool", "name") or ""
    return [name(obj), spec(obj).get("nodeName") or NONE, spec(obj).get("driver", ""), pool, age(obj, now)]


def _taint_rule(obj: Obj, now: datetime) -> list[Any]:
    selector = spec(obj).get("deviceSelector")
    taint = spec(obj).get("taint") or {}
    value = f"={taint['value']}" if taint.get("value") else ""
    if selector is None:
        devices = NONE
    else:
        devices = "/".join(selector.get(key) or "*" for key in ("driver", "pool", "device"))
    evicting = condition(obj, "EvictionInProgress").get("status") or NONE
    return [name(obj), devices, f"{taint.get('key', '')}{value}:{taint.get('effect', '')}", age(obj, now), evicting]


def _pool_status_request(obj: Obj, now: datetime) -> list[Any]:
    pools = status(obj).get("pools") or []
    done = condition(obj, "Complete") or condition(obj, "Failed")
    cells: list[Any] = [name(obj), spec(obj).get("driver", "")]
    if not done:
        return [*cells, *[NONE] * 6, "Pending", NONE]
    counts = [str(sum(pool.get(field) or 0 for pool in pools)) for field in _COUNTS]
    errors = sum(bool(pool.get("validationError")) for pool in pools)
    matching = status(obj).get("poolCount") or 0
    state = str(done["type"])
    if len(pools) < matching:
        state += f" ({len(pools)}/{matching} pools)"
    return [*cells, *counts, str(errors), str(matching), state, since(done.get("lastTransitionTime"), now)]


_COUNTS = ("totalDevices", "availableDevices", "allocatedDevices", "unavailableDevices")
_GROUP = "resource.k8s.io"
PRINTERS = {
    (_GROUP, "resourceclaims"): printer("Name State Age", between(_claim_state)),
    (_GROUP, "resourceslices"): printer("Name Node Driver Pool Age", _slice),
    (_GROUP, "devicetaintrules"): printer("Name Devices Taint Age Evicting*", _taint_rule),
    (_GROUP, "resourcepoolstatusrequests"): printer(
        "Name Driver Total Available Allocated Unavailable Errors Pools Status Completed", _pool_status_request
    ),
}
