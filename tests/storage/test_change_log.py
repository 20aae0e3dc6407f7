"""The changes of before a restart: whoever followed them goes on where it was, and nothing secret stays behind."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from haru.storage import Compacted, Delete, Put, SqliteStore, change_log, snapshots
from haru.storage.ciphers import AesGcm
from haru.storage.interface import Event
from haru.storage.memory import MemoryStore
from haru.storage.sealing import Sealing

Told = tuple[str, int, tuple[int, bytes] | None, tuple[int, bytes] | None]


def told(events: Sequence[Event]) -> list[Told]:
    """What a watcher sees of changes."""

    def version(record: object) -> tuple[int, bytes] | None:
        return None if record is None else (record.revision, record.value)  # type: ignore[attr-defined]

    return [(event.key, event.revision, version(event.old), version(event.new)) for event in events]


steps = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["k/a", "k/b", "k/c", "l/a"]), st.sampled_from(["put", "put", "large", "delete"])),
        st.just(("", "restart")),
    ),
    max_size=25,
)


@settings(max_examples=60)
@given(steps, st.integers(0, 20))
def test_restarted_store_serves_same_history_as_running_one(listed: list[tuple[str, str]], late: int) -> None:
    async def both(directory: Path) -> None:
        lasting, model = SqliteStore(directory / "store.db"), MemoryStore()
        await lasting.start()
        for number, (key, what) in enumerate(listed):
            if what == "restart":
                await lasting.stop()
                lasting = SqliteStore(directory / "store.db")
                await lasting.start()
                continue
            value = b"%d" % number * (2_000 if what == "large" else 1)
            change = Delete(key) if what == "delete" else Put(key, value)
            if what == "delete" and await model.get(key) is None:
                continue
            await model.transact(change)
            await lasting.transact(change)
        await lasting.stop()
        again = SqliteStore(directory / "store.db")
        await again.start()
        assert again.revision == model.revision
        since = max(1, again.revision - late)
        for prefix in ("k/", "l/", "m/"):
            assert told(again.watch(prefix, since).pending()) == told(model.watch(prefix, since).pending())
            past_page, wanted = await again.range(prefix, revision=since), await model.range(prefix, revision=since)
            assert [(r.key, r.revision, r.value) for r in past_page.records] == [
                (r.key, r.revision, r.value) for r in wanted.records
            ]
        await again.stop()

    with TemporaryDirectory() as directory:
        asyncio.run(both(Path(directory)))


async def test_history_beyond_limit_is_compacted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change_log, "KEPT", 50)
    monkeypatch.setattr(change_log, "TRIM_EVERY", 10)
    path = tmp_path / "store.db"
    store = SqliteStore(path)
    await store.start()
    for number in range(200):
        await store.transact(Put("k/a", b"%d" % number))
    last = store.revision
    await store.stop()
    again = SqliteStore(path)
    await again.start()
    assert [event.revision for event in again.watch("k/", last - 50).pending()] == list(range(last - 49, last + 1))
    with pytest.raises(Compacted):
        again.watch("k/", last - 70)
    await again.stop()


def sealing(*resources: str) -> Sealing:
    return Sealing({name: [AesGcm("key", b"k" * 32)] for name in resources}, "the configuration")


def whole(directory: Path) -> bytes:
    """All files of a directory."""
    return b"".join(file.read_bytes() for file in directory.iterdir())


async def test_encrypted_values_are_not_kept_in_history(tmp_path: Path) -> None:
    """A watch of it begins anew; others go on. What was kept before there was a key is removed."""
    path = tmp_path / "store.db"
    store = SqliteStore(path)
    await store.start()
    for value in (b"plain-one", b"plain-two"):
        await store.transact(Put("secrets/a/b", value))
    await store.stop()
    for number in range(2):
        resources = ("secrets", "configmaps")[: number + 1]
        store = SqliteStore(path, sealing=sealing(*resources)) if number else SqliteStore(path)
        if number:
            # The first provider of the resource would refuse the plain value: write it anew without the store.
            with contextlib.closing(sqlite3.connect(path)) as connection:
                connection.execute("DELETE FROM objects")
                connection.commit()
        await store.start()
        since = store.revision - 1
        await store.transact(Put("pods/a/b", b"%d" % number))
        if number:
            with pytest.raises(Compacted):
                store.watch("secrets/", since)
            with pytest.raises(Compacted):
                store.watch("configmaps/", since)
            assert len(store.watch("pods/", since).pending()) == 2
            await store.transact(Put("secrets/a/c", b"sealed-one"), Put("secrets/a/d", b"x"))
            await store.transact(Put("secrets/a/c", b"sealed-two"))
        await store.stop()
    content = whole(tmp_path)
    assert b"pods/a/b" in content
    assert b"plain-one" not in content and b"plain-two" not in content and b"sealed" not in content
    with contextlib.closing(sqlite3.connect(path)) as connection:
        assert {key for (key,) in connection.execute("SELECT key FROM past")} == {"pods/a/b"}


async def seen_by_watch_after(path: Path, since: int) -> list[str]:
    """The values of the Secrets that a watch from `since` sees of a store that is not encrypted any more."""
    store = SqliteStore(path)
    await store.start()
    try:
        return [event.new.value.decode() for event in store.watch("secrets/", since).pending() if event.new]
    finally:
        await store.stop()


async def test_watch_from_before_encryption_was_given_up_begins_anew(tmp_path: Path) -> None:
    """Of the encrypted time no changes are kept: a watch that went on from there would have missed them."""
    path = tmp_path / "store.db"
    store = SqliteStore(path, sealing=sealing("secrets"))
    await store.start()
    await store.transact(Put("pods/a/b", b"1"))
    before = store.revision
    await store.transact(Put("secrets/a/b", b"one"))
    await store.transact(Delete("secrets/a/b"))
    await store.transact(Put("pods/a/b", b"2"))
    given_up = store.revision
    await store.stop()
    for _ in range(2):
        with pytest.raises(Compacted):
            await seen_by_watch_after(path, before)
    store = SqliteStore(path)
    await store.start()
    assert len(store.watch("pods/", before).pending()) == 1
    await store.transact(Put("secrets/a/c", b"two"))
    await store.stop()
    assert await seen_by_watch_after(path, given_up) == ["two"]
    with pytest.raises(Compacted):
        await seen_by_watch_after(path, before)


async def test_restored_store_has_no_history(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store.db")
    await store.start()
    await store.transact(Put("k/a", b"1"))
    seen = store.revision
    copy = await store.snapshot()
    await store.stop()
    snapshots.restore(copy, tmp_path / "data")
    copy.unlink()
    again = SqliteStore(tmp_path / "data" / snapshots.NAME)
    await again.start()
    with pytest.raises(Compacted):
        again.watch("k/", seen)
    await again.stop()


async def test_store_of_first_schema_gets_history(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    store = SqliteStore(path)
    await store.start()
    await store.transact(Put("k/a", b"1"))
    before = store.revision
    await store.stop()
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("DROP TABLE past")
        connection.execute("UPDATE meta SET value = 1 WHERE name = 'schema'")
        connection.commit()
    for _ in range(2):
        store = SqliteStore(path)
        await store.start()
        with pytest.raises(Compacted):
            store.watch("k/", before - 1)
        await store.transact(Put("k/a", b"2"))
        await store.stop()
    again = SqliteStore(path)
    await again.start()
    assert len(again.watch("k/", before).pending()) == 2
    await again.stop()
