"""Objects as stored bytes: encoding with the place of the resourceVersion, and what selectors want to know of them.

The encoded form starts `{"apiVersion":…,"kind":…,"metadata":{"resourceVersion":"`: the store writes the revision right
there, and stored bytes are served as they are, to `get`, lists and watches alike.
"""

from __future__ import annotations

import json
import zlib
from collections import OrderedDict
from collections.abc import Mapping
from functools import lru_cache
from typing import Any
from weakref import ref

import orjson

from haru.kube.kinds import Kind
from haru.kube.meta import Obj
from haru.kube.selectors import FieldSelector, LabelSelector, field_value
from haru.kube.shared_parts import SharedParts, interned
from haru.storage import Record, StoreError


def encode(obj: Obj) -> tuple[bytes, int]:
    """The stored form, and the offset at which the revision belongs."""
    api_version, kind = obj["apiVersion"], obj["kind"]
    # These stand first, whatever their order in the object.
    head = {"apiVersion": api_version, "kind": kind, "metadata": None, **obj}
    head["metadata"] = metadata = {"resourceVersion": "", **obj["metadata"]}
    metadata["resourceVersion"] = ""
    return orjson.dumps(head), _place(api_version, kind)


@lru_cache(maxsize=1024)
def _place(api_version: str, kind: str) -> int:
    return len(f'{{"apiVersion":"{api_version}","kind":"{kind}","metadata":{{"resourceVersion":"')


_REVISION = b'"metadata":{"resourceVersion":"'


def with_revision(value: bytes, revision: int) -> bytes:
    """Stored bytes with another revision: a DELETED event carries that of the deletion."""
    place = value.index(_REVISION) + len(_REVISION)
    end = value.index(b'"', place)
    return b"%b%d%b" % (value[:place], revision, value[end:])


_PARTIAL = b'{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":'
_HEAD_BYTES = 8192
_scan = json.JSONDecoder().raw_decode


def partial_bytes(record: Record, revision: int = 0) -> bytes:
    """PartialObjectMetadata of a record (at `revision`, if given): cut out of the stored bytes, nothing is decoded.

    The metadata stand first, so that large objects are told of at the cost of small ones.
    """
    head = record.head(_HEAD_BYTES)
    start = head.index(_REVISION) + len(b'"metadata":')
    try:
        metadata = _metadata(head, start)
    except ValueError:
        metadata = _metadata(record.value, start)
    if revision and revision != record.revision:
        end = metadata.index(b'"', len('{"resourceVersion":"'))
        metadata = b'{"resourceVersion":"%d%b' % (revision, metadata[end:])
    return b"%b%b}" % (_PARTIAL, metadata)


def _metadata(value: bytes, start: int) -> bytes:
    # Each byte as one character: the scanner's positions are then those of the bytes.
    _, end = _scan(value.decode("latin-1"), start)
    return value[start:end]


def decode(record: Record) -> Obj:
    """A fresh object of a record, which the caller may change. Raises `StoreError` for one that is damaged."""
    try:
        obj: Obj = orjson.loads(record.value)
    except (orjson.JSONDecodeError, zlib.error) as error:
        raise StoreError(f"what is stored under {record.key} is damaged: {error}; see to the store") from error
    return obj


NO_OBJECTS = frozenset({"masterleases", "peerserverleases", "ranges"})
"""Where what API servers note for themselves is kept."""


def damage_of(key: str, value: bytes) -> str:
    """What is wrong with stored bytes; empty for nothing. It is to find accidents, not objects that are not valid."""
    try:
        obj = orjson.loads(value)
    except orjson.JSONDecodeError as error:
        return f"it is no JSON ({error})"
    if key.partition("/")[0] in NO_OBJECTS:
        return ""
    if not isinstance(obj, dict) or not isinstance(obj.get("metadata"), dict):
        return "it is no object with metadata"
    return ""


class Note:
    """Cached parts of a record: its labels, the fields that selectors have used, small objects whole.

    `recent`: the object of a record that was written or read lately. `read_by`: who found that a custom resource lies
    as it is shown. `row`: what `table_rows` has made of it.
    """

    __slots__ = ("__weakref__", "fields", "labels", "obj", "read_by", "recent", "row")

    def __init__(self, labels: Mapping[str, str]) -> None:
        self.labels = labels or _NOTHING
        self.fields: dict[str, str] | None = None
        self.obj: Obj | None = None
        self.recent: Obj | None = None
        self.read_by: object = None
        self.row: Any = None


