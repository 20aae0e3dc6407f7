"""Many watchers of one resource: each gets all that it asked for, in order, whatever the others do or leave undone."""

from __future__ import annotations

import asyncio
import json
import random
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest
from api_caller import ADMIN, MAPS, Caller, Clock, config_map, make_config

import virtual_time
from haru.apiserver.registry import watch_encoder
from haru.apiserver.registry.watch_encoder import KEPT_RUNS, PIECE_BYTES, SharedPieces, pieces_of
from haru.apiserver.server import ApiServer
from haru.apiserver.serving import HttpServer
from haru.storage import Event, Record, SqliteStore
from haru.storage.history import FEW_WATCHERS, LONGEST_PAUSE
from waiting import until

Obj = dict[str, Any]
OTHERS = MAPS.replace("default", "kube-system")
EVERYWHERE = "/api/v1/configmaps"
JSON = "application/json"
PARTIAL = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
Seen = list[tuple[str, str, int]]


class Watcher:
    """One watch over HTTP, whose lines are what was in its chunks."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.transport: Any = writer.transport
        self.rest = b""

    async def chunk(self) -> bytes:
        """What one chunk holds; empty at the end."""
        size = int(await self.reader.readuntil(b"\r\n"), 16)
        found = await self.reader.readexactly(size)
        assert await self.reader.readexactly(2) == b"\r\n"
        return found

    async def take(self, count: int) -> Seen:
        """Type, name and revision of as many events."""
        seen: Seen = []
        async with asyncio.timeout(60):
            while len(seen) < count:
                *lines, self.rest = (self.rest + await self.chunk()).split(b"\n")
                for line in lines:
                    event = json.loads(line)
                    metadata = event["object"]["metadata"]
                    seen.append((event["type"], metadata["name"], int(metadata["resourceVersion"])))
        return seen


class Server:
    """A plain listener, and the connections to it."""

    def __init__(self, listener: HttpServer) -> None:
        self.listener = listener
        self.watchers: list[Watcher] = []

    async def watch(self, path: str, accept: str = JSON, *, is_small: bool = False) -> Watcher:
        """A watch whose head has come; of a small one the kernel takes little that is not read."""
        connection = socket.socket()
        connection.setblocking(False)
        if is_small:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
        await asyncio.get_running_loop().sock_connect(connection, ("127.0.0.1", self.listener.port))
        reader, writer = await asyncio.open_connection(sock=connection, limit=1 << 20)
        self.watchers.append(Watcher(reader, writer))
        lines = [f"GET {path} HTTP/1.1", "Host: x", f"Authorization: Bearer {ADMIN}", f"Accept: {accept}", "", ""]
        writer.write("\r\n".join(lines).encode())
        found = await reader.readuntil(b"\r\n\r\n")
        assert found.startswith(b"HTTP/1.1 200") and b"transfer-encoding: chunked" in found
        return self.watchers[-1]

    async def close(self) -> None:
        """Leave, and stop."""
        for watcher in self.watchers:
            watcher.transport.abort()
        await self.listener.stop()


@pytest.fixture
async def server(api: Caller) -> AsyncIterator[Server]:
    """A plain listener."""
    listener = HttpServer(api.app)
    await listener.start()
    server = Server(listener)
    yield server
    await server.close()


async def burst(api: Caller, choose: random.Random, count: int) -> Seen:
    """Changes of a few objects in two namespaces; what a watcher of everything should see of them."""
    there: set[tuple[str, str]] = set()
    told: Seen = []
    for _ in range(count):
        namespace, name = choose.choice((MAPS, OTHERS)), f"m{choose.randrange(12)}"
        labels = {"kind": choose.choice("ab")}
        if (namespace, name) not in there:
            there.add((namespace, name))
            made = await api.create(namespace, config_map(name, labels))
            told.append(("ADDED", name, int(made["metadata"]["resourceVersion"])))
        elif choose.random() < 0.3:
            there.discard((namespace, name))
            assert (await api("DELETE", f"{namespace}/{name}")).status == 200
            told.append(("DELETED", name, api.app.objects.store.revision))
        else:
            body = {"metadata": {"labels": labels}, "data": {"text": f"{choose.random()}"}}
            answer = await api("PATCH", f"{namespace}/{name}", body, type="application/merge-patch+json")
            told.append(("MODIFIED", name, int(answer.json["metadata"]["resourceVersion"])))
    return told


async def test_event_bursts_reach_all_watchers_in_order(api: Caller, server: Server) -> None:
    """Watchers of everything, of a namespace and of metadata, some of which come in the middle of it."""
    choose, start = random.Random(7), api.app.objects.store.revision
    query = f"watch=1&resourceVersion={start}"
    wanted = [(EVERYWHERE, JSON), (MAPS, JSON), (EVERYWHERE, PARTIAL), (OTHERS, PARTIAL)]
    watchers = [
        (path, await server.watch(f"{path}?{query}", accept))
        for number in range(FEW_WATCHERS + 20)
        for path, accept in [wanted[number % len(wanted)]]
    ]
    told = await burst(api, choose, 150)
    late = [await server.watch(f"{EVERYWHERE}?{query}") for _ in range(3)]
    told_in = await _namespaces(api, start)
    expected = {
        EVERYWHERE: told,
        MAPS: [one for one in told if told_in[one[2]] == "default"],
        OTHERS: [one for one in told if told_in[one[2]] == "kube-system"],
    }
    watchers += [(EVERYWHERE, each) for each in late]
    found = await asyncio.gather(*(each.take(len(expected[path])) for path, each in watchers))
    for (path, each), seen in zip(watchers, found, strict=True):
        assert seen == expected[path]
        each.transport.abort()
    await until(lambda: not api.app.streams.watches, "no watch is left")


async def _namespaces(api: Caller, since: int) -> dict[int, str]:
    """The namespace of each change, by its revision, as the store's history has it."""
    events = api.app.objects.store.watch("configmaps/", since).pending()
    return {event.revision: event.key.split("/")[1] for event in events}


