"""LIST: pages of one snapshot, by selectors, at the revision that the client means.

A continue token carries the snapshot's revision and the last key, so all pages show one moment; when that moment has
left the history the answer is 410 with a token to go on inconsistently.
Source: apiserver-storage semantics of `resourceVersion` and `resourceVersionMatch`.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import orjson

from haru.apiserver.apiextensions.reader import in_version
from haru.apiserver.encoding.list_cache import FROM_RECORDS, ListBody, ListCache, list_pieces, list_text
from haru.apiserver.encoding.negotiation import PARTIAL, PLAIN, PROTOBUF
from haru.apiserver.encoding.objects import Selection, partial_bytes, recent
from haru.apiserver.encoding.rendering import (
    check_list_shape,
    is_prepared,
    item_bytes,
    list_metadata,
    render_list,
    representation_of,
    versioned,
)
from haru.apiserver.encoding.table_rows import table_bytes
from haru.apiserver.registry.resources import Resource
from haru.apiserver.request.call import Call
from haru.apiserver.request.http import MadePieces, Request, Response
from haru.event_loop import TimeSlice
from haru.kube.errors import (
    FieldError,
    StatusError,
    bad_request_error,
    expired_error,
    forbidden,
    invalid,
    invalid_error,
)
from haru.kube.json_form import served
from haru.kube.meta import Obj
from haru.kube.selectors import FieldSelector, parse_field_selector, parse_label_selector, selectable_path
from haru.kube.wire_out import encode_list, encode_partial_item
from haru.serving import OBJECT
from haru.storage import Compacted, FutureRevision, Page, Record

WAIT_FOR_REVISION = 3.0


@dataclass(frozen=True, slots=True)
class ListPage:
    """The records of one page, the revision they are of, and how it goes on."""

    records: Sequence[Record]
    revision: int
    next: str = ""
    remaining: int | None = None

    def metadata(self) -> Obj:
        """The metadata of the list."""
        metadata: Obj = {"resourceVersion": str(self.revision)}
        if self.next:
            metadata["continue"] = self.next
            if self.remaining is not None:
                metadata["remainingItemCount"] = self.remaining
        return metadata


def selection_of(call: Call, check: Callable[[Request], None] | None = None) -> Selection:
    """The selectors of the request; 400 for malformed ones and for fields that can not select.

    `check` looks at the other options (by default at those of a list) before it is asked what can select, as in 1.36.
    """
    request, kind = call.request, call.resource.kind
    if not request.query and not call.name:
        return Selection(call.resource.stored, None, None)
    for name in ("timeoutSeconds", "limit"):
        request.number(name)
    labels = parse_label_selector(request.param("labelSelector")) if request.param("labelSelector") else None
    fields = parse_field_selector(request.param("fieldSelector")) if request.param("fieldSelector") else None
    (check or check_options)(request)
    if fields is not None:
        fields = FieldSelector(tuple(each for each in fields.requirements if each[0] or each[2]))
    for path, _, _ in fields.requirements if fields else ():
        selectable_path(kind, path)
    if call.verb == "watch" and call.name:
        fields = _named(call.name, fields)
    # The versions of a custom resource have selectable fields of their own.
    return Selection(kind if kind.custom is not None else call.resource.stored, labels, fields)


class StoredRange(NamedTuple):
    """A part of what is stored: a prefix or a key, the value that it is indexed by, and the number of records in it."""

    prefix: str
    value: str | None
    most: int
    """0: any number."""


def range_of(call: Call, selection: Selection) -> StoredRange:
    """The narrowest range in which all lies that can be selected."""
    if selection.name.isascii() and selection.name and (call.namespace or not call.resource.kind.namespaced):
        return StoredRange(call.resource.key(call.namespace, selection.name), None, 1)
    return StoredRange(call.resource.prefix(call.namespace), selection.indexed, 0)


async def selected(records: Sequence[Record], selection: Selection, resource: Resource) -> list[Record]:
    """The records whose objects, as they are shown, are selected. Raises StatusError."""
    shown = await in_version(records, resource) if selection.reads_version else records
    return [record for record, seen in zip(records, shown, strict=True) if selection.matches(seen)]


def _named(name: str, fields: FieldSelector | None) -> FieldSelector:
    """A watch of one object by its path selects it by its name, and can select by nothing else."""
    if fields is not None and fields.requirements and fields.exact("metadata.name") != name:
        raise bad_request_error("fieldSelector metadata.name doesn't match requested name")
    return FieldSelector((("metadata.name", "=", name),))


def revision_of(request: Request) -> int:
    """The `resourceVersion` parameter, 0 when absent."""
    text = request.param("resourceVersion")
    if text and not (text.isascii() and text.isdigit() and len(text) <= 20 and int(text) < 1 << 64):
        why = "value out of range" if text.isascii() and text.isdigit() else "invalid syntax"
        error = invalid("resourceVersion", text[:80], f'strconv.ParseUint: parsing "{text[:80]}": {why}')
        raise invalid_error("meta.k8s.io", "ListOptions", "", [error])
    return int(text or 0)


def _encode_token(revision: int, key: str) -> str:
    token = orjson.dumps({"v": "meta.k8s.io/v1", "rv": revision, "start": key})
    return base64.urlsafe_b64encode(token).decode().rstrip("=")


def _decode_token(text: str, prefix: str) -> tuple[int, str]:
    """The revision and the last key.

    A token comes from the client: a key outside of `prefix` would show others'.
    """
    try:
        token = orjson.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
        revision, start = token["rv"], token["start"]
        if token["v"] != "meta.k8s.io/v1" or type(revision) is not int or revision < -1:
            raise ValueError
        if not isinstance(start, str) or not start.startswith(prefix):
            raise ValueError
    except (ValueError, KeyError, TypeError, AttributeError):
        raise bad_request_error(
            "invalid continue token: continue key is not valid: the token was not made for this list"
        ) from None
    return revision, start


def check_options(request: Request) -> None:
    """422 for combinations of options that have no meaning."""
    errors: list[FieldError] = []
    match, version = request.param("resourceVersionMatch"), request.param("resourceVersion")
    going_on = request.param("continue")
    if match:
        if not version:
            errors.append(
                forbidden(
                    "resourceVersionMatch", "resourceVersionMatch is forbidden unless resourceVersion is provided"
                )
            )
        if going_on:
            errors.append(
                forbidden("resourceVersionMatch", "resourceVersionMatch is forbidden when continue is provided")
            )
        if match not in ("Exact", "NotOlderThan"):
            why = 'supported values: "Exact", "NotOlderThan", ""'
            errors.append(FieldError("FieldValueNotSupported", "resourceVersionMatch", match, why))
        if match == "Exact" and version == "0":
            why = 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"'
            errors.append(forbidden("resourceVersionMatch", why))
    if "sendInitialEvents" in request.query:
        errors.append(forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"))
    if errors:
        raise invalid_error("meta.k8s.io", "ListOptions", "", errors)


async def find(call: Call, selection: Selection) -> ListPage:
    """The page that the request asks for."""
    request = call.request
    if not request.query:
        page = await call.objects.store.range(call.resource.prefix(call.namespace))
        return ListPage(page.records, page.revision)
    limit = max(request.number("limit"), 0)
    if token := request.param("continue"):
        revision, after = _decode_token(token, call.resource.prefix(call.namespace))
        if request.param("resourceVersion") not in ("", "0"):
            raise bad_request_error("specifying resource version is not allowed when using continue")
    else:
        if request.param("resourceVersion") == "0":
            limit = 0  # who takes any state takes the whole of it, as from the cache of 1.36
        revision, after = await _snapshot(call, selection, limit), ""
    return await _collect(call, selection, revision, after, limit)


async def _snapshot(call: Call, selection: Selection, limit: int) -> int:
    """The revision that must be read exactly, or 0 for the newest.

    A limit makes a revision an exact one, but for what can be one object only; a deletion of a collection, which 1.36
    does page by page, always has one.
    """
    request = call.request
    revision = read_revision(request)
    if not revision:
        return 0
    match = request.param("resourceVersionMatch")
    is_limited = not match and (limit > 0 or call.verb == "deletecollection")
    await wait_for_revision(call, revision)
    return revision if match == "Exact" or (is_limited and not range_of(call, selection).most) else 0


def read_revision(request: Request) -> int:
    """The `resourceVersion` parameter where 1.36 refuses it while it reads, not with the other options."""
    try:
        return revision_of(request)
    except StatusError as error:
        raise bad_request_error(f"invalid resource version: {error.message.partition(' is invalid: ')[2]}") from None


async def wait_for_revision(call: Call, revision: int) -> None:
    """A revision of the future may be on its way; 504 when it does not come.

    For events, which 1.36 reads from its store, nobody waits.
    """
    store = call.objects.store
    loop = asyncio.get_running_loop()
    at_once = call.resource.kind.plural == "events"
    if at_once and store.revision < revision:
        await store.progress()
    deadline = loop.time() + WAIT_FOR_REVISION
    while store.revision < revision:
        if at_once or loop.time() >= deadline:
            cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
            message = f"Timeout: Too large resource version: {revision}, current: {store.revision}"
            details = {"causes": [cause]} if at_once else {"causes": [cause], "retryAfterSeconds": 1}
            raise StatusError(504, "Timeout", message, details)
        await asyncio.sleep(0.05)


async def _collect(call: Call, selection: Selection, revision: int, after: str, limit: int) -> ListPage:
    prefix, value, most = range_of(call, selection)
    store = call.objects.store
    try:
        if selection.everything:
            page = await store.range(prefix, after=after, limit=limit, revision=max(revision, 0))
            return _list_page(page, page.remaining)
        page = await store.range(prefix, value=value, after=after, limit=most, revision=max(revision, 0))
    except (Compacted, FutureRevision):  # of the future: the token is from a store that is no more
        raise _expired(after) from None
    chosen = await selected(page.records, selection, call.resource)
    if limit and len(chosen) > limit:
        return _list_page(Page(chosen[:limit], page.revision, len(chosen) - limit), None)
    return ListPage(chosen, page.revision)


def _list_page(page: Page, remaining: int | None) -> ListPage:
    if not page.remaining:
        return ListPage(page.records, page.revision)
    return ListPage(page.records, page.revision, _encode_token(page.revision, page.records[-1].key), remaining)


def _expired(after: str) -> StatusError:
    if not after:
        return expired_error("The resourceVersion for the provided list is too old.")
    error = expired_error(
        "The provided continue parameter is too old to display a consistent list result. You can start a new list "
        "without the continue parameter, or use the continue token in this response to retrieve the remainder of the "
        "results. Continuing with the provided token results in an inconsistent list - objects that were created, "
        "modified, or deleted between the time the first chunk was returned and now may show up in the list."
    )
    # -1: whatever is newest when the client comes back.
    return ExpiredPage(error, _encode_token(-1, after))


class ExpiredPage(StatusError):
    """410 with a token that goes on from the newest state."""

    def __init__(self, error: StatusError, token: str) -> None:
        super().__init__(error.code, error.reason, error.message, error.details)
        self.token = token

    def to_status(self) -> Obj:
        """The Status, the token in its list metadata."""
        return {**super().to_status(), "metadata": {"continue": self.token}}


def _stored_bytes(lists: ListCache, call: Call, selection: Selection, found: ListPage, metadata: Obj) -> Response:
    """Objects, or their metadata, as their bytes lie in the store; those of a whole collection come from the cache."""
    records = found.records
    resource, kind = call.resource, call.resource.kind
    name, version = kind.list_kind, kind.api_version
    is_partial = representation_of(call.request) is not PLAIN
    if is_partial:
        name, version = "PartialObjectMetadataList", "meta.k8s.io/v1"
    else:
        metadata = list_metadata(kind, metadata)
    head = f'{{"kind":"{name}","apiVersion":"{version}","metadata":{orjson.dumps(metadata).decode()},"items":['.encode()

    def encode(record: Record) -> bytes:
        return partial_bytes(record) if is_partial else item_bytes(record, resource)

    made = Response(200, pieces=MadePieces(lambda: list_pieces(head, records, encode)))
    is_whole = selection.everything and not found.next and not call.request.param("continue")
    # Which version custom resources lie in may be changed by their owner.
    if not is_whole or kind.custom is not None or len(records) < FROM_RECORDS:
        text = list_text(head, records, encode)
        return made if text is None else Response(200, text)
    items = lists.items((resource.prefix(call.namespace), kind.api_version, name), records, encode)
    if items is None:
        return made
    body = ListBody(head, items)

    async def gzipped() -> list[bytes]:
        packed = await body.gzipped()
        lists.trim()
        return packed

    return Response(200, pieces=body.pieces, gzipped=gzipped)


async def _metadata_in_protobuf(found: ListPage, metadata: Obj, version: str) -> Response:
    """Metadata in protobuf, made for each answer, with room for others in between."""
    items, work = [], TimeSlice()
    for record in found.records:
        items.append(encode_partial_item(orjson.loads(partial_bytes(record))))
        await work.shared()
    body = encode_list(f"meta.k8s.io/{version}", "PartialObjectMetadataList", metadata, items)
    return Response(200, body, PROTOBUF)


async def handle_list(lists: ListCache, call: Call) -> Response:
    """GET of a collection."""
    check_list_shape(call)
    selection = selection_of(call)
    found = await find(call, selection)
    records = await in_version(found.records, call.resource)
    if records is not found.records:
        found = replace(found, records=records)
    metadata = found.metadata()
    resource = call.resource
    kind = resource.kind
    representation = representation_of(call.request)
    if representation is PLAIN and kind.custom is None and OBJECT in (call.request.scope.get("extensions") or ()):
        shared = [served(recent(record), kind) for record in found.records]
        return Response(
            200, obj={"kind": kind.list_kind, "apiVersion": kind.api_version, "metadata": metadata, "items": shared}
        )
    if representation is PLAIN or replace(representation, listed=False) == PARTIAL:
        return _stored_bytes(lists, call, selection, found, metadata)
    if representation.protobuf and representation.shape == "partial":
        return await _metadata_in_protobuf(found, metadata, representation.version)
    if is_prepared(call):
        return Response(200, table_bytes(kind, found.records, call.objects.clock(), metadata))
    objs = [versioned(record, resource) for record in found.records]
    return render_list(call, objs, metadata)
