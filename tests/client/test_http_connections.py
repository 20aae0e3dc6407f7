"""Answers of HTTP servers as the client's connections take them: however they are cut, delimited or broken off."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
import threading
import time
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvloop
from hypothesis import given
from hypothesis import strategies as st
from left_over import left_to_a_collection

from haru.client.api import ApiClient
from haru.client.deadlines import Deadlines
from haru.client.exchange import Exchange
from haru.client.http import HttpTransport
from haru.client.http_connections import HttpConnection, HttpConnections
from haru.client.transport import Request
from haru.fair_loop import FairLoop

GET = Request("GET", "/x")
BODY = b'{"kind":"Status"}' * 3
COMPRESSOR = zlib.compressobj(wbits=31)
GZIPPED = COMPRESSOR.compress(BODY) + COMPRESSOR.flush()


def _chunked(body: bytes, size: int = 7) -> bytes:
    parts = [body[start : start + size] for start in range(0, len(body), size)]
    return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in [*parts, b""])


WITH_LENGTH = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(BODY), BODY)
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + _chunked(BODY)
COMPRESSED = b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n" + _chunked(GZIPPED)
CONTINUED = b"HTTP/1.1 100 Continue\r\n\r\n" + WITH_LENGTH
UNTIL_CLOSED = b"HTTP/1.0 200 OK\r\n\r\n" + BODY


class _Written:
    """A transport that remembers what its user did."""

    def __init__(self) -> None:
        self.sent, self.paused, self.aborted = b"", False, False

    def write(self, data: bytes) -> None:
        self.sent += data

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False

    def abort(self) -> None:
        self.aborted = True


def _connection(whole: bool) -> tuple[HttpConnection, Exchange, _Written]:
    connection, exchange, transport = HttpConnection(), Exchange(GET, whole), _Written()
    connection.connection_made(transport)  # type: ignore[arg-type]
    connection.start(b"GET /x HTTP/1.1\r\n\r\n", exchange)
    return connection, exchange, transport


async def _read(exchange: Exchange, whole: bool) -> bytes:
    if whole:
        return await exchange.body()
    return b"".join([chunk async for chunk in exchange.chunks()])


@given(
    st.sampled_from([WITH_LENGTH, CHUNKED, COMPRESSED, CONTINUED]),
    st.lists(st.integers(1, 40), min_size=1, max_size=30),
    st.booleans(),
)
def test_answer_cut_anywhere_has_the_same_body_and_leaves_the_connection_usable(
    answer: bytes, cuts: list[int], whole: bool
) -> None:
    connection, exchange, _ = _connection(whole)
    position = 0
    for size in [*cuts, len(answer)]:
        if part := answer[position : position + size]:
            connection.data_received(part)
        position += size
    assert asyncio.run(_read(exchange, whole)) == BODY
    assert exchange.status == 200
    assert connection.reusable


@pytest.mark.parametrize("whole", [True, False])
def test_body_that_ends_with_its_connection_is_complete(whole: bool) -> None:
    connection, exchange, _ = _connection(whole)
    connection.data_received(UNTIL_CLOSED)
    connection.connection_lost(None)
    assert asyncio.run(_read(exchange, whole)) == BODY
    assert not connection.reusable


@pytest.mark.parametrize("answer", [WITH_LENGTH, CHUNKED, COMPRESSED, b""])
@pytest.mark.parametrize("whole", [True, False])
def test_answer_that_breaks_off_is_a_connection_error(answer: bytes, whole: bool) -> None:
    connection, exchange, _ = _connection(whole)
    connection.data_received(answer[:-4] or b"HTTP/1.1 ")
    connection.connection_lost(None)
    with pytest.raises(ConnectionError, match="GET /x: the server closed the connection"):
        asyncio.run(_read(exchange, whole))


def test_answer_that_is_not_http_is_a_connection_error() -> None:
    connection, exchange, transport = _connection(whole=True)
    connection.data_received(b"SSH-2.0-OpenSSH_9.9\r\n")
    with pytest.raises(ConnectionError, match="the answer is not HTTP"):
        asyncio.run(exchange.body())
    assert transport.aborted


def test_connection_that_the_server_will_close_carries_no_other_request() -> None:
    connection, exchange, _ = _connection(whole=True)
    connection.data_received(WITH_LENGTH.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n", 1))
    assert exchange.done
    assert not connection.reusable


def test_headers_of_an_answer_that_comes_whole_can_be_read() -> None:
    connection, exchange, _ = _connection(whole=True)
    connection.data_received(b"HTTP/1.1 429 Too Many Requests\r\nRetry-After:  2 \r\nContent-Length: 2\r\n\r\n{}")
    assert exchange.done and exchange.status == 429
    assert exchange.headers["retry-after"] == "2"
    assert dict(exchange.headers) == {"retry-after": "2", "content-length": "2"}


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 9\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nContent-Length: -2\r\n\r\n",
        b"HTTP/1.1 2x0 OK\r\nContent-Length: 2\r\n\r\n{}",
    ],
)
def test_answer_that_contradicts_itself_is_a_connection_error(answer: bytes) -> None:
    connection, exchange, transport = _connection(whole=True)
    connection.data_received(answer)
    with pytest.raises(ConnectionError, match="the answer is not HTTP"):
        asyncio.run(exchange.body())
    assert transport.aborted


def test_answer_without_a_body_whatever_its_length_says_is_complete() -> None:
    connection, exchange, _ = _connection(whole=True)
    connection.data_received(b"HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n")
    assert exchange.done and exchange.status == 204
    assert connection.reusable


def test_bytes_that_nobody_asked_for_close_the_connection() -> None:
    connection, _, transport = _connection(whole=True)
    connection.data_received(WITH_LENGTH)
    connection.data_received(WITH_LENGTH)
    assert transport.aborted
    assert not connection.reusable


def test_stream_that_is_not_read_stops_the_connection_until_it_is() -> None:
    connection, exchange, transport = _connection(whole=False)
    connection.data_received(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    for _ in range(20):
        connection.data_received(b"10000\r\n" + b"x" * 65536 + b"\r\n")
    assert transport.paused

    async def first() -> int:
        return len(await anext(aiter(exchange.chunks())))

    assert asyncio.run(first()) == 20 * 65536
    assert not transport.paused


@pytest.mark.parametrize("value", ["a\r\nx-remote-user: admin", "a\nb"])
def test_header_of_several_lines_is_refused(value: str) -> None:
    with pytest.raises(ValueError, match="x-name has several lines"):
        HttpConnections("http://h").encoded(Request("GET", "/", headers={"x-name": value}))


def test_request_has_host_prefix_query_and_length() -> None:
    connections = HttpConnections("https://user@h:6443/k8s/c-1/")
    request = Request("POST", "/api/v1/a b", [("x", "1 2")], {"accept": "application/json"}, b"{}")
    assert connections.encoded(request) == (
        b"POST /k8s/c-1/api/v1/a%20b?x=1%202 HTTP/1.1\r\nhost: h:6443\r\naccept: application/json\r\n"
        b"content-length: 2\r\n\r\n{}"
    )
    assert b"content-length" not in connections.encoded(GET)


# -- over sockets -----------------------------------------------------------------------------------------------------

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def _transport(serve: Serve) -> AsyncIterator[HttpTransport]:
    async def handled(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await serve(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(handled, "127.0.0.1", 0)
    transport = HttpTransport(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    try:
        yield transport
    finally:
        await transport.close()
        server.close()


_HEADER_LINES = [
    b"Content-Length: %d" % len(BODY),
    b"content-length: 2",
    b"Content-Length : 2",
    b"Transfer-Encoding: chunked",
    b"Connection: close",
    b"Connection: keep-alive",
    b"Audit-Id: 1",
    b"X-Content-Length: 7",
    b"Warning: a\r\n b",
    b"no colon",
    b"",
]


def _outcome(answer: bytes, pieces: int) -> tuple[object, ...]:
    """What comes of an answer that arrives in one piece or byte by byte, which only a parser understands."""
    connection, exchange, _ = _connection(whole=True)
    for start in range(0, len(answer), size := -(-len(answer) // pieces)):
        connection.data_received(answer[start : start + size])
    body = b"".join(exchange._chunks) if exchange.done else b""
    headers = dict(exchange.headers) if exchange.done else {}
    return (
        exchange.done,
        exchange.error is not None,
        exchange.done and exchange.status,
        headers,
        body,
        connection.reusable,
    )


@pytest.mark.parametrize(
    "first", [b"HTTP/1.1 200 OK", b"HTTP/1.1 201", b"HTTP/1.0 200 OK", b"HTTP/1.1 204 No", b"HTTP/1.1 20 OK"]
)
@pytest.mark.parametrize("end", [b"\r\n", b"\n"])
def test_answer_in_one_piece_comes_to_what_it_does_byte_by_byte(first: bytes, end: bytes) -> None:
    for before, after in itertools.product(_HEADER_LINES, repeat=2):
        for body in (BODY, BODY[:-1], b"{}"):
            answer = end.join([first, before, _HEADER_LINES[0], after, b"", b""]) + body
            assert _outcome(answer, 1) == _outcome(answer, len(answer)), answer


async def test_requests_one_after_the_other_share_a_connection() -> None:
    seen: list[Any] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(writer)
        while True:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(WITH_LENGTH)

    async with _transport(serve) as transport:
        for _ in range(3):
            assert (await transport.send(GET, 60)).body == BODY
        assert len(seen) == 1
        await asyncio.gather(*(transport.send(GET, 60) for _ in range(4)))
        assert len(seen) == 4


async def test_answer_that_does_not_come_is_a_timeout_and_its_connection_is_not_used_again() -> None:
    seen: list[Any] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(writer)
        await reader.readuntil(b"\r\n\r\n")
        if len(seen) > 1:
            writer.write(WITH_LENGTH)
        await reader.read()

    async with _transport(serve) as transport:
        with pytest.raises(TimeoutError):
            await transport.send(GET, 0.2)
        assert (await transport.send(GET, 60)).body == BODY
        assert len(seen) == 2


async def test_reader_that_leaves_a_stream_or_is_cancelled_closes_its_connection() -> None:
    arrived, closed = asyncio.Queue[bytes](), asyncio.Queue[bytes]()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        arrived.put_nowait(head)
        if b"/stream" in head:
            writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + _chunked(BODY)[:-5])
        try:
            await reader.read()
        finally:
            closed.put_nowait(head)

    async with _transport(serve) as transport, asyncio.timeout(60):
        async with transport.stream(Request("GET", "/stream"), 60) as stream:
            assert stream.status == 200
            assert await anext(aiter(stream.chunks))
        assert b"/stream" in await closed.get()
        assert b"/stream" in await arrived.get()
        waiting = asyncio.create_task(transport.send(GET, 60))
        assert b"/x" in await arrived.get()
        waiting.cancel()
        assert b"/x" in await closed.get()
        with pytest.raises(asyncio.CancelledError):
            await waiting


async def test_connection_that_was_closed_meanwhile_is_not_used() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(WITH_LENGTH)

    async with _transport(serve) as transport:
        for _ in range(3):
            assert (await transport.send(GET, 60)).status == 200
            await asyncio.sleep(0.01)


METHODS = ["GET", "PUT", "DELETE", "POST", "PATCH"]


class _Server:
    """A server in a thread, so that what it does reaches the client's kernel and not yet its event loop.

    It answers with the number of the connection. A request to /cut it reads, and closes the connection.
    """

    def __init__(self) -> None:
        self.seen: list[str] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self.port = self._listener.getsockname()[1]
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def _accept(self) -> None:
        for number in itertools.count(1):
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._open.append(connection)
            self._threads.append(threading.Thread(target=self._serve, args=(connection, number)))
            self._threads[-1].start()

    def _serve(self, connection: socket.socket, number: int) -> None:
        with connection, contextlib.suppress(OSError):
            while head := connection.recv(1 << 16):
                self.seen.append(head.split(b" HTTP", 1)[0].decode())
                if b"/cut" in head:
                    return
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n%d" % number)

    def close_idle(self) -> None:
        """Hold up the client's loop and close the connections: their end has come to its kernel when this returns."""
        time.sleep(0.2)
        self._cut()

    def _cut(self) -> None:
        for connection in self._open:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._cut()
        for thread in self._threads:
            thread.join(60)


