"""The embedded store: SQLite in WAL mode with full synchronisation, and a writer thread that commits in groups.

State and recent changes are loaded into memory at start and served from there; SQLite is the durable copy.
Transactions are decided on the event loop and handed to the writer together, once the requests that lie ready have been
looked at; the writer commits all that have gathered while the disk was busy with the commit before: one fsync for many
writers. Only then are they published and acknowledged.

Values of resources that are to be encrypted are sealed when they are written and opened when the state is loaded; then
what is overwritten or deleted is wiped, too.

The file is held exclusively: two servers over one file would each decide on half of the truth. It carries a schema
number; a newer one is refused, an older one is copied aside and then migrated.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import sqlite3
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from haru.storage import past
from haru.storage.ciphers import SealError
from haru.storage.history import Bucket, bucket_of
from haru.storage.interface import Delete, Event, Put, Record, StoreError
from haru.storage.memory import MemoryStore
from haru.storage.sealing import KEYS_SECONDS, Sealing, no_sealing
from haru.storage.snapshots import complete, new_private_file

SCHEMA = 2
MIGRATIONS: dict[int, Callable[[sqlite3.Connection], None]] = {1: past.create}
"""From a schema number to what makes it the next one."""

GROUP_AT_MOST = 500
TURNS_AT_MOST = 8
"""Turns of the loop that a change waits for others at most, as long as each brings more; a lone one waits for one."""
PAGES_A_STEP = 256
COPY_SUFFIX = ".copy-"
ROWS_A_STATEMENT = 100


class _Superseded(Exception):
    """A change was decided upon one that has failed since."""


class _Stopped(Exception):
    """The store is closed while a copy of it is made."""


@dataclass(slots=True, eq=False)
class _Copy:
    """A copy that is wanted at `path`, of all that was handed to the writer before, and who waits for it."""

    path: Path
    done: asyncio.Future[None]


class _Purge:
    """What is sealed by now is to be forgotten of the past, in which values are plain."""


@dataclass(slots=True, eq=False)
class _Batch:
    """The events of one transaction, who waits for them, and after how many failures it was decided."""

    events: Sequence[Event]
    done: asyncio.Future[None]
    failures: int


class SqliteStore(MemoryStore):
    """A store in one SQLite file, or in memory only for the path `:memory:` (of which nothing is at rest)."""

    def __init__(
        self, path: str | Path, *, clock: Callable[[], float] = time.monotonic, sealing: Sealing | None = None
    ) -> None:
        super().__init__(clock=clock)
        self._path = str(path)
        self._sealing = sealing or no_sealing()
        self._wipes = sealing is not None
        self._writer: _Writer | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._last: asyncio.Future[None] | None = None
        self._gathered: list[_Batch] = []  # decided, and yet to be handed to the writer
        self._failures = 0  # failed commits that are known here: staged changes of theirs have been taken back
        self._loaded = 0

    async def start(self) -> None:
        """Open the file, load the state and start the writer."""
        if self._path == ":memory:":
            return
        self._loop = asyncio.get_running_loop()
        connection = open_database(self._path)
        remove_left_copies(self._path)
        try:
            await self._open(connection)
        except BaseException:
            connection.close()
            await self._sealing.stop()
            raise
        self._writer = _Writer(connection, self._sealing, self._finished_soon)
        self._writer.start()

    async def stop(self) -> None:
        """Commit what is queued, end all watches and close the file."""
        if self._writer is not None:
            self._hand_over()
            writer, self._writer = self._writer, None
            writer.jobs.put(None)
            await asyncio.to_thread(writer.join)
            if self._last is not None and not self._last.done():
                await asyncio.wait([self._last])
        await self._sealing.stop()
        await super().stop()

    async def _open(self, connection: sqlite3.Connection) -> None:
        try:
            if self._wipes:
                connection.execute("PRAGMA secure_delete = ON")
            await self._get_keys(connection)
            self._load(connection)
        except sqlite3.Error as error:
            raise StoreError(f"store {self._path} can not be read: {error}; restore it from a backup") from error
        except SealError as error:
            raise SealError(f"store {self._path}: {error}") from None

    async def _get_keys(self, connection: sqlite3.Connection) -> None:
        """Ask those who have keys for what is needed to open what is kept."""
        self._sealing.changed = self._make_stale
        await self._sealing.start()
        if self._sealing.outside:
            rows = connection.execute("SELECT key, value FROM objects")
            await self._sealing.prepare(((bucket_of(key), value) for key, value in rows), KEYS_SECONDS)

    def _load(self, connection: sqlite3.Connection) -> None:
        for key, revision, packed, value in connection.execute(
            "SELECT key, revision, packed, value FROM objects ORDER BY key"
        ):
            resource = bucket_of(key)
            data, stale = self._sealing.open(resource, path_of(key), value)
            self._bucket(resource).put(Record(key, data, revision, packed=bool(packed), stale=stale))
        (revision,) = connection.execute("SELECT value FROM meta WHERE name = 'revision'").fetchone()
        self._revision = self._assigned = self._loaded = max(1, revision)
        self._recall(connection)

    def _recall(self, connection: sqlite3.Connection) -> None:
        """The changes of before, so that whoever followed them goes on."""

        def newest(key: str) -> Record | None:
            return self._bucket(bucket_of(key)).records.get(key)

        self._compacted, events = past.recall(connection, self._loaded, newest, self._leaves_no_past)
        for name, bucket in self._buckets.items():
            bucket.compacted = self._loaded if self._sealing.ciphers(name) else self._compacted
        now = self._clock()
        for event in events:
            event.at = now
            self._bucket(bucket_of(event.key)).log.append(event)

    def _make_stale(self, is_meant: Callable[[str], bool]) -> None:
        super()._make_stale(is_meant)
        if self._writer is not None:
            self._hand_over()
            self._writer.jobs.put(_Purge())

    def _leaves_no_past(self, key: str) -> bool:
        return bool(self._sealing.ciphers(bucket_of(key)))

    def _bucket(self, name: str) -> Bucket:
        is_new = name not in self._buckets
        bucket = super()._bucket(name)
        if is_new and self._sealing.ciphers(name):
            bucket.compacted = max(bucket.compacted, self._loaded)
        return bucket

    async def transact(self, *operations: Put | Delete) -> Sequence[Event]:
        """Make all changes or none; SealError where a value may not be sealed now."""
        if self._path != ":memory:":
            for operation in operations:
                if isinstance(operation, Put):
                    self._sealing.check(bucket_of(operation.key))
        return await super().transact(*operations)

    async def _commit(self, events: Sequence[Event]) -> None:
        if self._path == ":memory:":
            await super()._commit(events)
            return
        if self._writer is None or self._loop is None:
            for event in events:
                self._unstage(event)
            raise StoreError(f"store {self._path} is not open")
        batch = _Batch(events, self._loop.create_future(), self._failures)
        self._last = batch.done
        if not self._gathered:
            self._loop.call_soon(self._gather, 1, TURNS_AT_MOST)
        self._gathered.append(batch)
        # Shielded: a caller that goes away must not make others believe that its change was not made.
        await asyncio.shield(batch.done)

    def _gather(self, known: int, turns: int) -> None:
        """Hand over what is decided, unless the last turn of the loop has brought more than was `known` before it."""
        if self._loop is not None and turns > 1 and len(self._gathered) > known:
            self._loop.call_soon(self._gather, len(self._gathered), turns - 1)
        else:
            self._hand_over()

    def _hand_over(self) -> None:
        """Give the writer what has gathered. A thread that is woken for each change takes the loop's time."""
        if self._writer is not None:
            for batch in self._gathered:
                self._writer.jobs.put(batch)
            self._gathered = []

    async def snapshot(self) -> Path:
        """A new file with a snapshot (`haru.storage.snapshots`), made while changes go on, which the caller removes."""
        if self._writer is None or self._loop is None:
            raise StoreError(f"store {self._path} has no file that could be copied, or is not open")
        path = Path(f"{self._path}{COPY_SUFFIX}{uuid.uuid4()}")
        copy = _Copy(path, self._loop.create_future())
        try:
            new_private_file(path)
            self._hand_over()
            self._writer.jobs.put(copy)
            await copy.done
            await asyncio.to_thread(complete, path)
        except BaseException as error:
            _remove(path)
            if isinstance(error, OSError | sqlite3.Error):
                raise StoreError(f"store {self._path} can not be copied: {error}") from error
            raise
        return path

    async def _settled(self, key: str) -> None:
        while key in self._staged and self._last is not None and not self._last.done():
            await asyncio.wait([self._last])

    def _finished_soon(self, group: list[_Batch], error: Exception | None) -> None:
        assert self._loop is not None
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(self._finished, group, error)

    def _finished(self, group: list[_Batch], error: Exception | None) -> None:
        if not isinstance(error, _Superseded):
            self.failing = error is not None
        if error is None:
            self._publish([event for batch in group for event in batch.events])
            for batch in group:
                if not batch.done.done():
                    batch.done.set_result(None)
            return
        if not isinstance(error, _Superseded):
            self._failures += 1
        failure = StoreError(
            f"store {self._path} could not make a change durable: {error}; "
            "see that the disk has room and that the file may be written"
        )
        for batch in group:
            for event in batch.events:
                self._unstage(event)
            batch.done.set_exception(failure)
            batch.done.exception()  # retrieved: a caller that has gone away is no fault


