"""What is learnt about one cluster and kept from one decision to the next, by whoever learnt it.

A `Notes` belongs to one `Cluster` and goes with its snapshots. What is written here must be right for any snapshot that
it is asked about next, also for one that somebody made up: a reader compares what it has seen with what it is shown and
takes in the difference. So notes save work and never change an answer. They are for one thread at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

T = TypeVar("T")

_LIMIT = 64


class DecisionCache:
    """Entries by topic and key; of each topic the ones that were used last are kept."""

    __slots__ = ("_topics",)

    def __init__(self) -> None:
        self._topics: dict[str, dict[Hashable, Any]] = {}

    def entry(self, topic: str, key: Hashable, make: Callable[[], T], limit: int = _LIMIT) -> T:
        """What is noted under a key, or what `make` makes, noted from now on; at most `limit` entries of the topic."""
        entries = self._topics.setdefault(topic, {})
        found: T = entries.pop(key) if key in entries else make()
        entries[key] = found
        while len(entries) > limit:
            del entries[next(iter(entries))]
        return found
