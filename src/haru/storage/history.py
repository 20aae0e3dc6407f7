"""The memory of a store: the newest state of each bucket, its recent history, and the cursors in it.

One log per bucket and a position per watcher: publishing an event costs the same with one watcher or two hundred,
nothing is copied per watcher, and a slow reader costs nothing but its own place (it gets `Compacted` once the log has
been cut past it). A state of the past is the present with the younger events undone.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Callable, Sequence

from haru.storage.interface import Compacted, Event, FutureRevision, Page, Record

KEEP_SECONDS = 300.0
KEEP_AT_LEAST = 1_000
KEEP_AT_MOST = 20_000
FEW_WATCHERS = 40
SECONDS_PER_WATCHER = 250e-6
LONGEST_PAUSE = 0.1
"""More watchers than a few are woken together, and not again before a pause that grows with their number: what happens
meanwhile goes out in one piece. Between every few of them the loop sees to others."""

WHOLE_AT_MOST = 8


def bucket_of(key: str) -> str:
    """The part before the first slash."""
    return key.partition("/")[0]


def namespace_of(text: str) -> str:
    """The first two parts of a key or a prefix, with their slashes; empty where there are not so many."""
    return text[: text.find("/", text.find("/") + 1) + 1]


def prefix_end(prefix: str) -> str:
    """The smallest text that is larger than all that start with `prefix` (which ends with a slash)."""
    return prefix[:-1] + chr(ord(prefix[-1]) + 1)


class PastPages:
    """The oldest revision of which pages are read: every five minutes that of five minutes before, as with etcd.

    Nothing need go for that: whoever walks through a list for longer is to learn that it is no longer consistent.
    """

    __slots__ = ("_due", "_next", "oldest")

    def __init__(self) -> None:
        self.oldest = 0
        self._next = 0
        self._due = 0.0

    def note(self, revision: int, now: float) -> bool:
        """Take notice of a revision that is visible from now on; whether five minutes are over."""
        is_due = now >= self._due
        if is_due:
            self.oldest, self._next = self._next, revision
            self._due = now + KEEP_SECONDS
        return is_due


class Tally:
    """Counts the changes of some buckets: who follows many of them sees at a glance that nothing has happened."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0


