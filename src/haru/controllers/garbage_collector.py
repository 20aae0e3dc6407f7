"""garbage-collector-controller: deletes what its owners have left behind.

All kinds that can be listed are watched, metadata only; dependents are found through an index by owner uid. An owner of
the same name with another uid is not the owner. An owner that was never seen is asked for live before anything is
deleted in its name. Deletion is in the background, in the foreground (the owner stays, with the finalizer
`foregroundDeletion`, until the dependents that block it are gone) or orphans (finalizer `orphan`: dependents lose the
reference and stay). Objects that wait for each other in a circle would wait for ever: one of them stops to block.
Source: Kubernetes garbage collection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from cachetools import FIFOCache

from haru.client.definition_watch import DefinitionWatch
from haru.client.discovery import served_resources
from haru.client.informer import Informer, object_key
from haru.controllers.base import Context, Controller, log
from haru.event_loop import bounded
from haru.kube import kinds
from haru.kube.errors import StatusError, suppress_status
from haru.kube.kinds import Kind
from haru.kube.meta import Obj, has_finalizer, is_being_deleted, name_of, namespace_of, uid_of

FOREGROUND = "foregroundDeletion"
ORPHAN = "orphan"
_UNKNOWN_KIND_SECONDS = 30.0
_SYNC_SECONDS = 30.0
_REMEMBERED_ABSENT = 1000
_IGNORED = {("", "events"), ("events.k8s.io", "events")}


def owners_of(obj: Mapping[str, Any]) -> Sequence[Obj]:
    """`metadata.ownerReferences`."""
    return obj["metadata"].get("ownerReferences") or ()


def _owner_uids(obj: Mapping[str, Any]) -> Iterable[str]:
    return [reference["uid"] for reference in owners_of(obj)]


def _blocked_by(obj: Mapping[str, Any]) -> set[str]:
    """The uids of the owners whose deletion waits for this object."""
    return {reference["uid"] for reference in owners_of(obj) if reference.get("blockOwnerDeletion")}


def _is_meant(reference: Obj, informer: Informer, obj: Obj) -> bool:
    """Whether a reference names the object that has its uid."""
    return (reference["kind"], reference["name"]) == (informer.kind.kind, name_of(obj))


def _waits_for_dependents(obj: Mapping[str, Any]) -> bool:
    return is_being_deleted(obj) and has_finalizer(obj, FOREGROUND)


def _reached(start: str, neighbours: Callable[[str], Iterable[str]]) -> set[str]:
    """All that can be reached from somewhere; the start itself only by a way that leads back to it."""
    found: set[str] = set()
    ahead = [start]
    while ahead:
        fresh = set(neighbours(ahead.pop())) - found
        found |= fresh
        ahead += fresh
    return found


class _UnknownKind(LookupError):
    """The kind of an owner is not served."""


class _Owners(NamedTuple):
    solid: list[Obj]
    waiting: list[Obj]
    gone: list[Obj]


class GarbageCollectorController(Controller):
    """Collects garbage; keys are uids."""

    name: ClassVar[str] = "garbage-collector-controller"
    workers: ClassVar[int] = 20

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._informers: dict[tuple[str, str], Informer] = {}
        self._known: dict[str, tuple[Informer, str]] = {}
        self._absent: FIFOCache[str, None] = FIFOCache(_REMEMBERED_ABSENT)
        self._definitions = DefinitionWatch(self.client)
        self._with_unknown_owner: set[str] = set()
        self._descended: set[str] = set()
        """Owners that wait for dependents, all of which were told to go."""

    async def run(self) -> None:
        """Learn what is served, then work until cancelled."""
        await self._watch_kinds()
        await super().run()

    def background(self) -> Iterable[Callable[[], Any]]:
        """Custom resources come and go."""
        return (self._definitions.run, self._keep_watching_kinds)

    async def _keep_watching_kinds(self) -> None:
        while True:
            await self._definitions.changed()
            try:
                await self._watch_kinds()
            except (StatusError, OSError) as error:
                log.warning("%s: cannot learn what is served: %s", self.name, error)

    async def _watch_kinds(self) -> None:
        served = await served_resources(self.client)
        if gone := self.context.informers.drop_unserved(self._informers, served):
            self._known = {uid: known for uid, known in self._known.items() if known[0] not in gone}
        fresh = []
        for kind in served:
            key = (kind.group, kind.plural)
            collectable = {"list", "watch", "delete"} <= set(kind.verbs) and key not in _IGNORED
            if collectable and key not in self._informers:
                informer = self.context.informers.metadata(kind)
                self._informers[key] = informer
                informer.add_index("owner", _owner_uids)
                informer.add_handler(self._added(informer), self._updated, self._deleted)
                fresh.append(informer)
        # One kind that cannot be listed must not stop all: its objects are asked for one by one then.
        try:
            async with asyncio.timeout(_SYNC_SECONDS):
                for informer in fresh:
                    await informer.wait_synced()
        except TimeoutError:
            late = ", ".join(informer.kind.plural for informer in fresh if not informer.has_synced)
            log.warning("%s: goes on without a list of %s", self.name, late)
        if fresh:
            for uid in self._with_unknown_owner:
                self.queue.add(uid)
            self._with_unknown_owner.clear()

    # -- what happened ------------------------------------------------------------------------------------------------

    def _added(self, informer: Informer) -> Callable[[Obj], None]:
        def added(obj: Obj) -> None:
            self._known[uid_of(obj)] = (informer, object_key(obj))
            if owners_of(obj) or is_being_deleted(obj):
                self.queue.add(uid_of(obj))

        return added

    def _updated(self, old: Obj, new: Obj) -> None:
        if _waits_for_dependents(new) and not _waits_for_dependents(old):
            for dependent in self._dependents(uid_of(new)):  # an owner that waits is a reason to go
                self.queue.add(uid_of(dependent))
        for owner in _blocked_by(old) - _blocked_by(new):
            self.queue.add(owner)
        if owners_of(old) != owners_of(new) or is_being_deleted(new):
            self.queue.add(uid_of(new))

    def _deleted(self, obj: Obj) -> None:
        uid = uid_of(obj)
        self._known.pop(uid, None)
        self._descended.discard(uid)
        self._absent[uid] = None
        for dependent in self._dependents(uid):
            self.queue.add(uid_of(dependent))
        for owner in _owner_uids(obj):
            self.queue.add(owner)

    def _dependents(self, uid: str) -> list[Obj]:
        return [obj for informer in self._informers.values() for obj in informer.by_index("owner", uid)]

    def _is_blocked(self, uid: str) -> bool:
        """Whether a dependent blocks the deletion of an owner."""
        return any(uid in _blocked_by(d) for informer in self._informers.values() for d in informer.among("owner", uid))

    def _cached(self, uid: str) -> tuple[Informer, Obj] | None:
        """An object as it was last heard of, and where."""
        known = self._known.get(uid)
        obj = known[0].store.get(known[1]) if known is not None else None
        return (known[0], obj) if known is not None and obj is not None else None

    # -- one object ---------------------------------------------------------------------------------------------------

    async def sync(self, key: str) -> float | None:
        """Decide about one object."""
        known = self._cached(key)
        if known is None:
            return None
        informer, obj = known
        if is_being_deleted(obj):
            if has_finalizer(obj, ORPHAN):
                await self._orphan_dependents(informer, obj)
            elif has_finalizer(obj, FOREGROUND):
                await self._delete_dependents(informer, obj)
            return None
        if not owners_of(obj):
            return None
        try:
            owners = await self._classify(informer.kind, obj)
            if owners.gone or owners.waiting:
                await self._act(informer, obj)
        except _UnknownKind as error:
            # Nothing may be deleted in the name of a kind that is not served, or not yet.
            log.debug("%s: %s", self.name, error)
            self._with_unknown_owner.add(key)
            return _UNKNOWN_KIND_SECONDS
        return None

    async def _act(self, informer: Informer, cached: Obj) -> None:
        """Some owner is gone or waits: decide on the object as it is now."""
        obj = await self.live(informer.kind, name_of(cached), namespace_of(cached))
        if obj is None or uid_of(obj) != uid_of(cached):
            informer.observe_deleted(cached)
            return
        owners = await self._classify(informer.kind, obj)
        if owners.solid:
            lost = {reference["uid"] for reference in (*owners.gone, *owners.waiting)}
            if lost:
                await self._drop_references(informer, obj, lost)
        elif owners.waiting and self._dependents(uid_of(obj)):
            # The owner waits for us: go the same way, our own dependents first.
            await self.delete(informer, obj, propagation_policy="Foreground")
        elif owners.gone or owners.waiting:
            policy = "Background"
            if has_finalizer(obj, ORPHAN):
                policy = "Orphan"
            elif has_finalizer(obj, FOREGROUND):
                policy = "Foreground"
            log.debug("%s: deleting %s %s", self.name, informer.kind.plural, object_key(obj))
            await self.delete(informer, obj, propagation_policy=policy)

    async def _classify(self, kind: Kind, obj: Obj) -> _Owners:
        owners = _Owners([], [], [])
        for reference in owners_of(obj):
            state = await self._state_of(kind, obj, reference)
            getattr(owners, state).append(reference)
        return owners

    async def _state_of(self, kind: Kind, obj: Obj, reference: Obj) -> str:
        known = self._cached(reference["uid"])
        if known is not None and namespace_of(known[1]) in ("", namespace_of(obj)) and _is_meant(reference, *known):
            return "waiting" if _waits_for_dependents(known[1]) else "solid"
        # A uid that is gone is so for all; that there is no such object says nothing of other kinds and names.
        named = "/".join(reference[key] for key in ("apiVersion", "kind", "name", "uid")) + f"/{namespace_of(obj)}"
        if reference["uid"] in self._absent or named in self._absent:
            return "gone"
        owner_kind = self._kind_of(reference)
        if owner_kind.namespaced and not kind.namespaced:
            message = f"ownerRef [{reference['kind']} {reference['name']}] does not exist for a cluster-scoped object"
            self.events.event(obj, "Warning", "OwnerRefInvalidNamespace", message)
            return "solid"  # it can never be found: nothing may be deleted for that
        owner = await self.live(owner_kind, reference["name"], namespace_of(obj) if owner_kind.namespaced else "")
        if owner is None or uid_of(owner) != reference["uid"]:
            self._absent[named] = None
            return "gone"
        return "waiting" if _waits_for_dependents(owner) else "solid"

    def _kind_of(self, reference: Obj) -> Kind:
        api_version, kind = reference["apiVersion"], reference["kind"]
        if (found := kinds.by_kind(api_version, kind)) is not None:
            return found
        group = api_version.rpartition("/")[0]
        for informer in self._informers.values():
            if (informer.kind.group, informer.kind.kind) == (group, kind):
                return informer.kind
        raise _UnknownKind(f"owner {kind} {reference['name']}: the server has no kind {kind} of {api_version}")

    # -- owners -------------------------------------------------------------------------------------------------------

    async def _delete_dependents(self, informer: Informer, owner: Obj) -> None:
        uid = uid_of(owner)
        if not self._is_blocked(uid):
            await self.remove_finalizer(informer, owner, FOREGROUND)
            return
        if uid not in self._descended:
            # Once: dependents that come later are looked at when they come.
            self._descended.add(uid)
            for dependent in self._dependents(uid):
                if not is_being_deleted(dependent):
                    self.queue.add(uid_of(dependent))
        if circle := self._circle(uid):
            await self._break(informer, owner, circle)

    def _circle(self, uid: str) -> set[str]:
        """The objects that wait for this one, directly or not, and that it waits for, too; with itself, if any."""

        def waiting_dependents(of: str) -> Iterable[str]:
            return (uid_of(d) for d in self._dependents(of) if _waits_for_dependents(d) and of in _blocked_by(d))

        def waiting_owners(of: str) -> Iterable[str]:
            found = self._cached(of)
            owners = [self._cached(owner) for owner in _blocked_by(found[1])] if found is not None else []
            return (uid_of(owner[1]) for owner in owners if owner is not None and _waits_for_dependents(owner[1]))

        above = _reached(uid, waiting_owners)  # few, as a rule: who is not among them is on no circle
        return above & _reached(uid, waiting_dependents) if uid in above else set()

    async def _break(self, informer: Informer, obj: Obj, circle: set[str]) -> None:
        """One member stops to block its owners in the circle, always the same one; the others look what is left."""
        first = min(circle)
        if uid_of(obj) != first:
            self.queue.add(first)
            return
        references = [{**r, "blockOwnerDeletion": False} if r["uid"] in circle else r for r in owners_of(obj)]
        await self._write_references(informer, obj, references)
        for member in circle - {first}:
            self.queue.add(member)

    async def _orphan_dependents(self, informer: Informer, owner: Obj) -> None:
        uid = uid_of(owner)

        async def let_go(dependent: Obj) -> None:
            known = self._known.get(uid_of(dependent))
            if known is not None:
                await self._drop_references(known[0], dependent, {uid})

        await bounded(self._dependents(uid), let_go)
        await self.remove_finalizer(informer, owner, ORPHAN)

    async def _drop_references(self, informer: Informer, obj: Obj, uids: set[str]) -> None:
        kept = [reference for reference in owners_of(obj) if reference["uid"] not in uids]
        await self._write_references(informer, obj, kept)

    async def _write_references(self, informer: Informer, obj: Obj, references: Sequence[Obj]) -> None:
        metadata = {"ownerReferences": references or None, "resourceVersion": obj["metadata"].get("resourceVersion")}
        with suppress_status(404):
            await self.patch(informer, obj, {"metadata": metadata})
