"""Maps and sets whose copies are cheap: buckets are shared with every copy, and duplicated only when written again.

`CowMap.freeze()` costs the number of buckets, a write at most one bucket, whatever the map's size. Its buckets are
chosen by a checksum of the key, not by Python's randomised hash, so that iteration order is the same in every process.
"""

from __future__ import annotations

from collections.abc import (
    Callable,
    Collection,
    Hashable,
    ItemsView,
    Iterable,
    Iterator,
    Mapping,
    MutableMapping,
    Sequence,
    ValuesView,
)
from collections.abc import Set as AbstractSet
from itertools import chain, compress, repeat
from operator import is_not
from typing import Any, TypeVar, cast
from zlib import crc32

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
Mark = tuple[Sequence[str] | None, int, AbstractSet[str]]
"""The writes of a map, how many of them were made before a copy, and the keys that have been exchanged in that."""
_UNKNOWN: Mark = (None, 0, frozenset())

_BUCKETS = 256
_MASK = _BUCKETS - 1
_SEVERAL = 8
"""From so many keys on it pays to look them up together."""
_EMPTY: dict[str, Any] = {}
"""What all buckets share that nobody has written to."""
_EMPTY_BUCKETS = (_EMPTY,) * _BUCKETS
_FEW_WRITES = 1024
"""After more writes two copies are compared bucket by bucket."""
_FEW_EXCHANGED = 100


_MISSING: Any = object()


class FrozenMap(Mapping[str, V]):
    """An immutable map from text to values; made by `CowMap.freeze`.

    `writes` are the keys that its `CowMap` wrote to, the first `len(writes)` of them before this copy was made, and
    `earlier` those written to before the first of them.
    """

    __slots__ = ("_buckets", "_compared", "_earlier", "_size", "_writes", "_written")

    def __init__(
        self,
        buckets: tuple[dict[str, V], ...] = (),
        size: int = 0,
        writes: Sequence[str] | None = None,
        earlier: Sequence[str] | None = None,
    ) -> None:
        self._buckets = buckets
        self._size = size
        self._writes = writes
        self._earlier = earlier
        self._written = 0 if writes is None else len(writes)
        self._compared: tuple[Sequence[str] | None, int, frozenset[str]] | None = None
        """The writes to the copy that was compared last, and what differs: many ask for the same."""

    def __getitem__(self, key: str) -> V:
        if not self._buckets:
            raise KeyError(key)
        return self._buckets[crc32(key.encode()) & _MASK][key]

    def __contains__(self, key: object) -> bool:
        # What a Mapping brings raises an error for each key that is not there.
        return bool(self._size) and isinstance(key, str) and key in self._buckets[crc32(key.encode()) & _MASK]

    def get(self, key: str, default: Any = None) -> Any:
        """The value, or the default."""
        return self._buckets[crc32(key.encode()) & _MASK].get(key, default) if self._size else default

    def __iter__(self) -> Iterator[str]:
        return chain.from_iterable(self._buckets) if self._size else iter(())

    def __len__(self) -> int:
        return self._size

    def pairs(self) -> Iterator[tuple[str, V]]:
        """All keys with their values, without looking up each."""
        return chain.from_iterable(map(dict.items, self._buckets)) if self._size else iter(())

    def items(self) -> ItemsView[str, V]:
        """All keys with their values."""
        return _Items(self)

    def values(self) -> ValuesView[V]:
        """All values."""
        return _Values(self)

    def values_of(self, keys: Iterable[str], default: Any = None) -> list[V | None]:
        """The values of many keys, the default for what is not there."""
        buckets = self._buckets or _EMPTY_BUCKETS
        if isinstance(keys, (list, tuple)) and len(keys) >= _SEVERAL:
            if len(keys) > self._size >> 2:
                # To put the buckets together is cheaper than to find the bucket of each of so many keys.
                whole: dict[str, V] = {}
                for bucket in buckets:
                    whole.update(bucket)
                return list(map(whole.get, keys, repeat(default)))
            hashes = map(crc32, map(str.encode, keys))
            return [buckets[hashed & _MASK].get(key, default) for key, hashed in zip(keys, hashes, strict=True)]
        return [buckets[crc32(key.encode()) & _MASK].get(key, default) for key in keys]

    def difference(self, other: FrozenMap[V]) -> set[str]:
        """The keys that have another value there; cheap between copies of one map, cheaper after few writes."""
        known = self._compared
        if known is not None and known[0] is other._writes and known[1] == other._written:
            return set(known[2])
        written = _written_between(self, other._writes, other._written)
        if written is None and other._earlier is not None:
            written = _written_between(other, self._writes, self._written)
        if written is not None:
            self._compared = other._writes, other._written, frozenset(self._among(written, other))
            return set(self._compared[2])
        found: set[str] = set()
        ours, theirs = self._buckets or _EMPTY_BUCKETS, other._buckets or _EMPTY_BUCKETS
        # Nearly all buckets are the same in both: what runs for each of them is not Python's.
        for own, their in compress(zip(ours, theirs, strict=True), map(is_not, ours, theirs)):
            if list(own) == list(their):
                found.update(compress(own, map(is_not, own.values(), their.values())))
            else:
                found.update(compress(own, map(is_not, own.values(), map(their.get, own, repeat(_MISSING)))))
                found.update(their.keys() - own.keys())
        return found

    def _among(self, keys: Sequence[str], other: FrozenMap[V]) -> list[str]:
        """Those of some keys that have another value there."""
        ours, theirs = self._buckets or _EMPTY_BUCKETS, other._buckets or _EMPTY_BUCKETS
        buckets = [(key, crc32(key.encode()) & _MASK) for key in set(keys)]
        return [
            key for key, number in buckets if ours[number].get(key, _MISSING) is not theirs[number].get(key, _MISSING)
        ]


