"""ResourceQuota: an object and the quotas that count it are written together, or none of them.

Whoever is allowed by a quota thereby changes it. Of two writers for whom there is room only once, at this server or
another one, the second meets a quota that is no longer as it was, and is judged again: no quota is ever overdrawn, and
none is charged for what was not stored. What is given back its controller counts.
"""

from __future__ import annotations

from collections.abc import Sequence

from haru.apiserver.admission.quota_index import LimitsOfNamespaces
from haru.apiserver.context import Obj
from haru.apiserver.encoding.objects import decode, encode
from haru.apiserver.request.call import Call
from haru.kube.errors import conflict_error, forbidden_error
from haru.kube.names import parse_time
from haru.kube.quota.checking import Charge, QuotaRefusal, Write, charges, evaluator_of
from haru.kube.quota.claims import covers, is_special, owning_pod
from haru.kube.quota.usage import Surroundings
from haru.storage import CompareFailed, Event, Put, Record

ATTEMPTS = 100


async def write(call: Call, put: Put, new: Obj, record: Record | None) -> Sequence[Event]:
    """Store an object (`record` is its version until now), and charge its quotas.

    The first event is the object's. Raises 403 when a quota has no room, `CompareFailed` as the store does.
    """
    limits = call.core.limits
    asked = await _counted(call, new, record)
    if limits is None or asked is None:
        return await call.core.store.transact(put, *call.together)
    quotas = call.core.served.preferred("", "resourcequotas")
    for _ in range(ATTEMPTS):
        async with limits.turn(call.namespace):
            charged = await _charges(call, asked, limits)
            more = [_put(quotas.key(call.namespace, charge.quota["metadata"]["name"]), charge) for charge in charged]
            try:
                return await call.core.store.transact(put, *call.together, *more)
            except CompareFailed as error:
                if error.key not in {each.key for each in more}:
                    raise
        # Another server, or the quota's controller, was faster.
        await call.core.store.progress()
    kind = call.resource.kind
    raise conflict_error(kind.group, kind.plural, new["metadata"]["name"])


async def check(call: Call, new: Obj, record: Record | None) -> None:
    """Refuse what `write` would refuse; nothing is written."""
    limits = call.core.limits
    asked = await _counted(call, new, record)
    if limits is not None and asked is not None:
        await _charges(call, asked, limits)


async def _counted(call: Call, new: Obj, record: Record | None) -> Write | None:
    """The write as quotas see it; None when none of them is concerned."""
    kind, limits = call.resource.kind, call.core.limits
    if limits is None or not kind.namespaced:
        return None
    if not call.core.config.admission.limited and not await limits.quotas(call.namespace):
        return None
    evaluator = evaluator_of(kind.group, kind.plural)
    if evaluator is None or (record is not None and not evaluator.updates):
        return None
    around = Surroundings(parse_time(call.core.now()))
    asked = Write(evaluator, call.subresource, new, decode(record) if record is not None else None, around)
    return asked if asked.matters else None


async def _charges(call: Call, asked: Write, limits: LimitsOfNamespaces) -> list[Charge]:
    quotas = await limits.quotas(call.namespace)
    around = asked.around
    if call.resource.kind.group_resource == "resourceclaims.resource.k8s.io":
        pod = await _pod_of(call, asked.new) if is_special(asked.new) else None
        extended = call.core.gates.enabled("DRAExtendedResource")
        around = Surroundings(around.now, await limits.extended_resources(), extended, lambda _: pod)
    try:
        return charges(
            Write(asked.evaluator, asked.subresource, asked.new, asked.old, around),
            quotas,
            call.core.config.admission.limited,
        )
    except QuotaRefusal as refusal:
        kind = call.resource.kind
        raise forbidden_error(kind.group, kind.plural, asked.new["metadata"]["name"], str(refusal)) from None


async def _pod_of(call: Call, claim: Obj) -> Obj | None:
    """The pod for which the scheduler makes a claim, if the pod's own usage covers it."""
    owner = owning_pod(claim)
    if owner is None:
        return None
    pod = await call.core.read("", "pods", call.namespace, owner[0])
    if pod is None or pod["metadata"]["uid"] != owner[1]:
        return None
    siblings: list[Obj] = []
    if not (pod.get("status") or {}).get("extendedResourceClaimStatus"):
        # Rare, and looked at only where the pod does not say yet which claim is its.
        every = await call.core.peek_all("resource.k8s.io", "resourceclaims", call.namespace)
        siblings = [other for other in every if is_special(other) and owning_pod(other) == owner]
    return pod if covers(pod, claim, siblings) else None


def _put(key: str, charge: Charge) -> Put:
    quota = charge.quota
    status = {**(quota.get("status") or {}), "used": dict(charge.used)} if charge.used else quota.get("status")
    value, place = encode({**quota, "status": status or {}})
    return Put(key, value, int(quota["metadata"]["resourceVersion"]), place)