async def test_slow_watcher_does_not_delay_others(api: Caller, server: Server) -> None:
    """The others get everything; what lies here for it is bounded; once it reads, nothing is lost or doubled."""
    path, count = f"{MAPS}?watch=1&resourceVersion={api.app.objects.store.revision}", 14
    fast = [await server.watch(path) for _ in range(3)]
    many = [await server.watch(f"{path}&labelSelector=is%3Dsmall") for _ in range(FEW_WATCHERS)]
    slow = await server.watch(path, is_small=True)
    slow.transport.pause_reading()
    assert server.listener._server is not None
    transports = [each.transport for each in server.listener._server.server_state.connections]
    reading = [asyncio.create_task(each.take(2 * count)) for each in fast]
    largest = 0
    for number in range(count):
        await api.create(MAPS, config_map(f"large{number}", text="x" * 700_000))
        await api.create(MAPS, config_map(f"small{number}", {"is": "small"}))
    high = max(each.get_write_buffer_limits()[1] for each in transports)
    async with asyncio.timeout(60):
        while largest <= high or not all(task.done() for task in reading):
            largest = max(largest, *(each.get_write_buffer_size() for each in transports))
            await asyncio.sleep(0)
    expected = [f"{size}{number}" for number in range(count) for size in ("large", "small")]
    assert [[name for _, name, _ in await task] for task in reading] == [expected] * len(fast)
    for each in many:
        assert [name for _, name, _ in await each.take(count)] == expected[1::2]
    assert largest <= high + PIECE_BYTES + 800_000, "what was not read, and a piece"
    slow.transport.resume_reading()
    assert [name for _, name, _ in await slow.take(2 * count)] == expected


async def test_head_request_for_watch_is_refused_without_body(server: Server) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.listener.port)
    head = f"Host: x\r\nAuthorization: Bearer {ADMIN}\r\n"
    writer.write(f"HEAD {MAPS}?watch=1 HTTP/1.1\r\n{head}\r\n".encode())
    writer.write(f"GET /version HTTP/1.1\r\n{head}Connection: close\r\n\r\n".encode())
    async with asyncio.timeout(30):
        answers = await reader.read()
    writer.close()
    assert answers.startswith(b"HTTP/1.1 405")
    assert b"\r\n\r\nHTTP/1.1 200" in answers, "the next answer follows the head"


