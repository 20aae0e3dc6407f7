"""What is acknowledged stays: restarts, kill -9, failing disks, schemas, two processes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from haru.storage import CompareFailed, Delete, Put, Record, SqliteStore, StoreError, sqlite_file, sqlite_writer

WRITER = """
import asyncio, sys
from haru.storage import Put, SqliteStore

async def main():
    store = SqliteStore(sys.argv[1])
    await store.start()
    async def write(who):
        n = 0
        while True:
            (event,) = await store.transact(Put(f"k/{who}-{n}", b"x" * 200))
            print(event.revision, event.key, flush=True)
            n += 1
    await asyncio.gather(*(write(w) for w in range(8)))

asyncio.run(main())
"""


async def test_state_and_revision_survive_restart(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    store = SqliteStore(path)
    await store.start()
    await store.transact(Put("k/a", b"1"))
    await store.transact(Put("k/b", b"y" * 10_000))
    await store.transact(Put("k/c", b"1"))
    await store.transact(Delete("k/c"))
    before = store.revision
    await store.stop()
    again = SqliteStore(path)
    await again.start()
    assert again.revision == before
    assert {r.key: (r.value, r.revision) for r in (await again.range("k/")).records} == {
        "k/a": (b"1", 2),
        "k/b": (b"y" * 10_000, 3),
    }
    again.watch("k/", before)
    (event,) = await again.transact(Put("k/d", b"1"))
    assert event.revision == before + 1
    await again.stop()


@pytest.mark.parametrize("round", range(3))
async def test_acknowledged_writes_survive_sigkill(tmp_path: Path, round: int) -> None:
    path = tmp_path / "store.db"
    process = subprocess.Popen(  # noqa: ASYNC220 - nothing else runs on this loop
        [sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    acknowledged: dict[str, int] = {}
    deadline = time.monotonic() + 20
    for line in process.stdout:
        revision, key = line.split()
        acknowledged[key] = int(revision)
        if len(acknowledged) >= 200 + 37 * round or time.monotonic() > deadline:
            break
    process.send_signal(signal.SIGKILL)
    with process:  # what had been printed before the kill counts as acknowledged
        for line in process.stdout:
            if line.endswith("\n") and len(line.split()) == 2:
                acknowledged[line.split()[1]] = int(line.split()[0])
    store = SqliteStore(path)
    await store.start()
    found = {r.key: r.revision for r in (await store.range("k/")).records}
    await store.stop()
    assert len(acknowledged) >= 200
    assert {key: found.get(key) for key in acknowledged} == acknowledged
    assert store.revision >= max(acknowledged.values())


async def test_failed_commit_is_reported_and_rolled_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = SqliteStore(tmp_path / "store.db")
    await store.start()
    await store.transact(Put("k/a", b"1"))
    real = sqlite_writer.write_group

    def failing(connection: sqlite3.Connection, events: object, sealing: object) -> None:
        time.sleep(0.01)
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(sqlite_writer, "write_group", failing)
    watch = store.watch("k/", store.revision)
    results = await asyncio.gather(
        store.transact(Put("k/a", b"2", 2)),
        store.transact(Put("k/a", b"3", 3)),
        store.transact(Put("k/b", b"1")),
        return_exceptions=True,
    )
    assert [type(r) for r in results] == [StoreError] * 3
    assert "disk is full" in str(results[0])
    record = await store.get("k/a")
    assert record is not None and record.value == b"1"
    assert list(watch.pending()) == []
    monkeypatch.setattr(sqlite_writer, "write_group", real)
    (event,) = await store.transact(Put("k/a", b"4", 2))
    assert [e.revision for e in watch.pending()] == [event.revision]
    await store.stop()


@pytest.mark.parametrize("seed", range(8))
async def test_each_change_follows_from_the_one_before_while_commits_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Nothing is decided upon a change that is about to be taken back: it creates no key twice, deletes none twice."""
    store = SqliteStore(tmp_path / "store.db")
    await store.start()
    real, luck, source = sqlite_writer.write_group, random.Random(seed), random.Random(-1 - seed)

    def flaky(*args: Any) -> None:
        time.sleep(0.001)
        if luck.random() < 0.3:
            raise sqlite3.OperationalError("disk I/O error")
        real(*args)

    async def write() -> None:
        for _ in range(60):
            await asyncio.sleep(source.choice([0, 0, 0.001]))
            key = source.choice(["k/a", "k/b"])
            change = source.choice([Put(key, b"1"), Put(key, b"2", 0), Delete(key)])
            begun = asyncio.ensure_future(store.transact(change))
            await asyncio.sleep(0)
            if source.random() < 0.2:
                time.sleep(0.003)  # noqa: ASYNC251 - what has failed meanwhile is told to a loop that comes late
            with contextlib.suppress(CompareFailed, StoreError):
                await begun

    monkeypatch.setattr(sqlite_writer, "write_group", flaky)
    watch, state = store.watch("k/", store.revision), dict[str, Record | None]()
    await asyncio.wait_for(asyncio.gather(*(write() for _ in range(6))), 60)
    for event in watch.pending():
        assert event.old is state.get(event.key), event
        state[event.key] = event.new
    await store.stop()
    again = SqliteStore(tmp_path / "store.db")
    await again.start()
    for key, record in state.items():
        kept = await again.get(key)
        assert (kept and kept.revision) == (record and record.revision)
    await again.stop()


