"""Snapshots of the embedded store: made under load, whole, told from damaged ones, and put in place or not at all."""

from __future__ import annotations

import asyncio
import os
import queue
import signal
import sqlite3
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from haru.storage import Compacted, Put, SqliteStore, StoreError, snapshots, sqlite_file, sqlite_writer
from haru.storage.memory import MemoryStore

SECONDS = 60.0


async def store_at(path: Path, count: int = 0, size: int = 10) -> SqliteStore:
    store = SqliteStore(path)
    await store.start()
    await asyncio.gather(*(store.transact(Put(f"k/{n:05}", os.urandom(size))) for n in range(count)))
    return store


def remove(path: Path) -> None:
    path.unlink()


def names(directory: Path, pattern: str = "*") -> list[str]:
    return sorted(entry.name for entry in directory.glob(pattern))


async def content(directory: Path) -> dict[str, tuple[int, bytes]]:
    """What a store over a restored directory has."""
    store = SqliteStore(directory / snapshots.NAME)
    await store.start()
    found = {record.key: (record.revision, record.value) for record in (await store.range("k/")).records}
    await store.stop()
    return found


class Held:
    """The writer's queue, which lets a copy go on only when something has come between its steps, `least` times."""

    def __init__(self, jobs: queue.SimpleQueue[Any], least: int) -> None:
        self._jobs, self._left, self._taken = jobs, least, False
        self.put = jobs.put

    def get(self) -> Any:
        self._taken = True
        return self._jobs.get()

    def empty(self) -> bool:
        """Asked after each job, and between the steps of a copy."""
        between, self._taken = not self._taken, False
        until = time.monotonic() + SECONDS
        while between and self._left and self._jobs.empty() and time.monotonic() < until:
            time.sleep(0.001)
        self._left -= between and self._left > 0
        return self._jobs.empty()


def hold_copies(store: SqliteStore, monkeypatch: pytest.MonkeyPatch, least: int) -> None:
    """Whatever the speed of the machine, so many changes come while a copy is made."""
    assert store._writer is not None
    monkeypatch.setattr(store._writer, "jobs", Held(store._writer.jobs, least))


@pytest.fixture
async def good(tmp_path: Path) -> Path:
    """A snapshot of 200 objects."""
    store = await store_at(tmp_path / "source.db", 200, 1000)
    path = await store.snapshot()
    await store.stop()
    return path.rename(tmp_path / "good.snapshot")


async def test_snapshot_can_be_restored(tmp_path: Path) -> None:
    store = await store_at(tmp_path / "source.db", 200)
    path = await store.snapshot()
    wanted = {record.key: (record.revision, record.value) for record in (await store.range("k/")).records}
    await store.stop()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    found = snapshots.check(path)
    assert (found.revision, found.objects, found.size) == (201, 200, path.stat().st_size)
    target = tmp_path / "new" / "data"
    assert snapshots.restore(path, target) == found
    assert names(target) == [snapshots.NAME]
    assert await content(target) == wanted


async def test_restored_store_continues_above_given_revision(good: Path, tmp_path: Path) -> None:
    snapshots.restore(good, tmp_path / "data", 5_000)
    store = SqliteStore(tmp_path / "data" / snapshots.NAME)
    await store.start()
    assert store.revision == 5_201
    with pytest.raises(Compacted):
        store.watch("k/", 250)  # seen by a client of the lost time
    (event,) = await store.transact(Put("k/new", b"1"))
    assert event.revision == 5_202
    await store.stop()


async def test_snapshot_under_load_is_consistent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = await store_at(tmp_path / "source.db", 400, 4_000)
    monkeypatch.setattr(sqlite_writer, "PAGES_A_STEP", 4)
    hold_copies(store, monkeypatch, 5)
    acknowledged: list[int] = [0, 0, 0]
    ending = False
    first = asyncio.Event()

    async def write(lane: int) -> None:
        while not ending:
            number = acknowledged[lane] + 1
            await store.transact(
                Put(f"k/lane-{lane}-{number:06}", b"%d" % number), Put(f"k/last-{lane}", b"%d" % number)
            )
            acknowledged[lane] = number
            first.set()

    writers = [asyncio.create_task(write(lane)) for lane in range(3)]
    await asyncio.wait_for(first.wait(), SECONDS)
    before = list(acknowledged)
    path = await asyncio.wait_for(store.snapshot(), SECONDS)
    after = [number + 1 for number in acknowledged]
    ending = True
    await asyncio.gather(*writers)
    await store.stop()
    assert sum(after) - 3 > sum(before), "nobody wrote while the copy was made: this shows nothing"
    snapshots.restore(path, tmp_path / "data")
    found = await content(tmp_path / "data")
    revision = snapshots.check(path).revision
    assert max(at for at, _ in found.values()) == revision, "the counter is that of the newest object"
    for lane in range(3):
        last = int(found[f"k/last-{lane}"][1]) if f"k/last-{lane}" in found else 0
        assert before[lane] <= last <= after[lane]
        numbers = sorted(int(key[-6:]) for key in found if key.startswith(f"k/lane-{lane}-"))
        assert numbers == list(range(1, last + 1)), (
            "a transaction is in the copy whole or not at all, and none is missing"
        )


async def test_writes_are_acknowledged_during_snapshot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = await store_at(tmp_path / "source.db", 100, 1_000)
    monkeypatch.setattr(sqlite_writer, "PAGES_A_STEP", 1)
    hold_copies(store, monkeypatch, 5)
    copying = asyncio.create_task(store.snapshot())
    during = 0
    while not copying.done():
        await asyncio.wait_for(store.transact(Put("k/x", b"%d" % during)), SECONDS)
        during += not copying.done()
    remove(await copying)
    assert during > 1
    await store.stop()