class _Writer(threading.Thread):
    """Owns the connection; commits groups of batches in the order in which they were decided."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        sealing: Sealing,
        finished: Callable[[list[_Batch], Exception | None], None],
    ) -> None:
        super().__init__(name="haru-store-writer", daemon=True)
        self.jobs: queue.SimpleQueue[_Batch | _Copy | _Purge | None] = queue.SimpleQueue()
        self._connection = connection
        self._sealing = sealing
        self._finished = finished
        self._failures = 0

    def run(self) -> None:
        """Commit until told to stop."""
        try:
            while True:
                self._turn(self.jobs.get())
        except _Stopped:
            self._connection.close()

    def _turn(self, job: _Batch | _Copy | _Purge | None, *, copying: bool = False) -> None:
        """Do a job and those that have gathered behind it. Raises _Stopped once told to stop."""
        group: list[_Batch] = []
        while True:
            if not isinstance(job, _Batch) or (group and job.failures != group[0].failures):
                if group:
                    self._write(group)
                group = []
            if job is None:
                raise _Stopped
            if isinstance(job, _Batch):
                group.append(job)
            elif isinstance(job, _Purge):
                self._purge()
            elif copying:
                _tell(job, StoreError("another copy of the store is being made: try again when it is done"))
            else:
                self._copy(job)
            if len(group) >= GROUP_AT_MOST or self.jobs.empty():
                break
            job = self.jobs.get()
        if group:
            self._write(group)

    def _purge(self) -> None:
        # One that fails is made up for by the next start.
        with contextlib.suppress(sqlite3.Error):
            past.leave_out(self._connection, lambda key: bool(self._sealing.ciphers(bucket_of(key))))

    def _copy(self, job: _Copy) -> None:
        """Copy the database in steps. Between them goes on what has gathered: SQLite takes it into the copy as well."""

        def between(*_: int) -> None:
            while not self.jobs.empty():
                self._turn(self.jobs.get(), copying=True)

        try:
            with contextlib.closing(sqlite3.connect(job.path, check_same_thread=False)) as target:
                self._connection.backup(target, pages=PAGES_A_STEP, progress=between, sleep=0)
        except _Stopped:
            _tell(job, StoreError("the store is being closed"))
            raise
        except Exception as error:
            _tell(job, error)
        else:
            _tell(job, None)

    def _write(self, group: list[_Batch]) -> None:
        error: Exception | None = None
        try:
            if group[0].failures < self._failures:
                raise _Superseded("a change before it failed")
            write_group(self._connection, [event for batch in group for event in batch.events], self._sealing)
        except _Superseded as failure:
            error = failure
        except Exception as failure:
            error = failure
            self._failures += 1
            with contextlib.suppress(sqlite3.Error):
                self._connection.execute("ROLLBACK")
        self._finished(group, error)


def _tell(copy: _Copy, error: Exception | None) -> None:
    """Tell who waits for a copy, from the writer's thread."""

    def settle() -> None:
        if copy.done.done():
            return
        if error is None:
            copy.done.set_result(None)
        else:
            copy.done.set_exception(error)

    with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
        copy.done.get_loop().call_soon_threadsafe(settle)


