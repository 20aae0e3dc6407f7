"""IPAddresses of Services, put right where they do not say what the Services do.

Source: kube-apiserver's repair loop of cluster IPs (KEP 1880), as behaviour.
"""

from __future__ import annotations

import logging
from datetime import timedelta

from haru.apiserver.encoding.objects import shared
from haru.apiserver.registry.ip_addresses import MANAGER, ip_addresses
from haru.apiserver.registry.loopback import Loopback
from haru.apiserver.registry.resources import Resource
from haru.apiserver.registry.service_allocations import IP_ADDRESSES, SERVICES
from haru.event_loop import TimeSlice
from haru.kube.errors import StatusError, suppress_status
from haru.kube.meta import Obj
from haru.kube.names import parse_time
from haru.kube.service_networks import addresses_of, ip_address_of, is_managed, service_of
from haru.storage import Record
from haru.storage.reflector import Reflector

_LIFE_ALONE = timedelta(seconds=60)
"""Of an IPAddress whose Service is not there: a server of Kubernetes makes it before the Service."""
_LOG = logging.getLogger("haru.apiserver")


class IPAddressRepair:
    """Puts right what Services and IPAddresses say of each other; a round costs what has changed since the last one.

    Services of older versions have no IPAddress, and clients may delete, change and make some.
    """

    def __init__(self, loopback: Loopback) -> None:
        self._loopback, self._objects = loopback, loopback.objects
        self._holders: dict[str, set[str]] = {}
        """The keys of the Services that have an address."""
        self._changed: set[str] = set()
        """The addresses of what has changed since they were looked at."""
        store = self._objects.store
        self._followed = (
            Reflector(store, SERVICES, self._begin, self._change_service),
            Reflector(store, IP_ADDRESSES, self._begin_addresses, self._change_address),
        )

    async def run(self) -> None:
        """Look at what has changed, and put it right."""
        resource = ip_addresses(self._objects)
        if resource is None:
            return
        for each in self._followed:
            await each.take_in()
        looked, self._changed, work = self._changed, set(), TimeSlice()
        for text in looked:
            await work.shared()
            try:
                done = await self._put_right(resource, text)
            except StatusError as error:
                _LOG.warning("IPAddress %s could not be put right: %s", text, error)
                done = False
            if not done:
                self._changed.add(text)

    async def _put_right(self, resource: Resource, text: str) -> bool:
        """Whether nothing more is to be done about an address."""
        record = await self._objects.record(resource, "", text)
        obj = shared(record) if record is not None else None
        keys = self._holders.get(text, set())
        if not keys:
            return obj is None or not is_managed(obj) or await self._drop(obj)
        if obj is not None:
            owner = service_of(obj)
            if owner is not None and f"{SERVICES}{'/'.join(owner)}" in keys and is_managed(obj):
                return True
            _LOG.warning("IPAddress %s does not say which Service has it: it is made again", text)
            with suppress_status(404):
                await self._loopback.delete(obj)
        service = await self._objects.store.get(min(keys))
        if service is not None:
            await self._loopback.ensure(ip_address_of(text, shared(service)), MANAGER)
        return True

    async def _drop(self, obj: Obj) -> bool:
        """Remove an IPAddress that no Service has."""
        age = self._objects.clock() - parse_time(obj["metadata"]["creationTimestamp"])
        if service_of(obj) is not None and age < _LIFE_ALONE:
            return False
        with suppress_status(404):
            await self._loopback.delete(obj)
        return True

    def _begin(self) -> None:
        self._changed.update(self._holders)
        self._holders.clear()

    def _begin_addresses(self) -> None:
        self._changed.update(self._holders)

    def _change_service(self, old: Record | None, new: Record | None) -> None:
        had, has = (addresses_of(shared(record)) if record is not None else set() for record in (old, new))
        for text in had - has:
            self._holders[text].discard(old.key if old is not None else "")
            if not self._holders[text]:
                del self._holders[text]
        for text in has - had:
            self._holders.setdefault(text, set()).add(new.key if new is not None else "")
        self._changed |= had ^ has

    def _change_address(self, old: Record | None, new: Record | None) -> None:
        record = new or old
        assert record is not None
        self._changed.add(record.key.removeprefix(IP_ADDRESSES))
