"""Copies of the embedded store: made while it is written to, checked, and put in place again.

A snapshot is one file: an SQLite database with a whole state, then the SHA-256 of it (32 bytes, as etcd does), so that
one that was cut short or changed is told from a good one. A restored store goes on at a revision beyond all that
clients can have seen: what they remember of the time after the snapshot is too old then, not taken for something else.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from haru.files import new_private_file, sync_directory
from haru.storage import change_log
from haru.storage.interface import StoreError

DIGEST_BYTES = 32
BUMP = 1_000_000_000
"""By how much a restored store's revision is beyond that of the snapshot: far more than was written since then."""
NAME = "state.db"
_RESTORING = f".{NAME}.restoring"
_CHUNK = 1 << 20
_MAGIC = b"SQLite format 3\0"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What is in a snapshot."""

    revision: int
    objects: int
    size: int
    """Bytes of the file."""


def complete(path: Path) -> Snapshot:
    """Make a copied database a snapshot: one plain file, found to be whole, with its digest. Raises `StoreError`."""
    try:
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute("PRAGMA journal_mode = DELETE")
            found = _examine(connection, path)
    except sqlite3.Error as error:
        raise StoreError(f"the copy of the store can not be read: {error}") from error
    with path.open("r+b") as file:
        digest = hashlib.sha256()
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
        file.write(digest.digest())
        file.flush()
        os.fsync(file.fileno())
        return Snapshot(*found, file.tell())


def check(path: Path) -> Snapshot:
    """What is in a snapshot; `StoreError` when it is none, or not as it was made."""
    try:
        with path.open("rb") as file:
            for _ in _content(file, path):
                pass
            size = file.tell()
    except OSError as error:
        raise StoreError(f"{path} can not be read: {error.strerror}") from error
    # Immutable: nothing is created beside the file. The digest at the end is beyond what the database says is its own.
    address = f"{path.resolve().as_uri()}?mode=ro&immutable=1"
    try:
        with contextlib.closing(sqlite3.connect(address, uri=True)) as connection:
            return Snapshot(*_examine(connection, path), size)
    except sqlite3.Error as error:
        raise StoreError(f"{path} is no snapshot of haru's: {error}") from error


def restore(path: Path, directory: Path, bump: int = BUMP) -> Snapshot:
    """Make the data directory that a snapshot is the state of; `StoreError` if it has one already.

    Killed half-way it leaves a directory without a state, into which the snapshot can be restored again.
    """
    target, temporary = directory / NAME, directory / _RESTORING
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        there = sorted({entry.name for entry in directory.iterdir()} - {_RESTORING, f"{_RESTORING}-journal", "lock"})
        if there:
            raise StoreError(f"{directory} is not empty (it has {there[0]}): name a directory that is, or a new one")
        temporary.unlink(missing_ok=True)
        try:
            found = _place(path, temporary, bump)
            temporary.rename(target)
        finally:
            temporary.unlink(missing_ok=True)
        sync_directory(directory)
    except OSError as error:
        raise StoreError(f"{error.filename or directory}: {error.strerror}") from error
    return found


def _place(path: Path, temporary: Path, bump: int) -> Snapshot:
    new_private_file(temporary)
    with path.open("rb") as source, temporary.open("wb") as copy:
        for chunk in _content(source, path):
            copy.write(chunk)
        size = source.tell()
    try:
        with contextlib.closing(sqlite3.connect(temporary, isolation_level=None)) as connection:
            connection.execute("PRAGMA synchronous = FULL")
            revision, objects = _examine(connection, path)
            connection.execute("BEGIN")
            change_log.forget(connection)
            connection.execute("UPDATE meta SET value = value + ? WHERE name = 'revision'", (bump,))
            connection.execute("COMMIT")
    except sqlite3.Error as error:
        raise StoreError(f"{path} is no snapshot of haru's: {error}") from error
    with temporary.open("rb") as file:
        os.fsync(file.fileno())
    return Snapshot(revision, objects, size)


def _content(file: BinaryIO, path: Path) -> Iterator[bytes]:
    """The database in a snapshot, chunk by chunk; `StoreError`, at the end, when the digest is another."""
    digest, last = hashlib.sha256(), b""
    first = True
    while chunk := file.read(_CHUNK):
        if first and not chunk.startswith(_MAGIC):
            break
        first = False
        whole = last + chunk
        last = whole[-DIGEST_BYTES:]
        part = whole[:-DIGEST_BYTES]
        digest.update(part)
        yield part
    if first:
        raise StoreError(f"{path} is no snapshot of haru's")
    if digest.digest() != last:
        raise StoreError(f"{path} is damaged or cut short: its checksum is not that of its content; take another one")


def _examine(connection: sqlite3.Connection, path: Path) -> tuple[int, int]:
    """Revision and number of objects, once every page has been looked at."""
    from haru.storage.sqlite_file import SCHEMA

    problems = [text for (text,) in connection.execute("PRAGMA integrity_check(3)") if text != "ok"]
    if problems:
        raise StoreError(f"{path} is damaged: {'; '.join(problems)}; take another one")
    meta = dict(connection.execute("SELECT name, value FROM meta").fetchall())
    if meta.get("schema", 0) > SCHEMA:
        raise StoreError(
            f"{path} has schema {meta['schema']}, this version of haru knows schemas up to {SCHEMA}: "
            "use the version that wrote it, or a newer one"
        )
    (objects,) = connection.execute("SELECT count(*) FROM objects").fetchone()
    return int(meta["revision"]), int(objects)
