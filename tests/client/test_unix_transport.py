"""The transport over a Unix socket: what comes in any pieces is one answer, and connections are kept while they may."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haru.client.transport import Request
from haru.client.unix import UnixTransport, _Connection, encoded

GET = Request("GET", "/api/v1/pods", [("limit", "5")], {"accept": "application/json"})


class Wire:
    """The other end of a connection, as far as the connection sees it."""

    def __init__(self) -> None:
        self.written = b""
        self.is_paused = self.is_aborted = False

    def write(self, data: bytes) -> None:
        self.written += data

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False

    def abort(self) -> None:
        self.is_aborted = True


def chunked(pieces: list[bytes]) -> bytes:
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces if piece) + b"0\r\n\r\n"


@given(st.lists(st.binary(max_size=50), max_size=6), st.booleans(), st.lists(st.integers(0, 400), max_size=8))
def test_answer_is_the_same_however_it_is_cut(pieces: list[bytes], in_one_piece: bool, cuts: list[int]) -> None:
    body = b"".join(pieces)
    sized = b"HTTP/1.1 201 Created\r\nX-Kept: yes\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
    streamed = b"HTTP/1.1 201 Created\r\nX-Kept: yes\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked(pieces)

    async def answered(data: bytes) -> tuple[int, str, bytes, bool]:
        connection, wire = _Connection(), Wire()
        connection.connection_made(wire)  # type: ignore[arg-type]
        connection.begin(GET, in_one_piece=in_one_piece)
        edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
        for begin, end in pairwise(edges):
            asyncio.get_running_loop().call_soon(connection.data_received, data[begin:end])
        await connection.changed()
        got = connection.taken() if in_one_piece else b"".join([chunk async for chunk in connection.chunks()])
        return connection.status, connection.headers["x-kept"], got, connection.usable

    for data in (sized, streamed):
        assert asyncio.run(answered(data)) == (201, "yes", body, True)


def test_request_is_one_write_with_length_and_query() -> None:
    request = Request("POST", "/api/v1/pods", [("a", "b c")], {"accept": "x"}, b"{}")
    head, _, body = encoded(request).partition(b"\r\n\r\n")
    assert head.split(b"\r\n") == [
        b"POST /api/v1/pods?a=b%20c HTTP/1.1",
        b"host: haru.local",
        b"accept: x",
        b"content-length: 2",
    ]
    assert body == b"{}"


def test_header_of_two_lines_is_refused() -> None:
    with pytest.raises(ValueError, match="more than a line"):
        encoded(Request("GET", "/", (), {"accept": "x\r\nauthorization: y"}))


async def test_stream_that_is_not_read_pauses_the_server() -> None:
    connection, wire = _Connection(), Wire()
    connection.connection_made(wire)  # type: ignore[arg-type]
    connection.begin(GET, in_one_piece=False)
    connection.data_received(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    for _ in range(20):
        connection.data_received(b"10000\r\n" + bytes(0x10000) + b"\r\n")
    assert wire.is_paused
    assert len(connection.taken()) == 20 * 0x10000
    assert not wire.is_paused


class Server:
    """Answers each request on a socket by a function of its number, and counts connections."""

    def __init__(self, path: Path, answer: Callable[[int], bytes]) -> None:
        self._path, self._answer = path, answer
        self.requests = self.connections = 0
        self._server: Any = None
        self._serving: set[asyncio.Task[Any]] = set()

    async def __aenter__(self) -> Server:
        self._server = await asyncio.start_unix_server(self._serve, self._path)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._serving:
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                self.requests += 1
                writer.write(self._answer(self.requests))
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            writer.close()


OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


async def test_connection_is_kept_and_shared_by_requests_that_follow_each_other(tmp_path: Path) -> None:
    async with Server(tmp_path / "s", lambda number: OK) as server:
        transport = UnixTransport(tmp_path / "s")
        for _ in range(5):
            assert (await transport.send(GET, 60)).body == b"ok"
        assert (server.requests, server.connections) == (5, 1)
        both = await asyncio.gather(transport.send(GET, 60), transport.send(GET, 60))
        assert [each.status for each in both] == [200, 200] and server.connections == 2
        await transport.close()


async def test_connection_that_the_server_closes_is_not_used_again(tmp_path: Path) -> None:
    closing = OK.replace(b"content-length", b"connection: close\r\ncontent-length")
    async with Server(tmp_path / "s", lambda number: closing if number == 1 else OK) as server:
        transport = UnixTransport(tmp_path / "s")
        await transport.send(GET, 60)
        await transport.send(GET, 60)
        assert server.connections == 2
        await transport.close()


async def test_silent_server_is_a_timeout_and_its_connection_is_given_up(tmp_path: Path) -> None:
    async with Server(tmp_path / "s", lambda number: b"" if number == 1 else OK) as server:
        transport = UnixTransport(tmp_path / "s")
        with pytest.raises(TimeoutError):
            await transport.send(GET, 0.05)
        assert (await transport.send(GET, 60)).body == b"ok"
        assert server.connections == 2
        await transport.close()


async def test_server_that_is_not_there_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(OSError):
        await UnixTransport(tmp_path / "nobody").send(GET, 60)


async def test_path_longer_than_an_address_is_reached(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 120)
    deep.mkdir()
    short = tmp_path / "s"
    async with Server(short, lambda number: OK):
        short.rename(deep / "api.sock")
        transport = UnixTransport(deep / "api.sock")
        assert (await transport.send(GET, 60)).body == b"ok"
        await transport.close()
