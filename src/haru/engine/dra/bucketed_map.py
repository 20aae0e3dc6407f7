"""Immutable maps for what is taken, by pool and by claim: each change gives a new map that shares all but a little.

Source: our own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import compress
from operator import is_not
from typing import Any, Generic, TypeVar
from zlib import crc32

from haru.engine.dra.model.model import PoolKey

K = TypeVar("K", str, PoolKey)
V = TypeVar("V")
T = TypeVar("T")

_BITS = 4
_WIDTH = 1 << _BITS
_MASK = _WIDTH - 1
_TOP, _MIDDLE = 2 * _BITS, _BITS
"""Where the bits of the checksum are that choose a branch, and a row of it; the lowest choose a bucket."""
_ALL = (_WIDTH << _TOP) - 1
_NONE: dict[Any, Any] = {}
_EMPTY_ROW = (_NONE,) * _WIDTH
_EMPTY_BRANCH = (_EMPTY_ROW,) * _WIDTH
"""What all branches, rows and buckets share that nobody has written to."""

_Row = tuple[dict[K, V], ...]
_Branch = tuple[_Row[K, V], ...]


class Bucketed(Generic[K, V]):
    """Entries in branches of rows of buckets, sixteen each, by a checksum of their name.

    A change costs a branch, a row and a bucket, a comparison those that differ, however many entries there are. Gangs
    keep the map after each member, so narrow levels count: three of 16 take a third of the memory of two of 64.
    """

    __slots__ = ("__weakref__", "_branches")

    def __init__(self, branches: tuple[_Branch[K, V], ...] = (_EMPTY_BRANCH,) * _WIDTH) -> None:
        self._branches: tuple[_Branch[K, V], ...] = branches

    @classmethod
    def of(cls, entries: Mapping[K, V]) -> Bucketed[K, V]:
        """A map of these entries."""
        if len(entries) < _WIDTH:
            return cls().put(entries)
        found: list[list[list[dict[K, V]]]] = [[[_NONE] * _WIDTH for _ in range(_WIDTH)] for _ in range(_WIDTH)]
        for key, value in entries.items():
            number = _checksum(key)
            row = found[number >> _TOP & _MASK][number >> _MIDDLE & _MASK]
            if row[number & _MASK] is _NONE:
                row[number & _MASK] = {}
            row[number & _MASK][key] = value
        return cls(tuple([tuple([tuple(row) for row in branch]) for branch in found]))

    def get(self, key: K) -> V | None:
        """The value, or None. Here the checksum is written out: there are millions of look-ups."""
        number = crc32(key.encode() if isinstance(key, str) else key.pool.encode())
        return self._branches[number >> _TOP & _MASK][number >> _MIDDLE & _MASK][number & _MASK].get(key)

    def put(self, changes: Mapping[K, V | None]) -> Bucketed[K, V]:
        """A map with these changes; None removes. What changes is copied once, however many changes it has."""
        if len(changes) == 1:
            return self._with(*changes.items())
        branches: dict[int, list[_Row[K, V]]] = {}
        rows: dict[int, list[dict[K, V]]] = {}
        buckets: dict[int, dict[K, V]] = {}
        for key, value in changes.items():
            number = crc32(key.encode() if isinstance(key, str) else key.pool.encode()) & _ALL
            bucket = buckets.get(number)
            if bucket is None:
                place = number >> _MIDDLE
                row = rows.get(place)
                if row is None:
                    row = rows[place] = list(self._branches[place >> _BITS][place & _MASK])
                bucket = buckets[number] = row[number & _MASK] = row[number & _MASK].copy()
            if value is None:
                bucket.pop(key, None)
            else:
                bucket[key] = value
        for place, row in rows.items():
            if place >> _BITS not in branches:
                branches[place >> _BITS] = list(self._branches[place >> _BITS])
            branches[place >> _BITS][place & _MASK] = tuple(row)
        made = list(self._branches)
        for number, branch in branches.items():
            made[number] = tuple(branch)
        return Bucketed(tuple(made))

    def _with(self, change: tuple[K, V | None]) -> Bucketed[K, V]:
        """A map with one change, as most have."""
        key, value = change
        number = crc32(key.encode() if isinstance(key, str) else key.pool.encode())
        made = list(self._branches)
        branch = list(made[number >> _TOP & _MASK])
        row = list(branch[number >> _MIDDLE & _MASK])
        bucket = row[number & _MASK] = row[number & _MASK].copy()
        if value is None:
            bucket.pop(key, None)
        else:
            bucket[key] = value
        branch[number >> _MIDDLE & _MASK] = tuple(row)
        made[number >> _TOP & _MASK] = tuple(branch)
        return Bucketed(tuple(made))

    def items(self) -> Iterator[tuple[K, V]]:
        """All pairs."""
        for branch in self._branches:
            for row in branch if branch is not _EMPTY_BRANCH else ():
                for bucket in row if row is not _EMPTY_ROW else ():
                    yield from bucket.items()

    def difference(self, other: Bucketed[K, V] | Seen[K, V]) -> set[K]:
        """The keys that have another value there; cheap between maps of one origin."""
        if not isinstance(other, Bucketed):
            return _differing(self, other)
        # The entries of buckets that differ are put together: what runs for each of them is not Python's.
        ours: dict[K, V] = {}
        theirs: dict[K, V] = {}
        for branch, their_branch in _unlike(self._branches, other._branches):
            for row, their_row in _unlike(branch, their_branch):
                for own, their in _unlike(row, their_row):
                    ours.update(own)
                    theirs.update(their)
        found = set(compress(ours, map(is_not, ours.values(), map(theirs.get, ours))))
        found.update(theirs.keys() - ours.keys())
        return found


def _unlike(one: tuple[T, ...], other: tuple[T, ...]) -> Iterator[tuple[T, T]]:
    """Yield the pairs that are not one object."""
    return compress(zip(one, other, strict=True), map(is_not, one, other))


class Seen(Generic[K, V]):
    """A map whose values are looked up when they are asked for, with some changes on top."""

    __slots__ = ("__weakref__", "_base", "_changes")

    def __init__(self, base: Mapping[K, V] | Bucketed[K, V], changes: Mapping[K, V | None] | None = None) -> None:
        self._base: Mapping[K, V] | Bucketed[K, V] = base
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
