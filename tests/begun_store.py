"""Stores in which an API server has begun before, with the hundreds of objects that the first start writes.

A thousand tests begin a server of their own, and most of its start are those objects: the first of a test worker writes
them, and each later one finds them at the same revisions, as after a restart.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from haru.apiserver.config import ServerConfig
from haru.apiserver.server import ApiServer
from haru.storage import SqliteStore
from haru.storage.interface import Event, Record

_begun: dict[Any, Sequence[Event]] = {}


async def begun(config: ServerConfig, store: SqliteStore) -> ApiServer:
    """Starts a server over an empty store in memory; all that distinguishes it is its gates and what it serves."""
    key = (config.gates, frozenset(config.runtime_config.items()))
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