@pytest.fixture
def server() -> Iterator[_Server]:
    with contextlib.closing(_Server()) as server:
        yield server


@pytest.mark.parametrize("method", METHODS)
async def test_request_on_a_connection_that_was_just_closed_takes_another(server: _Server, method: str) -> None:
    transport = HttpTransport(f"http://127.0.0.1:{server.port}")
    assert (await transport.send(GET, 60)).body == b"1"
    server.close_idle()
    assert (await transport.send(Request(method, "/x"), 60)).body == b"2"
    assert server.seen == ["GET /x", f"{method} /x"]
    await transport.close()


@pytest.mark.parametrize("method", METHODS)
async def test_only_reads_are_repeated_when_the_server_closes_the_connection_instead_of_an_answer(
    server: _Server, method: str
) -> None:
    async with ApiClient.http(f"http://127.0.0.1:{server.port}", sleep=lambda _: asyncio.sleep(0)) as client:
        await client.raw("GET", "/x")
        with pytest.raises(ConnectionError, match=f"{method} /cut: the server closed the connection|reset"):
            await client.raw(method, "/cut")
    assert server.seen == ["GET /x", *[f"{method} /cut"] * (3 if method == "GET" else 1)]


def test_connection_whose_end_was_told_carries_no_other_request() -> None:
    connection, _, _ = _connection(whole=True)
    connection.data_received(WITH_LENGTH)
    assert connection.reusable
    connection.eof_received()  # its transport closes, and sends nothing more
    assert not connection.reusable


