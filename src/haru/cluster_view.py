"""A read-only view of the cluster, kept by list and watch for as long as it has viewers.

The first viewer starts the watches; some time after the last one they end, and what they held is dropped. Slices are
kept only in the engine's compact form. A kind that may not be read is left out, and the view names it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from haru.client.api import ApiClient, path_of
from haru.client.discovery import adapt_to_server
from haru.client.informer import Informer, strip_managed_fields
from haru.engine import SchedulerCache, Snapshot
from haru.engine.podgroup import as_needed
from haru.engine.state import WATCHED_KINDS
from haru.explain.cards import Layouts
from haru.kube.kinds import Kind, known_kind

_log = logging.getLogger(__name__)

Obj = dict[str, Any]
KINDS = (*WATCHED_KINDS, ("v1", "Event"))
"""The kinds that the dashboard shows."""
LINGER_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class ClusterView:
    """The cluster at one moment: `version` counts changes, `refused` names kinds that may not be read."""

    snapshot: Snapshot
    version: int
    refused: tuple[str, ...]
    layouts: Layouts
    events: tuple[Obj, ...]


class ChangeCounter:
    """Counts changes, and wakes those who wait for the next one."""

    def __init__(self) -> None:
        self.version = 0
        self._changed = asyncio.Event()

    def add(self) -> None:
        """Count a change."""
        self.version += 1
        self._changed.set()
        self._changed = asyncio.Event()

    async def newer_than(self, version: int) -> int:
        """Wait until there is a newer version; return it."""
        while self.version <= version:
            await self._changed.wait()
        return self.version


class WatchedObjects:
    """What one run of the watches has brought."""

    def __init__(self, changes: ChangeCounter) -> None:
        self._changes = changes
        self._cache = SchedulerCache()
        self._layouts = Layouts()
        self._events: Informer | None = None
        self._groups: Informer | None = None
        self._counted = -1
        """The version for which succeeded members were counted."""
        self.refused: list[str] = []

    def view(self) -> ClusterView:
        """Return the cluster as it is now."""
        version = self._changes.version
        if self._counted != version:
            self._counted = version
            self._count_succeeded()
        events = tuple(self._events.store.values()) if self._events is not None else ()
        return ClusterView(self._cache.snapshot(), version, tuple(self.refused), self._layouts, events)

    def informer(self, client: ApiClient, kind: Kind) -> Informer:
        """Make the informer that brings the objects of a kind."""
        transform = self._take_slice if kind.kind == "ResourceSlice" else strip_managed_fields
        informer = Informer(client, kind, transform=transform)
        if kind.kind == "Event":
            add = self._changes.add
            informer.add_handler(lambda _: add(), lambda _, __: add(), lambda _: add())
            self._events = informer
        else:
            self._groups = informer if kind.kind == "PodGroup" else self._groups
            informer.add_handler(lambda new: self._take(None, new), self._take, self._drop)
        return informer

    def _take_slice(self, obj: Obj) -> Obj:
        self._cache.apply(strip_managed_fields(obj))
        metadata = {name: obj["metadata"].get(name, "") for name in ("name", "uid", "resourceVersion")}
        return {"apiVersion": obj["apiVersion"], "kind": obj["kind"], "metadata": metadata}

    def _take(self, old: Obj | None, new: Obj) -> None:
        if new["kind"] != "ResourceSlice":
            self._cache.apply(new)
        if old is None or new["kind"] != "Node" or _shown_fields(old) != _shown_fields(new):
            self._changes.add()

    def _drop(self, last: Obj) -> None:
        self._cache.remove(last)
        self._changes.add()

    def _count_succeeded(self) -> None:
        """Count the members of PodGroups that have succeeded, as gang scheduling does."""
        snapshot = self._cache.snapshot()
        finished = Counter(
            pod.group.path for pod in snapshot.pods.values() if pod.group and pod.status.get("phase") == "Succeeded"
        )
        for path, group in self._groups.store.items() if self._groups is not None else ():
            seen = as_needed(group, finished[path])
            if seen != snapshot.pod_groups.get(path):
                self._cache.apply(seen)


class ClusterWatch:
    """Watches the cluster while it has viewers, and `linger` seconds longer."""

    def __init__(
        self,
        client: ApiClient,
        linger: float = LINGER_SECONDS,
        kinds: Sequence[tuple[str, str]] = KINDS,
        name: str = "dashboard",
    ) -> None:
        self._client = client
        self._kinds = kinds
        self._name = name
        self._linger = linger
        self._viewers = 0
        self._task: asyncio.Task[None] | None = None
        self._ending: asyncio.TimerHandle | None = None
        self._synced: asyncio.Future[None] | None = None
        self.changes = ChangeCounter()
        self._objects = WatchedObjects(self.changes)

    @property
    def running(self) -> bool:
        """Whether the cluster is being watched."""
        return self._task is not None

    @asynccontextmanager
    async def viewing(self) -> AsyncIterator[None]:
        """Count a viewer, and wait until the watches are synced. OSError if the API cannot be reached."""
        self._viewers += 1
        try:
            if self._ending is not None:
                self._ending.cancel()
                self._ending = None
            if self._task is None:
                self._synced = asyncio.get_running_loop().create_future()
                self._task = asyncio.create_task(self._watch(self._synced), name=f"{self._name} watches")
            assert self._synced is not None
            await asyncio.shield(self._synced)
            yield
        finally:
            self._viewers -= 1
            if not self._viewers and self._task is not None:
                self._ending = asyncio.get_running_loop().call_later(self._linger, self._end)

    def view(self) -> ClusterView:
        """Return the cluster as it is now; only for viewers."""
        return self._objects.view()

    async def stop(self) -> None:
        """End the watches."""
        if self._ending is not None:
            self._ending.cancel()
        if (task := self._task) is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def _end(self) -> None:
        if not self._viewers and self._task is not None:
            self._task.cancel()

    async def _watch(self, synced: asyncio.Future[None]) -> None:
        reason = f"the {self._name} is being stopped"
        try:
            await adapt_to_server(self._client)
            found = await asyncio.gather(*(self._informer(*kind) for kind in self._kinds))
            informers = [informer for informer in found if informer is not None]
            async with asyncio.TaskGroup() as group:
                for informer in informers:
                    group.create_task(informer.run(), name=f"{self._name} informer {informer.kind.plural}")
                for informer in informers:
                    await informer.wait_synced()
                if not synced.done():
                    synced.set_result(None)
        except Exception as error:
            _log.warning("the cluster cannot be watched: %s", error)
            reason = str(error)
        finally:
            if not synced.done():
                synced.set_exception(ConnectionError(reason))
                synced.exception()  # retrieved: all viewers may be gone
            self._task = None
            self._objects = WatchedObjects(self.changes)

    async def _informer(self, api_version: str, name: str) -> Informer | None:
        """Make the informer of a kind; None if it is not served, or may not be read."""
        kind = known_kind(api_version, name)
        served = self._client.version.kind_for(kind)
        status, _, _ = await self._client.raw("GET", path_of(served), query=[("limit", "1")])
        if status == 200:
            return self._objects.informer(self._client, kind)
        if status != 404:
            self._objects.refused.append(name)
        return None


def _shown_fields(node: Obj) -> object:
    """What a page shows of a Node: not its heartbeats, which come all the time."""
    status = node.get("status") or {}
    conditions = [(each.get("type"), each.get("status")) for each in status.get("conditions") or ()]
    return node.get("spec"), node["metadata"].get("labels"), status.get("allocatable"), conditions
