"""What the API server asks of a store, and the values that pass between them.

A store maps keys to bytes and counts revisions: every change has its own, larger than all before it. A key is
`<bucket>/<rest>`; a bucket holds the objects of one resource (`pods/default/web`, `nodes/gpu-1`), and lists and
watches name a prefix inside one bucket. Reads are of the newest state or of any revision that is still in the
history; a watch starts after any such revision. Older ones raise `Compacted`, which clients see as 410 Expired.

A change is visible (to reads, to watches, to its writer) only once it is durable: what a client has seen can not be
taken back by a crash. Where several servers share a store each has a view of it, which may be a moment behind the
others' changes; `progress` brings it up to them. Source: the contract that Kubernetes has with etcd, as behaviour.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

PACK_FROM = 4096
"""Values of at least so many bytes are kept compressed, in memory and on disk."""


class StoreError(Exception):
    """The store can not be opened, or could not make a change durable."""

    passing = False
    """Whether the store was only out of reach or too slow at that moment."""


class StoreClosed(StoreError):
    """The store was closed, or has not been opened yet."""


class CompareFailed(Exception):
    """A transaction was not made: a key is not at the revision that it expected."""

    def __init__(self, key: str, actual: Record | None) -> None:
        super().__init__(f"{key} is at revision {actual.revision if actual else 0}, the transaction expected another")
        self.key = key
        self.actual = actual


class Compacted(Exception):
    """The revision asked for is older than the history that is kept."""

    def __init__(self, asked: int, oldest: int) -> None:
        super().__init__(f"too old resource version: {asked} ({oldest})")
        self.asked = asked
        self.oldest = oldest


class FutureRevision(Exception):
    """The revision asked for does not exist yet."""

    def __init__(self, asked: int, current: int) -> None:
        super().__init__(f"Too large resource version: {asked}, current: {current}")
        self.asked = asked
        self.current = current


class Record:
    """One version of one key. `note` is room for what a reader derives from the value and wants to find again.

    `stale`: it is kept otherwise than it would be written now (plain, or encrypted with an older key), and should be
    written anew at the next occasion.
    """

    __slots__ = ("_data", "_packed", "_plain", "key", "note", "revision", "stale")

    def __init__(self, key: str, value: bytes, revision: int, *, packed: bool = False, stale: bool = False) -> None:
        self.key = key
        self.revision = revision
        self.stale = stale
        self.note: Any = None
        self._data = value
        self._packed = packed
        self._plain: bytes | None = None

    @property
    def value(self) -> bytes:
        """The bytes as they were written (with the revision in its place)."""
        plain = self._plain
        if plain is not None:
            return plain
        return zlib.decompress(self._data) if self._packed else self._data

    @property
    def plain_size(self) -> int:
        """Bytes that are kept beside the compressed ones; 0 for none."""
        plain = self._plain
        return 0 if plain is None else len(plain)

    def cool(self) -> None:
        """Keep the compressed bytes alone: the value is not read soon."""
        self._plain = None

    def head(self, size: int) -> bytes:
        """The first bytes of the value, `size` at most."""
        plain = self._plain
        if plain is None and self._packed:
            return zlib.decompressobj().decompress(self._data, size)
        return (self._data if plain is None else plain)[:size]

    def pack(self) -> None:
        """Compress a large value where that pays; what is seen from outside stays the same.

        The plain bytes stay until `cool`: what was just written is read at once, by its writer and by watches.
        """
        if self._packed or len(self._data) < PACK_FROM:
            return
        # Level 1 takes a third of the time of the default and leaves JSON a tenth larger.
        packed = zlib.compress(self._data, 1)
        if len(packed) * 2 < len(self._data):
            # In this order: a reader in another thread that sees the flag must see the packed bytes. The change from
            # plain to packed is made before the record is published, so no reader can see the state between.
            self._plain = self._data
            self._data, self._packed = packed, True

    @property
    def stored(self) -> tuple[bytes, bool]:
        """The bytes as they are kept, and whether they are compressed."""
        return self._data, self._packed

    def __repr__(self) -> str:
        return f"Record({self.key!r}, revision={self.revision})"


class Event:
    """One change: `old` is None for a creation, `new` for a deletion. `at` is the store's clock, in seconds.

    `values`: where an index of the resource has the change; None while there is none.
    """

    __slots__ = ("at", "key", "new", "note", "old", "revision", "values")

    def __init__(self, key: str, revision: int, old: Record | None, new: Record | None) -> None:
        self.key = key
        self.revision = revision
        self.old = old
        self.new = new
        self.at = 0.0
        self.note: Any = None
        self.values: tuple[str, ...] | None = None

    def __repr__(self) -> str:
        what = "created" if self.old is None else "deleted" if self.new is None else "changed"
        return f"Event({self.key!r} {what} at {self.revision})"


@dataclass(frozen=True, slots=True)
class Put:
    """Write a key. `expected`: None = whatever it is, 0 = it must not exist, else the revision it must be at.

    `place` is the offset in `value` at which the store writes the change's revision, in decimal: an encoded object
    carries its own resourceVersion, and only the store knows it. `lives`: the key goes by itself after so many seconds
    unless it is written again (0: it stays); only a store that servers share can do that. `note`: makes the note of the
    record from its revision, before anybody sees the record; a store that only learns of its changes may leave it out.
    """

    key: str
    value: bytes
    expected: int | None = None
    place: int | None = None
    lives: int = 0
    note: Callable[[int], object] | None = None


@dataclass(frozen=True, slots=True)
class Delete:
    """Remove a key; `expected` as in `Put`. A key that does not exist fails the transaction."""

    key: str
    expected: int | None = None


@dataclass(frozen=True, slots=True)
class Page:
    """A part of a range as it was at `revision`; `remaining` counts what follows the last record."""

    records: Sequence[Record]
    revision: int
    remaining: int = 0


class Watch(Protocol):
    """A cursor in the history of one prefix. It never makes a writer wait; who falls too far behind is told so."""

    def pending(self) -> Sequence[Event]:
        """The events since the last call, in order. Raises `Compacted` when some of them are gone."""

    @property
    def revision(self) -> int:
        """Everything up to this revision has been handed out (or does not concern the prefix)."""

    async def wait(self, timeout: float) -> None:
        """Return when there may be events, when the watch is closed, or after `timeout` seconds."""

    @property
    def closed(self) -> bool:
        """Nothing more will come."""

    def close(self) -> None:
        """Give the cursor back; wakes who waits."""


class Tally(Protocol):
    """How many changes there were; more of them than before is all that it says."""

    @property
    def count(self) -> int:
        """Never falls."""


class Store(Protocol):
    """The interface: get, range, transact, watch, index, tally, progress, compact (and the life cycle)."""

    @property
    def shared(self) -> bool:
        """Whether other servers may write to it too."""

    @property
    def revision(self) -> int:
        """The newest visible revision."""

    @property
    def failing(self) -> bool:
        """Whether the last change could not be made durable."""

    async def start(self) -> None:
        """Open, load; raises `StoreError`."""

    async def stop(self) -> None:
        """Make everything acknowledged durable, and close."""

    async def get(self, key: str) -> Record | None:
        """The newest version of a key."""

    def index(self, resource: str, value_of: Callable[[Record], str]) -> None:
        """Find the records of a resource, and their changes, by a value too, once somebody asks for one."""

    async def range(
        self, prefix: str, *, value: str | None = None, after: str = "", limit: int = 0, revision: int = 0
    ) -> Page:
        """Records under `prefix` in key order, from the key that follows `after`, as of `revision` (0 = newest).

        With `value` those alone that are indexed by it.
        """

    async def transact(self, *operations: Put | Delete) -> Sequence[Event]:
        """Make all changes or none; one event each, perhaps of one revision. Raises `CompareFailed`, `StoreError`."""

    async def progress(self) -> None:
        """Return when everything is visible that was acknowledged, by any server, before the call."""

    def watch(self, prefix: str, since: int, value: str | None = None) -> Watch:
        """Follow a prefix, or a whole key, from the first change after `since`. Raises `Compacted`.

        With `value` the changes alone of what is indexed by it, or was before them.
        """

    def tally(self, prefixes: Iterable[str]) -> Tally:
        """What a follower of all these prefixes looks at first; other keys of the same resources count as well."""

    async def compact(self, revision: int) -> None:
        """Forget the history up to and including `revision`; the newest state stays."""

    async def snapshot(self) -> Path:
        """A new file with the whole state, which the caller removes. Raises `StoreError` where there can be none."""
