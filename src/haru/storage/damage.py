"""Damage in what is kept: found when it is read at a start, told with the key and a way out, never written over."""

from __future__ import annotations

import zlib
from collections.abc import Callable

from haru.storage.interface import Record, StoreError

Check = Callable[[str, bytes], str]
"""What is wrong with the value of a key, empty for nothing: only who writes values knows what they are."""


def no_check(key: str, value: bytes) -> str:
    """Any bytes are a value."""
    return ""


def damage_in(record: Record, check: Check) -> str:
    """What is wrong with a record; empty for nothing."""
    try:
        return check(record.key, record.value)
    except zlib.error as error:
        return f"it can not be decompressed ({error})"


def damage_in_row(key: object, revision: object, packed: object, value: object) -> str:
    """What is wrong with the types of a row; empty for nothing."""
    columns = (("key", key, str), ("revision", revision, int), ("packed", packed, int), ("value", value, bytes))
    wrong = [name for name, found, kind in columns if not isinstance(found, kind)]
    return f"its {wrong[0]} is no {'text' if wrong[0] == 'key' else 'number or bytes'}" if wrong else ""


def damaged_row(path: str, key: object, problem: str) -> StoreError:
    """The refusal of a store whose row is damaged."""
    quoted = str(key).replace("'", "''")
    return StoreError(
        f"store {path}: the row of {key} is damaged: {problem}; nothing was changed. "
        "Restore the directory from a backup (haru snapshot restore), or give this object up: "
        f"sqlite3 {path} \"DELETE FROM objects WHERE key = '{quoted}'\""
    )


def damaged_head(path: str, name: str) -> StoreError:
    """The refusal of a store that does not say its schema or revision."""
    return StoreError(
        f"store {path}: its table meta is damaged: no number under {name}; nothing was changed. "
        "Restore the directory from a backup (haru snapshot restore)"
    )


def damaged_value(key: str, problem: str) -> StoreError:
    """The refusal of a value in etcd; `key` is the whole one."""
    return StoreError(
        f"{key} in etcd is damaged: {problem}; nothing was changed. "
        f"Restore etcd from a backup, or give this object up: etcdctl del '{key}'"
    )
