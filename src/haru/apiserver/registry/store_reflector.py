"""Objects of a few resources, as they are stored: a cursor in the store's history tells what has changed.

What was acknowledged before, by this server or another one, is seen by who takes in the changes now.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from haru.apiserver.object_store import ObjectStore
from haru.storage import Compacted, Record, Tally, Watch
from haru.storage.reflector import Reflector


class StoreReflector:
    """The objects of some resources of one group."""

    def __init__(self, objects: ObjectStore, group: str, plurals: Iterable[str]) -> None:
        self._objects = objects
        self._group = group
        self._records: dict[str, dict[str, Record]] = {plural: {} for plural in plurals}
        self._watches: dict[str, Watch] = {}
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
        self._tally = self._objects.store.tally(map(self._prefix, served))
        for plural in served:
            await self._read(plural)

    async def take_in(self) -> bool:
        """Take in what has changed; whether anything has."""
        if self._tally is None or self._tally.count == self._counted:
            return False
        counted, changed = self._tally.count, False
        for plural, watch in list(self._watches.items()):
            records = self._records[plural]
            try:
                events = watch.pending()
            except Compacted:
                await self._read(plural)
                changed = True
                continue
            for event in events:
                changed = True
                if event.new is not None:
                    records[event.key] = event.new
                else:
                    records.pop(event.key, None)
        self._counted = counted
        return changed

    def _prefix(self, plural: str) -> str:
        return self._objects.served.preferred(self._group, plural).prefix("")

    async def _read(self, plural: str) -> None:
        if plural in self._watches:
            self._watches[plural].close()
        prefix = self._prefix(plural)
        page = await self._objects.store.range(prefix)
        records = self._records[plural]
        records.clear()
        records.update((record.key, record) for record in page.records)
        self._watches[plural] = self._objects.store.watch(prefix, page.revision)


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
