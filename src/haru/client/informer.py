"""Informers: a local copy of a collection, kept by list and watch, with handlers that hear of each change in order.

An informer lists, then watches from the list's revision, resumes from the last revision seen, and lists again when that
revision is gone (410) - the difference then reaches the handlers as ordinary events. The same name with another uid is
heard as a deletion and an addition, so nobody takes a new object for the old one.

What an informer holds may be held by others in the process as well: neither handlers nor readers change it.

Own writes can be told to the informer (`observe`, `observe_deleted`) so that their writer sees them at once: revisions
are ordered, hence an older event that arrives later is recognised and dropped. This replaces client-go's expectations.
Source: client-go `tools/cache`.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import aclosing
from types import MappingProxyType
from typing import Any, NamedTuple

from cachetools import FIFOCache

from haru.client.api import ApiClient
from haru.client.backoff import Backoff
from haru.client.object_index import ObjectIndex
from haru.client.transforms import only_metadata, strip_managed_fields
from haru.client.transport import WatchEvent
from haru.event_loop import TimeSlice
from haru.kube.errors import StatusError
from haru.kube.kinds import Kind
from haru.kube.meta import Obj

_log = logging.getLogger(__name__)

_REMEMBERED_DELETIONS = 4096
_MOST_OWN_WRITES = 1024
_SHORT_WATCH_SECONDS = 5.0
OnAdd = Callable[[Obj], None]
OnUpdate = Callable[[Obj, Obj], None]
OnDelete = Callable[[Obj], None]


def object_key(obj: Mapping[str, Any]) -> str:
    """`namespace/name`, or `name` of a cluster-scoped object."""
    metadata = obj["metadata"]
    namespace = metadata.get("namespace")
    return f"{namespace}/{metadata['name']}" if namespace else str(metadata["name"])


def _revision(obj: Mapping[str, Any]) -> int:
    try:
        return int(obj["metadata"]["resourceVersion"])
    except (KeyError, TypeError, ValueError):  # there is none, or it is no number
        return 0


def metadata_informer(client: ApiClient, kind: Kind, backoff: Backoff | None = None) -> Informer:
    """An informer that asks for metadata alone and keeps the identifying part of it."""
    return Informer(client.metadata_only(), kind, transform=only_metadata(kind), backoff=backoff)


class Selection(NamedTuple):
    """Which objects of a kind: of a namespace, with labels, with fields; where one is empty, all of them."""

    namespace: str = ""
    label_selector: str = ""
    field_selector: str = ""


EVERYTHING = Selection()


class Informer:
    """A local copy of the selected objects of `kind`."""

    def __init__(
        self,
        client: ApiClient,
        kind: Kind,
        selection: Selection = EVERYTHING,
        *,
        transform: Callable[[Obj], Obj] | None = None,
        backoff: Backoff | None = None,
    ) -> None:
        """`transform`: what is kept of an object; by default all but its managed fields."""
        self.kind = kind
        self._client = client
        self._selection = selection
        self._transform = transform or (client.shared.strip if client.shared is not None else strip_managed_fields)
        self._backoff = backoff or Backoff(rng=random.Random())
        self._store: dict[str, Obj] = {}
        self._indexes: dict[str, ObjectIndex] = {}
        self._handlers: list[tuple[OnAdd | None, OnUpdate | None, OnDelete | None]] = []
        self._deleted_uids: FIFOCache[str, None] = FIFOCache(_REMEMBERED_DELETIONS)
        self._own_writes: dict[tuple[str, str], int] = {}
        """Own writes that the watch has not shown yet, by UID and version: their revisions."""
        self._most_own_writes = _MOST_OWN_WRITES
        self._held: dict[str, list[tuple[str, Callable[[], WatchEvent]]]] = {}
        """By UID of objects with an own write under way: the events that wait for its answer, with their versions."""
        self._synced = asyncio.Event()
        self._seen = 0
        """The revision up to which everything has been taken in."""
        self._begun = 0
        """The latest revision of a list of which something has been taken in, though its end may never have come."""
        self._waiting: list[asyncio.Future[None]] = []
        self.resource_version = ""
        self._watch_limit: asyncio.Timeout | None = None
        self._opened_at = 0.0
        self.lists = 0
        """How often all was listed: what came between two lists, handlers hear only as their difference."""
        self._renewed = False
        self.interrupted = False
        """There is no watch since the last one failed: what is known may be old."""
        self.store: Mapping[str, Obj] = MappingProxyType(self._store)

    # -- what is known ------------------------------------------------------------------------------------------------

    @property
    def has_synced(self) -> bool:
        """The first list has been taken in."""
        return self._synced.is_set()

    async def wait_synced(self) -> None:
        """Wait for the first list."""
        await self._synced.wait()

    async def wait_seen(self, revision: int) -> None:
        """Wait until everything up to a revision of this kind's objects has been taken in."""
        while self._seen < revision or not self._synced.is_set():
            waiting = asyncio.get_running_loop().create_future()
            self._waiting.append(waiting)
            await waiting
        for held in list(self._held.values()):
            for _, event in held:
                self._apply(event()[1])
            held.clear()

    def get(self, name: str, namespace: str = "") -> Obj | None:
        """The object of that name, as last heard."""
        return self._store.get(f"{namespace}/{name}" if namespace else name)

    def add_index(self, name: str, values: Callable[[Obj], Iterable[str]]) -> None:
        """Keep objects findable by the values that `values(obj)` yields; adding the same name again is harmless."""
        if name in self._indexes:
            return
        index = self._indexes[name] = ObjectIndex(values)
        for key, obj in self._store.items():
            index.add(key, obj)

    def by_index(self, name: str, value: str) -> list[Obj]:
        """The objects that have `value` in the index, in the order in which they came."""
        return [self._store[key] for key in self._indexes[name].keys(value)]

    def among(self, name: str, value: str) -> Iterator[Obj]:
        """The objects that have `value` in the index, one by one; the store must not change meanwhile."""
        return map(self._store.__getitem__, self._indexes[name].keys(value))

    def count(self, name: str, value: str) -> int:
        """How many objects have `value` in the index."""
        return len(self._indexes[name].keys(value))

    def add_handler(
        self, on_add: OnAdd | None = None, on_update: OnUpdate | None = None, on_delete: OnDelete | None = None
    ) -> None:
        """Call these for each change, in order; what is already known is added at once.

        Handlers must be quick: they note what to do (a work queue) and leave.
        """
        handler = (on_add, on_update, on_delete)
        self._handlers.append(handler)
        if on_add is not None:
            for obj in list(self._store.values()):
                self._call(on_add, obj)

    async def fetch(self, name: str, namespace: str = "") -> Obj | None:
        """The object as the server has it now, which is then known here, too; None if there is none.

        It is listed: who watches may list, but not always `get`.
        """
        found = (await self._client.list(self.kind, namespace, field_selector=f"metadata.name={name}"))["items"]
        for obj in found:
            self.observe(obj)
        return found[0] if found else None

    # -- own writes ---------------------------------------------------------------------------------------------------

    def observe(self, obj: Obj, *, is_kept: bool = False) -> None:
        """Take in the answer of an own write, unless the watch has already brought that far or further.

        `is_kept`: it is what `transform` would make of it already.
        """
        held = self._held.pop(obj["metadata"].get("uid", ""), ()) if self._held else ()
        if not self._synced.is_set():
            return
        self.announce(obj)
        key, revision = object_key(obj), _revision(obj)
        known = self._store.get(key)
        # The watch may have passed a write that was announced, and that its event therefore did not show.
        same = known is not None and known["metadata"].get("uid") == obj["metadata"].get("uid")
        if same or revision > self._seen:
            self._apply(obj, is_kept=is_kept)
        for version, event in held:
            known = self._store.get(key)
            if known is None or int(version) > _revision(known):
                self._apply(event()[1])

    def announce(self, obj: Obj) -> None:
        """Have the watch pass over an own write: it, or one that follows it at once, is about to be observed."""
        if (revision := _revision(obj)) > self._seen:
            self._own_writes[obj["metadata"].get("uid", ""), str(revision)] = revision
            if len(self._own_writes) > self._most_own_writes:  # not all of them are shown as what they are here
                self._own_writes = {write: own for write, own in self._own_writes.items() if own > self._seen}
                # What a watch that is far behind has not shown is looked through the more rarely, the more it is.
                self._most_own_writes = max(_MOST_OWN_WRITES, 2 * len(self._own_writes))

    def hold_events(self, obj: Obj) -> None:
        """Have events of an object wait until an own write of it is observed: nearly all show what its answer does.

        Where it fails, the object as it was is to be observed.
        """
        self._held.setdefault(obj["metadata"].get("uid", ""), [])

    def observe_deleted(self, obj: Obj, answer: Obj | None = None) -> None:
        """Take in the answer of an own DELETE: the object that still stands, or its removal."""
        if answer is not None and answer.get("kind") != "Status" and "metadata" in answer:
            self.observe(answer)
            return
        known = self._store.get(object_key(obj))
        if known is not None and known["metadata"].get("uid") == obj["metadata"].get("uid"):
            self._deleted_uids[obj["metadata"].get("uid", "")] = None
            self._remove(object_key(obj), known)

    # -- list and watch -----------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Keep the copy until cancelled."""
        while True:
            try:
                if not self.resource_version:
                    await self._list()
                await self._watch()
            except StatusError as error:
                self.interrupted = True
                if error.code == 410:
                    _log.info("%s: revision %s is gone, listing again", self.kind.plural, self.resource_version)
                    self.resource_version = ""
                    if self._synced.is_set():
                        self._backoff.reset()
                        continue
                else:
                    _log.warning("%s: %s", self.kind.plural, error)
                await self._backoff.pause()
            except TimeoutError as error:
                self.interrupted = True
                renewed, self._renewed = self._renewed, False
                if not renewed:
                    _log.warning("%s: %s: %s", self.kind.plural, type(error).__name__, error)
                    await self._backoff.pause()
            except (OSError, ValueError, KeyError, TypeError) as error:  # the last three: an answer that makes no sense
                _log.warning("%s: %s: %s", self.kind.plural, type(error).__name__, error)
                self.interrupted = True
                await self._backoff.pause()

    def renew_watch(self, unless_younger_than: float = 0.0) -> None:
        """Open the watch anew where it left off: its connection may be one on which nothing comes any more.

        A watch that was opened less than so many seconds ago is kept.
        """
        now = asyncio.get_running_loop().time()
        if self._watch_limit is not None and now - self._opened_at >= unless_younger_than:
            self._renewed = True
            self._watch_limit.reschedule(now)

    async def _list(self) -> None:
        fresh: set[str] = set()
        later: list[Obj] = []
        piece = TimeSlice()
        restored, horizon, revision = False, 0, ""
        async with aclosing(self._client.pages(self.kind, *self._selection, shared=True)) as pages:
            async for page, is_first in pages:
                # Not optional: an answer without it is no list, and must not be taken for an empty one.
                revision = str(page["metadata"]["resourceVersion"])
                if is_first:
                    horizon = int(revision) if revision.isdigit() else 0
                    # A server restored from a backup counts again from an earlier revision: then nothing is newer.
                    restored = horizon < max(self._seen, self._begun)
                    self._begun = max(self._begun, horizon)
                    fresh.clear()
                    later.clear()
                # An empty list of metadata alone has null.
                items = page["items"] or ()
                if restored:
                    # Own writes must not come in between: nobody could tell whether they are newer.
                    later += items
                    continue
                for item in items:
                    fresh.add(self._take_listed(item))
                    await piece.shared()
        for item in later:
            fresh.add(self._take_listed(item, force=True))
        for key, known in list(self._store.items()):
            # Something newer than the list is an own write that the list could not hold yet.
            if key not in fresh and (restored or _revision(known) <= horizon):
                self._remove(key, known)
        self.resource_version = revision
        self._seen = self._begun = horizon
        self._own_writes.clear()
        for held in self._held.values():
            held.clear()
        self.lists += 1
        self._synced.set()
        self._tell_waiting()

    def _take_listed(self, item: Obj, force: bool = False) -> str:
        """Take in an item of a list; its key."""
        obj = self._named(item)
        self._apply(obj, force)
        return object_key(obj)

    def _named(self, item: Obj) -> Obj:
        """Items of a list need not carry their kind."""
        if "kind" in item and "apiVersion" in item:
            return item
        return {"apiVersion": self.kind.api_version, "kind": self.kind.kind, **item}

    async def _watch(self) -> None:
        namespace, labels, fields = self._selection
        events = self._client.watch(
            self.kind,
            namespace,
            self.resource_version,
            labels,
            fields,
            opened=self._resume,
            shared=True,
            is_known=self._is_own_write,
            managed_fields=False,
        )
        loop = asyncio.get_running_loop()
        began, before = loop.time(), self.resource_version
        self._opened_at = began
        try:
            async with asyncio.timeout(None) as self._watch_limit, aclosing(events) as stream:
                async for type_, obj in stream:
                    self._hear(type_, obj)
        finally:
            self._watch_limit = None
            heard = self.resource_version != before
            if heard:
                self._backoff.reset()
        # A server that ends every watch at once must not be asked in a tight loop.
        if not heard and loop.time() - began < _SHORT_WATCH_SECONDS:
            await self._backoff.pause()

    def _resume(self) -> None:
        self.interrupted = False

    def _is_own_write(self, uid: str, version: str, event: Callable[[], WatchEvent]) -> bool:
        """Tell whether an event shows an own write, as far as is known; then it has been heard herewith."""
        if self._own_writes.pop((uid, version), None) is None:
            if (held := self._held.get(uid)) is None:
                return False
            held.append((version, event))
        self._heard(version)
        return True

    def _hear(self, type_: str, obj: Obj) -> None:
        revision, uid = obj["metadata"].get("resourceVersion"), obj["metadata"].get("uid", "")
        may_be_own = revision and type_ == "MODIFIED" and (self._own_writes or self._held)
        if may_be_own and self._is_own_write(uid, str(revision), lambda: (type_, obj)):
            return
        if type_ in ("ADDED", "MODIFIED"):
            self._apply(obj)
        elif type_ == "DELETED":
            self._deleted_uids.pop(uid, None)
            self._held.get(uid, []).clear()
            key = object_key(obj)
            known = self._store.get(key)
            if known is not None and known["metadata"].get("uid") == uid:
                self._remove(key, self._transform(obj))
        if revision:
            self._heard(str(revision))

    def _heard(self, version: str) -> None:
        """Go on from a revision: everything up to it has been taken in."""
        self.resource_version = version
        self._seen = max(self._seen, int(version) if version.isdigit() else 0)
        if self._waiting:
            self._tell_waiting()

    def _tell_waiting(self) -> None:
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)

    # -- changes ------------------------------------------------------------------------------------------------------

    def _apply(self, obj: Obj, force: bool = False, *, is_kept: bool = False) -> None:
        uid = obj["metadata"].get("uid", "")
        if uid and uid in self._deleted_uids:
            return
        key = object_key(obj)
        known = self._store.get(key)
        if known is not None:
            if not force and _revision(obj) <= _revision(known):
                return
            if known["metadata"].get("uid") != uid:
                self._remove(key, known)
                known = None
        obj = obj if is_kept else self._transform(obj)
        self._store[key] = obj
        for index in self._indexes.values():
            if known is None:
                index.add(key, obj)
            else:
                index.replace(key, known, obj)
        for on_add, on_update, _ in self._handlers:
            if known is None and on_add is not None:
                self._call(on_add, obj)
            elif known is not None and on_update is not None:
                self._call(on_update, known, obj)

    def _remove(self, key: str, last: Obj) -> None:
        known = self._store.pop(key)
        self._unindex(key, known)
        for _, _, on_delete in self._handlers:
            if on_delete is not None:
                self._call(on_delete, last)

    def _call(self, handler: Callable[..., None], *args: Obj) -> None:
        try:
            handler(*args)
        except Exception:
            _log.exception("%s: a handler failed for %s", self.kind.plural, object_key(args[-1]))

    def _unindex(self, key: str, obj: Obj) -> None:
        for index in self._indexes.values():
            index.remove(key, obj)
