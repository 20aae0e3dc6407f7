"""ResourceQuota: an object and the quotas that count it are written together, or none of them.

Whoever is allowed by a quota thereby changes it. Of two writers for whom there is room only once, at this server or
another one, the second meets a quota that is no longer as it was, and is judged again: no quota is ever overdrawn, and
none is charged for what was not stored. What is given back its controller counts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from weakref import WeakValueDictionary

from haru.apiserver.admission_options import AdmissionOptions
from haru.apiserver.encoding.objects import encode, recent, shared
from haru.apiserver.object_store import ObjectStore
from haru.apiserver.registry.store_reflector import NamespacedStoreReflector, StoreReflector
from haru.apiserver.request.call import Call
from haru.kube.errors import conflict_error, forbidden_error
from haru.kube.meta import Obj
from haru.kube.names import parse_time
from haru.kube.quota.checking import Charge, QuotaRefusal, Write, charges, evaluator_of
from haru.kube.quota.claims import covers, extended_names, is_special, owning_pod
from haru.kube.quota.usage import Surroundings
from haru.storage import CompareFailed, Event, Put, Record

ATTEMPTS = 100
_CLASSES = "deviceclasses"


class NamespaceLimits:
    """Follow the ResourceQuotas, LimitRanges and device classes of one server.

    A namespace without any costs a write one look-up.
    """

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects
        self._quotas = NamespacedStoreReflector(objects, "resourcequotas")
        self._ranges = NamespacedStoreReflector(objects, "limitranges")
        self._classes: StoreReflector | None = None
        self._extended: dict[str, str] = {}
        self.started = False
        """False while the server writes what every cluster starts with, which no quota counts."""
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def start(self) -> None:
        """Read them, and follow them from there."""
        await self._quotas.start()
        await self._ranges.start()
        if self._objects.served.find("resource.k8s.io", _CLASSES) is not None:
            self._classes = StoreReflector(self._objects, "resource.k8s.io", (_CLASSES,))
            await self._classes.start()
            self._extended = self._extended_resources()
        self.started = True

    async def quotas(self, namespace: str) -> list[Obj]:
        """The ResourceQuotas of a namespace, shared: not to be changed."""
        return [shared(record) for record in await self._quotas.of(namespace)]

    async def ranges(self, namespace: str) -> list[Obj]:
        """The LimitRanges of a namespace, shared: not to be changed."""
        return [shared(record) for record in await self._ranges.of(namespace)]

    async def extended_resources(self) -> dict[str, str]:
        """The names of extended resources, by the device class that has one."""
        if self._classes is not None and await self._classes.take_in():
            self._extended = self._extended_resources()
        return self._extended

    def quota_lock(self, namespace: str) -> asyncio.Lock:
        """The lock for writes to quotas of the namespace, which spares this server's other writers a lost race."""
        found = self._locks.get(namespace)
        if found is None:
            found = self._locks[namespace] = asyncio.Lock()
        return found

    def _extended_resources(self) -> dict[str, str]:
        assert self._classes is not None
        return extended_names(shared(record) for record in self._classes.of(_CLASSES))


class ResourceQuota:
    """Charge the quotas of a namespace with what is written in it."""

    def __init__(self, limits: NamespaceLimits, options: AdmissionOptions) -> None:
        self._limits = limits
        self._limited = options.limited

    async def write(self, call: Call, put: Put, new: Obj, record: Record | None) -> Sequence[Event]:
        """Store an object (`record` is its version until now), and charge its quotas.

        The first event is the object's. Raises 403 when a quota has no room, `CompareFailed` as the store does.
        """
        objects = call.objects
        counted = await self._counted(call, new, record)
        if counted is None:
            return await objects.store.transact(put, *call.together, *call.following)
        quotas = objects.served.preferred("", "resourcequotas")
        for _ in range(ATTEMPTS):
            async with self._limits.quota_lock(call.namespace):
                charged = await self._charges(call, counted)
                more = [
                    _put(quotas.key(call.namespace, charge.quota["metadata"]["name"]), charge) for charge in charged
                ]
                try:
                    return await objects.store.transact(put, *call.together, *call.following, *more)
                except CompareFailed as error:
                    if error.key not in {each.key for each in more}:
                        raise
            # Another server, or the quota's controller, was faster.
            await objects.store.progress()
        kind = call.resource.kind
        raise conflict_error(kind.group, kind.plural, new["metadata"]["name"])

    async def check(self, call: Call, new: Obj, record: Record | None) -> None:
        """Refuse what `write` would refuse; nothing is written."""
        counted = await self._counted(call, new, record)
        if counted is not None:
            await self._charges(call, counted)

    async def _counted(self, call: Call, new: Obj, record: Record | None) -> Write | None:
        """The write as quotas see it; None if none of them counts it."""
        kind = call.resource.kind
        if not kind.namespaced or not self._limits.started:
            return None
        if not self._limited and not await self._limits.quotas(call.namespace):
            return None
        evaluator = evaluator_of(kind.group, kind.plural)
        if evaluator is None or (record is not None and not evaluator.updates):
            return None
        around = Surroundings(parse_time(call.objects.now()))
        counted = Write(evaluator, call.subresource, new, recent(record) if record is not None else None, around)
        return counted if counted.matters else None

    async def _charges(self, call: Call, counted: Write) -> list[Charge]:
        quotas = await self._limits.quotas(call.namespace)
        around = counted.around
        if call.resource.kind.group_resource == "resourceclaims.resource.k8s.io":
            pod = await _pod_of(call, counted.new) if is_special(counted.new) else None
            extended = call.objects.gates.enabled("DRAExtendedResource")
            around = Surroundings(around.now, await self._limits.extended_resources(), extended, lambda _: pod)
        write = Write(counted.evaluator, counted.subresource, counted.new, counted.old, around)
        try:
            return charges(write, quotas, self._limited)
        except QuotaRefusal as refusal:
            kind = call.resource.kind
            raise forbidden_error(kind.group, kind.plural, counted.new["metadata"]["name"], str(refusal)) from None


async def _pod_of(call: Call, claim: Obj) -> Obj | None:
    """The pod for which the scheduler makes a claim, if the pod's own usage covers it."""
    owner = owning_pod(claim)
    if owner is None:
        return None
    pod = await call.objects.read("", "pods", call.namespace, owner[0])
    if pod is None or pod["metadata"]["uid"] != owner[1]:
        return None
    siblings: list[Obj] = []
    if not (pod.get("status") or {}).get("extendedResourceClaimStatus"):
        # Rare, and looked at only where the pod does not say yet which claim is its.
        every = await call.objects.peek_all("resource.k8s.io", "resourceclaims", call.namespace)
        siblings = [other for other in every if is_special(other) and owning_pod(other) == owner]
    return pod if covers(pod, claim, siblings) else None


def _put(key: str, charge: Charge) -> Put:
    quota = charge.quota
    status = {**(quota.get("status") or {}), "used": dict(charge.used)} if charge.used else quota.get("status")
    value, place = encode({**quota, "status": status or {}})
    return Put(key, value, int(quota["metadata"]["resourceVersion"]), place)