def path_of(key: str) -> str:
    """Where kube-apiserver would keep a key in etcd; authenticated with what is encrypted."""
    return f"/registry/{key}"


def write_group(connection: sqlite3.Connection, events: Sequence[Event], sealing: Sealing) -> None:
    """One SQLite transaction: the last version of every key, and the counter.

    Rows go in few statements: each statement is a point at which this thread gives up the interpreter and has to
    queue for it again, behind an event loop that may be busy.
    """
    final: dict[str, Event] = {}
    for event in events:
        if event.new is not None:
            event.new.pack()
        final[event.key] = event
    puts = [e.new for e in final.values() if e.new is not None]
    gone = [e.key for e in final.values() if e.new is None]
    connection.execute("BEGIN IMMEDIATE")
    for start in range(0, len(puts), ROWS_A_STATEMENT):
        rows = puts[start : start + ROWS_A_STATEMENT]
        values: list[object] = []
        for record in rows:
            data, packed = record.stored
            kept = sealing.seal(bucket_of(record.key), path_of(record.key), data)
            values += (record.key, record.revision, packed, kept)
        marks = ",".join(["(?,?,?,?)"] * len(rows))
        connection.execute(f"INSERT OR REPLACE INTO objects (key, revision, packed, value) VALUES {marks}", values)
    for start in range(0, len(gone), ROWS_A_STATEMENT):
        keys = gone[start : start + ROWS_A_STATEMENT]
        connection.execute(f"DELETE FROM objects WHERE key IN ({','.join('?' * len(keys))})", keys)
    past.append(connection, events, lambda key: bool(sealing.ciphers(bucket_of(key))))
    connection.execute("UPDATE meta SET value = ? WHERE name = 'revision'", (events[-1].revision,))
    connection.execute("COMMIT")


