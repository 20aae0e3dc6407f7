"""What the containers of simulated pods reach of the cluster's network: Services and their endpoints, as a watch tells.

They are watched from the first pod on whose containers ask the network, and not before. A change brings those pods back
whose containers have asked for this Service, and may ask again.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Final

from haru.client.api import ApiClient
from haru.client.informer import Informer
from haru.kube.kinds import known_kind
from haru.kube.meta import Obj, key_of, uid_of
from haru.kube.simulated_containers.cluster_network import (
    ClusterNetwork,
    NetworkMemory,
    PodNetwork,
    asks_network,
    has_asked,
    pod_network,
    service_of,
)

SERVICES: Final = known_kind("v1", "Service")
ENDPOINT_SLICES: Final = known_kind("discovery.k8s.io/v1", "EndpointSlice")
_LOOK_SECONDS, _LOOKS = 0.2, 25
"""How often it is looked whether the first list is there; to a pod that begins before it nothing is known."""


@dataclass(slots=True)
class _Asking:
    """A pod whose containers ask: its key, for which Services, and what they have found."""

    key: str
    services: set[str] = field(default_factory=set)
    memory: NetworkMemory = field(default_factory=NetworkMemory)


class NodeNetwork:
    """The network of all nodes. `tell` is told the keys of pods that something may have changed for."""

    def __init__(
        self, client: ApiClient, pods: Informer, now: Callable[[], datetime], tell: Callable[[str], None]
    ) -> None:
        self._pods, self._now, self._tell = pods, now, tell
        self._services, self._slices = Informer(client, SERVICES), Informer(client, ENDPOINT_SLICES)
        for informer, changed in ((self._services, self._service_changed), (self._slices, self._slice_changed)):
            informer.add_handler(changed, _of_new(changed), changed)
        self._cluster = ClusterNetwork(self._services, pods, self._slices)
        self._asking: dict[str, _Asking] = {}
        self._askers: dict[str, set[str]] = {}
        """The uids of those who have asked for a Service."""
        self._is_wanted = asyncio.Event()

    @property
    def informers(self) -> tuple[Informer, ...]:
        """Those of Services and EndpointSlices, which run once a pod asks."""
        return self._services, self._slices

    async def run(self) -> None:
        """Watch, once it is wanted, until cancelled."""
        await self._is_wanted.wait()
        async with asyncio.TaskGroup() as group:
            for informer in self.informers:
                group.create_task(informer.run(), name=f"simulated-kubelet {informer.kind.plural}")

    def askers_of(self, service: str) -> set[str]:
        """The uids of the pods that are looked at again when this Service changes."""
        return self._askers.get(service, set())

    def forget(self, uid: str) -> None:
        """The pod has ended."""
        self._is_told_no_more(uid)
        self._asking.pop(uid, None)

    def _is_told_no_more(self, uid: str) -> None:
        asking = self._asking.get(uid)
        for service in asking.services if asking is not None else ():
            askers = self._askers[service]
            askers.discard(uid)
            if not askers:
                del self._askers[service]
        if asking is not None:
            asking.services.clear()

    async def of(self, pod: Obj) -> PodNetwork | None:
        """The network as the pod's containers see it; None if none asks, or nothing is known of it."""
        if not asks_network(pod):
            return None
        self._is_wanted.set()
        if not await self._is_known():
            return None
        uid = uid_of(pod)
        asking = self._asking.setdefault(uid, _Asking(key_of(pod)))
        asking.memory.asked = partial(self._note, uid)
        if has_asked(pod):
            self._is_told_no_more(uid)
            asking.memory.asked = _nobody
        return pod_network(self._cluster, pod, self._now(), asking.memory)

    def _note(self, uid: str, service: str) -> None:
        if (asking := self._asking.get(uid)) is not None:
            asking.services.add(service)
            self._askers.setdefault(service, set()).add(uid)

    async def _is_known(self) -> bool:
        for _ in range(_LOOKS):
            waiting = [informer for informer in self.informers if not informer.has_synced]
            if not waiting or any(informer.interrupted for informer in waiting):
                return not waiting
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_SECONDS):
                    await waiting[0].wait_synced()
        return False

    def _service_changed(self, service: Obj) -> None:
        self._tell_askers(key_of(service))

    def _slice_changed(self, endpoint_slice: Obj) -> None:
        for service in service_of(endpoint_slice):
            self._tell_askers(service)

    def _tell_askers(self, service: str) -> None:
        for uid in self._askers.get(service, ()):
            self._tell(self._asking[uid].key)


def _of_new(changed: Callable[[Obj], None]) -> Callable[[Obj, Obj], None]:
    return lambda old, new: changed(new)


def _nobody(service: str) -> None:
    """All that is asked has been asked."""