class Bucket:
    """State and history of one resource."""

    __slots__ = (
        "_below",
        "_rousing",
        "_timer",
        "_touched",
        "_whole",
        "_woken",
        "compacted",
        "cut",
        "keys",
        "log",
        "records",
        "tallies",
        "waiting",
        "watchers",
    )

    def __init__(self, compacted: int) -> None:
        self.records: dict[str, Record] = {}
        self.keys: list[str] = []
        self.log: list[Event] = []
        self.cut = 0  # events that are no longer in the log: position = cut + index
        self.compacted = compacted
        self.waiting: dict[str, dict[asyncio.Future[None], None]] = {}
        """Who waits, by the namespace or the key that they watch (empty: all), in the order in which they came."""
        self.watchers = 0
        self.tallies: list[Tally] = []
        self._below: dict[str, tuple[int, int, list[Event]]] = {}
        self._rousing: deque[asyncio.Future[None]] = deque()
        self._touched: dict[str, None] | None = {}
        """The namespaces and keys with changes of which their watchers have not been told; None stands for all."""
        self._whole: dict[str, list[Record]] = {}  # by prefix: what was read whole since the last change
        self._woken = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def put(self, record: Record) -> None:
        """Set the newest version of a key."""
        self._whole.clear()
        if record.key not in self.records:
            if not self.keys or record.key > self.keys[-1]:
                self.keys.append(record.key)
            else:
                insort(self.keys, record.key)
        self.records[record.key] = record

    def append(self, record: Record) -> None:
        """Set a key that comes after all others."""
        self.keys.append(record.key)
        self.records[record.key] = record

    def remove(self, key: str) -> None:
        """Forget a key."""
        self._whole.clear()
        del self.records[key]
        del self.keys[bisect_left(self.keys, key)]

    def publish(self, event: Event, at: float) -> None:
        """Make a change visible."""
        event.at = at
        if event.new is not None:
            self.put(event.new)
        else:
            self.remove(event.key)
        self.log.append(event)
        self.touch(namespace_of(event.key))
        if event.key in self.waiting:
            self.touch(event.key)
        self._count()
        if not len(self.log) % 256:
            # All go on to here, so that nobody is where the log has been cut for want of changes that concern him.
            self._touched = None
            self.trim(at)

    def _count(self) -> None:
        for tally in self.tallies:
            tally.count += 1

    def touch(self, place: str) -> None:
        """Note that the watchers of a namespace, or of a key, are to be woken."""
        if self._touched is not None:
            self._touched[place] = None

    def stop_waiting(self, place: str, future: asyncio.Future[None]) -> None:
        """Forget one who waits, if it does."""
        alike = self.waiting.get(place)
        if alike is not None:
            alike.pop(future, None)
            if not alike:
                del self.waiting[place]

    def wake(self) -> None:
        """Tell the waiting watchers whom it concerns that the log has grown, now or after the pause."""
        if not self.is_pausing():
            self._wake_all()

    def is_pausing(self) -> bool:
        """Whether watchers are to wait for a moment; they are woken then."""
        if self.watchers <= FEW_WATCHERS:
            return False
        if self._timer is not None:
            return True
        loop = asyncio.get_running_loop()
        pause = self._woken + min(LONGEST_PAUSE, self.watchers * SECONDS_PER_WATCHER) - loop.time()
        if pause <= 0:
            return False
        self._timer = loop.call_later(pause, self._wake_all)
        return True

    def _wake_all(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self.watchers > FEW_WATCHERS:
            self._woken = asyncio.get_running_loop().time()
        is_rousing = bool(self._rousing)
        for place in list(self.waiting) if self._touched is None else ("", *self._touched):
            self._rousing.extend(self.waiting.pop(place, ()))
        self._touched = {}
        if not is_rousing:
            self._rouse()

    def _rouse(self) -> None:
        for _ in range(min(FEW_WATCHERS, len(self._rousing))):
            _settle(self._rousing.popleft())
        if self._rousing:
            asyncio.get_running_loop().call_soon(self._rouse)

    def trim(self, now: float) -> None:
        """Cut what is older than the time kept, and whatever exceeds the count kept."""
        surplus = len(self.log) - KEEP_AT_LEAST
        if surplus <= 0:
            return
        drop = bisect_left(self.log, now - KEEP_SECONDS, hi=surplus, key=lambda e: e.at)
        if len(self.log) - drop > KEEP_AT_MOST:
            drop = len(self.log) - KEEP_AT_MOST * 3 // 4
        self._drop(drop)

    def replace(self, records: Sequence[Record], revision: int) -> None:
        """Begin anew with a state, in key order, to which no history leads: every cursor becomes too old."""
        self._whole.clear()
        self.records = {record.key: record for record in records}
        self.keys = [record.key for record in records]
        self.cut += len(self.log) + 1
        self.log = []
        self._below.clear()
        self.compacted = revision
        self._touched = None
        self._count()
        self.wake()

    def compact(self, revision: int) -> None:
        """Cut what is not younger than `revision`."""
        self._drop(bisect_right(self.log, revision, key=lambda e: e.revision))
        self.compacted = max(self.compacted, revision)

    def _drop(self, count: int) -> None:
        if count:
            self.compacted = max(self.compacted, self.log[count - 1].revision)
            del self.log[:count]
            self.cut += count
            self._below.clear()

    def page(self, prefix: str, after: str, limit: int, current: int) -> Page:
        """A part of the newest state. What is read whole again is the same list as before, until something changes."""
        if not after and not limit:
            return Page(self._all(prefix), current)
        keys = self.keys
        start = max(bisect_left(keys, prefix), bisect_right(keys, after) if after else 0)
        end = bisect_left(keys, prefix_end(prefix), lo=start)
        stop = min(end, start + limit) if limit else end
        return Page(list(map(self.records.__getitem__, keys[start:stop])), current, end - stop)

    def since(self, position: int, prefix: str) -> list[Event]:
        """The events below a prefix from a position on; the same list for all watchers who come from there."""
        end = self.cut + len(self.log)
        first, last, events = self._below.get(prefix, (-1, -1, []))
        if (first, last) != (position, end):
            events = self.log[position - self.cut :]
            if prefix:
                events = [event for event in events if event.key.startswith(prefix)]
            if len(self._below) >= WHOLE_AT_MOST:
                self._below.clear()
            self._below[prefix] = (position, end, events)
        return events

    def _all(self, prefix: str) -> list[Record]:
        found = self._whole.get(prefix)
        if found is None:
            if len(self._whole) >= WHOLE_AT_MOST:
                self._whole.clear()
            start = bisect_left(self.keys, prefix)
            keys = self.keys[start : bisect_left(self.keys, prefix_end(prefix), lo=start)]
            found = self._whole[prefix] = list(map(self.records.__getitem__, keys))
        return found

    def page_at(self, prefix: str, after: str, limit: int, revision: int, current: int) -> Page:
        """A part of the state as it was at `revision`."""
        if revision > current:
            raise FutureRevision(revision, current)
        if revision < self.compacted:
            raise Compacted(revision, self.compacted)
        younger = self.log[bisect_right(self.log, revision, key=lambda e: e.revision) :]
        if not younger:
            page = self.page(prefix, after, limit, revision)
            return Page(page.records, revision, page.remaining)
        past: dict[str, Record | None] = {r.key: r for r in self.page(prefix, after, 0, current).records}
        for event in reversed(younger):
            if event.key.startswith(prefix) and event.key > after:
                past[event.key] = event.old
        records = [record for _, record in sorted(past.items()) if record is not None]
        stop = min(len(records), limit) if limit else len(records)
        return Page(records[:stop], revision, len(records) - stop)


class LogWatch:
    """A position in a bucket's log. What ends with no slash is a whole key: other changes do not wake its watcher."""

    __slots__ = (
        "_bucket",
        "_closed",
        "_current",
        "_due",
        "_filter",
        "_future",
        "_on_close",
        "_place",
        "_position",
        "_revision",
        "_timer",
    )

    def __init__(
        self, bucket: Bucket, prefix: str, since: int, current: Callable[[], int], on_close: Callable[[LogWatch], None]
    ) -> None:
        if since < bucket.compacted:
            raise Compacted(since, bucket.compacted)
        self._bucket = bucket
        self._filter = "" if prefix.index("/") == len(prefix) - 1 else prefix
        self._place = namespace_of(self._filter) if prefix.endswith("/") else prefix
        self._position = bucket.cut + bisect_right(bucket.log, since, key=lambda e: e.revision)
        self._current = current
        self._revision = since
        self._future: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0
        self._closed = False
        self._on_close = on_close
        bucket.watchers += 1

    @property
    def revision(self) -> int:
        """Handed out up to here."""
        return self._revision

    @property
    def closed(self) -> bool:
        """Nothing more will come."""
        return self._closed

    def pending(self) -> Sequence[Event]:
        """The events since the last call."""
        bucket = self._bucket
        index = self._position - bucket.cut
        if index < 0:
            raise Compacted(self._revision, bucket.compacted)
        self._revision = max(self._revision, self._current())
        if index == len(bucket.log):
            return ()
        events = bucket.since(self._position, self._filter)
        self._position = bucket.cut + len(bucket.log)
        return events

    def pass_over(self) -> None:
        """Go on past what concerns others only, before the log is cut: it is no reason to begin anew."""
        bucket = self._bucket
        if self._position >= bucket.cut:
            for event in bucket.log[self._position - bucket.cut :]:
                if event.key.startswith(self._filter):
                    break
                self._position += 1

    async def wait(self, timeout: float) -> None:
        """Sleep until the log grows."""
        bucket = self._bucket
        if self._closed:
            return
        if self._is_behind():
            if not bucket.is_pausing():
                return
            bucket.touch(self._place)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        self._future = future
        bucket.waiting.setdefault(self._place, {})[future] = None
        self._set_timer(loop, loop.time() + timeout)
        try:
            await future
        finally:
            self._future = None
            bucket.stop_waiting(self._place, future)

    def _is_behind(self) -> bool:
        """Whether there is something to hand out; what concerns others only is passed over."""
        bucket, end = self._bucket, self._bucket.cut + len(self._bucket.log)
        if self._filter and bucket.cut <= self._position < end and not bucket.since(self._position, self._filter):
            self._position = end
        return self._position != end

    def _set_timer(self, loop: asyncio.AbstractEventLoop, due: float) -> None:
        """One that goes off earlier than now wanted is left: who is woken for nothing waits again."""
        if self._timer is not None:
            if self._due <= due:
                return
            self._timer.cancel()
        self._due = due
        self._timer = loop.call_at(due, self._time_is_over)

    def _time_is_over(self) -> None:
        self._timer = None
        if self._future is not None:
            _settle(self._future)

    def close(self) -> None:
        """End the watch."""
        if not self._closed:
            self._closed = True
            self._bucket.watchers -= 1
            self._on_close(self)
            if self._timer is not None:
                self._timer.cancel()
            if self._future is not None:
                _settle(self._future)


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