@pytest.mark.parametrize(
    ("fault", "cure", "text"),
    [
        ("max_page_count = 1", "max_page_count = 100000", "database or disk is full"),
        ("query_only = 1", "query_only = 0", "readonly database"),
    ],
)
async def test_full_or_read_only_disk_fails_writes_until_cured(
    tmp_path: Path, fault: str, cure: str, text: str
) -> None:
    store = SqliteStore(tmp_path / "store.db")
    await store.start()
    await store.transact(Put("k/a", b"1"))
    assert store._writer is not None and not store.failing
    connection = store._writer._connection
    connection.execute(f"PRAGMA {fault}")
    revision = store.revision
    for _ in range(2):
        with pytest.raises(StoreError, match=text):
            await store.transact(Put("k/b", os.urandom(100_000)))
    assert store.failing and store.revision == revision and await store.get("k/b") is None
    connection.execute(f"PRAGMA {cure}")
    await store.transact(Put("k/b", b"2"))
    assert not store.failing
    await store.stop()


@pytest.mark.parametrize("where", [0.0, 0.3, 0.6, 0.97])
async def test_damaged_file_is_refused(tmp_path: Path, where: float) -> None:
    path = tmp_path / "store.db"
    store = SqliteStore(path)
    await store.start()
    await asyncio.gather(*(store.transact(Put(f"k/{i}", b"x" * 300)) for i in range(300)))
    await store.stop()
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(int(size * where) // 4096 * 4096)
        file.write(b"\x5a" * 4096)
    with pytest.raises(StoreError, match=r"store\.db can not be (opened|read): .*; (restore it|is it a store)"):
        await SqliteStore(path).start()


async def test_conflict_with_uncommitted_write_returns_winner(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store.db")
    await store.start()
    first, second = await asyncio.gather(
        store.transact(Put("k/a", b"1", 0)), store.transact(Put("k/a", b"2", 0)), return_exceptions=True
    )
    assert not isinstance(first, BaseException)
    assert isinstance(second, CompareFailed)
    assert second.actual is not None and second.actual.value == b"1"
    await store.stop()


async def test_write_is_visible_only_after_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = SqliteStore(tmp_path / "store.db")
    await store.start()
    real = sqlite_writer.write_group

    def slow(connection: sqlite3.Connection, events: list[object], sealing: object) -> None:
        time.sleep(0.05)
        real(connection, events, sealing)  # type: ignore[arg-type]

    monkeypatch.setattr(sqlite_writer, "write_group", slow)
    watch = store.watch("k/", store.revision)
    writing = asyncio.create_task(store.transact(Put("k/a", b"1")))
    await asyncio.sleep(0.01)
    assert (await store.get("k/a"), list(watch.pending()), store.revision) == (None, [], 1)
    await writing
    assert store.revision == 2 and len(watch.pending()) == 1
    await store.stop()


class Counted:
    """The writer's queue, which notes how many changes are decided when one is put."""

    def __init__(self, store: SqliteStore) -> None:
        assert store._writer is not None
        self._jobs, self._staged = store._writer.jobs, store._staged
        self.get, self.empty = self._jobs.get, self._jobs.empty
        self.decided: list[int] = []

    def put(self, job: object) -> None:
        self.decided.append(len(self._staged))
        self._jobs.put(job)  # type: ignore[arg-type]


async def test_writes_of_one_loop_iteration_share_a_transaction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SqliteStore(tmp_path / "store.db")
    await store.start()
    counted = Counted(store)
    monkeypatch.setattr(store._writer, "jobs", counted)
    await asyncio.gather(*(store.transact(Put(f"k/{number}", b"1")) for number in range(20)))
    assert counted.decided == [20] * 20
    await store.stop()


@pytest.mark.parametrize(("turns", "together"), [((0, 0, 1, 2), True), (range(40), False)], ids=["burst", "stream"])
async def test_commit_waits_for_more_writes_but_not_indefinitely(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, turns: Sequence[int], together: bool
) -> None:
    """As long as each turn of the loop brings more of them; `turns`: in which turn each one comes."""
    store = SqliteStore(tmp_path / "store.db")
    await store.start()
    counted = Counted(store)
    monkeypatch.setattr(store._writer, "jobs", counted)

    async def write(number: int, after: int) -> None:
        for _ in range(after):
            await asyncio.sleep(0)
        await store.transact(Put(f"k/{number}", b"1"))

    await asyncio.gather(*(write(number, after) for number, after in enumerate(turns)))
    assert len(counted.decided) == len(turns)
    assert (counted.decided[0] == len(turns)) == together
    await store.stop()


@pytest.mark.parametrize("ends", ["stop", "snapshot"])
async def test_buffered_writes_are_committed_before_stop_and_snapshot(tmp_path: Path, ends: str) -> None:
    store = SqliteStore(tmp_path / "store.db")
    await store.start()
    writing = asyncio.create_task(store.transact(Put("k/a", b"1")))
    await asyncio.sleep(0)
    assert len(store._gathered) == 1
    if ends == "snapshot":
        await store.snapshot()
    await store.stop()
    assert (await writing)[0].key == "k/a"
    again = SqliteStore(tmp_path / "store.db")
    await again.start()
    assert await again.get("k/a") is not None
    await again.stop()


async def test_cancelled_writer_does_not_roll_back_its_write(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store.db")
    await store.start()
    writing = asyncio.create_task(store.transact(Put("k/a", b"1")))
    await asyncio.sleep(0)
    writing.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await writing
    await store.transact(Put("k/b", b"1"))
    assert await store.get("k/a") is not None
    await store.stop()


async def test_second_process_cannot_open_store(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store.db")
    await store.start()
    with pytest.raises(StoreError, match="open in another process"):
        await SqliteStore(tmp_path / "store.db").start()
    await store.stop()


async def test_newer_schema_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "store.db"
    monkeypatch.setattr(sqlite_file, "SCHEMA", 7)
    store = SqliteStore(path)
    await store.start()
    await store.stop()
    monkeypatch.undo()
    with pytest.raises(StoreError, match="schema 7"):
        await SqliteStore(path).start()


async def test_older_schema_is_backed_up_and_migrated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "store.db"
    store = SqliteStore(path)
    await store.start()
    await store.transact(Put("k/a", b"old"))
    await store.stop()

    def migrate(connection: sqlite3.Connection) -> None:
        connection.execute("UPDATE objects SET value = CAST('new' AS BLOB)")

    monkeypatch.setattr(sqlite_file, "SCHEMA", 3)
    monkeypatch.setitem(sqlite_file.MIGRATIONS, 2, migrate)
    migrated = SqliteStore(path)
    await migrated.start()
    record = await migrated.get("k/a")
    await migrated.stop()
    assert record is not None and record.value == b"new"
    monkeypatch.setattr(sqlite_file, "SCHEMA", 2)
    backup = SqliteStore(f"{path}.schema-2.bak")
    await backup.start()
    record = await backup.get("k/a")
    await backup.stop()
    assert record is not None and record.value == b"old"
    assert open_to_others(tmp_path) == []


def open_to_others(directory: Path) -> list[str]:
    return [file.name for file in directory.iterdir() if file.stat().st_mode & 0o077]


@pytest.mark.parametrize("before", [None, 0o644])
async def test_others_cannot_read_the_file(tmp_path: Path, before: int | None) -> None:
    path = tmp_path / "state.db"
    for _ in range(1 if before is None else 2):
        store = SqliteStore(str(path))
        await store.start()
        assert open_to_others(tmp_path) == []
        await store.stop()
        path.chmod(before or 0o600)


async def test_foreign_file_is_refused_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE t (a)")
        connection.commit()
    with pytest.raises(StoreError, match="something else"):
        await SqliteStore(path).start()
    (tmp_path / "text").write_text("this is not a database, it is a long text" * 50)
    with pytest.raises(StoreError, match="can not be opened"):
        await SqliteStore(tmp_path / "text").start()
    with pytest.raises(StoreError, match="directory"):
        await SqliteStore(tmp_path / "none" / "store.db").start()
