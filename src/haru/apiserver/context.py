"""Hold what every part of one API server needs: store, feature gates, served resources, clock and ids.

This module is below all components (authorizer, admission, aggregation, peers, ...): it imports none of them.
`haru.apiserver.core` adds the components that the handlers of requests use.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, Protocol

from haru.apiserver.config import ServerConfig
from haru.apiserver.encoding.list_cache import ListCache
from haru.apiserver.encoding.objects import decode, shared
from haru.apiserver.registry.resources import Resource, Served
from haru.apiserver.registry.watch_encoder import SharedPieces
from haru.apiserver.request.http import RandomIds
from haru.kube.gates import FeatureGates
from haru.kube.names import format_time
from haru.kube.validation.types import SelectorProblem
from haru.storage import Event, Record, Store, Watch

Obj = dict[str, Any]


class Closable(Protocol):
    """Something that the server closes when it stops."""

    def close(self) -> None:
        """End the stream."""


class ServerContext:
    """Hold the configuration, the store, the served resources, the clock and the open streams of one server."""

    def __init__(self, config: ServerConfig) -> None:
        self.config = config
        self.store: Store = config.store
        self.gates: FeatureGates = config.gates
        self.served = Served(config.gates, config.runtime_config)
        self.clock: Callable[[], datetime] = config.clock
        self.watches: set[Watch] = set()
        self.new_uid = RandomIds().take
        """Returns a fresh UUIDv4."""
        self.encoded_events: list[Event] = []
        """The events that carry their encoded lines, oldest first; the watches maintain the list."""
        self.shared_pieces = SharedPieces()
        """The encoded bytes that watches of the same resource share."""
        self.lists = ListCache()
        """The encoded bytes of collections that clients have listed."""
        self.streams: set[Closable] = set()
        """Open streams that no watch ends."""
        self.stopping = False
        self.listening: tuple[str, int] | None = None
        """The address and port that serve this server, the last one started; the `kubernetes` Service leads there."""

    def follow(self, watch: Watch) -> Watch:
        """Register the watch of a stream; `stop_streams` closes it."""
        if self.stopping:
            watch.close()
        self.watches.add(watch)
        return watch

    def stop_streams(self) -> None:
        """Close every open stream, and each stream that starts later."""
        self.stopping = True
        for each in (*self.watches, *self.streams):
            each.close()
        self.watches = set()

    def now(self) -> str:
        """Return the current time in the format of object metadata."""
        return format_time(self.clock())

    def check_selector(self, expression: str) -> SelectorProblem | None:
        """Return why a CEL device selector does not compile or costs too much; None if it is valid."""
        from haru.cel.selectors import check_selector

        return check_selector(expression, self.gates)

    async def record(self, resource: Resource, namespace: str, name: str) -> Record | None:
        """Return the newest stored version of an object."""
        return await self.store.get(resource.key(namespace, name))

    async def read(self, group: str, plural: str, namespace: str, name: str) -> Obj | None:
        """Return an object in its stored version, decoded afresh: the caller may change it."""
        resource = self.served.find(group, plural)
        record = await self.record(resource, namespace, name) if resource else None
        return decode(record) if record else None

    async def peek(self, group: str, plural: str, namespace: str, name: str) -> Obj | None:
        """Return an object in its stored version, shared: the caller must not change it.

        For small objects that many requests read.
        """
        resource = self.served.find(group, plural)
        record = await self.record(resource, namespace, name) if resource else None
        return shared(record) if record else None

    async def peek_all(self, group: str, plural: str, namespace: str = "") -> list[Obj]:
        """Return all objects of a resource in their stored version, shared: the caller must not change them."""
        resource = self.served.find(group, plural)
        if resource is None:
            return []
        page = await self.store.range(resource.prefix(namespace))
        return [shared(record) for record in page.records]
