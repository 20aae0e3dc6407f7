"""Waiting until one of several resources has changed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from haru.apiserver.object_store import ObjectStore
from haru.event_loop import cancelled
from haru.storage import Compacted, Watch

TASKS = "haru apiserver: changes"
"""How the tasks are called that wait: one for each resource, which end with each wait."""


class ObjectChanges:
    """Cursors in the history of some resources; what has changed is read by who asks."""

    def __init__(self, objects: ObjectStore, *resources: tuple[str, str]) -> None:
        self._objects = objects
        self._resources = resources
        self._watches: dict[str, Watch] = {}

    def start(self) -> None:
        """Look from here on."""
        self.follow(*self._resources)

    def follow(self, *resources: tuple[str, str]) -> None:
        """Look at these, too, from here on."""
        for prefix in self._prefixes(resources):
            if prefix not in self._watches:
                self._watches[prefix] = self._objects.store.watch(prefix, self._objects.store.revision)

    def leave(self, *resources: tuple[str, str]) -> None:
        """Look at these no more."""
        for prefix in self._prefixes(resources):
            if (watch := self._watches.pop(prefix, None)) is not None:
                watch.close()

    def _prefixes(self, resources: Iterable[tuple[str, str]]) -> list[str]:
        served = self._objects.served
        return [found.prefix("") for each in resources if (found := served.find(*each)) is not None]

    def stop(self) -> None:
        """Give the cursors back."""
        for watch in self._watches.values():
            watch.close()

    def seen(self) -> bool:
        """Whether anything has changed since the last call."""
        changed = False
        for prefix, watch in self._watches.items():
            try:
                changed |= bool(watch.pending())
            except Compacted:
                watch.close()
                self._watches[prefix] = self._objects.store.watch(prefix, self._objects.store.revision)
                changed = True
        return changed

    async def wait(self, seconds: float) -> bool:
        """Return when something has changed, or after so many seconds; whether anything has."""
        deadline = asyncio.get_running_loop().time() + seconds
        while not (changed := self.seen()):
            left = deadline - asyncio.get_running_loop().time()
            if left <= 0:
                break
            waits = [
                asyncio.create_task(watch.wait(left), name=f"{TASKS} of {prefix}")
                for prefix, watch in self._watches.items()
            ]
            try:
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED, timeout=left)
            finally:
                await cancelled(*waits)
        return changed
