"""Which key signs and which keys are published at a time.

A key is published before it signs, so that every API server has fetched it by then, and stays published after it was
replaced until the last token that it has signed is over.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

LEEWAY_SECONDS = 60
"""An API server takes a token for so long after its end."""


@dataclass(frozen=True, slots=True)
class Record:
    """One key. Times are in seconds since the epoch; without `ends` nothing is to replace it yet."""

    key_id: str
    algorithm: str
    signs_from: int
    ends: int | None = None
    excluded: bool = False
    """It only checks tokens that others have signed, and is hidden from discovery."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How soon API servers fetch keys again, and how long a token may be good; in seconds."""

    refresh_hint: int = 60
    max_expiration: int = 24 * 3600

    @property
    def ahead(self) -> int:
        """How long a key is published before it signs: twice what API servers wait, one fetch may fail."""
        return 2 * self.refresh_hint

    @property
    def kept(self) -> int:
        """How long a key is published after it has signed for the last time."""
        return self.max_expiration + LEEWAY_SECONDS + self.refresh_hint


def published(records: Sequence[Record], now: float) -> list[Record]:
    """The keys that API servers are told of."""
    return [record for record in records if record.ends is None or now < record.ends]


def signing(records: Sequence[Record], now: float) -> Record | None:
    """The key that signs: the newest whose time has come."""
    ready = [record for record in published(records, now) if not record.excluded and record.signs_from <= now]
    return max(ready, key=lambda record: record.signs_from, default=None)


def state(records: Sequence[Record], record: Record, now: float) -> str:
    """What a key does now, for people."""
    if record not in published(records, now):
        return "over"
    if record.excluded:
        return "checks only"
    if record.signs_from > now:
        return "published, signs later"
    return "signs" if record == signing(records, now) else "published, signed before"


def with_new(records: Sequence[Record], key_id: str, algorithm: str, now: int, pace: Pace) -> list[Record]:
    """The keys with one more, which replaces those that sign now; the first of all signs at once."""
    current = signing(records, now)
    since = now + pace.ahead if current is not None else now
    ended = [
        replace(record, ends=since + pace.kept) if record.ends is None and not record.excluded else record
        for record in records
    ]
    return [*ended, Record(key_id, algorithm, since)]
