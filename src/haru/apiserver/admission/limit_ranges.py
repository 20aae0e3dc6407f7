"""LimitRanger: the LimitRanges of a namespace complete its pods, and bound pods and volume claims."""

from __future__ import annotations

from haru.apiserver.admission.quotas import NamespaceLimits
from haru.apiserver.object_store import Obj
from haru.apiserver.request.call import Call
from haru.kube.errors import forbidden_error
from haru.kube.limit_ranges import pod_faults, set_defaults, told, volume_claim_faults


class LimitRanger:
    """Apply the LimitRanges of one server's namespaces, in the order of their names."""

    def __init__(self, limits: NamespaceLimits) -> None:
        self._limits = limits

    async def _ranges(self, call: Call) -> list[Obj]:
        found = await self._limits.ranges(call.namespace) if self._limits.started else []
        return [each for each in found if not each["metadata"].get("deletionTimestamp")]

    async def complete_pod(self, call: Call, pod: Obj) -> None:
        """Set defaults for requests and limits that the containers of a new pod leave out."""
        for limit_range in await self._ranges(call):
            set_defaults(limit_range, pod)

    async def check_pod(self, call: Call, pod: Obj) -> None:
        """Refuse a new pod that a LimitRange does not allow."""
        for limit_range in await self._ranges(call):
            _require(call, pod, pod_faults(limit_range, pod))

    async def check_resized_pod(self, call: Call, new: Obj, old: Obj) -> None:
        """Refuse a resized pod that a LimitRange does not allow."""
        await self.check_pod(call, new)

    async def check_volume_claim(self, call: Call, claim: Obj) -> None:
        """Refuse a new volume claim that a LimitRange does not allow."""
        for limit_range in await self._ranges(call):
            _require(call, claim, volume_claim_faults(limit_range, claim))

    async def check_volume_claim_update(self, call: Call, new: Obj, old: Obj) -> None:
        """Check a volume claim whose requested size changes."""
        if (new.get("spec") or {}).get("resources") != (old.get("spec") or {}).get("resources"):
            await self.check_volume_claim(call, new)


def _require(call: Call, obj: Obj, faults: list[str]) -> None:
    if faults:
        kind = call.resource.kind
        raise forbidden_error(kind.group, kind.plural, obj["metadata"]["name"], told(faults))