def note_of(record: Record) -> Note:
    """The record's note, made when it is first wanted."""
    if record.note is None:
        recent(record)
    note = record.note
    assert isinstance(note, Note)
    return note


def shared(record: Record) -> Obj:
    """The decoded object, cached with the record: do not change it. For small objects that are read often."""
    note = note_of(record)
    if note.obj is None:
        note.obj = recent(record)
    return note.obj


RECENT_BYTES = 16 * 1024 * 1024
"""Of encoded objects that are kept decoded as well, which takes some six times as much where nobody else has them."""
PACKING = 4
"""How many bytes of an object one compressed byte stands for, about."""


class NoteSizes:
    """Notes that keep something, with its size, in the order in which they got it; one that is gone counts no more."""

    def __init__(self) -> None:
        self._sizes: OrderedDict[ref[Note], int] = OrderedDict()
        self.bytes = 0

    def add(self, note: Note, size: int) -> None:
        """A note keeps something from now on, in place of what it kept."""
        place = ref(note, self._gone)
        if place in self._sizes:
            self._gone(place)
        self._sizes[place] = size
        self.bytes += size

    def remove(self, note: Note) -> int:
        """A note keeps nothing any more; return the size of what it kept."""
        size = self._sizes.pop(ref(note), 0)
        self.bytes -= size
        return size

    def pop_oldest(self) -> Note | None:
        """Remove the note that has kept something for longest, and return it if it is still there."""
        place, size = self._sizes.popitem(last=False)
        self.bytes -= size
        return place()

    def _gone(self, place: ref[Note]) -> None:
        self.bytes -= self._sizes.pop(place, 0)


class _Recent:
    """The notes that have a decoded object.

    What has been replaced has a quarter of the room, for watches that are to hear of it: of many objects that wait for
    their next change, as the pods of a large job, each would otherwise have gone by then.
    """

    def __init__(self) -> None:
        self._newest, self._replaced = NoteSizes(), NoteSizes()

    def keep(self, note: Note, obj: Obj, size: int) -> None:
        """Keep an object with a note until many others were kept after it."""
        note.recent = obj
        newest, replaced = self._newest, self._replaced
        newest.add(note, size)
        while newest.bytes + replaced.bytes > RECENT_BYTES:
            full = replaced if replaced.bytes * 4 > RECENT_BYTES or not newest.bytes else newest
            if (old := full.pop_oldest()) is not None:
                old.recent = None

    def replaced(self, note: Note) -> None:
        """The object of a note is no longer the newest version."""
        if size := self._newest.remove(note):
            self._replaced.add(note, size)


_RECENT = _Recent()
_PARTS = SharedParts()
_SHARED_TEXTS = ("namespace", "generateName", "creationTimestamp")
"""Members of metadata that many objects have alike."""


def kept(record: Record) -> Obj | None:
    """The decoded object, if somebody has had it lately; shared: do not change it."""
    note: Note | None = record.note
    return None if note is None else note.recent or note.obj


def recent(record: Record) -> Obj:
    """The decoded object, shared by all who ask soon after another: do not change it.

    A written object is wanted by whoever watches it, and by the next who changes it: none of them decodes it again.
    """
    if (known := kept(record)) is not None:
        return known
    note: Note | None = record.note
    obj = _with_shared_parts(decode(record))
    if note is None:
        note = record.note = Note(obj["metadata"].get("labels") or {})
    data, packed = record.stored
    _RECENT.keep(note, obj, len(data) * PACKING if packed else len(data))
    return obj


def glanced(record: Record) -> Obj:
    """The decoded object, which is not kept where it was not: for what reads many once. Do not change it."""
    if (known := kept(record)) is not None:
        return known
    obj = decode(record)
    if record.note is None:
        record.note = Note(obj["metadata"].get("labels") or {})
    return obj


def replaced(record: Record) -> None:
    """There is a newer version of a record, or the object is gone."""
    if record.note is not None:
        _RECENT.replaced(record.note)


