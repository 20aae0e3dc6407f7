"""WATCH: a cursor in the store's history turned into lines of JSON.

A watch never holds a writer up: what has happened lies in one log for all, the stream takes what is pending, joins it
and sends it; a client that reads too slowly for the history is cut off with 410. The wait for events ends when the
client goes, when the time is over and when the server stops.
Source: the watch protocol of Kubernetes, with bookmarks (KEP 956) and watch-list (KEP 3157).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from random import Random
from typing import TYPE_CHECKING

import orjson

from haru.apiserver.apiextensions.reader import events_in_version, in_version
from haru.apiserver.encoding.negotiation import PARTIAL, PARTIAL_PROTOBUF, PLAIN, not_acceptable
from haru.apiserver.encoding.objects import Selection, partial_bytes, recent, with_revision
from haru.apiserver.encoding.rendering import object_bytes, partial, representation_of, table_of, versioned
from haru.apiserver.registry.list import range_of, revision_of, selected, selection_of, wait_for_revision
from haru.apiserver.registry.watch_encoder import EncodedEvents, Piece, WatchWriter, pieces_of
from haru.apiserver.request.call import Call
from haru.apiserver.request.http import Request, Response
from haru.apiserver.streams import OpenStreams
from haru.kube.errors import FieldError, StatusError, expired_error, forbidden, invalid_error, not_supported
from haru.kube.json_form import served
from haru.kube.meta import Obj
from haru.kube.wire_out import WATCH_CONTENT_TYPE, encode_event
from haru.serving import EVENTS
from haru.storage import Compacted, Event, Record, Watch
from haru.upgrade_proxy import wants_websocket

if TYPE_CHECKING:
    from haru.apiserver.registry.watch_websocket import WebSocketWriter

BOOKMARK_SECONDS = 60.0
OBJECTS_AT_ONCE = 64
"""Events that a client in the same process gets together: it hears them without letting others in."""


def check_options(request: Request) -> None:
    """422 for combinations of options that have no meaning."""
    errors: list[FieldError] = []
    match = request.param("resourceVersionMatch")
    if "sendInitialEvents" in request.query:
        if match != "NotOlderThan":
            why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
            errors.append(forbidden("resourceVersionMatch", why))
    elif match:
        why = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
        errors.append(forbidden("resourceVersionMatch", why))
    if match and match != "NotOlderThan":
        errors.append(not_supported("resourceVersionMatch", match, ["NotOlderThan"]))
    is_unasked = "sendInitialEvents" not in request.query and begins_with_state(request)
    if request.param("continue") and (match or is_unasked):
        why = "resourceVersionMatch is forbidden when continue is provided"
        errors.append(forbidden("resourceVersionMatch", why))
    if errors:
        raise invalid_error("meta.k8s.io", "ListOptions", "", errors)


def begins_with_state(request: Request) -> bool:
    """Whether a watch begins with the objects that are there: by its options, or for want of a revision."""
    if "sendInitialEvents" in request.query:
        return request.flag("sendInitialEvents")
    return not request.param("resourceVersionMatch") and request.param("resourceVersion") in ("", "0")


class WatchStream:
    """One watch request."""

    def __init__(
        self,
        call: Call,
        encoded: EncodedEvents,
        selection: Selection,
        watch: Watch,
        initial: Sequence[Record],
        refusal: StatusError | None = None,
    ) -> None:
        self._call = call
        self._encoded = encoded
        self._resource = call.resource
        self._selection = selection
        self._watch = watch
        self._initial = initial
        self._refusal = refusal
        self._representation = representation_of(call.request)
        self._plain = self._representation is PLAIN and call.resource.kind is call.resource.stored
        # Of custom resources each watch has events of its own: they may have been converted for it.
        is_built_in = call.resource.kind.custom is None
        self._is_shared = self._plain and selection.everything and is_built_in
        self._form = "" if self._plain else None
        """What tells the form of its lines from others of the same changes; None: there may be as many as watches."""
        if is_built_in and self._representation in (PARTIAL, PARTIAL_PROTOBUF):
            self._form = " partial protobuf" if self._representation.protobuf else " partial"
        self._bookmarks = call.request.flag("allowWatchBookmarks")
        self._initial_end = begins_with_state(call.request)
        self._seconds = call.request.number("timeoutSeconds")
        self._columns_sent = False
        self._after = 0 if initial else revision_of(call.request)

    # --- lines

    def _object(self, record: Record, revision: int) -> bytes:
        """The event's object; `revision` differs from the record's for a deletion."""
        resource = self._resource
        if self._representation is PLAIN:
            value = object_bytes(record, resource)
            return value if revision == record.revision else with_revision(value, revision)
        if self._representation in (PARTIAL, PARTIAL_PROTOBUF):
            return partial_bytes(record, revision)
        obj = versioned(record, resource)
        obj["metadata"]["resourceVersion"] = str(revision)
        if self._representation.shape == "partial":
            return orjson.dumps(partial(obj, self._representation.version))
        if self._representation.shape == "table":
            return orjson.dumps(self._table(obj, revision))
        return orjson.dumps(obj)

    def line(self, type_: str, record: Record, revision: int) -> bytes:
        """An event with a record's object."""
        return self.event(type_, self._object(record, revision))

    def event(self, type_: str, value: bytes) -> bytes:
        """An event with an object in JSON, as the client takes it."""
        if self._representation.protobuf:
            return encode_event(type_, orjson.loads(value))
        return b'{"type":"%b","object":%b}\n' % (type_.encode(), value)

    def _shown(self, event: Event) -> tuple[str, Record | None]:
        """The type of a change and the record as this watch's selection sees it; None when it does not see it."""
        selection = self._selection
        everything = selection.everything
        after = event.new if event.new is not None and (everything or selection.matches(event.new)) else None
        before = event.old if event.old is not None and (everything or selection.matches(event.old)) else None
        if after is not None:
            return ("MODIFIED" if before is not None else "ADDED"), after
        # An object that leaves the selection is shown as it was last in it, at the revision of the change.
        return "DELETED", before

    def _event_line(self, event: Event) -> bytes:
        """The line of a change as this watch's selection sees it; empty when it does not see it at all."""
        type_, record = self._shown(event)
        if record is None:
            return b""
        if self._form is None:
            return self.line(type_, record, event.revision)
        # The same line goes to every watch of the stored version, or of metadata: it is made once.
        lines, which = self._encoded.lines(event), type_ + self._form
        line = lines.get(which)
        if line is None:
            line = lines[which] = self.line(type_, record, event.revision)
        return line

    def pieces(self, events: Sequence[Event]) -> Iterable[Piece]:
        """What this watch sends of some changes."""
        if self._is_shared:
            return self._encoded.shared_pieces.pieces(events, self._event_line)
        return pieces_of(line for event in events if (line := self._event_line(event)))

    def _bookmark(self, revision: int, *, end_of_initial: bool = False) -> Obj:
        kind = self._resource.kind
        metadata: Obj = {"resourceVersion": str(revision)}
        if end_of_initial:
            metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
        obj: Obj = {"kind": kind.kind, "apiVersion": kind.api_version, "metadata": metadata}
        if self._representation.shape == "partial":
            obj = partial(obj, self._representation.version)
        elif self._representation.shape == "table":
            obj = self._table(obj, revision)  # its row says that the initial state is complete
        return obj

    def _table(self, obj: Obj, revision: int) -> Obj:
        table = table_of(self._call, [obj], {"resourceVersion": str(revision)})
        if self._columns_sent:
            table["columnDefinitions"] = None
        self._columns_sent = True
        return table

    # --- objects, for a client in this process

    def shared_object(self, record: Record, revision: int) -> Obj:
        """The event's object, the same for everybody who watches in this process."""
        shape = self._representation.shape
        if shape == "table":
            table: Obj = orjson.loads(self._object(record, revision))
            return table
        obj = served(recent(record), self._resource.kind)
        if revision != record.revision:
            obj = {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(revision)}}
        return partial(obj, self._representation.version) if shape == "partial" else obj

    def shared_events(self, events: Sequence[Event]) -> list[tuple[str, Obj]]:
        """What this watch sends of some changes."""
        shown = [(*self._shown(event), event.revision) for event in events]
        return [
            (type_, self.shared_object(record, revision)) for type_, record, revision in shown if record is not None
        ]

    # --- the stream

    async def run(self, request: Request, socket: WebSocketWriter | None = None) -> None:
        """Write lines until the time is over, the client is gone, the history is, or the server stops.

        TimeoutError for a client that does not read.
        """
        loop = asyncio.get_running_loop()
        seconds = self._seconds or Random().randrange(1800, 3600)
        deadline = loop.time() + seconds
        gone = asyncio.create_task(close_when_gone(request if socket is None else socket, self._watch))
        take = (request.scope.get("extensions") or {}).get(EVENTS)
        writer = WatchWriter(request) if socket is None else socket
        outlet = _Lines(self, writer) if take is None else _Objects(self, take)
        try:
            if self._refusal is not None:
                raise self._refusal
            await self._send_initial(outlet)
            next_bookmark = loop.time() + BOOKMARK_SECONDS
            while not self._watch.closed:
                now = loop.time()
                pending = [event for event in self._watch.pending() if event.revision > self._after]
                events = await events_in_version(pending, self._resource, before=self._selection.reads_version)
                if events:
                    await outlet.changes(events)
                if now >= next_bookmark or now >= deadline:
                    next_bookmark = now + BOOKMARK_SECONDS
                    if self._bookmarks and self._watch.revision >= self._after:
                        await outlet.tell("BOOKMARK", self._bookmark(self._watch.revision))
                if now >= deadline:
                    return
                await self._watch.wait(max(0.0, min(deadline, next_bookmark) - loop.time()))
        except (Compacted, StatusError) as error:
            told = error if isinstance(error, StatusError) else gone_error(error)
            await outlet.tell("ERROR", told.to_status())
        finally:
            self._watch.close()
            gone.cancel()

    async def _send_initial(self, outlet: _Lines | _Objects) -> None:
        records = await in_version(self._initial, self._resource)
        self._initial = ()
        await outlet.added(records)
        if self._initial_end and self._bookmarks:
            await outlet.tell("BOOKMARK", self._bookmark(self._watch.revision, end_of_initial=True))


