"""When device taints drive pods away (pure).

The taints of an allocated device are the NoExecute taints of the device as the newest generation of its pool publishes
it, and those of the DeviceTaintRules that select it, published or not. Tolerations are those of the allocation result.
An empty effect of a toleration matches every effect. A rule without a device selector selects nothing.
Source: KEP-5055.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from haru.engine.dra.model.model import DeviceId, Taint
from haru.engine.dra.taints import decode_taint_rule, decode_toleration
from haru.kube.meta import Obj, name_of
from haru.kube.names import parse_time

NO_EXECUTE = "NoExecute"


@dataclass(frozen=True, slots=True)
class Eviction:
    """A pod has to go at a time, because of these taints; `rules` are the names of the rules among them."""

    at: datetime
    taints: tuple[str, ...] = ()
    rules: frozenset[str] = frozenset()


def tolerates(toleration: Obj, taint: Obj) -> bool:
    """Whether a device toleration covers a device taint, as the allocator sees it."""
    meant = Taint(taint["key"], taint.get("value") or "", taint.get("effect") or "")
    return decode_toleration(toleration).tolerates(meant)


def rule_selects(rule: Obj, device: DeviceId) -> bool:
    """Whether a DeviceTaintRule, as the API serves it, selects the device."""
    return decode_taint_rule(rule).selects(device)


def newest_slices(slices: Iterable[Obj]) -> list[Obj]:
    """Of the slices of one pool those of the highest generation."""
    found = list(slices)
    newest = max((s["spec"]["pool"].get("generation", 0) for s in found), default=0)
    return [s for s in found if s["spec"]["pool"].get("generation", 0) == newest]


def published_taints(slices: Iterable[Obj], device: str) -> list[Obj]:
    """The taints that the driver has put on a device of one pool."""
    for resource_slice in newest_slices(slices):
        for entry in resource_slice["spec"].get("devices") or ():
            if entry["name"] == device:
                return list(entry.get("taints") or ())
    return []


def taint_time(result: Mapping[str, Any], taint: Obj, now: datetime) -> datetime | None:
    """When one taint drives away the users of an allocation result; None: never."""
    matching = [t for t in result.get("tolerations") or () if tolerates(t, taint)]
    added = parse_time(taint["timeAdded"]) if taint.get("timeAdded") else now
    if any(t.get("tolerationSeconds") is None for t in matching):
        return None
    seconds = min((max(0, t["tolerationSeconds"]) for t in matching), default=0)
    return added + timedelta(seconds=seconds)


def claim_eviction(
    results: Sequence[Mapping[str, Any]],
    slices_of: Any,
    rules: Sequence[Obj],
    now: datetime,
) -> Eviction | None:
    """When the users of a claim must go; `slices_of(driver, pool)` gives the slices of a pool."""
    due: list[tuple[datetime, str, str]] = []
    for result in results:
        device = DeviceId(result["driver"], result["pool"], result["device"])
        taints = [(taint, "") for taint in published_taints(slices_of(device.driver, device.pool), device.device)]
        taints += [(r["spec"]["taint"], name_of(r)) for r in rules if rule_selects(r, device)]
        for taint, rule in taints:
            if taint.get("effect") == NO_EXECUTE and (at := taint_time(result, taint, now)) is not None:
                due.append((at, f"{device}: {taint['key']}={taint.get('value') or ''}", rule))
    return combine([Eviction(at, (text,), frozenset({rule} if rule else ())) for at, text, rule in due])


def combine(evictions: Sequence[Eviction]) -> Eviction | None:
    """The earliest time, with the reasons of all."""
    if not evictions:
        return None
    taints = tuple(dict.fromkeys(text for eviction in evictions for text in eviction.taints))
    rules = frozenset().union(*(eviction.rules for eviction in evictions))
    return Eviction(min(eviction.at for eviction in evictions), taints, rules)
