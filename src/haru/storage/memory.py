"""A store that lives in memory, and the half of every embedded store that decides and publishes.

A transaction is judged against the newest state *including* what is staged (decided, not yet durable), so writes to
many keys can be on their way together. Published is only what `_commit` has made durable; here that is at once.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from haru.storage.history import Bucket, LogWatch, PastPages, Tally, bucket_of
from haru.storage.interface import (
    Compacted,
    CompareFailed,
    Delete,
    Event,
    FutureRevision,
    Page,
    Put,
    Record,
    StoreError,
)
from haru.storage.places import ValueOf

PLAIN_BYTES = 4 * 1024 * 1024
"""Of large values that were written last, kept as they are beside their compressed form."""


class MemoryStore:
    """State and history in memory; gone with the process."""

    shared = False

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._buckets: dict[str, Bucket] = {}
        self._revision = 1  # published; a store that has never been written to is at 1, as etcd is
        self._assigned = 1  # handed to staged changes
        self._compacted = 0
        self._past_pages = PastPages()
        self._staged: dict[str, Event] = {}
        self._watches: set[LogWatch] = set()
        self._plain: deque[Record] = deque()
        self._plain_bytes = 0
        self.failing = False

    @property
    def revision(self) -> int:
        """The newest visible revision."""
        return self._revision

    async def start(self) -> None:
        """Nothing to open."""

    async def stop(self) -> None:
        """End all watches."""
        for watch in list(self._watches):
            watch.close()

    async def get(self, key: str) -> Record | None:
        """The newest version of a key."""
        bucket = self._buckets.get(bucket_of(key))
        return bucket.records.get(key) if bucket else None

    def index(self, resource: str, value_of: ValueOf) -> None:
        """Find the records of a resource, and their changes, by a value too, once somebody asks for one."""
        self._bucket(resource).value_of = value_of

    async def range(
        self, prefix: str, *, value: str | None = None, after: str = "", limit: int = 0, revision: int = 0
    ) -> Page:
        """Records under `prefix` in key order."""
        bucket = self._bucket(bucket_of(prefix))
        if revision:
            if revision < self._past_pages.oldest:
                raise Compacted(revision, self._past_pages.oldest)
            return bucket.page_at(prefix, value, after, limit, revision, self._revision)
        return bucket.page(prefix, value, after, limit, self._revision)

    def watch(self, prefix: str, since: int, value: str | None = None) -> LogWatch:
        """Follow a prefix from the first change after `since`."""
        if since > self._revision:
            raise FutureRevision(since, self._revision)
        bucket = self._bucket(bucket_of(prefix))
        watch = LogWatch(bucket, prefix, value, since, lambda: self._revision, self._watches.discard)
        self._watches.add(watch)
        return watch

    def tally(self, prefixes: Iterable[str]) -> Tally:
        """A count of the changes of the buckets in which some prefixes lie."""
        tally = Tally()
        for name in {bucket_of(prefix) for prefix in prefixes}:
            self._bucket(name).tallies.append(tally)
        return tally

    async def progress(self) -> None:
        """Nothing is acknowledged before it is visible here."""

    async def snapshot(self) -> Path:
        """There is no file to make one of."""
        raise StoreError("this store is not in a file: no snapshot can be made of it")

    async def compact(self, revision: int) -> None:
        """Forget the history up to and including `revision`."""
        self._compacted = max(self._compacted, min(revision, self._revision))
        for bucket in self._buckets.values():
            bucket.compact(self._compacted)

    async def transact(self, *operations: Put | Delete) -> Sequence[Event]:
        """Make all changes or none."""
        if any(isinstance(operation, Put) and operation.lives for operation in operations):
            raise StoreError("keys that go by themselves can only be kept in etcd")
        stale = self._disagreement(operations)
        if stale is not None:
            await self._settled(stale)
            raise CompareFailed(stale, await self.get(stale))
        events = [self._stage(operation) for operation in operations]
        await self._commit(events)
        return events

    def _bucket(self, name: str) -> Bucket:
        bucket = self._buckets.get(name)
        if bucket is None:
            bucket = self._buckets[name] = Bucket(self._compacted)
        return bucket

    def _newest(self, key: str) -> Record | None:
        staged = self._staged.get(key)
        if staged is not None:
            return staged.new
        return self._bucket(bucket_of(key)).records.get(key)

    def _disagreement(self, operations: Sequence[Put | Delete]) -> str | None:
        check_named_once(operations)
        for operation in operations:
            record = self._newest(operation.key)
            found = record.revision if record else 0
            if operation.expected is not None and operation.expected != found:
                return operation.key
            if not found and isinstance(operation, Delete):
                return operation.key
        return None

    def _stage(self, operation: Put | Delete) -> Event:
        self._assigned += 1
        revision = self._assigned
        old = self._newest(operation.key)
        new = None
        if isinstance(operation, Put):
            value, place = operation.value, operation.place
            if place is not None:
                value = b"%b%d%b" % (value[:place], revision, value[place:])
            new = Record(operation.key, value, revision)
            if operation.note is not None:
                new.note = operation.note(revision)
        event = Event(operation.key, revision, old, new)
        self._staged[operation.key] = event
        return event

    async def _settled(self, key: str) -> None:
        """Wait until what is staged for a key is published or given up."""
        # Here nothing stays staged: a commit is made without a pause.

    async def _commit(self, events: Sequence[Event]) -> None:
        for event in events:
            if event.new is not None:
                event.new.pack()
        self._publish(events)

    def _publish(self, events: Sequence[Event]) -> None:
        at = self._clock()
        touched = set()
        for event in events:
            bucket = self._bucket(bucket_of(event.key))
            bucket.publish(event, at)
            touched.add(bucket)
            self._unstage(event)
            if event.new is not None and event.new.plain_size:
                self._keep_plain(event.new)
        self._revision = max(self._revision, events[-1].revision)
        if self._past_pages.note(self._revision, at):
            # A bucket in which nothing happens any more would keep its last changes.
            for bucket in self._buckets.values():
                bucket.trim(at)
        for bucket in touched:
            bucket.wake()

    def _keep_plain(self, record: Record) -> None:
        """Let a record have its plain bytes until others have come after it."""
        self._plain.append(record)
        self._plain_bytes += record.plain_size
        while self._plain_bytes > PLAIN_BYTES:
            old = self._plain.popleft()
            self._plain_bytes -= old.plain_size
            old.cool()

    def _make_stale(self, is_meant: Callable[[str], bool]) -> None:
        """Have records of some resources written anew with their next update: the key they are kept with is old."""
        for name, bucket in self._buckets.items():
            if is_meant(name):
                for record in bucket.records.values():
                    record.stale = True
        for event in self._staged.values():
            if event.new is not None and is_meant(bucket_of(event.key)):
                event.new.stale = True

    def _unstage(self, event: Event) -> None:
        if self._staged.get(event.key) is event:
            del self._staged[event.key]


def check_named_once(operations: Sequence[Put | Delete]) -> None:
    """A transaction changes a key once; ValueError otherwise."""
    seen = set()
    for operation in operations:
        if operation.key in seen:
            raise ValueError(f"{operation.key} is named twice in one transaction")
        seen.add(operation.key)
