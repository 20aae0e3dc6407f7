"""The cluster as somebody sees it who only looks on, kept by list and watch for as long as somebody looks.

Nobody looking costs nothing: the first request starts the watches, and some time after the last one they end and what
they held is forgotten. Slices are kept only in the engine's compact form. A kind that may not be read is left out, and
the pages say so.
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
from haru.client.informer import Informer, strip_managed_fields
from haru.engine import SchedulerCache, Snapshot
from haru.engine.podgroup import as_needed
from haru.engine.state import WATCHED_KINDS as DECIDED_BY
from haru.explain.cards import Layouts
from haru.kube.kinds import Kind, known_kind

_log = logging.getLogger(__name__)

Obj = dict[str, Any]
KINDS = (*DECIDED_BY, ("v1", "Event"))
"""What the dashboard shows."""
LINGER_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class ClusterView:
    """What is seen at one moment: `version` counts changes, `refused` names kinds that may not be read."""

    snapshot: Snapshot
    version: int
    refused: tuple[str, ...]
    layouts: Layouts
    events: tuple[Obj, ...]


class Watching:
    """The watches of one onlooker. `linger`: how many seconds they outlive the last who looked."""

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
        self._task: asyncio.Task[None] | None = None
        self._looking = 0
        self._ending: asyncio.TimerHandle | None = None
        self._synced: asyncio.Future[None] | None = None
        self._version = 0
        self._counted = -1
        self._changed = asyncio.Event()
        self._forget()

    @property
    def running(self) -> bool:
        """Whether the cluster is being watched."""
        return self._task is not None

    @asynccontextmanager
    async def looking(self) -> AsyncIterator[None]:
        """Somebody looks: the watches run meanwhile. OSError if the API cannot be reached."""
        self._looking += 1
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
            self._looking -= 1
            if not self._looking and self._task is not None:
                self._ending = asyncio.get_running_loop().call_later(self._linger, self._end)

    def sight(self) -> ClusterView:
        """The cluster as it is now; to be called while `looking`."""
        if self._counted != self._version:
            self._counted = self._version
            self._count_succeeded()
        events = tuple(self._events.store.values()) if self._events is not None else ()
        return ClusterView(self._cluster.snapshot(), self._version, tuple(self._refused), self._layouts, events)

    async def newer_than(self, version: int) -> int:
        """Waits until something has changed since a version; the version that it is now."""
        while self._version <= version:
            await self._changed.wait()
        return self._version

    def tell(self) -> None:
        """Whoever waits for changes is told of one."""
        self._version += 1
        self._changed.set()
        self._changed = asyncio.Event()

    async def stop(self) -> None:
        """Ends the watches."""
        if self._ending is not None:
            self._ending.cancel()
        if (task := self._task) is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    # -- inside -------------------------------------------------------------------------------------------------------

    def _end(self) -> None:
        if not self._looking and self._task is not None:
            self._task.cancel()

    def _forget(self) -> None:
        self._cluster = SchedulerCache()
        self._layouts = Layouts()
        self._refused: list[str] = []
        self._events: Informer | None = None
        self._groups: Informer | None = None
        self._counted = -1

    async def _watch(self, synced: asyncio.Future[None]) -> None:
        reason = f"the {self._name} is being stopped"
        try:
            informers = [
                i for i in await asyncio.gather(*(self._informer(*kind) for kind in self._kinds)) if i is not None
            ]
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
                synced.exception()  # whoever waits is told; nobody may be waiting any more
            self._task = None
            self._forget()

    async def _informer(self, api_version: str, name: str) -> Informer | None:
        """The informer of a kind; None if it is not served, or may not be read."""
        kind = known_kind(api_version, name)
        status, _, _ = await self._client.raw("GET", path_of(kind), query=[("limit", "1")])
        if status != 200:
            if status != 404:
                self._refused.append(name)
            return None
        informer = Informer(self._client, kind, transform=self._transform(kind))
        if name == "Event":
            informer.add_handler(lambda _: self.tell(), lambda _, __: self.tell(), lambda _: self.tell())
            self._events = informer
        else:
            self._groups = informer if name == "PodGroup" else self._groups
            informer.add_handler(lambda new: self._take(None, new), self._take, self._drop)
        return informer

    def _transform(self, kind: Kind) -> Any:
        return self._take_slice if kind.kind == "ResourceSlice" else strip_managed_fields

    def _take_slice(self, obj: Obj) -> Obj:
        self._cluster.apply(strip_managed_fields(obj))
        metadata = {name: obj["metadata"].get(name, "") for name in ("name", "uid", "resourceVersion")}
        return {"apiVersion": obj["apiVersion"], "kind": obj["kind"], "metadata": metadata}

    def _take(self, old: Obj | None, new: Obj) -> None:
        if new["kind"] != "ResourceSlice":
            self._cluster.apply(new)
        if old is None or new["kind"] != "Node" or _facts(old) != _facts(new):
            self.tell()

    def _drop(self, last: Obj) -> None:
        self._cluster.remove(last)
        self.tell()

    def _count_succeeded(self) -> None:
        """Let the groups count their members that have succeeded, as quorum does."""
        snapshot = self._cluster.snapshot()
        finished = Counter(
            pod.group.path for pod in snapshot.pods.values() if pod.group and pod.status.get("phase") == "Succeeded"
        )
        for path, group in self._groups.store.items() if self._groups is not None else ():
            seen = as_needed(group, finished[path])
            if seen != snapshot.pod_groups.get(path):
                self._cluster.apply(seen)


def _facts(node: Obj) -> object:
    """What of a Node can be seen: not the heartbeats, which come all the time."""
    status = node.get("status") or {}
    conditions = [(each.get("type"), each.get("status")) for each in status.get("conditions") or ()]
    return node.get("spec"), node["metadata"].get("labels"), status.get("allocatable"), conditions
