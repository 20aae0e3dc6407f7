"""The APIServices behind which extension API servers are: whether these can be used, and what they offer.

Each is looked at when it, its Service or the endpoints change, and twice a minute; one that can not be used more often
at first. Every server on a store looks for itself and writes what has changed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import dataclass, field

from haru.apiserver.aggregation.availability import PASSED, DiscoveryFailed, Offer, ask, condition, obstacle
from haru.apiserver.aggregation.client import ExtensionClient, reference_of
from haru.apiserver.registry.loopback import Loopback
from haru.kube.api_services import AVAILABLE, GroupVersion, group_version_of
from haru.kube.errors import suppress_status
from haru.kube.meta import Obj, get_condition, set_condition

CHECK_SECONDS = 30.0
FIRST_RETRY_SECONDS = 1.0
AT_ONCE = 8
_SERVICE_NAME = "kubernetes.io/service-name"
_LOG = logging.getLogger("haru.apiserver")


@dataclass(slots=True)
class _RemoteState:
    """The state of one APIService: when it is checked again, by the loop's clock, and the basis of the last check."""

    basis: object = None
    due: float = 0.0
    pause: float = FIRST_RETRY_SECONDS
    offer: Offer = field(default_factory=Offer)
    stale: bool = True


class RemoteServices:
    """The remote APIServices of one server."""

    def __init__(self, loopback: Loopback, link: ExtensionClient) -> None:
        self._loopback, self._objects, self._client = loopback, loopback.objects, link
        self._known: dict[GroupVersion, _RemoteState] = {}
        self._places = asyncio.Semaphore(AT_ONCE)
        self.generation = 0
        """Counts the changes of what is offered."""

    async def look(self, remote: Iterable[Obj]) -> float:
        """Look at those whose time has come, or that have changed; after how many seconds to look again.

        `remote`: all that there are now.
        """
        loop = asyncio.get_running_loop()
        services = {group_version_of(each): each for each in remote}
        gone = self._known.keys() - services.keys()
        for version in gone:
            del self._known[version]
        self.generation += bool(gone)
        await asyncio.gather(*(self._look_at(version, service) for version, service in services.items()))
        return max(0.0, min((known.due for known in self._known.values()), default=0.0) - loop.time())

    def offer(self, version: GroupVersion) -> tuple[Offer, bool]:
        """The last discovery of an APIService, and whether it is stale."""
        known = self._known.get(version) or _RemoteState()
        return known.offer, known.stale

    async def _look_at(self, version: GroupVersion, service: Obj) -> None:
        known = self._known.setdefault(version, _RemoteState())
        reference = reference_of(service)
        target = await self._objects.peek("", "services", reference.namespace, reference.name)
        slices = [
            each
            for each in await self._objects.peek_all("discovery.k8s.io", "endpointslices", reference.namespace)
            if (each["metadata"].get("labels") or {}).get(_SERVICE_NAME) == reference.name
        ]
        seen = [each["metadata"]["resourceVersion"] for each in slices]
        basis = (service["spec"], target and target["metadata"]["resourceVersion"], sorted(seen))
        loop = asyncio.get_running_loop()
        if known.basis != basis:
            known.pause = FIRST_RETRY_SECONDS
        elif known.due > loop.time() and get_condition(service, AVAILABLE):
            # Another condition than the last one is that of another server on this store: none overwrites it at once.
            return
        found = obstacle(reference, target, slices)
        offer = known.offer
        if found is None:
            async with self._places:
                found, offer = await self._asked(service, offer)
        is_well = found["status"] == "True"
        if (offer, not is_well) != (known.offer, known.stale) or known.basis is None:
            self.generation += 1
        known.basis, known.offer, known.stale = basis, offer, not is_well
        known.due = loop.time() + (CHECK_SECONDS if is_well else known.pause)
        known.pause = min(known.pause * 2, CHECK_SECONDS)
        await self._tell(service, found)

    async def _asked(self, service: Obj, before: Offer) -> tuple[Obj, Offer]:
        try:
            return PASSED, await ask(self._client, service)
        except DiscoveryFailed as error:
            return condition("False", "FailedDiscoveryCheck", str(error)), before

    async def _tell(self, service: Obj, found: Obj) -> None:
        """Write the condition, unless it is there; of an APIService that leads elsewhere by now, nothing."""
        told = get_condition(service, AVAILABLE) or {}
        if all(told.get(name) == value for name, value in found.items()):
            return

        async def make(live: Obj) -> Obj:
            if live["spec"] != service["spec"]:
                return live
            before = live.get("status") or {}
            conditions = set_condition(before.get("conditions"), found, self._objects.now())
            return {**live, "status": {**before, "conditions": conditions}}

        with suppress_status(404):
            await self._loopback.update(service, make, "status")
        _LOG.info("%s: Available is %s (%s)", service["metadata"]["name"], found["status"], found["reason"])


def is_available(service: Obj) -> bool:
    """Whether requests may go to an APIService."""
    return (get_condition(service, AVAILABLE) or {}).get("status") == "True"
