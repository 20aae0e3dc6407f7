"""Custom resources as they are read: as today's schema would have them, in the version that is asked for.

What lies in the store was complete when it was written. A schema that has changed since may know a member less, which
is dropped, or a default more, which is filled in: by the version that an object lies in, before it is converted.
Records that are shown are exchanged for such as look like that, so that nothing else need know; those that were made
last are kept, as every watch wants the same ones. What was written under today's schemas is served as it lies, unseen:
which records these are is told by their revision.
Source: apiextensions.k8s.io/v1, as behaviour (defaults and pruning when objects are read from storage).
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Sequence

from haru.apiserver.apiextensions.conversion import Converter
from haru.apiserver.encoding.objects import Note, decode, encode, recent
from haru.apiserver.registry.resources import Resource
from haru.kube.conversion import convert
from haru.kube.custom.shaping import defaulted, pruned
from haru.kube.custom.structural import ANYTHING, Structural, parse
from haru.kube.json_form import json_form, served
from haru.kube.kinds import Kind
from haru.kube.meta import Obj
from haru.storage import Event, Record, Store

KEPT_RECORDS = 2048
KEPT_BYTES = 32 * 1024 * 1024
SETTLING_SECONDS = 90.0
"""Longer than a request takes: what is written this long after a schema changed was judged by it, on every server."""
LOOKED_AT_ONCE = 256
"""Records that are looked at without letting others in between."""
_HEAD_BYTES = 512


class Reader:
    """How the objects of a definition are read, as its versions stand since some revision.

    `since`: what was written later is complete; None: that is not known yet, and will be in `SETTLING_SECONDS`.
    """

    def __init__(self, definition: Obj, store: Store, since: int | None, converter: Converter | None) -> None:
        spec = definition["spec"]
        self.converter = converter
        self._versions = {f"{spec['group']}/{version['name']}": version for version in spec["versions"]}
        self._schemas: dict[str, Structural] = {}
        self._store = store
        self._since = since
        self._settled_at = asyncio.get_running_loop().time() + SETTLING_SECONDS
        self._kept: OrderedDict[tuple[str, int, str], Record] = OrderedDict()
        self._bytes = 0

    def continued(self, definition: Obj, converter: Converter | None) -> Reader:
        """The same versions in a definition that has changed otherwise."""
        found = Reader(definition, self._store, self._since, converter)
        found._settled_at = self._settled_at
        return found

    # --- what lies in the store

    def is_whole(self, record: Record) -> bool:
        """Whether a record is what today's schema of its version would make of it."""
        if self._is_new(record) or _is_known(record, self):
            return True
        obj = decode(record)
        return self._remember_if_whole(record, obj, self.completed(obj))

    def completed(self, obj: Obj) -> Obj:
        """An object that was stored, as today's schema of its version has it; itself where nothing is to be done."""
        schema = self._schema(obj["apiVersion"])
        kept, _ = pruned(obj, schema)
        return defaulted(kept, schema)

    def read(self, record: Record) -> Obj:
        """The object of a record, completed, in the version that it lies in; it is shared, so do not change it."""
        obj = recent(record)
        return obj if self._is_new(record) else self.completed(obj)

    def _is_new(self, record: Record) -> bool:
        if self._since is None:
            if asyncio.get_running_loop().time() < self._settled_at:
                return False
            self._since = self._store.revision
        return record.revision > self._since

    def _remember_if_whole(self, record: Record, obj: Obj, found: Obj) -> bool:
        if found is not obj:
            return False
        if record.note is None:
            record.note = Note(obj["metadata"].get("labels") or {})
        record.note.read_by = self
        return True

    def _schema(self, api_version: str) -> Structural:
        found = self._schemas.get(api_version)
        if found is None:
            version = self._versions.get(api_version) or {}
            raw = (version.get("schema") or {}).get("openAPIV3Schema")
            found = self._schemas[api_version] = parse(raw) if raw else ANYTHING
        return found

    # --- what is shown

    async def records(self, records: Sequence[Record], kind: Kind) -> Sequence[Record]:
        """The records with values as they are shown in the version of a kind. Raises StatusError."""
        if self._since == 0 and len(self._versions) == 1:
            return records
        head = b'{"apiVersion":"%b",' % kind.api_version.encode()
        found: dict[int, Record] = {}
        for place, record in enumerate(records):
            if record.head(_HEAD_BYTES).startswith(head) and (self._is_new(record) or _is_known(record, self)):
                continue
            kept = self._kept.get((record.key, record.revision, kind.api_version))
            if kept is None:
                found[place] = record
            else:
                found[place] = kept
        missing = [place for place, record in found.items() if record is records[place]]
        await self._make(missing, records, found, kind)
        return [found.get(place, record) for place, record in enumerate(records)] if found else records

    async def _make(
        self, missing: Sequence[int], records: Sequence[Record], found: dict[int, Record], kind: Kind
    ) -> None:
        """Make what is shown of the records in these places."""
        others: list[tuple[int, Obj]] = []
        for number, place in enumerate(missing, 1):
            if number % LOOKED_AT_ONCE == 0:
                await asyncio.sleep(0)
            obj = decode(records[place])
            whole = self.completed(obj)
            if obj["apiVersion"] != kind.api_version:
                others.append((place, whole))
            elif not self._remember_if_whole(records[place], obj, whole):
                found[place] = self._keep(_record(whole, records[place]), kind)
        if others:
            objs = await self.converted([obj for _, obj in others], kind)
            for (place, _), obj in zip(others, objs, strict=True):
                found[place] = self._keep(_record(obj, records[place]), kind)

    async def converted(self, objs: Sequence[Obj], to: Kind) -> list[Obj]:
        """Objects that are in another version in that of a kind, without what it does not know. Raises StatusError."""
        if self.converter is not None:
            return await self.converter.convert(objs, to)
        return [pruned(convert(obj, to), self._schema(to.api_version))[0] for obj in objs]

    def _keep(self, record: Record, kind: Kind) -> Record:
        self._kept[record.key, record.revision, kind.api_version] = record
        self._bytes += len(record.value)
        while len(self._kept) > KEPT_RECORDS or self._bytes > KEPT_BYTES:
            _, gone = self._kept.popitem(last=False)
            self._bytes -= len(gone.value)
        return record


