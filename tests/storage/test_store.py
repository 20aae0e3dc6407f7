"""The interface of seven calls, the same for every store."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from haru.storage import Compacted, CompareFailed, Delete, FutureRevision, Put, Record, SqliteStore, Store, StoreError
from haru.storage.etcd import EtcdStore, EtcdStoreOptions
from haru.storage.history import SECONDS_PER_WATCHER
from haru.storage.memory import MemoryStore


@pytest.fixture(params=["memory", "file", "etcd"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    """A store without objects; one in etcd starts at the revision that the tests before it have left."""
    store: Store
    if request.param == "etcd":
        store = EtcdStore(
            [request.getfixturevalue("etcd").url],
            EtcdStoreOptions(prefix=f"/tests/{uuid.uuid4()}", compaction_seconds=0),
        )
    else:
        store = SqliteStore(":memory:" if request.param == "memory" else tmp_path / "store.db")
    await store.start()
    yield store
    await store.stop()


async def put(store: Store, key: str, value: bytes = b"v", expected: int | None = None) -> int:
    (event,) = await store.transact(Put(key, value, expected))
    return event.revision


async def test_new_store_is_empty_at_revision_one(store: Store) -> None:
    assert store.revision == 1 or (store.shared and store.revision > 0)
    assert await store.get("pods/a/b") is None
    page = await store.range("pods/")
    assert (list(page.records), page.revision, page.remaining) == ([], store.revision, 0)


async def test_revisions_increment_and_are_stored_in_records(store: Store) -> None:
    base = store.revision
    first, second = await put(store, "pods/a/x"), await put(store, "pods/a/y")
    # In etcd others count too.
    assert base < first < second if store.shared else (first, second) == (base + 1, base + 2)
    record = await store.get("pods/a/y")
    assert record is not None and (record.value, record.revision) == (b"v", second)


async def test_tally_counts_changes_under_its_prefixes(store: Store) -> None:
    tally = store.tally(["pods/a/", "pods/b/", "jobs/"])
    before = tally.count
    await put(store, "nodes/a")
    assert tally.count == before
    await put(store, "pods/c/x")  # another key of the same resource
    await put(store, "jobs/a/x")
    await store.transact(Delete("pods/c/x"))
    assert tally.count == before + 3


async def test_watches_of_one_prefix_share_event_list(store: Store) -> None:
    watches = [store.watch(prefix, store.revision) for prefix in ("pods/a/", "pods/b/", "pods/a/", "pods/")]
    for name in ("a/x", "b/x", "a/y"):
        await put(store, f"pods/{name}")
    first, other, second, all_of_them = (watch.pending() for watch in watches)
    assert [event.key for event in first] == ["pods/a/x", "pods/a/y"] and second is first
    assert [event.key for event in other] == ["pods/b/x"] and len(all_of_them) == 3
    late = store.watch("pods/a/", first[0].revision)
    await put(store, "pods/a/z")
    assert [event.key for event in watches[0].pending()] == ["pods/a/z"]
    assert [event.key for event in late.pending()] == ["pods/a/y", "pods/a/z"]
    assert [event.key for event in watches[2].pending()] == ["pods/a/z"]
    for watch in (*watches, late):
        watch.close()


async def test_watch_wait_uses_each_timeout(store: Store) -> None:
    watch, loop = store.watch("pods/", store.revision), asyncio.get_running_loop()
    for seconds in (0.03, 0.01, 0.03):
        began, woken = loop.time(), 0
        while (left := began + seconds - loop.time()) > 0:
            await watch.wait(left)
            woken += 1
        assert woken <= 50  # the clock of timers may be a little behind
    waiting = asyncio.create_task(watch.wait(600))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])
    async with asyncio.timeout(30):
        await watch.wait(0.01)  # earlier than who has gone meant to wake
    waiting = asyncio.create_task(watch.wait(600))
    await asyncio.sleep(0)
    watch.close()
    async with asyncio.timeout(30):
        await waiting


async def test_revision_is_written_at_the_given_place(store: Store) -> None:
    (event,) = await store.transact(Put("pods/a/x", b'{"rv":""}', 0, place=7))
    assert event.new is not None and event.new.value == b'{"rv":"%d"}' % event.revision
    (event,) = await store.transact(Put("pods/a/y", b'{"rv":"","more":"%s"}' % (b"x" * 20_000), 0, place=7))
    assert event.new is not None and event.new.value.startswith(b'{"rv":"%d","more":"xx' % event.revision)
    assert event.new.head(24) == event.new.value[:24]


@pytest.mark.parametrize(
    ("expected", "exists", "made"),
    [(None, False, True), (None, True, True), (0, False, True), (0, True, False), (1, True, True), (9, True, False)],
)
async def test_compare_succeeds_only_at_expected_revision(
    store: Store, expected: int | None, exists: bool, made: bool
) -> None:
    found = await put(store, "k/x") if exists else 0
    if expected:
        expected = found + expected - 1
    if made:
        await put(store, "k/x", b"new", expected)
        return
    with pytest.raises(CompareFailed) as caught:
        await put(store, "k/x", b"new", expected)
    assert caught.value.actual is not None and caught.value.actual.revision == found


async def test_transaction_is_applied_completely_or_not_at_all(store: Store) -> None:
    first = await put(store, "k/a")
    with pytest.raises(CompareFailed) as caught:
        await store.transact(Put("k/b", b"1", 0), Put("k/a", b"1", first + 7))
    assert caught.value.key == "k/a"
    assert await store.get("k/b") is None
    events = await store.transact(Put("k/b", b"1", 0), Delete("k/a", first))
    # In etcd the changes of one transaction have one revision.
    revisions = [e.revision for e in events]
    assert revisions[0] > first and revisions[1] - revisions[0] == (0 if store.shared else 1)
    assert [(e.key, e.old is None, e.new is None) for e in events] == [("k/b", True, False), ("k/a", False, True)]
    assert await store.get("k/a") is None
    with pytest.raises(ValueError, match="twice"):
        await store.transact(Put("k/b", b"1"), Put("k/b", b"2"))


async def test_deleting_a_missing_key_fails(store: Store) -> None:
    with pytest.raises(CompareFailed):
        await store.transact(Delete("k/none"))


async def test_range_is_ordered_and_stays_within_prefix(store: Store) -> None:
    for key in ("pods/b/1", "pods/a/2", "pods/a/1", "pods/a-b/1", "podsx/a/1"):
        await put(store, key)
    assert [r.key for r in (await store.range("pods/")).records] == ["pods/a-b/1", "pods/a/1", "pods/a/2", "pods/b/1"]
    assert [r.key for r in (await store.range("pods/a/")).records] == ["pods/a/1", "pods/a/2"]
    page = await store.range("pods/", limit=2)
    assert [r.key for r in page.records] == ["pods/a-b/1", "pods/a/1"] and page.remaining == 2
    page = await store.range("pods/", after="pods/a/1", limit=2)
    assert [r.key for r in page.records] == ["pods/a/2", "pods/b/1"] and page.remaining == 0


async def test_old_revisions_are_readable_until_compaction(store: Store) -> None:
    a = await put(store, "k/a", b"1")
    b = await put(store, "k/b", b"1")
    changed = await put(store, "k/a", b"2")
    await store.transact(Delete("k/b"))
    last = await put(store, "k/c", b"1")

    async def at(revision: int) -> dict[str, bytes]:
        return {r.key: r.value for r in (await store.range("k/", revision=revision)).records}

    assert await at(a) == {"k/a": b"1"}
    assert await at(b) == {"k/a": b"1", "k/b": b"1"}
    assert await at(changed) == {"k/a": b"2", "k/b": b"1"}
    assert await at(last) == {"k/a": b"2", "k/c": b"1"}
    page = await store.range("k/", revision=b, limit=1)
    assert page.remaining == 1
    await store.compact(b)
    assert await at(b) == {"k/a": b"1", "k/b": b"1"}
    with pytest.raises(Compacted):
        await at(a)
    with pytest.raises(FutureRevision):
        await at(last + 1_000)
    with pytest.raises(FutureRevision):
        store.watch("k/", last + 1_000)


async def test_pages_of_a_revision_end_after_five_to_ten_minutes_of_writes() -> None:
    now = [0.0]
    store = MemoryStore(clock=lambda: now[0])
    revisions = []
    for minute in (0, 4, 6, 9, 12):
        now[0] = minute * 60.0
        revisions.append(await put(store, f"k/{minute}"))
    watch = store.watch("k/", revisions[0])
    with pytest.raises(Compacted):
        await store.range("k/", revision=revisions[1])
    assert len((await store.range("k/", revision=revisions[2])).records) == 3
    assert len(watch.pending()) == 4


async def test_watch_starts_after_revision_with_old_and_new_values(store: Store) -> None:
    base = store.revision
    a = await put(store, "k/a", b"1")
    watch = store.watch("k/", a)
    assert list(watch.pending()) == []
    changed = await put(store, "k/a", b"2")
    await put(store, "other/a", b"2")
    (deletion,) = await store.transact(Delete("k/a"))
    events = watch.pending()
    assert [(e.key, e.old and e.old.value, e.new and e.new.value) for e in events] == [
        ("k/a", b"1", b"2"),
        ("k/a", b"2", None),
    ]
    assert deletion.revision <= watch.revision <= store.revision
    assert [e.revision for e in store.watch("k/", base).pending()] == [a, changed, deletion.revision]
    assert len(store.watch("k/x/", base).pending()) == 0


async def test_waiting_watch_wakes_for_events_close_and_timeout(store: Store) -> None:
    watch = store.watch("k/", store.revision)
    await asyncio.wait_for(watch.wait(0.01), 20)
    waiting = asyncio.create_task(watch.wait(30))
    await asyncio.sleep(0)
    await put(store, "k/a")
    await asyncio.wait_for(waiting, 20)
    assert len(watch.pending()) == 1
    waiting = asyncio.create_task(watch.wait(30))
    await asyncio.sleep(0)
    watch.close()
    await asyncio.wait_for(waiting, 20)
    assert watch.closed


async def test_lagging_watch_raises_compacted(store: Store) -> None:
    base = store.revision
    watch = store.watch("k/", base)
    await put(store, "k/a")
    await store.compact(store.revision)
    with pytest.raises(Compacted):
        watch.pending()
    with pytest.raises(Compacted):
        store.watch("k/", base)
    assert list(store.watch("k/", store.revision).pending()) == []


async def test_watch_of_a_namespace_outlives_compaction_of_changes_elsewhere(store: Store) -> None:
    """It is not told of those, so it is behind them: what has not missed anything need not begin anew."""
    watch = store.watch("pods/a/", store.revision)
    waiting = asyncio.create_task(watch.wait(30))
    await asyncio.sleep(0)
    for _ in range(3):
        await put(store, "pods/b/x")
    await store.compact(store.revision)
    await put(store, "pods/a/x")
    await asyncio.wait_for(waiting, 20)
    assert [event.key for event in watch.pending()] == ["pods/a/x"]


async def test_history_of_a_resource_that_no_longer_changes_is_cut_while_others_change() -> None:
    now = 1000.0
    store = MemoryStore(clock=lambda: now)
    first = await put(store, "pods/a/x")
    idle = store.watch("pods/b/", store.revision)

    async def read() -> list[str]:
        while not (events := idle.pending()):
            await idle.wait(30)
        return [event.key for event in events]

    reader = asyncio.create_task(read())
    for _ in range(3000):
        await put(store, "pods/a/x")
        await asyncio.sleep(0)
    store.watch("pods/a/", first)
    for minutes in (4, 6, 12):
        now = 1000.0 + 60 * minutes
        await put(store, "leases/a/x")
    with pytest.raises(Compacted):
        store.watch("pods/a/", first)
    assert 900 < len(store.watch("pods/a/", store.revision - 1000).pending()) <= 1000
    await put(store, "pods/b/x")
    assert await asyncio.wait_for(reader, 20) == ["pods/b/x"]


async def test_many_watches_are_woken_in_batches(store: Store) -> None:
    """However fast changes come, each of a hundred readers gets them all, in few pieces."""
    watches = [store.watch("pods/", store.revision) for _ in range(100)]
    rounds = [0] * len(watches)

    async def read(number: int) -> list[str]:
        seen: list[str] = []
        while len(seen) < 60:
            await watches[number].wait(30)
            seen += [event.key for event in watches[number].pending()]
            rounds[number] += 1
        return seen

    began = asyncio.get_running_loop().time()
    readers = [asyncio.create_task(read(number)) for number in range(len(watches))]
    for number in range(60):
        await put(store, f"pods/a/{number}")
    found = await asyncio.gather(*readers)
    seconds = asyncio.get_running_loop().time() - began
    assert all(seen == [f"pods/a/{number}" for number in range(60)] for seen in found)
    assert max(rounds) <= seconds / (len(watches) * SECONDS_PER_WATCHER) + 3


async def test_stopping_store_ends_all_watches(store: Store) -> None:
    watch = store.watch("k/", store.revision)
    waiting = asyncio.create_task(watch.wait(30))
    await asyncio.sleep(0)
    await store.stop()
    await asyncio.wait_for(waiting, 20)


async def test_concurrent_compare_and_put_loses_no_update(store: Store) -> None:
    await put(store, "k/n", b"0")

    async def increment() -> None:
        while True:
            record = await store.get("k/n")
            assert record is not None
            try:
                await put(store, "k/n", b"%d" % (int(record.value) + 1), record.revision)
                return
            except CompareFailed:
                continue

    await asyncio.gather(*(increment() for _ in range(50)))
    record = await store.get("k/n")
    assert record is not None and record.value == b"50"


async def test_large_values_are_compressed_and_read_back(store: Store) -> None:
    value = b'{"a":"%s"}' % (b"x" * 50_000)
    await put(store, "k/big", value)
    record = await store.get("k/big")
    assert record is not None and record.value == value
    assert len(record.stored[0]) < 1_000


async def test_single_server_store_refuses_keys_with_lease(store: Store) -> None:
    if store.shared:
        await store.transact(Put("marks/a", b"1", lives=600))
        return
    with pytest.raises(StoreError, match="only be kept in etcd"):
        await store.transact(Put("marks/a", b"1", lives=600))
    assert await store.get("marks/a") is None


async def test_full_range_is_correct_and_not_changed_later(store: Store) -> None:
    """Whatever was read before, and whoever keeps what was read."""
    kept: list[tuple[list[str], Sequence[Record]]] = []
    for number in range(30):
        if number % 5 == 4:
            await store.transact(Delete(f"k/{number % 3}/{number - 1}"))
        else:
            await put(store, f"k/{(number + 1) % 3}/{number}")
        for prefix in ("k/", "k/0/", "k/1/", *(f"k/{other}/" for other in range(2, 12))):
            page = await store.range(prefix)
            every = (await store.range("k/", limit=100)).records
            assert list(page.records) == [record for record in every if record.key.startswith(prefix)]
            kept.append(([record.key for record in page.records], page.records))
    for keys, records in kept:
        assert [record.key for record in records] == keys, "what was read is not changed afterwards"