class _Items(ItemsView[str, V]):
    """What a Mapping brings looks up each key."""

    _mapping: FrozenMap[V]

    def __iter__(self) -> Iterator[tuple[str, V]]:
        return self._mapping.pairs()


class _Values(ValuesView[V]):
    _mapping: FrozenMap[V]

    def __iter__(self) -> Iterator[V]:
        return chain.from_iterable(map(dict.values, self._mapping._buckets)) if self._mapping else iter(())


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

    def __contains__(self, key: object) -> bool:
        return self._changes[key] is not None if key in self._changes else key in self._base  # type: ignore[index]

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
        base = self._base
        changes = [(key in base, value is not None) for key, value in self._changes.items()]
        return len(base) + changes.count((False, True)) - changes.count((True, False))


def differing(now: Mapping[str, V], before: Mapping[str, V]) -> set[str]:
    """The keys that have another value in one of two maps; cheap if both were made from copies of one map."""
    if now is before:
        return set()
    if type(now) is FrozenMap and type(before) is FrozenMap:
        return now.difference(before) if before._size else set(now)
    if isinstance(now, FrozenMap) and not isinstance(before, Patched) and not before:
        return set(now)
    base, keys = _base_of(now)
    other, exchanged = _base_of(before)
    keys |= exchanged
    if isinstance(base, FrozenMap) and isinstance(other, FrozenMap):
        keys |= base.difference(other)
    elif base is not other:
        keys |= base.keys() | other.keys()
    return {key for key in keys if now.get(key, _MISSING) is not before.get(key, _MISSING)}


def mark_of(found: Mapping[str, V]) -> Mark | None:
    """What `written_since` is told of a map when nobody keeps it any more; None where that is nothing, or much."""
    base, exchanged = _base_of(found)
    if not isinstance(base, FrozenMap) or len(exchanged) > _FEW_EXCHANGED:
        return None
    return base._writes, base._written, exchanged


def written_since(now: Mapping[str, V], mark: Mark | None) -> set[str] | None:
    """The keys written to since a map had this mark, whatever they have now; None if they are many or unknown."""
    base, keys = _base_of(now)
    writes, written, exchanged = mark or _UNKNOWN
    found = _written_between(base, writes, written) if isinstance(base, FrozenMap) else None
    return None if found is None else keys | exchanged | set(found)


def _written_between(newer: FrozenMap[V], writes: Sequence[str] | None, written: int) -> Sequence[str] | None:
    """The keys written to between a copy and one with so many of these writes; None if they are many or unknown."""
    if writes is None:
        return None
    if writes is newer._writes:
        begin, end = sorted((written, newer._written))
        return writes[begin:end]
    if writes is not newer._earlier or len(writes) - written + newer._written > _FEW_WRITES:
        return None
    return [*writes[written:], *(newer._writes or ())[: newer._written]]


def _base_of(found: Mapping[str, V]) -> tuple[Mapping[str, V], set[str]]:
    """The map of which another one has some entries exchanged, and which."""
    keys: set[str] = set()
    while isinstance(found, Patched):
        keys.update(found._changes)
        found = found._base
    return found, keys


def are_same(now: Mapping[str, V], before: Mapping[str, V], keys: Collection[str]) -> bool:
    """Return whether some keys have the same values in both maps; cheap if one is the other with some exchanged."""
    if now is before:
        return True
    if isinstance(now, Patched) and now._base is before and isinstance(now._changes, dict):
        return now._changes.keys().isdisjoint(keys)
    return all(now.get(key, _MISSING) is before.get(key, _MISSING) for key in keys)


def values_of(found: Mapping[str, V], keys: Iterable[str], default: Any = None) -> list[V | None]:
    """The values of many keys in their order, the default for what is not there."""
    return found.values_of(keys, default) if isinstance(found, FrozenMap) else [found.get(key, default) for key in keys]


