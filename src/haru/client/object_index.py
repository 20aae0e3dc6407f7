"""Find objects of an informer by a value of theirs: the node of a pod, the Service of a slice.

Source: client-go `tools/cache` (indexers), as behaviour.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from haru.kube.meta import Obj


class ObjectIndex:
    """Keys of objects by the values that a function yields for an object. Most values are those of one object."""

    __slots__ = ("_by_value", "_values")

    def __init__(self, values: Callable[[Obj], Iterable[str]]) -> None:
        self._values = values
        self._by_value: dict[str, str | dict[str, None]] = {}

    def keys(self, value: str) -> Collection[str]:
        """The keys of the objects that have a value, in the order in which they came."""
        found = self._by_value.get(value, ())
        return (found,) if isinstance(found, str) else found

    def replace(self, key: str, old: Obj, new: Obj) -> None:
        """Find an object by other values; one that keeps its values keeps its place."""
        before, after = list(self._values(old)), list(self._values(new))
        if before != after:
            self._remove(key, before)
            self._add(key, after)

    def add(self, key: str, obj: Obj) -> None:
        """Make an object findable."""
        self._add(key, self._values(obj))

    def remove(self, key: str, obj: Obj) -> None:
        """Forget an object, as it was when it was added."""
        self._remove(key, self._values(obj))

    def _add(self, key: str, values: Iterable[str]) -> None:
        by_value = self._by_value
        for value in values:
            found = by_value.setdefault(value, key)
            if isinstance(found, dict):
                found[key] = None
            elif found != key:
                by_value[value] = {found: None, key: None}

    def _remove(self, key: str, values: Iterable[str]) -> None:
        by_value = self._by_value
        for value in values:
            found = by_value.get(value)
            if isinstance(found, dict):
                found.pop(key, None)
            if found == key or found == {}:
                del by_value[value]
