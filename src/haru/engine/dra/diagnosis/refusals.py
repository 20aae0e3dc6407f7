"""From counts to causes: which condition of a funnel refuses a request, as a typed value with a sentence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from haru.engine.dra.allocator.allocation_problem import MAX_RESULTS
from haru.engine.dra.allocator.conditions import SELECTING_CONDITIONS
from haru.engine.dra.diagnosis.reasons import REFUSAL_TYPES, DeviceRefusal, RefusalType, RequestFunnel, Stage, StageName
from haru.engine.dra.model.claims import Claim, SubRequest
from haru.engine.dra.pools.pools import PoolView
from haru.engine.state.partition import Partition

_SELECTING = ("devices", "class", "selector", *(condition.stage for condition in SELECTING_CONDITIONS))


def refusal_of(ask: SubRequest, needed: int | None, stages: Sequence[Stage]) -> DeviceRefusal | None:
    """The first condition after which fewer devices are left than the ask needs; None if enough stay."""
    if ask.error:
        kind: RefusalType = "DeviceClassMissing" if ask.class_name and ask.device_class is None else "RequestInvalid"
        return DeviceRefusal(kind, ask.error, {"request": ask.result_name, "deviceClass": ask.class_name})
    if needed is None:
        selected = next((s.left for s in reversed(stages) if s.name in _SELECTING), 0)
        needed = max(1, selected)
    if needed > MAX_RESULTS:
        message = f"request {ask.result_name} needs {needed} devices, a claim can have {MAX_RESULTS}"
        return DeviceRefusal("TooManyDevices", message, {"request": ask.result_name, "needed": needed})
    for before, stage in zip((None, *stages), stages, strict=False):
        if stage.data.get("errors"):
            return DeviceRefusal("SelectorError", _sentence(ask, needed, before, stage), _data(ask, needed, stage))
        if stage.left < needed:
            return DeviceRefusal(
                REFUSAL_TYPES[stage.name], _sentence(ask, needed, before, stage), _data(ask, needed, stage)
            )
    return None


def node_refusals(
    claims: Sequence[Claim],
    funnels: Sequence[RequestFunnel],
    incomplete: Sequence[str],
    invalid: Mapping[str, str],
) -> tuple[DeviceRefusal, ...]:
    """Why the node cannot serve the claims: requests none of whose alternatives can be had, then pools in trouble."""
    refusals: list[DeviceRefusal] = []
    waiting = list(funnels)
    for claim in claims:
        for request in claim.requests:
            own, waiting = waiting[: len(request.asks)], waiting[len(request.asks) :]
            causes = [f.refusal for f in own if f.refusal is not None]
            if request.error:
                refusals.append(DeviceRefusal("RequestInvalid", request.error, {"request": request.name}))
            elif len(causes) == len(own) == 1:
                refusals.append(causes[0])
            elif own and len(causes) == len(own):
                refusals.append(_exhausted(request.name, causes))
        if claim.constraint_error:
            refusals.append(DeviceRefusal("RequestInvalid", claim.constraint_error))
    if refusals or any(f.needed is None for f in funnels):
        for pool in incomplete:
            message = f"resource pool {pool} is currently being updated"
            refusals.append(DeviceRefusal("PoolIncomplete", message, {"pool": pool}))
        for pool, problem in invalid.items():
            data = {"pool": pool, "problem": problem}
            refusals.append(DeviceRefusal("PoolInvalid", f"resource pool {pool} is invalid: {problem}", data))
    return tuple(refusals)


def outside_refusal(outside: Sequence[PoolView], partition: Partition) -> DeviceRefusal:
    """That the node has devices, but outside the scheduler's partition."""
    count = sum(len(view.devices) for view in outside)
    message = (
        f"{count} {_devices(count)} of the node {'is' if count == 1 else 'are'} outside this scheduler's partition"
    )
    data = {"devices": count, "pools": sorted(str(view.key) for view in outside), "partition": str(partition)}
    return DeviceRefusal("OutsidePartition", message, data)


def _exhausted(request: str, causes: Sequence[DeviceRefusal]) -> DeviceRefusal:
    message = f"none of the {len(causes)} alternatives of request {request} can be had: "
    message += "; ".join(cause.message for cause in causes)
    alternatives = [{"type": c.type, "message": c.message, **c.data} for c in causes]
    return DeviceRefusal("AlternativesExhausted", message, {"request": request, "alternatives": alternatives})


def _data(ask: SubRequest, needed: int, stage: Stage) -> dict[str, Any]:
    return {"request": ask.result_name, "needed": needed, "left": stage.left, **stage.data}


def _sentence(ask: SubRequest, needed: int, before: Stage | None, stage: Stage) -> str:
    had = before.left if before is not None else 0
    head = f"request {ask.result_name} needs {needed} {_devices(needed)}: "
    if stage.data.get("errors"):
        return f"{head}a selector fails on {stage.data['errors']} of {had} {_devices(had)}: {stage.data['error']}"
    if stage.name == "devices":
        return f"{head}the node offers {stage.left or 'none'}"
    return head + f"{stage.left} of {had} {_devices(had)} " + _TEXTS[stage.name] + _detail(ask, stage)


_TEXTS: dict[StageName, str] = {
    "offered": "can be offered with the features that are on",
    "class": "",
    "selector": "",
    "node": "can be used on this node",
    "capacity": "have the requested capacity left",
    "taints": "have no taint that repels it",
    "free": "are free",
    "counters": "have the counters that they consume left",
    "constraints": "can be had together under the claim's constraints",
}


def _detail(ask: SubRequest, stage: Stage) -> str:
    if stage.name == "class":
        return f"are of device class {ask.class_name}"
    if stage.name == "selector":
        return f"match the selector {stage.data['expression']}"
    parts = (
        _listed(word, stage.data.get(table) or {})
        for table, word in (("taints", "tainted"), ("exhausted", "short of"), ("holders", "held by"))
    )
    return "".join(parts)


def _listed(word: str, table: Mapping[str, int]) -> str:
    if not table:
        return ""
    listed = ", ".join(f"{name or 'a claim'} ({count})" for name, count in sorted(table.items(), key=_most)[:5])
    return f"; {word} {listed}" + (", ..." if len(table) > 5 else "")


def _most(item: tuple[str, int]) -> tuple[int, str]:
    return -item[1], item[0]


def _devices(count: int) -> str:
    return "device" if count == 1 else "devices"
