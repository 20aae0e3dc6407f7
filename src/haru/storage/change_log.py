"""Keep recent changes in the SQLite file, so that watches go on after a restart.

Each change is a row with what it replaced; what it made is the state itself, or what a later change replaced. So a
creation costs a row without a value. Rows are written in the transaction of the change.

What is encrypted at rest leaves no copies behind: of resources for which a provider is configured nothing is kept here,
and their watches begin anew after a restart. The table meta has the newest change of each such resource that is missing
here, so that they do so as well once nothing is encrypted any more.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence

from haru.storage.damage import Check, damage_in, damage_in_row, no_check
from haru.storage.history import bucket_of
from haru.storage.interface import Event, Record

KEPT = 5_000
"""Revisions, at least as long as nothing is overwritten faster than whoever follows comes back."""
TRIM_EVERY = 500
_ROWS_A_STATEMENT = 100
_TABLE = (
    "CREATE TABLE past (revision INTEGER PRIMARY KEY, key TEXT NOT NULL, gone INTEGER NOT NULL, "
    "old INTEGER, packed INTEGER, value BLOB)"
)

_MISSING = "not in past: "
"""In the table meta, before a resource: the newest of its changes that are missing here."""

IsLeftOut = Callable[[str], bool]
"""Whether nothing is kept of a key."""


def create(connection: sqlite3.Connection) -> None:
    """The table, in the transaction that is under way."""
    connection.execute(_TABLE)


def append(connection: sqlite3.Connection, events: Sequence[Event], is_left_out: IsLeftOut) -> None:
    """Keep changes, and forget those that are too old."""
    kept, missing = [], []
    for event in events:
        if is_left_out(event.key):
            missing.append((event.revision, event.key))
        else:
            kept.append(event)
    if missing:
        _note_missing(connection, missing)
    for start in range(0, len(kept), _ROWS_A_STATEMENT):
        rows = kept[start : start + _ROWS_A_STATEMENT]
        values: list[object] = []
        for event in rows:
            data, packed = event.old.stored if event.old is not None else (None, None)
            old = event.old.revision if event.old is not None else None
            values += (event.revision, event.key, event.new is None, old, packed, data)
        marks = ",".join(["(?,?,?,?,?,?)"] * len(rows))
        connection.execute(f"INSERT INTO past (revision, key, gone, old, packed, value) VALUES {marks}", values)
    first, last = events[0].revision, events[-1].revision
    if first // TRIM_EVERY != (last + 1) // TRIM_EVERY:
        connection.execute("DELETE FROM past WHERE revision <= ?", (last - KEPT,))


def recall(
    connection: sqlite3.Connection,
    revision: int,
    newest: Callable[[str], Record | None],
    is_left_out: IsLeftOut,
    check: Check = no_check,
) -> tuple[int, Sequence[Event], str]:
    """The revision from which on all changes are known, those changes, oldest first, and why there are no older ones.

    `revision` is that of the state, of which `newest` gives the records. What is left out by now is removed. A damaged
    row ends what is known: the past is a convenience, the state is whole without it.
    """
    left_out, found = [], []
    gaps = missing_before(connection)
    later: dict[str, Record | None] = {}
    since, problem = revision, ""
    for number, key, gone, old, packed, value in connection.execute(
        "SELECT revision, key, gone, old, packed, value FROM past ORDER BY revision DESC"
    ):
        before, damage = _before(key, old, packed, value, check)
        if damage:
            problem = f"the change of {key} at revision {number} in the table past is damaged: {damage}"
            break
        since = number - 1
        if is_left_out(key):
            left_out.append((number, key))
            continue
        if number <= gaps.get(bucket_of(key), 0):
            continue
        after = None if gone else later.get(key) or newest(key)
        found.append(Event(key, number, before, after))
        later[key] = before
    _remove(connection, left_out)
    return since, found[::-1], problem


def _before(key: object, old: object, packed: object, value: object, check: Check) -> tuple[Record | None, str]:
    """What a change replaced, and what is wrong with its row."""
    if old is None:
        return None, "" if isinstance(key, str) else "its key is no text"
    damage = damage_in_row(key, old, packed, value)
    if damage or not (isinstance(key, str) and isinstance(old, int) and isinstance(value, bytes)):
        return None, damage
    record = Record(key, value, old, packed=bool(packed))
    return record, damage_in(record, check)


def missing_before(connection: sqlite3.Connection) -> Mapping[str, int]:
    """By resource: up to which revision changes may be missing, since it was encrypted then."""
    rows = connection.execute("SELECT name, value FROM meta WHERE name LIKE ?", (f"{_MISSING}%",))
    return {name.removeprefix(_MISSING): revision for name, revision in rows}


def _note_missing(connection: sqlite3.Connection, missing: Iterable[tuple[int, str]]) -> None:
    newest: dict[str, int] = {}
    for revision, key in missing:
        name = _MISSING + bucket_of(key)
        newest[name] = max(revision, newest.get(name, 0))
    connection.executemany(
        "INSERT INTO meta VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = max(value, excluded.value)",
        newest.items(),
    )


def _remove(connection: sqlite3.Connection, changes: Sequence[tuple[int, str]]) -> None:
    """Forget changes, by revision and key, and note that they are missing."""
    if not changes:
        return
    with connection:
        connection.execute("BEGIN IMMEDIATE")
        _note_missing(connection, changes)
        connection.executemany("DELETE FROM past WHERE revision = ?", [(revision,) for revision, _ in changes])


def leave_out(connection: sqlite3.Connection, is_left_out: IsLeftOut) -> None:
    """Forget the changes of what is left out from now on."""
    rows = connection.execute("SELECT revision, key FROM past").fetchall()
    _remove(connection, [(revision, key) for revision, key in rows if is_left_out(key)])


def forget(connection: sqlite3.Connection) -> None:
    """Forget all changes: the state is that of another time now."""
    if connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'past'").fetchone():
        connection.execute("DELETE FROM past")