def noted(obj: Obj, size: int, before: Obj | None, revision: int) -> Note:
    """The note of a record that `obj` was encoded for, in `size` bytes; from now on nobody may change the object.

    `before` is the version that it replaces, as `recent` has it.
    """
    metadata = {"resourceVersion": "", **obj["metadata"]}
    metadata["resourceVersion"] = str(revision)
    shown = _with_shared_parts({**obj, "metadata": metadata}, before)
    note = Note(shown["metadata"].get("labels") or {})
    _RECENT.keep(note, shown, size)
    return note


def _with_shared_parts(obj: Obj, before: Obj | None = None) -> Obj:
    """The object, whose parts are those of others where they are equal: informers in the process keep it.

    What it has in common with the version before it has been through this.
    """
    metadata, before = obj["metadata"], before or _NOTHING
    known = before.get("metadata") or _NOTHING
    for member in _SHARED_TEXTS:
        text = metadata.get(member)
        if text is not None and text is not known.get(member):
            metadata[member] = interned(text)
    labels, references = metadata.get("labels"), metadata.get("ownerReferences")
    if labels and labels is not known.get("labels"):
        metadata["labels"] = _PARTS.part(interned(labels))
    if references and references is not known.get("ownerReferences"):
        metadata["ownerReferences"] = _PARTS.part(references)
    for member in ("spec", "status"):
        fields = obj.get(member)
        if type(fields) is dict and fields is not before.get(member):
            obj[member] = _PARTS.members(fields, before.get(member))
    return obj


_NOTHING: Obj = {}


class Selection:
    """A label and a field selector together, applied to records in their stored form.

    `name`: the one that it selects, if it does. `reads_version`: fields of a custom resource, which are read in the
    version of the request.
    """

    __slots__ = ("_kind", "_labels", "_requirements", "everything", "indexed", "name", "reads_version")

    def __init__(self, kind: Kind, labels: LabelSelector | None, fields: FieldSelector | None) -> None:
        self._kind = kind
        self._labels = labels
        requirements = fields.requirements if fields is not None else ()
        self._requirements = [(_stored_path(path), op, wanted) for path, op, wanted in requirements]
        self.name = (fields.exact("metadata.name") if fields is not None else None) or ""
        indexed = INDEXED_FIELDS.get(kind.group_resource)
        self.indexed = fields.exact(indexed) if fields is not None and indexed is not None else None
        self.everything = labels is None and not self._requirements
        self.reads_version = kind.custom is not None and any(
            not path.startswith("metadata.") for path, _, _ in requirements
        )

    def matches(self, record: Record) -> bool:
        """Whether the record's object is selected."""
        if self.everything:
            return True
        if self._labels is not None and not self._labels.matches(note_of(record).labels):
            return False
        return all((self._field(record, path) == wanted) == (op == "=") for path, op, wanted in self._requirements)

    def _field(self, record: Record, path: str) -> str:
        if path == "metadata.name":
            return record.key.rpartition("/")[2]
        reader = None if self._kind.custom is None else self._kind.custom.reader
        if reader is not None and not reader.is_whole(record):
            return field_value(self._kind, reader.read(record), path)
        return noted_field(self._kind, path, record)


def noted_field(kind: Kind, path: str, record: Record) -> str:
    """The field of a record's object, as it is stored, that a selector compares with."""
    note = note_of(record)
    if note.fields is None:
        note.fields = {}
    value = note.fields.get(path)
    if value is None:
        value = note.fields[path] = field_value(kind, recent(record), path)
    return value


def indexed_field(kind: Kind, path: str, record: Record) -> str:
    """The field that the store finds a record by; empty for a damaged one, of which its readers are told."""
    try:
        return noted_field(kind, path, record)
    except (StoreError, LookupError, TypeError, AttributeError):
        return ""


INDEXED_FIELDS = {"pods": "spec.nodeName", "resourceslices.resource.k8s.io": "spec.nodeName"}
"""By resource, as in the watch cache of 1.36: the field whose values the store finds its objects by."""


def _stored_path(path: str) -> str:
    """events.k8s.io selects by names of its own; what is stored is the core group's event."""
    if path == "reportingController":
        return "reportingComponent"
    return path.replace("regarding.", "involvedObject.", 1) if path.startswith("regarding.") else path