class _Lines:
    """What a watch sends as lines of JSON, or as frames of protobuf."""

    def __init__(self, stream: WatchStream, writer: WatchWriter | WebSocketWriter) -> None:
        self._stream, self._writer = stream, writer

    async def changes(self, events: Sequence[Event]) -> None:
        """Send changes."""
        await self._writer.send(self._stream.pieces(events))

    async def added(self, records: Sequence[Record]) -> None:
        """Send the initial state."""
        line = self._stream.line
        await self._writer.send(pieces_of(line("ADDED", record, record.revision) for record in records))

    async def tell(self, type_: str, obj: Obj) -> None:
        """Send a bookmark or an error."""
        await self._writer.send([Piece(self._stream.event(type_, orjson.dumps(obj)))])


class _Objects:
    """What a watch hands over to a client in the same process: objects that all such clients share, not encoded."""

    def __init__(self, stream: WatchStream, take: Callable[[Sequence[tuple[str, Obj]]], Awaitable[None]]) -> None:
        self._stream, self._take = stream, take

    async def changes(self, events: Sequence[Event]) -> None:
        """Hand over changes."""
        for start in range(0, len(events), OBJECTS_AT_ONCE):
            if shown := self._stream.shared_events(events[start : start + OBJECTS_AT_ONCE]):
                await self._take(shown)

    async def added(self, records: Sequence[Record]) -> None:
        """Hand over the initial state."""
        for start in range(0, len(records), OBJECTS_AT_ONCE):
            some = records[start : start + OBJECTS_AT_ONCE]
            await self._take([("ADDED", self._stream.shared_object(record, record.revision)) for record in some])

    async def tell(self, type_: str, obj: Obj) -> None:
        """Hand over a bookmark or an error."""
        await self._take([(type_, obj)])


