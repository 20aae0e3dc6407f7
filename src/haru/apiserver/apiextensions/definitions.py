"""Serving custom resources: the definitions in the store become served resources, their status says so.

A cursor in the store's history says before each request whether a definition changed, so one counts from the moment its
write was acknowledged, on every replica. What upstream's naming, establishing, approval and finalizing controllers do
is done here, since no request could be served without it.
Source: apiextensions.k8s.io/v1, as behaviour.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from haru.apiserver.apiextensions.conversion import Converter
from haru.apiserver.apiextensions.reader import Reader, reader_of
from haru.apiserver.encoding.objects import decode
from haru.apiserver.registry.delete import Options, delete_one
from haru.apiserver.registry.loopback import Loopback
from haru.apiserver.registry.resources import Resource, resource_of
from haru.apiserver.webhook_client import WebhookClient
from haru.event_loop import cancelled
from haru.kube.custom.approval import CONDITION, approval_of
from haru.kube.custom.definitions import (
    CLEANUP,
    GROUP,
    PLURAL,
    TakenNames,
    accepted_names,
    is_established,
)
from haru.kube.custom.types import custom_kinds, storage_kind_of
from haru.kube.equality import same_json
from haru.kube.errors import StatusError, suppress_status
from haru.kube.kinds import Kind
from haru.kube.meta import Obj, get_condition, has_condition, set_condition
from haru.storage import Compacted, Record, StoreError, Watch

CLEANUP_PAUSE = 0.2
IN_FLIGHT_SECONDS = 2.0
_TERMINATING = "Terminating"
_LOG = logging.getLogger("haru.apiserver")


def _served_by(definition: Obj) -> Obj:
    """All that decides how the objects of a definition are served."""
    status, metadata = definition.get("status") or {}, definition["metadata"]
    names, going = status.get("acceptedNames"), bool(metadata.get("deletionTimestamp"))
    return {"spec": definition["spec"], "names": names, "going": going}


def _is_emptied(definition: Obj) -> bool:
    """Whether a definition that is going has been found to have no objects left."""
    return (get_condition(definition, _TERMINATING) or {}).get("status") == "False"


def _is_settled(definition: Obj | None) -> bool:
    """Whether nothing about a definition depends on what becomes of others, and no work for it is under way."""
    if definition is None:
        return True
    return has_condition(definition, "NamesAccepted") and not definition["metadata"].get("deletionTimestamp")


def _names_of(kind: Kind) -> Obj:
    """The names of a kind as a definition would have them."""
    return {
        "plural": kind.plural,
        "singular": kind.singular,
        "shortNames": kind.short_names,
        "kind": kind.kind,
        "listKind": kind.list_kind,
    }


@dataclass(frozen=True, slots=True)
class _Serving:
    """What is served of a definition, and what was decisive for it."""

    uid: str
    said: Obj
    resources: list[Resource]


class Definitions:
    """The custom resources of one server."""

    def __init__(self, loopback: Loopback, withdraw: Callable[[Sequence[Kind]], None]) -> None:
        """`withdraw` hears of kinds that are served no longer."""
        self._loopback, self._withdraw = loopback, withdraw
        objects = self._objects = loopback.objects
        self._caller = WebhookClient(objects)
        self._watch: Watch | None = None
        self._definitions: dict[str, Obj] = {}
        self._taken = TakenNames()
        for kind in objects.served.built_in:
            self._taken.hold(f"built in: {kind.api_version} {kind.kind}", kind.group, _names_of(kind))
        self._serving: dict[str, _Serving] = {}
        self._changed: dict[str, None] = {}
        """The definitions that nobody has looked at since they changed, in that order."""
        self._unsettled: dict[str, None] = {}
        """What is looked at again with each change of another one: who waits for a name, or is going."""
        self._lock = asyncio.Lock()
        self._cleaning: dict[str, asyncio.Task[None]] = {}

    async def start(self) -> None:
        """Read the definitions and serve them."""
        await self._read()
        await self._settle()

    async def stop(self) -> None:
        """End the removal of objects whose definitions are going; it goes on where the server starts again."""
        tasks = list(self._cleaning.values())
        await cancelled(*tasks)
        await self._caller.stop()

    async def refresh(self) -> None:
        """Take in what has changed; every request does so before it is routed."""
        await self._take_in()
        if not self._changed and not self._lock.locked():
            return
        async with self._lock:
            if self._changed:
                await self._settle()

    async def _read(self) -> None:
        prefix = self._objects.served.preferred(GROUP, PLURAL).prefix("")
        page = await self._objects.store.range(prefix)
        there = {record.key: decode(record) for record in page.records}
        for key in (*(self._definitions.keys() - there.keys()), *there):
            self._take(key, there.get(key))
        self._watch = self._objects.store.watch(prefix, page.revision)

    async def _take_in(self) -> None:
        assert self._watch is not None
        try:
            events = self._watch.pending()
        except Compacted:
            self._watch.close()
            await self._read()
            return
        for event in events:
            self._take(event.key, decode(event.new) if event.new is not None else None)

    def _take(self, key: str, definition: Obj | None) -> None:
        """Take in how a definition is now, or that it is gone."""
        self._changed[key] = None
        if definition is not None:
            self._know(key, definition)
        elif (gone := self._definitions.pop(key, None)) is not None:
            self._taken.release(gone["metadata"]["name"])

    def _know(self, key: str, definition: Obj) -> None:
        self._definitions[key] = definition
        names = (definition.get("status") or {}).get("acceptedNames") or {}
        self._taken.hold(definition["metadata"]["name"], definition["spec"]["group"], names)

    async def _settle(self) -> None:
        """Give each definition that has changed its status, and serve it if it is established."""
        self._unsettled |= self._changed
        self._changed = {}
        looked_at = list(self._unsettled)
        there = [key for key in looked_at if key in self._definitions]
        for key in sorted(there, key=lambda key: self._definitions[key]["metadata"]["creationTimestamp"]):
            definition = self._definitions.get(key)
            if definition is None:
                continue  # gone while another one was written
            if self._status(definition) != definition.get("status"):
                written = await self._write_status(definition)
                if self._definitions.get(key) is definition:
                    self._know(key, written)
                definition = written
            if definition["metadata"].get("deletionTimestamp"):
                self._clean(definition)
        for key in looked_at:
            self._serve(key)
            if _is_settled(self._definitions.get(key)):
                del self._unsettled[key]

    def _serve(self, key: str) -> None:
        """Serve the resources of a definition as it is now, if it is established."""
        definition, known = self._definitions.get(key), self._serving.get(key)
        if definition is None or not is_established(definition):
            self._serving.pop(key, None)
            self._withdraw(self._objects.served.set_custom(key, ()))
            return
        uid, said = definition["metadata"]["uid"], _served_by(definition)
        if known is not None and known.uid != uid:
            self._withdraw(self._objects.served.set_custom(key, ()))
            known = None
        if known is None or known.said != said:
            stored = storage_kind_of(definition)
            resources = [resource_of(kind, stored) for kind in custom_kinds(definition)]
            self._tell_readers(definition, resources, known)
            self._withdraw(self._objects.served.set_custom(key, resources))
            self._serving[key] = _Serving(uid, said, resources)

    def _tell_readers(self, definition: Obj, resources: list[Resource], before: _Serving | None) -> None:
        """Tell the kinds of a definition who reads their objects, and who converts them."""
        by_webhook = (definition["spec"].get("conversion") or {}).get("strategy") == "Webhook"
        converter = Converter(definition, self._caller) if by_webhook else None
        reader = self._reader(definition, converter, before)
        for resource in resources:
            for kind in (resource.kind, resource.stored):
                assert kind.custom is not None
                kind.custom.converter, kind.custom.reader = converter, reader

    def _reader(self, definition: Obj, converter: Converter | None, before: _Serving | None) -> Reader:
        if before is not None:
            known = reader_of(before.resources[0].kind) if before.resources else None
            if known is not None and before.said["spec"]["versions"] == definition["spec"]["versions"]:
                return known.continued(definition, converter)
            return Reader(definition, self._objects.store, None, converter)
        # Met for the first time. Nothing can be older than a definition that has never changed; of another one, the
        # last change may have been to its versions, and other servers may still write what they judged before it.
        metadata, store = definition["metadata"], self._objects.store
        never_changed = metadata.get("generation") == 1
        since = 0 if never_changed else None if store.shared else int(metadata["resourceVersion"])
        return Reader(definition, store, since, converter)

    # --- status

    def _status(self, definition: Obj) -> Obj:
        """The status that a definition should have, beside what is already there.

        Once all names are accepted nobody looks at these conditions again, as in 1.36.
        """
        status: Obj = definition.get("status") or {}
        conditions = list(status.get("conditions") or ())
        accepted, refusal = status.get("acceptedNames") or {}, ("", "")
        if not same_json(definition["spec"]["names"], accepted):
            accepted, refusal = accepted_names(definition, self._taken)
            conditions = self._named(conditions, refusal, definition)
        if definition["metadata"].get("deletionTimestamp") and not _is_emptied(definition):
            going = ("True", "InstanceDeletionInProgress", "CustomResource deletion is in progress")
            conditions = self._set(conditions, _TERMINATING, *going)
        if (approval := approval_of(definition)) is not None:
            conditions = self._set(conditions, CONDITION, *approval)
        return {**status, "acceptedNames": accepted, "conditions": conditions}

    def _named(self, conditions: list[Obj], refusal: tuple[str, str], definition: Obj) -> list[Obj]:
        """The conditions that say whether the names of a definition are its own."""
        reason, message = refusal
        named = ("True", "NoConflicts", "no conflicts found")
        established = ("True", "InitialNamesAccepted", "the initial names have been accepted")
        if reason:
            named = ("False", reason, message)
            if not is_established(definition):
                established = ("False", "NotAccepted", "not all names are accepted")
        return self._set(self._set(conditions, "NamesAccepted", *named), "Established", *established)

    def _set(self, conditions: list[Obj] | None, kind: str, status: str, reason: str, message: str) -> list[Obj]:
        new = {"type": kind, "status": status, "reason": reason, "message": message}
        return set_condition(conditions, new, self._objects.now())

    async def _write_status(self, definition: Obj) -> Obj:

        async def make(live: Obj) -> Obj:
            # Another server may have written the same a moment ago: what it said since when stays.
            return {**live, "status": self._status(live)}

        try:
            outcome = await self._loopback.update(definition, make, "status")
        except StatusError as error:
            if error.code != 404:
                raise
            return definition  # gone meanwhile: the history tells
        return decode(outcome.record) if outcome.record is not None else definition

    # --- removal

    def _clean(self, definition: Obj) -> None:
        """Begin to remove the objects of a definition that is going, unless that has begun."""
        metadata = definition["metadata"]
        if CLEANUP not in (metadata.get("finalizers") or ()) or metadata["uid"] in self._cleaning:
            return
        task = asyncio.create_task(self._remove_objects(definition), name=f"haru apiserver: {metadata['name']}")
        self._cleaning[metadata["uid"]] = task
        task.add_done_callback(lambda done: self._cleaning.pop(metadata["uid"], None))

    async def _remove_objects(self, definition: Obj) -> None:
        """Delete every object, wait for those with finalizers, then let the definition go."""
        spec, store = definition["spec"], self._objects.store
        try:
            if store.shared:
                # Requests that other servers let in before they knew may still create objects.
                await asyncio.sleep(IN_FLIGHT_SECONDS)
            while True:
                await store.progress()
                resource = self._objects.served.find(spec["group"], spec["names"]["plural"])
                if resource is None or not await self._delete_all(resource):
                    break
                await asyncio.sleep(CLEANUP_PAUSE)
            await self._let_go(definition)
        except (StatusError, StoreError) as error:
            if isinstance(error, StatusError) and error.code == 404:
                return  # another server has done it
            # The next change of the definition, or the next start, begins anew.
            _LOG.warning("the objects of %s could not be removed: %s", definition["metadata"]["name"], error)

    async def _delete_all(self, resource: Resource) -> int:
        """Delete what is there; how many objects are left."""
        page = await self._objects.store.range(resource.prefix(""))
        left = 0
        for record in page.records:
            left += not await self._is_deleted(resource, record)
        return left

    async def _is_deleted(self, resource: Resource, record: Record) -> bool:
        obj = decode(record)
        if obj["metadata"].get("deletionTimestamp"):
            return False
        call = self._loopback.call({**obj, "apiVersion": resource.kind.api_version}, "delete")
        with suppress_status(404):
            return (await delete_one(call, Options())).removed
        return True

    async def _let_go(self, definition: Obj) -> None:
        ended = ("False", "InstanceDeletionCompleted", "removed all instances")
        if not is_established(definition):
            ended = ("False", "NeverEstablished", "resource was never established")

        async def tell(live: Obj) -> Obj:
            status = live.get("status") or {}
            conditions = self._set(status.get("conditions"), _TERMINATING, *ended)
            return {**live, "status": {**status, "conditions": conditions}}

        async def make(live: Obj) -> Obj:
            finalizers = [name for name in live["metadata"].get("finalizers") or () if name != CLEANUP]
            return {**live, "metadata": {**live["metadata"], "finalizers": finalizers}}

        await self._loopback.update(definition, tell, "status")
        await self._loopback.update(definition, make)
