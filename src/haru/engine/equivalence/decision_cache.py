"""The one cache of the engine: results by topic and key, owned by a `SchedulerCache` or by an object of it.

Nothing is ever invalidated. A key holds every value that its result depends on, so that a change makes another key. A
result that depends on the state of the cluster is an index that follows it: it is told the snapshot on each use, finds
by identity what differs from the last one (`cow_map.differing`, `AllocatedState.changed`), and recomputes that. So a
cached result is right for any snapshot, also for a hypothetical one, and the engine decides the same with `NoCache`.

Several threads may look up and add entries. An entry that follows the cluster is for one thread at a time.
What a value knows of itself it keeps itself (`cached_property`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from functools import cached_property as cached_property
else:
    _set = object.__setattr__

    class cached_property:
        """A property that is computed once and kept as an attribute of its instance.

        It does without the lock that Python 3.11's takes: pods and nodes are read by one thread at a time. Nor does it
        ask for `__dict__`, which makes a map: an instance keeps its attributes without one, and is read faster.
        """

        def __init__(self, compute: Any) -> None:
            self._compute = compute
            self.__doc__ = compute.__doc__

        def __set_name__(self, owner: type, name: str) -> None:
            self._name = name

        def __get__(self, instance: Any, owner: type | None = None) -> Any:
            if instance is None:
                return self
            value = self._compute(instance)
            _set(instance, self._name, value)
            return value


T = TypeVar("T")

_LIMIT = 64
_MOST_DROPPED = 16
_MISSING: Any = object()


class DecisionCache:
    """Keep the results of each topic that were used last."""

    __slots__ = ("_dropped", "_topics")
    shares_results = True
    """Whether one result may stand for several nodes or pods of an equivalence class."""

    def __init__(self) -> None:
        self._topics: dict[str, dict[Hashable, Any]] = {}
        self._dropped: list[Any] | None = None
        """Results that are freed with the next `release`; None until there has been one."""

    def get_or_compute(self, topic: str, key: Hashable, compute: Callable[[], T], limit: int = _LIMIT) -> T:
        """Return the result under a key; compute and keep it if it is not there. Keep `limit` results of the topic."""
        entries = self._topics.get(topic)
        if entries is None:
            entries = self._topics.setdefault(topic, {})
        found: T = entries.get(key, _MISSING)
        if found is _MISSING:
            found = entries[key] = compute()
            if len(entries) > limit:
                self._drop_oldest(entries)
        elif len(entries) >= limit:
            entries.pop(key, None)
            entries[key] = found
        return found

    def scope(self) -> DecisionCache:
        """Return a cache of the same sort for what belongs to one object and lives as long."""
        return DecisionCache()

    def release(self) -> None:
        """Free what was dropped since the last call: called while nobody waits, for to free a gang takes time."""
        if self._dropped or self._dropped is None:
            self._dropped = []

    def _drop_oldest(self, entries: dict[Hashable, Any]) -> None:
        # Another thread may have changed the entries meanwhile; then that one drops the oldest.
        with suppress(KeyError, RuntimeError, StopIteration):
            oldest = next(iter(entries))
            found = oldest, entries.pop(oldest)
            if self._dropped is not None and len(self._dropped) < _MOST_DROPPED:
                self._dropped.append(found)


class NoCache(DecisionCache):
    """Keep nothing: every result is computed when it is asked for."""

    __slots__ = ()
    shares_results = False

    def get_or_compute(self, topic: str, key: Hashable, compute: Callable[[], T], limit: int = _LIMIT) -> T:
        """Compute the result."""
        return compute()

    def scope(self) -> DecisionCache:
        """Return itself."""
        return self
