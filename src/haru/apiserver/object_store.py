"""Read the objects of one server: the store, the resources that it serves, feature gates, clock and ids.

This module is below all components (authorizer, admission, aggregation, peers, ...): it imports none of them.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import partial

from haru.apiserver.config import ServerConfig
from haru.apiserver.encoding.objects import INDEXED_FIELDS, decode, indexed_field, recent, shared
from haru.apiserver.registry.resources import Resource, Served
from haru.apiserver.registry.service_allocations import ServiceAllocations
from haru.apiserver.request.http import RandomIds
from haru.kube.gates import FeatureGates
from haru.kube.meta import Obj
from haru.kube.names import format_time
from haru.kube.validation.types import SelectorProblem
from haru.storage import Record, Store

_LEASES = ("haru-controllers", "kube-controller-manager")


class ObjectStore:
    """Hold the store, the served resources, the feature gates, the clock and the source of uids."""

    def __init__(self, config: ServerConfig) -> None:
        self.store: Store = config.store
        self.gates: FeatureGates = config.gates
        self.served = Served(config.gates, config.runtime_config)
        self.clock: Callable[[], datetime] = config.clock
        self.service_allocations = ServiceAllocations(config.store)
        self._has_controllers = config.has_controllers
        self.new_uid = RandomIds().take
        """Returns a fresh UUIDv4."""
        for resource in self.served.all():
            if field := INDEXED_FIELDS.get(resource.bucket):
                self.store.index(resource.bucket, partial(indexed_field, resource.stored, field))

    def now(self) -> str:
        """Return the current time in the format of object metadata."""
        return format_time(self.clock())

    def check_selector(self, expression: str) -> SelectorProblem | None:
        """Return why a CEL device selector does not compile or costs too much; None if it is valid."""
        from haru.cel.selectors import check_selector

        return check_selector(expression, self.gates)

    async def has_controllers(self) -> bool:
        """Whether controllers run for this cluster: what only they would undo, or write, is else left out."""
        if self._has_controllers:
            return True
        held = [await self.peek("coordination.k8s.io", "leases", "kube-system", name) for name in _LEASES]
        return any(held)

    async def record(self, resource: Resource, namespace: str, name: str) -> Record | None:
        """Return the newest stored version of an object."""
        return await self.store.get(resource.key(namespace, name))

    async def read(self, group: str, plural: str, namespace: str, name: str) -> Obj | None:
        """Return an object in its stored version, decoded afresh: the caller may change it."""
        resource = self.served.find(group, plural)
        record = await self.record(resource, namespace, name) if resource else None
        return decode(record) if record else None

    async def peek(self, group: str, plural: str, namespace: str, name: str) -> Obj | None:
        """Return an object in its stored version, shared: the caller must not change it."""
        resource = self.served.find(group, plural)
        record = await self.record(resource, namespace, name) if resource else None
        return recent(record) if record else None

    async def peek_all(self, group: str, plural: str, namespace: str = "", *, indexed: str | None = None) -> list[Obj]:
        """Return all objects of a resource in their stored version, shared: the caller must not change them.

        `indexed`: those alone whose indexed field has this value.
        """
        resource = self.served.find(group, plural)
        if resource is None:
            return []
        page = await self.store.range(resource.prefix(namespace), value=indexed)
        return [shared(record) for record in page.records]
