"""The file of the embedded store: opened for one process, made, migrated, copied.

It is held exclusively: two servers over one file would each decide on half of the truth. It carries a schema number; a
newer one is refused, an older one is copied aside and then migrated.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable
from pathlib import Path

from haru.files import new_private_file
from haru.storage import change_log
from haru.storage.damage import damaged_head
from haru.storage.interface import StoreError

SCHEMA = 2
MIGRATIONS: dict[int, Callable[[sqlite3.Connection], None]] = {1: change_log.create}
"""From a schema number to what makes it the next one."""

COPY_SUFFIX = ".copy-"


def open_database(path: str) -> sqlite3.Connection:
    """The connection, exclusively held, with the tables of the current schema."""
    try:
        _make_new(path)
        connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=1.0)
    except (OSError, sqlite3.Error) as error:
        what = error.strerror if isinstance(error, OSError) else error
        raise StoreError(f"store {path} can not be opened: {what}; check that the directory can be written") from error
    try:
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("BEGIN EXCLUSIVE")  # takes the lock, which this locking mode keeps after the commit
        connection.execute("COMMIT")
        _prepare(connection, path)
        _keep_others_out(path)
    except (OSError, sqlite3.Error) as error:
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


def _make_new(path: str) -> None:
    """Make the file, if it is not there, for its owner alone: it may have Secrets. Raises OSError.

    One that is there is not opened: to close it would end the locks that this process has on it.
    """
    with contextlib.suppress(FileExistsError):
        new_private_file(Path(path))


def _keep_others_out(path: str) -> None:
    """Leave a file that others can read to its owner; raises OSError."""
    for file in (Path(path), Path(f"{path}-wal")):
        with contextlib.suppress(FileNotFoundError, PermissionError):  # somebody else's who lets us write
            if file.stat().st_mode & 0o077:
                file.chmod(0o600)


def _prepare(connection: sqlite3.Connection, path: str) -> None:
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if not tables:
        connection.execute("BEGIN")
        connection.execute("CREATE TABLE meta (name TEXT PRIMARY KEY, value INTEGER NOT NULL)")
        connection.execute(
            "CREATE TABLE objects "
            "(key TEXT PRIMARY KEY, revision INTEGER NOT NULL, packed INTEGER NOT NULL, value BLOB NOT NULL)"
        )
        change_log.create(connection)
        connection.execute("INSERT INTO meta VALUES ('schema', ?), ('revision', 1)", (SCHEMA,))
        connection.execute("COMMIT")
        return
    if "meta" not in tables:
        raise StoreError(f"store {path} is a database of something else; name another file")
    found = read_number(connection, path, "schema")
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


def read_number(connection: sqlite3.Connection, path: str, name: str) -> int:
    """A number of the table meta; raises `StoreError` where there is none."""
    row = connection.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
    if row is None or not isinstance(row[0], int):
        raise damaged_head(path, name)
    return row[0]


def remove_left_copies(path: str) -> None:
    """Remove what processes left that were killed while they made a copy."""
    for left in Path(path).parent.glob(f"{Path(path).name}{COPY_SUFFIX}*"):
        remove_copy(left)


def remove_copy(path: Path) -> None:
    """Remove a copy, if it is there."""
    path.unlink(missing_ok=True)


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
    _make_new(path)
    with contextlib.closing(sqlite3.connect(path)) as copy:
        connection.backup(copy)
