"""Keep the ledger on disk: one small SQLite file, bounded, and consistent after kill -9.

Each row is an interval with its amounts. The current interval is written again as it grows: a crash costs at most ten
seconds, and the time until the next start counts as not observed. Intervals older than an hour are merged by the hour,
those older than eight days are deleted. A window that cuts an hour counts it in proportion.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import TypeVar

from haru.accounting.device_states import UsageKey
from haru.accounting.holdings import Holding, HoldingKey
from haru.accounting.ledger import Interval, merged
from haru.explain.happenings import Happening

T = TypeVar("T")

NAME = "usage.db"
HOUR = 3_600_000
KEPT = 8 * 24 * HOUR
MOST_HOLDINGS = 20_000
MOST_HAPPENINGS = 5_000
MOST_LOOKS = 20_000
_SCHEMA = 2
"""1 had no words in its keys; its rows are read as they are."""
_LOOKS = "CREATE TABLE IF NOT EXISTS looks (namespace TEXT, owner TEXT, look INTEGER, UNIQUE (namespace, owner))"
"""The looks of workloads on pages."""


class HistoryError(ValueError):
    """A history cannot be read or written; the message has the file and the reason."""


class History:
    """A history file, open for writing. Raises HistoryError."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            path.touch(mode=0o600)
            self._file = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            try:
                self._prepare()
            except BaseException:
                self._file.close()
                raise
        except OSError as error:
            raise HistoryError(f"{path.parent}: {error.strerror}; name a directory that can be written") from error
        except sqlite3.Error as error:
            raise HistoryError(f"{path}: {error}") from error

    def _prepare(self) -> None:
        self._file.execute("PRAGMA journal_mode=WAL")
        self._file.execute("PRAGMA synchronous=NORMAL")  # a process that dies loses nothing, a machine the last rows
        _check(self._file, self._path)
        self._file.execute(
            "CREATE TABLE IF NOT EXISTS intervals (began INTEGER PRIMARY KEY, ended INTEGER NOT NULL,"
            " observed INTEGER NOT NULL, amounts TEXT NOT NULL)"
        )
        self._file.execute(
            "CREATE TABLE IF NOT EXISTS holdings (node TEXT, driver TEXT, pool TEXT, card TEXT, device TEXT,"
            " namespace TEXT, owner TEXT, began INTEGER, ended INTEGER NOT NULL, percent REAL,"
            " PRIMARY KEY (driver, pool, device, namespace, owner, began)) WITHOUT ROWID"
        )
        self._file.execute(
            "CREATE TABLE IF NOT EXISTS happenings (kind TEXT, node TEXT NOT NULL, namespace TEXT, text TEXT,"
            " began INTEGER, ended INTEGER NOT NULL, PRIMARY KEY (began, kind, namespace, text)) WITHOUT ROWID"
        )
        self._file.execute(_LOOKS)
        # What was still held, or broken, when the last process ended was last seen then.
        for table in ("holdings", "happenings"):
            ended = f"UPDATE {table} SET ended = MAX(began + 1, ?) WHERE ended = 0"
            self._file.execute(ended, (self.last_end(),))
        self._file.execute(f"PRAGMA user_version={_SCHEMA}")

    def put(self, interval: Interval) -> None:
        """Write an interval, in place of a shorter one with the same beginning."""
        if interval.ended > interval.began:
            self._file.execute("INSERT OR REPLACE INTO intervals VALUES (?, ?, ?, ?)", _row(interval))

    def put_holdings(self, holdings: Iterable[Holding]) -> None:
        """Write holdings that have begun or ended."""
        rows = [(*each.key, each.began, each.ended, each.percent) for each in holdings]
        if rows:
            self._file.execute("BEGIN IMMEDIATE")
            self._file.executemany("INSERT OR REPLACE INTO holdings VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)
            self._file.execute("COMMIT")

    def put_happenings(self, happenings: Iterable[Happening]) -> None:
        """Write what has happened, what began to last, and what has ended; what is known of a moment stays."""
        rows = list(happenings)
        if rows:
            self._file.execute("BEGIN IMMEDIATE")
            ended = "ON CONFLICT DO UPDATE SET ended = excluded.ended"
            self._file.executemany(f"INSERT INTO happenings VALUES (?, ?, ?, ?, ?, ?) {ended}", rows)
            self._file.execute("COMMIT")

    def tidy(self, now: int) -> None:
        """Merge intervals older than an hour by the hour, and delete those that are too old."""
        current = now // HOUR * HOUR
        self._file.execute("BEGIN IMMEDIATE")
        try:
            self._file.execute("DELETE FROM intervals WHERE ended < ?", (now - KEPT,))
            for table in ("holdings", "happenings"):
                self._file.execute(f"DELETE FROM {table} WHERE ended > 0 AND ended < ?", (now - KEPT,))
            self._file.execute(
                "DELETE FROM looks WHERE rowid <= (SELECT MAX(rowid) FROM looks) - ?",
                (MOST_LOOKS,),
            )
            groups: dict[int, list[Interval]] = {}
            for interval in _rows(self._file, 0, current):
                if interval.ended <= current:
                    groups.setdefault(interval.began // HOUR, []).append(interval)
            for parts in groups.values():
                if len(parts) > 1:
                    self._file.executemany("DELETE FROM intervals WHERE began = ?", [(p.began,) for p in parts])
                    self._file.execute("INSERT INTO intervals VALUES (?, ?, ?, ?)", _row(merged(parts)))
        except BaseException:
            self._file.execute("ROLLBACK")
            raise
        self._file.execute("COMMIT")

    def last_end(self) -> int:
        """Return the end of the last interval; 0 if there is none."""
        return int(self._file.execute("SELECT COALESCE(MAX(ended), 0) FROM intervals").fetchone()[0])

    def intervals(self, since: int, until: int) -> list[Interval]:
        """Return the intervals that overlap a time."""
        return list(_rows(self._file, since, until))

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def read(path: Path, since: int, until: int) -> list[Interval]:
    """Read the intervals of a file that another process may be writing. Raises HistoryError."""
    return _read(path, lambda database: list(_rows(database, since, until)))


def read_holdings(path: Path, since: int, until: int, most: int = MOST_HOLDINGS) -> list[Holding]:
    """Read who held which device between two moments, the latest `most`. Raises HistoryError."""
    return _read(path, lambda database: _holdings(database, since, until, most))


def read_happenings(path: Path, since: int, until: int, most: int = MOST_HAPPENINGS) -> list[Happening]:
    """Read what happened, or lasted, between two moments, the latest `most`. Raises HistoryError."""
    return _read(path, lambda database: _happenings(database, since, until, most))


def read_looks(path: Path) -> dict[tuple[str, str], int]:
    """Read the looks of workloads, by namespace and owner. Raises HistoryError."""
    return _read(path, _looks)


def put_looks(path: Path, looks: Mapping[tuple[str, str], int]) -> dict[tuple[str, str], int]:
    """Write looks of workloads that have none yet; return all that are there now. Raises HistoryError."""
    file = _file_of(path)
    try:
        with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=rw", uri=True, timeout=5)) as database:
            _check(database, file)
            with database:
                database.execute(_LOOKS)
                rows = [(*work, look) for work, look in looks.items()]
                database.executemany("INSERT OR IGNORE INTO looks VALUES (?, ?, ?)", rows)
            return _looks(database)
    except sqlite3.Error as error:
        raise HistoryError(f"{file}: {error}") from error


def _looks(database: sqlite3.Connection) -> dict[tuple[str, str], int]:
    if not _has(database, "looks"):
        return {}
    return {(namespace, owner): look for namespace, owner, look in database.execute("SELECT * FROM looks")}


def _happenings(database: sqlite3.Connection, since: int, until: int, most: int) -> list[Happening]:
    if not _has(database, "happenings"):
        return []
    rows = database.execute(
        "SELECT * FROM happenings WHERE began <= ? AND (ended = 0 OR ended >= ?) ORDER BY began DESC LIMIT ?",
        (until, since, most),
    )
    return [Happening(*row) for row in rows]


def _has(database: sqlite3.Connection, table: str) -> bool:
    """Whether a file has a table: one that an older Haru wrote may not."""
    found = database.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", (table,)).fetchone()
    return found is not None


def _holdings(database: sqlite3.Connection, since: int, until: int, most: int) -> list[Holding]:
    if not _has(database, "holdings"):
        return []
    rows = database.execute(
        "SELECT * FROM holdings WHERE began < ? AND (ended = 0 OR ended > ?) ORDER BY began DESC LIMIT ?",
        (until, since, most),
    )
    return [Holding(HoldingKey(*row[:7]), *row[7:]) for row in rows]


def _file_of(path: Path) -> Path:
    return path / NAME if path.is_dir() else path


def _read(path: Path, ask: Callable[[sqlite3.Connection], T]) -> T:
    file = _file_of(path)
    if not file.is_file():
        raise HistoryError(
            f"{file}: there is no history: haru up begins one soon after its start, and --usage-history makes"
            " haru scheduler and haru dashboard keep one"
        )
    last: Exception | None = None
    for _ in range(5):
        try:
            with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True, timeout=5)) as database:
                _check(database, file)
                return ask(database)
        except sqlite3.OperationalError as error:  # being created, or its write-ahead log is just being replaced
            last = error
            time.sleep(0.1)
        except sqlite3.Error as error:
            raise HistoryError(f"{file}: {error}: it is no usage history") from error
    raise HistoryError(f"{file}: {last}: is it a usage history?")


def _check(database: sqlite3.Connection, path: Path) -> None:
    version = int(database.execute("PRAGMA user_version").fetchone()[0])
    if version > _SCHEMA:
        raise HistoryError(f"{path}: schema {version} is newer than this Haru ({_SCHEMA}): use the Haru that wrote it")


def _rows(database: sqlite3.Connection, since: int, until: int) -> Iterator[Interval]:
    rows = database.execute(
        "SELECT began, ended, observed, amounts FROM intervals WHERE ended > ? AND began < ? ORDER BY began",
        (since, until),
    )
    for began, ended, observed, text in rows.fetchall():
        yield Interval(began, ended, observed, {UsageKey(*key): amount for *key, amount in json.loads(text)})


def _row(interval: Interval) -> tuple[int, int, int, str]:
    listed = [[*key, amount] for key, amount in sorted(interval.amounts.items())]
    return interval.began, interval.ended, interval.observed, json.dumps(listed, separators=(",", ":"))