def open_database(path: str) -> sqlite3.Connection:
    """The connection, exclusively held, with the tables of the current schema."""
    try:
        connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=1.0)
    except sqlite3.Error as error:
        raise StoreError(f"store {path} can not be opened: {error}; check that the directory can be written") from error
    try:
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("BEGIN EXCLUSIVE")  # takes the lock, which this locking mode keeps after the commit
        connection.execute("COMMIT")
        _prepare(connection, path)
    except sqlite3.Error as error:
        connection.close()
        if "locked" in str(error):
            raise StoreError(f"store {path} is open in another process; stop that one first") from error
        strange = any(text in str(error) for text in ("not a database", "malformed"))
        remedy = (
            "is it a store of Haru's?" if strange else "see that the disk has room and that the file may be written"
        )
        raise StoreError(f"store {path} can not be opened: {error}; {remedy}") from error
    except StoreError:
        connection.close()
        raise
    return connection


def _prepare(connection: sqlite3.Connection, path: str) -> None:
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if not tables:
        connection.execute("BEGIN")
        connection.execute("CREATE TABLE meta (name TEXT PRIMARY KEY, value INTEGER NOT NULL)")
        connection.execute(
            "CREATE TABLE objects "
            "(key TEXT PRIMARY KEY, revision INTEGER NOT NULL, packed INTEGER NOT NULL, value BLOB NOT NULL)"
        )
        past.create(connection)
        connection.execute("INSERT INTO meta VALUES ('schema', ?), ('revision', 1)", (SCHEMA,))
        connection.execute("COMMIT")
        return
    if "meta" not in tables:
        raise StoreError(f"store {path} is a database of something else; name another file")
    (found,) = connection.execute("SELECT value FROM meta WHERE name = 'schema'").fetchone()
    if found > SCHEMA:
        raise StoreError(
            f"store {path} has schema {found}, this version of haru knows schemas up to {SCHEMA}: "
            "run the version that wrote it, or a newer one"
        )
    if found < SCHEMA:
        _back_up(connection, f"{path}.schema-{found}.bak")
        connection.execute("BEGIN")
        for number in range(found, SCHEMA):
            MIGRATIONS[number](connection)
        connection.execute("UPDATE meta SET value = ? WHERE name = 'schema'", (SCHEMA,))
        connection.execute("COMMIT")


def _remove(path: Path) -> None:
    path.unlink(missing_ok=True)


def remove_left_copies(path: str) -> None:
    """Remove what processes left that were killed while they made a copy."""
    for left in Path(path).parent.glob(f"{Path(path).name}{COPY_SUFFIX}*"):
        left.unlink(missing_ok=True)


def copy_database(path: Path, to: Path) -> None:
    """Copy the database of a store that nobody has open; raises `StoreError`."""
    try:
        with (
            contextlib.closing(open_database(str(path))) as connection,
            contextlib.closing(sqlite3.connect(to)) as copy,
        ):
            connection.backup(copy)
    except sqlite3.Error as error:
        raise StoreError(f"store {path} can not be copied: {error}") from error


def _back_up(connection: sqlite3.Connection, path: str) -> None:
    """Copy the database aside, whole: the copy is a file of its own that can be opened as it is."""
    Path(path).unlink(missing_ok=True)
    with contextlib.closing(sqlite3.connect(path)) as copy:
        connection.backup(copy)
