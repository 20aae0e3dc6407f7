"""A map whose frozen copies are cheap: buckets are shared with every copy and duplicated only when written again.

`freeze()` costs the number of buckets, a write at most one bucket, whatever the map's size. Buckets are chosen by a
checksum of the key, not by Python's randomised hash, so that iteration order is the same in every process.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, MutableMapping
from itertools import zip_longest
from typing import Any, TypeVar, cast
from zlib import crc32

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

_BUCKETS = 256
_MASK = _BUCKETS - 1
_EMPTY: dict[str, Any] = {}
"""What all buckets share that nobody has written to."""


def _bucket(key: str) -> int:
    """Where a key is. Look-ups, of which there are millions, have it written out."""
    return crc32(key.encode()) & _MASK


class FrozenMap(Mapping[str, V]):
    """An immutable map from text to values; made by `CowMap.freeze`."""

    __slots__ = ("_buckets", "_size")

    def __init__(self, buckets: tuple[dict[str, V], ...] = (), size: int = 0) -> None:
        self._buckets = buckets
        self._size = size

    def __getitem__(self, key: str) -> V:
        if not self._buckets:
            raise KeyError(key)
        return self._buckets[crc32(key.encode()) & _MASK][key]

    def get(self, key: str, default: Any = None) -> Any:
        """The value, or the default."""
        return self._buckets[crc32(key.encode()) & _MASK].get(key, default) if self._buckets else default

    def __iter__(self) -> Iterator[str]:
        for bucket in self._buckets if self._size else ():
            yield from bucket

    def __len__(self) -> int:
        return self._size

    def difference(self, other: FrozenMap[V]) -> set[str]:
        """The keys that have another value there; cheap between copies of one map."""
        found: set[str] = set()
        for own, their in zip_longest(self._buckets, other._buckets, fillvalue=cast("dict[str, V]", {})):
            if own is their:
                continue
            if list(own) == list(their):
                pairs = zip(own, own.values(), their.values(), strict=True)
                found.update([key for key, value, before in pairs if value is not before])
            else:
                found.update(key for key in own.keys() | their.keys() if own.get(key) is not their.get(key))
        return found


class Computed(Mapping[K, V]):
    """A map of which values are computed when they are looked at; `has` says what is in it (what `keys` gives)."""

    __slots__ = ("_has", "_keys", "_value")

    def __init__(
        self, keys: Callable[[], Iterable[K]], value: Callable[[K], V], has: Callable[[K], bool] | None = None
    ) -> None:
        self._keys = keys
        self._value = value
        self._has = has

    def __contains__(self, key: object) -> bool:
        return self._has(cast("K", key)) if self._has is not None else any(key == known for known in self._keys())

    def __getitem__(self, key: K) -> V:
        return self._value(key)

    def __iter__(self) -> Iterator[K]:
        return iter(self._keys())

    def __len__(self) -> int:
        return sum(1 for _ in self._keys())


class Patched(Mapping[str, V]):
    """A map as it would be with some entries exchanged, added, or (None) gone; the map itself is left alone."""

    __slots__ = ("_base", "_changes")

    def __init__(self, base: Mapping[str, V], changes: Mapping[str, V | None]) -> None:
        self._base = base
        self._changes = changes

    def __getitem__(self, key: str) -> V:
        if key not in self._changes:
            return self._base[key]
        value = self._changes[key]
        if value is None:
            raise KeyError(key)
        return value

    def get(self, key: str, default: Any = None) -> Any:
        """The value, or the default."""
        if key not in self._changes:
            return self._base.get(key, default)
        value = self._changes[key]
        return default if value is None else value

    def __iter__(self) -> Iterator[str]:
        yield from (key for key in self._base if key not in self._changes)
        yield from (key for key, value in self._changes.items() if value is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def differing(now: Mapping[str, V], before: Mapping[str, V]) -> set[str]:
    """The keys that have another value in one of two maps; cheap if both were made from copies of one map."""
    if now is before:
        return set()
    keys: set[str] = set()
    base, other = now, before
    while isinstance(base, Patched):
        keys.update(base._changes)
        base = base._base
    while isinstance(other, Patched):
        keys.update(other._changes)
        other = other._base
    if isinstance(base, FrozenMap) and isinstance(other, FrozenMap):
        keys |= base.difference(other)
    elif base is not other:
        keys |= base.keys() | other.keys()
    return {key for key in keys if now.get(key) is not before.get(key)}


class CowMap(MutableMapping[str, V]):
    """The writable side: a map that hands out frozen copies of itself."""

    __slots__ = ("_buckets", "_frozen", "_owned", "_size")

    def __init__(self) -> None:
        self._buckets: list[dict[str, V]] = [_EMPTY] * _BUCKETS
        self._owned = bytearray(_BUCKETS)
        self._size = 0
        self._frozen: FrozenMap[V] | None = None

    def __getitem__(self, key: str) -> V:
        return self._buckets[_bucket(key)][key]

    def __contains__(self, key: object) -> bool:
        return bool(self._size) and isinstance(key, str) and key in self._buckets[_bucket(key)]

    def __iter__(self) -> Iterator[str]:
        for bucket in self._buckets:
            yield from bucket

    def __len__(self) -> int:
        return self._size

    def get(self, key: str, default: Any = None) -> Any:
        """The value, or the default."""
        return self._buckets[_bucket(key)].get(key, default)

    def __setitem__(self, key: str, value: V) -> None:
        bucket = self._writable(key)
        self._size += key not in bucket
        bucket[key] = value

    def __delitem__(self, key: str) -> None:
        if key not in self._buckets[_bucket(key)]:
            raise KeyError(key)
        del self._writable(key)[key]
        self._size -= 1

    def freeze(self) -> FrozenMap[V]:
        """The map as it is now; later writes do not show in it."""
        if self._frozen is None:
            self._frozen = FrozenMap(tuple(self._buckets), self._size)
            self._owned = bytearray(_BUCKETS)
        return self._frozen

    def _writable(self, key: str) -> dict[str, V]:
        self._frozen = None
        index = _bucket(key)
        if not self._owned[index]:
            self._buckets[index] = dict(self._buckets[index])
            self._owned[index] = 1
        return self._buckets[index]
