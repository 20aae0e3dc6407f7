"""What a reflector tells makes up the store's state, whatever comes between."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from haru.storage.interface import Delete, Put, Record
from haru.storage.memory import MemoryStore
from haru.storage.reflector import Reflector


class Mirror:
    """Holds what it was told; fails on request."""

    def __init__(self, store: MemoryStore) -> None:
        self.store = store
        self.seen: dict[str, bytes] = {}
        self.begun = 0
        self.fails_at = ""
        self.reflector = Reflector(store, "k/", self._begin, self._change)

    def _begin(self) -> None:
        self.begun += 1
        self.seen.clear()

    def _change(self, old: Record | None, new: Record | None) -> None:
        for record in (old, new):
            if record is not None and record.key == self.fails_at:
                raise ValueError(record.key)
        if old is not None:
            assert self.seen.pop(old.key) == old.value
        if new is not None:
            self.seen[new.key] = new.value

    async def holds_all(self) -> bool:
        """Whether it holds the store's state, after it has taken in what was new."""
        await self.reflector.take_in()
        return self.seen == {record.key: record.value for record in (await self.store.range("k/")).records}


@pytest.fixture
async def mirror() -> AsyncIterator[Mirror]:
    store = MemoryStore()
    await store.transact(Put("k/a", b"1"), Put("k/b", b"1"))
    yield Mirror(store)
    await store.stop()


async def test_everything_is_told_once_and_then_changes_alone(mirror: Mirror) -> None:
    assert await mirror.holds_all() and not await mirror.reflector.take_in()
    await mirror.store.transact(Put("k/a", b"2"), Delete("k/b"), Put("k/c", b"1"), Put("other/c", b"1"))
    assert await mirror.holds_all() and mirror.begun == 1


async def test_reader_that_fell_behind_begins_anew(mirror: Mirror) -> None:
    assert await mirror.holds_all()
    for value in (b"2", b"3"):
        await mirror.store.transact(Put("k/a", value))
    await mirror.store.compact(mirror.store.revision)
    assert await mirror.holds_all() and mirror.begun == 2


@pytest.mark.parametrize("at", ["k/b", "k/c"])
async def test_changes_after_one_that_could_not_be_taken_in_are_not_lost(mirror: Mirror, at: str) -> None:
    assert await mirror.holds_all()
    await mirror.store.transact(Put("k/a", b"2"), Put("k/b", b"2"), Put("k/c", b"2"))
    mirror.fails_at = at
    with pytest.raises(ValueError, match=at):
        await mirror.reflector.take_in()
    mirror.fails_at = ""
    assert await mirror.holds_all() and len(mirror.store._watches) == 1
