"""LimitRanger: the LimitRanges of a namespace complete its pods, and bound pods and volume claims."""

from __future__ import annotations

from haru.apiserver.context import Obj
from haru.apiserver.request.call import Call
from haru.kube.errors import forbidden_error
from haru.kube.limit_ranges import pod_faults, set_defaults, told, volume_claim_faults


async def _ranges(call: Call) -> list[Obj]:
    """By name; none that is being deleted."""
    limits = call.core.limits
    found = await limits.ranges(call.namespace) if limits is not None else []
    return [each for each in found if not each["metadata"].get("deletionTimestamp")]


async def complete_pod(call: Call, pod: Obj) -> None:
    """On create of a pod: defaults for what its containers do not say."""
    for limit_range in await _ranges(call):
        set_defaults(limit_range, pod)


async def check_pod(call: Call, pod: Obj) -> None:
    """On create of a pod."""
    for limit_range in await _ranges(call):
        _require(call, pod, pod_faults(limit_range, pod))


async def check_resized_pod(call: Call, new: Obj, old: Obj) -> None:
    """On resize of a pod."""
    await check_pod(call, new)


async def check_volume_claim(call: Call, claim: Obj) -> None:
    """On create of a volume claim."""
    for limit_range in await _ranges(call):
        _require(call, claim, volume_claim_faults(limit_range, claim))


async def check_volume_claim_update(call: Call, new: Obj, old: Obj) -> None:
    """On update of a volume claim: one that asks for another size is judged."""
    if (new.get("spec") or {}).get("resources") != (old.get("spec") or {}).get("resources"):
        await check_volume_claim(call, new)


def _require(call: Call, obj: Obj, faults: list[str]) -> None:
    if faults:
        kind = call.resource.kind
        raise forbidden_error(kind.group, kind.plural, obj["metadata"]["name"], told(faults))
