"""The writer of the embedded store: a thread that owns the connection and commits what has gathered in one go.

While the disk is busy with one commit the next group gathers: one fsync for many writers.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import sqlite3
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from haru.storage import change_log
from haru.storage.history import bucket_of
from haru.storage.interface import Event, StoreError
from haru.storage.sealing import Sealing

GROUP_AT_MOST = 500
PAGES_A_STEP = 256
ROWS_A_STATEMENT = 100
_INSERT = "INSERT INTO objects (key, revision, packed, value)"
_OR_UPDATE = (
    "ON CONFLICT (key) DO UPDATE SET revision = excluded.revision, packed = excluded.packed, value = excluded.value"
)
"""The row stays where it is, and its place in the index: REPLACE would delete it and write both anew."""


class Superseded(Exception):
    """A change was decided upon one that has failed since."""


class Stopped(Exception):
    """The store is closed while a copy of it is made."""


@dataclass(slots=True, eq=False)
class Copy:
    """A copy that is wanted at `path`, of all that was handed to the writer before, and who waits for it."""

    path: Path
    done: asyncio.Future[None]


class Purge:
    """What is sealed by now is to be forgotten of the past, in which values are plain."""


@dataclass(slots=True, eq=False)
class Batch:
    """The events of one transaction, who waits for them, and after how many failures it was decided."""

    events: Sequence[Event]
    done: asyncio.Future[None]
    failures: int


class Writer(threading.Thread):
    """Owns the connection; commits groups of batches in the order in which they were decided."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        sealing: Sealing,
        finished: Callable[[list[Batch], Exception | None], None],
    ) -> None:
        super().__init__(name="haru-store-writer", daemon=True)
        self.jobs: queue.SimpleQueue[Batch | Copy | Purge | None] = queue.SimpleQueue()
        self._connection = connection
        self._sealing = sealing
        self._finished = finished
        self._failures = 0

    def run(self) -> None:
        """Commit until told to stop."""
        try:
            while True:
                self._turn(self.jobs.get())
        except Stopped:
            self._connection.close()

    def _turn(self, job: Batch | Copy | Purge | None, *, copying: bool = False) -> None:
        """Do a job and those that have gathered behind it. Raises Stopped once told to stop."""
        group: list[Batch] = []
        while True:
            if not isinstance(job, Batch) or (group and job.failures != group[0].failures):
                if group:
                    self._write(group)
                group = []
            if job is None:
                raise Stopped
            if isinstance(job, Batch):
                group.append(job)
            elif isinstance(job, Purge):
                self._purge()
            elif copying:
                tell(job, StoreError("another copy of the store is being made: try again when it is done"))
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
            change_log.leave_out(self._connection, lambda key: bool(self._sealing.ciphers(bucket_of(key))))

    def _copy(self, job: Copy) -> None:
        """Copy the database in steps. Between them goes on what has gathered: SQLite takes it into the copy as well."""

        def between(*_: int) -> None:
            while not self.jobs.empty():
                self._turn(self.jobs.get(), copying=True)

        try:
            with contextlib.closing(sqlite3.connect(job.path, check_same_thread=False)) as target:
                self._connection.backup(target, pages=PAGES_A_STEP, progress=between, sleep=0)
        except Stopped:
            tell(job, StoreError("the store is being closed"))
            raise
        except Exception as error:
            tell(job, error)
        else:
            tell(job, None)

    def _write(self, group: list[Batch]) -> None:
        try:
            if group[0].failures < self._failures:
                raise Superseded("a change before it failed")
            write_group(self._connection, [event for batch in group for event in batch.events], self._sealing)
        except Superseded as error:
            self._finished(group, error)
        except Exception as error:
            self._failures += 1
            with contextlib.suppress(sqlite3.Error):
                self._connection.execute("ROLLBACK")
            self._finished(group, error)
        else:
            self._finished(group, None)


def tell(copy: Copy, error: Exception | None) -> None:
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
        connection.execute(f"{_INSERT} VALUES {marks} {_OR_UPDATE}", values)
    for start in range(0, len(gone), ROWS_A_STATEMENT):
        keys = gone[start : start + ROWS_A_STATEMENT]
        connection.execute(f"DELETE FROM objects WHERE key IN ({','.join('?' * len(keys))})", keys)
    change_log.append(connection, events, lambda key: bool(sealing.ciphers(bucket_of(key))))
    connection.execute("UPDATE meta SET value = ? WHERE name = 'revision'", (events[-1].revision,))
    connection.execute("COMMIT")