def test_single_event_is_sent_immediately_and_bursts_are_batched() -> None:
    """In virtual time: hundreds of watchers do not make one event wait, and a burst waits for the pause at most."""
    turns = 2_000 * 20e-6  # a turn of the loop is said to take 20 µs

    async def run() -> None:
        store, clock = SqliteStore(":memory:"), Clock()
        await store.start()
        app = ApiServer(make_config(store, clock))
        await app.start()
        api, loop = Caller(app, clock), asyncio.get_running_loop()
        streams = [await api.stream(f"{MAPS}?watch=1&resourceVersion={store.revision}") for _ in range(200)]
        for name in ("a", "b", "c"):
            await asyncio.sleep(1)
            began = loop.time()
            await api.create(MAPS, config_map(name))
            assert [await stream.take(1) for stream in streams] == [[("ADDED", name)]] * len(streams)
            assert loop.time() - began <= turns
        began = loop.time()
        for number in range(20):
            await api.create(MAPS, config_map(f"m{number}"))
        expected = [("ADDED", f"m{number}") for number in range(20)]
        assert [await stream.take(20) for stream in streams] == [expected] * len(streams)
        assert loop.time() - began <= 2 * LONGEST_PAUSE + turns
        for stream in streams:
            await stream.close()
        await app.stop()
        await store.stop()

    virtual_time.run(run())


# --- pieces


def events_of(*revisions: int, size: int = 10) -> list[Event]:
    return [
        Event(f"maps/{number}", number, None, Record(f"maps/{number}", b"x" * size, number)) for number in revisions
    ]


def line_of(event: Event) -> bytes:
    assert event.new is not None
    return b"%d:%b\n" % (event.revision, event.new.value)


def test_pieces_contain_all_lines_and_are_bounded() -> None:
    lines = [b"%d\n" % number * 10_000 for number in range(200)]
    pieces = list(pieces_of(lines))
    assert b"".join(piece.lines for piece in pieces) == b"".join(lines)
    assert max(len(piece.lines) for piece in pieces) < PIECE_BYTES + max(map(len, lines))
    for piece in pieces:
        assert piece.chunk == f"{len(piece.lines):x}\r\n".encode() + piece.lines + b"\r\n"
    assert list(pieces_of([])) == []


def test_equal_events_are_encoded_once() -> None:
    shared, events, encoded = SharedPieces(), events_of(*range(1, 301)), 0

    def line(event: Event) -> bytes:
        nonlocal encoded
        encoded += 1
        return line_of(event)

    texts = {b"".join(piece.lines for piece in shared.pieces(events, line)) for _ in range(100)}
    assert texts == {b"".join(map(line_of, events))} and encoded == 300


def test_pieces_of_large_events_are_made_one_at_a_time() -> None:
    """A watch whose client does not read holds one piece, also where no other watch lags as far behind."""
    shared, events = SharedPieces(), events_of(*range(1, 101), size=100_000)
    encoded = 0

    def line(event: Event) -> bytes:
        nonlocal encoded
        encoded += 1
        return line_of(event)

    pieces = iter(shared.pieces(events, line))
    next(pieces)
    assert encoded * 100_000 <= PIECE_BYTES + 100_000
    assert len(list(pieces)) >= 100 * 100_000 // (PIECE_BYTES + 100_000) and encoded == 100


def test_encoded_pieces_are_shared_only_for_equal_events() -> None:
    """Some of them, and others of the same revisions (of another bucket, or another life of the store)."""
    shared, events = SharedPieces(), events_of(1, 2, 3, 4)

    def text(some: list[Event]) -> bytes:
        return b"".join(piece.lines for piece in shared.pieces(some, line_of))

    for some in (events, events[:3], events[1:], [events[0], events[3]], events_of(1, 2, 3, 4, size=5), events):
        for _ in range(2):
            assert text(some) == b"".join(map(line_of, some))


def test_shared_pieces_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    shared = SharedPieces()
    for number in range(100):
        list(shared.pieces(events_of(number), line_of))
    assert len(shared._kept) == KEPT_RUNS
    monkeypatch.setattr(watch_encoder, "KEPT_BYTES", 10_000)
    for number in range(100, 200):
        list(shared.pieces(events_of(number, size=number * 40), line_of))
        assert shared._bytes == sum(run.size for run in shared._kept.values()) <= 10_000
