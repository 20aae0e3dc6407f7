"""A server over a store that tests have filled is no other than one that has begun with nothing."""

from __future__ import annotations

import re

import pytest
from api_caller import Clock, make_config

import begun_store
from haru.storage import SqliteStore

_OWN = re.compile(rb'"uid":"[^"]*"|"holderIdentity":"[^"]*"')


async def state() -> tuple[int, dict[str, tuple[int, bytes]]]:
    """The revision of a store in which a server has just begun, and its records but for what is random."""
    store = SqliteStore(":memory:")
    server = await begun_store.begun(make_config(store, Clock()), store)
    await server.stop()
    records = (record for bucket in store._buckets.values() for record in bucket.records.values())
    return store.revision, {each.key: (each.revision, _OWN.sub(b"", each.value)) for each in records}


async def test_filled_store_has_what_the_first_start_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(begun_store, "_begun", {})
    first, second, third = [await state() for _ in range(3)]
    assert len(first[1]) > 200
    assert second == first and third == first
