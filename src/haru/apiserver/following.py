"""Objects of a few resources, as they are stored: a cursor in the store's history tells what has changed.

What was acknowledged before, by this server or another one, is seen by who takes in the changes now.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from haru.apiserver.core import Core
from haru.storage import Compacted, Record, Watch


class Followed:
    """The objects of some resources of one group."""

    def __init__(self, core: Core, group: str, plurals: Iterable[str]) -> None:
        self._core = core
        self._group = group
        self._records: dict[str, dict[str, Record]] = {plural: {} for plural in plurals}
        self._watches: dict[str, Watch] = {}

    def of(self, plural: str) -> Iterator[Record]:
        """What there is of a resource."""
        return iter(self._records[plural].values())

    async def start(self) -> None:
        """Read everything, and follow it from there."""
        for plural in self._records:
            await self._read(plural)

    async def take_in(self) -> bool:
        """Take in what has changed; whether anything has."""
        changed = False
        for plural, records in self._records.items():
            try:
                events = self._watches[plural].pending()
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
        return changed

    async def _read(self, plural: str) -> None:
        if plural in self._watches:
            self._watches[plural].close()
        prefix = self._core.served.preferred(self._group, plural).prefix("")
        page = await self._core.store.range(prefix)
        records = self._records[plural]
        records.clear()
        records.update((record.key, record) for record in page.records)
        self._watches[plural] = self._core.store.watch(prefix, page.revision)
