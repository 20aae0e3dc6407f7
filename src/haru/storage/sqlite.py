"""The embedded store: SQLite in WAL mode with full synchronisation, and a writer thread that commits in groups.

State and recent changes are loaded into memory at start and served from there; SQLite is the durable copy.
Transactions are decided on the event loop and handed to the writer together, once the requests that lie ready have been
looked at; the writer commits all that have gathered while the disk was busy with the commit before: one fsync for many
writers. Only then are they published and acknowledged.

Values of resources that are to be encrypted are sealed when they are written and opened when the state is loaded; then
what is overwritten or deleted is wiped, too.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sqlite3
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from haru.files import new_private_file
from haru.storage import change_log
from haru.storage.ciphers import SealError
from haru.storage.damage import Check, damage_in, damage_in_row, damaged_row, no_check
from haru.storage.history import Bucket, bucket_of
from haru.storage.interface import Delete, Event, Put, Record, StoreClosed, StoreError
from haru.storage.memory import MemoryStore
from haru.storage.sealing import KEYS_SECONDS, Sealing, no_sealing
from haru.storage.snapshots import complete
from haru.storage.sqlite_file import COPY_SUFFIX, open_database, read_number, remove_copy, remove_left_copies
from haru.storage.sqlite_writer import Batch, Copy, Purge, Superseded, Writer, path_of

_LOG = logging.getLogger("haru.storage")
TURNS_AT_MOST = 8
"""Turns of the loop that a change waits for others at most, as long as each brings more; a lone one waits for one."""


class SqliteStore(MemoryStore):
    """A store in one SQLite file, or in memory only for the path `:memory:` (of which nothing is at rest)."""

    def __init__(
        self,
        path: str | Path,
        *,
        clock: Callable[[], float] = time.monotonic,
        sealing: Sealing | None = None,
        check: Check = no_check,
    ) -> None:
        super().__init__(clock=clock)
        self._path = str(path)
        self._check = check
        self._sealing = sealing or no_sealing()
        self._wipes = sealing is not None
        self._writer: Writer | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._last: asyncio.Future[None] | None = None
        self._gathered: list[Batch] = []  # decided, and yet to be handed to the writer
        self._failures = 0  # failed commits that are known here: staged changes of theirs have been taken back
        self._loaded = 0
        self._missing: Mapping[str, int] = {}

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
        self._writer = Writer(connection, self._sealing, self._finished_soon)
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
            rows = connection.execute("SELECT key, value FROM objects WHERE typeof(value) = 'blob'")
            await self._sealing.prepare(((bucket_of(key), value) for key, value in rows), KEYS_SECONDS)

    def _load(self, connection: sqlite3.Connection) -> None:
        rows = connection.execute("SELECT key, revision, packed, value FROM objects ORDER BY key")
        with contextlib.closing(rows):  # what is half read would hold the file
            self._take_in(rows)
        revision = read_number(connection, self._path, "revision")
        self._revision = self._assigned = self._loaded = max(1, revision)
        self._recall(connection)

    def _take_in(self, rows: Iterable[tuple[Any, Any, Any, Any]]) -> None:
        """Make the state of the rows, which come in the order of their keys. Raises `StoreError` for a damaged one."""
        is_plain, resource, bucket = self._sealing.is_plain, "", None
        for key, revision, packed, data in rows:
            problem = damage_in_row(key, revision, packed, data)
            if problem:
                raise damaged_row(self._path, key, problem)
            if bucket is None or bucket_of(key) != resource:
                resource = bucket_of(key)
                bucket = self._bucket(resource)
            stale = False
            if not is_plain(data):
                data, stale = self._sealing.open(resource, path_of(key), data)
            record = Record(key, data, revision, packed=bool(packed), stale=stale)
            problem = damage_in(record, self._check)
            if problem:
                raise damaged_row(self._path, key, problem)
            bucket.append(record)

    def _recall(self, connection: sqlite3.Connection) -> None:
        """The changes of before, so that whoever followed them goes on."""

        def newest(key: str) -> Record | None:
            return self._bucket(bucket_of(key)).records.get(key)

        self._compacted, events, problem = change_log.recall(
            connection, self._loaded, newest, self._leaves_no_past, self._check
        )
        if problem:
            _LOG.warning("store %s: %s; watches from before it begin anew", self._path, problem)
        self._missing = change_log.missing_before(connection)
        for name, bucket in self._buckets.items():
            bucket.compacted = max(self._compacted, self._missing_before(name))
        now = self._clock()
        for event in events:
            event.at = now
            self._bucket(bucket_of(event.key)).log.append(event)

    def _missing_before(self, resource: str) -> int:
        """Up to which revision changes from before the start may be missing in the history of a resource."""
        return self._loaded if self._sealing.ciphers(resource) else self._missing.get(resource, 0)

    def _make_stale(self, is_meant: Callable[[str], bool]) -> None:
        super()._make_stale(is_meant)
        if self._writer is not None:
            self._hand_over()
            self._writer.jobs.put(Purge())

    def _leaves_no_past(self, key: str) -> bool:
        return bool(self._sealing.ciphers(bucket_of(key)))

    def _bucket(self, name: str) -> Bucket:
        is_new = name not in self._buckets
        bucket = super()._bucket(name)
        if is_new:
            bucket.compacted = max(bucket.compacted, self._missing_before(name))
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
            raise StoreClosed(f"store {self._path} is not open")
        batch = Batch(events, self._loop.create_future(), self._failures)
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
        copy = Copy(path, self._loop.create_future())
        try:
            new_private_file(path)
            self._hand_over()
            self._writer.jobs.put(copy)
            await copy.done
            await asyncio.to_thread(complete, path)
        except BaseException as error:
            remove_copy(path)
            if isinstance(error, OSError | sqlite3.Error):
                raise StoreError(f"store {self._path} can not be copied: {error}") from error
            raise
        return path

    async def _settled(self, key: str) -> None:
        while key in self._staged and self._last is not None and not self._last.done():
            await asyncio.wait([self._last])

    def _finished_soon(self, group: list[Batch], error: Exception | None) -> None:
        assert self._loop is not None
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(self._finished, group, error)

    def _finished(self, group: list[Batch], error: Exception | None) -> None:
        if not isinstance(error, Superseded):
            self.failing = error is not None
        if error is None:
            self._publish([event for batch in group for event in batch.events])
            for batch in group:
                if not batch.done.done():
                    batch.done.set_result(None)
            return
        if not isinstance(error, Superseded):
            self._failures += 1
            # All that is staged was decided before this is known, and is given up: nothing may be decided upon it.
            self._staged.clear()
        failure = StoreError(
            f"store {self._path} could not make a change durable: {error}; "
            "see that the disk has room and that the file may be written"
        )
        for batch in group:
            for event in batch.events:
                self._unstage(event)
            batch.done.set_exception(failure)
            batch.done.exception()  # retrieved: a caller that has gone away is no fault
