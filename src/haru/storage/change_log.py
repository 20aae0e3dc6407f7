"""Keep recent changes in the SQLite file, so that watches go on after a restart.

Each change is a row with what it replaced; what it made is the state itself, or what a later change replaced. So a
creation costs a row without a value. Rows are written in the transaction of the change.

What is encrypted at rest leaves no copies behind: of resources for which a provider is configured nothing is kept here,
and their watches begin anew after a restart.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence

from haru.storage.damage import Check, damage_in, damage_in_row, no_check
from haru.storage.interface import Event, Record

KEPT = 5_000
"""Revisions, at least as long as nothing is overwritten faster than whoever follows comes back."""
TRIM_EVERY = 500
_ROWS_A_STATEMENT = 100
_TABLE = (
    "CREATE TABLE past (revision INTEGER PRIMARY KEY, key TEXT NOT NULL, gone INTEGER NOT NULL, "
    "old INTEGER, packed INTEGER, value BLOB)"
)

IsLeftOut = Callable[[str], bool]
"""Whether nothing is kept of a key."""


def create(connection: sqlite3.Connection) -> None:
    """The table, in the transaction that is under way."""
    connection.execute(_TABLE)


def append(connection: sqlite3.Connection, events: Sequence[Event], is_left_out: IsLeftOut) -> None:
    """Keep changes, and forget those that are too old."""
    kept = [event for event in events if not is_left_out(event.key)]
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
            left_out.append((number,))
            continue
        after = None if gone else later.get(key) or newest(key)
        found.append(Event(key, number, before, after))
        later[key] = before
    if left_out:
        connection.executemany("DELETE FROM past WHERE revision = ?", left_out)
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


def leave_out(connection: sqlite3.Connection, is_left_out: IsLeftOut) -> None:
    """Forget the changes of what is left out from now on."""
    rows = connection.execute("SELECT revision, key FROM past").fetchall()
    gone = [(revision,) for revision, key in rows if is_left_out(key)]
    connection.executemany("DELETE FROM past WHERE revision = ?", gone)


def forget(connection: sqlite3.Connection) -> None:
    """Forget all changes: the state is that of another time now."""
    if connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'past'").fetchone():
        connection.execute("DELETE FROM past")