async def test_only_one_snapshot_runs_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = await store_at(tmp_path / "source.db", 400, 4_000)
    monkeypatch.setattr(sqlite_writer, "PAGES_A_STEP", 1)
    results = await asyncio.gather(store.snapshot(), store.snapshot(), return_exceptions=True)
    made = [result for result in results if isinstance(result, Path)]
    assert made
    for result in results:
        assert isinstance(result, Path) or "another copy of the store is being made" in str(result)
    await store.stop()
    for path in made:
        remove(path)
    assert names(tmp_path, "*copy*") == []


async def test_stopping_store_cancels_snapshot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = await store_at(tmp_path / "source.db", 400, 4_000)
    monkeypatch.setattr(sqlite_writer, "PAGES_A_STEP", 1)
    copying = asyncio.create_task(store.snapshot())
    await asyncio.sleep(0)
    last = asyncio.create_task(store.transact(Put("k/last", b"1")))
    await asyncio.sleep(0)
    await asyncio.wait_for(store.stop(), SECONDS)
    await last
    try:
        remove(await copying)
    except StoreError as error:
        assert "is being closed" in str(error)
    assert names(tmp_path, "*copy*") == []
    again = await store_at(tmp_path / "source.db")
    assert await again.get("k/last") is not None
    await again.stop()


async def test_file_of_killed_snapshot_is_removed(tmp_path: Path) -> None:
    (tmp_path / f"source.db{sqlite_file.COPY_SUFFIX}123").write_text("half a copy")
    store = await store_at(tmp_path / "source.db")
    assert names(tmp_path, "*copy*") == []
    await store.stop()


async def test_store_without_file_refuses_snapshot() -> None:
    for store in (MemoryStore(), SqliteStore(":memory:")):
        await store.start()
        with pytest.raises(StoreError, match=r"no file|not in a file"):
            await store.snapshot()
        await store.stop()


@pytest.mark.parametrize("damage", ["flipped", "cut", "cut within the digest", "longer", "text", "empty", "digest"])
def test_damaged_snapshot_is_refused(good: Path, tmp_path: Path, damage: str) -> None:
    data = bytearray(good.read_bytes())
    if damage == "flipped":
        data[len(data) // 2] ^= 1
    elif damage == "digest":
        data[-1] ^= 1
    else:
        cuts = {"cut": data[: len(data) // 2], "cut within the digest": data[:-5], "longer": data + b"x"}
        data = {**cuts, "text": bytearray(b"this is no snapshot at all" * 9), "empty": bytearray()}[damage]
    bad = tmp_path / "bad.snapshot"
    bad.write_bytes(data)
    for use in (lambda: snapshots.check(bad), lambda: snapshots.restore(bad, tmp_path / "data")):
        with pytest.raises(StoreError, match=r"bad\.snapshot is (damaged or cut short|no snapshot of haru's)"):
            use()
    assert names(tmp_path / "data") == []


def test_snapshot_of_damaged_database_is_refused(good: Path, tmp_path: Path) -> None:
    # The digest is right, the database is not: made of a file that was already broken.
    bad = tmp_path / "bad.db"
    data = bytearray(good.read_bytes()[: -snapshots.DIGEST_BYTES])
    data[8192:12288] = b"\x5a" * 4096
    bad.write_bytes(data)
    with pytest.raises(StoreError, match=r"damaged|can not be read"):
        snapshots.complete(bad)


def test_foreign_database_and_newer_schema_are_refused(good: Path, tmp_path: Path) -> None:
    newer, other = tmp_path / "newer.db", tmp_path / "other.db"
    newer.write_bytes(good.read_bytes()[: -snapshots.DIGEST_BYTES])
    with sqlite3.connect(newer) as connection:
        connection.execute("UPDATE meta SET value = 9 WHERE name = 'schema'")
    connection.close()
    with pytest.raises(StoreError, match="has schema 9"):
        snapshots.complete(newer)
    with sqlite3.connect(other) as connection:
        connection.execute("CREATE TABLE t (a)")
    connection.close()
    with pytest.raises(StoreError, match="can not be read"):
        snapshots.complete(other)


@pytest.mark.parametrize("name", ["state.db", "state.db-wal", "anything"])
def test_restore_into_non_empty_directory_is_refused(good: Path, tmp_path: Path, name: str) -> None:
    target = tmp_path / "data"
    target.mkdir()
    (target / name).write_text("precious")
    with pytest.raises(StoreError, match=rf"is not empty \(it has {name}\): name a directory that is, or a new one"):
        snapshots.restore(good, target)
    assert names(target) == [name] and (target / name).read_text() == "precious"


KILLED = """
import os, signal, sys
from pathlib import Path
from haru.storage import snapshots
real, left = os.fsync, int(sys.argv[3])
def fsync(descriptor):
    global left
    left -= 1
    if left < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    real(descriptor)
os.fsync = fsync
def rename(self, target):
    fsync(0) if left == 0 else None
    return os.rename(self, target)
Path.rename = rename
snapshots.restore(Path(sys.argv[1]), Path(sys.argv[2]))
"""


@pytest.mark.parametrize("syncs", [0, 1])
async def test_killed_restore_can_be_repeated(good: Path, tmp_path: Path, syncs: int) -> None:
    target = tmp_path / "data"
    command = [sys.executable, "-c", KILLED, str(good), str(target), str(syncs)]
    ended = subprocess.run(command, capture_output=True, check=False, timeout=SECONDS)  # noqa: ASYNC221
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    # Without a state, or with a whole one; never with a part of one.
    left = names(target)
    assert left and snapshots.NAME not in left
    snapshots.restore(good, target)
    assert len(await content(target)) == 200
