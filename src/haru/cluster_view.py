"""A read-only view of the cluster, kept by list and watch for as long as it has viewers.

The first viewer starts the watches; some time after the last one they end, and what they held is dropped. Slices are
kept only in the engine's compact form. A kind that may not be read is left out, and the view names it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, cast

from haru.client.api import ApiClient, path_of
from haru.client.definition_watch import DefinitionWatch
from haru.client.discovery import adapt_to_server
from haru.client.informer import EVERYTHING, Informer, Selection, object_key
from haru.engine import SchedulerCache, Snapshot
from haru.engine.podgroup import as_needed
from haru.engine.state import HELD_BACK_BY, WATCHED_KINDS, DecodedObjects, PodInfo, differing
from haru.event_loop import cancelled, in_background
from haru.explain.cards import Layouts
from haru.gangs import (
    ADAPTERS,
    ForeignKind,
    GangTranslator,
    Translated,
    adapters_for,
    foreign_kind,
    served,
    with_own_kind,
)
from haru.kube.errors import StatusError
from haru.kube.kinds import Kind, known_kind
from haru.kube.meta import Obj
from haru.kube.shared_parts import interned

_log = logging.getLogger(__name__)

KINDS = (*WATCHED_KINDS, *HELD_BACK_BY, ("v1", "Event"))
"""The kinds that the dashboard shows."""
LINGER_SECONDS = 60.0
Transform = Callable[[Obj], Obj]


@dataclass(frozen=True, slots=True)
class ClusterView:
    """The cluster at one moment: `version` counts changes, `refused` names kinds that may not be read."""

    snapshot: Snapshot
    version: int
    refused: tuple[str, ...]
    layouts: Layouts
    events: Sequence[Obj]


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

    def __init__(
        self,
        changes: ChangeCounter,
        decoded: DecodedObjects | None = None,
        transforms: Mapping[str, Transform] = MappingProxyType({}),
    ) -> None:
        self._changes = changes
        self._cache = SchedulerCache(decoded=decoded)
        self._transforms: Mapping[str, Transform] = {
            "Event": without_unread_fields,
            **transforms,
            "ResourceSlice": self._take_slice,
        }
        self._layouts = Layouts()
        self._events: Informer | None = None
        self._shown_events: Sequence[Obj] | None = None
        """The same tuple as long as there is no other event."""
        self._groups: Informer | None = None
        self._translator = GangTranslator(())
        self._counted: Mapping[str, PodInfo] = {}
        """The pods among which succeeded members were counted."""
        self._succeeded: Counter[str] = Counter()
        self._changed_groups: set[str] = set()
        """The PodGroups that have come or changed since."""
        self._waiting: dict[tuple[str, str], Obj] = {}
        """The newest versions of objects that were written since somebody looked."""
        self.refused: list[str] = []

    def view(self) -> ClusterView:
        """Return the cluster as it is now."""
        version = self._changes.version
        self._take_waiting()
        self._count_succeeded()
        if self._shown_events is None:
            self._shown_events = tuple(self._events.store.values()) if self._events is not None else ()
        return ClusterView(self._cache.snapshot(), version, tuple(self.refused), self._layouts, self._shown_events)

    def informer(self, client: ApiClient, kind: Kind, selection: Selection = EVERYTHING) -> Informer:
        """Make the informer that brings the objects of a kind."""
        informer = Informer(client, kind, selection, transform=self._transforms.get(kind.kind))
        if kind.kind == "Event":
            informer.add_handler(self._event_changed, self._event_changed, self._event_changed)
            self._events = informer
        else:
            self._groups = informer if kind.group_resource == "podgroups.scheduling.k8s.io" else self._groups
            informer.add_handler(lambda new: self._take(None, new), self._take, self._drop)
        return informer

    def _event_changed(self, *versions: Obj) -> None:
        # Nobody is shown anything of an event of which not even this is kept.
        if any("involvedObject" in version for version in versions):
            self._shown_events = None
            self._changes.add()

    def _take_slice(self, obj: Obj) -> Obj:
        self._cache.apply(obj)
        metadata = {name: obj["metadata"].get(name, "") for name in ("name", "uid", "resourceVersion")}
        return {"apiVersion": obj["apiVersion"], "kind": obj["kind"], "metadata": metadata}

    def _take(self, old: Obj | None, new: Obj) -> None:
        if new["kind"] in _HELD_BACK:
            self._waiting[new["kind"], object_key(new)] = new
            if len(self._waiting) >= _MOST_WAITING:
                self._take_waiting()
        elif new["kind"] != "ResourceSlice":
            self._tell(self._translator.apply(new))
        if foreign_kind(new) is not None:
            self._cache.apply(with_own_kind(new))
        shown = _SHOWN.get(new["kind"])
        if old is None or shown is None or shown(old) != shown(new):
            self._changes.add()

    def _take_waiting(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for obj in waiting.values():
            self._tell(self._translator.apply(obj))

    def _drop(self, last: Obj) -> None:
        if (waiting := self._waiting.pop((last["kind"], object_key(last)), None)) is not None:
            self._tell(self._translator.apply(waiting))
        self._tell(self._translator.remove(last))
        if foreign_kind(last) is not None:
            self._cache.remove(with_own_kind(last))
        self._changes.add()

    def _tell(self, told: Translated) -> None:
        for obj in told.changed:
            self._cache.apply(obj)
            if obj["kind"] == "PodGroup":
                self._changed_groups.add(object_key(obj))
        for obj in told.removed:
            self._cache.remove(obj)

    def use(self, kinds: Sequence[ForeignKind]) -> None:
        """Find gangs by these kinds of other projects, from the first event on."""
        self._translator.use(adapters_for(ADAPTERS, kinds))

    def _count_succeeded(self) -> None:
        """Count the members of PodGroups that have succeeded, as gang scheduling does."""
        snapshot = self._cache.snapshot()
        pods, before = snapshot.pods, self._counted
        changed, looked_at = differing(pods, before), self._changed_groups
        self._changed_groups = set()
        for step, moment in ((-1, before), (1, pods)):
            for path in changed:
                pod = moment.get(path)
                if pod is not None and pod.group and pod.status.get("phase") == "Succeeded":
                    self._succeeded[pod.group.path] += step
                    looked_at.add(pod.group.path)
        self._counted = pods
        for path in looked_at:
            if not self._succeeded[path]:
                del self._succeeded[path]
            group = self._groups.store.get(path) if self._groups is not None else None
            if group is not None and (seen := as_needed(group, self._succeeded[path])) != snapshot.pod_groups.get(path):
                self._cache.apply(seen)


class ClusterWatch:
    """Watches the cluster while it has viewers, and `linger` seconds longer."""

    def __init__(
        self,
        client: ApiClient,
        linger: float = LINGER_SECONDS,
        kinds: Sequence[tuple[str, str]] = KINDS,
        name: str = "dashboard",
        selections: Mapping[str, Selection] | None = None,
        transforms: Mapping[str, Transform] = MappingProxyType({}),
    ) -> None:
        """`selections` say by kind which objects are watched: without one, all.

        `transforms` say by kind what is kept of objects: without one, all but managed fields.
        """
        self._client = client
        self._transforms = transforms
        self._kinds = kinds
        self._name = name
        self._selections = selections or {}
        self._linger = linger
        self._viewers = 0
        self._task: asyncio.Task[None] | None = None
        self._ending: asyncio.TimerHandle | None = None
        self._synced: asyncio.Future[None] | None = None
        self._is_over = False
        """Whether the watches that run are about to end: who comes now waits for the next ones."""
        self.changes = ChangeCounter()
        self.forgets: list[Callable[[], object]] = []
        """Called when the watches have ended and nobody looks: what is kept of views would keep the cluster."""
        self._objects = self._no_objects()

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
            while self._task is not None and self._is_over:
                await self.ended()
            if self._task is None:
                self._is_over = False
                self._synced = asyncio.get_running_loop().create_future()
                work = self._watch(self._synced)
                self._task = asyncio.create_task(work, name=f"{self._name} watches", context=in_background())
            assert self._synced is not None
            await asyncio.shield(self._synced)
            yield
        finally:
            self._viewers -= 1
            if not self._viewers and self._task is not None:
                self._ending = asyncio.get_running_loop().call_later(self._linger, self._end)

    async def ended(self) -> None:
        """Wait until the watches have ended, because they were stopped or have failed."""
        if self._task is not None:
            await asyncio.wait({self._task})

    def view(self) -> ClusterView:
        """Return the cluster as it is now; only for viewers."""
        return self._objects.view()

    async def stop(self) -> None:
        """End the watches."""
        if self._ending is not None:
            self._ending.cancel()
        if self._task is not None:
            await cancelled(self._task)

    def _end(self) -> None:
        if not self._viewers and self._task is not None:
            self._is_over = True
            self._task.cancel()

    async def _watch(self, synced: asyncio.Future[None]) -> None:
        reason, running = f"the {self._name} is being stopped", list[asyncio.Task[None]]()
        try:
            while True:
                # The view of before is shown until the new one has all its objects.
                objects, known = await self._begin(running)
                self._objects = objects
                for earlier in running[:-1]:
                    await cancelled(earlier)
                del running[:-1]
                self.changes.add()
                if not synced.done():
                    synced.set_result(None)
                await self._others_served(known, running[-1])
        except Exception as error:
            _log.warning("the cluster cannot be watched: %s", error)
            reason = str(error)
        finally:
            for task in running:
                task.cancel()
            if not synced.done():
                synced.set_exception(ConnectionError(reason))
                synced.exception()  # retrieved: all viewers may be gone
            self._task = None
            self._objects = self._no_objects()
            for forget in self.forgets if not self._viewers else ():
                forget()

    def _no_objects(self) -> WatchedObjects:
        shared = self._client.shared
        decoded = shared.common(DecodedObjects) if shared is not None else None
        return WatchedObjects(self.changes, decoded, self._transforms)

    async def _begin(self, running: list[asyncio.Task[None]]) -> tuple[WatchedObjects, frozenset[Kind]]:
        """Start watches, add their task, and wait until they are synced; their objects, and the foreign kinds served.

        Raises what ends them before.
        """
        await adapt_to_server(self._client)
        objects, known = self._no_objects(), self._foreign_kinds()
        found = await asyncio.gather(*(self._informer_of(objects, known_kind(*kind)) for kind in self._kinds))
        found += await self._foreign_informers(objects, known)
        informers = [informer for informer in found if informer is not None]
        task = asyncio.create_task(self._inform(informers), name=f"{self._name} informers")
        running.append(task)
        for informer in informers:
            await self._unless_ended(informer.wait_synced(), task)
        return objects, frozenset(known.values())

    async def _inform(self, informers: Sequence[Informer]) -> None:
        async with asyncio.TaskGroup() as group:
            for informer in informers:
                group.create_task(informer.run(), name=f"{self._name} informer {informer.kind.plural}")

    async def _unless_ended(self, work: Coroutine[Any, Any, object], task: asyncio.Task[None]) -> None:
        """Do some work while a task runs; raises what the task ends with."""
        working = asyncio.create_task(work)
        try:
            await asyncio.wait({working, task}, return_when=asyncio.FIRST_COMPLETED)
            self._is_over = task.done()
            await (working if working.done() else task)
        finally:
            await cancelled(working)

    async def _others_served(self, known: frozenset[Kind], task: asyncio.Task[None]) -> None:
        """Wait until other kinds of other projects are served; raises what ends the watches before."""
        definitions = DefinitionWatch(self._client)
        watching = asyncio.create_task(definitions.run(), name=f"{self._name} informer of CustomResourceDefinitions")
        try:
            while True:
                await self._unless_ended(definitions.changed(), task)
                with suppress(OSError, StatusError):
                    await adapt_to_server(self._client)
                if frozenset(self._foreign_kinds().values()) != known:
                    return
        finally:
            await cancelled(watching)

    def _foreign_kinds(self) -> dict[ForeignKind, Kind]:
        """The kinds that describe gangs of other projects, in the versions that are served."""
        resources = self._client.version.resources
        return {kind: kind.as_kind(kind.served_version(resources)) for kind in served(resources)}

    async def _foreign_informers(
        self, objects: WatchedObjects, kinds: Mapping[ForeignKind, Kind]
    ) -> list[Informer | None]:
        """Make the informers of what describes gangs of other projects, before any object is shown."""
        made = await asyncio.gather(*(self._informer_of(objects, kind) for kind in kinds.values()))
        objects.use([kind for kind, informer in zip(kinds, made, strict=True) if informer is not None])
        return made

    async def _informer_of(self, objects: WatchedObjects, kind: Kind) -> Informer | None:
        """Make the informer of a kind; None if it is not served, or may not be read."""
        served = self._client.version.kind_for(kind)
        selection = self._selections.get(kind.kind, EVERYTHING)
        path = path_of(served, selection.namespace)
        status, _, _ = await self._client.raw("GET", path, query=[("limit", "1")])
        if status == 200:
            return objects.informer(self._client, kind, selection)
        if status != 404:
            objects.refused.append(kind.kind)
        return None


def without_unread_fields(event: Obj) -> Obj:
    """An event without what nobody here reads: there are those of an hour. Equal texts are kept once."""
    metadata, about = event["metadata"], event.get("involvedObject")
    kept = {name: event[name] for name in _OF_EVENT if event.get(name)}
    if not kept.get("reportingComponent") and event.get("source"):
        kept["source"] = event["source"]
    kept["metadata"] = {name: metadata[name] for name in _OF_EVENT_METADATA if metadata.get(name)}
    if about is not None:
        kept["involvedObject"] = {name: about[name] for name in _OF_OBJECT if about.get(name)}
    return cast("Obj", interned(kept))


_OF_EVENT: Final = (
    "apiVersion", "kind", "reason", "message", "type", "count", "series", "firstTimestamp", "lastTimestamp",
    "eventTime", "reportingComponent",
)  # fmt: skip
_OF_EVENT_METADATA: Final = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
_OF_OBJECT: Final = ("kind", "namespace", "name", "uid")


def _shown_of_node(node: Obj) -> object:
    """What a page shows of a Node: not its heartbeats, which come all the time."""
    status = node.get("status") or {}
    conditions = [(each.get("type"), each.get("status")) for each in status.get("conditions") or ()]
    return node.get("spec"), node["metadata"].get("labels"), status.get("allocatable"), conditions


def _shown_of_lease(lease: Obj) -> object:
    """What says which schedulers there are: not that a Lease is renewed."""
    metadata, spec = lease["metadata"], lease.get("spec") or {}
    return metadata.get("labels"), metadata.get("annotations"), spec.get("holderIdentity")


_HELD_BACK: Final = frozenset({"Pod", "ResourceClaim"})
"""Kinds that are written several times in a moment while work starts: only what somebody looks at is decoded."""
_MOST_WAITING: Final = 500
"""Some hundredths of a second of work."""
_SHOWN: Mapping[str, Callable[[Obj], object]] = {"Node": _shown_of_node, "Lease": _shown_of_lease}
"""What counts as a change, of kinds that are written all the time."""
