"""What watchers follow of a bucket, each place with the events that concern it: all, a namespace, a key, or a value.

An event is put where it concerns somebody when it is published: nobody else is woken by it, or looks at it.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence

from haru.storage.interface import Event, Record

ValueOf = Callable[[Record], str]


def namespace_of(text: str) -> str:
    """The first two parts of a key or a prefix, with their slashes; empty where there are not so many."""
    return text[: text.find("/", text.find("/") + 1) + 1]


def place_name(prefix: str, value: str | None) -> str:
    """The name of the place where all is that has a prefix (without a slash at its end: a key), or a value."""
    if value is not None:
        return _of_value(value)
    return namespace_of(prefix) if prefix.endswith("/") else prefix


def _of_value(value: str) -> str:
    """Prefixes and keys have a slash before any sign of equality."""
    return f"={value}"


def names_of(event: Event) -> Iterable[str]:
    """The names of all places that an event concerns."""
    return dict.fromkeys(("", namespace_of(event.key), event.key, *(event.values or ())))


def concerning(events: Sequence[Event], name: str) -> list[Event]:
    """Those of some events that concern a place other than all."""
    if name.startswith("="):
        return [event for event in events if name in (event.values or ())]
    if name.endswith("/"):
        return [event for event in events if event.key.startswith(name)]
    return [event for event in events if event.key == name]


class Place:
    """The events of one place, oldest first, and who waits there for more."""

    __slots__ = ("_cut", "_read", "events", "start", "waiting", "watchers")

    def __init__(self, start: int) -> None:
        self.events: list[Event] = []
        self.start = start
        """Of the changes after this revision none was left out."""
        self.waiting: dict[asyncio.Future[None], None] = {}
        """In the order in which they came."""
        self.watchers = 0
        self._cut = 0  # events that are no longer here: position = cut + index
        self._read: tuple[int, int, list[Event]] = (-1, -1, [])

    @property
    def end(self) -> int:
        """The position of the next event."""
        return self._cut + len(self.events)

    def position(self, revision: int) -> int:
        """Where the first event after a revision is, or will be."""
        return self._cut + bisect_right(self.events, revision, key=lambda e: e.revision)

    def is_cut(self, position: int) -> bool:
        """Whether events from this position on are no longer here."""
        return position < self._cut

    def since(self, position: int) -> list[Event]:
        """The events from a position on; the same list for all watchers who come from there."""
        first, last, events = self._read
        if (first, last) != (position, self.end):
            events = self.events[position - self._cut :]
            self._read = (position, self.end, events)
        return events

    def reach_back(self, events: Sequence[Event], start: int) -> None:
        """Put older events before those that are here."""
        self.events[:0] = events
        self._cut -= len(events)
        self.start = start

    def drop(self, revision: int) -> None:
        """Cut what is not younger than a revision."""
        count = bisect_right(self.events, revision, key=lambda e: e.revision)
        del self.events[:count]
        self._cut += count
        self._read = (-1, -1, [])

    def reset(self, revision: int) -> None:
        """Begin anew after a revision to which no events lead: every position becomes one that is cut."""
        self._cut = self.end + 1
        self.events.clear()
        self.start = revision
        self._read = (-1, -1, [])


class Index:
    """The keys of a bucket by a value of their records."""

    __slots__ = ("_keys", "_values", "value_of")

    def __init__(self, value_of: ValueOf, records: Iterable[Record]) -> None:
        self.value_of = value_of
        self._keys: dict[str, dict[str, None]] = {}
        self._values: dict[str, str] = {}
        for record in records:
            self._put(record.key, value_of(record))

    def keys(self, value: str, prefix: str, after: str) -> list[str]:
        """The keys with a value and a prefix that follow another one, in order."""
        return sorted(key for key in self._keys.get(value, ()) if key.startswith(prefix) and key > after)

    def take(self, event: Event) -> None:
        """Follow a change, and note in it the places of its values, that of before and that of now."""
        values = [self._remove(event.key)] if event.key in self._values else []
        if event.new is not None:
            values.append(self._put(event.key, self.value_of(event.new)))
        event.values = tuple(map(_of_value, values))

    def note(self, event: Event) -> None:
        """Note in an event of the past the places of its values."""
        if event.values is None:
            event.values = tuple(_of_value(self.value_of(record)) for record in (event.old, event.new) if record)

    def _put(self, key: str, value: str) -> str:
        self._values[key] = value
        self._keys.setdefault(value, {})[key] = None
        return value

    def _remove(self, key: str) -> str:
        value = self._values.pop(key)
        alike = self._keys[value]
        del alike[key]
        if not alike:
            del self._keys[value]
        return value
