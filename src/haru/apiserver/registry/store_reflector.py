"""Objects of a few resources, as they are stored: a cursor in the store's history tells what has changed.

What was acknowledged before, by this server or another one, is seen by who takes in the changes now.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial

from haru.apiserver.object_store import ObjectStore
from haru.storage import Record, Tally
from haru.storage.reflector import Reflector

Heard = Callable[[str, Record | None, Record | None], None]


class StoreReflector:
    """The objects of some resources of one group."""

    def __init__(
        self, objects: ObjectStore, group: str, plurals: Iterable[str], heard: Heard = lambda *_: None
    ) -> None:
        """`heard` is told each change: the plural, the record of before, if any, and that of now."""
        self._objects = objects
        self._group = group
        self._heard = heard
        self._records: dict[str, dict[str, Record]] = {plural: {} for plural in plurals}
        self._followed: list[Reflector] = []
        self._tally: Tally | None = None
        self._counted = -1
        """What was taken in, as the tally counts."""

    def of(self, plural: str) -> Iterator[Record]:
        """The records of a resource."""
        return iter(self._records[plural].values())

    async def start(self) -> None:
        """Read everything, and follow it from there."""
        # A server in the place of an older version may not serve it: then there is nothing of it.
        served = [plural for plural in self._records if self._objects.served.find(self._group, plural) is not None]
        store = self._objects.store
        self._tally = store.tally(map(self._prefix, served))
        self._followed = [
            Reflector(store, self._prefix(plural), partial(self._forget, plural), partial(self._change, plural))
            for plural in served
        ]
        await self.take_in()

    async def take_in(self) -> bool:
        """Take in what has changed; whether anything has."""
        if self._tally is None or self._tally.count == self._counted:
            return False
        counted = self._tally.count
        changed = [await followed.take_in() for followed in self._followed]
        self._counted = counted
        return any(changed)

    def _prefix(self, plural: str) -> str:
        return self._objects.served.preferred(self._group, plural).prefix("")

    def _forget(self, plural: str) -> None:
        for record in list(self._records[plural].values()):
            self._change(plural, record, None)

    def _change(self, plural: str, old: Record | None, new: Record | None) -> None:
        if new is not None:
            self._records[plural][new.key] = new
        elif old is not None:
            self._records[plural].pop(old.key, None)
        self._heard(plural, old, new)


class NamespacedStoreReflector:
    """The objects of one namespaced resource of the core group, by namespace."""

    def __init__(self, objects: ObjectStore, plural: str) -> None:
        self._objects = objects
        self._plural = plural
        self._records: dict[str, dict[str, Record]] = {}
        self._followed: Reflector | None = None

    async def start(self) -> None:
        """Read everything, and follow it from there."""
        prefix = self._objects.served.preferred("", self._plural).prefix("")
        self._followed = Reflector(self._objects.store, prefix, self._records.clear, self._change)
        await self._followed.take_in()

    async def of(self, namespace: str) -> list[Record]:
        """The records of a namespace now, by name."""
        assert self._followed is not None, "start comes first"
        await self._followed.take_in()
        found = self._records.get(namespace)
        return [found[key] for key in sorted(found)] if found else []

    def _change(self, old: Record | None, new: Record | None) -> None:
        if new is not None:
            self._records.setdefault(_namespace_of(new), {})[new.key] = new
        elif old is not None:
            here = self._records.get(_namespace_of(old), {})
            here.pop(old.key, None)
            if not here:
                self._records.pop(_namespace_of(old), None)


def _namespace_of(record: Record) -> str:
    return record.key.split("/")[1]