class CowMap(MutableMapping[str, V]):
    """The writable side: a map that hands out frozen copies of itself."""

    __slots__ = ("_all", "_buckets", "_earlier", "_frozen", "_owned", "_writes", "get")
    get: Callable[..., Any]
    """The value, or the default."""

    def __init__(self) -> None:
        self._all: dict[str, V] = {}
        """The same as in all buckets: what is written once is looked up many times."""
        self.get = self._all.get
        self._buckets: list[dict[str, V]] = [_EMPTY] * _BUCKETS
        self._owned = bytearray(_BUCKETS)
        self._frozen: FrozenMap[V] | None = None
        self._writes: list[str] | None = None
        """The keys written to since some copy was made, in order; None before the first copy.

        Copies share it, so it only grows; when it is full there is another one.
        """
        self._earlier: list[str] | None = None
        """The last ones that are full."""

    def __getitem__(self, key: str) -> V:
        return self._all[key]

    def __contains__(self, key: object) -> bool:
        return key in self._all

    def __iter__(self) -> Iterator[str]:
        return chain.from_iterable(self._buckets) if self._all else iter(())

    def __len__(self) -> int:
        return len(self._all)

    def __setitem__(self, key: str, value: V) -> None:
        self._all[key] = value
        self._writable(key)[key] = value

    def __delitem__(self, key: str) -> None:
        self.pop(key)

    def pop(self, key: str, default: Any = _MISSING) -> Any:
        """Remove a key; its value, or the default. To find none is common, so nothing is raised for it inside."""
        if key not in self._all:
            if default is _MISSING:
                raise KeyError(key)
            return default
        del self._writable(key)[key]
        return self._all.pop(key)

    def freeze(self) -> FrozenMap[V]:
        """The map as it is now; later writes do not show in it."""
        if self._frozen is None:
            if self._writes is None:
                self._writes = []
            self._frozen = FrozenMap(tuple(self._buckets), len(self._all), self._writes, self._earlier)
            self._owned = bytearray(_BUCKETS)
        return self._frozen

    def _writable(self, key: str) -> dict[str, V]:
        """The bucket in which a key is to be written."""
        index = crc32(key.encode()) & _MASK
        self._frozen = None
        if self._writes is not None:
            self._writes.append(key)
            if len(self._writes) >= _FEW_WRITES:
                self._earlier, self._writes = self._writes, []
        if not self._owned[index]:
            self._buckets[index] = dict(self._buckets[index])
            self._owned[index] = 1
        return self._buckets[index]


class TextSet(AbstractSet[str]):
    """An immutable set of texts; one with a text more or less costs the square root of its size.

    It has as many buckets as a bucket has texts, a power of two.
    """

    __slots__ = ("_buckets", "_size")
    __hash__ = AbstractSet._hash

    def __init__(self, texts: Iterable[str] = ()) -> None:
        found = frozenset(texts)
        self._size = len(found)
        self._buckets: tuple[frozenset[str], ...] = (found,)
        if self._size > _FEW:
            self._buckets = self._spread(1 << (self._size.bit_length() + 1) // 2)

    def __contains__(self, text: object) -> bool:
        return text in self._buckets[hash(text) & len(self._buckets) - 1]

    def __iter__(self) -> Iterator[str]:
        for bucket in self._buckets:
            yield from bucket

    def __len__(self) -> int:
        return self._size

    def with_text(self, text: str) -> TextSet:
        """The set with one text."""
        buckets = self._buckets
        if len(buckets) == 1 and self._size < _FEW:
            return self if text in buckets[0] else _made((buckets[0] | {text},), self._size + 1)
        index = hash(text) & len(buckets) - 1
        if text in buckets[index]:
            return self
        made = _made((*buckets[:index], buckets[index] | {text}, *buckets[index + 1 :]), self._size + 1)
        if made._size > max(_FEW, len(buckets) ** 2):
            made._buckets = made._spread(2 * len(buckets))
        return made

    def without(self, texts: Iterable[str]) -> TextSet:
        """The set without some texts; itself if it has none of them."""
        if not self._size:
            return self
        if len(self._buckets) == 1:
            left = self._buckets[0].difference(texts)
            return self if len(left) == self._size else _made((left,), len(left))
        buckets, size = list(self._buckets), self._size
        for text in texts:
            index = hash(text) & len(buckets) - 1
            if text in buckets[index]:
                buckets[index] -= {text}
                size -= 1
        return self if size == self._size else _made(tuple(buckets), size)

    def _spread(self, count: int) -> tuple[frozenset[str], ...]:
        buckets: list[set[str]] = [set() for _ in range(count)]
        for text in self:
            buckets[hash(text) & count - 1].add(text)
        return tuple(map(frozenset, buckets))


_FEW = 16
"""So many are one bucket."""


def _made(buckets: tuple[frozenset[str], ...], size: int) -> TextSet:
    found = TextSet.__new__(TextSet)
    found._buckets, found._size = buckets, size
    return found
