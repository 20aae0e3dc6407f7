"""Stores in which an API server has begun before, with the hundreds of objects that the first start writes.

A thousand tests begin a server of their own, and most of its start are those objects: the first of a test worker writes
them, and each later one finds them at the same revisions, as after a restart.
"""

from __future__ import annotations

from collections.abc import Sequence
from inspect import isfunction
from typing import Any

from haru.apiserver.config import ServerConfig
from haru.apiserver.server import ApiServer
from haru.storage import SqliteStore
from haru.storage.interface import Event, Record

_begun: dict[Any, Sequence[Event]] = {}


def has_begun(config: ServerConfig) -> bool:
    """Whether such a server has begun here."""
    return _key(config) in _begun


def _key(config: ServerConfig) -> Any:
    """What its first objects depend on, the time included."""
    clock = config.clock if isfunction(config.clock) else type(config.clock)
    return config.gates, frozenset(config.runtime_config.items()), clock


async def begun(config: ServerConfig, store: SqliteStore) -> ApiServer:
    """Starts a server over an empty store in memory; its gates, what it serves and its clock are all it has."""
    key = _key(config)
    if known := _begun.get(key):
        _fill(store, known)
    server = ApiServer(config)
    await server.start()
    if not known:
        events = [event for bucket in store._buckets.values() for event in bucket.log]
        _begun[key] = sorted(events, key=lambda event: event.revision)
    return server


def _fill(store: SqliteStore, events: Sequence[Event]) -> None:
    """Makes the same changes at once. What others have derived from them is not taken over."""
    newest: dict[str, Record] = {}
    made = []
    for event in events:
        old, new = newest.pop(event.key, None), None
        if event.new is not None:
            new = newest[event.key] = Record(event.key, event.new.value, event.revision)
            new.pack()
        made.append(Event(event.key, event.revision, old, new))
    store._assigned = events[-1].revision
    store._publish(made)