async def close_when_gone(client: Request | WebSocketWriter, watch: Watch) -> None:
    """Close a watch when its client goes."""
    if isinstance(client, Request):
        while (await client.receive())["type"] != "http.disconnect":
            pass
    else:
        await client.gone()
    watch.close()


def _websocket(request: Request, *, binary: bool) -> WebSocketWriter:
    from haru.apiserver.registry.watch_websocket import WebSocketWriter

    return WebSocketWriter(request, binary=binary)


class WatchHandler:
    """Open the watches of one server, which share the encoded events."""

    def __init__(self, streams: OpenStreams) -> None:
        self._streams = streams
        self._encoded = EncodedEvents()

    async def handle(self, call: Call) -> Response:
        """GET with `watch`: the head at once, then the stream."""
        request, store = call.request, call.objects.store
        representation = representation_of(request)
        if representation.yaml:
            raise not_acceptable(f"application/json;stream=watch, {WATCH_CONTENT_TYPE}")
        selection = selection_of(call, check_options)
        revision_of(request)
        if representation.shape == "table":
            table_of(call, [], {})  # which refuses what cannot be beside rows
        prefix, value, _ = range_of(call, selection)
        socket = _websocket(request, binary=representation.protobuf) if wants_websocket(request.scope) else None
        initial: Sequence[Record] = ()
        # What is refused from here on is an event of the stream, as in 1.36: client-go's RetryWatcher stops at such an
        # event, and tries again for ever after the same answer as a status of HTTP.
        refusal: StatusError | None = None
        try:
            initial, since = await _initial(call, selection)
            watch = store.watch(prefix, since, value)
        except (Compacted, StatusError) as error:
            refusal = error if isinstance(error, StatusError) else gone_error(error)
            watch = store.watch(prefix, store.revision, value)
        watch = self._streams.follow(watch, call.resource.kind)
        stream = WatchStream(call, self._encoded, selection, watch, initial, refusal)
        content_type = WATCH_CONTENT_TYPE if representation.protobuf else "application/json"

        async def run(request: Request) -> None:
            try:
                await stream.run(request)
            finally:
                self._streams.leave(watch)

        async def run_on_socket(request: Request) -> None:
            assert socket is not None
            try:
                socket.open()
                await stream.run(request, socket)
            finally:
                self._streams.leave(watch)
                await socket.close()

        if socket is not None:
            return Response(101, tunnel=run_on_socket)
        return Response(200, b"", content_type, [], run)


async def _initial(call: Call, selection: Selection) -> tuple[Sequence[Record], int]:
    """The objects that a watch begins with, if any, and the revision that its events come after."""
    request, store = call.request, call.objects.store
    revision = revision_of(request)
    if begins_with_state(request):
        if revision:
            await wait_for_revision(call, revision)
        prefix, value, most = range_of(call, selection)
        page = await store.range(prefix, value=value, limit=most)
        return await selected(page.records, selection, call.resource), page.revision
    # A watch from a revision that is yet to come begins with it, as in 1.36.
    return (), min(revision, store.revision) or store.revision


def gone_error(error: Compacted) -> StatusError:
    """410 for a revision that has left the history."""
    return expired_error(str(error))