def _is_known(record: Record, reader: Reader) -> bool:
    return record.note is not None and record.note.read_by is reader


def _record(obj: Obj, of: Record) -> Record:
    """A record of another's moment, with another value."""
    value, place = encode(obj)
    return Record(of.key, b"%b%d%b" % (value[:place], of.revision, value[place:]), of.revision)


def reader_of(kind: Kind) -> Reader | None:
    """Who reads the objects of a kind; None: they lie as they are shown, but for their version."""
    found: Reader | None = None if kind.custom is None else kind.custom.reader
    return found


async def converted(obj: Obj, to: Kind) -> Obj:
    """An object that is complete in the version of a kind. Raises StatusError."""
    reader = reader_of(to)
    if reader is None or obj.get("apiVersion") == to.api_version:
        return served(obj, to)
    (found,) = await reader.converted([obj], to)
    return found


async def stored_form(obj: Obj, resource: Resource, known: Obj | None = None) -> Obj:
    """An object of a resource as it is to be stored: what the version that it is stored in has by default is there.

    `known` is in the version of the object, as it is written. A new object has lost the status that its author gave it,
    and has the one that the schema has by default: 1.36 fills that in whenever it reads the object.
    """
    found = await converted(obj, resource.stored)
    reader = reader_of(resource.stored)
    if reader is None:
        return json_form(found, resource.stored, known if found is obj else None)
    custom = resource.stored.custom
    lacks_status = custom is not None and custom.has_status and "status" not in obj
    return reader.completed(found) if lacks_status or found is not obj else found


def lying(record: Record, resource: Resource) -> Obj:
    """The object of a record in the version that it lies in, complete; it is shared, so do not change it."""
    reader = reader_of(resource.kind)
    return recent(record) if reader is None else reader.read(record)


async def read_record(record: Record, resource: Resource) -> Obj:
    """The object of a record as it is shown, shared: do not change it. Raises StatusError."""
    return await converted(lying(record, resource), resource.kind)


def is_whole(record: Record, resource: Resource) -> bool:
    """Whether nothing would be added to a record, or taken away, if it were written now."""
    reader = reader_of(resource.kind)
    return reader is None or reader.is_whole(record)


async def in_version(records: Sequence[Record], resource: Resource) -> Sequence[Record]:
    """Records as they are shown of a resource: themselves, unless something has to be filled in or converted."""
    reader = reader_of(resource.kind)
    return records if reader is None else await reader.records(records, resource.kind)


async def events_in_version(events: Sequence[Event], resource: Resource, *, before: bool) -> Sequence[Event]:
    """Events as a watch of a resource shows them; `before`: with what was there before, too."""
    if reader_of(resource.kind) is None or not events:
        return events
    sides = [side for event in events for side in _sides(event, before)]
    shown = await in_version(sides, resource)
    if shown is sides:
        return events
    rest, found = iter(shown), []
    for event in events:
        new, old = event.new, event.old
        given = _sides(event, before)
        made = [next(rest) for _ in given]
        if all(one is other for one, other in zip(given, made, strict=True)):
            found.append(event)
            continue
        if new is not None:
            new = made.pop(0)
        found.append(Event(event.key, event.revision, made[0] if made else old, new))
    return found


def _sides(event: Event, before: bool) -> list[Record]:
    """The records of an event that are looked at: the new one, and the old one without a new one or `before`."""
    sides = [event.new] if event.new is not None else []
    return [*sides, event.old] if event.old is not None and (before or not sides) else sides
