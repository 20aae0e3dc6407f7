"""The memory of a store: the newest state of each bucket, its recent history, and the cursors in it.

One log per bucket and per place in it that somebody follows, and a position per watcher: publishing an event costs the
same with one watcher or two hundred, nothing is copied per watcher, and a slow reader costs nothing but its own place
(it gets `Compacted` once what concerns it has been cut). A state of the past is the present with the younger events
undone.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Callable, Sequence

from haru.storage.interface import Compacted, Event, FutureRevision, Page, Record
from haru.storage.places import Index, Place, ValueOf, concerning, names_of, namespace_of, place_name

KEEP_SECONDS = 300.0
KEEP_AT_LEAST = 1_000
KEEP_AT_MOST = 20_000
FEW_WATCHERS = 40
SECONDS_PER_WATCHER = 250e-6
LONGEST_PAUSE = 0.1
"""Where more watchers than a few were woken together, nobody is before a pause that grows with their number: what
happens meanwhile goes out in one piece. Between every few of them the loop sees to others."""

WHOLE_AT_MOST = 8


def bucket_of(key: str) -> str:
    """The part before the first slash."""
    return key.partition("/")[0]


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
        "_everything",
        "_index",
        "_rests_until",
        "_rousing",
        "_timer",
        "_touched",
        "_whole",
        "compacted",
        "keys",
        "places",
        "records",
        "tallies",
        "value_of",
    )

    def __init__(self, compacted: int) -> None:
        self.records: dict[str, Record] = {}
        self.keys: list[str] = []
        self.compacted = compacted
        self._everything = Place(0)
        self.places = {"": self._everything}
        """What somebody follows, by name (empty: all)."""
        self.value_of: ValueOf | None = None
        self.tallies: list[Tally] = []
        self._index: Index | None = None  # made when it is first wanted
        self._rousing: deque[asyncio.Future[None]] = deque()
        self._touched: dict[Place, None] = {}
        """Places with changes of which their watchers have not been told."""
        self._whole: dict[str, list[Record]] = {}  # by prefix: what was read whole since the last change
        self._rests_until = 0.0
        self._timer: asyncio.TimerHandle | None = None

    @property
    def log(self) -> list[Event]:
        """All events, oldest first."""
        return self._everything.events

    def index(self) -> Index:
        """The keys by value, from now on kept."""
        if self._index is None:
            assert self.value_of is not None, "nothing is indexed here"
            self._index = Index(self.value_of, self.records.values())
        return self._index

    def has_value(self, record: Record, value: str | None) -> bool:
        """Whether a record is indexed by a value; None stands for all."""
        return value is None or self.index().value_of(record) == value

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
        if self._index is not None:
            self._index.take(event)
        if event.new is not None:
            self.put(event.new)
        else:
            self.remove(event.key)
        for name in names_of(event):
            place = self.places.get(name)
            if place is not None:
                place.events.append(event)
                self.touch(place)
        self._count()
        if not len(self.log) % 256:
            self.trim(at)

    def _count(self) -> None:
        for tally in self.tallies:
            tally.count += 1

    def follow(self, prefix: str, value: str | None, since: int) -> Place:
        """The place where the events below a prefix, of a key or of a value are, from those after `since` on."""
        name, index = place_name(prefix, value), None if value is None else self.index()
        place = self.places.get(name)
        if place is None:
            newest = self.log[-1].revision if self.log else since
            place = self.places[name] = Place(max(since, newest))
        if since < place.start:
            older = self._between(since, place.start)
            if index is not None:
                for event in older:
                    index.note(event)
            place.reach_back(concerning(older, name), since)
        place.watchers += 1
        return place

    def leave(self, place: Place, prefix: str, value: str | None) -> None:
        """One follows a place no more. What nobody follows is not kept."""
        place.watchers -= 1
        if not place.watchers and place is not self._everything:
            del self.places[place_name(prefix, value)]

    def _between(self, since: int, until: int) -> list[Event]:
        first, last = (bisect_right(self.log, revision, key=lambda e: e.revision) for revision in (since, until))
        return self.log[first:last]

    def touch(self, place: Place) -> None:
        """Note that the watchers of a place are to be woken."""
        self._touched[place] = None

    def wake(self) -> None:
        """Tell the waiting watchers whom it concerns that the log has grown, now or after the pause."""
        if not self.is_pausing():
            self._wake_all()

    def is_pausing(self) -> bool:
        """Whether watchers are to wait for a moment; they are woken then."""
        if self._timer is not None:
            return True
        if not self._rests_until:
            return False
        loop = asyncio.get_running_loop()
        if self._rests_until <= loop.time():
            return False
        self._timer = loop.call_at(self._rests_until, self._wake_all)
        return True

    def _wake_all(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        touched, self._touched = self._touched, {}
        watchers = sum(place.watchers for place in touched)
        self._rests_until = 0.0
        if watchers > FEW_WATCHERS:
            pause = min(LONGEST_PAUSE, watchers * SECONDS_PER_WATCHER)
            self._rests_until = asyncio.get_running_loop().time() + pause
        is_rousing = bool(self._rousing)
        for place in touched:
            self._rousing.extend(place.waiting)
            place.waiting.clear()
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
        self.compacted = revision
        if self._index is not None:
            self._index = Index(self._index.value_of, records)
        for place in self.places.values():
            place.reset(revision)
            self.touch(place)
        self._count()
        self.wake()

    def compact(self, revision: int) -> None:
        """Cut what is not younger than `revision`."""
        self._drop(bisect_right(self.log, revision, key=lambda e: e.revision))
        self.compacted = max(self.compacted, revision)

    def _drop(self, count: int) -> None:
        if count:
            dropped = self.log[:count]
            revision = dropped[-1].revision
            self.compacted = max(self.compacted, revision)
            for name in {name for event in dropped for name in names_of(event)} & self.places.keys():
                self.places[name].drop(revision)

    def page(self, prefix: str, value: str | None, after: str, limit: int, current: int) -> Page:
        """A part of the newest state. What is read whole again is the same list as before, until something changes."""
        if value is not None:
            keys = self.index().keys(value, prefix, after)
            start, end = 0, len(keys)
        elif not after and not limit:
            return Page(self._all(prefix), current)
        else:
            keys = self.keys
            start = max(bisect_left(keys, prefix), bisect_right(keys, after) if after else 0)
            end = bisect_left(keys, prefix_end(prefix), lo=start)
        stop = min(end, start + limit) if limit else end
        return Page(list(map(self.records.__getitem__, keys[start:stop])), current, end - stop)

    def _all(self, prefix: str) -> list[Record]:
        found = self._whole.get(prefix)
        if found is None:
            if len(self._whole) >= WHOLE_AT_MOST:
                self._whole.clear()
            start = bisect_left(self.keys, prefix)
            keys = self.keys[start : bisect_left(self.keys, prefix_end(prefix), lo=start)]
            found = self._whole[prefix] = list(map(self.records.__getitem__, keys))
        return found

    def page_at(self, prefix: str, value: str | None, after: str, limit: int, revision: int, current: int) -> Page:
        """A part of the state as it was at `revision`."""
        if revision > current:
            raise FutureRevision(revision, current)
        if revision < self.compacted:
            raise Compacted(revision, self.compacted)
        younger = self.log[bisect_right(self.log, revision, key=lambda e: e.revision) :]
        if not younger:
            page = self.page(prefix, value, after, limit, revision)
            return Page(page.records, revision, page.remaining)
        past: dict[str, Record | None] = {r.key: r for r in self.page(prefix, None, after, 0, current).records}
        for event in reversed(younger):
            if event.key.startswith(prefix) and event.key > after:
                past[event.key] = event.old
        records = [record for _, record in sorted(past.items()) if record is not None and self.has_value(record, value)]
        stop = min(len(records), limit) if limit else len(records)
        return Page(records[:stop], revision, len(records) - stop)


class LogWatch:
    """A position in a bucket's history. A prefix without a slash at its end is a whole key."""

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
        "_which",
    )

    def __init__(
        self,
        bucket: Bucket,
        prefix: str,
        value: str | None,
        since: int,
        current: Callable[[], int],
        on_close: Callable[[LogWatch], None],
    ) -> None:
        if since < bucket.compacted:
            raise Compacted(since, bucket.compacted)
        self._bucket = bucket
        self._which = (prefix, value)
        self._filter = namespace_of(prefix) if value is not None else ""
        self._place = bucket.follow(prefix, value, since)
        self._position = self._place.position(since)
        self._current = current
        self._revision = since
        self._future: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0
        self._closed = False
        self._on_close = on_close

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
        place = self._place
        if place.is_cut(self._position):
            raise Compacted(self._revision, self._bucket.compacted)
        self._revision = max(self._revision, self._current())
        if self._position == place.end:
            return ()
        events = place.since(self._position)
        self._position = place.end
        return [event for event in events if event.key.startswith(self._filter)] if self._filter else events

    async def wait(self, timeout: float) -> None:
        """Sleep until the log grows."""
        bucket, place = self._bucket, self._place
        if self._closed:
            return
        if self._position != place.end:
            if not bucket.is_pausing():
                return
            bucket.touch(place)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        self._future = future
        place.waiting[future] = None
        self._set_timer(loop, loop.time() + timeout)
        try:
            await future
        finally:
            self._future = None
            place.waiting.pop(future, None)

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
            self._bucket.leave(self._place, *self._which)
            self._on_close(self)
            if self._timer is not None:
                self._timer.cancel()
            if self._future is not None:
                _settle(self._future)


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