async def test_server_that_is_not_there_is_an_os_error() -> None:
    server = await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    with pytest.raises(OSError, match=r"Connect|refused"):
        await HttpTransport(f"http://127.0.0.1:{port}").send(GET, 60)


async def test_each_exchange_ends_at_its_own_time() -> None:
    deadlines, loop = Deadlines(), asyncio.get_running_loop()
    ended: list[str] = []
    exchanges = {}
    for name, seconds in (("late", 30.0), ("soon", 0.05), ("later", 0.1), ("answered", 0.05)):
        exchanges[name] = Exchange(GET, whole=True)
        deadlines.add(exchanges[name], loop.time() + seconds)
    deadlines.drop(exchanges["answered"])

    async def wait(name: str) -> None:
        with pytest.raises(TimeoutError):
            await exchanges[name].body()
        ended.append(name)

    async with asyncio.timeout(60):
        await asyncio.gather(wait("later"), wait("soon"))
    assert ended == ["soon", "later"]
    assert exchanges["late"].error is None and exchanges["answered"].error is None


PIECES = {
    "nothing": b"",
    "an answer": WITH_LENGTH,
    "half a head": WITH_LENGTH[:20],
    "half a body": WITH_LENGTH[:-4],
    "half of the chunks": CHUNKED[:-4],
    "all until the end": UNTIL_CLOSED,
}


@pytest.mark.parametrize("loop", [asyncio.SelectorEventLoop, uvloop.new_event_loop, FairLoop])
@pytest.mark.parametrize("sent", PIECES)
def test_connection_that_the_server_ends_needs_no_garbage_collection(sent: str, loop: Any) -> None:
    async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(PIECES[sent])
        writer.close()

    async def asked(transport: HttpTransport) -> None:
        with contextlib.suppress(OSError):
            await transport.send(GET, 10)
        with contextlib.suppress(OSError):
            async with transport.stream(GET, 10) as stream:
                await stream.read()
        await asyncio.sleep(0.02)

    async def run() -> list[str]:
        server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
        transport = HttpTransport(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        await asked(transport)
        with left_to_a_collection() as garbage:
            for _ in range(3):
                await asked(transport)
        await transport.close()
        server.close()
        return [kind for kind in garbage if kind.startswith("haru.client.")]

    with asyncio.Runner(loop_factory=loop) as runner:
        assert runner.run(run()) == []
