"""Immutable maps for what is taken, by pool and by claim: each change gives a new map that shares all but a little.

Source: our own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Generic, TypeVar
from zlib import crc32

from haru.engine.dra.model.model import PoolKey

K = TypeVar("K", str, PoolKey)
V = TypeVar("V")

_BITS = 6
_ROW = 1 << _BITS
_MASK = _ROW - 1
_NONE: dict[Any, Any] = {}
_EMPTY_ROW = (_NONE,) * _ROW
"""What all rows and buckets share that nobody has written to."""


class Bucketed(Generic[K, V]):
    """Entries in rows of buckets by a checksum of their name.

    A change costs a row and a bucket, a comparison those that differ, however many entries there are.
    """

    __slots__ = ("_rows",)

    def __init__(self, rows: tuple[tuple[dict[K, V], ...], ...] = (_EMPTY_ROW,) * _ROW) -> None:
        self._rows: tuple[tuple[dict[K, V], ...], ...] = rows

    @classmethod
    def of(cls, entries: Mapping[K, V]) -> Bucketed[K, V]:
        """A map of these entries."""
        found: dict[int, dict[int, dict[K, V]]] = {}
        for key, value in entries.items():
            number = _checksum(key)
            found.setdefault(number >> _BITS & _MASK, {}).setdefault(number & _MASK, {})[key] = value
        rows: list[tuple[dict[K, V], ...]] = [_EMPTY_ROW] * _ROW
        for at, buckets in found.items():
            row: list[dict[K, V]] = list(_EMPTY_ROW)
            for place, bucket in buckets.items():
                row[place] = bucket
            rows[at] = tuple(row)
        return cls(tuple(rows))

    def get(self, key: K) -> V | None:
        """The value, or None. Here the checksum is written out: there are millions of look-ups."""
        number = crc32(key.encode() if isinstance(key, str) else key.pool.encode())
        return self._rows[number >> _BITS & _MASK][number & _MASK].get(key)

    def put(self, changes: Mapping[K, V | None]) -> Bucketed[K, V]:
        """A map with these changes; None removes."""
        rows = list(self._rows)
        for key, value in changes.items():
            number = _checksum(key)
            row = list(rows[number >> _BITS & _MASK])
            bucket = row[number & _MASK] = row[number & _MASK].copy()
            if value is None:
                bucket.pop(key, None)
            else:
                bucket[key] = value
            rows[number >> _BITS & _MASK] = tuple(row)
        return Bucketed(tuple(rows))

    def items(self) -> Iterator[tuple[K, V]]:
        """All pairs."""
        for row in self._rows:
            for bucket in row if row is not _EMPTY_ROW else ():
                yield from bucket.items()

    def difference(self, other: Bucketed[K, V] | Seen[K, V]) -> set[K]:
        """The keys that have another value there; cheap between maps of one origin."""
        if not isinstance(other, Bucketed):
            return _differing(self, other)
        found: set[K] = set()
        for row, their_row in zip(self._rows, other._rows, strict=True):
            if row is their_row:
                continue
            for own, their in zip(row, their_row, strict=True):
                if own is not their:
                    found.update([key for key in own.keys() | their.keys() if own.get(key) is not their.get(key)])
        return found


class Seen(Generic[K, V]):
    """A map whose values are looked up when they are asked for, with some changes on top."""

    __slots__ = ("_base", "_changes")

    def __init__(self, base: Mapping[K, V], changes: Mapping[K, V | None] | None = None) -> None:
        self._base: Mapping[K, V] = base
        self._changes: Mapping[K, V | None] = changes or {}

    def get(self, key: K) -> V | None:
        """The value, or None."""
        return self._changes[key] if key in self._changes else self._base.get(key)

    def put(self, changes: Mapping[K, V | None]) -> Seen[K, V]:
        """A map with these changes; None removes."""
        return Seen(self._base, {**self._changes, **changes})

    def items(self) -> Iterator[tuple[K, V]]:
        """All pairs."""
        for key, value in self._base.items():
            if key not in self._changes:
                yield key, value
        for key, changed in self._changes.items():
            if changed is not None:
                yield key, changed

    def difference(self, other: Bucketed[K, V] | Seen[K, V]) -> set[K]:
        """The keys that have another value there."""
        if isinstance(other, Seen) and self._base is other._base:
            keys = self._changes.keys() | other._changes.keys()
            return {key for key in keys if self.get(key) is not other.get(key)}
        return _differing(self, other)


def _differing(one: Bucketed[K, V] | Seen[K, V], other: Bucketed[K, V] | Seen[K, V]) -> set[K]:
    keys = {key for key, _ in one.items()} | {key for key, _ in other.items()}
    return {key for key in keys if one.get(key) is not other.get(key)}


def _checksum(key: K) -> int:
    return crc32(key.encode() if isinstance(key, str) else key.pool.encode())
